//! The client: a handle that is cheap to clone, and the driver behind it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_api::{Claim, Cursor};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::access::{Access, Credentials};
use crate::address::{parse_servers, query_value};
use crate::api::Api;
use crate::clock::{Clock, SystemClock};
use crate::driver::{Attention, Driver, Order, SharedDriver};
use crate::election::Election;
use crate::error::{Error, Result};
use crate::fence::Register;
use crate::lock::LockRequest;
use crate::machine::{HeartbeatInterval, Machine, Settings};
use crate::payload::{Granted, What};
#[cfg(feature = "tls")]
use crate::pin::AuthorityHash;
use crate::session::SessionRequest;
use crate::surroundings::{Place, Surroundings, System};
use crate::token::TokenSource;
use crate::view::LeaseView;
use crate::watch::{self, Watch};

/// Transport of requests. It changes nothing about their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// All workers share one gRPC stream; requests of one moment go out together.
    #[default]
    Stream,
    /// A request of HTTP for each.
    Http,
}

/// A client of one or more servers.
///
/// Clones share one connection and one driver, which keeps their leases. Made on a tokio runtime, the driver is a task there, and a
/// thread of the client stands by: when the runtime is blocked, is not run or was dropped, the thread takes over. Made anywhere else,
/// the driver runs on that thread. When the last clone and the last lease are gone the driver gives back what is left and ends;
/// [`Client::close`] waits for that.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    orders: mpsc::UnboundedSender<Order>,
    attention: Arc<Attention>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) namespace: String,
    /// `?namespace=…`, for every path.
    pub(crate) query: String,
    pub(crate) transport: Transport,
    /// Placeholder of a grant that is still to come.
    pub(crate) nothing: Arc<Granted>,
    /// A secret: whoever knows a request id may be told what came of the request.
    nonce: u128,
    /// Tells owners of this client from those of others. Every client sees it.
    label: u32,
    numbers: AtomicU64,
}

/// Without the nonce: request ids are made of it.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Shared");
        shown.field("namespace", &self.namespace).field("transport", &self.transport);
        shown.finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Closed before the guard looks.
        let (closed, _) = mpsc::unbounded_channel();
        drop(std::mem::replace(&mut self.orders, closed));
        self.attention.ordered();
    }
}

/// Builder of a client.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    servers: String,
    transport: Transport,
    namespace: String,
    settings: Settings,
    credentials: Credentials,
    clock: Arc<dyn Clock>,
    surroundings: Arc<dyn Surroundings>,
    has_own_thread: bool,
}

impl ClientBuilder {
    /// The namespace of everything that is asked; `default` if it is not set.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> ClientBuilder {
        self.namespace = namespace.into();
        self
    }

    /// Sets the transport; one stream if not set.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> ClientBuilder {
        self.transport = transport;
        self
    }

    /// Sets the duration for which a request is tried before it fails as unreachable, waits in the queue excluded; 10 s if not set.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> ClientBuilder {
        self.settings.patience = patience;
        self
    }

    /// The interval of heartbeats; every third of the ttl if not set. With every sixth, longer outages are survived.
    ///
    /// ```no_run
    /// # async fn example() -> leasehold_client::Result<()> {
    /// use leasehold_client::{Client, HeartbeatInterval};
    ///
    /// let builder = Client::builder("http://127.0.0.1:8080").heartbeat(HeartbeatInterval::Sixth);
    /// let client = builder.connect().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn heartbeat(mut self, interval: HeartbeatInterval) -> ClientBuilder {
        self.settings.heartbeat = interval;
        self
    }

    /// A bearer token that is sent with every request. It is a secret: unless allowed otherwise it goes to `https://` servers and to
    /// this machine only, and connecting to any other server is an error.
    #[must_use]
    pub fn token(mut self, token: &str) -> ClientBuilder {
        self.credentials.token = Some(TokenSource::Fixed(token.into()));
        self
    }

    /// As [`token`](ClientBuilder::token), from a file that holds the token and nothing else. It is read again when it was replaced:
    /// a token is rotated without a restart.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> ClientBuilder {
        self.credentials.token = Some(TokenSource::File(path.into()));
        self
    }

    /// As [`token`](ClientBuilder::token), from a function. It is asked at the start, and again each time a server did not take its
    /// last token; it must not block for long.
    ///
    /// ```no_run
    /// # fn example() -> leasehold_client::Result<()> {
    /// let fetch = || std::fs::read_to_string("/run/secrets/leasehold").map(|token| token.trim().to_owned());
    /// let client = leasehold_client::Client::builder("https://locks.example:8080").token_provider(fetch).start()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token_provider(
        mut self,
        provider: impl Fn() -> std::io::Result<String> + Send + Sync + 'static,
    ) -> ClientBuilder {
        self.credentials.token = Some(TokenSource::Provider(Arc::new(provider)));
        self
    }

    /// Sends the token over `http://` to other machines too, where every host on the way can read it. For networks that encrypt by
    /// themselves.
    #[must_use]
    pub fn allow_cleartext_token(mut self) -> ClientBuilder {
        self.credentials.allows_cleartext_token = true;
        self
    }

    /// Trusts servers whose certificate one of these authorities has signed (certificates in PEM), and no others.
    /// Without this the authorities of the system are trusted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn authorities(mut self, pem: &[u8]) -> ClientBuilder {
        self.credentials.tls.authorities = Some(pem.into());
        self
    }

    /// Trusts servers that one authority has signed, known by the hash of its key as a join string has it. Servers must send its
    /// certificate along with their own, as those of `leasehold init` do.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn authority_sha256(mut self, hash: AuthorityHash) -> ClientBuilder {
        self.credentials.tls.authority = Some(hash);
        self
    }

    /// Shows a certificate to `https://` servers: in PEM, with what stands above it, and its key.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn identity(mut self, certificate_pem: &[u8], key_pem: &[u8]) -> ClientBuilder {
        self.credentials.tls.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Another clock than the system's, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> ClientBuilder {
        self.clock = clock;
        self
    }

    /// Runs on the client's own thread alone, not on the caller's runtime. A request then costs two more switches between threads. For
    /// runtimes without I/O or time, runtimes that seldom run, and tests that pause the time of tokio.
    ///
    /// ```no_run
    /// # fn example() -> leasehold_client::Result<()> {
    /// let client = leasehold_client::Client::builder("http://127.0.0.1:8080").own_thread().start()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn own_thread(mut self) -> ClientBuilder {
        self.has_own_thread = true;
        self
    }

    /// Another network and other places to run in than the system's, for simulations.
    #[must_use]
    pub fn surroundings(mut self, surroundings: Arc<dyn Surroundings>) -> ClientBuilder {
        self.surroundings = surroundings;
        self
    }

    /// Connects to the first server that can be reached.
    pub async fn connect(self) -> Result<Client> {
        let client = self.start()?;
        let (done, connected) = oneshot::channel();
        client.order(Order::Connected(done))?;
        connected.await.map_err(|_| Error::Closed)??;
        Ok(client)
    }

    /// Makes a client that connects in the background. Requests wait for the connection as long as its patience lasts.
    pub fn start(self) -> Result<Client> {
        let servers = parse_servers(&self.servers)?;
        let surroundings = self.surroundings;
        let access = Access::new(&servers, &self.credentials)?.within(surroundings.clone());
        let (orders, ordered) = mpsc::unbounded_channel();
        let attention: Arc<Attention> = Arc::default();
        let query = format!("?namespace={}", query_value(&self.namespace));
        let nonce = u128::from(random()) << 64 | u128::from(random());
        let shared = Shared {
            orders,
            attention: attention.clone(),
            clock: self.clock.clone(),
            namespace: self.namespace.clone(),
            query,
            transport: self.transport,
            nothing: Arc::default(),
            nonce,
            label: u32::try_from(random() >> 32).expect("it has 32 bits"),
            numbers: AtomicU64::new(1),
        };
        let machine = Machine::new(self.clock.now(), servers, self.settings, random());
        let has_task = !self.has_own_thread && Handle::try_current().is_ok();
        let (given, taken) = oneshot::channel::<Arc<SharedDriver>>();
        let guard = async move {
            if let Ok(driver) = taken.await {
                driver.run_guard().await;
            }
        };
        let tools_runtime = surroundings
            .run(Box::pin(guard))
            .map_err(|error| Error::unsent(format!("the client cannot start: {error}")))?;
        let (transport, namespace) = (self.transport, self.namespace);
        let place = if has_task { Place::Caller } else { Place::Guard };
        let access = (access, place);
        let driver =
            Driver::new(self.clock, machine, transport, access, namespace, ordered, tools_runtime);
        let driver = Arc::new(SharedDriver::new(driver, attention));
        if has_task {
            drop(surroundings.spawn(Place::Caller, Box::pin(driver.clone().run_task())));
        }
        let _ = given.send(driver);
        Ok(Client { shared: Arc::new(shared) })
    }
}

fn random() -> u64 {
    getrandom::u64().expect("an operating system without randomness cannot name requests apart")
}

impl Client {
    /// Connects to a server, or to the first that can be reached of several with commas between them.
    ///
    /// ```no_run
    /// # async fn example() -> leasehold_client::Result<()> {
    /// let client = leasehold_client::Client::connect("http://127.0.0.1:8080").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(servers: &str) -> Result<Client> {
        Client::builder(servers).connect().await
    }

    /// For a client that is not made with the defaults.
    ///
    /// ```no_run
    /// # async fn example() -> leasehold_client::Result<()> {
    /// use leasehold_client::{Client, Transport};
    ///
    /// let servers = "http://10.0.0.1:8080,http://10.0.0.2:8080";
    /// let client = Client::builder(servers).namespace("billing").transport(Transport::Http).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder(servers: &str) -> ClientBuilder {
        ClientBuilder {
            servers: servers.into(),
            transport: Transport::default(),
            namespace: "default".into(),
            settings: Settings::default(),
            credentials: Credentials::default(),
            clock: Arc::new(SystemClock),
            surroundings: Arc::new(System),
            has_own_thread: false,
        }
    }

    /// Asks for a lock. Its name is the canonical text of what it covers: `job/nightly`, `path:/srv/a/**`,
    /// `inode:42@100..200`.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let writer = client.lock("path:/srv/a/**").acquire().await?; // everything below /srv/a
    /// let bytes = client.lock("inode:42@100..200").shared().acquire().await?; // with other readers
    /// let slot = client.lock("render").permits(3).acquire().await?; // one of three
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, lock: &str) -> LockRequest {
        let claim = Claim { lock: lock.into(), ..Claim::default() };
        LockRequest::new(self.clone(), What::Lock(claim))
    }

    /// Asks for several locks, all or nothing, under one lease and one token.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let both = client.set(["account/a", "account/b"]).acquire().await?;
    /// println!("one token for both: {}", both.fencing_token());
    /// # Ok(()) }
    /// ```
    pub fn set<'a>(&self, locks: impl IntoIterator<Item = &'a str>) -> LockRequest {
        let claim = |lock: &str| Claim { lock: lock.into(), ..Claim::default() };
        LockRequest::new(self.clone(), What::Set(locks.into_iter().map(claim).collect()))
    }

    /// Asks for several locks of different modes.
    pub fn claims(&self, claims: Vec<Claim>) -> LockRequest {
        LockRequest::new(self.clone(), What::Set(claims))
    }

    /// Opens a session: one heartbeat for any number of locks.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let session = client.session().owner("worker-1").open().await?;
    /// let (a, b) = (session.lock("a").acquire().await?, session.lock("b").acquire().await?);
    /// session.close().await?; // and both are free
    /// # Ok(()) }
    /// ```
    pub fn session(&self) -> SessionRequest {
        SessionRequest::new(self.clone())
    }

    /// An election: the holder of the lock of that name leads.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let election = client.election("scheduler");
    /// let leadership = election.campaign("10.0.0.7:9000").await?; // waits until it is our turn
    /// tokio::select! {
    ///     () = schedule(leadership.fencing_token()) => {}
    ///     () = leadership.jeopardy() => {} // another may lead soon
    /// }
    /// leadership.resign().await?;
    /// # async fn schedule(_: u64) {}
    /// # Ok(()) }
    /// ```
    ///
    /// Others follow who leads:
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let mut leaders = client.election("scheduler").observe().await?;
    /// while let Some(leader) = leaders.next().await? {
    ///     println!("{} leads at {}", leader.owner, leader.value);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn election(&self, name: &str) -> Election {
        Election::new(self.clone(), name)
    }

    /// A register on the server that remembers the highest fencing token it has seen.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client, token: u64) -> leasehold_client::Result<()> {
    /// client.fence("bucket/reports").accept(token).await?; // refused with `stale_fence` if it has seen a higher one
    /// # Ok(()) }
    /// ```
    pub fn fence(&self, name: &str) -> Register {
        Register::new(self.clone(), name)
    }

    /// The requests of the HTTP interface one by one, with nothing kept alive: for tools.
    pub fn api(&self) -> Api<'_> {
        Api::new(self)
    }

    /// Watches locks whose canonical name starts with `prefix`, from now on or after the cursor of an event or
    /// a list. When this returns, nothing that happens from then on is missed, unless it says so with
    /// [`News::Resync`](leasehold_api::News::Resync).
    ///
    /// ```no_run
    /// # async fn example(client: leasehold_client::Client) -> leasehold_client::Result<()> {
    /// let mut events = client.watch("job/", None).await?;
    /// while let Some(event) = events.next().await {
    ///     println!("{:?}", event?.news);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn watch(&self, prefix: &str, after: Option<Cursor>) -> Result<Watch> {
        let (mut watch, feed, begins) = watch::feed(&self.shared.namespace, prefix, after);
        self.order(Order::Watch(feed))?;
        if begins.await.is_err() {
            // It ended before it began; its only event says why.
            return match watch.next().await {
                Some(Err(error)) => Err(error),
                Some(Ok(_)) | None => Err(Error::Closed),
            };
        }
        Ok(watch)
    }

    /// The namespace of everything that is asked.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Gives everything back that this client holds, its clones included, and waits until the server has heard it; no
    /// longer than the client's patience. What is not given back by then lapses.
    pub async fn close(self) {
        let (done, flushed) = oneshot::channel();
        if self.order(Order::Flush(done)).is_ok() {
            let _ = flushed.await;
        }
    }

    pub(crate) fn order(&self, order: Order) -> Result<()> {
        self.shared.orders.send(order).map_err(|_| Error::Closed)?;
        self.shared.attention.ordered();
        Ok(())
    }

    pub(crate) async fn sleep_until(&self, until: crate::machine::Moment) -> Result<()> {
        let (done, slept) = oneshot::channel();
        self.order(Order::Sleep { until, done })?;
        slept.await.map_err(|_| Error::Closed)
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn request_id(&self, number: u64) -> String {
        format!("{:032x}-{number}", self.shared.nonce)
    }

    /// Each request is a thread of control of its own unless its owner is named.
    pub(crate) fn anonymous(&self, number: u64) -> String {
        format!("{}-{:08x}-{number}", std::process::id(), self.shared.label)
    }

    pub(crate) fn view(&self, session: Option<Arc<LeaseView>>) -> Arc<LeaseView> {
        Arc::new(LeaseView::new(self.shared.clock.clone(), session))
    }
}
