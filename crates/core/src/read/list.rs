//! Listing what is held, page by page, in the order of the canonical texts.
//!
//! Names before `inode:` come first, then the files by number, then the names and paths after that. Each page looks at
//! a bounded number of locks, so that a filter that hardly matches does not stop the service.

use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::budget::{Budget, LOOK_STEPS};
use crate::conflict::Blocker;
use crate::fencing_token::FencingToken;
use crate::id::Owner;
use crate::inode::Piece;
use crate::namespace::{Holders, NamespaceIdx, NamespaceState};
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::read::Holder;
use crate::read::view::{ListCursor, ListQuery, LockState, LockSummary, Page};
use crate::refusal::Conflict;
use crate::scope::{Key, Scope};
use crate::table::LockTable;

/// The texts of files lie between these two; no name can.
const FILES: (&[u8], &[u8]) = (b"inode:", b"inode;");
/// Behind every text.
const LAST: &[u8] = &[0xff];

impl LockTable {
    pub fn list(&self, query: &ListQuery) -> Page {
        let mut page = Page { locks: Vec::new(), next: None, revision: self.revision };
        let Some(space) = self.namespace_idx(&query.namespace) else {
            return page;
        };
        let mut looks = Budget::new(LOOK_STEPS);
        for (looked_at, item) in self.space(space).items_after(query).enumerate() {
            let is_over = looked_at >= query.looked_at_max || looks.left() == 0;
            if page.locks.len() >= query.len_max || is_over {
                // What was looked at last ended the page; it is where the next one goes on.
                return page;
            }
            page.next = Some(item.cursor());
            if item.begins_with(&query.prefix)
                && let Some(lock) = self.summary(space, &item, query, &mut looks)
            {
                page.locks.push(lock);
            }
        }
        page.next = None;
        page
    }

    fn summary(
        &self,
        space: NamespaceIdx,
        item: &Item<'_>,
        query: &ListQuery,
        looks: &mut Budget,
    ) -> Option<LockSummary> {
        let at = self.space(space);
        let mut found = Summed::default();
        match item {
            Item::Key(key, holders) => {
                for grant in at.grants_on(key, holders) {
                    found.is_cut = looks.take(1).is_err();
                    if found.is_cut {
                        break;
                    }
                    self.sum_up(space, &grant, query, &mut found);
                }
                if query.wants_all() && at.ending.is_empty() {
                    found.len = holders.len();
                }
            }
            Item::Piece(inode, owner, piece) => {
                let (inode, range, lease) = (*inode, piece.range, piece.lease);
                let grant = Blocker::Piece { inode, range, lease, owner: *owner };
                if at.counts(lease) {
                    self.sum_up(space, &grant, query, &mut found);
                }
            }
        }
        let Summed { holders, len: holders_len, state, is_cut } = found;
        let state = state?;
        if query.state.is_some_and(|wanted| wanted != state) {
            return None;
        }
        let scope = item.scope();
        let waiters_len = self.waiters_for(space, &scope, looks);
        let truncated = is_cut || looks.left() == 0;
        Some(LockSummary { scope, state, holders, holders_len, waiters_len, truncated })
    }

    fn sum_up(&self, space: NamespaceIdx, grant: &Blocker, query: &ListQuery, found: &mut Summed) {
        let at = self.space(space);
        let Some(held) = grant.lease().map(|lease| at.lease(lease)) else { return };
        if !query.wants(at.owners.name(grant.owner()), held.session_number()) {
            return;
        }
        found.len += 1;
        let state = LockState::of(self.holder_state(held));
        found.state = Some(found.state.map_or(state, |before| before.min(state)));
        if found.holders.len() < Conflict::HOLDERS_MAX {
            found.holders.extend(self.holder(space, grant));
        }
    }
}

/// The entry of one lock in a list.
#[derive(Default)]
struct Summed {
    holders: Vec<Holder>,
    len: usize,
    state: Option<LockState>,
    is_cut: bool,
}

impl ListQuery {
    fn wants_all(&self) -> bool {
        self.owner.is_none() && self.session.is_none()
    }

    fn wants(&self, owner: &Owner, session: Option<u64>) -> bool {
        self.owner.as_ref().is_none_or(|wanted| wanted == owner)
            && self.session.is_none_or(|number| session == Some(number))
    }
}

/// Something that is held: a key with all its holders, or one piece of a file.
enum Item<'a> {
    Key(&'a Key, &'a Holders),
    Piece(u64, OwnerIdx, &'a Piece),
}

impl Item<'_> {
    fn scope(&self) -> Scope {
        match self {
            Item::Key(key, _) => Scope::Key(Key::clone(key)),
            Item::Piece(inode, _, piece) => Scope::range(*inode, piece.range),
        }
    }

    fn cursor(&self) -> ListCursor {
        let fence = match self {
            Item::Key(..) => FencingToken::ZERO,
            Item::Piece(_, _, piece) => piece.fence(),
        };
        ListCursor { scope: self.scope(), fence }
    }

    fn begins_with(&self, prefix: &str) -> bool {
        match self {
            Item::Key(key, _) => key.as_str().starts_with(prefix),
            Item::Piece(..) => self.scope().to_string().starts_with(prefix),
        }
    }
}

/// The only file whose texts can begin with a prefix, `None` if there may be several; an error if none has such a text.
fn file_of(prefix: &str) -> Result<Option<u64>, ()> {
    let Some(rest) = prefix.strip_prefix("inode:") else {
        return if "inode:".starts_with(prefix) { Ok(None) } else { Err(()) };
    };
    match rest.split_once('@') {
        None => Ok(None),
        Some((inode, _)) => inode.parse().map(Some).map_err(drop),
    }
}

impl NamespaceState {
    fn items_after<'a>(&'a self, query: &'a ListQuery) -> Box<dyn Iterator<Item = Item<'a>> + 'a> {
        let pieces = self.pieces_after(query);
        if query.inode.is_some() {
            return Box::new(pieces);
        }
        let before_files = self.keys_in_parts(query, b"", FILES.0);
        let after_files = self.keys_in_parts(query, FILES.1, LAST);
        Box::new(before_files.chain(pieces).chain(after_files))
    }

    /// The keys from one text up to another, without what is outside the parts that are asked for.
    fn keys_in_parts<'a>(
        &'a self,
        query: &'a ListQuery,
        first: &'a [u8],
        end: &'a [u8],
    ) -> Box<dyn Iterator<Item = Item<'a>> + 'a> {
        let Some(parts) = query.within.as_deref() else {
            return Box::new(self.keys_after(query, first, end));
        };
        Box::new(parts.keys.iter().flat_map(move |(from, to)| {
            let to = to.as_deref().unwrap_or(LAST);
            self.keys_after(query, first.max(from.as_slice()), end.min(to))
        }))
    }

    fn keys_after<'a>(
        &'a self,
        query: &'a ListQuery,
        first: &'a [u8],
        end: &'a [u8],
    ) -> impl Iterator<Item = Item<'a>> + 'a {
        let prefix = query.prefix.as_bytes();
        let start = match &query.after {
            Some(ListCursor { scope: Scope::Key(key), .. }) if key.text().as_bytes() >= first => {
                Excluded(key.text().as_bytes())
            }
            // A cursor inside the files lies behind every key before them.
            Some(ListCursor { scope: Scope::Range { .. }, .. }) if first < FILES.0 => Included(end),
            Some(_) | None => Included(first),
        };
        let start = match start {
            Included(at) | Excluded(at) if at < prefix => Included(prefix),
            Included(_) | Excluded(_) | Unbounded => start,
        };
        let keys = match start {
            Included(at) | Excluded(at) if at >= end || first >= end => None,
            Included(_) | Excluded(_) | Unbounded => {
                Some(self.held.range::<[u8], _>((start, Excluded(end))))
            }
        };
        keys.into_iter()
            .flatten()
            .take_while(move |(key, _)| key.text().as_bytes().starts_with(prefix))
            .map(|(key, holders)| Item::Key(key, holders))
    }

    /// Pieces of files by inode, place and fence.
    fn pieces_after<'a>(&'a self, query: &'a ListQuery) -> impl Iterator<Item = Item<'a>> + 'a {
        let cursor = match &query.after {
            Some(ListCursor { scope: Scope::Range { inode, range }, fence }) => {
                Some((*inode, *range, *fence))
            }
            // Past a key behind the files there are no more of them.
            Some(ListCursor { scope: Scope::Key(key), .. }) if key.text().as_bytes() > FILES.0 => {
                Some((u64::MAX, ByteRange::ALL, FencingToken::MAX))
            }
            Some(_) | None => None,
        };
        let (only, any) = match file_of(&query.prefix) {
            Ok(only) => (query.inode.or(only), true),
            Err(()) => (None, false),
        };
        let first = only.unwrap_or(0).max(cursor.map_or(0, |(inode, ..)| inode));
        let last = only.unwrap_or(u64::MAX);
        let parts: &[(u64, u64)] = match query.within.as_deref() {
            None => &[(0, u64::MAX)],
            Some(parts) => &parts.inodes,
        };
        let parts = parts
            .iter()
            .filter(move |_| any)
            .map(move |&(from, to)| (first.max(from), last.min(to)));
        let parts = parts.filter(|(from, to)| from <= to);
        let inodes = parts.flat_map(|(from, to)| self.inodes.range(from..=to));
        inodes.flat_map(move |(&inode, held)| {
            let after = cursor.filter(|&(at, ..)| at == inode);
            let pieces = held.listed_after(after.map(|(_, range, fence)| (range, fence)));
            pieces.map(move |(party, piece)| Item::Piece(inode, party.owner, piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::Namespace;
    use crate::read::view::Parts;
    use crate::testing::holding;

    fn query(within: Parts) -> ListQuery {
        ListQuery {
            namespace: Namespace::default(),
            prefix: String::new(),
            owner: None,
            session: None,
            inode: None,
            state: None,
            after: None,
            within: Some(Arc::new(within)),
            len_max: 1,
            looked_at_max: 1,
        }
    }

    /// Every lock of every page, with one lock looked at for each page.
    fn listed(table: &LockTable, mut query: ListQuery) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            let page = table.list(&query);
            found.extend(page.locks.iter().map(|lock| lock.scope.to_string()));
            match page.next {
                None => return found,
                next => query.after = next,
            }
        }
    }

    #[test]
    fn nothing_outside_the_parts_is_listed_or_walked_through() {
        let table = holding(&["a/1", "a/2", "b/1", "b/2", "path:/x", "path:/y/z", "z"]);
        let run = |from: &str, to: &str| (from.as_bytes().to_vec(), Some(to.as_bytes().to_vec()));
        let keys = vec![run("a/2", "a/3"), run("b/2", "path:/y"), run("z", "z\0")];
        let parts = Parts { keys, inodes: Vec::new() };
        assert_eq!(listed(&table, query(parts.clone())), ["a/2", "b/2", "path:/x", "z"]);
        let below = ListQuery { prefix: "b/".into(), ..query(parts.clone()) };
        assert_eq!(listed(&table, below), ["b/2"]);
        let first = table.list(&query(parts));
        assert_eq!(first.locks.len(), 1, "one look is enough to find the first that is wanted");
        assert_eq!(listed(&table, query(Parts::default())), Vec::<String>::new());
    }

    #[test]
    fn files_are_listed_by_the_parts_that_their_numbers_are_in() {
        let table = holding(&["inode:1", "inode:5@0..9", "inode:9", "name"]);
        let parts = Parts { keys: Vec::new(), inodes: vec![(0, 1), (5, 8)] };
        assert_eq!(listed(&table, query(parts)), ["inode:1", "inode:5@0..9"]);
    }
}
