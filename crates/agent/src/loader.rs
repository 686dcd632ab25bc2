//! The dynamic loader's own tables: which objects are loaded, and what they
//! export. Read directly, since `dlsym` takes locks and may allocate.

use core::arch::asm;
use core::ffi::CStr;

/// glibc's and musl's public head of an entry in the list of objects.
#[repr(C)]
pub struct LinkMap {
    /// Address in memory minus address in the file.
    pub bias: u64,
    /// Path, empty for the program itself.
    pub name: *const core::ffi::c_char,
    /// The dynamic section.
    pub dynamic: *const Dyn,
    /// The next object in load order.
    pub next: *const LinkMap,
    /// The previous one.
    pub previous: *const LinkMap,
}

/// An entry of the dynamic section.
#[repr(C)]
pub struct Dyn {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct RDebug {
    version: i32,
    map: *const LinkMap,
}

#[repr(C)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    shndx: u16,
    value: u64,
    size: u64,
}

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_HASH: i64 = 4;
const DT_DEBUG: i64 = 21;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;

/// Addresses of symbols that may be absent (weak): glibc's `_r_debug` and
/// `__libc_stack_end`, everyone's `environ` and `getauxval`.
macro_rules! weak {
    ($name:ident, $symbol:literal) => {
        fn $name() -> usize {
            let value: usize;
            // SAFETY: loads a word of our own GOT; zero if nobody defines the symbol.
            unsafe {
                asm!(
                    concat!(".weak ", $symbol),
                    concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                    out(reg) value,
                    options(nostack, preserves_flags, pure, readonly),
                );
            }
            value
        }
    };
}

weak!(weak_r_debug, "_r_debug");
weak!(weak_stack_end, "__libc_stack_end");
weak!(weak_environ, "environ");
weak!(weak_getauxval, "getauxval");

/// The first loaded object: the program.
pub fn first() -> Option<&'static LinkMap> {
    let r_debug = weak_r_debug() as *const RDebug;
    // SAFETY: the loader's structure; its list is there before any other code runs.
    unsafe {
        if !r_debug.is_null()
            && let Some(map) = (*r_debug).map.as_ref()
        {
            return Some(map);
        }
        from_program_headers()
    }
}

/// musl exports no `_r_debug`; the program's DT_DEBUG entry points to it.
unsafe fn from_program_headers() -> Option<&'static LinkMap> {
    let getauxval = weak_getauxval();
    if getauxval == 0 {
        return None;
    }
    // SAFETY: getauxval's type; the program headers of the running program.
    unsafe {
        let getauxval: extern "C" fn(u64) -> u64 = core::mem::transmute(getauxval);
        let (headers, count) = (getauxval(AT_PHDR), getauxval(AT_PHNUM));
        if headers == 0 {
            return None;
        }
        let header = |i: u64| (headers + i * 56) as *const u32;
        let field = |i: u64, at: usize| *header(i).cast::<u8>().add(at).cast::<u64>();
        let mut bias = 0;
        for i in 0..count {
            if *header(i) == PT_PHDR {
                bias = headers - field(i, 16);
            }
        }
        for i in 0..count {
            if *header(i) == PT_DYNAMIC {
                let dynamic = (bias + field(i, 16)) as *const Dyn;
                let debug = tag(dynamic, DT_DEBUG)? as *const RDebug;
                return debug.as_ref()?.map.as_ref();
            }
        }
        None
    }
}

/// The value of an entry of a dynamic section.
unsafe fn tag(mut dynamic: *const Dyn, wanted: i64) -> Option<u64> {
    // SAFETY: a dynamic section ends with DT_NULL.
    unsafe {
        while (*dynamic).tag != DT_NULL {
            if (*dynamic).tag == wanted {
                return Some((*dynamic).value);
            }
            dynamic = dynamic.add(1);
        }
    }
    None
}

impl LinkMap {
    /// The object that follows.
    pub fn next(&self) -> Option<&'static LinkMap> {
        // SAFETY: the loader's list; objects present at start-up stay.
        unsafe { self.next.as_ref() }
    }

    /// Its path as the loader has it.
    pub fn path(&self) -> &'static [u8] {
        if self.name.is_null() {
            return &[];
        }
        // SAFETY: the loader's zero-terminated name.
        unsafe { CStr::from_ptr(self.name).to_bytes() }
    }

    /// An address from the dynamic section: glibc has relocated it, musl has not.
    unsafe fn pointer(&self, wanted: i64) -> Option<u64> {
        // SAFETY: the object's dynamic section.
        let value = unsafe { tag(self.dynamic, wanted)? };
        Some(if value < self.bias { value + self.bias } else { value })
    }

    /// The address of an exported function.
    pub fn function(&self, name: &[u8]) -> Option<usize> {
        // SAFETY: the tables of a loaded object, laid out as the ELF gABI says.
        unsafe {
            let symbols = self.pointer(DT_SYMTAB)? as *const Sym;
            let strings = self.pointer(DT_STRTAB)? as *const u8;
            let index = match self.pointer(DT_GNU_HASH) {
                Some(table) => gnu_lookup(table as *const u32, symbols, strings, name),
                None => sysv_lookup(self.pointer(DT_HASH)? as *const u32, symbols, strings, name),
            }?;
            let symbol = &*symbols.add(index as usize);
            let address = (self.bias + symbol.value) as usize;
            if symbol.info & 15 == STT_GNU_IFUNC {
                let resolver: extern "C" fn() -> usize = core::mem::transmute(address);
                return Some(resolver());
            }
            Some(address)
        }
    }
}

/// Is symbol `index` a defined function of this name?
unsafe fn is(symbols: *const Sym, strings: *const u8, index: u32, name: &[u8]) -> bool {
    // SAFETY: the index comes from the object's own hash table.
    unsafe {
        let symbol = &*symbols.add(index as usize);
        let kind = symbol.info & 15;
        if symbol.shndx == 0 || !(kind == STT_FUNC || kind == STT_GNU_IFUNC) {
            return false;
        }
        let at = strings.add(symbol.name as usize);
        for (i, &byte) in name.iter().enumerate() {
            if *at.add(i) != byte {
                return false;
            }
        }
        *at.add(name.len()) == 0
    }
}

/// The GNU hash table: bloom filter, buckets, chains whose last hash is odd.
unsafe fn gnu_lookup(table: *const u32, symbols: *const Sym, strings: *const u8, name: &[u8]) -> Option<u32> {
    let mut hash = 5381u32;
    for &byte in name {
        hash = hash.wrapping_mul(33).wrapping_add(u32::from(byte));
    }
    // SAFETY: the table's own sizes bound every access.
    unsafe {
        let (buckets, first, bloom) = (*table, *table.add(1), *table.add(2));
        if buckets == 0 {
            return None;
        }
        let bucket_at = table.add(4 + 2 * bloom as usize);
        let chain_at = bucket_at.add(buckets as usize);
        let mut index = *bucket_at.add((hash % buckets) as usize);
        if index < first {
            return None;
        }
        loop {
            let entry = *chain_at.add((index - first) as usize);
            if (entry | 1) == (hash | 1) && is(symbols, strings, index, name) {
                return Some(index);
            }
            if entry & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }
}

/// The System V hash table: buckets and chains of indices.
unsafe fn sysv_lookup(
    table: *const u32,
    symbols: *const Sym,
    strings: *const u8,
    name: &[u8],
) -> Option<u32> {
    let mut hash = 0u32;
    for &byte in name {
        hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        hash ^= high >> 24;
        hash &= !high;
    }
    // SAFETY: the table's own sizes bound every access.
    unsafe {
        let buckets = *table;
        if buckets == 0 {
            return None;
        }
        let mut index = *table.add(2 + (hash % buckets) as usize);
        while index != 0 {
            if is(symbols, strings, index, name) {
                return Some(index);
            }
            index = *table.add(2 + buckets as usize + index as usize);
        }
    }
    None
}

/// The environment, as the kernel laid it on the stack or as libc has it now.
pub fn environment() -> Option<*mut *mut u8> {
    let environ = weak_environ() as *const *mut *mut u8;
    // SAFETY: libc's variable, and glibc's pointer to the initial stack: argc,
    // argv[argc], NULL, envp.
    unsafe {
        if !environ.is_null() && !(*environ).is_null() {
            return Some(*environ);
        }
        let stack_end = weak_stack_end() as *const *const usize;
        if stack_end.is_null() || (*stack_end).is_null() {
            return None;
        }
        let argc = **stack_end;
        Some((*stack_end).add(argc + 2) as *mut *mut u8)
    }
}

/// The stack pointer that the kernel gave the program, where glibc tells it.
pub fn initial_stack() -> u64 {
    let stack_end = weak_stack_end() as *const u64;
    // SAFETY: glibc's variable, set before any other code runs.
    if stack_end.is_null() { 0 } else { unsafe { *stack_end } }
}

/// The current environment of exec without an explicit one.
pub fn current_environment() -> *const *const u8 {
    let environ = weak_environ() as *const *const *const u8;
    if environ.is_null() {
        return core::ptr::null();
    }
    // SAFETY: libc's variable.
    unsafe { *environ }
}

/// The object that holds `address`, judged by the dynamic sections alone: the
/// nearest bias below. Good enough to find ourselves.
pub fn own() -> Option<&'static LinkMap> {
    let me = own as *const () as u64;
    let mut best: Option<&'static LinkMap> = None;
    let mut at = first();
    while let Some(map) = at {
        if map.bias <= me && best.is_none_or(|b| map.bias > b.bias) {
            best = Some(map);
        }
        at = map.next();
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_and_its_functions_are_found() {
        let mut found = None;
        let mut at = first();
        while let Some(map) = at {
            if map.path().windows(7).any(|w| w == b"libc.so") {
                found = Some(map);
            }
            at = map.next();
        }
        let libc = found.expect("a test program has a libc");
        assert!(libc.function(b"malloc").is_some());
        assert!(libc.function(b"no_such_function_in_libc").is_none());
        // SAFETY: dlsym with a valid name.
        let theirs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qsort".as_ptr()) };
        assert_eq!(libc.function(b"qsort"), Some(theirs as usize));
    }

    #[test]
    fn the_environment_is_found() {
        assert!(environment().is_some());
    }
}
