//! The stream of a client: any messages are answered or end the stream, and the server goes on.
//!
//! The input is cut into messages at bytes of 0xff, which are rare in what a client sends.
#![no_main]

use bytes::{BufMut, Bytes, BytesMut};
use leasehold_fuzz::{Door, runtime, start};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    runtime().block_on(async {
        let (_server, door) = start().await;
        let messages = bytes.split(|&byte| byte == 0xff);
        let talk = talk(&door, messages.map(framed));
        let _ = tokio::time::timeout(std::time::Duration::from_secs(3600), talk).await;
        let alive = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        assert!(door.exchange(alive).await.starts_with(b"HTTP/1.1 200"));
    });
});

/// A message as gRPC frames it.
fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

async fn talk(door: &Door, messages: impl Iterator<Item = Bytes>) -> Result<(), h2::Error> {
    let (client, connection) = h2::client::handshake(door.connect()).await?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://localhost/leasehold.v1.Sessions/Attach")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("the request is well formed");
    let (answer, mut body) = client.ready().await?.send_request(request, false)?;
    // An attach without a session comes first, or else nothing else would be looked at.
    body.send_data(framed(&[0x0a, 0x00]), false)?;
    for message in messages {
        body.send_data(message, false)?;
    }
    body.send_data(Bytes::new(), true)?;
    let mut said = answer.await?.into_body();
    while let Some(part) = said.data().await {
        let len = part?.len();
        said.flow_control().release_capacity(len)?;
    }
    connection.abort();
    Ok(())
}
