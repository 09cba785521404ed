//! The state of an election, for the processes beside this one: one question over HTTP, one answer in JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use leasehold_client::{Election, LeaseHandle};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::failure::{EXIT_CONFIG, Failure};

/// Longer than that nobody who probes waits.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of an election, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Board {
    election: Election,
    name: String,
    lease: Arc<Mutex<Option<LeaseHandle>>>,
}

/// `name` is what the leader elector that Kubernetes once had answered.
#[derive(Debug, Serialize)]
struct Leading {
    /// The metadata that the leader advertises, or its owner; null if there is none.
    name: Option<String>,
    is_leader: bool,
    fencing_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Board {
    /// `name` is what this candidate is called when it leads.
    pub(super) fn new(election: Election, name: &str) -> Board {
        Board { election, name: name.into(), lease: Arc::default() }
    }

    pub(super) fn elected(&self, lease: LeaseHandle) {
        *self.lease.lock() = Some(lease);
    }

    pub(super) fn over(&self) {
        *self.lease.lock() = None;
    }

    /// Answers there from now on, as long as this process lives.
    pub(super) async fn serve(&self, address: SocketAddr) -> Result<(), Failure> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(EXIT_CONFIG, format!("cannot listen on {address}: {error}"))
        })?;
        let router = Router::new()
            .route("/", get(who_leads))
            .route("/leader", get(whether_we_lead))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(())
    }

    /// By our own lease if it is valid at this moment: never longer than another cannot lead. Otherwise the server is
    /// asked each time, so that no answer is older than the question.
    async fn look(&self) -> Leading {
        let lease = self.lease.lock().clone();
        if let Some(lease) = lease.filter(|lease| lease.is_valid()) {
            let (name, token) = (self.name.clone(), lease.fencing_token());
            return Leading {
                name: Some(name),
                is_leader: true,
                fencing_token: Some(token),
                error: None,
            };
        }
        let asked = tokio::time::timeout(ASK_TIMEOUT, self.election.leader()).await;
        let (leader, error) = match asked {
            Ok(Ok(leader)) => (leader, None),
            Ok(Err(error)) => (None, Some(error.to_string())),
            Err(_) => (None, Some("the server does not answer".into())),
        };
        Leading {
            fencing_token: leader.as_ref().map(|leader| leader.fencing_token),
            name: leader.map(
                |leader| {
                    if leader.value.is_empty() { leader.owner } else { leader.value }
                },
            ),
            is_leader: false,
            error,
        }
    }
}

async fn who_leads(State(board): State<Board>) -> Response {
    let leading = board.look().await;
    let is_known = leading.error.is_none();
    answer(if is_known { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &leading)
}

async fn whether_we_lead(State(board): State<Board>) -> Response {
    let leading = board.look().await;
    let leads = leading.is_leader;
    answer(if leads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &leading)
}

fn answer(status: StatusCode, leading: &Leading) -> Response {
    let text = serde_json::to_string(leading).expect("a few plain fields") + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
