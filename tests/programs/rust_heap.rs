//! A Rust program that counts its own heap through a global allocator which
//! forwards to the system's: what `malloc` is asked for is known exactly.
//! argv: counts MODE ("nothing" or "work").
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

struct Counting;
static ALLOCS: AtomicI64 = AtomicI64::new(0);
static FREES: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);
static FREED: AtomicI64 = AtomicI64::new(0);
static REALLOCS: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

fn made(size: usize) {
    ALLOCS.fetch_add(1, Relaxed);
    let bytes = BYTES.fetch_add(size as i64, Relaxed) + size as i64;
    PEAK.fetch_max(bytes - FREED.load(Relaxed), Relaxed);
}

fn gone(size: usize) {
    FREES.fetch_add(1, Relaxed);
    FREED.fetch_add(size as i64, Relaxed);
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let p = black_box(System.alloc(layout));
        if !p.is_null() {
            made(layout.size());
        }
        p
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let p = black_box(System.alloc_zeroed(layout));
        if !p.is_null() {
            made(layout.size());
        }
        p
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        gone(layout.size());
        System.dealloc(p, layout)
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let q = black_box(System.realloc(p, layout, size));
        if !q.is_null() {
            gone(layout.size());
            made(size);
            REALLOCS.fetch_add(1, Relaxed);
        }
        q
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[inline(never)]
fn work() {
    let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
    for i in 0..2000u64 {
        map.insert(i, vec![i as u8; (i % 100) as usize]);
    }
    let mut grown = Vec::new();
    for i in 0..10_000u32 {
        grown.push(Box::new(i));
    }
    map.retain(|key, _| key % 3 == 0);
    let text: String = grown.iter().map(|number| number.to_string()).collect();
    assert!(text.len() > 10_000);
    std::mem::forget(map); // a leak of known size
    std::panic::set_hook(Box::new(|_| {}));
    for i in 0..50 {
        let result = std::panic::catch_unwind(|| {
            let held = vec![0u8; 1000 + i];
            if held.len() > 10 {
                panic!("caught {i}");
            }
        });
        assert!(result.is_err());
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a path");
    if args.next().as_deref() == Some("work") {
        work();
    }
    let file = std::fs::File::create(path).expect("a file");
    // What follows uses the heap no more: numbers are formatted in place.
    use std::io::Write;
    let (allocs, frees) = (ALLOCS.load(Relaxed), FREES.load(Relaxed));
    let (bytes, freed) = (BYTES.load(Relaxed), FREED.load(Relaxed));
    write!(
        &file,
        "{{\"allocations\":{allocs},\"frees\":{frees},\"bytes_allocated\":{bytes},\"bytes_freed\":{freed},\
         \"reallocations\":{},\"peak_bytes\":{},\"live_blocks\":{},\"live_bytes\":{}}}",
        REALLOCS.load(Relaxed),
        PEAK.load(Relaxed),
        allocs - frees,
        bytes - freed
    )
    .expect("written");
    // No destructors, no at-exit work: what is counted is what is done.
    unsafe { _exit(0) }
}

extern "C" {
    fn _exit(code: i32) -> !;
}
