//! The entries of a snapshot as bytes. A tag, once given, keeps its meaning for ever.

use leasehold_core::{
    ByteRange, ByteRequestEntry, Entry, Epoch, GrantEntry, LeaseEntry, PieceEntry, Principal,
    RegisterName, Revision, SessionEntry, SetEntry,
};

use super::Fault;
use super::wire::{Decoder, Encoder};

mod tag {
    pub(super) const COUNTERS: u8 = 1;
    pub(super) const LEASE: u8 = 2;
    pub(super) const REGISTER: u8 = 3;
    /// Of a principal that has a name, which comes before the token.
    pub(super) const REGISTER_OF: u8 = 4;
}

/// The optional fields of a lease, grant or piece; one bit each.
mod has {
    pub(super) const SESSION: u8 = 1;
    pub(super) const LAPSED: u8 = 2;
    pub(super) const ENDING: u8 = 4;
    pub(super) const REQUEST: u8 = 1;
    pub(super) const METADATA: u8 = 2;
    pub(super) const ALL: u8 = 3;
    pub(super) const ALL_OF_LEASE: u8 = 7;
}

/// Grants and pieces tell the kind of scope by where they stand, so the bit for it stays zero.
const NO_KIND: u8 = 0;

impl Encoder {
    pub(super) fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Counters { epoch, fence, revision } => {
                self.byte(tag::COUNTERS);
                self.varint(epoch.0);
                self.fence(*fence);
                self.varint(revision.0);
            }
            Entry::Lease(lease) => self.lease_entry(lease),
            Entry::Register { namespace, register, principal, fence } => {
                let is_named = !principal.is_anonymous();
                self.byte(if is_named { tag::REGISTER_OF } else { tag::REGISTER });
                self.namespace(namespace);
                self.text(register.text().as_bytes());
                if is_named {
                    self.text(principal.text().as_bytes());
                }
                self.fence(*fence);
            }
        }
    }

    fn lease_entry(&mut self, lease: &LeaseEntry) {
        self.byte(tag::LEASE);
        self.namespace(&lease.namespace);
        self.lease(lease.lease);
        self.owner(&lease.owner);
        self.millis(lease.ttl);
        let ending = if lease.ending.is_some() { has::ENDING } else { 0 };
        let (session, lapsed) = (lease.session.is_some(), lease.lapsed.is_some());
        self.byte(flags(session, has::SESSION, lapsed, has::LAPSED) | ending);
        if let Some(session) = &lease.session {
            self.moment(session.opened_at);
            self.terms(&session.terms);
        }
        for ending in lease.lapsed.iter().chain(&lease.ending) {
            self.ending(ending);
        }
        self.count(lease.grants.len());
        for grant in &lease.grants {
            self.grant_entry(grant);
        }
        self.count(lease.pieces.len());
        for piece in &lease.pieces {
            self.piece_entry(piece);
        }
        self.count(lease.sets.len());
        for set in &lease.sets {
            self.set_entry(set);
        }
        self.count(lease.requests.len());
        for request in &lease.requests {
            self.byte_request_entry(request);
        }
    }

    fn grant_entry(&mut self, grant: &GrantEntry) {
        self.byte(flags(
            grant.request.is_some(),
            has::REQUEST,
            grant.metadata.is_some(),
            has::METADATA,
        ));
        self.mode(NO_KIND, grant.mode);
        self.key(&grant.key);
        self.owner(&grant.owner);
        self.fence(grant.fence);
        self.moment(grant.granted_at);
        self.millis(grant.reclaim_window);
        if let Some(request) = &grant.request {
            self.request(request);
        }
        if let Some(metadata) = &grant.metadata {
            self.text(metadata.as_bytes());
        }
    }

    fn piece_entry(&mut self, piece: &PieceEntry) {
        self.byte(if piece.metadata.is_some() { has::METADATA } else { 0 });
        self.mode(NO_KIND, piece.mode);
        self.varint(piece.inode);
        self.range(piece.range);
        self.owner(&piece.owner);
        self.count(piece.tokens.len());
        for token in &piece.tokens {
            self.fence(*token);
        }
        self.moment(piece.granted_at);
        self.millis(piece.reclaim_window);
        if let Some(metadata) = &piece.metadata {
            self.text(metadata.as_bytes());
        }
    }

    fn set_entry(&mut self, set: &SetEntry) {
        self.fence(set.fence);
        self.owner(&set.owner);
        self.byte_ranges(&set.ranges);
    }

    fn byte_request_entry(&mut self, known: &ByteRequestEntry) {
        self.fence(known.fence);
        self.owner(&known.owner);
        self.request(&known.request);
        self.moment(known.granted_at);
        self.byte_ranges(&known.ranges);
    }

    fn byte_ranges(&mut self, ranges: &[(u64, ByteRange)]) {
        self.count(ranges.len());
        for (inode, range) in ranges {
            self.varint(*inode);
            self.range(*range);
        }
    }
}

fn flags(one: bool, one_bit: u8, other: bool, other_bit: u8) -> u8 {
    (if one { one_bit } else { 0 }) | (if other { other_bit } else { 0 })
}

impl Decoder<'_> {
    pub(super) fn entry(&mut self) -> Result<Entry, Fault> {
        let start = self.at();
        Ok(match self.byte("entry")? {
            tag::COUNTERS => Entry::Counters {
                epoch: Epoch(self.varint("epoch")?),
                fence: self.fence()?,
                revision: Revision(self.varint("revision")?),
            },
            tag::LEASE => Entry::Lease(Box::new(self.lease_entry()?)),
            tag::REGISTER => Entry::Register {
                namespace: self.namespace()?,
                register: self.name("register", RegisterName::stored)?,
                principal: Principal::ANONYMOUS,
                fence: self.fence()?,
            },
            tag::REGISTER_OF => Entry::Register {
                namespace: self.namespace()?,
                register: self.name("register", RegisterName::stored)?,
                principal: self.principal()?,
                fence: self.fence()?,
            },
            _ => return Err(self.fault("entry", start)),
        })
    }

    // The fields of the literals below are evaluated in the order in which they were written.
    fn lease_entry(&mut self) -> Result<LeaseEntry, Fault> {
        let namespace = self.namespace()?;
        let lease = self.lease()?;
        let owner = self.owner()?;
        let ttl = self.millis()?;
        let flags = self.flags("lease", has::ALL_OF_LEASE)?;
        Ok(LeaseEntry {
            namespace,
            lease,
            owner,
            ttl,
            session: (flags & has::SESSION != 0).then(|| self.session_entry()).transpose()?,
            lapsed: (flags & has::LAPSED != 0).then(|| self.ending()).transpose()?,
            ending: (flags & has::ENDING != 0).then(|| self.ending()).transpose()?,
            grants: self.list("grant", Self::grant_entry)?,
            pieces: self.list("piece", Self::piece_entry)?,
            sets: self.list("set", Self::set_entry)?,
            requests: self.list("request", Self::byte_request_entry)?,
        })
    }

    fn session_entry(&mut self) -> Result<SessionEntry, Fault> {
        Ok(SessionEntry { opened_at: self.moment()?, terms: self.terms()? })
    }

    fn grant_entry(&mut self) -> Result<GrantEntry, Fault> {
        let flags = self.flags("grant", has::ALL)?;
        let (_, mode) = self.mode()?;
        Ok(GrantEntry {
            key: self.key()?,
            owner: self.owner()?,
            mode,
            fence: self.fence()?,
            granted_at: self.moment()?,
            reclaim_window: self.millis()?,
            request: (flags & has::REQUEST != 0).then(|| self.request()).transpose()?,
            metadata: (flags & has::METADATA != 0)
                .then(|| self.shared_text("metadata"))
                .transpose()?,
        })
    }

    fn piece_entry(&mut self) -> Result<PieceEntry, Fault> {
        let flags = self.flags("piece", has::ALL)?;
        let (_, mode) = self.mode()?;
        Ok(PieceEntry {
            inode: self.varint("inode")?,
            range: self.range()?,
            owner: self.owner()?,
            mode,
            tokens: self.list("fencing token", Self::fence)?,
            granted_at: self.moment()?,
            reclaim_window: self.millis()?,
            metadata: (flags & has::METADATA != 0)
                .then(|| self.shared_text("metadata"))
                .transpose()?,
        })
    }

    fn set_entry(&mut self) -> Result<SetEntry, Fault> {
        Ok(SetEntry { fence: self.fence()?, owner: self.owner()?, ranges: self.byte_ranges()? })
    }

    fn byte_request_entry(&mut self) -> Result<ByteRequestEntry, Fault> {
        Ok(ByteRequestEntry {
            fence: self.fence()?,
            owner: self.owner()?,
            request: self.request()?,
            granted_at: self.moment()?,
            ranges: self.byte_ranges()?,
        })
    }

    fn byte_ranges(&mut self) -> Result<Vec<(u64, ByteRange)>, Fault> {
        self.list("byte range", |decoder| Ok((decoder.varint("inode")?, decoder.range()?)))
    }

    fn flags(&mut self, what: &'static str, known: u8) -> Result<u8, Fault> {
        let start = self.at();
        let flags = self.byte(what)?;
        if flags & !known == 0 { Ok(flags) } else { Err(self.fault(what, start)) }
    }
}
