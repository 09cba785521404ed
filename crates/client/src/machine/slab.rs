//! Numbered places that are used again under a new name.

/// Names one lease, session or acquire of a [`Machine`](super::Machine). It is never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// Names one request that was sent; its answer carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) Key);

impl Key {
    /// One number, for a wire that has room for 64 bits.
    pub const fn to_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves are meant to be cut off")]
    pub const fn from_u64(number: u64) -> Key {
        Key { index: number as u32, generation: (number >> 32) as u32 }
    }
}

impl CallId {
    pub const fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    pub const fn from_u64(number: u64) -> CallId {
        CallId(Key::from_u64(number))
    }
}

#[derive(Debug)]
pub(super) struct Slab<V> {
    places: Vec<(u32, Option<V>)>,
    free: Vec<u32>,
}

impl<V> Slab<V> {
    pub(super) const fn new() -> Slab<V> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: V) -> Key {
        if let Some(index) = self.free.pop() {
            let (generation, place) = &mut self.places[index as usize];
            *place = Some(value);
            return Key { index, generation: *generation };
        }
        let index = u32::try_from(self.places.len()).expect("fewer than four billion at once");
        // From one on: zero names nothing on a wire that leaves zeros out.
        self.places.push((1, Some(value)));
        Key { index, generation: 1 }
    }

    pub(super) fn get(&self, key: Key) -> Option<&V> {
        let (generation, place) = self.places.get(key.index as usize)?;
        place.as_ref().filter(|_| *generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        let (generation, place) = self.places.get_mut(key.index as usize)?;
        place.as_mut().filter(|_| *generation == key.generation)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<V> {
        let (generation, place) = self.places.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let value = place.take()?;
        // The highest bit stays free for those who send the number.
        *generation = (generation.wrapping_add(1) & (u32::MAX >> 1)).max(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &V)> {
        self.places.iter().enumerate().filter_map(|(index, (generation, place))| {
            let index = u32::try_from(index).ok()?;
            place.as_ref().map(|value| (Key { index, generation: *generation }, value))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_good_for_what_came_after() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_key_survives_the_way_through_a_number() {
        let key = Key { index: 7, generation: 9 };
        assert_eq!(Key::from_u64(key.to_u64()), key);
    }
}
