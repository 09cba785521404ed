//! Real servers for tests and benchmarks: started on free ports of this machine with data of their own, and gone when
//! nobody uses them any more.
//!
//! They come from the Debian packages `postgresql`, `pgbouncer` and `etcd-server`; `cargo xtask needs` installs them.

mod etcd;
mod pgbouncer;
mod polling;
mod postgres;
mod process;
mod proxy;

pub use etcd::{Etcd, EtcdCluster};
pub use pgbouncer::Pgbouncer;
pub use postgres::Postgres;
pub use process::use_disk;
pub use proxy::{Proxy, Way};
