//! Values under small numbers that are used again once free. Grows by blocks, so growing never moves a value.

const BLOCK_LEN: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    blocks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { blocks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if let Some(at) = self.free.pop() {
            *self.slot(at) = Some(value);
            return at;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK_LEN) {
            self.blocks.push(Vec::with_capacity(BLOCK_LEN));
        }
        let blocks = self.blocks.len() - 1;
        let block = &mut self.blocks[blocks];
        block.push(Some(value));
        u32::try_from(blocks * BLOCK_LEN + block.len() - 1).expect("four billion values do not fit")
    }

    pub(crate) fn remove(&mut self, at: u32) -> T {
        let value = self.slot(at).take().expect("only used slots are removed");
        self.free.push(at);
        self.len -= 1;
        if self.len == 0 {
            *self = Slab::default();
        }
        value
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        self.blocks.get(at / BLOCK_LEN)?.get(at % BLOCK_LEN)?.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One past the highest number in use.
    pub(crate) fn end(&self) -> u32 {
        let used = self.blocks.len().saturating_sub(1) * BLOCK_LEN
            + self.blocks.last().map_or(0, Vec::len);
        u32::try_from(used).expect("four billion values do not fit")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.end()).filter_map(|at| Some((at, self.get(at)?)))
    }

    fn slot(&mut self, at: u32) -> &mut Option<T> {
        let at = at as usize;
        &mut self.blocks[at / BLOCK_LEN][at % BLOCK_LEN]
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        self.get(at).expect("the slot is in use")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.slot(at).as_mut().expect("the slot is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_removed_values_are_used_again() {
        let mut slab = Slab::default();
        let all: Vec<u32> = (0..3000).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.remove(all[7]), 7);
        assert_eq!(slab.insert(9999), all[7]);
        assert_eq!((slab.len(), slab.end()), (3000, 3000));
        assert_eq!(slab.iter().count(), 3000);
        assert_eq!(slab[all[2999]], 2999);
    }
}
