//! A wire that can be cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A way to a server on this machine that can be cut, for both directions or for one.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
}

/// What gets through.
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
    /// A connection breaks when PostgreSQL is asked to call a function, as with a pooler that has not heard of that.
    NoCalls,
}

#[derive(Debug)]
struct Wire {
    to: u16,
    way: AtomicU8,
    /// How often the way was changed: tells older connections from newer ones.
    changes: AtomicU64,
    over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Proxy {
    /// Leads to this port.
    pub fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        listener.set_nonblocking(true).expect("a socket can do that");
        let wire = Arc::new(Wire {
            to,
            way: AtomicU8::new(Way::Open as u8),
            changes: AtomicU64::new(0),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
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
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.over.store(true, Ordering::SeqCst);
        self.wire.break_all();
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

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while !self.is_over() {
            match listener.accept() {
                Ok((client, _)) if !self.is(Way::Broken) => self.connect(client),
                Ok(_) => {}
                Err(_) => thread::sleep(LOOK_AGAIN),
            }
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
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
        thread::spawn(move || asking.copy(client, server, born, &[Way::Silent]));
        thread::spawn(move || {
            answering.copy(server_again, client_again, born, &[Way::Silent, Way::NoAnswers]);
        });
    }

    fn is_held(&self, born: u64, held_in: &[Way]) -> bool {
        let is_old = born < self.changes.load(Ordering::SeqCst);
        held_in.iter().any(|way| self.is(*way)) || is_old && self.is(Way::OldSilent)
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, born: u64, held_in: &[Way]) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let len = match from.read(&mut buffer) {
                Ok(0) => break,
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
            if buffer[0] == b'F' && self.is(Way::NoCalls) {
                break;
            }
            // What was on its way stays on its way, as in a network that loses nothing but time.
            while self.is_held(born, held_in) && !self.is_over() {
                thread::sleep(LOOK_AGAIN);
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
