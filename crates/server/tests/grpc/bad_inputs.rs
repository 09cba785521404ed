//! Input that no well-behaved client sends: the bytes of gRPC, frame by frame.

use bytes::{BufMut, Bytes, BytesMut};
use leasehold_api::grpc::{AcquireRequest, RenewRequest};
use leasehold_api::{Code, grpc};
use prost::Message;
use tonic::Status;

use crate::world::{PATIENCE, World, acquire, refused};

const ACQUIRE: &str = "/leasehold.v1.Locks/Acquire";

/// Sends these bytes as the body of a call, and says with which status it ends.
async fn call(world: &World, path: &str, headers: &[(&str, &str)], body: Bytes) -> Status {
    let stream = tokio::net::TcpStream::connect(world.server.address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let driving = tokio::spawn(connection);
    let mut request = axum::http::Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (response, mut sending) = client.send_request(request.body(()).unwrap(), false).unwrap();
    sending.send_data(body, true).unwrap();
    let status = async {
        let response = response.await.unwrap();
        if let Some(status) = Status::from_header_map(response.headers()) {
            return status;
        }
        let mut body = response.into_body();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
        }
        let trailers = body.trailers().await.unwrap().expect("a call ends with a status");
        Status::from_header_map(&trailers).expect("a call ends with a status")
    };
    let status = tokio::time::timeout(PATIENCE, status).await.expect("an answer in time");
    driving.abort();
    status
}

/// A message with a header of its own making.
fn framed(compressed: u8, len: u32, body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(compressed);
    bytes.put_u32(len);
    bytes.put_slice(body);
    bytes.freeze()
}

fn whole(message: &impl Message) -> Bytes {
    let body = message.encode_to_vec();
    framed(0, u32::try_from(body.len()).unwrap(), &body)
}

#[tokio::test]
async fn broken_bytes_get_a_status_and_change_nothing() {
    let world = World::start().await;
    let good = acquire("job/x", "a").encode_to_vec();
    let good_len = u32::try_from(good.len()).unwrap();
    let large = AcquireRequest { owner_id: "x".repeat(70_000), ..acquire("job/x", "a") };
    let cases: Vec<(&str, Bytes, &[tonic::Code])> = vec![
        ("a length of 4 GiB", framed(0, u32::MAX, b"abcde"), &[tonic::Code::OutOfRange]),
        ("over the limit", whole(&large), &[tonic::Code::OutOfRange]),
        ("compressed as nobody said", framed(1, good_len, &good), &[tonic::Code::Internal]),
        ("a flag that does not exist", framed(9, good_len, &good), &[tonic::Code::Internal]),
        ("a wrong wire type", framed(0, 2, &[0x0d, 0x01]), &[tonic::Code::Internal]),
        ("a cut varint", framed(0, 2, &[0x20, 0xff]), &[tonic::Code::Internal]),
        ("text that is not UTF-8", framed(0, 4, &[0x12, 2, 0xff, 0xfe]), &[tonic::Code::Internal]),
        (
            "a message that is not whole",
            framed(0, good_len + 1, &good),
            &[tonic::Code::Internal, tonic::Code::Unknown],
        ),
        ("no message", Bytes::new(), &[tonic::Code::Internal, tonic::Code::Unimplemented]),
    ];
    for (what, body, expected) in cases {
        let status = call(&world, ACQUIRE, &[], body).await;
        assert!(expected.contains(&status.code()), "{what}: {status:?}");
    }
    assert_eq!(world.cluster().await.locks_held, 0);
    // The same way in, with nothing wrong.
    let status = call(&world, ACQUIRE, &[], whole(&acquire("job/x", "a"))).await;
    assert_eq!(status.code(), tonic::Code::Ok);
}

#[tokio::test]
async fn unknown_methods_are_unimplemented() {
    let world = World::start().await;
    for path in
        ["/leasehold.v1.Locks/Steal", "/leasehold.v2.Locks/Acquire", "/", "/v1/locks/x/acquire"]
    {
        let status = call(&world, path, &[], Bytes::new()).await;
        assert_eq!(status.code(), tonic::Code::Unimplemented, "{path}: {status:?}");
    }
}

#[tokio::test]
async fn deadlines_far_off_are_taken_and_nonsense_is_refused() {
    let world = World::start().await;
    let body = || whole(&acquire("job/x", "a"));
    let far = call(&world, ACQUIRE, &[("grpc-timeout", "99999999H")], body()).await;
    assert_eq!(far.code(), tonic::Code::Ok);
    for nonsense in ["soon", "5", "-5S", "123456789S", "1.5S"] {
        let status = call(&world, ACQUIRE, &[("grpc-timeout", nonsense)], body()).await;
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{nonsense}: {status:?}");
        assert_eq!(grpc::problem_of(&status).unwrap().code, Code::InvalidRequest);
    }
}

#[tokio::test]
async fn a_foreign_host_is_refused() {
    let world = World::start().await;
    let endpoint =
        tonic::transport::Endpoint::from_shared(format!("http://{}", world.server.address()))
            .unwrap()
            .origin("http://evil.example".parse().unwrap());
    let channel = endpoint.connect().await.unwrap();
    let mut locks = grpc::locks_client::LocksClient::new(channel);
    let problem = refused(locks.acquire(acquire("job/x", "a")).await);
    assert_eq!(problem.code, Code::MisdirectedRequest);
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let world = World::start().await;
    let length = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    let good = || acquire("job/x", "a");
    let cases = [
        ("ttl", AcquireRequest { ttl: None, ..good() }),
        ("ttl", AcquireRequest { ttl: length(-1, 0), ..good() }),
        ("ttl", AcquireRequest { ttl: length(0, 1_000_000), ..good() }),
        ("ttl", AcquireRequest { ttl: length(1, 1), ..good() }),
        ("ttl", AcquireRequest { ttl: length(i64::MAX, 0), ..good() }),
        ("ttl", AcquireRequest { session_id: Some("0".repeat(32)), ..good() }),
        ("wait", AcquireRequest { wait: length(1_000_000, 0), ..good() }),
        ("mode", AcquireRequest { mode: 17, ..good() }),
        ("permits", AcquireRequest { permits: Some(0), ..good() }),
        ("permits", AcquireRequest { mode: 2, permits: Some(2), ..good() }),
        ("owner_id", AcquireRequest { owner_id: String::new(), ..good() }),
        ("owner_id", AcquireRequest { owner_id: "a\u{0}b".into(), ..good() }),
        ("request_id", AcquireRequest { request_id: Some(String::new()), ..good() }),
        ("reclaim_window", AcquireRequest { reclaim_window: length(1_000_000, 0), ..good() }),
        ("ticket", AcquireRequest { ticket: Some("x".into()), ..good() }),
        ("namespace", AcquireRequest { namespace: "a\nb".into(), ..good() }),
    ];
    for (field, ask) in cases {
        let said = format!("{ask:?}");
        let problem = refused(world.locks().acquire(ask).await);
        assert_eq!(problem.code, Code::InvalidRequest, "{said}");
        assert_eq!(problem.errors[0].field, field, "{said}");
    }
    for name in ["", "a//b", "../x", "inode:x", "a\u{7}"] {
        let ask = AcquireRequest { lock: name.into(), ..good() };
        assert_eq!(refused(world.locks().acquire(ask).await).code, Code::InvalidLockName, "{name}");
    }
    let renew = RenewRequest {
        lock: "job/x".into(),
        owner_id: "a".into(),
        lease_id: "A".repeat(32),
        ..Default::default()
    };
    assert_eq!(refused(world.locks().renew(renew).await).errors[0].field, "lease_id");
    assert_eq!(world.cluster().await.locks_held, 0);
}
