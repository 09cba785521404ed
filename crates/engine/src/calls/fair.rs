//! A queue for each account, served in turn: deficit round robin.
//!
//! In its turn an account may spend a quantum, and what it could not spend is added to its next turn. What one account
//! has put in comes out in that order; how much of it there is delays nobody else by more than a quantum.

use std::collections::{HashMap, HashSet, VecDeque};

/// Items of several accounts, each with its cost.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    quantum: usize,
    queues: HashMap<u64, Queue<T>>,
    /// Accounts with anything queued, in the order of their turns.
    turns: VecDeque<u64>,
    /// Accounts that had anything queued in this window.
    active: HashSet<u64>,
    cost: usize,
    len: usize,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<(usize, T)>,
    cost: usize,
    /// The cost that it may still spend in its turn.
    credit: usize,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(quantum: usize) -> FairQueue<T> {
        let (queues, turns, active) = (HashMap::new(), VecDeque::new(), HashSet::new());
        FairQueue { quantum, queues, turns, active, cost: 0, len: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// The number of queued items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn len_of(&self, account: u64) -> usize {
        self.queues.get(&account).map_or(0, |queue| queue.items.len())
    }

    /// The cost of what an account has queued.
    pub(crate) fn cost_of(&self, account: u64) -> usize {
        self.queues.get(&account).map_or(0, |queue| queue.cost)
    }

    /// Whether an account has more queued than it would have if all that were active in this window had the same.
    pub(crate) fn is_above_share(&self, account: u64) -> bool {
        self.active.len() > 1 && self.cost_of(account) * self.active.len() > self.cost
    }

    /// From now on, only accounts that have anything queued count for the share.
    pub(crate) fn begin_window(&mut self) {
        self.active = self.turns.iter().copied().collect();
    }

    pub(crate) fn push(&mut self, account: u64, cost: usize, item: T) {
        self.cost += cost;
        self.len += 1;
        let queue = self.queues.entry(account).or_insert_with(|| {
            self.turns.push_back(account);
            self.active.insert(account);
            Queue { items: VecDeque::new(), cost: 0, credit: 0 }
        });
        queue.cost += cost;
        queue.items.push_back((cost, item));
    }

    /// Hands out items until they have cost `budget`, or all that may be. The first one is handed out whatever it costs.
    /// Accounts that are to be held back keep their turn.
    pub(crate) fn take(
        &mut self,
        budget: usize,
        held_back: impl Fn(u64) -> bool,
        mut give: impl FnMut(T),
    ) {
        let (mut spent, mut passed) = (0, 0);
        while spent < budget && passed < self.turns.len() {
            let Some(account) = self.turns.pop_front() else { return };
            if held_back(account) {
                self.turns.push_back(account);
                passed += 1;
                continue;
            }
            passed = 0;
            let Some(queue) = self.queues.get_mut(&account) else { continue };
            // Alone, it need not wait for its credit.
            queue.credit = match self.turns.is_empty() {
                true => usize::MAX,
                false => queue.credit.saturating_add(self.quantum),
            };
            while spent < budget
                && let Some((cost, item)) =
                    queue.items.pop_front_if(|(cost, _)| *cost <= queue.credit)
            {
                queue.credit -= cost;
                queue.cost -= cost;
                self.cost -= cost;
                self.len -= 1;
                spent += cost;
                give(item);
            }
            if queue.items.is_empty() {
                self.queues.remove(&account);
            } else {
                if self.turns.is_empty() {
                    queue.credit = 0;
                }
                self.turns.push_back(account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(queue: &mut FairQueue<(u64, usize)>, budget: usize) -> Vec<(u64, usize)> {
        let mut taken = Vec::new();
        queue.take(budget, |_| false, |item| taken.push(item));
        taken
    }

    fn filled(lens: &[(u64, usize)]) -> FairQueue<(u64, usize)> {
        let mut queue = FairQueue::new(4);
        for &(account, len) in lens {
            (0..len).for_each(|number| queue.push(account, 1, (account, number)));
        }
        queue
    }

    #[test]
    fn each_account_has_its_turn_and_its_order() {
        let mut queue = filled(&[(1, 100), (2, 3), (3, 6)]);
        let all = taken(&mut queue, 16);
        let of = |account| {
            let mine = all.iter().filter(move |(of, _)| *of == account);
            mine.map(|(_, number)| *number).collect::<Vec<_>>()
        };
        assert_eq!((of(1).len(), of(2).len(), of(3).len()), (8, 3, 5));
        for account in 1..=3 {
            assert!(of(account).is_sorted(), "{account}: {:?}", of(account));
        }
        assert_eq!(taken(&mut queue, usize::MAX).len(), 109 - 16);
        assert!(queue.is_empty());
        assert_eq!((queue.cost(), queue.len(), queue.len_of(1)), (0, 0, 0));
    }

    #[test]
    fn flood_of_one_delays_another_by_a_quantum_only() {
        let mut queue = filled(&[(1, 10_000)]);
        queue.push(2, 1, (2, 0));
        let all = taken(&mut queue, 10);
        assert!(all.contains(&(2, 0)), "{all:?}");
    }

    #[test]
    fn account_alone_gets_all_of_the_budget() {
        let mut queue = filled(&[(1, 100)]);
        assert_eq!(taken(&mut queue, 64), (0..64).map(|number| (1, number)).collect::<Vec<_>>());
    }

    #[test]
    fn large_item_waits_until_its_account_has_saved_up_for_it() {
        let mut queue = filled(&[(1, 20)]);
        queue.push(2, 10, (2, 0));
        let all = taken(&mut queue, usize::MAX);
        let at = all.iter().position(|item| *item == (2, 0)).unwrap();
        assert_eq!(at, 12, "after three quanta of the other");
    }

    #[test]
    fn item_above_the_budget_is_handed_out_all_the_same() {
        let mut queue = FairQueue::new(4);
        queue.push(1, 1000, (1, 0));
        assert_eq!(taken(&mut queue, 8), [(1, 0)]);
    }

    #[test]
    fn account_that_is_held_back_keeps_its_items() {
        let mut queue = filled(&[(1, 5), (2, 5)]);
        let mut all = Vec::new();
        queue.take(100, |account| account == 1, |item| all.push(item));
        assert_eq!(all.iter().filter(|(of, _)| *of == 1).count(), 0);
        assert_eq!((all.len(), queue.cost_of(1), queue.cost_of(2)), (5, 5, 0));
        assert_eq!(taken(&mut queue, 100).len(), 5);
    }

    #[test]
    fn share_is_what_each_would_have_if_all_had_the_same() {
        let mut queue = filled(&[(1, 10), (2, 4), (3, 1)]);
        let above: Vec<bool> = (1..=4).map(|account| queue.is_above_share(account)).collect();
        assert_eq!(above, [true, false, false, false]);
        assert!(!filled(&[(1, 10)]).is_above_share(1), "alone, all of it is its share");
        taken(&mut queue, 9);
        assert_eq!((queue.cost_of(2), queue.cost_of(3)), (0, 0));
        assert!(queue.is_above_share(1), "the others were there a moment ago");
        queue.begin_window();
        assert!(!queue.is_above_share(1));
    }
}
