//! Every limit, and everything that can be wrong with a request in itself.

use std::time::Duration;

use expect_test::expect;

use crate::script::{check, check_with, transcript};

#[test]
fn waiters_of_one_scope_are_limited() {
    check_with(
        |limits| limits.waiters_per_scope_max = 2,
        "
        0s a acquire job/x
        0s b acquire job/x wait
        0s c acquire job/x wait
        0s d acquire job/x wait
        0s d acquire {job/y, job/x} wait
        1s b cancel job/x
        1s d acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b queued job/x at 1
            0s c queued job/x at 2
            0s d refused waiters_per_scope: 2 requests wait for job/x already
            0s d refused waiters_per_scope: 2 requests wait for job/x already
            1s b cancelled
            1s d queued job/x at 2
        "#]],
    );
}

#[test]
fn waiters_of_one_byte_range_are_limited() {
    check_with(
        |limits| limits.waiters_per_scope_max = 1,
        "
        0s a acquire inode:1
        0s b acquire inode:1@0..10 wait
        0s c acquire inode:1@0..10 wait
        ",
        expect![[r#"
            0s a granted inode:1 fence=1 until 10s
            0s b queued inode:1@0..10 at 1
            0s c refused waiters_per_scope: 1 requests wait for inode:1@0..10 already
        "#]],
    );
}

#[test]
fn waiters_of_the_server_are_limited() {
    check_with(
        |limits| limits.waiters_max = 2,
        "
        0s a acquire job/x
        0s a acquire job/x in=red
        0s b acquire job/x wait
        0s c acquire job/x wait in=red
        0s d acquire job/x wait
        0s d acquire job/x
        0s d acquire job/y wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/x fence=2 until 10s
            0s b queued job/x at 1
            0s c queued job/x at 1
            0s d refused waiters: 2 requests wait on this server already
            0s d refused held: job/x by a fence=1 since 0s until 10s, 1 waiting
            0s d granted job/y fence=3 until 10s
        "#]],
    );
}

#[test]
fn kept_place_may_be_taken_up_at_the_limit() {
    check_with(
        |limits| limits.waiters_max = 1,
        "
        0s a acquire job/x ttl=60s
        0s b acquire job/x wait=5s keep
        6s c acquire job/x wait
        7s b acquire job/x wait ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            0s b queued job/x at 1
            6s b refused held: job/x by a fence=1 since 0s until 60s, waited 6s, place 1 kept
            6s c refused waiters: 1 requests wait on this server already
            7s b queued job/x at 1
        "#]],
    );
}

#[test]
fn locks_of_one_session_are_limited() {
    check_with(
        |limits| limits.locks_per_session_max = 2,
        "
        0s a open s
        0s a acquire job/x session=s
        0s a acquire {job/y, job/z} session=s
        0s a acquire job/y session=s
        0s a acquire job/z session=s
        1s a release job/x
        1s a acquire job/z session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a refused locks_per_session: the session holds 2 locks already
            0s a granted job/y fence=2 until 10s
            0s a refused locks_per_session: the session holds 2 locks already
            1s a released job/x held 1s
            1s a granted job/z fence=3 until 10s
        "#]],
    );
}

#[test]
fn piece_that_may_split_needs_room_for_two() {
    check_with(
        |limits| limits.locks_per_session_max = 3,
        "
        0s a open s
        0s a acquire inode:1@0..100 session=s
        0s a acquire inode:1@40..60 shared session=s
        0s a acquire inode:2 session=s
        0s session s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            0s a granted inode:1@40..60 fence=2 until 10s
            0s a replaced inode:1@40..60 fence=1
            0s a refused locks_per_session: the session holds 3 locks already
            0s session s of a by http ttl 10s until 10s grants=3 waiters=0
        "#]],
    );
}

#[test]
fn limit_on_locks_holds_for_those_who_waited() {
    check_with(
        |limits| limits.locks_per_session_max = 2,
        "
        0s b acquire job/x
        0s b acquire job/y
        0s b acquire job/z
        0s a open s
        0s a acquire job/x session=s wait
        0s a acquire job/y session=s wait
        0s a acquire job/z session=s wait
        1s b release job/x
        1s b release job/y
        1s session s
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            0s b granted job/z fence=3 until 10s
            0s s opened until 10s
            0s a queued job/x at 1
            0s a queued job/y at 1
            0s a refused locks_per_session: the session holds 2 locks already
            1s b released job/x held 1s
            1s a granted job/x fence=4 until 10s waited 1s
            1s b released job/y held 1s
            1s a granted job/y fence=5 until 10s waited 1s
            1s session s of a by http ttl 10s until 10s grants=2 waiters=0
        "#]],
    );
}

#[test]
fn sessions_of_one_adapter_are_limited() {
    check_with(
        |limits| limits.sessions_per_adapter_max = 1,
        "
        0s a open s1 adapter=nlm
        0s a open s2 adapter=nlm in=red
        0s a open s3 adapter=smb
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 refused session_limit: adapter nlm has 1 sessions already
            0s s3 opened until 10s
        "#]],
    );
}

#[test]
fn registers_of_one_namespace_are_limited() {
    check_with(
        |limits| limits.registers_per_namespace_max = 1,
        "
        0s accept disk 5
        0s accept tape 5
        0s accept disk 6
        0s accept tape 5 in=red
        ",
        expect![[r#"
            0s register disk accepted, mark 5
            0s register tape refused registers: namespace default has 1 fence registers already
            0s register disk accepted, mark 6
            0s register tape accepted, mark 5
        "#]],
    );
}

#[test]
fn namespaces_in_use_are_limited() {
    check_with(
        |limits| limits.namespaces_max = 2,
        "
        0s a acquire job/x in=red
        0s a open s in=blue
        0s a acquire job/x in=green
        0s a open t in=green
        0s accept disk 1 in=green
        1s a release job/x in=red
        1s a acquire job/x in=green
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 10s
            0s a refused namespaces: there are 2 namespaces in use already
            0s t refused namespaces: there are 2 namespaces in use already
            0s register disk refused namespaces: there are 2 namespaces in use already
            1s a released job/x held 1s
            1s a granted job/x fence=2 until 11s
        "#]],
    );
}

#[test]
fn refused_requests_use_up_no_namespace() {
    check_with(
        |limits| limits.namespaces_max = 1,
        "
        0s a acquire job/x session=unknown in=red
        0s a acquire job/x reclaim in=green
        0s a acquire job/x in=blue
        ",
        expect![[r#"
            0s a refused session_not_found
            0s a refused no_grace
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}

#[test]
fn ttl_has_a_least_and_a_greatest_length() {
    check(
        "
        0s a acquire job/x ttl=99ms
        0s a acquire job/x ttl=86400001ms
        0s a open s ttl=99ms
        0s a acquire job/x ttl=100ms
        0s a acquire job/y ttl=24h
        0s a renew job/y ttl=99ms
        0s a renew job/y ttl=86400001ms
        0s a open t ttl=24h
        0s keepalive t ttl=99ms
        ",
        expect![[r#"
            0s a refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
            0s a refused invalid: ttl is 86400001 ms; it must be 100 to 86400000 ms
            0s s refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
            0s a granted job/x fence=1 until 0.1s
            0s a granted job/y fence=2 until 86400s
            0s a refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
            0s a refused invalid: ttl is 86400001 ms; it must be 100 to 86400000 ms
            0s t opened until 86400s
            0s t refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
        "#]],
    );
}

#[test]
fn ttl_that_no_number_can_hold_is_refused() {
    check_with(
        |limits| limits.lease_ttl_max = Duration::MAX,
        "0s a acquire job/x ttl=1200h | 0s a acquire job/x ttl=1193h",
        expect![[r#"
            0s a refused invalid: ttl is 4320000000 ms; it must be 100 to 18446744073709551615999 ms
            0s a granted job/x fence=1 until 4294800s
        "#]],
    );
}

#[test]
fn disconnect_ttl_has_a_greatest_length() {
    check(
        "0s a open s keep=86400001ms | 0s a open t keep=24h",
        expect![[r#"
            0s s refused invalid: disconnect ttl is 86400001 ms, the limit is 86400000 ms
            0s t opened until 10s
        "#]],
    );
}

#[test]
fn reclaim_window_has_a_greatest_length() {
    check(
        "0s a acquire job/x window=86400001ms | 0s a acquire job/x window=24h",
        expect![[r#"
            0s a refused invalid: reclaim window is 86400001 ms, the limit is 86400000 ms
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}

#[test]
fn wait_has_a_greatest_length() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x wait=86400001ms
        0s b acquire job/x wait=24h
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused invalid: wait is 86400001 ms, the limit is 86400000 ms
            0s b queued job/x at 1
        "#]],
    );
}

#[test]
fn set_of_more_than_64_is_refused() {
    let members: Vec<String> = (0..65).map(|number| format!("job/{number}")).collect();
    let set = format!("{{{}}}", members.join(", "));
    assert_eq!(
        transcript(&format!("0s a acquire {set}")),
        "0s a refused invalid: a set has 1 to 64 scopes, not 65\n"
    );
}

#[test]
fn permits_cannot_be_had_on_byte_ranges() {
    check(
        "
        0s a acquire inode:1@0..10 permits=2
        0s a acquire {job/x, inode:1 permits=2}
        ",
        expect![[r#"
            0s a refused invalid: permits cannot be had on inode:1@0..10: byte ranges are shared or exclusive
            0s a refused invalid: permits cannot be had on inode:1: byte ranges are shared or exclusive
        "#]],
    );
}

#[test]
fn semaphore_has_a_greatest_limit() {
    check_with(
        |limits| limits.permits_max = 3,
        "0s a acquire pool permits=4 | 0s a acquire {job/x, pool permits=4} | 0s a acquire pool permits=3",
        expect![[r#"
            0s a refused invalid: a limit of 4 permits is too high, the most is 3
            0s a refused invalid: a limit of 4 permits is too high, the most is 3
            0s a granted pool fence=1 until 10s
        "#]],
    );
}

#[test]
fn metadata_has_a_greatest_size() {
    check_with(
        |limits| limits.metadata_bytes_max = 4,
        "
        0s a acquire job/x meta=12345
        0s a open s meta=12345
        0s a acquire job/x meta=1234
        0s a open s meta=1234
        ",
        expect![[r#"
            0s a refused invalid: metadata has 5 bytes, the limit is 4
            0s s refused invalid: metadata has 5 bytes, the limit is 4
            0s a granted job/x fence=1 until 10s
            0s s opened until 10s
        "#]],
    );
}

#[test]
fn lease_id_that_is_in_use_is_refused() {
    check(
        "
        0s a open s
        0s a acquire job/x as=l ttl=10s window=5s
        0s a acquire job/y lease=s
        0s a acquire job/y lease=l
        0s b open t lease=l
        11s a acquire job/y lease=l
        15.001s a acquire job/y lease=l
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a refused invalid: the lease id is in use
            0s a refused invalid: the lease id is in use
            0s l refused invalid: the lease id is in use
            11s s of a expired
            11s a expired job/x fence=1, reclaim window 5s
            11s a refused invalid: the lease id is in use
            15.001s a window_over job/x fence=1
            15.001s a granted job/y fence=2 until 25.001s
        "#]],
    );
}

#[test]
fn fault_is_found_before_anything_else_is_looked_at() {
    check(
        "
        0s suspend
        0s a acquire job/x ttl=1ms
        ",
        expect![[r#"
            0s server suspended
            0s a refused invalid: ttl is 1 ms; it must be 100 to 86400000 ms
        "#]],
    );
}

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
            2s check job/8 fence=8: not good, a fence=8 since 0s until 1s
            2s a expired job/2 fence=2
            2s a refused lease_lost
            2s a expired job/8 fence=8
            2s a expired job/3 fence=3
            2s b granted job/7 fence=9 until 12s
            2s a expired job/7 fence=7
            2s a expired job/4 fence=4
            2s a refused not_holder: job/6
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
            2s get job/x: free; b waits since 0s until 1s
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
