//! Random moves, told relative to what is there: "renew the third thing held, with the wrong owner".
//!
//! A move means something in any state, so any of them can be left out when a failure is made small. Zero is the
//! plainest choice of everything.

use proptest::collection::vec;
use proptest::prelude::*;

/// One step of a case: some time passes, then something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Millis(u8),
    /// To the next deadline: the last moment before anything is due, or so much later.
    ToDeadline(u8),
    /// The clock of the caller went back.
    Back(u8),
    /// At this very moment: how a case is told again.
    At(u64),
}

/// One of those there are, counted round.
pub(crate) type Pick = u8;

#[derive(Clone, Debug)]
pub(crate) enum Move {
    Acquire(Ask),
    /// Sends an earlier request again, as it was or changed.
    Retry {
        pick: Pick,
        wait: u8,
        change: bool,
    },
    /// Comes back for a kept place.
    Return {
        pick: Pick,
        wait: u8,
        fault: u8,
    },
    /// Asks for something held, with the reclaim flag.
    Reclaim {
        pick: Pick,
        extra: Option<Pick>,
        fault: u8,
    },
    /// Asks for something in its owner's reclaim window.
    TakeBack {
        pick: Pick,
        wait: u8,
        reclaim: bool,
    },
    Renew {
        pick: Pick,
        fault: u8,
        ttl: Option<u8>,
    },
    Release {
        pick: Pick,
        fault: u8,
        range: Span,
    },
    /// Takes, renews or gives back by the owner's name alone.
    ByOwner {
        pick: Option<Pick>,
        owner: u8,
        key: u8,
        ttl: u8,
        window: u8,
        release: bool,
    },
    Unlock {
        pick: Pick,
        inode: u8,
        range: Span,
        fault: u8,
    },
    Cancel {
        pick: Pick,
        keep_place: bool,
    },
    OpenSession {
        owner: u8,
        namespace: u8,
        ttl: u8,
        adapter: u8,
        keep: u8,
        request: Option<u8>,
        fault: u8,
    },
    KeepAlive {
        pick: Pick,
        ttl: Option<u8>,
        fault: u8,
    },
    CloseSession {
        pick: Pick,
        fault: u8,
    },
    Attach {
        pick: Pick,
        fault: u8,
    },
    Disconnect {
        pick: Pick,
        fault: u8,
    },
    AcceptFence {
        namespace: u8,
        register: u8,
        /// Above the last one issued, by one less than this; or below it, by as much.
        fence: u8,
        above: bool,
    },
    DeleteFence {
        namespace: u8,
        register: u8,
    },
    Break {
        namespace: u8,
        scope: ScopePick,
        pick: Option<Pick>,
    },
    BreakSession {
        pick: Pick,
        fault: u8,
    },
    RemoveFile {
        namespace: u8,
        inode: u8,
    },
    Withdraw {
        pick: Pick,
        fault: u8,
    },
    BeginEpoch {
        stale: bool,
        policy: u8,
        length: u8,
    },
    Jump {
        stale: bool,
        /// How far ahead; to the end of the tokens if it is the highest number.
        by: u8,
    },
    Suspend,
    Resume,
    Tick,
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) owner: u8,
    pub(crate) namespace: u8,
    pub(crate) claims: Vec<(ScopePick, u8)>,
    /// A session, or a lease of its own with this ttl.
    pub(crate) session: Option<Pick>,
    pub(crate) ttl: u8,
    pub(crate) wait: u8,
    pub(crate) keep_place: bool,
    pub(crate) request: Option<u8>,
    pub(crate) window: u8,
    pub(crate) metadata: u8,
    pub(crate) fault: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopePick {
    pub(crate) key: u8,
    pub(crate) inode: u8,
    pub(crate) range: Span,
    pub(crate) kind: u8,
}

/// First byte and length; a length of 0 has no end.
pub(crate) type Span = (u8, u8);

pub(crate) fn steps() -> BoxedStrategy<(After, Move)> {
    (after(), moves()).boxed()
}

fn after() -> impl Strategy<Value = After> {
    prop_oneof![
        70 => Just(After::Millis(0)),
        30 => (1..4u8).prop_map(After::Millis),
        3 => (4..90u8).prop_map(After::Millis),
        8 => (0..3u8).prop_map(After::ToDeadline),
        1 => (1..9u8).prop_map(After::Back),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    let often = prop_oneof![
        60 => ask().prop_map(Move::Acquire),
        5 => (any::<Pick>(), 0..4u8, rarely()).prop_map(|(pick, wait, change)| Move::Retry { pick, wait, change }),
        6 => (any::<Pick>(), 0..4u8, fault()).prop_map(|(pick, wait, fault)| Move::Return { pick, wait, fault }),
        5 => (any::<Pick>(), prop::option::weighted(0.2, any::<Pick>()), fault())
            .prop_map(|(pick, extra, fault)| Move::Reclaim { pick, extra, fault }),
        3 => (any::<Pick>(), 0..4u8, rarely())
            .prop_map(|(pick, wait, reclaim)| Move::TakeBack { pick, wait, reclaim }),
        10 => (any::<Pick>(), fault(), prop::option::weighted(0.2, ttl()))
            .prop_map(|(pick, fault, ttl)| Move::Renew { pick, fault, ttl }),
        22 => (any::<Pick>(), fault(), span())
            .prop_map(|(pick, fault, range)| Move::Release { pick, fault, range }),
        6 => (any::<Pick>(), 0..2u8, span(), fault())
            .prop_map(|(pick, inode, range, fault)| Move::Unlock { pick, inode, range, fault }),
        5 => (any::<Pick>(), any::<bool>()).prop_map(|(pick, keep_place)| Move::Cancel { pick, keep_place }),
        6 => (prop::option::weighted(0.6, any::<Pick>()), 0..4u8, 0..7u8, ttl(), window(), any::<bool>()).prop_map(
            |(pick, owner, key, ttl, window, release)| Move::ByOwner {
                pick, owner, key, ttl, window, release
            }
        ),
    ];
    let sessions = prop_oneof![
        12 => (0..4u8, namespace(), ttl(), 0..2u8, 0..4u8, request(), fault()).prop_map(
            |(owner, namespace, ttl, adapter, keep, request, fault)| Move::OpenSession {
                owner, namespace, ttl, adapter, keep, request, fault
            }
        ),
        6 => (any::<Pick>(), prop::option::weighted(0.3, ttl()), fault())
            .prop_map(|(pick, ttl, fault)| Move::KeepAlive { pick, ttl, fault }),
        3 => (any::<Pick>(), fault()).prop_map(|(pick, fault)| Move::CloseSession { pick, fault }),
        3 => (any::<Pick>(), fault()).prop_map(|(pick, fault)| Move::Attach { pick, fault }),
        4 => (any::<Pick>(), fault()).prop_map(|(pick, fault)| Move::Disconnect { pick, fault }),
    ];
    let seldom = prop_oneof![
        6 => (0..3u8, 0..4u8, 0..12u8, rarely()).prop_map(
            |(namespace, register, fence, above)| Move::AcceptFence {
                namespace, register, fence, above
            }
        ),
        2 => (0..3u8, 0..4u8)
            .prop_map(|(namespace, register)| Move::DeleteFence { namespace, register }),
        2 => (namespace(), scope(), prop::option::of(any::<Pick>()))
            .prop_map(|(namespace, scope, pick)| Move::Break { namespace, scope, pick }),
        1 => (any::<Pick>(), fault()).prop_map(|(pick, fault)| Move::BreakSession { pick, fault }),
        2 => (namespace(), 0..2u8).prop_map(|(namespace, inode)| Move::RemoveFile { namespace, inode }),
        4 => (any::<Pick>(), fault()).prop_map(|(pick, fault)| Move::Withdraw { pick, fault }),
        4 => (rarely(), prop_oneof![4 => Just(0u8), 2 => Just(1u8), 2 => Just(2u8)], 0..4u8)
            .prop_map(|(stale, policy, length)| Move::BeginEpoch { stale, policy, length }),
        1 => (prop::bool::weighted(0.3), prop_oneof![9 => 0..9u8, 1 => Just(u8::MAX)]).prop_map(|(stale, by)| Move::Jump { stale, by }),
        2 => Just(Move::Suspend),
        5 => Just(Move::Resume),
        6 => Just(Move::Tick),
    ];
    prop_oneof![122 => often, 28 => sessions, 14 => seldom]
}

fn request() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.25, 0..4u8)
}

fn ask() -> impl Strategy<Value = Ask> {
    let wait = prop_oneof![12 => Just(0u8), 15 => 1..4u8, 30 => Just(4u8), 1 => Just(5u8)];
    let who = (0..4u8, namespace(), prop::option::weighted(0.5, any::<Pick>()));
    let what = (claims(), ttl(), wait, any::<bool>());
    let how = (request(), window(), metadata(), fault());
    (who, what, how).prop_map(
        |(
            (owner, namespace, session),
            (claims, ttl, wait, keep_place),
            (request, window, metadata, fault),
        )| {
            let keep_place = keep_place && wait > 0;
            Ask {
                owner,
                namespace,
                claims,
                session,
                ttl,
                wait,
                keep_place,
                request,
                window,
                metadata,
                fault,
            }
        },
    )
}

fn claims() -> impl Strategy<Value = Vec<(ScopePick, u8)>> {
    let claim =
        || (scope(), prop_oneof![40 => Just(0u8), 25 => Just(1u8), 6 => 2..6u8, 1 => Just(6u8)]);
    prop_oneof![
        100 => vec(claim(), 1),
        30 => vec(claim(), 2),
        15 => vec(claim(), 3),
        1 => vec(claim(), 4),
        1 => Just(Vec::new()),
    ]
}

fn scope() -> impl Strategy<Value = ScopePick> {
    let key = prop_oneof![2 => 0..2u8, 5 => 0..7u8];
    (key, 0..2u8, span(), 0..8u8).prop_map(|(key, inode, range, kind)| ScopePick {
        key,
        inode,
        range,
        kind,
    })
}

fn span() -> impl Strategy<Value = Span> {
    (0..12u8, 0..7u8)
}

fn namespace() -> impl Strategy<Value = u8> {
    prop_oneof![60 => Just(0u8), 6 => Just(1u8), 1 => Just(2u8)]
}

fn ttl() -> impl Strategy<Value = u8> {
    prop_oneof![40 => 0..5u8, 1 => Just(5u8)]
}

fn window() -> impl Strategy<Value = u8> {
    prop_oneof![24 => Just(0u8), 12 => 1..3u8, 1 => Just(3u8)]
}

fn metadata() -> impl Strategy<Value = u8> {
    prop_oneof![60 => Just(0u8), 10 => Just(1u8), 1 => Just(2u8)]
}

/// Mostly all is well; otherwise one of a few things that can be wrong.
fn fault() -> impl Strategy<Value = u8> {
    prop_oneof![20 => Just(0u8), 1 => 1..6u8]
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.15)
}
