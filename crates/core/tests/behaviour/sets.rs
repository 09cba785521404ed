//! Sets: several scopes in one step, all or nothing.

use expect_test::expect;

use crate::script::{check, transcript};

#[test]
fn set_is_granted_whole_with_one_lease_and_one_fence() {
    check(
        "
        0s a acquire {job/x, path:/srv/** shared, inode:1@0..10, pool permits=3} ttl=10s
        0s stats
        0s list
        5s a renew job/x
        15.001s tick
        ",
        expect![[r#"
            0s a granted {job/x, path:/srv/**, inode:1@0..10, pool} fence=1 until 10s
            0s stats epoch=0 fence=1 namespaces=1 grants=4 leases=1 sessions=0 recovering=0 waiters=0
            0s list inode:1@0..10 held by a fence=1 since 0s until 10s
            0s list job/x held by a fence=1 since 0s until 10s
            0s list path:/srv/** held by a shared fence=1 since 0s until 10s
            0s list pool held by a permits=3 fence=1 since 0s until 10s
            0s list end
            5s a renewed job/x until 15s
            15.001s a expired job/x fence=1
            15.001s a expired path:/srv/** shared fence=1
            15.001s a expired pool permits=3 fence=1
            15.001s a expired inode:1@0..10 fence=1
        "#]],
    );
}

#[test]
fn set_is_refused_whole() {
    check(
        "
        0s a acquire job/y
        1s b acquire {job/x, job/y, job/z}
        1s get job/x
        1s get job/z
        ",
        expect![[r#"
            0s a granted job/y fence=1 until 10s
            1s b refused held: job/y by a fence=1 since 0s until 10s
            1s get job/x: free
            1s get job/z: free
        "#]],
    );
}

#[test]
fn set_of_64_is_granted() {
    let members: Vec<String> = (0..64).map(|number| format!("job/{number}")).collect();
    let set = format!("{{{}}}", members.join(", "));
    assert_eq!(
        transcript(&format!("0s a acquire {set} | 0s a release job/63")).lines().count(),
        2 + 63,
        "one grant, one release, and the end of 63 more"
    );
}

#[test]
fn set_holds_nothing_while_it_waits() {
    check(
        "
        0s a acquire job/y
        1s b acquire {job/x, job/y} wait
        2s get job/x
        2s stats
        3s a release job/y
        ",
        expect![[r#"
            0s a granted job/y fence=1 until 10s
            1s b queued {job/x, job/y} at 1
            2s get job/x: free; b waits since 1s
            2s stats epoch=0 fence=1 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=1
            3s a released job/y held 3s
            3s b granted {job/x, job/y} fence=2 until 13s waited 2s
        "#]],
    );
}

#[test]
fn waiting_set_keeps_its_place_in_every_queue() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s c acquire {job/x, job/y} wait
        2s d acquire job/x wait
        2s e acquire job/y wait
        3s a release job/x
        4s b release job/y
        5s c release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s c queued {job/x, job/y} at 1
            2s d queued job/x at 2
            2s e queued job/y at 2
            3s a released job/x held 3s
            4s b released job/y held 4s
            4s c granted {job/x, job/y} fence=3 until 14s waited 3s
            5s c released job/x held 1s
            5s c released job/y fence=3
            5s d granted job/x fence=4 until 15s waited 3s
            5s e granted job/y fence=5 until 15s waited 3s
        "#]],
    );
}

#[test]
fn waiting_set_blocks_later_comers_even_where_it_is_free() {
    check(
        "
        0s a acquire job/y
        1s b acquire {job/x, job/y} wait
        2s c acquire job/x
        2s c acquire job/x wait
        3s b cancel job/x
        ",
        expect![[r#"
            0s a granted job/y fence=1 until 10s
            1s b queued {job/x, job/y} at 1
            2s c refused held: job/x without a holder, 1 waiting
            2s c queued job/x at 2
            3s b cancelled
            3s c granted job/x fence=2 until 13s waited 1s
        "#]],
    );
}

#[test]
fn shared_member_of_a_waiting_set_lets_readers_pass() {
    check(
        "
        0s a acquire job/y
        1s b acquire {job/x shared, job/y} wait
        2s c acquire job/x shared
        2s d acquire job/x
        ",
        expect![[r#"
            0s a granted job/y fence=1 until 10s
            1s b queued {job/x, job/y} at 1
            2s c granted job/x fence=2 until 12s
            2s d refused held: job/x by c shared fence=2 since 2s until 12s, 1 waiting
        "#]],
    );
}

#[test]
fn sets_that_overlap_wait_in_order() {
    check(
        "
        0s a acquire {job/x, job/y}
        1s b acquire {job/y, job/z} wait
        2s c acquire {job/z, job/w} wait
        3s d acquire {job/w} wait
        4s a release job/x
        5s b release job/z
        6s c release job/w
        ",
        expect![[r#"
            0s a granted {job/x, job/y} fence=1 until 10s
            1s b queued {job/y, job/z} at 1
            2s c queued {job/z, job/w} at 2
            3s d queued job/w at 2
            4s a released job/x held 4s
            4s a released job/y fence=1
            4s b granted {job/y, job/z} fence=2 until 14s waited 3s
            5s b released job/z held 1s
            5s b released job/y fence=2
            5s c granted {job/z, job/w} fence=3 until 15s waited 3s
            6s c released job/w held 1s
            6s c released job/z fence=3
            6s d granted job/w fence=4 until 16s waited 3s
        "#]],
    );
}

#[test]
fn set_waiting_elsewhere_does_not_hold_up_those_it_shares_with() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s c acquire {job/x shared, job/y} wait
        2s d acquire job/x shared wait
        3s a release job/x
        4s b release job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s c queued {job/x, job/y} at 1
            2s d queued job/x at 2
            3s a released job/x held 3s
            3s d granted job/x fence=3 until 13s waited 1s
            4s b released job/y held 4s
            4s c granted {job/x, job/y} fence=4 until 14s waited 3s
        "#]],
    );
}

#[test]
fn releasing_one_scope_of_a_set_releases_all_of_it() {
    check(
        "
        0s a acquire {job/x, path:/srv/a, inode:1@0..10}
        1s b acquire inode:1 wait
        2s a release path:/srv/a
        ",
        expect![[r#"
            0s a granted {job/x, path:/srv/a, inode:1@0..10} fence=1 until 10s
            1s b queued inode:1 at 1
            2s a released path:/srv/a held 2s
            2s a released job/x fence=1
            2s a released inode:1@0..10 fence=1
            2s b granted inode:1 fence=2 until 12s waited 1s
        "#]],
    );
}

#[test]
fn releasing_bytes_of_a_set_releases_just_them() {
    check(
        "
        0s a acquire {job/x, inode:1@0..10}
        2s a release inode:1@0..4
        2s list
        3s a release job/x
        3s stats
        ",
        expect![[r#"
            0s a granted {job/x, inode:1@0..10} fence=1 until 10s
            2s a released inode:1@0..4 held 2s
            2s list inode:1@4..10 held by a fence=1 since 0s until 10s
            2s list job/x held by a fence=1 since 0s until 10s
            2s list end
            3s a released job/x held 3s
            3s a released inode:1@4..10 fence=1
            3s stats epoch=0 fence=1 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn set_under_a_session_leaves_other_grants_of_the_session() {
    check(
        "
        0s a open s
        0s a acquire {job/x, job/y} session=s
        0s a acquire job/z session=s
        1s a release job/y
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, job/y} fence=1 until 10s
            0s a granted job/z fence=2 until 10s
            1s a released job/y held 1s
            1s a released job/x fence=1
            1s list job/z held by a fence=2 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn set_of_ranges_holds_each_of_them() {
    check(
        "
        0s a acquire {inode:1@0..10, inode:2@0..10 shared, inode:1@20..30}
        0s list
        1s a release inode:1
        1s list
        ",
        expect![[r#"
            0s a granted {inode:1@0..10, inode:2@0..10, inode:1@20..30} fence=1 until 10s
            0s list inode:1@0..10 held by a fence=1 since 0s until 10s
            0s list inode:1@20..30 held by a fence=1 since 0s until 10s
            0s list inode:2@0..10 held by a shared fence=1 since 0s until 10s
            0s list end
            1s a released inode:1 held 1s
            1s a released inode:1@0..10 fence=1
            1s a released inode:1@20..30 fence=1
            1s list inode:2@0..10 held by a shared fence=1 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn set_waits_for_mixed_kinds_at_once() {
    check(
        "
        0s a acquire path:/srv/a/b
        0s b acquire inode:1@5..6
        0s c acquire pool permits=1
        1s d acquire {path:/srv/**, inode:1 shared, pool permits=1} wait
        2s a release path:/srv/a/b
        3s b release inode:1@5..6
        4s c release pool
        ",
        expect![[r#"
            0s a granted path:/srv/a/b fence=1 until 10s
            0s b granted inode:1@5..6 fence=2 until 10s
            0s c granted pool fence=3 until 10s
            1s d queued {path:/srv/**, inode:1, pool} at 1
            2s a released path:/srv/a/b held 2s
            3s b released inode:1@5..6 held 3s
            4s c released pool held 4s
            4s d granted {path:/srv/**, inode:1, pool} fence=4 until 14s waited 3s
        "#]],
    );
}

#[test]
fn set_of_one_is_a_plain_lock() {
    check(
        "0s a acquire {job/x} | 0s b acquire job/x | 1s a release job/x",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused held: job/x by a fence=1 since 0s until 10s
            1s a released job/x held 1s
        "#]],
    );
}

#[test]
fn scopes_of_a_set_must_not_overlap() {
    check(
        "
        0s a acquire {job/x, job/x}
        0s a acquire {path:/srv/a, path:/srv/**}
        0s a acquire {inode:1@0..10, inode:1@9..20}
        0s a acquire {path:/srv/a, path:/srv/a/b, inode:1@0..10, inode:1@10..20}
        ",
        expect![[r#"
            0s a refused invalid: job/x and job/x in one set overlap
            0s a refused invalid: path:/srv/a and path:/srv/** in one set overlap
            0s a refused invalid: inode:1@0..10 and inode:1@9..20 in one set overlap
            0s a granted {path:/srv/a, path:/srv/a/b, inode:1@0..10, inode:1@10..20} fence=1 until 10s
        "#]],
    );
}

#[test]
fn empty_set_is_refused() {
    check(
        "0s a acquire {}",
        expect![[r#"
        0s a refused invalid: a set has 1 to 64 scopes, not 0
    "#]],
    );
}

#[test]
fn set_with_an_upgrade_does_not_queue_behind_those_who_wait_for_its_owner() {
    check(
        "
        0s a open s ttl=60s
        0s a acquire inode:1@0..10 shared session=s
        0s b acquire job/y
        1s c acquire inode:1@0..10 wait
        2s a acquire {inode:1@0..10, job/y} session=s wait
        3s b release job/y
        4s close s
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted inode:1@0..10 fence=1 until 60s
            0s b granted job/y fence=2 until 10s
            1s c queued inode:1@0..10 at 1
            2s a queued {inode:1@0..10, job/y} at 2
            3s b released job/y held 3s
            3s a replaced inode:1@0..10 shared fence=1
            3s a granted {inode:1@0..10, job/y} fence=3 until 60s waited 1s
            4s s closed grants=2
            4s a closed job/y fence=3
            4s a closed inode:1@0..10 fence=3
            4s c granted inode:1@0..10 fence=4 until 14s waited 3s
        "#]],
    );
}

#[test]
fn set_releases_no_bytes_that_were_given_back_meanwhile() {
    check(
        "
        0s a open s
        0s a open u
        0s a acquire {job/x, inode:1@0..10} session=s
        1s a unlock inode:1@0..10 session=s
        1s a acquire inode:1@0..10 session=u
        2s a release job/x
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s u opened until 10s
            0s a granted {job/x, inode:1@0..10} fence=1 until 10s
            1s a unlocked
            1s a released inode:1@0..10 fence=1
            1s a granted inode:1@0..10 fence=2 until 10s
            2s a released job/x held 2s
            2s list inode:1@0..10 held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}
