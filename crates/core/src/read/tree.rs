//! The held locks as a tree: names part at their slashes. Whole branches are stepped over, not walked through.

use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::namespace::{Holders, NamespaceState};
use crate::read::view::{Branch, Tree, TreeQuery};
use crate::scope::{Scope, ScopeKind};
use crate::table::LockTable;

/// All files are one branch: below it they are listed by number.
const FILES: &str = "inode:";

impl LockTable {
    pub fn tree(&self, query: &TreeQuery) -> Tree {
        let mut tree = Tree { branches: Vec::new(), has_more: false, revision: self.revision };
        let Some(space) = self.space_named(&query.namespace) else {
            return tree;
        };
        let mut left = query.looked_at_max;
        let mut after = query.after.clone();
        while let Some(branch) = space.next_branch(&query.prefix, after.as_deref(), &mut left) {
            if tree.branches.len() >= query.len_max {
                tree.has_more = true;
                return tree;
            }
            after = Some(branch.text.clone());
            tree.branches.push(branch);
        }
        tree
    }
}

impl NamespaceState {
    /// The first branch below the prefix that comes after this one, in the order of the texts.
    fn next_branch(&self, prefix: &str, after: Option<&str>, left: &mut usize) -> Option<Branch> {
        let key = self.next_key(prefix, after);
        let file = self.next_file(prefix, after);
        match (key, file) {
            (Some(key), Some(file)) if file < key => Some(self.file_branch(prefix, file)),
            (Some(key), _) => Some(self.key_branch(prefix, &key, left)),
            (None, Some(file)) => Some(self.file_branch(prefix, file)),
            (None, None) => None,
        }
    }

    /// Whether any holder of a key counts.
    fn is_held(&self, holders: &Holders) -> bool {
        self.ending.is_empty() || holders.iter().any(|(_, lease)| self.counts(lease))
    }

    fn next_key(&self, prefix: &str, after: Option<&str>) -> Option<String> {
        let end_of_branch = after.filter(|after| is_branch(after)).map(end_of);
        let start = match (&end_of_branch, after) {
            (Some(end), _) => Included(end.as_slice()),
            (None, Some(lock)) => Excluded(lock.as_bytes()),
            (None, None) => Included(prefix.as_bytes()),
        };
        let mut keys = self.held.range::<[u8], _>((start, Unbounded));
        let (key, _) = keys.find(|(_, holders)| self.is_held(holders))?;
        let text = key.text();
        text.as_bytes().starts_with(prefix.as_bytes()).then(|| text.as_str().to_string())
    }

    /// Files: the branch of all of them, or one of them.
    fn next_file(&self, prefix: &str, after: Option<&str>) -> Option<String> {
        if prefix.is_empty() {
            let is_past = after.is_some_and(|after| after >= FILES);
            return (!is_past && !self.inodes.is_empty()).then(|| FILES.to_string());
        }
        if prefix != FILES {
            return None;
        }
        let last = match after.map(Scope::parse) {
            Some(Ok(Scope::Range { inode, .. })) => Excluded(inode),
            Some(_) | None => Unbounded,
        };
        let (&inode, _) =
            self.inodes.range((last, Unbounded)).find(|(_, inode)| !inode.pieces.is_empty())?;
        Some(Scope::inode(inode).to_string())
    }

    fn file_branch(&self, prefix: &str, text: String) -> Branch {
        if prefix.is_empty() {
            let of_files = [ScopeKind::Inode, ScopeKind::Range];
            let locks = of_files.into_iter().map(|kind| self.kinds[kind as usize]).sum();
            return Branch { text, is_lock: false, locks, is_partial: false };
        }
        let pieces = match Scope::parse(&text) {
            Ok(Scope::Range { inode, .. }) => self.inodes.get(&inode).map_or(0, |i| i.pieces.len()),
            Ok(Scope::Key(_)) | Err(_) => 0,
        };
        Branch { text, is_lock: true, locks: pieces, is_partial: false }
    }

    fn key_branch(&self, prefix: &str, text: &str, left: &mut usize) -> Branch {
        let rest = &text[prefix.len()..];
        // A path's first slash belongs to its beginning.
        let from = if prefix.is_empty() && rest.starts_with("path:/") { "path:/".len() } else { 0 };
        let cut = if from > 0 { Some(from - 1) } else { rest.find('/') };
        let Some(at) = cut else {
            return Branch { text: text.into(), is_lock: true, locks: 1, is_partial: false };
        };
        let branch = format!("{prefix}{}/", &rest[..at]);
        let range = (Included(branch.as_bytes()), Unbounded);
        let all = self.held.range::<[u8], _>(range);
        let mut inside =
            all.take_while(|(key, _)| key.text().as_bytes().starts_with(branch.as_bytes()));
        let looked_at = inside.by_ref().take(*left).map(|(_, holders)| self.is_held(holders));
        let (mut locks, mut steps) = (0, 0);
        for is_held in looked_at {
            steps += 1;
            locks += usize::from(is_held);
        }
        *left -= steps;
        let is_partial = inside.next().is_some();
        Branch { text: branch, is_lock: false, locks, is_partial }
    }
}

fn is_branch(text: &str) -> bool {
    text.ends_with('/') || text == FILES
}

/// The first text after all those that start with this one.
fn end_of(branch: &str) -> Vec<u8> {
    let mut end = branch.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        // A slash or a colon: there is a byte after it.
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{holding, query};

    fn texts(tree: &Tree) -> Vec<String> {
        let told = |branch: &Branch| {
            let more = if branch.is_partial { "+" } else { "" };
            let kind = if branch.is_lock { "lock" } else { "branch" };
            format!("{kind} {} {}{more}", branch.text, branch.locks)
        };
        tree.branches.iter().map(told).collect()
    }

    const HELD: &[&str] = &[
        "a",
        "a/b",
        "a/c/d",
        "a0",
        "inode:7@0..10",
        "inode:7@20..",
        "inode:12",
        "job",
        "path:/srv/a",
        "path:/srv/b/**",
        "zoo/x",
    ];

    #[test]
    fn names_part_at_their_slashes() {
        let table = holding(HELD);
        let root = table.tree(&query("", None, 100, 1000));
        assert_eq!(
            texts(&root),
            [
                "lock a 1",
                "branch a/ 2",
                "lock a0 1",
                "branch inode: 3",
                "lock job 1",
                "branch path:/ 2",
                "branch zoo/ 1"
            ]
        );
        assert_eq!(
            texts(&table.tree(&query("a/", None, 100, 1000))),
            ["lock a/b 1", "branch a/c/ 1"]
        );
        assert_eq!(
            texts(&table.tree(&query("path:/srv/", None, 100, 1000))),
            ["lock path:/srv/a 1", "branch path:/srv/b/ 1"]
        );
    }

    #[test]
    fn files_are_listed_by_number() {
        let table = holding(HELD);
        let files = table.tree(&query("inode:", None, 100, 1000));
        assert_eq!(texts(&files), ["lock inode:7 2", "lock inode:12 1"]);
    }

    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let table = holding(HELD);
        let whole = texts(&table.tree(&query("", None, 100, 1000)));
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = table.tree(&query("", after.as_deref(), 2, 1000));
            found.extend(texts(&page));
            after = page.branches.last().map(|branch| branch.text.clone());
            if !page.has_more {
                break;
            }
        }
        assert_eq!(found, whole);
    }

    #[test]
    fn counting_stops_where_it_would_take_too_long() {
        let table = holding(HELD);
        let tree = table.tree(&query("", None, 100, 1));
        assert_eq!(texts(&tree)[1], "branch a/ 1+");
    }
}
