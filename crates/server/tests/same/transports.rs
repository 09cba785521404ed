//! One request, over each of the three transports.

use std::collections::BTreeMap;

use leasehold_api::Problem;
use leasehold_api::grpc::fences_client::FencesClient;
use leasehold_api::grpc::locks_client::LocksClient;
use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::{
    AcceptRequest, AcquireRequest, Attach, AttachRequest, CheckRequest, CloseRequest, CloseSession,
    GetRequest, Heartbeat, KeepAliveRequest, ReleaseRequest, RenewRequest, StreamAcquire,
    StreamRelease, StreamRenew, TestRequest, UnlockRequest, command::Ask as Command, problem_of,
    reply::Answer,
};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::talk::{Talk, connect, millis};
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Http,
    Unary,
    Stream,
}

pub(crate) const ALL: [Over; 3] = [Over::Http, Over::Unary, Over::Stream];

/// A request, as all three can ask it.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Acquire(Acquire),
    Renew { lock: String, proof: Proof, ttl_ms: Option<u64> },
    Release { lock: String, proof: Proof },
    Unlock { lock: String, owner: &'static str, session: String },
    Test { lock: String, owner: &'static str, permits: Option<u32> },
    Check { lock: String, token: u64 },
    Get { lock: String },
    Accept { register: String, token: u64 },
    KeepAlive { session: String },
    Close { session: String },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Acquire {
    pub(crate) lock: String,
    pub(crate) owner: &'static str,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) wait_ms: u64,
    pub(crate) permits: Option<u32>,
    pub(crate) session: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) ticket: Option<String>,
    pub(crate) reclaim: bool,
}

/// What a holder shows.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) owner: &'static str,
    pub(crate) lease: String,
    pub(crate) token: u64,
}

/// An answer, told so that it can be compared: without ids, names and durations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    /// `done` with what matters of the answer, or the code of a problem.
    pub(crate) word: String,
    pub(crate) more: BTreeMap<&'static str, String>,
}

impl Said {
    fn done(more: impl IntoIterator<Item = (&'static str, String)>) -> Said {
        Said { word: "done".into(), more: more.into_iter().collect() }
    }

    fn problem(problem: &Problem, lock: &str) -> Said {
        let field = problem.errors.first().map_or(String::new(), |error| {
            // gRPC has lengths where JSON has milliseconds.
            error.field.trim_end_matches("_ms").replace("reclaim_window", "reclaim")
        });
        let more = [
            ("detail", plain(&problem.detail, lock)),
            ("field", field),
            ("outcome", format!("{:?}", problem.outcome)),
            ("owner", problem.current_owner_id.clone().unwrap_or_default()),
            ("holders", problem.holders.as_ref().map_or(0, Vec::len).to_string()),
            ("retry", problem.recommended_retry_ms.is_some().to_string()),
            ("waited", problem.waited_ms.is_some_and(|waited| waited > 0).to_string()),
            ("ticket", problem.ticket.is_some().to_string()),
            ("position", format!("{:?}", problem.queue_position)),
            ("cycle", problem.cycle.as_ref().map_or(0, Vec::len).to_string()),
            ("high_water", problem.high_water.is_some().to_string()),
            ("reason", format!("{:?}", problem.reason)),
            ("quota", format!("{:?} {:?} {:?}", problem.quota, problem.of, problem.max)),
        ];
        Said { word: problem.code.to_string(), more: more.into() }
    }
}

/// A text without the lock's name and without numbers.
fn plain(text: &str, lock: &str) -> String {
    let text = if lock.is_empty() { text.into() } else { text.replace(lock, "LOCK") };
    // On a stream a session could have stood in.
    let text = text.replace(", and the stream is not bound to a session", "");
    let text = text.trim_start_matches("ttl_ms: ").trim_start_matches("ttl: ").to_string();
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if plain.ends_with('#') => {}
            '0'..='9' => plain.push('#'),
            c => plain.push(c),
        }
    }
    plain
}

/// One server, and a way to it over each transport.
pub(crate) struct Ways {
    pub(crate) world: World,
    channel: Channel,
    talk: Talk,
}

impl Ways {
    pub(crate) async fn start() -> Ways {
        Ways::of(World::start().await).await
    }

    pub(crate) async fn of(world: World) -> Ways {
        let channel = connect(&world.server).await;
        let first = AttachRequest { attach: Some(Attach::default()), commands: Vec::new() };
        let talk = Talk::begin(SessionsClient::new(channel.clone()), first).await.unwrap();
        Ways { world, channel, talk }
    }

    pub(crate) fn locks(&self) -> LocksClient<Channel> {
        LocksClient::new(self.channel.clone())
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The problem with which a stream is refused.
    pub(crate) async fn attach(&self, first: AttachRequest) -> Problem {
        let refused = Talk::begin(SessionsClient::new(self.channel.clone()), first).await;
        problem_of(&refused.err().expect("it is refused")).expect("a problem")
    }

    pub(crate) async fn ask(&mut self, over: Over, ask: Ask) -> Said {
        match over {
            Over::Http => self.over_http(ask).await,
            Over::Unary => self.over_unary(ask).await,
            Over::Stream => self.over_stream(ask).await,
        }
    }

    /// Every counter of requests.
    pub(crate) async fn counters(&self) -> BTreeMap<String, f64> {
        let text = self.world.get("/metrics").await.text;
        let counted = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            let is_counted = ["lock_acquire_total", "lock_renew_total", "lock_release_total"]
                .iter()
                .any(|counter| name.starts_with(counter))
                || name.starts_with("lock_op_latency_ms_count")
                || name.starts_with("leasehold_locks_acquire_total")
                || name.starts_with("leasehold_locks_blocking_duration_seconds_count");
            is_counted.then(|| (name.to_string(), value.parse().unwrap()))
        });
        counted.collect()
    }

    async fn over_http(&self, ask: Ask) -> Said {
        let (method, path, lock, body) = match ask {
            Ask::Acquire(ask) => {
                let mut body = json!({ "owner_id": ask.owner, "wait_ms": ask.wait_ms, "reclaim": ask.reclaim });
                let fields = [
                    ("ttl_ms", ask.ttl_ms.map(Value::from)),
                    ("permits", ask.permits.map(Value::from)),
                    ("session_id", ask.session.map(Value::from)),
                    ("request_id", ask.request_id.map(Value::from)),
                    ("ticket", ask.ticket.map(Value::from)),
                ];
                for (name, value) in fields {
                    if let Some(value) = value {
                        body[name] = value;
                    }
                }
                ("POST", format!("/v1/locks/{}/acquire", ask.lock), ask.lock, body)
            }
            Ask::Renew { lock, proof, ttl_ms } => {
                let mut body = shown(&proof);
                if let Some(ttl) = ttl_ms {
                    body["ttl_ms"] = ttl.into();
                }
                ("POST", format!("/v1/locks/{lock}/renew"), lock, body)
            }
            Ask::Release { lock, proof } => {
                ("POST", format!("/v1/locks/{lock}/release"), lock, shown(&proof))
            }
            Ask::Unlock { lock, owner, session } => {
                let body = json!({ "owner_id": owner, "session_id": session });
                ("POST", format!("/v1/locks/{lock}/unlock"), lock, body)
            }
            Ask::Test { lock, owner, permits } => {
                let mut body = json!({ "owner_id": owner });
                if let Some(permits) = permits {
                    body["permits"] = permits.into();
                }
                ("POST", format!("/v1/locks/{lock}/test"), lock, body)
            }
            Ask::Check { lock, token } => {
                let body = json!({ "fencing_token": token });
                ("POST", format!("/v1/locks/{lock}/check"), lock, body)
            }
            Ask::Get { lock } => ("GET", format!("/v1/locks/{lock}"), lock, Value::Null),
            Ask::Accept { register, token } => {
                let body = json!({ "fencing_token": token });
                ("POST", format!("/v1/fences/{register}/accept"), register, body)
            }
            Ask::KeepAlive { session } => {
                let path = format!("/v1/sessions/{session}/keepalive");
                ("POST", path, String::new(), json!({}))
            }
            Ask::Close { session } => {
                ("DELETE", format!("/v1/sessions/{session}"), String::new(), Value::Null)
            }
        };
        let reply = if body.is_null() {
            self.world.send(method, &path, &[], None).await
        } else {
            self.world.post(&path, &body.to_string()).await
        };
        let answer = reply.json();
        if reply.status >= 300 {
            let problem: Problem = serde_json::from_value(answer).unwrap();
            return Said::problem(&problem, &lock);
        }
        // In the order of what is told of each over gRPC.
        let of = |name: &'static str| answer.get(name).map(|value| (name, text(value)));
        Said::done(
            ["replayed", "changed", "free", "valid", "reason", "state"].into_iter().filter_map(of),
        )
    }

    async fn over_unary(&self, ask: Ask) -> Said {
        let mut locks = self.locks();
        let mut sessions = SessionsClient::new(self.channel.clone());
        match ask {
            Ask::Acquire(ask) => {
                let lock = ask.lock.clone();
                let asked = AcquireRequest {
                    lock: ask.lock,
                    owner_id: ask.owner.into(),
                    ttl: ask.ttl_ms.and_then(millis),
                    wait: millis(ask.wait_ms),
                    permits: ask.permits,
                    session_id: ask.session,
                    request_id: ask.request_id,
                    ticket: ask.ticket,
                    reclaim: ask.reclaim,
                    ..AcquireRequest::default()
                };
                told(locks.acquire(asked).await, &lock, |grant| vec![replayed(grant.replayed)])
            }
            Ask::Renew { lock, proof, ttl_ms } => {
                let asked = RenewRequest {
                    lock: lock.clone(),
                    owner_id: proof.owner.into(),
                    lease_id: proof.lease,
                    fencing_token: proof.token,
                    ttl: ttl_ms.and_then(millis),
                    ..RenewRequest::default()
                };
                told(locks.renew(asked).await, &lock, |_| Vec::new())
            }
            Ask::Release { lock, proof } => {
                let asked = ReleaseRequest {
                    lock: lock.clone(),
                    owner_id: proof.owner.into(),
                    lease_id: proof.lease,
                    fencing_token: proof.token,
                    ..ReleaseRequest::default()
                };
                told(locks.release(asked).await, &lock, |done| vec![replayed(done.replayed)])
            }
            Ask::Unlock { lock, owner, session } => {
                let (owner_id, session_id) = (owner.into(), session);
                let asked = UnlockRequest {
                    namespace: String::new(),
                    lock: lock.clone(),
                    owner_id,
                    session_id,
                };
                let done = locks.unlock(asked).await;
                told(done, &lock, |done| vec![("changed", done.changed.to_string())])
            }
            Ask::Test { lock, owner, permits } => {
                let asked = TestRequest {
                    lock: lock.clone(),
                    owner_id: owner.into(),
                    permits,
                    ..TestRequest::default()
                };
                told(locks.test(asked).await, &lock, |done| vec![("free", done.free.to_string())])
            }
            Ask::Check { lock, token } => {
                let asked = CheckRequest {
                    lock: lock.clone(),
                    fencing_token: token,
                    ..CheckRequest::default()
                };
                told(locks.check(asked).await, &lock, |done| checked(done.valid, &done.reason))
            }
            Ask::Get { lock } => {
                let asked = GetRequest { lock: lock.clone(), ..GetRequest::default() };
                let state = |lock: &leasehold_api::grpc::Lock| vec![("state", state_of(lock))];
                told(locks.get(asked).await, &lock, state)
            }
            Ask::Accept { register, token } => {
                let asked = AcceptRequest {
                    name: register.clone(),
                    fencing_token: token,
                    ..AcceptRequest::default()
                };
                let mut fences = FencesClient::new(self.channel.clone());
                told(fences.accept(asked).await, &register, |_| Vec::new())
            }
            Ask::KeepAlive { session } => {
                let asked = KeepAliveRequest { session_id: session, ..KeepAliveRequest::default() };
                told(sessions.keep_alive(asked).await, "", |_| Vec::new())
            }
            Ask::Close { session } => {
                let asked = CloseRequest { session_id: session, ..CloseRequest::default() };
                told(sessions.close(asked).await, "", |done| vec![replayed(done.replayed)])
            }
        }
    }

    async fn over_stream(&mut self, ask: Ask) -> Said {
        let (lock, command) = match ask {
            Ask::Acquire(ask) => {
                let command = StreamAcquire {
                    lock: ask.lock.clone(),
                    owner_id: ask.owner.into(),
                    ttl: ask.ttl_ms.and_then(millis),
                    wait: millis(ask.wait_ms),
                    permits: ask.permits,
                    session_id: ask.session,
                    request_id: ask.request_id,
                    ticket: ask.ticket,
                    reclaim: ask.reclaim,
                    ..StreamAcquire::default()
                };
                (ask.lock, Command::Acquire(Box::new(command)))
            }
            Ask::Renew { lock, proof, ttl_ms } => {
                let command = StreamRenew {
                    lock: lock.clone(),
                    owner_id: proof.owner.into(),
                    lease_id: proof.lease,
                    fencing_token: proof.token,
                    ttl: ttl_ms.and_then(millis),
                };
                (lock, Command::Renew(command))
            }
            Ask::Release { lock, proof } => {
                let command = StreamRelease {
                    lock: lock.clone(),
                    owner_id: proof.owner.into(),
                    lease_id: proof.lease,
                    fencing_token: proof.token,
                    traceparent: None,
                };
                (lock, Command::Release(command))
            }
            Ask::Unlock { lock, owner, session } => {
                let command = UnlockRequest {
                    namespace: String::new(),
                    lock: lock.clone(),
                    owner_id: owner.into(),
                    session_id: session,
                };
                (lock, Command::Unlock(command))
            }
            Ask::Test { lock, owner, permits } => {
                let command = TestRequest {
                    lock: lock.clone(),
                    owner_id: owner.into(),
                    permits,
                    ..TestRequest::default()
                };
                (lock, Command::Test(command))
            }
            Ask::Check { lock, token } => {
                let command = CheckRequest {
                    lock: lock.clone(),
                    fencing_token: token,
                    ..CheckRequest::default()
                };
                (lock, Command::Check(command))
            }
            Ask::Get { lock } => {
                let command = GetRequest { lock: lock.clone(), ..GetRequest::default() };
                (lock, Command::Get(command))
            }
            Ask::Accept { register, token } => {
                let command = AcceptRequest {
                    name: register.clone(),
                    fencing_token: token,
                    ..AcceptRequest::default()
                };
                (register, Command::Accept(command))
            }
            Ask::KeepAlive { session } => {
                let command = Heartbeat { session_id: session, ttl: None };
                (String::new(), Command::Heartbeat(command))
            }
            Ask::Close { session } => {
                (String::new(), Command::Close(CloseSession { session_id: session }))
            }
        };
        let id = self.talk.ask(command).await;
        match self.talk.answer(id).await {
            Answer::Granted(grant) => Said::done([replayed(grant.replayed)]),
            Answer::Renewed(_) | Answer::Accepted(_) | Answer::Cancelled(_) => Said::done([]),
            Answer::Released(done) => Said::done([replayed(done.replayed)]),
            Answer::Closed(done) => Said::done([replayed(done.replayed)]),
            Answer::Unlocked(done) => Said::done([("changed", done.changed.to_string())]),
            Answer::Tested(done) => Said::done([("free", done.free.to_string())]),
            Answer::Checked(done) => Said::done(checked(done.valid, &done.reason)),
            Answer::Lock(lock) => Said::done([("state", state_of(&lock))]),
            Answer::Problem(problem) => Said::problem(&Problem::from(&*problem), &lock),
        }
    }
}

fn shown(proof: &Proof) -> Value {
    json!({ "owner_id": proof.owner, "lease_id": proof.lease, "fencing_token": proof.token })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToString::to_string)
}

fn replayed(replayed: bool) -> (&'static str, String) {
    ("replayed", replayed.to_string())
}

fn checked(valid: bool, reason: &str) -> Vec<(&'static str, String)> {
    let reason = (!reason.is_empty()).then(|| ("reason", reason.to_string()));
    reason.into_iter().chain([("valid", valid.to_string())]).collect()
}

fn state_of(lock: &leasehold_api::grpc::Lock) -> String {
    lock.state().as_str_name().trim_start_matches("LOCK_STATE_").to_lowercase()
}

fn told<T>(
    answer: Result<Response<T>, Status>,
    lock: &str,
    more: impl FnOnce(&T) -> Vec<(&'static str, String)>,
) -> Said {
    match answer {
        Ok(done) => Said::done(more(done.get_ref())),
        Err(status) => {
            let problem = problem_of(&status).unwrap_or_else(|| panic!("{status:?}"));
            assert_eq!(status.code() as i32, problem.code.grpc_code() as i32, "{status:?}");
            Said::problem(&problem, lock)
        }
    }
}
