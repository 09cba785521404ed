//! Coming back after a restart: what is stored, and how holders take it up again.

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
            19.001s get job/x: free; last fence=1
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
        2s a acquire {job/x, job/y shared} reclaim session=s
        2s a acquire inode:1@2..8 reclaim session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, job/y} fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            0s b granted job/z fence=3 until 10s
            1s epoch 1 begun recovering=2
            2s a refused not_holder: nothing to reclaim on job/z
            2s a refused not_holder: nothing to reclaim on inode:1@0..11
            2s a granted {job/x, job/y} fence=1 until 12s again, as at 0s
            2s a granted inode:1@2..8 fence=2 until 12s again, as at 0s
        "#]],
    );
}

#[test]
fn what_was_granted_with_several_fences_cannot_be_reclaimed_in_one_go() {
    check(
        "
        0s a open s
        0s a acquire {job/x, inode:1@0..10} session=s
        0s a acquire inode:1@10..20 session=s
        0s a acquire job/y session=s
        0s b acquire job/z
        1s epoch conflicting
        2s a acquire {job/x, job/y} reclaim session=s
        2s a acquire {job/y, inode:1@0..20} reclaim session=s
        2s a acquire {job/x, inode:1@0..20} reclaim session=s
        2s a renew job/x
        2s a renew inode:1@0..20
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, inode:1@0..10} fence=1 until 10s
            0s a granted inode:1@10..20 fence=2 until 10s
            0s a granted job/y fence=3 until 10s
            0s b granted job/z fence=4 until 10s
            1s epoch 1 begun recovering=2
            2s a refused invalid: these are held by several grants, each with its own fencing token: reclaim them one by one
            2s a refused invalid: these are held by several grants, each with its own fencing token: reclaim them one by one
            2s a granted {job/x, inode:1@0..20} fence=1 until 12s again, as at 0s
            2s a renewed job/x until 12s
            2s a renewed inode:1@0..20 until 12s
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
            2s a refused not_holder: nothing to reclaim on job/y
            2s a refused not_holder: nothing to reclaim on job/x
            2s a refused not_holder: nothing to reclaim on job/x
            2s b refused not_holder: nothing to reclaim on job/x
            2s a refused not_holder: nothing to reclaim on job/x
            2s a refused session_not_found (unknown)
            2s get job/x: recovering by a fence=1 since 0s until 11s recovering
        "#]],
    );
}

#[test]
fn reclaim_names_what_it_does_not_fit() {
    check(
        "
        0s a open s
        0s a acquire {job/x, job/y} session=s
        0s a acquire inode:1@0..10 shared session=s
        1s epoch conflicting
        2s a acquire {job/x, job/y shared} reclaim session=s
        2s a acquire inode:1@0..20 shared reclaim session=s
        2s a acquire inode:1@0..10 reclaim session=s
        2s a acquire {job/x, job/y} reclaim
        2s a acquire job/z reclaim session=s wait
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, job/y} fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            1s epoch 1 begun recovering=1
            2s a refused not_holder: nothing to reclaim on job/y
            2s a refused not_holder: nothing to reclaim on inode:1@0..20
            2s a refused not_holder: nothing to reclaim on inode:1@0..10
            2s a refused not_holder: nothing to reclaim on job/x
            2s a refused not_holder: nothing to reclaim on job/z
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
            28s get job/x: held by a fence=1 since 0s until 28s
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
            110s get job/x: held by a fence=1 since 0s until 110s
            110.001s a grace_expired job/x fence=1
        "#]],
    );
}

#[test]
fn reclaim_of_what_is_held_already_is_answered_with_it() {
    check(
        "
        0s a open s
        0s a acquire job/x session=s
        1s a acquire job/x reclaim session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            1s a granted job/x fence=1 until 11s again, as at 0s
        "#]],
    );
}

#[test]
fn reclaim_without_a_grace_is_refused() {
    check(
        "
        1s b acquire job/y reclaim
        ",
        expect![[r#"
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
            6.001s get job/x: held by a fence=1 since 0s until 61s
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
            3s c refused not_holder: nothing to reclaim on job/x
            3s a granted job/x fence=3 until 13s
            3s a reclaimed job/x fence=1
            3s a refused not_holder: nothing to reclaim on job/y
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
