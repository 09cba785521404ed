//! Reclaim windows of subtrees, readers, semaphores, sets and byte ranges.

use expect_test::expect;

use crate::script::check;

#[test]
fn grants_of_one_session_may_have_windows_of_their_own() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s a acquire job/y session=s window=5s
        0s a acquire job/z session=s window=20s
        10.001s tick
        15.001s tick
        30.001s tick
        30.001s stats
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            0s a granted job/z fence=3 until 10s
            10.001s a expired job/x fence=1
            10.001s a expired job/y fence=2, reclaim window 5s
            10.001s a expired job/z fence=3, reclaim window 20s
            10.001s s of a expired
            15.001s a window_over job/y fence=2
            30.001s a window_over job/z fence=3
            30.001s stats epoch=0 fence=3 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn window_on_a_subtree_keeps_others_out_of_all_of_it() {
    check(
        "
        0s a acquire path:/srv/** ttl=10s window=5s
        11s b acquire path:/srv/x
        11s a acquire path:/srv/y
        12s c acquire path:/srv/y
        15.001s b acquire path:/srv/x
        ",
        expect![[r#"
            0s a granted path:/srv/** fence=1 until 10s
            11s a expired path:/srv/** fence=1, reclaim window 5s
            11s b refused reclaim_window: path:/srv/x by a path:/srv/** fence=1 since 0s until 15s in its reclaim window
            11s a granted path:/srv/y fence=2 until 21s
            12s c refused held: path:/srv/y by a path:/srv/** fence=1 since 0s until 15s in its reclaim window and a fence=2 since 11s until 21s
            15.001s a window_over path:/srv/** fence=1
            15.001s b granted path:/srv/x fence=3 until 25.001s
        "#]],
    );
}

#[test]
fn shared_window_lets_other_readers_in() {
    check(
        "
        0s a acquire job/x shared ttl=10s window=5s
        11s b acquire job/x shared
        11s c acquire job/x
        11s a acquire job/x shared
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            11s a expired job/x shared fence=1, reclaim window 5s
            11s b granted job/x fence=2 until 21s
            11s c refused held: job/x by a shared fence=1 since 0s until 15s in its reclaim window and b shared fence=2 since 11s until 21s
            11s a granted job/x fence=3 until 21s
            11s a reclaimed job/x shared fence=1
        "#]],
    );
}

#[test]
fn scope_that_is_also_held_is_refused_as_held() {
    check(
        "
        0s a acquire job/x shared ttl=10s window=5s
        0s b acquire job/x shared ttl=60s
        11s c acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 60s
            11s a expired job/x shared fence=1, reclaim window 5s
            11s c refused held: job/x by a shared fence=1 since 0s until 15s in its reclaim window and b shared fence=2 since 0s until 60s
        "#]],
    );
}

#[test]
fn window_of_a_semaphore_keeps_its_permit() {
    check(
        "
        0s a acquire pool permits=2 ttl=10s window=5s
        0s b acquire pool permits=2 ttl=60s
        11s c acquire pool permits=2
        11s a acquire pool permits=2
        12s c acquire pool permits=2
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b granted pool fence=2 until 60s
            11s a expired pool permits=2 fence=1, reclaim window 5s
            11s c refused held: pool by a permits=2 fence=1 since 0s until 15s in its reclaim window and b permits=2 fence=2 since 0s until 60s
            11s a granted pool fence=3 until 21s
            11s a reclaimed pool permits=2 fence=1
            12s c refused held: pool by b permits=2 fence=2 since 0s until 60s and a permits=2 fence=3 since 11s until 21s
        "#]],
    );
}

#[test]
fn set_may_be_taken_back_whole() {
    check(
        "
        0s a acquire {job/x, job/y, inode:1@0..10} ttl=10s window=5s
        11s b acquire {job/y}
        11s b acquire inode:1@5..6
        12s a acquire {job/x, job/y, inode:1@0..10} ttl=10s
        12s list
        ",
        expect![[r#"
            0s a granted {job/x, job/y, inode:1@0..10} fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s a expired job/y fence=1, reclaim window 5s
            11s a expired inode:1@0..10 fence=1, reclaim window 5s
            11s b refused reclaim_window: job/y by a fence=1 since 0s until 15s in its reclaim window
            11s b refused reclaim_window: inode:1@5..6 by a inode:1@0..10 fence=1 since 0s until 15s in its reclaim window
            12s a granted {job/x, job/y, inode:1@0..10} fence=2 until 22s
            12s a reclaimed job/x fence=1
            12s a reclaimed job/y fence=1
            12s a replaced inode:1@0..10 fence=1
            12s list inode:1@0..10 held by a fence=2 since 12s until 22s
            12s list job/x held by a fence=2 since 12s until 22s
            12s list job/y held by a fence=2 since 12s until 22s
            12s list end
        "#]],
    );
}

#[test]
fn taking_back_one_scope_of_a_set_leaves_the_window_of_the_others() {
    check(
        "
        0s a acquire {job/x, job/y} ttl=10s window=5s
        11s a acquire job/x ttl=60s
        12s b acquire job/y
        13s a acquire job/y
        ",
        expect![[r#"
            0s a granted {job/x, job/y} fence=1 until 10s
            11s a expired job/x fence=1, reclaim window 5s
            11s a expired job/y fence=1, reclaim window 5s
            11s a granted job/x fence=2 until 71s
            11s a reclaimed job/x fence=1
            12s b refused reclaim_window: job/y by a fence=1 since 0s until 15s in its reclaim window
            13s a granted job/y fence=3 until 23s
            13s a reclaimed job/y fence=1
        "#]],
    );
}

#[test]
fn window_on_bytes_is_for_their_last_owner() {
    check(
        "
        0s a acquire inode:1@0..10 ttl=10s window=5s
        11s b acquire inode:1@5..6
        11s b acquire inode:1@5..6 wait
        12s a acquire inode:1@0..4 ttl=60s
        12s list
        15.001s list
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            11s a expired inode:1@0..10 fence=1, reclaim window 5s
            11s b refused reclaim_window: inode:1@5..6 by a inode:1@0..10 fence=1 since 0s until 15s in its reclaim window
            11s b queued inode:1@5..6 at 1
            12s a granted inode:1@0..4 fence=2 until 72s
            12s a replaced inode:1@0..4 fence=1
            12s list inode:1@0..4 held by a fence=2 since 12s until 72s
            12s list inode:1@4..10 reclaim_window by a fence=1 since 0s until 15s in its reclaim window, 1 waiting
            12s list end
            15.001s a window_over inode:1@4..10 fence=1
            15.001s b granted inode:1@5..6 fence=3 until 25.001s waited 4.001s
            15.001s list inode:1@0..4 held by a fence=2 since 12s until 72s
            15.001s list inode:1@5..6 held by b fence=3 since 15.001s until 25.001s
            15.001s list end
        "#]],
    );
}

#[test]
fn last_owner_of_bytes_does_not_queue_behind_those_who_wait_for_its_window() {
    check(
        "
        0s a acquire inode:1@0..10 ttl=10s window=5s
        11s b acquire inode:1@0..10 wait
        12s a acquire inode:1@0..10 ttl=10s
        13s a release inode:1@0..10
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            11s a expired inode:1@0..10 fence=1, reclaim window 5s
            11s b queued inode:1@0..10 at 1
            12s a granted inode:1@0..10 fence=2 until 22s
            12s a replaced inode:1@0..10 fence=1
            13s a released inode:1@0..10 held 1s
            13s b granted inode:1@0..10 fence=3 until 23s waited 2s
        "#]],
    );
}

#[test]
fn lapse_into_a_window_serves_a_waiter_of_the_same_owner() {
    check(
        "
        0s b acquire pool permits=2 ttl=60s
        0s a acquire pool permits=2 ttl=10s window=5s
        1s a acquire pool permits=2 ttl=60s wait
        10.001s tick
        ",
        expect![[r#"
            0s b granted pool fence=1 until 60s
            0s a granted pool fence=2 until 10s
            1s a queued pool at 1
            10.001s a expired pool permits=2 fence=2, reclaim window 5s
            10.001s a reclaimed pool permits=2 fence=2
            10.001s a granted pool fence=3 until 70.001s waited 9.001s
        "#]],
    );
}

#[test]
fn own_window_counts_for_the_limit_that_is_asked_for() {
    check(
        "
        0s a acquire pool permits=2 ttl=10s window=5s
        11s a acquire pool permits=3
        11s a acquire pool
        11s a acquire pool permits=2
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            11s a expired pool permits=2 fence=1, reclaim window 5s
            11s a refused limit_mismatch: pool is permits(2), not permits(3)
            11s a refused limit_mismatch: pool is permits(2), not exclusive
            11s a granted pool fence=2 until 21s
            11s a reclaimed pool permits=2 fence=1
        "#]],
    );
}

#[test]
fn taking_back_one_permit_leaves_the_window_of_the_other() {
    check(
        "
        0s a acquire pool permits=2 ttl=10s window=5s
        0s a acquire pool permits=2 ttl=10s window=5s
        11s a acquire pool permits=2 ttl=60s
        12s b acquire pool permits=2
        13s a acquire pool permits=2 ttl=60s
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s a granted pool fence=2 until 10s
            11s a expired pool permits=2 fence=1, reclaim window 5s
            11s a expired pool permits=2 fence=2, reclaim window 5s
            11s a granted pool fence=3 until 71s
            11s a reclaimed pool permits=2 fence=1
            12s b refused held: pool by a permits=2 fence=2 since 0s until 15s in its reclaim window and a permits=2 fence=3 since 11s until 71s
            13s a granted pool fence=4 until 73s
            13s a reclaimed pool permits=2 fence=2
        "#]],
    );
}

#[test]
fn bytes_taken_back_under_a_newer_lease_leave_the_window_of_the_older() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire inode:1@0..10 session=s window=5s
        5s a acquire inode:1@5..20 ttl=60s
        10.001s tick
        11s a acquire inode:1@5..20 ttl=60s
        11s b acquire inode:1@0..3
        12s a release inode:1@5..20
        15.001s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            5s a refused held: inode:1@5..20 by a inode:1@0..10 fence=1 since 0s until 10s
            10.001s a expired inode:1@0..10 fence=1, reclaim window 5s
            10.001s s of a expired
            11s a granted inode:1@5..20 fence=2 until 71s
            11s a replaced inode:1@5..10 fence=1
            11s b refused reclaim_window: inode:1@0..3 by a inode:1@0..5 fence=1 since 0s until 15s in its reclaim window
            12s a released inode:1@5..20 held 1s
            15.001s a window_over inode:1@0..5 fence=1
            15.001s list end
        "#]],
    );
}

#[test]
fn reclaim_of_bytes_in_their_window_must_find_all_of_them() {
    check(
        "
        0s a acquire inode:1@0..10 ttl=10s window=5s
        11s a acquire inode:1@0..11 reclaim
        11s a acquire inode:1@0..10 reclaim
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            11s a expired inode:1@0..10 fence=1, reclaim window 5s
            11s a refused no_grace
            11s a granted inode:1@0..10 fence=2 until 21s
            11s a replaced inode:1@0..10 fence=1
        "#]],
    );
}

#[test]
fn taking_a_scope_back_as_shared_lets_waiting_readers_in() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        1s b acquire job/x shared wait
        2s c acquire job/x shared wait
        11s a acquire job/x shared
        12s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s c queued job/x at 2
            11s a expired job/x fence=1, reclaim window 5s
            11s a granted job/x fence=2 until 21s
            11s a reclaimed job/x fence=1
            11s b granted job/x fence=3 until 21s waited 10s
            11s c granted job/x fence=4 until 21s waited 9s
        "#]],
    );
}
