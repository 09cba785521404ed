//! Many deadlines at once: a command works off a bounded number of them.

use expect_test::expect;

use crate::script::check_with;

#[test]
fn command_works_off_a_bounded_number_of_deadlines() {
    check_with(
        |limits| limits.deadlines_per_step_max = 2,
        "
        0s a acquire job/1 ttl=1s
        0s a acquire job/2 ttl=1s
        0s a acquire job/3 ttl=1s
        0s a acquire job/4 ttl=1s
        0s a acquire job/5 ttl=1s
        2s tick
        2s tick
        2s tick
        ",
        expect![[r#"
            0s a granted job/1 fence=1 until 1s
            0s a granted job/2 fence=2 until 1s
            0s a granted job/3 fence=3 until 1s
            0s a granted job/4 fence=4 until 1s
            0s a granted job/5 fence=5 until 1s
            2s a expired job/1 fence=1
            2s a expired job/2 fence=2
            2s a expired job/3 fence=3
            2s a expired job/4 fence=4
            2s a expired job/5 fence=5
        "#]],
    );
}

#[test]
fn lease_that_is_over_but_not_worked_off_is_over_all_the_same() {
    check_with(
        |limits| limits.deadlines_per_step_max = 1,
        "
        0s a acquire job/1 ttl=1s
        0s a acquire job/2 ttl=1s
        0s a acquire job/3 ttl=1s
        0s a acquire job/4 ttl=1s
        0s a acquire job/5 ttl=1s
        0s a acquire job/6 ttl=1s
        0s a acquire job/7 ttl=1s
        0s a acquire job/8 ttl=1s
        2s a check job/8
        2s a renew job/8
        2s b acquire job/7
        2s a release job/6
        ",
        expect![[r#"
            0s a granted job/1 fence=1 until 1s
            0s a granted job/2 fence=2 until 1s
            0s a granted job/3 fence=3 until 1s
            0s a granted job/4 fence=4 until 1s
            0s a granted job/5 fence=5 until 1s
            0s a granted job/6 fence=6 until 1s
            0s a granted job/7 fence=7 until 1s
            0s a granted job/8 fence=8 until 1s
            2s a expired job/1 fence=1
            2s check job/8 fence=8: not good (expired), a fence=8 since 0s until 1s
            2s a expired job/2 fence=2
            2s a refused lease_lost (expired)
            2s a expired job/8 fence=8
            2s a expired job/3 fence=3
            2s b granted job/7 fence=9 until 12s
            2s a expired job/7 fence=7
            2s a expired job/4 fence=4
            2s a refused not_holder (expired): job/6
            2s a expired job/6 fence=6
        "#]],
    );
}

#[test]
fn overdue_wait_that_is_not_worked_off_is_not_granted() {
    check_with(
        |limits| limits.deadlines_per_step_max = 1,
        "
        0s z acquire job/z
        0s a acquire job/x
        0s w1 acquire job/z wait=1s
        0s w2 acquire job/z wait=1s
        0s b acquire job/x wait=1s
        2s a release job/x
        2s get job/x
        2s tick
        ",
        expect![[r#"
            0s z granted job/z fence=1 until 10s
            0s a granted job/x fence=2 until 10s
            0s w1 queued job/z at 1
            0s w2 queued job/z at 2
            0s b queued job/x at 1
            2s w1 refused held: job/z by z fence=1 since 0s until 10s, 1 waiting, waited 2s
            2s a released job/x held 2s
            2s w2 refused held: job/z by z fence=1 since 0s until 10s, waited 2s
            2s get job/x: free; b waits since 0s until 1s; last fence=2
            2s b refused held: job/x without a holder, waited 2s
        "#]],
    );
}

#[test]
fn waiter_whose_session_is_over_but_not_worked_off_is_not_granted() {
    check_with(
        |limits| limits.deadlines_per_step_max = 1,
        "
        0s z acquire job/1 ttl=1s
        0s z acquire job/2 ttl=1s
        0s b acquire job/x ttl=60s
        0s a open s ttl=1s
        0s a acquire job/x session=s wait
        0s c acquire job/x wait
        2s b release job/x
        2s tick
        2s tick
        2s get job/x
        ",
        expect![[r#"
            0s z granted job/1 fence=1 until 1s
            0s z granted job/2 fence=2 until 1s
            0s b granted job/x fence=3 until 60s
            0s s opened until 1s
            0s a queued job/x at 1
            0s c queued job/x at 2
            2s z expired job/1 fence=1
            2s b released job/x held 2s
            2s z expired job/2 fence=2
            2s a refused lease_lost
            2s s of a expired
            2s c granted job/x fence=4 until 12s waited 2s
            2s get job/x: held by c fence=4 since 2s until 12s
        "#]],
    );
}

#[test]
fn backlog_of_deadlines_is_worked_off_tick_by_tick() {
    check_with(
        |limits| limits.deadlines_per_step_max = 1,
        "
        0s a acquire job/1 ttl=1s
        0s a acquire job/2 ttl=1s
        0s b acquire job/2 wait
        2s deadline
        2s deadline
        2s deadline
        ",
        expect![[r#"
            0s a granted job/1 fence=1 until 1s
            0s a granted job/2 fence=2 until 1s
            0s b queued job/2 at 1
            2s a expired job/1 fence=1
            2s next deadline 1.001s
            2s a expired job/2 fence=2
            2s b granted job/2 fence=3 until 12s waited 2s
            2s next deadline 12.001s
            2s next deadline 12.001s
        "#]],
    );
}

#[test]
fn operator_ends_so_much_at_a_time() {
    check_with(
        |limits| limits.endings_per_step_max = 2,
        "
        0s a acquire path:/a/1
        0s b acquire path:/a/2
        0s c acquire path:/a/3
        0s d acquire path:/a/3 wait
        1s break path:/a/**
        1s break path:/a/**
        1s break path:/a/**
        2s a acquire inode:1@0..10
        2s b acquire inode:1@10..20
        2s c acquire inode:1@0..20 wait
        2s remove-file 1
        2s remove-file 1
        ",
        expect![[r#"
            0s a granted path:/a/1 fence=1 until 10s
            0s b granted path:/a/2 fence=2 until 10s
            0s c granted path:/a/3 fence=3 until 10s
            0s d queued path:/a/3 at 1
            1s break path:/a/** grants=2 and more
            1s a revoked path:/a/1 fence=1
            1s b revoked path:/a/2 fence=2
            1s break path:/a/** grants=1
            1s c revoked path:/a/3 fence=3
            1s d granted path:/a/3 fence=4 until 11s waited 1s
            1s break path:/a/** grants=1
            1s d revoked path:/a/3 fence=4
            2s a granted inode:1@0..10 fence=5 until 12s
            2s b granted inode:1@10..20 fence=6 until 12s
            2s c queued inode:1@0..20 at 1
            2s file 1 removed grants=1 waiters=1 and more
            2s c refused file_removed: inode 1
            2s a file_removed inode:1@0..10 fence=5
            2s file 1 removed grants=1 waiters=0
            2s b file_removed inode:1@10..20 fence=6
        "#]],
    );
}

#[test]
fn session_with_much_under_it_is_over_at_once_and_cleared_in_turns() {
    check_with(
        |limits| limits.endings_per_step_max = 2,
        "
        0s a open s ttl=60s
        0s a acquire job/1 session=s
        0s a acquire job/2 session=s
        0s a acquire job/3 session=s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 session=s
        0s b acquire job/3 wait
        0s c acquire inode:1@0..30 wait
        1s a close s
        1s get job/2
        1s get inode:1
        1s list
        1s a keepalive s
        1s a renew job/1
        1s d acquire job/2
        1s a close s
        1s tick
        1s tick
        1s tick
        1s get inode:1
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted job/1 fence=1 until 60s
            0s a granted job/2 fence=2 until 60s
            0s a granted job/3 fence=3 until 60s
            0s a granted inode:1@0..10 fence=4 until 60s
            0s a granted inode:1@20..30 fence=5 until 60s
            0s b queued job/3 at 1
            0s c queued inode:1@0..30 at 1
            1s s closed grants=5
            1s a closed job/1 fence=1
            1s a closed job/2 fence=2
            1s get job/2: free; last fence=2
            1s a closed job/3 fence=3
            1s a closed inode:1@0..10 fence=4
            1s b granted job/3 fence=6 until 11s waited 1s
            1s get inode:1: free; c waits for inode:1@0..30 since 0s; last fence=5
            1s a closed inode:1@20..30 fence=5
            1s s of a closed
            1s c granted inode:1@0..30 fence=7 until 11s waited 1s
            1s list inode:1@0..30 held by c fence=7 since 1s until 11s
            1s list job/3 held by b fence=6 since 1s until 11s
            1s list end
            1s s refused session_not_found (released)
            1s a refused lease_lost (released)
            1s d granted job/2 fence=8 until 11s
            1s s closed grants=5, as before
            1s get inode:1: held by c inode:1@0..30 fence=7 since 1s until 11s
        "#]],
    );
}

#[test]
fn waiters_of_a_session_that_ends_in_turns_are_told_in_turns() {
    check_with(
        |limits| limits.endings_per_step_max = 1,
        "
        0s z acquire job/x ttl=60s
        0s a open s ttl=1s
        0s a acquire job/1 session=s
        0s a acquire job/2 session=s
        0s a acquire job/x session=s wait
        0s b acquire job/x wait
        2s tick
        2s z release job/x
        2s tick
        2s tick
        2s tick
        2s get job/x
        ",
        expect![[r#"
            0s z granted job/x fence=1 until 60s
            0s s opened until 1s
            0s a granted job/1 fence=2 until 1s
            0s a granted job/2 fence=3 until 1s
            0s a queued job/x at 1
            0s b queued job/x at 2
            2s a refused lease_lost
            2s a expired job/1 fence=2
            2s z released job/x held 2s
            2s b granted job/x fence=4 until 12s waited 2s
            2s a expired job/2 fence=3
            2s s of a expired
            2s get job/x: held by b fence=4 since 2s until 12s
        "#]],
    );
}

#[test]
fn waiters_that_can_be_granted_at_once_are_granted_in_turns() {
    check_with(
        |limits| limits.endings_per_step_max = 2,
        "
        0s a acquire job/x
        0s b acquire job/x shared wait
        0s c acquire job/x shared wait
        0s d acquire job/x shared wait
        0s e acquire job/x wait
        1s a release job/x
        1s f acquire job/x
        1s deadline
        1s deadline
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b queued job/x at 1
            0s c queued job/x at 2
            0s d queued job/x at 3
            0s e queued job/x at 4
            1s a released job/x held 1s
            1s b granted job/x fence=2 until 11s waited 1s
            1s c granted job/x fence=3 until 11s waited 1s
            1s f refused held: job/x by b shared fence=2 since 1s until 11s and c shared fence=3 since 1s until 11s, 2 waiting
            1s d granted job/x fence=4 until 11s waited 1s
            1s next deadline 1s
            1s next deadline 11.001s
        "#]],
    );
}

#[test]
fn no_request_changes_more_of_its_own_ranges_than_a_step_may() {
    check_with(
        |limits| limits.own_ranges_per_step_max = 2,
        "
        0s a open s ttl=60s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 session=s
        0s a acquire inode:1@40..50 session=s
        0s a acquire inode:1 session=s
        0s a unlock inode:1 session=s
        0s a release inode:1
        0s a unlock inode:1@5..45 session=s
        0s a acquire inode:1@0..30 session=s
        0s a unlock inode:1 session=s
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted inode:1@0..10 fence=1 until 60s
            0s a granted inode:1@20..30 fence=2 until 60s
            0s a granted inode:1@40..50 fence=3 until 60s
            0s a refused own_ranges: inode:1 covers more than 2 ranges that the lease holds: name smaller parts
            0s a refused own_ranges: inode:1 covers more than 2 ranges that the lease holds: name smaller parts
            0s a refused own_ranges: inode:1 covers more than 2 ranges that the lease holds: name smaller parts
            0s a refused own_ranges: inode:1@5..45 covers more than 2 ranges that the lease holds: name smaller parts
            0s a granted inode:1@0..30 fence=4 until 60s
            0s a unlocked
            0s a released inode:1@0..30 fence=4
            0s a released inode:1@40..50 fence=3
        "#]],
    );
}

#[test]
fn more_queues_than_one_step_looks_at_are_looked_at_in_the_next() {
    check_with(
        |limits| limits.endings_per_step_max = 2,
        "
        0s z acquire path:/data/**
        0s a acquire path:/data/1 wait
        0s b acquire path:/data/2 wait
        0s c acquire path:/data/3 wait
        0s d acquire path:/data/4 wait
        0s e acquire path:/data/5 wait
        0s f acquire path:/data/5 wait
        1s z release path:/data/**
        1s g acquire path:/data/4
        1s tick
        1s tick
        1s tick
        1s tick
        ",
        expect![[r#"
            0s z granted path:/data/** fence=1 until 10s
            0s a queued path:/data/1 at 1
            0s b queued path:/data/2 at 1
            0s c queued path:/data/3 at 1
            0s d queued path:/data/4 at 1
            0s e queued path:/data/5 at 1
            0s f queued path:/data/5 at 2
            1s z released path:/data/** held 1s
            1s a granted path:/data/1 fence=2 until 11s waited 1s
            1s b granted path:/data/2 fence=3 until 11s waited 1s
            1s g refused held: path:/data/4 without a holder, 1 waiting
            1s c granted path:/data/3 fence=4 until 11s waited 1s
            1s d granted path:/data/4 fence=5 until 11s waited 1s
            1s e granted path:/data/5 fence=6 until 11s waited 1s
        "#]],
    );
}
