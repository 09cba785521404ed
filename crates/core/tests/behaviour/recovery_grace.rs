//! Recovery grace: after a restart those who held something may come back, and nobody else may conflict.

use expect_test::expect;

use crate::script::check;

#[test]
fn grants_come_back_recovering_with_their_full_ttl() {
    check(
        "
        0s a acquire job/x ttl=10s
        8s restart
        9s epoch conflicting grace=30s
        9s stats
        9s get job/x
        19s get job/x
        19.001s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            8s server restarted
            9s epoch 1 begun recovering=1
            9s stats epoch=1 fence=1 namespaces=1 grants=1 leases=1 sessions=0 recovering=1 waiters=0
            9s get job/x: recovering by a fence=1 since 0s until 19s recovering
            19s get job/x: recovering by a fence=1 since 0s until 19s recovering
            19.001s a grace_expired job/x fence=1
            19.001s grace over
            19.001s get job/x: free
        "#]],
    );
}

#[test]
fn grants_come_back_however_late_the_server_starts_again() {
    check(
        "
        100s a acquire job/x ttl=10s
        101s restart
        1000s epoch conflicting grace=30s
        1000s get job/x
        1005s a renew job/x
        ",
        expect![[r#"
            100s a granted job/x fence=1 until 110s
            101s server restarted
            1000s epoch 1 begun recovering=1
            1000s get job/x: recovering by a fence=1 since 100s until 1010s recovering
            1005s a renewed job/x until 1015s
            1005s grace over
        "#]],
    );
}

#[test]
fn sessions_come_back_with_their_terms() {
    check(
        "
        0s a open s ttl=10s adapter=smb keep=60s meta=laptop
        0s attach s
        0s a acquire job/x session=s
        1s restart
        1s epoch conflicting
        1s sessions
        61s session s
        61.001s tick
        ",
        expect![[r#"
            0s s opened until 10s
            0s s renewed until 10s
            0s a granted job/x fence=1 until 10s
            1s server restarted
            1s epoch 1 begun recovering=1
            1s session s of a by smb ttl 10s until 61s grants=1 waiters=0 keep=60s recovering meta=laptop
            61s grace over
            61s session s of a by smb ttl 10s until 61s grants=1 waiters=0 keep=60s recovering meta=laptop
            61.001s a grace_expired job/x fence=1
            61.001s s of a grace_expired
        "#]],
    );
}

#[test]
fn epoch_rises_by_one_with_every_restart() {
    check(
        "
        0s epoch conflicting
        1s restart
        1s epoch conflicting
        1s stats
        2s epoch conflicting number=2
        2s epoch strict number=1
        ",
        expect![[r#"
            0s epoch 1 begun recovering=0
            1s server restarted
            1s epoch 2 begun recovering=0
            1s stats epoch=2 fence=0 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
            2s epoch 2 refused stale_epoch: 2 after 2
            2s epoch 1 refused stale_epoch: 1 after 2
        "#]],
    );
}

#[test]
fn renewal_makes_a_recovering_grant_live() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b acquire job/y ttl=10s
        1s epoch conflicting grace=30s
        2s a renew job/x
        2s get job/x
        2s grace
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s epoch 1 begun recovering=2
            2s a renewed job/x until 12s
            2s get job/x: held by a fence=1 since 0s until 12s
            2s grace conflicting until 31s expected=1
        "#]],
    );
}

#[test]
fn heartbeat_makes_a_recovering_session_live() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s b acquire job/y
        1s epoch conflicting
        2s keepalive s
        2s get job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s epoch 1 begun recovering=2
            2s s renewed until 12s
            2s get job/x: held by a fence=1 since 0s until 12s
        "#]],
    );
}

#[test]
fn attaching_makes_a_recovering_session_live() {
    check(
        "
        0s a open s ttl=10s
        0s b acquire job/y
        1s epoch conflicting
        2s attach s
        2s session s
        ",
        expect![[r#"
            0s s opened until 10s
            0s b granted job/y fence=1 until 10s
            1s epoch 1 begun recovering=2
            2s s renewed until 12s
            2s session s of a by http ttl 10s until 12s grants=0 waiters=0 attached
        "#]],
    );
}

#[test]
fn reclaim_by_the_same_owner_and_session_makes_the_grant_live() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire job/x session=s
        0s b acquire job/y
        1s epoch conflicting
        2s a acquire job/x reclaim session=s
        2s get job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s epoch 1 begun recovering=2
            2s a granted job/x fence=1 until 12s again, as at 0s
            2s get job/x: held by a fence=1 since 0s until 12s
        "#]],
    );
}

#[test]
fn reclaim_works_on_a_plain_lease_too() {
    check(
        "
        0s a acquire job/x ttl=10s as=l
        0s b acquire job/y
        1s epoch conflicting
        2s a acquire job/x reclaim session=l
        2s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s epoch 1 begun recovering=2
            2s a granted job/x fence=1 until 12s again, as at 0s
            2s get job/x: held by a fence=1 since 0s until 12s
        "#]],
    );
}

#[test]
fn reclaim_of_sets_and_ranges_must_find_all_of_them() {
    check(
        "
        0s a open s
        0s a acquire {job/x, job/y shared} session=s
        0s a acquire inode:1@0..10 session=s
        0s b acquire job/z
        1s epoch conflicting
        2s a acquire {job/x, job/z} reclaim session=s
        2s a acquire inode:1@0..11 reclaim session=s
        2s a acquire {job/x, job/y shared, inode:1@2..8} reclaim session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, job/y} fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            0s b granted job/z fence=3 until 10s
            1s epoch 1 begun recovering=2
            2s a refused lease_lost
            2s a refused lease_lost
            2s a granted {job/x, job/y, inode:1@2..8} fence=2 until 12s again, as at 0s
        "#]],
    );
}

#[test]
fn each_grant_of_a_session_can_be_reclaimed() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        0s a acquire job/y session=s
        0s b acquire job/z
        1s epoch conflicting
        2s a acquire job/x reclaim session=s
        2s a acquire job/y reclaim session=s
        2s a acquire job/y reclaim session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            0s b granted job/z fence=3 until 10s
            1s epoch 1 begun recovering=2
            2s a granted job/x fence=1 until 12s again, as at 0s
            2s a granted job/y fence=2 until 12s again, as at 0s
            2s a granted job/y fence=2 until 12s again, as at 0s
        "#]],
    );
}

#[test]
fn reclaim_of_what_was_not_held_is_refused() {
    check(
        "
        0s a open s
        0s b open t
        0s a acquire job/x session=s
        1s epoch conflicting
        2s a acquire job/y reclaim session=s
        2s a acquire job/x shared reclaim session=s
        2s a acquire job/x reclaim session=t
        2s b acquire job/x reclaim session=s
        2s a acquire job/x reclaim
        2s a acquire job/x reclaim session=unknown
        2s get job/x
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted job/x fence=1 until 10s
            1s epoch 1 begun recovering=2
            2s a refused lease_lost
            2s a refused lease_lost
            2s a refused lease_lost
            2s b refused lease_lost
            2s a refused lease_lost
            2s a refused session_not_found
            2s get job/x: recovering by a fence=1 since 0s until 11s recovering
        "#]],
    );
}

#[test]
fn grant_that_is_not_reclaimed_lapses_as_grace_expired() {
    check(
        "
        0s a acquire job/x ttl=10s
        5s epoch conflicting grace=30s
        15s get job/x
        15.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s epoch 1 begun recovering=1
            15s get job/x: recovering by a fence=1 since 0s until 15s recovering
            15.001s a grace_expired job/x fence=1
            15.001s grace over
        "#]],
    );
}

#[test]
fn no_grace_cuts_a_lease_short() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch conflicting grace=5s
        6.001s tick
        7s b acquire job/x
        31s a renew job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            6.001s grace over
            7s b refused held: job/x by a fence=1 since 0s until 31s recovering
            31s a renewed job/x until 61s
        "#]],
    );
}

#[test]
fn grant_recovering_after_the_grace_lapses_as_grace_expired() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch conflicting grace=5s
        6.001s get job/x
        31.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            6.001s grace over
            6.001s get job/x: recovering by a fence=1 since 0s until 31s recovering
            31.001s a grace_expired job/x fence=1
        "#]],
    );
}

#[test]
fn grace_is_over_when_everybody_has_come_back() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b open s ttl=10s
        1s epoch conflicting grace=30s
        2s grace
        2s a renew job/x
        2s grace
        3s keepalive s
        3s grace
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 10s
            1s epoch 1 begun recovering=2
            2s grace conflicting until 31s expected=2
            2s a renewed job/x until 12s
            2s grace conflicting until 31s expected=1
            3s s renewed until 13s
            3s grace over
            3s no grace
        "#]],
    );
}

#[test]
fn grace_is_over_when_the_last_one_expected_has_lapsed() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b acquire job/y ttl=20s
        1s epoch conflicting grace=60s
        2s a renew job/x
        21.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 20s
            1s epoch 1 begun recovering=2
            2s a renewed job/x until 12s
            21.001s a expired job/x fence=1
            21.001s b grace_expired job/y fence=2
            21.001s grace over
        "#]],
    );
}

#[test]
fn grace_is_over_when_the_last_one_expected_gives_up_its_grant() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b open s ttl=20s
        0s c acquire job/z ttl=20s
        1s epoch conflicting grace=60s
        2s a release job/x
        2s close s
        2s break job/z
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s s opened until 20s
            0s c granted job/z fence=2 until 20s
            1s epoch 1 begun recovering=3
            2s a released job/x held 2s
            2s s closed grants=0
            2s break job/z grants=1
            2s c revoked job/z fence=2
            2s grace over
        "#]],
    );
}

#[test]
fn grace_is_over_at_the_latest_when_its_timer_ends() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=30s
        31s grace
        31.001s grace
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            31s grace conflicting until 31s expected=1
            31.001s grace over
            31.001s no grace
        "#]],
    );
}

#[test]
fn grant_still_recovering_after_the_grace_is_simply_a_grant() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=30s
        30s b acquire job/x
        32s b acquire job/x
        33s a renew job/x
        33s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            30s b refused grace_period: 1s more, job/x by a fence=1 since 0s until 61s recovering
            32s grace over
            32s b refused held: job/x by a fence=1 since 0s until 61s recovering
            33s a renewed job/x until 93s
            33s a released job/x held 33s
        "#]],
    );
}

#[test]
fn without_anything_stored_there_is_no_conflicting_grace() {
    check(
        "0s epoch conflicting grace=30s | 0s grace | 0s a acquire job/x",
        expect![[r#"
            0s epoch 1 begun recovering=0
            0s no grace
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}

#[test]
fn conflicting_grace_refuses_only_what_conflicts_with_a_recovering_grant() {
    check(
        "
        0s a acquire job/x ttl=30s
        0s a acquire inode:1@0..10 ttl=30s
        0s c acquire job/s shared ttl=30s
        1s epoch conflicting grace=20s
        2s b acquire job/x
        2s b acquire inode:1@5..6 shared
        2s b acquire inode:1@10..20
        2s b acquire job/s shared
        2s b acquire job/y
        3s b acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            0s a granted inode:1@0..10 fence=2 until 30s
            0s c granted job/s fence=3 until 30s
            1s epoch 1 begun recovering=3
            2s b refused grace_period: 19s more, job/x by a fence=1 since 0s until 31s recovering
            2s b refused grace_period: 19s more, inode:1@5..6 by a inode:1@0..10 fence=2 since 0s until 31s recovering
            2s b granted inode:1@10..20 fence=4 until 12s
            2s b granted job/s fence=5 until 12s
            2s b granted job/y fence=6 until 12s
            3s b refused held: job/y by b fence=6 since 2s until 12s
        "#]],
    );
}

#[test]
fn owner_of_a_recovering_grant_is_refused_like_anybody_unless_it_reclaims() {
    check(
        "
        0s a acquire job/x ttl=30s
        1s epoch conflicting grace=20s
        2s a acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s a refused grace_period: 19s more, job/x by a fence=1 since 0s until 31s recovering
        "#]],
    );
}

#[test]
fn waiting_for_a_recovering_grant_is_possible() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s epoch conflicting grace=60s
        2s b acquire job/x wait
        11.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            11.001s a grace_expired job/x fence=1
            11.001s b granted job/x fence=2 until 21.001s waited 9.001s
            11.001s grace over
        "#]],
    );
}

#[test]
fn wait_that_runs_out_in_the_grace_is_told_so() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=30s
        2s b acquire job/x wait=5s
        7.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            7.001s b refused grace_period: 23.999s more, job/x by a fence=1 since 0s until 61s recovering, waited 5.001s
        "#]],
    );
}

#[test]
fn those_who_waited_are_forgotten() {
    check(
        "
        0s a acquire job/x ttl=30s
        0s b acquire job/x wait
        1s epoch conflicting
        1s get job/x
        2s b cancel job/x
        2s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 30s
            0s b queued job/x at 1
            1s epoch 1 begun recovering=1
            1s get job/x: recovering by a fence=1 since 0s until 31s recovering
            2s b cancelled nothing
            2s a released job/x held 2s
            2s grace over
        "#]],
    );
}

#[test]
fn second_restart_starts_the_ttl_anew() {
    check(
        "
        0s a acquire job/x ttl=10s
        9s epoch conflicting grace=5s
        18s epoch conflicting grace=5s
        28s get job/x
        28.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            9s epoch 1 begun recovering=1
            18s epoch 2 begun recovering=1
            28s grace over
            28s get job/x: recovering by a fence=1 since 0s until 28s recovering
            28.001s a grace_expired job/x fence=1
        "#]],
    );
}

#[test]
fn renewed_ttl_survives_the_restart() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s a renew job/x ttl=60s
        50s restart
        50s epoch conflicting
        110s get job/x
        110.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a renewed job/x until 61s
            1s a has ttl 60s
            50s server restarted
            50s epoch 1 begun recovering=1
            110s grace over
            110s get job/x: recovering by a fence=1 since 0s until 110s recovering
            110.001s a grace_expired job/x fence=1
        "#]],
    );
}

#[test]
fn reclaim_without_a_grace_is_refused() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        1s a acquire job/x reclaim session=s
        1s b acquire job/y reclaim
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s a refused no_grace
            1s b refused no_grace
        "#]],
    );
}

#[test]
fn reclaim_after_the_grace_is_refused() {
    check(
        "
        0s a open s ttl=60s
        0s a acquire job/x session=s
        1s epoch conflicting grace=5s
        6.001s a acquire job/x reclaim session=s
        6.001s get job/x
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            6.001s grace over
            6.001s a refused no_grace
            6.001s get job/x: recovering by a fence=1 since 0s until 61s recovering
        "#]],
    );
}

#[test]
fn get_and_test_work_in_a_conflicting_grace() {
    check(
        "
        0s a acquire inode:1@0..10 ttl=30s
        1s epoch conflicting
        2s b test inode:1@5..6
        2s b test inode:1@10..20
        2s get inode:1
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 30s
            1s epoch 1 begun recovering=1
            2s b test inode:1@5..6: held by a inode:1@0..10 fence=1 since 0s until 31s recovering
            2s b test inode:1@10..20: free
            2s get inode:1: recovering by a inode:1@0..10 fence=1 since 0s until 31s recovering
        "#]],
    );
}

#[test]
fn set_is_still_one_after_a_restart() {
    check(
        "
        0s a acquire {job/x, inode:1@0..10, pool permits=2}
        1s restart
        1s epoch conflicting
        2s b acquire pool permits=3
        2s a release job/x
        2s stats
        ",
        expect![[r#"
            0s a granted {job/x, inode:1@0..10, pool} fence=1 until 10s
            1s server restarted
            1s epoch 1 begun recovering=1
            2s b refused limit_mismatch: pool is permits(2), not permits(3)
            2s a released job/x held 2s
            2s a released pool permits=2 fence=1
            2s a released inode:1@0..10 fence=1
            2s grace over
            2s stats epoch=1 fence=1 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn last_owner_may_take_a_window_back_during_the_grace() {
    check(
        "
        0s a acquire job/x ttl=1s window=60s
        0s b acquire job/y ttl=60s
        1.001s tick
        2s epoch conflicting
        3s c acquire job/x reclaim
        3s a acquire job/x reclaim
        3s a acquire job/y reclaim
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 1s
            0s b granted job/y fence=2 until 60s
            1.001s a expired job/x fence=1, reclaim window 60s
            2s epoch 1 begun recovering=1
            3s c refused lease_lost
            3s a granted job/x fence=3 until 13s
            3s a reclaimed job/x fence=1
            3s a refused lease_lost
        "#]],
    );
}

#[test]
fn window_comes_back_in_full_after_a_restart() {
    check(
        "
        0s a acquire job/x ttl=1s window=10s
        0s z acquire job/z ttl=60s
        2s restart
        5s epoch conflicting
        15s b acquire job/x
        15.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 1s
            0s z granted job/z fence=2 until 60s
            2s a expired job/x fence=1, reclaim window 10s
            2s server restarted
            5s epoch 1 begun recovering=1
            15s b refused reclaim_window: job/x by a fence=1 since 0s until 15s in its reclaim window
            15.001s a window_over job/x fence=1
            15.001s b granted job/x fence=3 until 25.001s
        "#]],
    );
}

#[test]
fn grace_that_is_over_serves_nobody_who_still_conflicts() {
    check(
        "
        0s a acquire job/x ttl=60s
        1s epoch conflicting grace=5s
        2s b acquire job/x wait
        6.001s tick
        7s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            1s epoch 1 begun recovering=1
            2s b queued job/x at 1
            6.001s grace over
            7s a released job/x held 7s
            7s b granted job/x fence=2 until 17s waited 5s
        "#]],
    );
}

#[test]
fn window_comes_back_however_late_the_server_starts_again() {
    check(
        "
        100s a acquire job/x ttl=1s window=10s
        102s restart
        1000s epoch conflicting
        1010s b acquire job/x
        1010.001s b acquire job/x
        ",
        expect![[r#"
            100s a granted job/x fence=1 until 101s
            102s a expired job/x fence=1, reclaim window 10s
            102s server restarted
            1000s epoch 1 begun recovering=0
            1010s b refused reclaim_window: job/x by a fence=1 since 100s until 1010s in its reclaim window
            1010.001s a window_over job/x fence=1
            1010.001s b granted job/x fence=2 until 1020.001s
        "#]],
    );
}
