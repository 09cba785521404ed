//! Releases and closings that were answered as before: only what was asked before, and as it was answered then.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands and answers only a few matter here"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    Answer, CloseSession, Command, FencingToken, LeaseId, Namespace, Owner, Release, Scope,
};

use super::Verdict;
use crate::time::Moment;

const PROMISE: &str = "only what was released before is answered as before";

/// Who gave something back, and under which lease.
type Giver = (Namespace, LeaseId, Owner);

/// What was asked to be given back, and how that was answered.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// How often bytes or locks were to be given back.
    asked: BTreeMap<Giver, usize>,
    /// How long a lock was held, as the first answer said.
    held: BTreeMap<(Giver, FencingToken, Scope), Duration>,
    closes: BTreeMap<(Namespace, LeaseId), usize>,
    closed: BTreeMap<(Namespace, LeaseId), usize>,
}

impl Repeats {
    pub(super) fn asked(&mut self, command: &Command) {
        let giver = match command {
            Command::Release(release) => giver_of(release),
            Command::Unlock(unlock) => {
                (unlock.namespace.clone(), unlock.session, unlock.owner.clone())
            }
            Command::CloseSession(close) => {
                *self.closes.entry(of_close(close)).or_insert(0) += 1;
                return;
            }
            _ => return,
        };
        *self.asked.entry(giver).or_insert(0) += 1;
    }

    pub(super) fn answered(
        &mut self,
        now: Moment,
        command: &Command,
        answer: &Answer,
    ) -> Result<(), Verdict> {
        match (command, answer) {
            (Command::Release(release), Answer::Released { held, replayed }) => {
                let key = (giver_of(release), release.fence, release.scope.clone());
                if !replayed {
                    self.held.insert(key, *held);
                    return Ok(());
                }
                let asked = self.asked.get(&key.0).copied().unwrap_or(0);
                // Bytes go and come in parts: only a lock is held from one moment to another.
                let before = self.held.get(&key).filter(|_| is_lock(&release.scope));
                if asked > 1 && before.is_none_or(|before| before == held) {
                    return Ok(());
                }
                let what = format!("{release:?} held {held:?}, before {before:?}");
                Err(Verdict::new(now, PROMISE, what))
            }
            (Command::CloseSession(close), Answer::SessionClosed { grants, replayed }) => {
                let key = of_close(close);
                if !replayed {
                    self.closed.insert(key, *grants);
                    return Ok(());
                }
                let asked = self.closes.get(&key).copied().unwrap_or(0);
                let before = self.closed.get(&key);
                // A grant of a record that was not written is gone with it, although the closing was answered before.
                if asked > 1 && before.is_none_or(|before| grants <= before) {
                    return Ok(());
                }
                let what = format!("{close:?} of {grants}, before {before:?}");
                Err(Verdict::new(now, PROMISE, what))
            }
            _ => Ok(()),
        }
    }
}

fn giver_of(release: &Release) -> Giver {
    (release.namespace.clone(), release.lease, release.owner.clone())
}

fn of_close(close: &CloseSession) -> (Namespace, LeaseId) {
    (close.namespace.clone(), close.session)
}

fn is_lock(scope: &Scope) -> bool {
    matches!(scope, Scope::Key(_))
}
