//! Every limit of the server.

use expect_test::expect;

use crate::script::{check, check_with};

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
            6s c queued job/x at 1
            7s b queued job/x at 1
        "#]],
    );
}

#[test]
fn kept_places_take_no_room_from_those_who_wait() {
    check_with(
        |limits| {
            limits.waiters_max = 1;
            limits.waiters_per_scope_max = 1;
        },
        "
        0s a acquire job/x ttl=60s
        0s b acquire job/x wait=1ms keep
        0.002s c acquire job/x wait=1ms keep
        0.004s d acquire job/x wait=1ms keep
        0.006s e acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            0s b queued job/x at 1
            0.002s b refused held: job/x by a fence=1 since 0s until 60s, waited 0.002s, place 1 kept
            0.002s c queued job/x at 1
            0.004s c refused held: job/x by a fence=1 since 0s until 60s, waited 0.002s, place 1 kept
            0.004s d queued job/x at 1
            0.006s d refused held: job/x by a fence=1 since 0s until 60s, waited 0.002s, place 1 kept
            0.006s e queued job/x at 1
        "#]],
    );
}

#[test]
fn kept_places_are_limited_and_the_oldest_goes_first() {
    check_with(
        |limits| limits.kept_places_max = 2,
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait
        1s c acquire job/x wait
        1s d acquire job/x wait
        2s c break-off job/x
        3s b break-off job/x
        4s d break-off job/x
        5s c acquire job/x wait ticket
        5s d acquire job/x wait ticket
        5s b acquire job/x wait ticket
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            1s c queued job/x at 2
            1s d queued job/x at 3
            2s c cancelled
            3s b cancelled
            4s d cancelled
            5s c refused ticket_not_found
            5s d queued job/x at 1
            5s b queued job/x at 1
        "#]],
    );
}

#[test]
fn no_places_are_kept_where_none_may_be() {
    check_with(
        |limits| limits.kept_places_max = 0,
        "
        0s a acquire job/x ttl=60s
        1s b acquire job/x wait=1s keep
        1s c acquire job/x wait
        2.001s tick
        3s c acquire job/x wait ticket
        4s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s b queued job/x at 1
            1s c queued job/x at 2
            2.001s b refused held: job/x by a fence=1 since 0s until 60s, 1 waiting, waited 1.001s
            3s c refused ticket_not_found
            4s a released job/x held 4s
            4s c granted job/x fence=2 until 14s waited 3s
        "#]],
    );
}

#[test]
fn kept_places_take_no_room_in_a_session() {
    check_with(
        |limits| limits.locks_per_session_max = 1,
        "
        0s b acquire job/x ttl=60s
        0s a open s ttl=60s
        1s a acquire job/x session=s wait=1s keep
        2.001s a acquire job/y session=s
        3s a acquire job/x session=s wait ticket
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 60s
            0s s opened until 60s
            1s a queued job/x at 1
            2.001s a refused held: job/x by b fence=1 since 0s until 60s, waited 1.001s, place 1 kept
            2.001s a granted job/y fence=2 until 60s
            3s a refused locks_per_session: the session holds 1 locks already
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
fn unlocking_the_middle_of_a_range_needs_room_for_what_it_leaves() {
    check_with(
        |limits| limits.locks_per_session_max = 2,
        "
        0s a open s
        0s a acquire inode:1@0..100 session=s
        0s a unlock inode:1@10..20 session=s
        0s a unlock inode:1@50..60 session=s
        0s a release inode:1@50..60
        0s a unlock inode:1@50.. session=s
        0s session s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            0s a unlocked
            0s a released inode:1@10..20 fence=1
            0s a refused locks_per_session: the session holds 2 locks already
            0s a refused locks_per_session: the session holds 2 locks already
            0s a unlocked
            0s a released inode:1@50..100 fence=1
            0s session s of a by http ttl 10s until 10s grants=2 waiters=0
        "#]],
    );
}

/// It lapses in one step, so that its windows all begin at one moment.
#[test]
fn session_with_reclaim_windows_holds_less() {
    check_with(
        |limits| limits.windowed_locks_per_session_max = 2,
        "
        0s b acquire job/z
        0s a open s
        0s a acquire job/1 session=s
        0s a acquire job/2 session=s
        0s a acquire job/3 session=s window=5s
        0s a release job/2
        0s a acquire job/z session=s window=5s wait
        0s a acquire job/3 session=s
        1s b release job/z
        1s a acquire job/3 session=s
        1s a release job/z
        1s a acquire job/3 session=s
        1s a acquire job/4 session=s
        ",
        expect![[r#"
            0s b granted job/z fence=1 until 10s
            0s s opened until 10s
            0s a granted job/1 fence=2 until 10s
            0s a granted job/2 fence=3 until 10s
            0s a refused locks_per_session: a session in which locks have reclaim windows holds at most 2 locks
            0s a released job/2 held 0s
            0s a queued job/z at 1
            0s a refused locks_per_session: a session in which locks have reclaim windows holds at most 2 locks
            1s b released job/z held 1s
            1s a granted job/z fence=4 until 10s waited 1s
            1s a refused locks_per_session: a session in which locks have reclaim windows holds at most 2 locks
            1s a released job/z held 0s
            1s a granted job/3 fence=5 until 10s
            1s a granted job/4 fence=6 until 10s
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
        0s jump epoch=1 fence=100
        0s accept disk 5
        0s accept tape 5
        0s accept disk 6
        0s accept tape 5 in=red
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk accepted, mark 5
            0s register tape refused registers: namespace default has 1 fence registers already
            0s register disk accepted, mark 6
            0s register tape accepted, mark 5
        "#]],
    );
}

#[test]
fn registers_of_all_namespaces_are_limited() {
    check_with(
        |limits| limits.registers_max = 2,
        "
        0s jump epoch=1 fence=100
        0s accept disk 5
        0s accept disk 5 in=red
        0s accept disk 5 in=blue
        0s accept disk 6 in=red
        0s delete disk
        0s accept disk 5 in=blue
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk accepted, mark 5
            0s register disk accepted, mark 5
            0s register disk refused registers in all: there are 2 fence registers already
            0s register disk accepted, mark 6
            0s register disk deleted, mark was 5
            0s register disk accepted, mark 5
        "#]],
    );
}

#[test]
fn registers_use_up_no_namespace() {
    check_with(
        |limits| limits.namespaces_max = 1,
        "
        0s jump epoch=1 fence=100
        0s accept disk 5 in=red
        0s accept disk 5 in=blue
        0s a acquire job/x in=green
        0s accept disk 5
        0s stats
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk accepted, mark 5
            0s register disk accepted, mark 5
            0s a granted job/x fence=101 until 10s
            0s register disk accepted, mark 5
            0s stats epoch=1 fence=101 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn tokens_have_an_end() {
    check(
        "
        0s jump epoch=1 fence=9007199254740989
        0s a acquire job/x ttl=30s as=l
        0s b acquire job/x wait
        0s c acquire job/x wait
        1s c acquire job/y
        1s c acquire job/z
        1s d acquire job/x wait
        2s a renew job/x
        3s a release job/x
        3s get job/x
        4s restart
        4s epoch conflicting
        5s b acquire job/x
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 9007199254740989
            0s a granted job/x fence=9007199254740990 until 30s
            0s b queued job/x at 1
            0s c queued job/x at 2
            1s c granted job/y fence=9007199254740991 until 11s
            1s c refused tokens: the fencing tokens are used up: the last one, 9007199254740991, was issued
            1s d refused tokens: the fencing tokens are used up: the last one, 9007199254740991, was issued
            2s a renewed job/x until 32s
            3s a released job/x held 3s
            3s b refused tokens: the fencing tokens are used up: the last one, 9007199254740991, was issued
            3s c refused tokens: the fencing tokens are used up: the last one, 9007199254740991, was issued
            3s get job/x: free; last fence=9007199254740990
            4s server restarted
            4s epoch 2 begun recovering=1
            5s b refused tokens: the fencing tokens are used up: the last one, 9007199254740991, was issued
        "#]],
    );
}

#[test]
fn namespaces_in_use_are_limited() {
    check_with(
        |limits| limits.namespaces_max = 2,
        "
        0s jump epoch=1 fence=100
        0s a acquire job/x in=red
        0s a open s in=blue
        0s a acquire job/x in=green
        0s a open t in=green
        0s accept disk 1 in=green
        1s a release job/x in=red
        1s a acquire job/x in=green
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s a granted job/x fence=101 until 10s
            0s s opened until 10s
            0s a refused namespaces: there are 2 namespaces in use already
            0s t refused namespaces: there are 2 namespaces in use already
            0s register disk accepted, mark 1
            1s a released job/x held 1s
            1s a granted job/x fence=102 until 11s
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
            0s a refused session_not_found (unknown)
            0s a refused no_grace
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}
