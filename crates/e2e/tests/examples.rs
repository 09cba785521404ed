//! The SDK's examples, run against a real server: in each a stale writer is refused.

use anyhow::Result;
use leasehold_e2e::server::Server;
use leasehold_store::conformance::servers::Postgres;

macro_rules! example {
    ($name:ident, $path:literal) => {
        #[allow(dead_code, unreachable_pub, reason = "its main is for people")]
        #[path = $path]
        mod $name;
    };
}

example!(fence_pure, "../../client/examples/fence_pure.rs");
example!(fence_sqlite, "../../client/examples/fence_sqlite.rs");
example!(fence_postgres, "../../client/examples/fence_postgres.rs");
example!(fence_http, "../../client/examples/fence_http.rs");

#[tokio::test]
async fn a_stale_writer_is_refused_in_every_example() -> Result<()> {
    let server = Server::start().await?;
    let url = format!("http://{}", server.address());
    fence_pure::run(&url).await?;
    fence_sqlite::run(&url).await?;
    fence_http::run(&url).await
}

#[tokio::test]
async fn a_stale_writer_is_refused_by_postgres() -> Result<()> {
    let server = Server::start().await?;
    let postgres = tokio::task::spawn_blocking(Postgres::start).await?;
    let url = Postgres::url_on(postgres.port(), "");
    fence_postgres::run(&format!("http://{}", server.address()), &url).await
}
