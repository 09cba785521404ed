//! Encoding and decoding of messages: a whole message at a time, in one piece of memory.
//!
//! Read and written through the layers of buffers that a stream has, a message of many small fields costs several times
//! as much.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{Buf, BufMut};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Writes messages of one type and reads those of another.
#[derive(Clone, Debug)]
pub struct MessageCodec<Written, Read>(PhantomData<(Written, Read)>);

impl<Written, Read> Default for MessageCodec<Written, Read> {
    fn default() -> Self {
        MessageCodec(PhantomData)
    }
}

impl<Written, Read> Codec for MessageCodec<Written, Read>
where
    Written: Message + 'static,
    Read: Message + Default + 'static,
{
    type Encode = Written;
    type Decode = Read;
    type Encoder = MessageEncoder<Written>;
    type Decoder = MessageDecoder<Read>;

    fn encoder(&mut self) -> MessageEncoder<Written> {
        MessageEncoder { bytes: Vec::new(), of: PhantomData }
    }

    fn decoder(&mut self) -> MessageDecoder<Read> {
        MessageDecoder(PhantomData)
    }
}

#[derive(Debug)]
pub struct MessageEncoder<T> {
    bytes: Vec<u8>,
    of: PhantomData<T>,
}

impl<T: Message> Encoder for MessageEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        self.bytes.clear();
        item.encode(&mut self.bytes).map_err(|error| Status::internal(error.to_string()))?;
        to.reserve(self.bytes.len());
        to.put_slice(&self.bytes);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

#[derive(Debug)]
pub struct MessageDecoder<T>(PhantomData<T>);

impl<T: Message + Default> Decoder for MessageDecoder<T> {
    type Item = T;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<T>, Status> {
        let len = from.remaining();
        let message = match from.chunk() {
            whole if whole.len() == len => T::decode(whole),
            _ => T::decode(from.copy_to_bytes(len)),
        };
        from.advance(from.remaining());
        message.map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
