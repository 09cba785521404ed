//! What watchers and holders are told.

use expect_test::expect;

use crate::script::check;

#[test]
fn every_lasting_change_raises_the_revision() {
    check(
        "
        0s watch
        0s a open s ttl=10s
        0s a acquire {job/x, inode:1@0..10} session=s
        1s keepalive s
        2s keepalive s ttl=20s
        3s accept disk 1
        3s accept disk 1
        3s delete disk reason=moved
        4s a release job/x
        5s close s
        6s epoch conflicting
        ",
        expect![[r#"
            0s s opened until 10s
            0s event 1: s of a opened by http
            0s a granted {job/x, inode:1@0..10} fence=1 until 10s gained inode:1@0..10
            0s event 2: a granted job/x fence=1 ttl 10s
            0s event 2: a granted inode:1@0..10 fence=1 ttl 10s
            1s s renewed until 11s
            2s s renewed until 22s
            2s a has ttl 20s
            3s register disk accepted, mark 1
            3s event 4: disk accepted 1
            3s register disk accepted, mark 1
            3s register disk deleted, mark was 1
            3s event 5: disk deleted: moved
            4s a released job/x held 4s
            4s a released job/x fence=1
            4s a released inode:1@0..10 fence=1
            5s s closed grants=0
            5s s of a closed
            6s epoch 1 begun recovering=0
            6s event 8: epoch 1 began
        "#]],
    );
}

#[test]
fn watchers_hear_who_queues_and_who_leaves() {
    check(
        "
        0s a acquire job/x
        0s watch
        1s b acquire job/x wait
        1s c acquire job/x wait=1s
        1s d acquire job/x wait
        2s b cancel job/x
        3s tick
        4s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            1s lease told: b waits for job/x behind fence=1
            1s event 1: b queued job/x
            1s c queued job/x at 2
            1s lease told: c waits for job/x behind fence=1
            1s event 1: c queued job/x
            1s d queued job/x at 3
            1s lease told: d waits for job/x behind fence=1
            1s event 1: d queued job/x
            2s b cancelled
            2s event 1: b left job/x
            3s event 1: c left job/x
            3s c refused held: job/x by a fence=1 since 0s until 10s, 1 waiting, waited 2s
            4s a released job/x held 4s
            4s a released job/x fence=1
            4s event 3: d granted job/x fence=2 ttl 10s
            4s d granted job/x fence=2 until 14s waited 3s
        "#]],
    );
}

#[test]
fn watchers_hear_of_deadlocks() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        0s watch
        1s a acquire job/y wait
        2s b acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            1s lease told: a waits for job/y behind fence=2
            1s event 2: a queued job/y
            2s b refused deadlock: b -(job/x)-> a -(job/y)-> b
            2s event 2: b deadlocked b -(job/x)-> a -(job/y)-> b
        "#]],
    );
}

#[test]
fn watchers_hear_of_windows_and_their_ends() {
    check(
        "
        0s watch
        0s a acquire job/x ttl=10s window=5s as=l
        0s a acquire job/y ttl=10s window=5s
        10.001s tick
        11s a acquire job/x
        15.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s event 1: a granted job/x fence=1 ttl 10s
            0s a granted job/y fence=2 until 10s
            0s event 2: a granted job/y fence=2 ttl 10s
            10.001s l told: lost, expired
            10.001s a expired job/x fence=1, reclaim window 5s
            10.001s lease told: lost, expired
            10.001s a expired job/y fence=2, reclaim window 5s
            11s a granted job/x fence=3 until 21s
            11s a reclaimed job/x fence=1
            11s event 6: a granted job/x fence=3 ttl 10s
            15.001s a window_over job/y fence=2
        "#]],
    );
}

#[test]
fn holders_hear_what_was_taken_from_them() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s a acquire inode:1@0..10 session=s
        0s a acquire job/y session=s
        0s watch
        1s break job/x reason=stuck
        2s remove-file 1
        10.001s tick
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            0s a granted job/y fence=3 until 10s
            1s break job/x grants=1
            1s s told: lost fence=1, revoked
            1s a revoked job/x fence=1
            2s file 1 removed grants=1 waiters=0
            2s s told: lost fence=2, file_removed
            2s a file_removed inode:1@0..10 fence=2
            10.001s s told: lost, expired
            10.001s a expired job/y fence=3
            10.001s s of a expired
        "#]],
    );
}

#[test]
fn restart_is_news() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s watch
        1s epoch conflicting
        11.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s epoch 1 begun recovering=1
            1s event 2: epoch 1 began
            11.001s lease told: lost, grace_expired
            11.001s a grace_expired job/x fence=1
            11.001s grace over
        "#]],
    );
}
