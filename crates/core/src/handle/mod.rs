//! One file per command: decide, apply, say what follows.

mod acquire;
mod by_owner;
mod deadlines;
mod epoch;
mod fences;
mod operator;
mod places;
mod reclaim;
mod refusing;
mod release;
mod renew;
mod retries;
mod room;
mod sessions;
mod turns;
mod waiting;
mod waking;

pub(crate) use waking::{Candidates, Sweeps};

use crate::budget::Budget;
use crate::command::Command;
use crate::effect::{Answer, Outcome, Step};
use crate::quota::Quotas;
use crate::refusal::Refusal;
use crate::table::LockTable;
use crate::time::Timestamp;

/// The result of a command's own code; waiting is the third way out, for `acquire` alone.
type Handled = Result<Answer, Refusal>;

impl LockTable {
    /// Carries out one command at the time `now`. What came of it besides the outcome is added to `step`.
    ///
    /// Whatever is due by `now` happens first. The time never goes back: an earlier `now` counts as the latest one.
    /// At the beginning of an epoch nothing is due: the deadlines of the last one no longer count.
    pub fn handle(&mut self, now: Timestamp, command: Command, step: &mut Step) -> Outcome {
        self.handle_within(now, command, &Quotas::UNLIMITED, step)
    }

    /// The same for a principal that may have so much and no more.
    pub fn handle_within(
        &mut self,
        now: Timestamp,
        command: Command,
        quotas: &Quotas,
        step: &mut Step,
    ) -> Outcome {
        self.now = self.now.max(now);
        self.wakes_left = self.limits.endings_per_step_max.saturating_mul(2);
        self.collects_left = Budget::new(self.wakes_left);
        if !matches!(command, Command::BeginEpoch(_) | Command::Jump(_)) {
            self.process_due(step);
            if self.has_turns_left() {
                self.end_in_turns(matches!(command, Command::Tick), step);
                self.wake_waiters(step);
            }
        }
        let outcome = self.carry_out(command, quotas, step);
        self.wake_waiters(step);
        self.end_grace_if_over(step);
        while let Some((namespace, owner)) = self.weakened.pop_first() {
            if let Some(space) = self.namespace_idx(&namespace) {
                self.break_late_deadlocks(space, &owner, step);
                self.wake_waiters(step);
            }
        }
        outcome
    }

    fn carry_out(&mut self, command: Command, quotas: &Quotas, step: &mut Step) -> Outcome {
        let handled = match command {
            Command::Acquire(mut acquire) => return self.acquire(&mut acquire, quotas, step),
            Command::Renew(renew) => self.renew(&renew, quotas, step),
            Command::Release(release) => self.release(&release, quotas, step),
            Command::ByOwner(ask) => self.by_owner(ask, quotas, step),
            Command::Unlock(unlock) => self.unlock(&unlock, quotas, step),
            Command::Cancel(cancel) => self.cancel(&cancel, step),
            Command::OpenSession(open) => self.open(open, quotas, step),
            Command::KeepAlive(keep_alive) => self.keep_alive(&keep_alive, quotas, step),
            Command::CloseSession(close) => self.close(&close, step),
            Command::Attach(attach) => self.attach(&attach, step),
            Command::Disconnect(disconnect) => self.disconnect(&disconnect, step),
            Command::AcceptFence(accept) => self.accept_fence(accept, quotas, step),
            Command::DeleteFence(delete) => self.delete_fence(delete, step),
            Command::Break(breaking) => self.break_locks(&breaking, step),
            Command::BreakSession(breaking) => self.break_session(&breaking, step),
            Command::RemoveFile(remove) => self.remove_file(&remove, step),
            Command::Withdraw(withdraw) => self.withdraw(&withdraw, step),
            Command::BeginEpoch(begin) => self.begin_epoch(&begin, step),
            Command::Jump(jump) => self.jump(&jump, step),
            Command::Suspend => {
                self.suspended = true;
                Ok(Answer::Done)
            }
            Command::Resume => {
                self.suspended = false;
                self.endings.forget_undone();
                self.free_every_queue();
                Ok(Answer::Done)
            }
            Command::Tick => Ok(Answer::Done),
        };
        match handled {
            Ok(answer) => Outcome::Answered(answer),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}
