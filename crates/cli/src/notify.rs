//! Messages to a service manager, by the protocol of sd_notify(3): ready, alive, stopping. Without `NOTIFY_SOCKET`,
//! nothing.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// The manager ends us when it has not heard of us for so long.
    watchdog: Option<Duration>,
}

/// When to say the next time that we are alive.
#[derive(Debug)]
pub(crate) struct SignsOfLife(Option<Interval>);

impl Notifier {
    /// A socket that cannot be used is no reason not to serve: it is logged.
    pub(crate) fn of_environment() -> Notifier {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Notifier::default();
        };
        match connect(&name) {
            Ok(manager) => Notifier { manager: Some(manager), watchdog: watchdog() },
            Err(error) => {
                tracing::warn!(socket = %name.display(), %error, "the service manager cannot be reached");
                Notifier::default()
            }
        }
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping\n");
    }

    /// Needs the runtime: when that is stuck, no sign of life is given.
    pub(crate) fn signs_of_life(&self) -> SignsOfLife {
        SignsOfLife(self.watchdog.map(|length| {
            // Twice within the time is what the manual recommends; three times bears one that is late.
            let mut interval = tokio::time::interval(length / 3);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    fn send(&self, message: &str) {
        let Some((socket, manager)) = &self.manager else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), manager) {
            tracing::warn!(%error, "the service manager could not be told");
        }
    }
}

impl SignsOfLife {
    /// Never, if nobody waits for them.
    pub(crate) async fn next(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// A path, or after `@` a name that no file has.
fn connect(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => abstract_address(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that reads nothing must not hold us up.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The interval of the manager's watchdog; `None` if it is about another process.
fn watchdog() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let length = number("WATCHDOG_USEC").filter(|&micros| is_ours && micros > 0)?;
    Some(Duration::from_micros(length))
}
