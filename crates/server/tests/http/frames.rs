//! HTTP/2 frame by frame, for a peer that does what no client library would.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::World;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Frame {
        Frame { kind, flags, stream, payload: payload.to_vec() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let len = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![len[1], len[2], len[3], self.kind, self.flags];
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// The error code of a RST_STREAM or a GOAWAY.
    pub(crate) fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A request's header block: nothing is compressed, and nothing enters the table.
pub(crate) fn header_block(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    // `:scheme http` is number 6 of the table that every peer begins with.
    let mut block = vec![0x86];
    for (name, value) in
        [(":method", method), (":path", path), (":authority", "localhost")].iter().chain(more)
    {
        block.push(0);
        block.extend(text(name));
        block.extend(text(value));
    }
    block
}

/// A text of HPACK, not compressed.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = integer(0, 7, text.len());
    bytes.extend(text.as_bytes());
    bytes
}

/// A number of HPACK behind so many bits of something else.
pub(crate) fn integer(first: u8, bits: u32, mut number: usize) -> Vec<u8> {
    let max = (1_usize << bits) - 1;
    if number < max {
        return vec![first | u8::try_from(number).unwrap()];
    }
    let mut bytes = vec![first | u8::try_from(max).unwrap()];
    number -= max;
    while number >= 128 {
        bytes.push(u8::try_from(number % 128 + 128).unwrap());
        number /= 128;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

/// A connection on which any frame can be sent.
pub(crate) struct Peer {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    /// Opens a connection with these settings, each a number and its value.
    pub(crate) async fn open(world: &World, settings: &[(u16, u32)]) -> Peer {
        let mut peer = Peer { stream: world.connect().await, read: Vec::new() };
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(Frame::new(SETTINGS, 0, 0, &payload).bytes());
        hello.extend(Frame::new(SETTINGS, ACK, 0, &[]).bytes());
        assert!(peer.send(&hello).await);
        peer
    }

    /// False if the server does not take it any more.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        let sending = tokio::time::timeout(PATIENCE, self.stream.write_all(bytes)).await;
        sending.is_ok_and(|sent| sent.is_ok())
    }

    pub(crate) async fn send_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> bool {
        self.send(&Frame::new(kind, flags, stream, payload).bytes()).await
    }

    /// The next frame; `None` once the connection is closed.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let mut buf = vec![0; 16 * 1024];
            let reading = tokio::time::timeout(PATIENCE, self.stream.read(&mut buf)).await;
            match reading.expect("the server says something in time") {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.read.extend(&buf[..len]),
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.read.get(..9)?;
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let frame = Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes(head[5..9].try_into().unwrap()),
            payload: self.read.get(9..9 + len)?.to_vec(),
        };
        self.read.drain(..9 + len);
        Some(frame)
    }

    /// All frames up to the end of the connection, or up to one that is looked for.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let found = is_it(&frame);
            frames.push(frame);
            if found {
                break;
            }
        }
        frames
    }

    /// Ends the connection as a crash does: with a reset.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}
