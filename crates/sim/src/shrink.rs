//! Cuts a failing world down to the few things that matter.

use std::time::{Duration, Instant};

use crate::cut::Cut;
use crate::plan::Plan;
use crate::time::Micros;
use crate::world::Run;

/// The smallest cut that was found, within the time, with which the seed still breaks the same promise.
pub fn shrink(seed: u64, length: Option<Micros>, cut: &Cut, time: Duration) -> Cut {
    let Some(mut smallest) = Smallest::new(seed, length, cut, Instant::now() + time) else {
        return cut.clone();
    };
    loop {
        let before = smallest.cut.clone();
        smallest.end_early();
        smallest.leave_out_faults();
        smallest.leave_out_clients();
        smallest.leave_out_actions();
        if smallest.cut == before || smallest.is_late() {
            return smallest.cut;
        }
    }
}

struct Smallest {
    seed: u64,
    length: Option<Micros>,
    promise: &'static str,
    cut: Cut,
    run: Run,
    end: Instant,
}

impl Smallest {
    fn new(seed: u64, length: Option<Micros>, cut: &Cut, end: Instant) -> Option<Smallest> {
        let run = crate::run(seed, length, cut, false);
        let promise = run.verdict.as_ref().err()?.promise;
        Some(Smallest { seed, length, promise, cut: cut.clone(), run, end })
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Takes the cut if the promise is still broken with it.
    fn try_cut(&mut self, cut: Cut) -> bool {
        if self.is_late() {
            return false;
        }
        let run = crate::run(self.seed, self.length, &cut, false);
        let still = run.verdict.as_ref().is_err_and(|verdict| verdict.promise == self.promise);
        if still {
            (self.cut, self.run) = (cut, run);
        }
        still
    }

    fn end_early(&mut self) {
        let at = self.run.verdict.as_ref().map_or(0, |()| 0).max(self.run.simulated);
        let mut until = at;
        for _ in 0..6 {
            let cut = Cut { until: Some(until), ..self.cut.clone() };
            if !self.try_cut(cut) {
                return;
            }
            until = until / 10 * 9;
        }
    }

    fn leave_out_faults(&mut self) {
        let all: Vec<usize> = (0..Plan::new(self.seed, self.length).faults.len()).collect();
        self.leave_out(&all, |cut, fault| _ = cut.faults.insert(*fault));
    }

    fn leave_out_clients(&mut self) {
        let all: Vec<usize> = (0..Plan::new(self.seed, self.length).clients).collect();
        self.leave_out(&all, |cut, client| _ = cut.clients.insert(*client));
    }

    fn leave_out_actions(&mut self) {
        let actions = self.run.actions.clone();
        let all: Vec<(usize, u64)> = actions
            .iter()
            .flat_map(|&(client, len)| (1..=len).map(move |action| (client, action)))
            .collect();
        self.leave_out(&all, |cut, action| _ = cut.actions.insert(*action));
    }

    /// Tries to leave out large parts first, then smaller ones.
    fn leave_out<T>(&mut self, all: &[T], add: impl Fn(&mut Cut, &T)) {
        let mut part = all.len();
        while part > 0 && !self.is_late() {
            for chunk in all.chunks(part) {
                let mut cut = self.cut.clone();
                chunk.iter().for_each(|item| add(&mut cut, item));
                if cut != self.cut {
                    self.try_cut(cut);
                }
            }
            part /= 2;
        }
    }
}
