//! The server's host: a real server that is started again whenever it ends.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Timestamp;
use leasehold_engine::RuntimeClock;
use leasehold_server::{AccessLog, Config, Ground, Server, StartError};
use tokio::sync::Notify;

use crate::clock;
use crate::journal::SimulatedJournal;
use crate::judge::Judge;
use crate::network::SimulatedListener;

/// The first moment of the server's clock; any would do.
const BEGAN_MILLIS: u64 = 1_800_000_000_000;
const PAUSE: Duration = Duration::from_millis(200);

/// What the world tells its server.
#[derive(Debug, Default)]
pub(crate) struct ServerControl {
    /// It is to end in good order.
    pub(crate) stop: Notify,
    /// For so long, it is not to start again.
    pub(crate) stopped_for: Cell<Duration>,
    /// When it went down, until somebody has been told that it is up again.
    pub(crate) down: Cell<Option<Duration>>,
}

/// Serves for ever.
pub(crate) async fn serve(
    journal: SimulatedJournal,
    snapshot_bytes: u64,
    control: Rc<ServerControl>,
    judge: Rc<RefCell<Judge>>,
) -> turmoil::Result {
    loop {
        match start(&journal, snapshot_bytes).await {
            Ok(mut server) => {
                if let Some(down) = control.down.take() {
                    judge.borrow_mut().restarted(down);
                }
                tokio::select! {
                    biased;
                    () = control.stop.notified() => {}
                    ended = server.ended() => {
                        judge.borrow_mut().say(format_args!("server ends by itself: {ended:?}"));
                    }
                }
                control.down.set(Some(control.down.get().unwrap_or_else(clock::elapsed)));
                server.stop().await;
                tokio::time::sleep(control.stopped_for.take()).await;
            }
            Err(error) => {
                judge.borrow_mut().say(format_args!("server does not start: {error}"));
                control.down.set(Some(control.down.get().unwrap_or_else(clock::elapsed)));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn start(journal: &SimulatedJournal, snapshot_bytes: u64) -> Result<Server, StartError> {
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, leasehold_api::PORT));
    let listener = SimulatedListener::bind(listen)
        .await
        .map_err(|source| StartError::Listen { address: listen.into(), source })?;
    let config = Config {
        listen: listen.into(),
        insecure_http: true,
        insecure_anonymous: true,
        access_log: AccessLog::Off,
        snapshot_bytes,
        ..Config::default()
    };
    let millis = u64::try_from(clock::elapsed().as_millis()).unwrap_or(0);
    let clock = RuntimeClock::showing(Timestamp::from_millis(BEGAN_MILLIS + millis));
    let ground = Ground {
        listener,
        address: listen,
        journals: vec![Arc::new(journal.clone())],
        clock: Arc::new(clock),
    };
    Server::start_on(config, ground).await
}
