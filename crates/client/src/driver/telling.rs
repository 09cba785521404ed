//! Delivery of results to callers.

use leasehold_api::{Code, Problem, RequestOutcome};

use super::{Driver, Got, Item};
use crate::error::{Error, LostBy};
use crate::machine::{Ended, Key, Loss, News};

impl Driver {
    /// Wakes all whose request was answered, one right after the other. With work between two of them, the thread of
    /// the callers would go to sleep and be woken again for each.
    pub(super) fn hand_over(&mut self) {
        for (caller, released) in self.released.drain(..) {
            let _ = caller.send(released);
        }
        for (caller, got) in self.acquired.drain(..) {
            let key = got.key;
            if caller.send(Ok(got)).is_err() {
                self.machine.abandon(self.clock.now(), key);
            }
        }
    }

    pub(super) fn tell(&mut self, key: Key, news: News) {
        let Some(item) = self.machine.data_mut(key) else { return };
        match news {
            News::Granted(window) => {
                tracing::trace!(lock = item.payload.lock(), token = item.granted.token, "granted");
                item.view.set_window(window);
                let got = Got { key, granted: item.granted.clone() };
                match item.acquired.take() {
                    Some(caller) => self.acquired.push((caller, got)),
                    None => self.machine.abandon(self.clock.now(), key),
                }
            }
            News::Renewed(window) => item.view.set_window(window),
            News::Jeopardy => {
                let token = item.granted.token;
                tracing::debug!(
                    lock = item.payload.lock(),
                    token,
                    "no renewal in time: the work must stop"
                );
                item.view.in_jeopardy();
            }
            News::GaveUp => {
                if let Some(acquired) = item.acquired.take() {
                    let said = format!("no answer came in time; {}", self.connect_error.said);
                    let _ = acquired.send(Err(Error::unanswered(said)));
                }
            }
        }
    }

    pub(super) fn end(&mut self, mut item: Item, how: Ended) {
        let (loss, released) = match &how {
            // A release may be on its way when the session is closed that it stands under.
            Ended::Lost(loss) | Ended::NeverAsked(loss) => {
                let by = lost_by(loss);
                (by.clone(), Err(Error::lost(by, RequestOutcome::Unknown)))
            }
            Ended::Released | Ended::Forgotten => (LostBy::Released, Ok(())),
            Ended::NotReleased(problem) => {
                let by = told_by(problem);
                // Of other refusals it is not known whether an earlier try was carried out.
                let is_over = matches!(
                    problem.code,
                    Code::NotHolder | Code::LeaseLost | Code::SessionNotFound
                );
                let outcome = if is_over { problem.outcome } else { RequestOutcome::Unknown };
                (by.clone(), Err(Error::lost(by, outcome)))
            }
            Ended::ReleaseUnanswered => {
                let said = format!("no answer came to the release; {}", self.connect_error.said);
                (LostBy::Lapse, Err(Error::unanswered(said)))
            }
            Ended::Refused(_) | Ended::Unreachable => (LostBy::Lapse, Ok(())),
        };
        if !self.listening.is_empty() {
            self.listening.remove(&item.granted.name());
        }
        if matches!(how, Ended::Lost(_)) {
            tracing::debug!(lock = item.payload.lock(), token = item.granted.token, %loss, "lost");
        }
        item.view.lost(loss.clone());
        if let Some(caller) = item.released.take() {
            self.released.push((caller, released));
        }
        if let Some(acquired) = item.acquired.take() {
            let error = match how {
                Ended::Refused(problem) => Error::Refused(problem),
                Ended::Lost(_) => Error::lost(loss, RequestOutcome::Unknown),
                Ended::NeverAsked(_) => Error::lost(loss, RequestOutcome::NotApplied),
                Ended::Unreachable => self.connect_error.as_error(),
                Ended::Released
                | Ended::NotReleased(_)
                | Ended::ReleaseUnanswered
                | Ended::Forgotten => Error::Closed,
            };
            let _ = acquired.send(Err(error));
        }
    }
}

fn lost_by(loss: &Loss) -> LostBy {
    match loss {
        Loss::Lapsed => LostBy::Lapse,
        Loss::Told(problem) => told_by(problem),
        Loss::SessionClosed => LostBy::SessionClosed,
    }
}

fn told_by(problem: &Problem) -> LostBy {
    LostBy::Server { code: problem.code, detail: problem.detail.clone() }
}
