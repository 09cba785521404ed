//! Nothing that is printed for debugging lets its reader renew, release or repeat a request.

use leasehold_client::Client;

use crate::server::{LEASE_ID, Server, TTL, held};

#[tokio::test(start_paused = true)]
async fn what_is_printed_for_debugging_shows_no_secret() {
    let server = Server::start();
    let client = server.client().await;
    let lease = held(&client, "a").await;
    let session = client.session().ttl(TTL).open().await.unwrap();
    let request = session.lock("b");
    assert_eq!(lease.lease_id(), LEASE_ID);
    let builder = Client::builder("http://127.0.0.1:1").token("lk_1_geheim");
    let printed = format!(
        "{client:?} {lease:?} {:?} {session:?} {request:?} {builder:?} {:?}",
        lease.handle(),
        lease.changes()
    );
    assert!(printed.contains("\"a\"") && printed.contains("token: 7"), "{printed}");
    for secret in ["geheim", "request_id", "nonce"] {
        assert!(!printed.contains(secret), "{secret}: {printed}");
    }
}
