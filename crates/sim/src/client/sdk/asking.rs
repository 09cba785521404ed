//! Its connection, and what it asks over it.

use std::rc::Rc;
use std::time::Duration;

use leasehold_api::{Code, Problem, RequestOutcome};
use leasehold_client::machine::{Answer, CallId, Key, LinkId, Request, Wait as SdkWait};
use leasehold_core::{
    Acquire, Adapter, CloseSession, Command, KeepAlive, Namespace, OnDisconnect, OpenSession,
    Release, Renew, Under, Wait,
};
use leasehold_engine::Call;

use super::words::read_ticket;
use super::{Exchange, Link, ends_all};
use crate::client::Due;
use crate::client::raw_client::NO_CALL;
use crate::judge::Verdict;
use crate::plan::Node;
use crate::server::Wire;
use crate::world::World;

impl World {
    pub(super) fn connect(&mut self, client: usize, id: LinkId, address: &str) {
        self.let_go(client);
        let server: usize =
            address.strip_prefix("server-").and_then(|n| n.parse().ok()).unwrap_or(0);
        self.trace.line(self.now, Node::Client(client), format_args!("sdk connects to {address}"));
        self.sdk(client).link = Some(Link { id, server, is_up: false });
        let (here, there) = (Node::Client(client), Node::Server(server));
        let out = self.network.send(self.now, here, there).arrives;
        let back = self.network.send(self.now, there, here).arrives;
        let at = &self.servers[server];
        let due = match (out, back) {
            (Some(out), Some(back)) if at.is_up() && at.paused == 0 => {
                (Due::LinkUp(id.0), out.max(back))
            }
            (Some(out), Some(back)) if !at.is_up() => (Due::LinkDown(id.0), out.max(back)),
            // No answer: the machine has a timeout of its own.
            _ => return,
        };
        self.client_due(client, due.0, due.1);
    }

    pub(in crate::client) fn link_up(&mut self, client: usize, id: u64) -> Result<(), Verdict> {
        let own = self.own(client);
        let sdk = self.sdk(client);
        if let Some(link) = &mut sdk.link
            && link.id == LinkId(id)
        {
            link.is_up = true;
            sdk.machine.up(own, LinkId(id));
        }
        self.drive_sdk(client)
    }

    pub(in crate::client) fn link_down(&mut self, client: usize, id: u64) -> Result<(), Verdict> {
        let own = self.own(client);
        if self.sdk(client).link.is_some_and(|link| link.id == LinkId(id)) {
            self.let_go(client);
        }
        self.sdk(client).machine.down(own, LinkId(id));
        self.drive_sdk(client)
    }

    /// The connection is given up: nobody will read what comes over it.
    fn let_go(&mut self, client: usize) {
        let life = self.clients[client].life;
        self.sdk(client).link = None;
        for (number, exchange) in std::mem::take(&mut self.sdk(client).calls) {
            self.hang_up(Wire { client, life, number, tries: 0 });
            self.sdk_unanswered(client, &exchange);
        }
    }

    /// A message was lost: the connection it was on is dead.
    pub(in crate::client) fn sdk_broken(
        &mut self,
        client: usize,
        number: u64,
    ) -> Result<(), Verdict> {
        let Some(exchange) = self.sdk(client).calls.get(&number) else { return Ok(()) };
        let link = exchange.link;
        self.link_down(client, link.0)
    }

    // Requests.

    pub(super) fn sdk_send(&mut self, client: usize, call: CallId, key: Key, request: &Request) {
        let at = &mut self.clients[client];
        at.next_number += 1;
        let (number, life) = (at.next_number, at.life);
        let Some(what) = self.sdk_call(client, number, key, request) else { return };
        let what = Rc::new(Call::Command(what));
        let sent = self.now;
        let about = self.sdk(client).about(&what);
        let sdk = self.sdk(client);
        let Some(link) = sdk.link.filter(|link| link.is_up) else { return };
        let exchange = Exchange { call, key, link: link.id, sent, what: what.clone(), about };
        sdk.calls.insert(number, exchange);
        self.ask(link.server, Wire { client, life, number, tries: 0 }, what);
    }

    fn sdk_call(
        &mut self,
        client: usize,
        number: u64,
        key: Key,
        request: &Request,
    ) -> Option<Command> {
        let fresh = self.fresh_lease(client, number);
        let window = Duration::ZERO;
        let sdk = self.sdk(client);
        let owner = sdk.owner.clone();
        let under = match sdk.machine.data(key)?.session {
            Some(session) => Some(sdk.machine.data(session)?.lease?),
            None => None,
        };
        let item = sdk.machine.data_mut(key)?;
        let namespace = Namespace::default();
        let is_session = item.claims.is_empty();
        Some(match request {
            Request::Acquire { .. } if is_session => Command::OpenSession(OpenSession {
                namespace,
                id: fresh,
                owner,
                ttl: item.ttl,
                adapter: Adapter::new("sdk").expect("a plain name"),
                on_disconnect: OnDisconnect::Keep(item.ttl / 2),
                request_id: Some(item.request_id.clone()),
                metadata: None,
            }),
            Request::Acquire { wait, ticket } => {
                let under = match under {
                    Some(session) => Under::Session(session),
                    None => Under::NewLease { id: fresh, ttl: item.ttl },
                };
                Command::Acquire(Acquire {
                    call: NO_CALL,
                    namespace,
                    owner,
                    claims: item.claims.clone(),
                    under,
                    wait: match wait {
                        SdkWait::Never => Wait::Never,
                        SdkWait::UpTo(wait) => Wait::UpTo(*wait),
                        SdkWait::Forever => Wait::Forever,
                    },
                    keep_place: matches!(wait, SdkWait::UpTo(_)),
                    ticket: ticket.as_deref().and_then(read_ticket),
                    request_id: Some(item.request_id.clone()),
                    reclaim_window: window,
                    reclaim: false,
                    metadata: None,
                })
            }
            Request::Renew if is_session || item.claims.len() > 1 => {
                let (principal, session) = (owner.principal(), item.lease?);
                Command::KeepAlive(KeepAlive { namespace, principal, session, ttl: None })
            }
            Request::Renew => Command::Renew(Renew {
                namespace,
                scope: item.claims[0].scope.clone(),
                owner,
                lease: item.lease?,
                fence: item.fence?,
                ttl: None,
            }),
            // A set under a lease of its own ends with that lease.
            Request::Release if is_session || (item.claims.len() > 1 && under.is_none()) => {
                let (principal, session) = (owner.principal(), item.lease?);
                Command::CloseSession(CloseSession { namespace, principal, session })
            }
            Request::Release => Command::Release(Release {
                namespace,
                scope: ends_all(&item.claims).clone(),
                owner,
                lease: item.lease?,
                fence: item.fence?,
            }),
        })
    }

    /// The server is told not to let it wait any longer, and says that it has stopped.
    pub(super) fn sdk_cancel(&mut self, client: usize, call: CallId) {
        let life = self.clients[client].life;
        let sdk = self.sdk(client);
        let found = sdk.calls.iter().find(|(_, exchange)| exchange.call == call);
        let Some((&number, _)) = found else { return };
        if let Some(exchange) = sdk.calls.remove(&number) {
            self.sdk_unanswered(client, &exchange);
        }
        self.hang_up(Wire { client, life, number, tries: 0 });
        let back = self.now + self.plan.network.delay * 4;
        self.client_due(client, Due::Cancelled(call.to_u64()), back);
    }

    pub(in crate::client) fn cancelled(&mut self, client: usize, call: u64) -> Result<(), Verdict> {
        let own = self.own(client);
        let mut problem = Problem::new(Code::Interrupted, "cancelled");
        problem.outcome = RequestOutcome::Unknown;
        let answer = Answer::Refused(Box::new(problem));
        self.sdk(client).machine.answer(own, CallId::from_u64(call), answer);
        self.drive_sdk(client)
    }
}
