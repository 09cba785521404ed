//! The model itself, on a few stories that everybody can judge.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Model;
use leasehold_core::*;

/// Asks for scopes given as `name mode`, ready to wait, under a lease of its own.
fn acquire(call: u64, owner: &str, claims: &[&str]) -> Command {
    let claim = |text: &&str| {
        let (scope, mode) = text.split_once(' ').unwrap_or((text, "exclusive"));
        let mode = match mode {
            "exclusive" => Mode::Exclusive,
            "shared" => Mode::Shared,
            limit => Mode::Permits(limit.parse::<NonZeroU32>().expect("a limit")),
        };
        Claim { scope: Scope::parse(scope).expect("a scope"), mode }
    };
    Command::Acquire(Acquire {
        call: CallId(call),
        namespace: Namespace::default(),
        owner: Owner::new(owner).expect("an owner"),
        claims: claims.iter().map(claim).collect(),
        under: Under::NewLease {
            id: LeaseId::from_u128(call.into()),
            ttl: Duration::from_secs(10),
        },
        wait: Wait::Forever,
        keep_place: false,
        ticket: None,
        request_id: None,
        reclaim_window: Duration::ZERO,
        reclaim: false,
        metadata: None,
    })
}

/// The same request under the lease that another call has opened.
fn under(call: u64, command: Command) -> Command {
    let Command::Acquire(acquire) = command else { panic!("only an acquire stands under a lease") };
    let under = Under::Session(LeaseId::from_u128(call.into()));
    Command::Acquire(Acquire { under, ..acquire })
}

fn close(call: u64) -> Command {
    Command::CloseSession(CloseSession {
        namespace: Namespace::default(),
        principal: Principal::ANONYMOUS,
        session: LeaseId::from_u128(call.into()),
    })
}

/// What each command came to, and which waiting calls were answered by it.
fn play(commands: &[Command]) -> Vec<String> {
    let mut model = Model::new(Limits::default());
    let told = commands.iter().map(|command| {
        let (outcome, step) = model.handle(Timestamp::ZERO, command);
        let outcome = match outcome {
            Outcome::Answered(Answer::Granted(_)) => "granted".into(),
            Outcome::Answered(_) => "done".into(),
            Outcome::Queued(queued) => format!("queued at {}", queued.position),
            Outcome::Refused(refusal) => refusal.to_string(),
        };
        let woken = step.effects.iter().filter_map(|effect| match effect {
            Effect::Granted { call, .. } => Some(format!(", call {} granted", call.0)),
            Effect::Refused { .. }
            | Effect::Lost { .. }
            | Effect::Wanted { .. }
            | Effect::Event(_) => None,
        });
        outcome + &woken.collect::<String>()
    });
    told.collect()
}

#[test]
fn readers_behind_a_writer_wait_and_are_granted_together() {
    let told = play(&[
        acquire(1, "ann", &["a shared"]),
        acquire(2, "bob", &["a"]),
        acquire(3, "cat", &["a shared"]),
        acquire(4, "dan", &["a shared"]),
        close(1),
        close(2),
    ]);
    assert_eq!(
        told,
        [
            "granted",
            "queued at 1",
            "queued at 2",
            "queued at 3",
            "done, call 2 granted",
            "done, call 3 granted, call 4 granted",
        ]
    );
}

#[test]
fn second_upgrade_of_the_same_bytes_is_a_deadlock() {
    let told = play(&[
        acquire(1, "ann", &["inode:1@0..10 shared"]),
        acquire(2, "bob", &["inode:1@0..10 shared"]),
        under(1, acquire(3, "ann", &["inode:1@0..10"])),
        under(2, acquire(4, "bob", &["inode:1@0..10"])),
    ]);
    let refused = "waiting would deadlock: a cycle of 2 owners";
    assert_eq!(told, ["granted", "granted", "queued at 1", refused]);
}

#[test]
fn permit_that_somebody_will_give_back_is_no_deadlock() {
    let told = play(&[
        acquire(1, "ann", &["s 2"]),
        acquire(2, "bob", &["s 2"]),
        acquire(3, "ann", &["s 2"]),
        acquire(4, "bob", &["s 2"]),
    ]);
    let refused = "waiting would deadlock: a cycle of 1 owners";
    assert_eq!(told, ["granted", "granted", "queued at 1", refused]);
}

#[test]
fn set_that_waits_holds_nothing_and_keeps_its_place() {
    let told = play(&[
        acquire(1, "ann", &["a"]),
        acquire(2, "bob", &["a", "b"]),
        acquire(3, "cat", &["b"]),
        close(1),
        close(2),
    ]);
    assert_eq!(
        told,
        ["granted", "queued at 1", "queued at 2", "done, call 2 granted", "done, call 3 granted"]
    );
}

#[test]
fn subtree_waits_for_what_is_held_below_it() {
    let told = play(&[
        acquire(1, "ann", &["path:/srv/a/b"]),
        acquire(2, "bob", &["path:/srv/**"]),
        acquire(3, "cat", &["path:/tmp"]),
        close(1),
    ]);
    assert_eq!(told, ["granted", "queued at 1", "granted", "done, call 2 granted"]);
}
