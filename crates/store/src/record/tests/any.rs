//! Anything there can be, for property tests.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Adapter, ByteRange, ByteRequestEntry, Claim, Ending, Entry, Epoch, FencingToken, GrantEntry,
    Granted, Key, LeaseEntry, LeaseId, Millis, Mode, Namespace, OnDisconnect, Owner, PieceEntry,
    Principal, RegisterName, Request, RequestId, Revision, Scope, SessionEntry, SessionOpened,
    SessionTerms, SetEntry, Timestamp, Transition,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::{Batch, Chunk};
use crate::journal::Seq;

pub(super) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{1,6}",
        2 => "[a-zA-Z0-9 ._:@-]{1,30}",
        1 => "[a-zäöü€🔒]{1,30}",
        // Long enough that its length takes two bytes.
        1 => "[a-z]{120,140}",
    ]
}

/// A few names come again and again, as they do in a journal.
pub(super) fn namespace() -> impl Strategy<Value = Namespace> {
    let few = prop_oneof![Just("default".to_string()), Just("build".to_string())];
    prop_oneof![5 => few, 1 => text()].prop_map(|text| Namespace::new(&text).unwrap())
}

pub(super) fn owner() -> impl Strategy<Value = Owner> {
    let principals = prop_oneof![3 => Just("anonymous"), 1 => Just("k8s/prod/worker")];
    let ids = prop_oneof![Just("worker-1".to_string()), text()];
    (principals, ids)
        .prop_map(|(principal, id)| Owner::of(&Principal::new(principal).unwrap(), &id).unwrap())
}

pub(super) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, any::<u64>(), Just(u64::MAX)]
}

/// One comes again and again, as a session does.
pub(super) fn lease() -> impl Strategy<Value = LeaseId> {
    prop_oneof![Just(7), any::<u128>()].prop_map(LeaseId::from_u128)
}

pub(super) fn millis() -> impl Strategy<Value = Millis> {
    prop_oneof![Just(0), 1..100_000u32, any::<u32>()].prop_map(Millis::new)
}

pub(super) fn moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![1_700_000_000_000..1_700_000_001_000u64, any::<u64>()]
        .prop_map(Timestamp::from_millis)
}

pub(super) fn fence() -> impl Strategy<Value = FencingToken> {
    prop_oneof![1000..1100u64, 0..=FencingToken::MAX.get()]
        .prop_map(|value| FencingToken::new(value).unwrap())
}

pub(super) fn metadata() -> impl Strategy<Value = Option<Arc<str>>> {
    option::weighted(0.3, ".{0,40}".prop_map(Arc::from))
}

pub(super) fn request() -> impl Strategy<Value = Option<Request>> {
    let request = (text(), any::<u64>())
        .prop_map(|(id, digest)| Request { id: RequestId::new(&id).unwrap(), digest });
    option::weighted(0.3, request)
}

pub(super) fn range() -> impl Strategy<Value = ByteRange> {
    (number(), number()).prop_map(|(a, b)| ByteRange::inclusive(a.min(b), a.max(b)).unwrap())
}

pub(super) fn key() -> impl Strategy<Value = Key> {
    let name = "[a-z]{1,8}(/[a-zé0-9]{1,8}){0,3}";
    let path = "path:(/[a-z]{1,8}){1,4}(/\\*\\*)?";
    prop_oneof![3 => name, 1 => path, 1 => Just("path:/".to_string())].prop_map(|text| {
        match Scope::parse(&text).unwrap() {
            Scope::Key(key) => key,
            Scope::Range { .. } => unreachable!("{text} is a name or a path"),
        }
    })
}

pub(super) fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Exclusive),
        Just(Mode::Shared),
        (1..=u32::MAX).prop_map(|limit| Mode::Permits(NonZeroU32::new(limit).unwrap())),
    ]
}

pub(super) fn scope() -> impl Strategy<Value = Scope> {
    let range = (number(), range()).prop_map(|(inode, range)| Scope::Range { inode, range });
    prop_oneof![key().prop_map(Scope::Key), range]
}

pub(super) fn claim() -> impl Strategy<Value = Claim> {
    (scope(), mode()).prop_map(|(scope, mode)| Claim { scope, mode })
}

pub(super) fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::Released),
        Just(Ending::Closed),
        Just(Ending::Expired),
        Just(Ending::GraceExpired),
        Just(Ending::Disconnected),
        ".{0,20}".prop_map(|reason| Ending::Revoked(reason.into())),
        Just(Ending::FileRemoved),
        Just(Ending::Replaced),
        Just(Ending::Withdrawn),
        Just(Ending::WindowOver),
        Just(Ending::Reclaimed),
    ]
}

pub(super) fn terms() -> impl Strategy<Value = SessionTerms> {
    let keep = (any::<u64>(), 0..1_000_000_000u32)
        .prop_map(|(secs, nanos)| OnDisconnect::Keep(Duration::new(secs, nanos)));
    let on_disconnect = prop_oneof![Just(OnDisconnect::Release), keep];
    (number(), "[a-z]{1,8}", on_disconnect, request(), metadata()).prop_map(
        |(number, adapter, on_disconnect, request, metadata)| SessionTerms {
            number,
            adapter: Adapter::new(&adapter).unwrap(),
            on_disconnect,
            request,
            metadata,
        },
    )
}

pub(super) fn session_opened() -> impl Strategy<Value = SessionOpened> {
    let head = (namespace(), lease(), owner());
    (head, millis(), moment(), terms()).prop_map(
        |((namespace, lease, owner), ttl, opened_at, terms)| SessionOpened {
            namespace,
            lease,
            owner,
            ttl,
            opened_at,
            terms,
        },
    )
}

pub(super) fn granted() -> impl Strategy<Value = Granted> {
    let head = (namespace(), lease(), owner());
    let claims = prop_oneof![3 => vec(claim(), 1), 1 => vec(claim(), 0..5)];
    let stamps = (option::of(millis()), fence(), moment(), millis());
    (head, claims, stamps, request(), metadata()).prop_map(
        |(
            (namespace, lease, owner),
            claims,
            (opens, fence, granted_at, reclaim_window),
            request,
            metadata,
        )| Granted {
            namespace,
            lease,
            opens,
            owner,
            claims,
            fence,
            granted_at,
            reclaim_window,
            request,
            metadata,
        },
    )
}

pub(super) fn register() -> impl Strategy<Value = RegisterName> {
    text().prop_map(|text| RegisterName::new(&text).unwrap())
}

pub(super) fn transition() -> impl Strategy<Value = Transition> {
    let of_lease = || (namespace(), lease());
    prop_oneof![
        number().prop_map(|epoch| Transition::EpochBegan { epoch: Epoch(epoch) }),
        (number(), fence())
            .prop_map(|(epoch, fence)| Transition::Jumped { epoch: Epoch(epoch), fence }),
        session_opened().prop_map(Transition::SessionOpened),
        granted().prop_map(Transition::Granted),
        (of_lease(), millis()).prop_map(|((namespace, lease), ttl)| Transition::TtlChanged {
            namespace,
            lease,
            ttl
        }),
        (of_lease(), ending()).prop_map(|((namespace, lease), ending)| {
            Transition::LeaseLapsed { namespace, lease, ending }
        }),
        (of_lease(), ending()).prop_map(|((namespace, lease), ending)| {
            Transition::LeaseEnding { namespace, lease, ending }
        }),
        (of_lease(), ending()).prop_map(|((namespace, lease), ending)| Transition::LeaseEnded {
            namespace,
            lease,
            ending
        }),
        (of_lease(), fence(), ending()).prop_map(|((namespace, lease), fence, ending)| {
            Transition::GrantEnded { namespace, lease, fence, ending }
        }),
        (of_lease(), fence(), key(), ending()).prop_map(
            |((namespace, lease), fence, key, ending)| Transition::KeyEnded {
                namespace,
                lease,
                fence,
                key,
                ending,
            }
        ),
        (of_lease(), owner(), number(), range(), ending()).prop_map(
            |((namespace, lease), owner, inode, range, ending)| Transition::RangeEnded {
                namespace,
                lease,
                owner,
                inode,
                range,
                ending,
            }
        ),
        (namespace(), register(), owner(), fence()).prop_map(
            |(namespace, register, owner, fence)| {
                let principal = owner.principal();
                Transition::FenceAccepted { namespace, register, principal, fence }
            }
        ),
        (namespace(), register(), ".{0,20}").prop_map(|(namespace, register, reason)| {
            Transition::FenceDeleted { namespace, register, reason: reason.into() }
        }),
    ]
}

pub(super) fn grant_entry() -> impl Strategy<Value = GrantEntry> {
    let stamps = (fence(), moment(), millis());
    (key(), owner(), mode(), stamps, request(), metadata()).prop_map(
        |(key, owner, mode, (fence, granted_at, reclaim_window), request, metadata)| GrantEntry {
            key,
            owner,
            mode,
            fence,
            granted_at,
            reclaim_window,
            request,
            metadata,
        },
    )
}

pub(super) fn piece_entry() -> impl Strategy<Value = PieceEntry> {
    let bytes = (number(), range());
    let stamps = (vec(fence(), 1..4), moment(), millis());
    (bytes, owner(), mode(), stamps, metadata()).prop_map(
        |((inode, range), owner, mode, (tokens, granted_at, reclaim_window), metadata)| {
            PieceEntry { inode, range, owner, mode, tokens, granted_at, reclaim_window, metadata }
        },
    )
}

pub(super) fn set_entry() -> impl Strategy<Value = SetEntry> {
    (fence(), owner(), vec((number(), range()), 0..4)).prop_map(|(fence, owner, ranges)| SetEntry {
        fence,
        owner,
        ranges,
    })
}

pub(super) fn byte_request_entry() -> impl Strategy<Value = ByteRequestEntry> {
    let known = request().prop_filter_map("a request has an id", |request| request);
    (fence(), owner(), known, moment(), vec((number(), range()), 1..4)).prop_map(
        |(fence, owner, request, granted_at, ranges)| ByteRequestEntry {
            fence,
            owner,
            request,
            granted_at,
            ranges,
        },
    )
}

pub(super) fn lease_entry() -> impl Strategy<Value = LeaseEntry> {
    let head = (namespace(), lease(), owner(), millis());
    let session =
        (moment(), terms()).prop_map(|(opened_at, terms)| SessionEntry { opened_at, terms });
    let sets = (vec(set_entry(), 0..3), vec(byte_request_entry(), 0..3));
    let under = (vec(grant_entry(), 0..4), vec(piece_entry(), 0..4), sets);
    let over = (option::of(ending()), option::of(ending()));
    (head, option::of(session), over, under).prop_map(
        |(head, session, (lapsed, ending), (grants, pieces, (sets, requests)))| {
            let (namespace, lease, owner, ttl) = head;
            LeaseEntry {
                namespace,
                lease,
                owner,
                ttl,
                session,
                lapsed,
                ending,
                grants,
                pieces,
                sets,
                requests,
            }
        },
    )
}

pub(super) fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        (number(), fence(), number()).prop_map(|(epoch, fence, revision)| Entry::Counters {
            epoch: Epoch(epoch),
            fence,
            revision: Revision(revision),
        }),
        lease_entry().prop_map(|lease| Entry::Lease(Box::new(lease))),
        (namespace(), register(), owner(), fence()).prop_map(
            |(namespace, register, owner, fence)| {
                let principal = owner.principal();
                Entry::Register { namespace, register, principal, fence }
            }
        ),
    ]
}

pub(super) fn batch() -> impl Strategy<Value = Batch> {
    (number(), number(), vec(transition(), 0..8))
        .prop_map(|(epoch, seq, transitions)| Batch::new(Epoch(epoch), Seq(seq), &transitions))
}

pub(super) fn chunk() -> impl Strategy<Value = Chunk> {
    (number(), number(), any::<u32>(), vec(entry(), 0..5)).prop_map(
        |(epoch, as_of, index, entries)| Chunk::new(Epoch(epoch), Seq(as_of), index, &entries),
    )
}
