//! Identity: an owner is a principal together with an owner id, and a lease answers to its principal alone.

use expect_test::expect;

use crate::script::check;

#[test]
fn same_owner_id_of_another_principal_is_another_holder() {
    check(
        "
        0s a@red acquire job/x
        1s a@blue acquire job/x
        1s a acquire job/x
        1s a@red acquire inode:1@0..10
        1s a@blue acquire inode:1@0..10
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            1s a@blue refused held: job/x by a@red fence=1 since 0s until 10s
            1s a refused held: job/x by a@red fence=1 since 0s until 10s
            1s a@red granted inode:1@0..10 fence=2 until 11s
            1s a@blue refused held: inode:1@0..10 by a@red fence=2 since 1s until 11s
        "#]],
    );
}

#[test]
fn lease_of_another_principal_is_answered_as_one_that_never_was() {
    check(
        "
        0s a@red acquire job/x as=mine ttl=10s
        1s a@blue renew job/x of=a@red
        1s a@blue renew job/x of=a@red lease=unknown
        1s a@blue release job/x of=a@red
        1s a@blue release job/x of=a@red lease=unknown
        1s a renew job/x of=a@red
        9s get job/x
        9s a@red renew job/x
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            1s a@blue refused lease_lost (unknown)
            1s a@blue refused lease_lost (unknown)
            1s a@blue refused not_holder (unknown): job/x
            1s a@blue refused not_holder (unknown): job/x
            1s a refused lease_lost (unknown)
            9s get job/x: held by a@red fence=1 since 0s until 10s
            9s a@red renewed job/x until 19s
        "#]],
    );
}

#[test]
fn session_of_another_principal_is_answered_as_one_that_never_was() {
    check(
        "
        0s a@red open s ttl=10s keep=20s
        0s a@red acquire job/x session=s
        0s a@red acquire inode:1@0..10 session=s
        1s keepalive s by=blue
        1s close s by=blue
        1s attach s by=blue
        1s disconnect s by=blue
        1s session s by=blue
        1s a@blue acquire job/y session=s
        1s a@blue unlock inode:1@0..10 session=s
        1s a@blue release inode:1@0..10 of=a@red
        1s keepalive unknown by=blue
        2s keepalive s
        2s b@red acquire job/y session=s
        2s keepalive s by=red
        ",
        expect![[r#"
            0s s opened until 10s
            0s a@red granted job/x fence=1 until 10s
            0s a@red granted inode:1@0..10 fence=2 until 10s
            1s s refused session_not_found (unknown)
            1s s refused session_not_found (unknown)
            1s s refused session_not_found (unknown)
            1s s refused session_not_found (unknown)
            1s no session
            1s a@blue refused session_not_found (unknown)
            1s a@blue refused session_not_found (unknown)
            1s a@blue refused not_holder (unknown): inode:1@0..10
            1s lease refused session_not_found (unknown)
            2s s refused session_not_found (unknown)
            2s b@red granted job/y fence=3 until 10s
            2s s renewed until 12s
        "#]],
    );
}

#[test]
fn what_has_ended_is_told_to_its_principal_alone() {
    check(
        "
        0s a@red open s
        0s a@red acquire job/x session=s
        0s a@red acquire job/y as=plain window=5s
        1s close s by=red
        2s close s by=blue
        2s keepalive s by=blue
        2s a@blue acquire job/x session=s
        2s close s by=red
        12s a@red renew job/y
        12s a@blue renew job/y of=a@red
        12s keepalive plain by=blue
        12s keepalive plain by=red
        ",
        expect![[r#"
            0s s opened until 10s
            0s a@red granted job/x fence=1 until 10s
            0s a@red granted job/y fence=2 until 10s
            1s s closed grants=1
            1s a closed job/x fence=1
            2s s refused session_not_found (unknown)
            2s s refused session_not_found (unknown)
            2s a@blue refused session_not_found (unknown)
            2s s closed grants=1, as before
            12s a expired job/y fence=2, reclaim window 5s
            12s a@red refused lease_lost (expired)
            12s a@blue refused lease_lost (unknown)
            12s plain refused session_not_found (unknown)
            12s plain refused session_not_found (expired)
        "#]],
    );
}

#[test]
fn request_ids_are_of_one_principal() {
    check(
        "
        0s a@red acquire job/x id=r1
        1s a@blue acquire job/x id=r1
        1s a@red acquire job/x id=r1
        1s a@blue open s id=r1
        1s a@red open s2 id=r1
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            1s a@blue refused held: job/x by a@red fence=1 since 0s until 10s
            1s a@red granted job/x fence=1 until 10s again, as at 0s
            1s s opened until 11s
            1s s2 refused request_id_reused
        "#]],
    );
}

#[test]
fn reclaim_window_is_of_one_principal() {
    check(
        "
        0s a@red acquire job/x ttl=1s window=5s
        2s a@blue acquire job/x
        2s a acquire job/x
        2s a@red acquire job/x
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 1s
            2s a expired job/x fence=1, reclaim window 5s
            2s a@blue refused reclaim_window: job/x by a@red fence=1 since 0s until 6s in its reclaim window
            2s a refused reclaim_window: job/x by a@red fence=1 since 0s until 6s in its reclaim window
            2s a@red granted job/x fence=2 until 12s
            2s a reclaimed job/x fence=1
        "#]],
    );
}

#[test]
fn ticket_of_another_principal_leads_nowhere() {
    check(
        "
        0s b acquire job/x
        0s a@red acquire job/x wait=1s keep
        1.001s tick
        2s a@blue acquire job/x wait keep ticket of=a@red
        2s a@red acquire job/x wait ticket
        3s b release job/x
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 10s
            0s a@red queued job/x at 1
            1.001s a@red refused held: job/x by b fence=1 since 0s until 10s, waited 1.001s, place 1 kept
            2s a@blue refused ticket_not_found
            2s a@red queued job/x at 1
            3s b released job/x held 3s
            3s a@red granted job/x fence=2 until 13s waited 3s
        "#]],
    );
}

#[test]
fn deadlock_is_between_owners_of_principals() {
    check(
        "
        0s a@red acquire job/x
        0s a@blue acquire job/y
        1s a@red acquire job/y wait
        1s b@red acquire job/x wait
        2s a@blue acquire job/x wait
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            0s a@blue granted job/y fence=2 until 10s
            1s a@red queued job/y at 1
            1s b@red queued job/x at 1
            2s a@blue refused deadlock: a -(job/x)-> a -(job/y)-> a
        "#]],
    );
}

#[test]
fn restart_and_reclaim_know_principals() {
    check(
        "
        0s a@red open s ttl=10s
        0s a@red acquire job/x session=s
        1s restart
        1s epoch conflicting grace=10s
        2s a@blue acquire job/x session=s reclaim
        2s keepalive s by=blue
        2s a@red acquire job/x session=s reclaim
        ",
        expect![[r#"
            0s s opened until 10s
            0s a@red granted job/x fence=1 until 10s
            1s server restarted
            1s epoch 1 begun recovering=1
            2s a@blue refused session_not_found (unknown)
            2s s refused session_not_found (unknown)
            2s a@red granted job/x fence=1 until 12s again, as at 0s
            2s grace over
        "#]],
    );
}
