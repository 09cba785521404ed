//! Signals as something to be read, with who sent them.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

use super::readiness::watched;

/// Those that a wrapper hands on to its command. The stop signals of a terminal are not among them: they reach the
/// command by themselves, and stop the wrapper too.
pub(crate) const FORWARDED: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGWINCH,
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) signal: i32,
    /// A process sent it. What a terminal sends goes to the whole group, the command included.
    pub(crate) by_process: bool,
}

/// From when this is made, the signals are no longer acted on by themselves. Threads and processes started later
/// inherit that: see [`Taken::give_back`].
#[derive(Debug)]
pub(crate) struct Signals {
    source: AsyncFd<OwnedFd>,
}

impl Signals {
    /// Needs the runtime, and to be called before any other thread is started.
    pub(crate) fn take(signals: &[i32]) -> io::Result<Signals> {
        let source = open(signals)?;
        Ok(Signals { source: watched(source)? })
    }

    pub(crate) async fn next(&self) -> Received {
        loop {
            let Ok(mut ready) = self.source.readable().await else { std::future::pending().await };
            if let Ok(Ok(received)) = ready.try_io(|source| read(source.get_ref())) {
                return received;
            }
        }
    }
}

/// Signals that were taken.
#[derive(Clone, Copy)]
pub(super) struct Taken(libc::sigset_t);

impl Taken {
    #[allow(unsafe_code, reason = "sets of signals are built in place")]
    pub(super) fn of(signals: &[i32]) -> Taken {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` makes the set a valid one, whatever was in it, and `sigaddset` changes a valid one.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            Taken(set.assume_init())
        }
    }

    /// For a new process that is to have its signals as any other. May be called between fork and exec.
    pub(super) fn give_back(&self) -> io::Result<()> {
        self.change(libc::SIG_UNBLOCK)
    }

    #[allow(unsafe_code, reason = "no safe interface changes what is blocked")]
    fn change(&self, how: libc::c_int) -> io::Result<()> {
        // SAFETY: the set is a valid one, and nothing is written back.
        match unsafe { libc::pthread_sigmask(how, &raw const self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            failed => Err(io::Error::from_raw_os_error(failed)),
        }
    }
}

#[allow(unsafe_code, reason = "no safe interface tells who sent a signal")]
fn open(signals: &[i32]) -> io::Result<OwnedFd> {
    let taken = Taken::of(signals);
    taken.change(libc::SIG_BLOCK)?;
    // SAFETY: the set is a valid one; the descriptor is new and nobody else's.
    unsafe {
        match libc::signalfd(-1, &raw const taken.0, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            source => Ok(OwnedFd::from_raw_fd(source)),
        }
    }
}

fn read(source: &OwnedFd) -> io::Result<Received> {
    let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
    let len = rustix::io::read(source, &mut bytes[..])?;
    if len < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // `ssi_signo` comes first, then `ssi_errno` and `ssi_code`, each of four bytes.
    let word =
        |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Received { signal: word(0), by_process: word(8) <= libc::SI_USER })
}
