//! Messages and results from the network.

use std::sync::Arc;

use leasehold_api::grpc::{self, AttachResponse, push};
use leasehold_api::{Code, Problem};

use super::{Arrived, Driver, Open};
use crate::access::ConnectError;
use crate::http::Answered;
use crate::machine::{Answer, CallId, Failure, Key, Moment, Request};
use crate::payload::Granted;
use crate::stream::{self, Batch, Told};

impl Driver {
    pub(super) fn take_in_message(&mut self, message: Result<AttachResponse, String>) {
        let now = self.clock.now();
        let message = match message {
            Ok(message) => message,
            Err(said) => {
                if let Some(open) = self.open.take() {
                    self.take_in(Arrived::Down(open.link, ConnectError::passing(said)));
                }
                return;
            }
        };
        for reply in message.replies {
            match stream::read(reply) {
                Told::Answer(call, answer, granted) => {
                    if let (Some(granted), Some(key)) = (granted, self.machine.key_of(call))
                        && let Some(item) = self.machine.data_mut(key)
                    {
                        item.granted = Arc::new(granted);
                    }
                    self.hand_in(now, call, answer);
                }
                Told::Nonsense(call) => self.machine.failed(now, call, Failure::Unknown),
                Told::Nothing => {}
            }
        }
        for push in message.pushes {
            match push.news {
                Some(push::News::Lost(lost)) => self.take_in_lost(now, &lost),
                Some(push::News::Wanted(wanted)) => self.take_in_wanted(wanted),
                Some(push::News::Queued(place)) => {
                    let call = CallId::from_u64(place.command_id);
                    self.machine.queued(now, call, place.ticket);
                }
                None => {}
            }
        }
    }

    /// It comes with every request that has to wait, and hardly any holder listens.
    fn take_in_wanted(&self, wanted: grpc::Wanted) {
        if self.listening.is_empty() {
            return;
        }
        let mut name = (wanted.lease_id, wanted.fencing_token);
        let of_grant = self.listening.get(&name);
        name.1 = 0;
        let of_session = self.listening.get(&name);
        of_grant.into_iter().chain(of_session).for_each(|view| view.wanted());
    }

    /// It is rare enough to look for it.
    fn take_in_lost(&mut self, now: Moment, lost: &grpc::Lost) {
        for key in self.machine.keys() {
            let Some(item) = self.machine.data(key) else { continue };
            let is_it = item.granted.lease_id == lost.lease_id
                && lost.fencing_token.is_none_or(|token| token == item.granted.token);
            if is_it {
                let problem = Problem::new(Code::LeaseLost, lost.reason.clone());
                self.machine.lost(now, key, Box::new(problem));
            }
        }
    }

    pub(super) fn take_in(&mut self, arrived: Arrived) {
        let now = self.clock.now();
        match arrived {
            // One that was given up meanwhile.
            Arrived::Attached(link, _) | Arrived::Up(link) | Arrived::Down(link, _)
                if link != self.link => {}
            Arrived::Attached(link, stream) => {
                self.open = Some(Open { link, stream: *stream, batch: Batch::default() });
                self.take_in(Arrived::Up(link));
            }
            Arrived::Up(link) => {
                tracing::debug!(link = link.0, "connected");
                self.is_up = true;
                self.machine.up(now, link);
                for done in self.waiting_for_up.drain(..) {
                    let _ = done.send(Ok(()));
                }
            }
            Arrived::Down(link, error) => {
                tracing::debug!(link = link.0, error = error.said, "no connection");
                self.is_up = false;
                let is_hopeless = error.is_lasting && self.machine.servers_len() == 1;
                self.connect_error = error;
                self.machine.down(now, link);
                self.give_up_connecting(now, is_hopeless);
            }
            Arrived::AskAgain(asked) => {
                self.machine.suspect(now);
                self.act();
                self.ask_http(asked);
            }
            Arrived::Unreachable(server) => {
                if self.machine.server() == server {
                    self.machine.suspect_if_idle(now);
                }
            }
            Arrived::Http { call, key, request, result } => {
                self.running.remove(&call);
                self.take_in_http(now, call, key, &request, result);
            }
        }
    }

    pub(super) fn give_up_connecting(&mut self, now: Moment, is_hopeless: bool) {
        if is_hopeless || now >= self.up_until {
            for done in self.waiting_for_up.drain(..) {
                let _ = done.send(Err(self.connect_error.as_error()));
            }
        }
    }

    fn take_in_http(
        &mut self,
        now: Moment,
        call: CallId,
        key: Key,
        request: &Request,
        result: Result<Answered, (Failure, String)>,
    ) {
        let answered = match result {
            Ok(answered) => answered,
            Err((failure, said)) => {
                self.connect_error = ConnectError::passing(said);
                self.machine.failed(now, call, failure);
                return;
            }
        };
        let read = self.machine.data(key).and_then(|i| i.payload.read_http(request, &answered));
        match read {
            Some((answer, granted)) => self.answer(now, call, key, answer, granted),
            None => self.machine.failed(now, call, Failure::Unknown),
        }
    }

    fn answer(
        &mut self,
        now: Moment,
        call: CallId,
        key: Key,
        answer: Answer,
        granted: Option<Granted>,
    ) {
        // An answer to an earlier try may tell of an older grant.
        if self.machine.key_of(call) == Some(key)
            && let (Some(granted), Some(item)) = (granted, self.machine.data_mut(key))
        {
            item.granted = Arc::new(granted);
        }
        self.hand_in(now, call, answer);
    }

    /// Hands an answer to the machine, which follows whatever leader it names: so it is not to see one that must not be followed.
    fn hand_in(&mut self, now: Moment, call: CallId, mut answer: Answer) {
        if let Answer::Refused(problem) = &mut answer
            && let Some(hint) = problem.leader.take()
        {
            problem.leader = self.access.leader(self.machine.server(), &hint);
            if problem.leader.is_none() {
                tracing::debug!(hint, "the leader is not a configured server, and not followed");
            }
        }
        self.machine.answer(now, call, answer);
    }
}
