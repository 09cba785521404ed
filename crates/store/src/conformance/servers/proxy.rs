//! A wire that can be cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A way to a server on this machine that can be cut, for both directions or for one.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
}

/// The state of the way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Nothing arrives on either side, and nobody is told.
    Silent,
    /// The same for the connections that there are; new ones work.
    OldSilent,
    /// The server gets everything, and its answers are lost.
    NoAnswers,
    /// Connections break, and new ones are refused.
    Broken,
}

#[derive(Debug)]
struct Wire {
    to: u16,
    way: AtomicU8,
    /// The number of changes of the way: tells older connections from newer ones.
    changes: AtomicU64,
    over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    /// The connections on which something to the server was held back, and that the server has not ended yet.
    late: Mutex<Vec<u64>>,
    /// The way was changed, or a late connection has ended.
    changed: Condvar,
}

/// The time the server has for what arrives late.
const PATIENCE: Duration = Duration::from_secs(60);

impl Proxy {
    /// Leads to this port.
    pub fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let wire = Arc::new(Wire {
            to,
            way: AtomicU8::new(Way::Open as u8),
            changes: AtomicU64::new(0),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
            late: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = wire.clone();
        thread::spawn(move || accepting.accept(&listener));
        Proxy { port, wire }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, way: Way) {
        self.wire.changes.fetch_add(1, Ordering::SeqCst);
        self.wire.way.store(way as u8, Ordering::SeqCst);
        if way == Way::Broken {
            self.wire.break_all();
        }
        self.wire.tell();
    }

    /// Waits until the server has ended each connection on which something was held back and has now arrived: whatever was
    /// asked on it has been looked at. Their clients must have gone.
    pub fn wait_until_late_ones_are_over(&self) {
        let late = self.wire.late();
        let waited = self.wire.changed.wait_timeout_while(late, PATIENCE, |late| !late.is_empty());
        let (late, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(late.is_empty(), "connections {late:?} do not end");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.over.store(true, Ordering::SeqCst);
        self.wire.break_all();
        self.wire.tell();
        // The thread that accepts looks up.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

impl Wire {
    fn is(&self, way: Way) -> bool {
        self.way.load(Ordering::SeqCst) == way as u8
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn break_all(&self) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn late(&self) -> MutexGuard<'_, Vec<u64>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all who wait for another state of the wire.
    fn tell(&self) {
        let _late = self.late();
        self.changed.notify_all();
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for (number, client) in (0..).zip(listener.incoming()) {
            match client {
                _ if self.is_over() => return,
                Ok(client) if !self.is(Way::Broken) => self.connect(client, number),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream, number: u64) {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)) else { return };
        for stream in [&client, &server] {
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_nodelay(true);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        }
        let (Ok(client_again), Ok(server_again)) = (client.try_clone(), server.try_clone()) else {
            return;
        };
        let kept = [client.try_clone(), server.try_clone()];
        self.streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(kept.into_iter().flatten());
        let born = self.changes.load(Ordering::SeqCst);
        let (asking, answering) = (self.clone(), self.clone());
        thread::spawn(move || {
            asking.copy(client, server, born, &[Way::Silent], || {
                let mut late = asking.late();
                if !late.contains(&number) {
                    late.push(number);
                }
            });
        });
        thread::spawn(move || {
            let held_in = [Way::Silent, Way::NoAnswers];
            answering.copy(server_again, client_again, born, &held_in, || {});
            answering.late().retain(|late| *late != number);
            answering.tell();
        });
    }

    fn is_held(&self, born: u64, held_in: &[Way]) -> bool {
        let is_old = born < self.changes.load(Ordering::SeqCst);
        held_in.iter().any(|way| self.is(*way)) || is_old && self.is(Way::OldSilent)
    }

    fn copy(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        born: u64,
        held_in: &[Way],
        is_late: impl Fn(),
    ) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let len = match from.read(&mut buffer) {
                // The other direction goes on: what was asked before the end is still answered.
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(len) => len,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.is_over() {
                        break;
                    }
                    continue;
                }
                Err(_) => break,
            };
            // What was on its way stays on its way, as in a network that loses nothing but time.
            if self.is_held(born, held_in) {
                is_late();
                let is_held = |_: &mut Vec<u64>| self.is_held(born, held_in) && !self.is_over();
                drop(self.changed.wait_while(self.late(), is_held));
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
