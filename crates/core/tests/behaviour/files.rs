//! Files: testing for locks, flock, and files that are removed.

use expect_test::expect;

use crate::script::check;

#[test]
fn testing_returns_the_first_conflicting_grant() {
    check(
        "
        0s a acquire inode:1@50..60
        0s b acquire inode:1@20..30 shared
        0s c acquire inode:1@20..40 shared
        1s d test inode:1
        1s d test inode:1@25..
        1s d test inode:1@45..
        1s d test inode:1@20..30 shared
        1s d test inode:1@60..
        1s d test inode:2
        ",
        expect![[r#"
            0s a granted inode:1@50..60 fence=1 until 10s
            0s b granted inode:1@20..30 fence=2 until 10s
            0s c granted inode:1@20..40 fence=3 until 10s
            1s d test inode:1: held by b inode:1@20..30 shared fence=2 since 0s until 10s
            1s d test inode:1@25..: held by b inode:1@20..30 shared fence=2 since 0s until 10s
            1s d test inode:1@45..: held by a inode:1@50..60 fence=1 since 0s until 10s
            1s d test inode:1@20..30: free
            1s d test inode:1@60..: free
            1s d test inode:2: free
        "#]],
    );
}

#[test]
fn testing_never_sees_what_its_owner_holds_under_the_same_lease() {
    check(
        "
        0s a acquire inode:1@0..10 as=l
        0s b acquire inode:1@20..30
        1s a test inode:1@0..10 session=l
        1s a test inode:1 session=l
        1s a test inode:1@0..10
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@20..30 fence=2 until 10s
            1s a test inode:1@0..10: free
            1s a test inode:1: held by b inode:1@20..30 fence=2 since 0s until 10s
            1s a test inode:1@0..10: held by a inode:1@0..10 fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn testing_says_what_a_try_would_say_when_others_wait() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        1s b acquire inode:1@0..10 wait
        2s c test inode:1@0..10 shared
        2s c test inode:1@0..10
        3s get inode:1
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            2s c test inode:1@0..10: others wait for it
            2s c test inode:1@0..10: held by a inode:1@0..10 shared fence=1 since 0s until 10s
            3s get inode:1: held by a inode:1@0..10 shared fence=1 since 0s until 10s; b waits for inode:1@0..10 since 1s
        "#]],
    );
}

#[test]
fn testing_works_on_names_and_paths() {
    check(
        "
        0s a acquire job/x shared
        0s a acquire path:/srv/a
        1s b test job/x
        1s b test job/x shared
        1s b test path:/srv/**
        1s b test path:/srv
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted path:/srv/a fence=2 until 10s
            1s b test job/x: held by a job/x shared fence=1 since 0s until 10s
            1s b test job/x: free
            1s b test path:/srv/**: held by a path:/srv/a fence=2 since 0s until 10s
            1s b test path:/srv: free
        "#]],
    );
}

#[test]
fn flock_is_apart_from_fcntl_ranges() {
    check(
        "
        0s a acquire inode:42
        0s b acquire flock:42
        0s c acquire flock:42 shared
        0s c acquire inode:42@0..1 shared
        ",
        expect![[r#"
            0s a granted inode:42 fence=1 until 10s
            0s b granted flock:42 fence=2 until 10s
            0s c refused held: flock:42 by b fence=2 since 0s until 10s
            0s c refused held: inode:42@0..1 by a inode:42 fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn removing_a_file_drops_its_grants_and_fails_its_waiters() {
    check(
        "
        0s a open s
        0s a acquire inode:42@0..10 session=s
        0s b acquire inode:42@20..30 shared
        0s a acquire inode:43 session=s
        1s c acquire inode:42@0..5 wait
        1s d acquire {job/x, inode:42@25..26} wait
        1s e acquire job/x wait
        1s f acquire inode:43@0..1 wait
        2s remove-file 42
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:42@0..10 fence=1 until 10s
            0s b granted inode:42@20..30 fence=2 until 10s
            0s a granted inode:43 fence=3 until 10s
            1s c queued inode:42@0..5 at 1
            1s d queued {job/x, inode:42@25..26} at 1
            1s e queued job/x at 2
            1s f queued inode:43@0..1 at 1
            2s file 42 removed grants=2 waiters=2
            2s c refused file_removed: inode 42
            2s d refused file_removed: inode 42
            2s a file_removed inode:42@0..10 fence=1
            2s b file_removed inode:42@20..30 shared fence=2
            2s e granted job/x fence=4 until 12s waited 1s
            2s list inode:43 held by a fence=3 since 0s until 10s, 1 waiting
            2s list job/x held by e fence=4 since 2s until 12s
            2s list end
        "#]],
    );
}

#[test]
fn removed_file_may_be_locked_again() {
    check(
        "
        0s a acquire inode:42
        1s remove-file 42
        1s b acquire inode:42
        1s a renew inode:42
        2s remove-file 44
        2s remove-file 42 in=red
        ",
        expect![[r#"
            0s a granted inode:42 fence=1 until 10s
            1s file 42 removed grants=1 waiters=0
            1s a file_removed inode:42 fence=1
            1s b granted inode:42 fence=2 until 11s
            1s a refused lease_lost (released)
            2s file 44 removed grants=0 waiters=0
            2s file 42 removed grants=0 waiters=0
        "#]],
    );
}

#[test]
fn testing_for_a_permit_sees_holders_without_one() {
    check(
        "
        0s a acquire job/x shared
        1s b test job/x permits=2
        1s b acquire job/x permits=2
        2s c acquire pool permits=2
        2s b test pool permits=2
        2s b test pool shared
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b test job/x: refused limit_mismatch: job/x is shared, not permits(2)
            1s b refused limit_mismatch: job/x is shared, not permits(2)
            2s c granted pool fence=2 until 12s
            2s b test pool: free
            2s b test pool: refused limit_mismatch: pool is permits(2), not shared
        "#]],
    );
}
