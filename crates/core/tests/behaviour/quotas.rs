//! Quotas of a principal and of a namespace.

use std::time::Duration;

use expect_test::expect;

use crate::script::{check_with, check_within};

#[test]
fn locks_of_a_principal_are_counted_in_all_namespaces() {
    check_within(
        |quotas| quotas.principal.locks = 2,
        "
        0s a@red acquire job/x
        0s b@red acquire job/x in=other
        0s c@red acquire job/y
        0s c@red acquire {job/y, job/z}
        0s a@blue acquire job/y
        1s b@red release job/x in=other
        1s c@red acquire job/z
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            0s b@red granted job/x fence=2 until 10s
            0s c@red refused quota: the principal may have 2 locks and no more
            0s c@red refused quota: the principal may have 2 locks and no more
            0s a@blue granted job/y fence=3 until 10s
            1s b@red released job/x held 1s
            1s c@red granted job/z fence=4 until 11s
        "#]],
    );
}

#[test]
fn anonymous_principal_has_no_quota_of_its_own() {
    check_within(
        |quotas| quotas.principal.locks = 1,
        "
        0s a acquire job/x
        0s a acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
        "#]],
    );
}

#[test]
fn locks_of_a_namespace_are_those_of_all_principals() {
    check_within(
        |quotas| quotas.namespace.locks = 2,
        "
        0s a@red acquire job/x
        0s b acquire job/y
        0s a@blue acquire job/z
        0s a@blue acquire job/z in=other
        1s b release job/y
        1s a@blue acquire job/z
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            0s a@blue refused quota: the namespace may have 2 locks and no more
            0s a@blue granted job/z fence=3 until 10s
            1s b released job/y held 1s
            1s a@blue granted job/z fence=4 until 11s
        "#]],
    );
}

#[test]
fn locks_and_bytes_of_the_server_are_limited() {
    check_with(
        |limits| limits.locks_max = 2,
        "
        0s a acquire job/x
        0s a acquire job/y in=other
        0s b acquire job/z
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            0s b refused quota: the server may have 2 locks and no more
        "#]],
    );
    check_with(
        |limits| limits.bytes_max = 20,
        "
        0s a acquire job/x meta=0123456789
        0s a acquire job/y meta=012345678
        0s a acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a refused quota: the server may have 20 bytes of names and metadata and no more
            0s a granted job/y fence=2 until 10s
        "#]],
    );
}

#[test]
fn what_is_waited_for_counts_as_held() {
    check_within(
        |quotas| quotas.principal.locks = 2,
        "
        0s a@red acquire job/x
        0s b@red acquire job/x wait=60s
        0s c@red acquire job/y
        1s b@red cancel job/x
        1s c@red acquire job/y
        1s d@red acquire job/x wait=60s
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            0s b@red queued job/x at 1
            0s c@red refused quota: the principal may have 2 locks and no more
            1s b@red cancelled
            1s c@red granted job/y fence=2 until 11s
            1s d@red refused quota: the principal may have 2 locks and no more
        "#]],
    );
}

#[test]
fn grant_of_a_waiter_never_exceeds_a_quota() {
    check_within(
        |quotas| quotas.principal.locks = 1,
        "
        0s a@blue acquire job/x
        0s b@red acquire job/x wait=60s
        0s b@red acquire job/y
        1s a@blue release job/x
        1s b@red acquire job/y
        ",
        expect![[r#"
            0s a@blue granted job/x fence=1 until 10s
            0s b@red queued job/x at 1
            0s b@red refused quota: the principal may have 1 locks and no more
            1s a@blue released job/x held 1s
            1s b@red granted job/x fence=2 until 11s waited 1s
            1s b@red refused quota: the principal may have 1 locks and no more
        "#]],
    );
}

#[test]
fn waiters_and_their_bytes_have_quotas() {
    check_within(
        |quotas| (quotas.principal.waiters, quotas.principal.waiter_bytes) = (2, 19),
        "
        0s a acquire job/x
        0s b@red acquire job/x wait=60s
        0s c@red acquire job/x wait=60s meta=0123456789
        0s c@red acquire job/x wait=60s meta=0123456
        0s d@red acquire job/x wait=60s
        0s d@blue acquire job/x wait=60s
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b@red queued job/x at 1
            0s c@red refused quota: the principal may have 19 bytes of waiting requests and no more
            0s c@red queued job/x at 2
            0s d@red refused quota: the principal may have 2 waiting requests and no more
            0s d@blue queued job/x at 3
        "#]],
    );
}

#[test]
fn sessions_have_a_quota_and_an_upper_limit() {
    check_within(
        |quotas| quotas.principal.sessions = 1,
        "
        0s a@red open s1
        0s b@red open s2
        0s b@blue open s3
        1s close s1 by=red
        1s b@red open s4
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 refused quota: the principal may have 1 sessions and no more
            0s s3 opened until 10s
            1s s1 closed grants=0
            1s s4 opened until 11s
        "#]],
    );
    check_with(
        |limits| limits.sessions_max = 1,
        "
        0s a open s1 adapter=nfs
        0s b open s2 adapter=smb
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 refused quota: the server may have 1 sessions and no more
        "#]],
    );
}

#[test]
fn bytes_of_a_file_are_one_lock_or_two() {
    check_within(
        |quotas| quotas.principal.locks = 2,
        "
        0s a@red open s
        0s a@red acquire inode:1@0..100 session=s
        0s a@red unlock inode:1@10..20 session=s
        0s a@red unlock inode:1@30..40 session=s
        0s a@red unlock inode:1@0..10 session=s
        0s a@red unlock inode:1@30..40 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a@red granted inode:1@0..100 fence=1 until 10s
            0s a@red unlocked
            0s a released inode:1@10..20 fence=1
            0s a@red refused quota: the principal may have 2 locks and no more
            0s a@red unlocked
            0s a released inode:1@0..10 fence=1
            0s a@red unlocked
            0s a released inode:1@30..40 fence=1
        "#]],
    );
}

#[test]
fn reclaim_window_is_taken_back_at_the_quota() {
    check_within(
        |quotas| quotas.principal.locks = 1,
        "
        0s a@red acquire job/x ttl=1s window=60s
        5s a@red acquire job/y
        5s a@red acquire job/x
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 1s
            5s a expired job/x fence=1, reclaim window 60s
            5s a@red refused quota: the principal may have 1 locks and no more
            5s a@red granted job/x fence=2 until 15s
            5s a reclaimed job/x fence=1
        "#]],
    );
}

#[test]
fn namespaces_and_registers_have_quotas() {
    check_within(
        |quotas| (quotas.principal.namespaces, quotas.principal.registers) = (1, 2),
        "
        0s a@red acquire job/x in=one
        0s a@red acquire job/x in=two
        0s a@red open s in=two
        0s a@blue acquire job/x in=two
        0s accept tape 1 in=one by=red
        0s accept tape 1 in=two by=red
        0s accept disk 1 in=one by=red
        0s accept disc 1 in=one by=red
        0s accept tape 1 in=two by=blue
        1s a@red release job/x in=one
        1s a@red acquire job/y in=two
        1s delete disk in=one
        1s accept disc 1 in=one by=red
        ",
        expect![[r#"
            0s a@red granted job/x fence=1 until 10s
            0s a@red refused quota: the principal may have 1 namespaces in use and no more
            0s s refused quota: the principal may have 1 namespaces in use and no more
            0s a@blue granted job/x fence=2 until 10s
            0s register tape accepted, mark 1
            0s register tape refused quota: the principal may have 1 namespaces in use and no more
            0s register disk accepted, mark 1
            0s register disc refused quota: the principal may have 2 fence registers and no more
            0s register tape accepted, mark 1
            1s a@red released job/x held 1s
            1s a@red granted job/y fence=3 until 11s
            1s register disk deleted, mark was 1
            1s register disc accepted, mark 1
        "#]],
    );
}

#[test]
fn lengths_are_those_of_the_role() {
    let second = Duration::from_secs(1);
    check_within(
        |quotas| {
            (quotas.ttl_max, quotas.wait_max, quotas.reclaim_max) = (5 * second, second, second);
        },
        "
        0s a@red acquire job/x ttl=6s
        0s a@red acquire job/x ttl=5s window=2s
        0s a@red acquire job/x ttl=5s wait=2s
        0s a@red acquire job/x ttl=5s window=1s wait=1s
        0s a@red renew job/x ttl=6s
        0s a@red renew job/x ttl=4s
        0s a@red open s ttl=6s
        0s a@red open s ttl=5s keep=6s
        0s b@red acquire job/x ttl=5s wait
        2s tick
        ",
        expect![[r#"
            0s a@red refused invalid: ttl is 6000 ms; it must be 100 to 5000 ms
            0s a@red refused invalid: reclaim window is 2000 ms, the limit is 1000 ms
            0s a@red refused invalid: wait is 2000 ms, the limit is 1000 ms
            0s a@red granted job/x fence=1 until 5s
            0s a@red refused invalid: ttl is 6000 ms; it must be 100 to 5000 ms
            0s a@red renewed job/x until 4s
            0s a has ttl 4s
            0s s refused invalid: ttl is 6000 ms; it must be 100 to 5000 ms
            0s s refused invalid: disconnect ttl is 6000 ms, the limit is 5000 ms
            0s b@red queued job/x at 1
            2s b@red refused held: job/x by a@red fence=1 since 0s until 4s, waited 2s
        "#]],
    );
}
