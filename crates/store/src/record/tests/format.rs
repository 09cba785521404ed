//! The format as it is on the disks of people.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{
    Adapter, ByteRange, ByteRequestEntry, Claim, Ending, Entry, Epoch, FencingToken, GrantEntry,
    Granted, Key, LeaseEntry, LeaseId, Millis, Mode, Namespace, OnDisconnect, Owner, PieceEntry,
    RegisterName, Request, RequestId, Revision, Scope, SessionEntry, SessionOpened, SessionTerms,
    SetEntry, Timestamp, Transition,
};

use super::super::{Batch, Chunk, checksum};
use crate::journal::Seq;

/// Two grants and their ends: what most records are made of.
fn usual() -> Vec<Transition> {
    let grant = |number: u64, scope: &str| {
        Transition::Granted(Granted {
            namespace: Namespace::default(),
            lease: LeaseId::from_u128(u128::from(number)),
            opens: Some(Millis::from_secs(30)),
            owner: Owner::new("worker-1").unwrap(),
            claims: vec![Claim { scope: Scope::parse(scope).unwrap(), mode: Mode::Exclusive }],
            fence: FencingToken::new(1000 + number).unwrap(),
            granted_at: Timestamp::from_millis(1_700_000_000_000 + number),
            reclaim_window: Millis::ZERO,
            request: None,
            metadata: None,
        })
    };
    let ended = |number: u64| Transition::LeaseEnded {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(u128::from(number)),
        ending: Ending::Released,
    };
    vec![grant(1, "job/1"), grant(2, "inode:7@8..16"), ended(1), ended(2)]
}

// If this fails, journals that were written before can no longer be read. From the first release on: raise the version, and
// keep reading the old one.
#[test]
fn format_stays_as_it_is() {
    let batch = Batch::new(Epoch(3), Seq(300), &usual());
    let hex: String = batch.bytes().iter().map(|b| format!("{b:02x}")).collect();
    let expected = [
        "0101fd10578303ac02",
        "04070064656661756c7401000000000000000000000000000000",
        "010800776f726b65722d31b0ea010005006a6f622f31d20f82a0abfef962",
        "0400020000000000000000000000000000000100b0ea01010708070202",
        "07000100000000000000000000000000000000",
        "07000200000000000000000000000000000000",
    ];
    assert_eq!(hex, expected.concat());
}

// The same for everything else there is: the checksum stands for the bytes.
#[test]
fn format_of_every_kind_stays_as_it_is() {
    let batch = Batch::new(Epoch(3), Seq(300), &one_of_each_transition());
    assert_eq!(fingerprint(batch.bytes()), (199, 3_754_149_329));
    let chunk = Chunk::new(Epoch(3), Seq(300), 2, &one_of_each_entry());
    assert_eq!(fingerprint(chunk.bytes()), (160, 1_040_500_014));
}

// Came later than the rest: sessions that were opened without a request id look as they always did.
#[test]
fn format_of_a_session_with_a_request_id_stays_as_it_is() {
    let mut session = one_session();
    session.terms.request = one_request();
    let opened = Transition::SessionOpened(SessionOpened {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(7),
        owner: Owner::new("a").unwrap(),
        ttl: Millis::new(5),
        opened_at: Timestamp::from_millis(6),
        terms: session.terms,
    });
    let batch = Batch::new(Epoch(3), Seq(300), &[opened]);
    assert_eq!(fingerprint(batch.bytes()), (66, 2_865_265_322));
}

// Came later than the rest as well.
#[test]
fn format_of_a_deleted_register_stays_as_it_is() {
    let deleted = Transition::FenceDeleted {
        namespace: Namespace::default(),
        register: RegisterName::new("reg").unwrap(),
        reason: "why".into(),
    };
    let batch = Batch::new(Epoch(3), Seq(300), &[deleted]);
    let hex: String = batch.bytes()[6..].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "03ac020c070064656661756c740372656703776879");
}

fn fingerprint(bytes: &[u8]) -> (usize, u32) {
    (bytes.len(), checksum(bytes))
}

fn one_of_each_transition() -> Vec<Transition> {
    let namespace = Namespace::default();
    let lease = LeaseId::from_u128(7);
    let fence = FencingToken::new(9).unwrap();
    let owner = Owner::new("a").unwrap();
    let endings = [
        Ending::Released,
        Ending::Closed,
        Ending::Expired,
        Ending::GraceExpired,
        Ending::Disconnected,
        Ending::Revoked("r".into()),
        Ending::FileRemoved,
        Ending::Replaced,
        Ending::Withdrawn,
        Ending::WindowOver,
        Ending::Reclaimed,
    ];
    let mut all = vec![
        Transition::EpochBegan { epoch: Epoch(3) },
        Transition::Jumped { epoch: Epoch(4), fence },
        Transition::SessionOpened(SessionOpened {
            namespace: namespace.clone(),
            lease,
            owner: owner.clone(),
            ttl: Millis::new(5),
            opened_at: Timestamp::from_millis(6),
            terms: one_session().terms,
        }),
        Transition::Granted(Granted {
            namespace: namespace.clone(),
            lease,
            opens: None,
            owner: owner.clone(),
            claims: every_claim(),
            fence,
            granted_at: Timestamp::from_millis(8),
            reclaim_window: Millis::new(9),
            request: one_request(),
            metadata: Some("m".into()),
        }),
        Transition::TtlChanged { namespace: namespace.clone(), lease, ttl: Millis::new(5) },
        Transition::LeaseLapsed { namespace: namespace.clone(), lease, ending: Ending::Expired },
        Transition::GrantEnded {
            namespace: namespace.clone(),
            lease,
            fence,
            ending: Ending::Released,
        },
        Transition::KeyEnded {
            namespace: namespace.clone(),
            lease,
            fence,
            key: one_key(),
            ending: Ending::Reclaimed,
        },
        Transition::RangeEnded {
            namespace: namespace.clone(),
            lease,
            owner,
            inode: 1,
            range: ByteRange::ALL,
            ending: Ending::Replaced,
        },
        Transition::FenceAccepted {
            namespace: namespace.clone(),
            register: RegisterName::new("reg").unwrap(),
            principal: leasehold_core::Principal::ANONYMOUS,
            fence,
        },
    ];
    all.extend(endings.map(|ending| Transition::LeaseEnded {
        namespace: namespace.clone(),
        lease,
        ending,
    }));
    all
}

fn every_claim() -> Vec<Claim> {
    let permits = Mode::Permits(NonZeroU32::new(5).unwrap());
    let claim = |scope: &str, mode: Mode| Claim { scope: Scope::parse(scope).unwrap(), mode };
    vec![
        claim("a/b", Mode::Exclusive),
        claim("path:/a/**", Mode::Shared),
        claim("c", permits),
        claim("inode:7", Mode::Shared),
        claim("inode:7@1..2", Mode::Exclusive),
    ]
}

fn one_key() -> Key {
    match Scope::parse("a/b").unwrap() {
        Scope::Key(key) => key,
        Scope::Range { .. } => unreachable!("it is a name"),
    }
}

fn one_request() -> Option<Request> {
    Some(Request { id: RequestId::new("q").unwrap(), digest: 10 })
}

fn one_session() -> SessionEntry {
    SessionEntry {
        opened_at: Timestamp::from_millis(6),
        terms: SessionTerms {
            number: 11,
            adapter: Adapter::new("grpc").unwrap(),
            on_disconnect: OnDisconnect::Keep(Duration::from_millis(1500)),
            request: None,
            metadata: Some("m".into()),
        },
    }
}

fn one_of_each_entry() -> Vec<Entry> {
    let fence = FencingToken::new(9).unwrap();
    let owner = Owner::new("a").unwrap();
    let grant = GrantEntry {
        key: one_key(),
        owner: owner.clone(),
        mode: Mode::Shared,
        fence,
        granted_at: Timestamp::from_millis(8),
        reclaim_window: Millis::new(9),
        request: one_request(),
        metadata: Some("m".into()),
    };
    let piece = PieceEntry {
        inode: 1,
        range: ByteRange::ALL,
        owner: owner.clone(),
        mode: Mode::Exclusive,
        tokens: vec![fence, FencingToken::new(12).unwrap()],
        granted_at: Timestamp::from_millis(8),
        reclaim_window: Millis::new(9),
        metadata: Some("m".into()),
    };
    let request = ByteRequestEntry {
        fence,
        owner: owner.clone(),
        request: one_request().unwrap(),
        granted_at: Timestamp::from_millis(8),
        ranges: vec![(1, ByteRange::ALL)],
    };
    let set = SetEntry { fence, owner: owner.clone(), ranges: vec![(1, ByteRange::ALL)] };
    let lease = LeaseEntry {
        namespace: Namespace::default(),
        lease: LeaseId::from_u128(7),
        owner,
        ttl: Millis::new(5),
        session: Some(one_session()),
        lapsed: Some(Ending::Expired),
        ending: None,
        grants: vec![grant],
        pieces: vec![piece],
        sets: vec![set],
        requests: vec![request],
    };
    vec![
        Entry::Counters { epoch: Epoch(3), fence, revision: Revision(13) },
        Entry::Lease(Box::new(lease)),
        Entry::Register {
            namespace: Namespace::default(),
            register: RegisterName::new("reg").unwrap(),
            principal: leasehold_core::Principal::ANONYMOUS,
            fence,
        },
    ]
}

#[test]
fn plain_grant_takes_about_thirty_bytes_and_its_names() {
    let usual = usual();
    let len = |transitions: &[Transition]| Batch::new(Epoch(3), Seq(1), transitions).bytes().len();
    let second = len(&usual[..2]) - len(&usual[..1]);
    assert!(second < 30, "{second}");
}

#[test]
fn grant_under_the_same_session_takes_about_ten() {
    let granted = |number: u64| {
        let mut usual = usual();
        let Transition::Granted(grant) = &mut usual[0] else { panic!("a grant is first") };
        let scope = Scope::parse(&format!("job/{number}")).unwrap();
        grant.claims = vec![Claim { scope, mode: Mode::Exclusive }];
        grant.opens = None;
        usual.remove(0)
    };
    let len = |transitions: &[Transition]| Batch::new(Epoch(3), Seq(1), transitions).bytes().len();
    let second = len(&[granted(17), granted(18)]) - len(&[granted(17)]);
    assert_eq!(second, 10);
}
