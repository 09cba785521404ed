//! What is to happen next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Moment;

/// Things to come, each at its moment; those of one moment in the order in which they were written down.
#[derive(Debug)]
pub struct Agenda<T> {
    /// The moment, the number and the place of each: what is moved about is small.
    heap: BinaryHeap<Reverse<(Moment, u64, usize)>>,
    places: Vec<Option<T>>,
    free: Vec<usize>,
    written: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), places: Vec::new(), free: Vec::new(), written: 0 }
    }
}

impl<T> Agenda<T> {
    pub fn add(&mut self, at: Moment, what: T) {
        self.written += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(what);
        self.heap.push(Reverse((at, self.written, place)));
    }

    pub fn take_next(&mut self) -> Option<(Moment, T)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.places[place].take()?))
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_earlier_comes_first_and_ties_keep_their_order() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            agenda.add(Moment(at), what);
        }
        let order: String =
            std::iter::from_fn(|| agenda.take_next()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
