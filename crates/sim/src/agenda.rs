//! What is to happen next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Moment;

/// Things to come, each at its moment; those of one moment in the order in which they were written down.
#[derive(Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    written: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Moment,
    number: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), written: 0 }
    }
}

impl<T> Agenda<T> {
    pub fn add(&mut self, at: Moment, what: T) {
        self.written += 1;
        self.heap.push(Reverse(Entry { at, number: self.written, what }));
    }

    pub fn take_next(&mut self) -> Option<(Moment, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
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
