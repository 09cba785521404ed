//! Sending of requests, over the stream or by HTTP.

use super::{Arrived, Driver};
use crate::access::{Access, Protocol};
use crate::client::Transport;
use crate::http::Http;
use crate::machine::{CallId, Failure, Key, LinkId, Request};
use crate::stream;
use crate::surroundings::Place;

impl Driver {
    pub(super) fn connect(&mut self, link: LinkId, address: String) {
        tracing::debug!(server = address, link = link.0, place = ?self.place, "connecting");
        self.is_up = false;
        self.link = link;
        if let Some(before) = self.connecting.take() {
            before.abort();
        }
        for (_, task) in self.running.drain() {
            task.abort();
        }
        self.open = None;
        self.http = Http::new(address.clone(), self.access.clone());
        self.tools.send_replace(Http::new(address.clone(), self.access.at(Place::Guard)));
        let (arrivals, transport) = (self.arrivals.clone(), self.transport);
        let (namespace, access) = (self.namespace.clone(), self.access.clone());
        let spawner = self.access.clone();
        let task = spawner.spawn(async move {
            let arrived = match transport {
                Transport::Http => probe(&access, link, &address).await,
                Transport::Stream => match stream::attach(&access, &address, &namespace).await {
                    Ok(attached) => Arrived::Attached(link, Box::new(attached)),
                    Err(said) => Arrived::Down(link, said),
                },
            };
            let _ = arrivals.send(arrived);
        });
        self.connecting = Some(task);
    }

    pub(super) fn send(&mut self, call: CallId, key: Key, request: Request) {
        let (Some(open), Some(item)) = (&mut self.open, self.machine.data(key)) else {
            self.send_http(call, key, request);
            return;
        };
        match item.payload.command(call, &request, &item.granted) {
            Some((command, size)) => {
                if let Some(full) = open.batch.push(command, size) {
                    let _ = open.stream.outgoing.send(full);
                }
            }
            None => self.send_http(call, key, request),
        }
    }

    fn send_http(&mut self, call: CallId, key: Key, request: Request) {
        let Some(item) = self.machine.data(key) else { return };
        let asks = item.payload.http(&request, &item.granted, &self.query);
        let (http, arrivals) = (self.http.clone(), self.arrivals.clone());
        let task = self.access.spawn(async move {
            let result = http.send_each(&asks).await;
            let _ = arrivals.send(Arrived::Http { call, key, request, result });
        });
        self.running.insert(call, task);
    }

    pub(super) fn cancel(&mut self, call: CallId) {
        // A dropped request closes its connection, and the server takes it out of the queue.
        if let Some(task) = self.running.remove(&call) {
            task.abort();
            self.machine.failed(self.clock.now(), call, Failure::Unknown);
        } else if let Some(open) = &mut self.open
            && let Some(full) = open.batch.push(stream::cancel(call), 32)
        {
            let _ = open.stream.outgoing.send(full);
        }
    }
}

/// Over HTTP there is no connection to speak of: a server that accepts one is there.
async fn probe(access: &Access, link: LinkId, address: &str) -> Arrived {
    match access.connect(address, Protocol::Http1).await {
        Ok(_) => Arrived::Up(link),
        Err(error) => Arrived::Down(link, error),
    }
}
