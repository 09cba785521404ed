//! Listing what is held, page by page, in the order of the canonical texts.
//!
//! Names before `inode:` come first, then the files by number, then the names and paths after that. Each page looks at
//! a bounded number of locks, so that a filter that hardly matches does not stop the service.

use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::conflict::Blocker;
use crate::fencing_token::FencingToken;
use crate::id::Owner;
use crate::inode::Piece;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::read::state_of;
use crate::refusal::{Conflict, Holder};
use crate::scope::{Key, Scope};
use crate::table::LockTable;
use crate::view::{ListCursor, ListQuery, LockSummary, Page};

/// The texts of files lie between these two; no name can.
const FILES: (&[u8], &[u8]) = (b"inode:", b"inode;");

impl LockTable {
    pub fn list(&self, query: &ListQuery) -> Page {
        let mut page = Page { locks: Vec::new(), next: None, revision: self.revision };
        let Some(space) = self.namespace_idx(&query.namespace) else {
            return page;
        };
        for (looked_at, item) in self.space(space).items_after(query).enumerate() {
            if page.locks.len() >= query.len_max || looked_at >= query.looked_at_max {
                // What was looked at last ended the page; it is where the next one goes on.
                return page;
            }
            page.next = Some(item.cursor());
            if let Some(lock) = self.summary(space, &item, query) {
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
    ) -> Option<LockSummary> {
        let at = self.space(space);
        let holders: Vec<Holder> = match item {
            Item::Key(key) => {
                let holders = at.held.get(*key)?.iter();
                let grants = holders.filter_map(|(fence, lease)| {
                    let owner = at.lease(lease).held.get(fence, key)?.owner;
                    let key = Key::clone(key);
                    self.holder(space, &Blocker::Grant { key, fence, lease, owner })
                });
                grants.filter(|holder| query.wants(holder)).collect()
            }
            Item::Piece(inode, owner, piece) => {
                let (inode, range, lease) = (*inode, piece.range, piece.lease);
                let piece = Blocker::Piece { inode, range, lease, owner: *owner };
                self.holder(space, &piece).into_iter().filter(|h| query.wants(h)).collect()
            }
        };
        let state = state_of(&holders);
        if holders.is_empty() || query.state.is_some_and(|wanted| wanted != state) {
            return None;
        }
        let (scope, holders_len) = (item.scope(), holders.len());
        let waiters_len = self.waiters_for(space, &scope);
        let holders = holders.into_iter().take(Conflict::HOLDERS_MAX).collect();
        Some(LockSummary { scope, state, holders, holders_len, waiters_len })
    }
}

impl ListQuery {
    fn wants(&self, holder: &Holder) -> bool {
        self.owner.as_ref().is_none_or(|owner: &Owner| *owner == holder.owner)
            && self.session.is_none_or(|number| holder.session == Some(number))
    }
}

/// Something that is held: a key with all its holders, or one piece of a file.
enum Item<'a> {
    Key(&'a Key),
    Piece(u64, OwnerIdx, &'a Piece),
}

impl Item<'_> {
    fn scope(&self) -> Scope {
        match self {
            Item::Key(key) => Scope::Key(Key::clone(key)),
            Item::Piece(inode, _, piece) => Scope::range(*inode, piece.range),
        }
    }

    fn cursor(&self) -> ListCursor {
        let fence = match self {
            Item::Key(_) => FencingToken::ZERO,
            Item::Piece(_, _, piece) => piece.fence(),
        };
        ListCursor { scope: self.scope(), fence }
    }
}

impl NamespaceState {
    fn items_after<'a>(&'a self, query: &'a ListQuery) -> Box<dyn Iterator<Item = Item<'a>> + 'a> {
        let pieces = self.pieces_after(query);
        if query.inode.is_some() {
            return Box::new(pieces);
        }
        let before_files = self.keys_after(query, b"", FILES.0);
        let after_files = self.keys_after(query, FILES.1, &[0xff]);
        Box::new(before_files.chain(pieces).chain(after_files))
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
            Included(at) | Excluded(at) if at >= end => None,
            Included(_) | Excluded(_) | Unbounded => {
                Some(self.held.range::<[u8], _>((start, Excluded(end))))
            }
        };
        keys.into_iter()
            .flatten()
            .map(|(key, _)| key)
            .take_while(move |key| key.text().as_bytes().starts_with(prefix))
            .map(Item::Key)
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
        let first = query.inode.unwrap_or(0).max(cursor.map_or(0, |(inode, ..)| inode));
        let last = query.inode.unwrap_or(u64::MAX);
        let inodes = (first <= last).then(|| self.inodes.range(first..=last)).into_iter().flatten();
        inodes
            .flat_map(|(&inode, held)| {
                let mut pieces: Vec<(OwnerIdx, &Piece)> =
                    held.pieces.iter().map(|(&(party, _), piece)| (party.owner, piece)).collect();
                pieces.sort_by_key(|(_, piece)| (piece.range, piece.fence()));
                pieces.into_iter().map(move |(owner, piece)| Item::Piece(inode, owner, piece))
            })
            .filter(move |item| match item {
                Item::Piece(inode, _, piece) => {
                    cursor.is_none_or(|after| (*inode, piece.range, piece.fence()) > after)
                        && item.scope().to_string().starts_with(&query.prefix)
                }
                Item::Key(_) => true,
            })
    }
}
