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

/// From when this is made, the signals are no longer acted on by themselves. Threads started later follow suit;
/// commands started with the standard library do not.
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

#[allow(unsafe_code, reason = "no safe interface tells who sent a signal")]
fn open(signals: &[i32]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` makes the set a valid one, whatever was in it; the rest uses it after that. The descriptor is
    // new and nobody else's.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        let failed = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        match libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
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
    let word = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Received { signal: word(0), by_process: word(8) <= libc::SI_USER })
}
