//! A change keeps no more to be undone than it touches.

use std::time::Duration;

use super::*;
use crate::command::{Acquire, Claim, Command, Release, Under, Unlock, Wait};
use crate::effect::{Answer, Grant, Outcome};
use crate::id::{CallId, RequestId};
use crate::mode::Mode;

/// Names, and as many pieces of a file.
const LOCKS: u64 = 1_000;

struct Session {
    table: LockTable,
    asked: u64,
}

impl Session {
    fn acquire(&mut self, locks: &[&str], mode: Mode, has_id: bool) -> Grant {
        let id = LeaseId::from_u128(1);
        self.asked += 1;
        let scopes = locks.iter().map(|lock| Scope::parse(lock).unwrap());
        let acquire = Acquire {
            call: CallId(self.asked),
            namespace: Namespace::default(),
            owner: Owner::new("a").unwrap(),
            claims: scopes.map(|scope| Claim { scope, mode }).collect(),
            under: match self.asked {
                1 => Under::NewLease { id, ttl: Duration::from_secs(60) },
                _ => Under::Session(id),
            },
            wait: Wait::Never,
            keep_place: false,
            ticket: None,
            request_id: has_id.then(|| RequestId::new(&format!("r{}", self.asked)).unwrap()),
            reclaim_window: Duration::ZERO,
            reclaim: false,
            metadata: None,
        };
        let outcome = self.handle(Command::Acquire(acquire));
        let Outcome::Answered(Answer::Granted(grant)) = outcome else { panic!("{outcome:?}") };
        *grant
    }

    fn handle(&mut self, command: Command) -> Outcome {
        self.table.handle(Timestamp::ZERO, command, &mut Step::new())
    }

    /// The number of grants, pieces and requests that the newest change keeps to be undone.
    fn kept(&self) -> usize {
        let len = |image: &Image| {
            let LeaseEntry { grants, pieces, requests, .. } = &image.entry;
            grants.len() + pieces.len() + requests.len()
        };
        match self.table.undo.as_ref().and_then(|log| log.0.back()) {
            Some((_, Undo::Granted { before, .. })) => before.iter().map(len).sum(),
            Some((_, Undo::Ended(image))) => len(image),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn change_of_a_large_session_keeps_what_it_touches() {
    let mut session = Session { table: LockTable::new(crate::Limits::default(), 1), asked: 0 };
    session.table.keep_undo();
    let mut last = None;
    for number in 0..LOCKS {
        let bytes = format!("inode:1@{}..{}", number * 10, number * 10 + 5);
        session.acquire(&[&bytes], Mode::Shared, true);
        last = Some(session.acquire(&[&format!("n/{number}")], Mode::Exclusive, true));
    }
    let before = (session.table.revision(), session.table.digest());
    // Alone, between two pieces that it merges with, and over three.
    for (bytes, kept) in [("inode:2@0..5", 0), ("inode:1@105..110", 4), ("inode:1@200..225", 6)] {
        session.acquire(&[bytes], Mode::Shared, true);
        assert_eq!(session.kept(), kept, "{bytes}");
    }
    session.acquire(&["inode:1@302..304"], Mode::Exclusive, false);
    assert_eq!(session.kept(), 2, "a piece, and the request that it was granted for");
    let set = session.acquire(&["set", "inode:1@406..408"], Mode::Exclusive, true);
    assert_eq!(session.kept(), 0);
    let (namespace, owner) = (Namespace::default(), Owner::new("a").unwrap());
    let range = ByteRange::inclusive(502, 512).unwrap();
    let unlock = Unlock { namespace, session: set.lease, owner, inode: 1, range };
    assert_eq!(
        session.handle(Command::Unlock(unlock)),
        Outcome::Answered(Answer::Unlocked { changed: true })
    );
    assert_eq!(session.kept(), 4, "two pieces and their requests");
    for (grant, scope, kept) in [(set, "set", 4), (last.unwrap(), &format!("n/{}", LOCKS - 1), 1)] {
        let release = Release {
            namespace: Namespace::default(),
            scope: Scope::parse(scope).unwrap(),
            owner: grant.owner.clone(),
            lease: grant.lease,
            fence: grant.fence,
        };
        let released = session.handle(Command::Release(release));
        assert!(matches!(released, Outcome::Answered(Answer::Released { .. })), "{released:?}");
        assert!(session.kept() <= kept, "{} of {grant:?}", session.kept());
    }
    session.table.roll_back(before.0, &mut Step::new());
    assert_eq!(session.table.digest(), before.1);
}
