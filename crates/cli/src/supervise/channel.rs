//! Messages between wrapper and guard: of one size, over a pair of sockets. When one side is gone, the
//! other reads the end.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use tokio::io::AsyncReadExt;

use super::deadlines::Deadlines;

/// From the wrapper to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A renewal was confirmed. The first one starts the command.
    Keep(Deadlines),
    /// Hand this signal to the command.
    Signal(i32),
    /// The lease is lost, or is not wanted any more.
    Stop,
}

/// From the guard to the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Started {
        pid: i32,
    },
    /// With the error's number.
    CannotStart {
        errno: i32,
    },
    /// The command itself has ended; `status` is what the system said.
    Exited {
        status: i32,
    },
    /// It was, or is being, stopped by us.
    Stopping,
    /// Nothing is left of it.
    Gone,
}

pub(super) type Frame = [u8; 24];

pub(super) trait Message: Sized {
    fn to_words(self) -> [u64; 3];
    fn from_words(words: [u64; 3]) -> Option<Self>;
}

impl Message for Order {
    fn to_words(self) -> [u64; 3] {
        match self {
            Order::Keep(Deadlines { stop_at, kill_at }) => [1, stop_at, kill_at],
            Order::Signal(signal) => [2, word(signal), 0],
            Order::Stop => [3, 0, 0],
        }
    }

    fn from_words(words: [u64; 3]) -> Option<Order> {
        match words {
            [1, stop_at, kill_at] => Some(Order::Keep(Deadlines { stop_at, kill_at })),
            [2, signal, 0] => Some(Order::Signal(number(signal)?)),
            [3, 0, 0] => Some(Order::Stop),
            _ => None,
        }
    }
}

impl Message for Report {
    fn to_words(self) -> [u64; 3] {
        match self {
            Report::Started { pid } => [1, word(pid), 0],
            Report::CannotStart { errno } => [2, word(errno), 0],
            Report::Exited { status } => [3, word(status), 0],
            Report::Stopping => [4, 0, 0],
            Report::Gone => [5, 0, 0],
        }
    }

    fn from_words(words: [u64; 3]) -> Option<Report> {
        match words {
            [1, pid, 0] => Some(Report::Started { pid: number(pid)? }),
            [2, errno, 0] => Some(Report::CannotStart { errno: number(errno)? }),
            [3, status, 0] => Some(Report::Exited { status: number(status)? }),
            [4, 0, 0] => Some(Report::Stopping),
            [5, 0, 0] => Some(Report::Gone),
            _ => None,
        }
    }
}

fn word(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}

fn number(word: u64) -> Option<i32> {
    u32::try_from(word).ok().map(u32::cast_signed)
}

/// The side that reads. What was half read is kept: a read may be given up at any time.
#[derive(Debug)]
pub(super) struct Reader {
    from: tokio::net::UnixStream,
    frame: Frame,
    len: usize,
}

/// The side that writes, past the runtime: what is sent is on its way when `send` returns, whatever becomes of us then.
#[derive(Debug)]
pub(super) struct Writer(UnixStream);

/// Needs the runtime.
pub(super) fn split(stream: UnixStream) -> io::Result<(Reader, Writer)> {
    stream.set_nonblocking(true)?;
    let writer = Writer(stream.try_clone()?);
    let from = tokio::net::UnixStream::from_std(stream)?;
    Ok((Reader { from, frame: [0; 24], len: 0 }, writer))
}

impl Reader {
    /// `None` when the other side is gone.
    pub(super) async fn next<M: Message>(&mut self) -> Option<M> {
        while self.len < self.frame.len() {
            match self.from.read(&mut self.frame[self.len..]).await {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.len += len,
            }
        }
        self.len = 0;
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(self.frame.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        M::from_words(words)
    }
}

impl Writer {
    /// The buffer between the two takes hundreds of messages; who does not read them is stopped or gone, and learns of
    /// it otherwise.
    pub(super) fn send(&self, message: impl Message) {
        let mut frame: Frame = [0; 24];
        for (bytes, word) in frame.chunks_exact_mut(8).zip(message.to_words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let _ = (&self.0).write(&frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let deadlines = Deadlines { stop_at: u64::MAX, kill_at: 7 };
        for order in [Order::Keep(deadlines), Order::Signal(15), Order::Stop] {
            assert_eq!(Order::from_words(order.to_words()), Some(order));
        }
        for report in [
            Report::Started { pid: i32::MAX },
            Report::CannotStart { errno: 2 },
            Report::Exited { status: -1 },
            Report::Stopping,
            Report::Gone,
        ] {
            assert_eq!(Report::from_words(report.to_words()), Some(report));
        }
    }
}
