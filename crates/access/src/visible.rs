//! The part of an ordered key space that a caller may list.
//!
//! Names and paths stand in one order by their canonical text. Each pattern is one run of it, so a list walks only what may be
//! seen: nothing of its budget goes to what is hidden, and where it stops is never a hidden name.

use crate::rights::Area;

/// More runs than this are joined: what lies between two of them is then walked and filtered.
const RUNS_MAX: usize = 64;

/// Canonical texts from the first on, up to but without the second; `None`: to the end.
pub type Run = (Vec<u8>, Option<Vec<u8>>);

/// The runs of keys and of inodes that may be seen, in order and apart from one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    pub keys: Vec<Run>,
    /// The last one included.
    pub inodes: Vec<(u64, u64)>,
    /// There is something in the asked part that may not be seen.
    pub is_filtered: bool,
    /// Each key has to be looked at on its own: runs were joined, or do not follow a pattern exactly.
    pub is_rough: bool,
}

impl Visible {
    pub(crate) fn of<'a>(areas: impl Iterator<Item = &'a Area>, prefix: &str) -> Visible {
        let mut visible = Visible::default();
        for area in areas {
            visible.add(area);
        }
        visible.keys = merged(visible.keys);
        visible.inodes.sort_unstable();
        visible.inodes = joined_numbers(&visible.inodes);
        let asked = (prefix.as_bytes().to_vec(), after_all(prefix.as_bytes()));
        visible.is_filtered = visible.is_rough
            || !visible.keys.iter().any(|run| covers(run, &asked))
            || !covers_inodes(&visible, prefix);
        visible.keys = common(&visible.keys, &[asked]);
        visible.cut_short();
        visible
    }

    fn add(&mut self, area: &Area) {
        let names = &area.names;
        if names.all.is_some() {
            // All names stand before and after the paths; no name begins like a path or a file.
            self.keys.push((Vec::new(), Some(b"path:".to_vec())));
            self.keys.push((b"path;".to_vec(), None));
        }
        if names.flock.is_some() && names.all.is_none() {
            self.keys.push(below("flock:"));
            self.is_rough = true;
        }
        self.keys.extend(names.exactly.keys().map(|name| only(name)));
        self.keys.extend(names.below.keys().map(|begin| below(begin)));
        self.keys.extend(area.paths.exactly.keys().map(|path| only(path)));
        for root in area.paths.subtrees.keys() {
            if &**root == "path:" {
                self.keys.push(below(root));
            } else {
                self.keys.extend([only(root), below(&format!("{root}/"))]);
            }
        }
        self.inodes.extend(area.inodes.iter().map(|&(first, last, _)| (first, last)));
    }

    /// The intersection of both.
    #[must_use]
    pub(crate) fn and(&self, other: &Visible) -> Visible {
        let inodes = self.inodes.iter().flat_map(|&(first, last)| {
            other.inodes.iter().filter_map(move |&(f, l)| {
                let both = (first.max(f), last.min(l));
                (both.0 <= both.1).then_some(both)
            })
        });
        let mut both = Visible {
            keys: common(&self.keys, &other.keys),
            inodes: inodes.collect(),
            is_filtered: self.is_filtered || other.is_filtered,
            is_rough: self.is_rough || other.is_rough,
        };
        both.cut_short();
        both
    }

    /// Whether a key lies in one of the runs. Where the runs are rough it may be hidden all the same.
    pub fn may_show(&self, key: &str) -> bool {
        let key = key.as_bytes();
        let at = self.keys.partition_point(|(start, _)| &start[..] <= key);
        at > 0 && self.keys[at - 1].1.as_ref().is_none_or(|end| key < &end[..])
    }

    fn cut_short(&mut self) {
        while self.keys.len() > RUNS_MAX {
            self.is_rough = true;
            // Neighbours in pairs, so that it takes a few rounds and not one for each run.
            let pairs = self.keys.chunks(2);
            self.keys =
                pairs.map(|pair| (pair[0].0.clone(), pair[pair.len() - 1].1.clone())).collect();
        }
    }
}

/// The run of one text.
fn only(text: &str) -> Run {
    (text.as_bytes().to_vec(), Some([text.as_bytes(), b"\0"].concat()))
}

/// The run of all that begins with a text.
fn below(begin: &str) -> Run {
    (begin.as_bytes().to_vec(), after_all(begin.as_bytes()))
}

/// The first text after all that begin with this one.
fn after_all(begin: &[u8]) -> Option<Vec<u8>> {
    let last = begin.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut after = begin[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

fn covers((start, end): &Run, (from, to): &Run) -> bool {
    let reaches = match (end, to) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(end), Some(to)) => end >= to,
    };
    start <= from && reaches
}

/// Whether all files that a prefix can be about are there.
fn covers_inodes(visible: &Visible, prefix: &str) -> bool {
    let is_about_files = "inode:".starts_with(prefix) || prefix.starts_with("inode:");
    !is_about_files || visible.inodes == [(0, u64::MAX)]
}

/// In order, with those joined that touch or overlap.
fn merged(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort();
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for (start, end) in runs {
        match merged.last_mut() {
            Some((_, None)) => break,
            Some((_, Some(last))) if start <= *last => match end {
                Some(end) if end <= *last => {}
                Some(end) => *last = end,
                None => merged.last_mut().expect("there is one").1 = None,
            },
            Some(_) | None => merged.push((start, end)),
        }
    }
    merged
}

fn joined_numbers(sorted: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for &(first, last) in sorted {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            Some(_) | None => joined.push((first, last)),
        }
    }
    joined
}

/// The intersection of two runs; each of them is in order.
fn common(one: &[Run], other: &[Run]) -> Vec<Run> {
    let mut common = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some((a, a_end)), Some((b, b_end))) = (one.get(i), other.get(j)) {
        let start = a.max(b);
        let end = match (a_end, b_end) {
            (None, end) | (end, None) => end.clone(),
            (Some(a), Some(b)) => Some(a.min(b).clone()),
        };
        if end.as_ref().is_none_or(|end| start < end) {
            common.push((start.clone(), end));
        }
        // The one that ends first makes way.
        let first_ends = match (a_end, b_end) {
            (Some(a), Some(b)) => a <= b,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if first_ends { i += 1 } else { j += 1 }
    }
    common
}
