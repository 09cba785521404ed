//! Transitions as bytes. A tag, once given, keeps its meaning for ever.

use std::num::NonZeroU32;

use leasehold_core::{
    Adapter, Claim, Ending, Epoch, Granted, LeaseId, Millis, Mode, Namespace, OnDisconnect,
    Principal, RegisterName, Request, RequestId, Scope, SessionOpened, SessionTerms, Transition,
};

use super::Fault;
use super::wire::{Decoder, Encoder};

mod tag {
    pub(super) const EPOCH_BEGAN: u8 = 1;
    pub(super) const JUMPED: u8 = 2;
    pub(super) const SESSION_OPENED: u8 = 3;
    pub(super) const GRANTED: u8 = 4;
    pub(super) const TTL_CHANGED: u8 = 5;
    pub(super) const LEASE_LAPSED: u8 = 6;
    pub(super) const LEASE_ENDED: u8 = 7;
    pub(super) const GRANT_ENDED: u8 = 8;
    pub(super) const RANGE_ENDED: u8 = 9;
    pub(super) const FENCE_ACCEPTED: u8 = 10;
    pub(super) const KEY_ENDED: u8 = 11;
    pub(super) const FENCE_DELETED: u8 = 12;
    pub(super) const LEASE_ENDING: u8 = 13;
    /// By a principal that has a name, which comes before the token.
    pub(super) const FENCE_ACCEPTED_BY: u8 = 14;
    /// Beside one of those about a lease: it is that of the transition before, and left out.
    pub(super) const SAME_LEASE: u8 = 0x80;
}

mod ending {
    pub(super) const RELEASED: u8 = 0;
    pub(super) const CLOSED: u8 = 1;
    pub(super) const EXPIRED: u8 = 2;
    pub(super) const GRACE_EXPIRED: u8 = 3;
    pub(super) const DISCONNECTED: u8 = 4;
    pub(super) const REVOKED: u8 = 5;
    pub(super) const FILE_REMOVED: u8 = 6;
    pub(super) const REPLACED: u8 = 7;
    pub(super) const WITHDRAWN: u8 = 8;
    pub(super) const WINDOW_OVER: u8 = 9;
    pub(super) const RECLAIMED: u8 = 10;
}

/// The optional fields of a grant; one bit each.
mod granted {
    pub(super) const OPENS: u8 = 1;
    pub(super) const WINDOW: u8 = 2;
    pub(super) const REQUEST: u8 = 4;
    pub(super) const METADATA: u8 = 8;
    /// A number of claims other than one.
    pub(super) const SET: u8 = 16;
    pub(super) const ALL: u8 = 31;
}

/// The optional fields of a session.
mod terms {
    pub(super) const METADATA: u8 = 1;
    pub(super) const REQUEST: u8 = 2;
    pub(super) const ALL: u8 = 3;
}

/// A claim's first byte: what kind of scope, plus how it is wanted.
mod claim {
    pub(super) const KEY: u8 = 0;
    pub(super) const RANGE: u8 = 1;
    pub(super) const EXCLUSIVE: u8 = 0;
    pub(super) const SHARED: u8 = 2;
    pub(super) const PERMITS: u8 = 4;
}

impl Encoder {
    pub(super) fn transition(&mut self, transition: &Transition) {
        match transition {
            Transition::EpochBegan { epoch } => {
                self.byte(tag::EPOCH_BEGAN);
                self.varint(epoch.0);
            }
            Transition::Jumped { epoch, fence } => {
                self.byte(tag::JUMPED);
                self.varint(epoch.0);
                self.fence(*fence);
            }
            Transition::SessionOpened(opened) => self.session_opened(opened),
            Transition::Granted(granted) => self.granted(granted),
            Transition::TtlChanged { namespace, lease, ttl } => {
                self.of_lease(tag::TTL_CHANGED, namespace, *lease);
                self.millis(*ttl);
            }
            Transition::LeaseLapsed { namespace, lease, ending } => {
                self.of_lease(tag::LEASE_LAPSED, namespace, *lease);
                self.ending(ending);
            }
            Transition::LeaseEnding { namespace, lease, ending } => {
                self.of_lease(tag::LEASE_ENDING, namespace, *lease);
                self.ending(ending);
            }
            Transition::LeaseEnded { namespace, lease, ending } => {
                self.of_lease(tag::LEASE_ENDED, namespace, *lease);
                self.ending(ending);
            }
            Transition::GrantEnded { namespace, lease, fence, ending } => {
                self.of_lease(tag::GRANT_ENDED, namespace, *lease);
                self.fence(*fence);
                self.ending(ending);
            }
            Transition::KeyEnded { namespace, lease, fence, key, ending } => {
                self.of_lease(tag::KEY_ENDED, namespace, *lease);
                self.fence(*fence);
                self.key(key);
                self.ending(ending);
            }
            Transition::RangeEnded { namespace, lease, owner, inode, range, ending } => {
                self.of_lease(tag::RANGE_ENDED, namespace, *lease);
                self.owner(owner);
                self.varint(*inode);
                self.range(*range);
                self.ending(ending);
            }
            Transition::FenceAccepted { namespace, register, principal, fence } => {
                let is_named = !principal.is_anonymous();
                self.byte(if is_named { tag::FENCE_ACCEPTED_BY } else { tag::FENCE_ACCEPTED });
                self.namespace(namespace);
                self.text(register.text().as_bytes());
                if is_named {
                    self.text(principal.text().as_bytes());
                }
                self.fence(*fence);
            }
            Transition::FenceDeleted { namespace, register, reason } => {
                self.byte(tag::FENCE_DELETED);
                self.namespace(namespace);
                self.text(register.text().as_bytes());
                self.text(reason.as_bytes());
            }
        }
    }

    fn of_lease(&mut self, tag: u8, namespace: &Namespace, lease: LeaseId) {
        let is_same = self.is_last_lease(lease);
        self.byte(if is_same { tag | tag::SAME_LEASE } else { tag });
        self.namespace(namespace);
        if !is_same {
            self.lease(lease);
        }
    }

    fn session_opened(&mut self, opened: &SessionOpened) {
        self.of_lease(tag::SESSION_OPENED, &opened.namespace, opened.lease);
        self.owner(&opened.owner);
        self.millis(opened.ttl);
        self.moment(opened.opened_at);
        self.terms(&opened.terms);
    }

    fn granted(&mut self, grant: &Granted) {
        self.of_lease(tag::GRANTED, &grant.namespace, grant.lease);
        self.byte(flags(grant));
        self.owner(&grant.owner);
        if let Some(ttl) = grant.opens {
            self.millis(ttl);
        }
        if grant.claims.len() != 1 {
            self.count(grant.claims.len());
        }
        for claim in &grant.claims {
            self.claim(claim);
        }
        self.fence(grant.fence);
        self.moment(grant.granted_at);
        if grant.reclaim_window.get() != 0 {
            self.millis(grant.reclaim_window);
        }
        if let Some(request) = &grant.request {
            self.request(request);
        }
        if let Some(metadata) = &grant.metadata {
            self.text(metadata.as_bytes());
        }
    }

    fn claim(&mut self, claim: &Claim) {
        let kind = match &claim.scope {
            Scope::Key(_) => claim::KEY,
            Scope::Range { .. } => claim::RANGE,
        };
        self.mode(kind, claim.mode);
        match &claim.scope {
            Scope::Key(key) => self.key(key),
            Scope::Range { inode, range } => {
                self.varint(*inode);
                self.range(*range);
            }
        }
    }

    /// The mode, in the byte that also tells the kind of scope.
    pub(super) fn mode(&mut self, kind: u8, mode: Mode) {
        match mode {
            Mode::Exclusive => self.byte(kind | claim::EXCLUSIVE),
            Mode::Shared => self.byte(kind | claim::SHARED),
            Mode::Permits(limit) => {
                self.byte(kind | claim::PERMITS);
                self.varint(u64::from(limit.get()));
            }
        }
    }

    pub(super) fn terms(&mut self, terms: &SessionTerms) {
        self.varint(terms.number);
        self.text(terms.adapter.text().as_bytes());
        match terms.on_disconnect {
            OnDisconnect::Release => self.byte(0),
            OnDisconnect::Keep(length) => {
                self.byte(1);
                self.duration(length);
            }
        }
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        self.byte(
            bit(terms.metadata.is_some(), terms::METADATA)
                | bit(terms.request.is_some(), terms::REQUEST),
        );
        if let Some(metadata) = &terms.metadata {
            self.text(metadata.as_bytes());
        }
        if let Some(request) = &terms.request {
            self.request(request);
        }
    }

    pub(super) fn request(&mut self, request: &Request) {
        self.text(request.id.text().as_bytes());
        self.raw(&request.digest.to_le_bytes());
    }

    pub(super) fn ending(&mut self, ending: &Ending) {
        self.byte(match ending {
            Ending::Released => ending::RELEASED,
            Ending::Closed => ending::CLOSED,
            Ending::Expired => ending::EXPIRED,
            Ending::GraceExpired => ending::GRACE_EXPIRED,
            Ending::Disconnected => ending::DISCONNECTED,
            Ending::Revoked(_) => ending::REVOKED,
            Ending::FileRemoved => ending::FILE_REMOVED,
            Ending::Replaced => ending::REPLACED,
            Ending::Withdrawn => ending::WITHDRAWN,
            Ending::WindowOver => ending::WINDOW_OVER,
            Ending::Reclaimed => ending::RECLAIMED,
        });
        if let Ending::Revoked(reason) = ending {
            self.text(reason.as_bytes());
        }
    }
}

fn flags(grant: &Granted) -> u8 {
    let bit = |there: bool, bit: u8| if there { bit } else { 0 };
    bit(grant.opens.is_some(), granted::OPENS)
        | bit(grant.reclaim_window.get() != 0, granted::WINDOW)
        | bit(grant.request.is_some(), granted::REQUEST)
        | bit(grant.metadata.is_some(), granted::METADATA)
        | bit(grant.claims.len() != 1, granted::SET)
}

impl Decoder<'_> {
    pub(super) fn transition(&mut self) -> Result<Transition, Fault> {
        let start = self.at();
        let tag = self.byte("transition")?;
        Ok(match tag & !tag::SAME_LEASE {
            tag::SESSION_OPENED => Transition::SessionOpened(self.session_opened(tag)?),
            tag::GRANTED => Transition::Granted(self.granted(tag)?),
            tag::TTL_CHANGED => {
                let (namespace, lease) = self.of_lease(tag)?;
                Transition::TtlChanged { namespace, lease, ttl: self.millis()? }
            }
            tag::LEASE_LAPSED => {
                let (namespace, lease) = self.of_lease(tag)?;
                Transition::LeaseLapsed { namespace, lease, ending: self.ending()? }
            }
            tag::LEASE_ENDING => {
                let (namespace, lease) = self.of_lease(tag)?;
                Transition::LeaseEnding { namespace, lease, ending: self.ending()? }
            }
            tag::LEASE_ENDED => {
                let (namespace, lease) = self.of_lease(tag)?;
                Transition::LeaseEnded { namespace, lease, ending: self.ending()? }
            }
            tag::GRANT_ENDED => {
                let (namespace, lease) = self.of_lease(tag)?;
                let (fence, ending) = (self.fence()?, self.ending()?);
                Transition::GrantEnded { namespace, lease, fence, ending }
            }
            tag::RANGE_ENDED => {
                let (namespace, lease) = self.of_lease(tag)?;
                Transition::RangeEnded {
                    namespace,
                    lease,
                    owner: self.owner()?,
                    inode: self.varint("inode")?,
                    range: self.range()?,
                    ending: self.ending()?,
                }
            }
            tag::KEY_ENDED => {
                let (namespace, lease) = self.of_lease(tag)?;
                let (fence, key, ending) = (self.fence()?, self.key()?, self.ending()?);
                Transition::KeyEnded { namespace, lease, fence, key, ending }
            }
            _ => match tag {
                tag::EPOCH_BEGAN => Transition::EpochBegan { epoch: Epoch(self.varint("epoch")?) },
                tag::JUMPED => {
                    Transition::Jumped { epoch: Epoch(self.varint("epoch")?), fence: self.fence()? }
                }
                tag::FENCE_ACCEPTED => Transition::FenceAccepted {
                    namespace: self.namespace()?,
                    register: self.name("register", RegisterName::stored)?,
                    principal: Principal::ANONYMOUS,
                    fence: self.fence()?,
                },
                tag::FENCE_ACCEPTED_BY => Transition::FenceAccepted {
                    namespace: self.namespace()?,
                    register: self.name("register", RegisterName::stored)?,
                    principal: self.principal()?,
                    fence: self.fence()?,
                },
                tag::FENCE_DELETED => Transition::FenceDeleted {
                    namespace: self.namespace()?,
                    register: self.name("register", RegisterName::stored)?,
                    reason: self.shared_text("reason")?,
                },
                _ => return Err(self.fault("transition", start)),
            },
        })
    }

    /// Reads the beginning of a transition about a lease: its namespace and its id.
    fn of_lease(&mut self, tag: u8) -> Result<(Namespace, LeaseId), Fault> {
        let start = self.at();
        let namespace = self.namespace()?;
        let lease = match tag & tag::SAME_LEASE {
            0 => self.lease()?,
            _ => self.last_lease().ok_or_else(|| self.fault("lease id", start))?,
        };
        Ok((namespace, lease))
    }

    fn session_opened(&mut self, tag: u8) -> Result<SessionOpened, Fault> {
        let (namespace, lease) = self.of_lease(tag)?;
        Ok(SessionOpened {
            namespace,
            lease,
            owner: self.owner()?,
            ttl: self.millis()?,
            opened_at: self.moment()?,
            terms: self.terms()?,
        })
    }

    // The fields of the literals below are evaluated in the order in which they were written.
    fn granted(&mut self, tag: u8) -> Result<Granted, Fault> {
        let (namespace, lease) = self.of_lease(tag)?;
        let start = self.at();
        let flags = self.byte("grant")?;
        if flags & !granted::ALL != 0 {
            return Err(self.fault("grant", start));
        }
        let has = |bit: u8| flags & bit != 0;
        Ok(Granted {
            namespace,
            lease,
            owner: self.owner()?,
            opens: has(granted::OPENS).then(|| self.millis()).transpose()?,
            claims: if has(granted::SET) {
                self.list("claim", Self::claim)?
            } else {
                vec![self.claim()?]
            },
            fence: self.fence()?,
            granted_at: self.moment()?,
            reclaim_window: if has(granted::WINDOW) { self.millis()? } else { Millis::ZERO },
            request: has(granted::REQUEST).then(|| self.request()).transpose()?,
            metadata: has(granted::METADATA).then(|| self.shared_text("metadata")).transpose()?,
        })
    }

    fn claim(&mut self) -> Result<Claim, Fault> {
        let (kind, mode) = self.mode()?;
        let scope = if kind == claim::KEY {
            Scope::Key(self.key()?)
        } else {
            Scope::Range { inode: self.varint("inode")?, range: self.range()? }
        };
        Ok(Claim { scope, mode })
    }

    pub(super) fn mode(&mut self) -> Result<(u8, Mode), Fault> {
        let start = self.at();
        let byte = self.byte("mode")?;
        let kind = byte & claim::RANGE;
        let mode = match byte & !claim::RANGE {
            claim::EXCLUSIVE => Mode::Exclusive,
            claim::SHARED => Mode::Shared,
            claim::PERMITS => {
                let limit = NonZeroU32::new(self.varint_u32("number of permits")?);
                Mode::Permits(limit.ok_or_else(|| self.fault("number of permits", start))?)
            }
            _ => return Err(self.fault("mode", start)),
        };
        Ok((kind, mode))
    }

    pub(super) fn terms(&mut self) -> Result<SessionTerms, Fault> {
        let number = self.varint("session number")?;
        let adapter = self.name("adapter", Adapter::stored)?;
        let on_disconnect = if self.flag("disconnect policy")? {
            OnDisconnect::Keep(self.duration()?)
        } else {
            OnDisconnect::Release
        };
        let start = self.at();
        let flags = self.byte("session")?;
        if flags & !terms::ALL != 0 {
            return Err(self.fault("session", start));
        }
        let has = |bit: u8| flags & bit != 0;
        Ok(SessionTerms {
            number,
            adapter,
            on_disconnect,
            metadata: has(terms::METADATA).then(|| self.shared_text("metadata")).transpose()?,
            request: has(terms::REQUEST).then(|| self.request()).transpose()?,
        })
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, Fault> {
        let start = self.at();
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            2.. => Err(self.fault(what, start)),
        }
    }

    pub(super) fn request(&mut self) -> Result<Request, Fault> {
        Ok(Request {
            id: self.name("request id", RequestId::stored)?,
            digest: u64::from_le_bytes(self.array("digest")?),
        })
    }

    pub(super) fn ending(&mut self) -> Result<Ending, Fault> {
        let start = self.at();
        Ok(match self.byte("ending")? {
            ending::RELEASED => Ending::Released,
            ending::CLOSED => Ending::Closed,
            ending::EXPIRED => Ending::Expired,
            ending::GRACE_EXPIRED => Ending::GraceExpired,
            ending::DISCONNECTED => Ending::Disconnected,
            ending::REVOKED => Ending::Revoked(self.shared_text("reason")?),
            ending::FILE_REMOVED => Ending::FileRemoved,
            ending::REPLACED => Ending::Replaced,
            ending::WITHDRAWN => Ending::Withdrawn,
            ending::WINDOW_OVER => Ending::WindowOver,
            ending::RECLAIMED => Ending::Reclaimed,
            _ => return Err(self.fault("ending", start)),
        })
    }
}
