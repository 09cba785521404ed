//! One process of the test: carries out what it is told on its standard input, and answers on its standard output.
//!
//! It is the test binary itself, started again. Whatever the test harness prints is not of interest: answers are the
//! lines that start with `@`.

use std::ffi::CString;
use std::io::{self, BufRead, Write};

use super::wire::{Close, Errno, Kind, Order, Reply, Span};

/// Set for a worker: the file to lock.
pub(crate) const FILE: &str = "LEASEHOLD_KERNEL_FILE";

/// Serves orders until there are no more; `false` if this process is no worker.
pub(crate) fn served() -> bool {
    let Ok(path) = std::env::var(FILE) else {
        return false;
    };
    let path = CString::new(path).expect("a path has no zero byte");
    catch_interrupts();
    let files = Files { locks: open(&path, libc::O_RDWR), flock: open(&path, libc::O_RDWR), path };
    answer(&format!("ready {}", thread_id()));
    for line in io::stdin().lock().lines() {
        let line = line.expect("the orders can be read");
        let order = Order::parse(&line).expect("the test gives orders that parse");
        answer(&files.carry_out(order).to_string());
    }
    true
}

fn answer(text: &str) {
    let mut out = io::stdout().lock();
    // The harness may have left a line unfinished.
    write!(out, "\n@{text}\n").and_then(|()| out.flush()).expect("the test reads the answers");
}

struct Files {
    path: CString,
    /// All byte-range locks go through this one; to the kernel it makes no difference.
    locks: libc::c_int,
    flock: libc::c_int,
}

impl Files {
    fn carry_out(&self, order: Order) -> Reply {
        match order {
            Order::Lock { wait, kind, span } => {
                let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
                done(set_lock(self.locks, command, lock_type(kind), span))
            }
            Order::Unlock(span) => done(set_lock(self.locks, libc::F_SETLK, libc::F_UNLCK, span)),
            Order::Test { kind, span } => self.test(kind, span),
            Order::Close(Close::Opened) => close(open(&self.path, libc::O_RDWR)),
            Order::Close(Close::OpenedToRead) => close(open(&self.path, libc::O_RDONLY)),
            Order::Close(Close::Duplicate) => close(duplicate(self.locks)),
            Order::Flock(kind) => flock(self.flock, kind),
        }
    }

    fn test(&self, kind: Kind, span: Span) -> Reply {
        let mut lock = lock_of(lock_type(kind), span);
        // SAFETY: `lock` is a valid flock that lives through the call, and F_GETLK writes nothing else.
        #[expect(unsafe_code, reason = "fcntl has no safe twin in std")]
        let failed = unsafe { libc::fcntl(self.locks, libc::F_GETLK, &raw mut lock) } != 0;
        if failed {
            return Reply::Failed(Errno::last());
        }
        let kind = match libc::c_int::from(lock.l_type) {
            libc::F_UNLCK => return Reply::Free,
            libc::F_RDLCK => Kind::Read,
            _ => Kind::Write,
        };
        let (start, len) = (lock.l_start, lock.l_len);
        let pid = u32::try_from(lock.l_pid).expect("the holder is a process");
        let span = Span { start, len };
        Reply::Conflict { pid, kind, span }
    }
}

fn lock_type(kind: Kind) -> libc::c_int {
    match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    }
}

fn lock_of(lock_type: libc::c_int, span: Span) -> libc::flock {
    let small = "the constants of fcntl fit";
    libc::flock {
        l_type: lock_type.try_into().expect(small),
        l_whence: libc::SEEK_SET.try_into().expect(small),
        l_start: span.start,
        l_len: span.len,
        l_pid: 0,
    }
}

fn set_lock(
    file: libc::c_int,
    command: libc::c_int,
    lock_type: libc::c_int,
    span: Span,
) -> libc::c_int {
    let lock = lock_of(lock_type, span);
    // SAFETY: `lock` is a valid flock that lives through the call; the descriptor is ours.
    #[expect(unsafe_code, reason = "fcntl has no safe twin in std")]
    unsafe {
        libc::fcntl(file, command, &raw const lock)
    }
}

fn done(returned: libc::c_int) -> Reply {
    if returned == 0 { Reply::Done } else { Reply::Failed(Errno::last()) }
}

/// Any descriptor, so that its closing is not what std does with a file.
fn open(path: &CString, flags: libc::c_int) -> libc::c_int {
    // SAFETY: the path is a C string that lives through the call.
    #[expect(unsafe_code, reason = "a bare descriptor is wanted")]
    let file = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    assert!(file >= 0, "the file can be opened");
    file
}

fn duplicate(file: libc::c_int) -> libc::c_int {
    // SAFETY: the descriptor is ours, and nothing else is touched.
    #[expect(unsafe_code, reason = "a bare descriptor is wanted")]
    let copy = unsafe { libc::dup(file) };
    assert!(copy >= 0, "the descriptor can be duplicated");
    copy
}

fn close(file: libc::c_int) -> Reply {
    // SAFETY: the descriptor was opened for this and is used by nobody else.
    #[expect(unsafe_code, reason = "a bare descriptor is closed")]
    done(unsafe { libc::close(file) })
}

fn flock(file: libc::c_int, kind: Option<Kind>) -> Reply {
    let operation = match kind {
        None => libc::LOCK_UN,
        Some(Kind::Read) => libc::LOCK_SH | libc::LOCK_NB,
        Some(Kind::Write) => libc::LOCK_EX | libc::LOCK_NB,
    };
    // SAFETY: the descriptor is ours, and nothing else is touched.
    #[expect(unsafe_code, reason = "std would not say which errno it was")]
    done(unsafe { libc::flock(file, operation) })
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// A signal is to end a blocking call with EINTR, and nothing else.
fn catch_interrupts() {
    // SAFETY: all zeroes is a valid sigaction, and the handler does nothing at all.
    #[expect(unsafe_code, reason = "signals have no safe twin in std")]
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut())
    } != 0;
    assert!(!failed, "the handler can be set");
}

fn thread_id() -> i32 {
    // SAFETY: takes nothing and touches nothing.
    #[expect(unsafe_code, reason = "the kernel's number of a thread is not in std")]
    unsafe {
        libc::gettid()
    }
}
