//! The exec family: the recorded process takes its recorder along into the new
//! image; everybody else sees an environment without us.
//!
//! A forked or vforked child passes straight through: its process id is not
//! the recorded one.

use core::ffi::c_char;
use core::sync::atomic::Ordering::*;

use highwater_event::layout::{AGENT_ATTACHED, AGENT_EXEC, ENV_SHARED};

use super::{real, stub};
use crate::start::{self, Text};
use crate::{loader, sys};

type Strings = *const *const u8;

stub!("execve", stub_execve, 3, execve);
stub!("execv", stub_execv, 2, execv);
stub!("execvp", stub_execvp, 2, execvp);
stub!("execvpe", stub_execvpe, 3, execvpe);
stub!("fexecve", stub_fexecve, 3, fexecve);

/// An environment that takes the recorder along, in a mapping of its own.
struct Carried {
    memory: *mut u8,
    bytes: usize,
    environment: Strings,
}

/// Is this the recorded process, and is it to be followed?
fn followed() -> bool {
    start::shared().is_some_and(|shared| {
        let header = shared.header();
        header.follow_exec != 0
            && sys::getpid() == start::owner()
            && shared.recorder_lives()
            && successor_is_ready(shared)
    })
}

/// A chain of execs may outrun the recorder: it gets a second to make the
/// memory for the next image.
fn successor_is_ready(shared: &start::Shared) -> bool {
    let header = shared.header();
    for _ in 0..200 {
        if header.next_fd.load(Acquire) >= 0 {
            return true;
        }
        ring(shared);
        sys::futex_wait(&header.recorder.tick, header.recorder.tick.load(Acquire), 5_000_000);
    }
    false
}

/// Wakes the recorder.
fn ring(shared: &start::Shared) {
    let bell = &shared.header().recorder.doorbell;
    bell.fetch_add(1, SeqCst);
    sys::futex_wake(bell);
}

/// Copies `from` with our two variables added.
fn carry(from: Strings) -> Option<Carried> {
    let shared = start::shared()?;
    let header = shared.header();
    let own = loader::own()?.path();
    // SAFETY: an environment list of zero-terminated strings.
    unsafe {
        let mut count = 0;
        let mut preload: &[u8] = &[];
        if !from.is_null() {
            while !(*from.add(count)).is_null() {
                let entry = *from.add(count);
                if start::is_variable(entry, b"LD_PRELOAD") {
                    let value = entry.add(b"LD_PRELOAD=".len());
                    preload = core::slice::from_raw_parts(value, start::length(value));
                }
                count += 1;
            }
        }
        let list_bytes = (count + 3) * 8;
        let bytes = list_bytes + own.len() + preload.len() + 256;
        let memory = sys::map_private(bytes)?;
        let list = memory.cast::<*const u8>();
        let mut at = memory.add(list_bytes);
        let mut put = |text: &[u8]| {
            core::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
            at = at.add(text.len());
        };
        let first = memory.add(list_bytes);
        put(b"LD_PRELOAD=");
        put(own);
        if !preload.is_empty() {
            put(b":");
            put(preload);
        }
        put(b"\0");
        let mut address = Text::<96>::new();
        address
            .push(ENV_SHARED.as_bytes())
            .push(b"=")
            .number(u64::from(header.recorder_pid))
            .push(b":")
            .number(header.next_fd.load(Acquire) as u64)
            .push(b":")
            .number(header.next_token.load(Acquire))
            .push(b"\0");
        put(address.bytes());
        let second = at.sub(address.bytes().len());
        *list = first;
        *list.add(1) = second;
        let mut n = 2;
        for i in 0..count {
            let entry = *from.add(i);
            if !start::is_variable(entry, b"LD_PRELOAD") && !start::is_variable(entry, ENV_SHARED.as_bytes())
            {
                *list.add(n) = entry;
                n += 1;
            }
        }
        *list.add(n) = core::ptr::null();
        Some(Carried { memory, bytes, environment: list })
    }
}

/// Runs `exec` with an environment that takes the recorder along if this
/// process is to be followed, with the given one if not.
fn exec_with(environment: Strings, exec: impl Fn(Strings) -> i32) -> i32 {
    if !followed() {
        return exec(environment);
    }
    let Some(carried) = carry(environment) else { return exec(environment) };
    announce(AGENT_EXEC);
    let result = exec(carried.environment);
    // Only a failed exec returns.
    announce(AGENT_ATTACHED);
    // SAFETY: nobody else knows the copy.
    unsafe { sys::unmap(carried.memory, carried.bytes) };
    result
}

fn announce(state: u32) {
    if let Some(shared) = start::shared() {
        let agent = &shared.header().agent;
        agent.exec_pid.store(sys::getpid(), Relaxed);
        agent.state.store(state, Release);
        if state == AGENT_EXEC {
            ring(shared);
        }
    }
}

type Execve = extern "C" fn(*const c_char, Strings, Strings) -> i32;

unsafe extern "C" fn execve(path: *const c_char, args: Strings, env: Strings, _sp: u64, _bp: u64) -> i32 {
    let Some(real) = real!(execve, Execve) else { return -1 };
    exec_with(env, |env| real(path, args, env))
}

unsafe extern "C" fn execv(path: *const c_char, args: Strings, _sp: u64, _bp: u64) -> i32 {
    let Some(real) = real!(execve, Execve) else { return -1 };
    exec_with(loader::current_environment(), |env| real(path, args, env))
}

unsafe extern "C" fn execvp(file: *const c_char, args: Strings, _sp: u64, _bp: u64) -> i32 {
    match real!(execvpe, Execve) {
        Some(real) => exec_with(loader::current_environment(), |env| real(file, args, env)),
        None => match real!(execvp, extern "C" fn(*const c_char, Strings) -> i32) {
            Some(real) => real(file, args),
            None => -1,
        },
    }
}

unsafe extern "C" fn execvpe(file: *const c_char, args: Strings, env: Strings, _sp: u64, _bp: u64) -> i32 {
    let Some(real) = real!(execvpe, Execve) else { return -1 };
    exec_with(env, |env| real(file, args, env))
}

unsafe extern "C" fn fexecve(fd: i32, args: Strings, env: Strings, _sp: u64, _bp: u64) -> i32 {
    let Some(real) = real!(fexecve, extern "C" fn(i32, Strings, Strings) -> i32) else { return -1 };
    exec_with(env, |env| real(fd, args, env))
}

/// `execveat(dirfd, path, argv, envp, flags)`
#[unsafe(naked)]
#[cfg_attr(highwater_preload, unsafe(export_name = "execveat"))]
pub unsafe extern "C" fn stub_execveat() {
    core::arch::naked_asm!("endbr64", "jmp {to}", to = sym execveat)
}

unsafe extern "C" fn execveat(dir: i32, path: *const c_char, args: Strings, env: Strings, flags: i32) -> i32 {
    type Fn = extern "C" fn(i32, *const c_char, Strings, Strings, i32) -> i32;
    let Some(real) = real!(execveat, Fn) else { return -1 };
    exec_with(env, |env| real(dir, path, args, env, flags))
}

/// execl, execlp, execle: the arguments come in registers and then on the stack.
/// The stub spills the registers next to each other and hands both places over.
macro_rules! variadic {
    ($symbol:literal, $name:ident, $to:path) => {
        #[doc = concat!("`", $symbol, "`")]
        #[unsafe(naked)]
        #[cfg_attr(highwater_preload, unsafe(export_name = $symbol))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "sub rsp, 56",
                ".cfi_adjust_cfa_offset 56",
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov rsi, rsp",
                "lea rdx, [rsp + 64]",
                "call {to}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    };
}

variadic!("execl", stub_execl, execl);
variadic!("execlp", stub_execlp, execlp);
variadic!("execle", stub_execle, execle);

/// The variable arguments of a call.
struct Arguments {
    memory: *mut u8,
    bytes: usize,
    list: Strings,
    /// What follows the terminating null: execle's environment.
    after: Strings,
}

impl Arguments {
    /// Argument `i` after the first: five in registers, the rest on the stack.
    unsafe fn get(registers: Strings, stack: Strings, i: usize) -> *const u8 {
        // SAFETY: the caller asks only up to one past the terminating null.
        unsafe { if i < 5 { *registers.add(i) } else { *stack.add(i - 5) } }
    }

    unsafe fn gather(registers: Strings, stack: Strings) -> Option<Arguments> {
        // SAFETY: the C contract: the list ends with a null.
        unsafe {
            let mut count = 0;
            while !Self::get(registers, stack, count).is_null() {
                count += 1;
            }
            let bytes = (count + 1) * 8;
            let memory = sys::map_private(bytes)?;
            let list = memory.cast::<*const u8>();
            for i in 0..count {
                *list.add(i) = Self::get(registers, stack, i);
            }
            let after = Self::get(registers, stack, count + 1);
            Some(Arguments { memory, bytes, list, after: after.cast() })
        }
    }
}

impl Drop for Arguments {
    fn drop(&mut self) {
        // SAFETY: nobody else knows the copy. (In a vfork child that fails to
        // exec this gives the parent its page back; one that succeeds leaves it.)
        unsafe { sys::unmap(self.memory, self.bytes) };
    }
}

unsafe extern "C" fn execl(path: *const c_char, registers: Strings, stack: Strings) -> i32 {
    let Some(real) = real!(execve, Execve) else { return -1 };
    // SAFETY: the stub's two places.
    let Some(arguments) = (unsafe { Arguments::gather(registers, stack) }) else { return -1 };
    exec_with(loader::current_environment(), |env| real(path, arguments.list, env))
}

unsafe extern "C" fn execlp(file: *const c_char, registers: Strings, stack: Strings) -> i32 {
    let Some(real) = real!(execvpe, Execve) else { return -1 };
    // SAFETY: the stub's two places.
    let Some(arguments) = (unsafe { Arguments::gather(registers, stack) }) else { return -1 };
    exec_with(loader::current_environment(), |env| real(file, arguments.list, env))
}

unsafe extern "C" fn execle(path: *const c_char, registers: Strings, stack: Strings) -> i32 {
    let Some(real) = real!(execve, Execve) else { return -1 };
    // SAFETY: the stub's two places.
    let Some(arguments) = (unsafe { Arguments::gather(registers, stack) }) else { return -1 };
    exec_with(arguments.after, |env| real(path, arguments.list, env))
}
