//! Byte ranges between owners: unlocking and waiting.

use expect_test::expect;

use crate::script::check;

#[test]
fn unlocking_what_is_not_held_succeeds() {
    check(
        "
        0s a open s
        0s a unlock inode:1 session=s
        0s b acquire inode:1@0..10
        0s a unlock inode:1 session=s
        0s get inode:1
        ",
        expect![[r#"
            0s s opened until 10s
            0s a unlocked nothing
            0s b granted inode:1@0..10 fence=1 until 10s
            0s a unlocked nothing
            0s get inode:1: held by b inode:1@0..10 fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn unlocking_under_a_session_that_is_gone_is_refused() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire inode:1@0..10 session=s
        10.001s a unlock inode:1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            10.001s a expired inode:1@0..10 fence=1
            10.001s s of a expired
            10.001s a refused session_not_found (expired)
        "#]],
    );
}

#[test]
fn unlocking_touches_one_owner_only() {
    check(
        "
        0s host open s
        0s p1 acquire inode:1@0..10 session=s
        0s p2 acquire inode:1@10..20 session=s
        1s p1 unlock inode:1 session=s
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s p1 granted inode:1@0..10 fence=1 until 10s
            0s p2 granted inode:1@10..20 fence=2 until 10s
            1s p1 unlocked
            1s p1 released inode:1@0..10 fence=1
            1s list inode:1@10..20 held by p2 fence=2 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn unlocking_wakes_waiters_on_the_bytes_that_came_free() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..100 session=s
        0s b acquire inode:1@10..20 wait
        0s c acquire inode:1@15..25 wait
        0s d acquire inode:1@90..95 wait
        1s a unlock inode:1@10..30 session=s
        2s b release inode:1@10..20
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            0s b queued inode:1@10..20 at 1
            0s c queued inode:1@15..25 at 1
            0s d queued inode:1@90..95 at 1
            1s a unlocked
            1s a released inode:1@10..30 fence=1
            1s b granted inode:1@10..20 fence=2 until 11s waited 1s
            2s b released inode:1@10..20 held 1s
            2s c granted inode:1@15..25 fence=3 until 12s waited 2s
        "#]],
    );
}

#[test]
fn bytes_beyond_the_own_range_queue_behind_earlier_waiters() {
    check(
        "
        0s a open s
        0s c acquire inode:1@10..20 shared
        0s a acquire inode:1@0..10 session=s
        1s b acquire inode:1@10..20 wait
        2s a acquire inode:1@0..20 shared session=s wait
        3s c release inode:1@10..20
        4s b release inode:1@10..20
        ",
        expect![[r#"
            0s s opened until 10s
            0s c granted inode:1@10..20 fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            1s b queued inode:1@10..20 at 1
            2s a queued inode:1@0..20 at 1
            3s c released inode:1@10..20 held 3s
            3s b granted inode:1@10..20 fence=3 until 13s waited 2s
            4s b released inode:1@10..20 held 1s
            4s a replaced inode:1@0..10 fence=2
            4s a granted inode:1@0..20 fence=4 until 10s waited 2s
        "#]],
    );
}

#[test]
fn reader_behind_a_waiting_writer_waits_too() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        1s b acquire inode:1@5..15 wait
        2s c acquire inode:1@0..10 shared wait
        2s d acquire inode:1@0..5 shared
        3s a release inode:1@0..10
        4s b release inode:1@5..15
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@5..15 at 1
            2s c queued inode:1@0..10 at 1
            2s d granted inode:1@0..5 fence=2 until 12s
            3s a released inode:1@0..10 held 3s
            3s b granted inode:1@5..15 fence=3 until 13s waited 2s
            4s b released inode:1@5..15 held 1s
            4s c granted inode:1@0..10 fence=4 until 14s waited 2s
        "#]],
    );
}

#[test]
fn waiters_on_disjoint_bytes_do_not_meet() {
    check(
        "
        0s a acquire inode:1
        1s b acquire inode:1@0..10 wait
        1s c acquire inode:1@10..20 wait
        1s d acquire inode:1@5..15 wait
        2s a release inode:1
        3s b release inode:1@0..10
        4s c release inode:1@10..20
        ",
        expect![[r#"
            0s a granted inode:1 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            1s c queued inode:1@10..20 at 1
            1s d queued inode:1@5..15 at 1
            2s a released inode:1 held 2s
            2s b granted inode:1@0..10 fence=2 until 12s waited 1s
            2s c granted inode:1@10..20 fence=3 until 12s waited 1s
            3s b released inode:1@0..10 held 1s
            4s c released inode:1@10..20 held 2s
            4s d granted inode:1@5..15 fence=4 until 14s waited 3s
        "#]],
    );
}

#[test]
fn cancel_of_a_waiting_writer_lets_readers_behind_it_go() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        1s b acquire inode:1@5..15 wait
        1s c acquire inode:1@0..10 shared wait
        1s d acquire inode:1@12..20 shared wait
        2s b cancel inode:1@5..15
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@5..15 at 1
            1s c queued inode:1@0..10 at 1
            1s d queued inode:1@12..20 at 1
            2s b cancelled
            2s c granted inode:1@0..10 fence=2 until 12s waited 1s
            2s d granted inode:1@12..20 fence=3 until 12s waited 1s
        "#]],
    );
}

#[test]
fn waits_of_one_session_do_not_block_each_other() {
    check(
        "
        0s b acquire inode:1@0..10
        0s a open s
        1s a acquire inode:1@0..5 wait session=s
        1s a acquire inode:1@3..8 shared wait session=s
        2s b release inode:1@0..10
        2s list
        ",
        expect![[r#"
            0s b granted inode:1@0..10 fence=1 until 10s
            0s s opened until 10s
            1s a queued inode:1@0..5 at 1
            1s a queued inode:1@3..8 at 1
            2s b released inode:1@0..10 held 2s
            2s a granted inode:1@0..5 fence=2 until 10s waited 1s
            2s a replaced inode:1@3..5 fence=2
            2s a granted inode:1@3..8 fence=3 until 10s waited 1s
            2s list inode:1@0..3 held by a fence=2 since 2s until 10s
            2s list inode:1@3..8 held by a shared fence=3 since 2s until 10s
            2s list end
        "#]],
    );
}
