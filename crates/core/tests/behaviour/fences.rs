//! Fences: why a stale writer cannot win.

use expect_test::expect;

use crate::script::check;

#[test]
fn fences_rise_with_every_grant_of_any_scope() {
    check(
        "
        0s a acquire job/x
        0s b acquire path:/srv/**
        0s c acquire inode:1@0..10
        0s d acquire pool permits=2
        0s e acquire pool permits=2
        0s f acquire {job/y, inode:2}
        0s g acquire job/z
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted path:/srv/** fence=2 until 10s
            0s c granted inode:1@0..10 fence=3 until 10s
            0s d granted pool fence=4 until 10s
            0s e granted pool fence=5 until 10s
            0s f granted {job/y, inode:2} fence=6 until 10s
            0s g granted job/z fence=7 until 10s
        "#]],
    );
}

#[test]
fn one_counter_serves_all_namespaces() {
    check(
        "
        0s a acquire job/x in=red
        0s a acquire job/x in=blue
        0s a acquire job/y in=red
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/x fence=2 until 10s
            0s a granted job/y fence=3 until 10s
        "#]],
    );
}

#[test]
fn fences_rise_across_release_and_expiry() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s a release job/x
        2s b acquire job/x ttl=10s
        12.001s c acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            2s b granted job/x fence=2 until 12s
            12.001s b expired job/x fence=2
            12.001s c granted job/x fence=3 until 22.001s
        "#]],
    );
}

#[test]
fn fences_rise_across_a_restart() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b acquire job/y ttl=10s
        1s b release job/y
        2s restart
        2s epoch conflicting grace=30s
        3s b acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s b released job/y held 1s
            2s server restarted
            2s epoch 1 begun recovering=1
            3s b granted job/y fence=3 until 13s
        "#]],
    );
}

#[test]
fn fences_go_on_after_everything_was_released_before_a_restart() {
    check(
        "
        0s a acquire job/x
        1s a release job/x
        2s restart
        2s epoch conflicting
        3s a acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            2s server restarted
            2s epoch 1 begun recovering=0
            3s a granted job/x fence=2 until 13s
        "#]],
    );
}

#[test]
fn restore_jumps_the_counter() {
    check(
        "
        0s a acquire job/x
        1s jump epoch=7 fence=1000000
        1s b acquire job/y
        1s epoch conflicting
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s server jumped to epoch 7 fence 1000000
            1s b granted job/y fence=1000001 until 11s
            1s epoch 8 begun recovering=2
        "#]],
    );
}

#[test]
fn jump_never_lowers_anything() {
    check(
        "
        0s jump epoch=7 fence=1000
        0s jump epoch=3 fence=10
        0s a acquire job/x
        0s stats
        ",
        expect![[r#"
            0s server jumped to epoch 7 fence 1000
            0s server jumped to epoch 3 fence 10
            0s a granted job/x fence=1001 until 10s
            0s stats epoch=7 fence=1001 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn fence_fits_in_53_bits() {
    check(
        "
        0s jump epoch=1 fence=9007199254740990
        0s a acquire job/x
        0s a renew job/x
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 9007199254740990
            0s a granted job/x fence=9007199254740991 until 10s
            0s a renewed job/x until 10s
        "#]],
    );
}

#[test]
fn refused_and_waiting_requests_use_no_fence() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x
        0s c acquire job/x wait
        0s c cancel job/x
        0s d acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused held: job/x by a fence=1 since 0s until 10s
            0s c queued job/x at 1
            0s c cancelled
            0s d granted job/y fence=2 until 10s
        "#]],
    );
}

#[test]
fn renewal_keeps_the_fence() {
    check(
        "
        0s a acquire job/x
        5s a renew job/x
        5s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s a renewed job/x until 15s
            5s get job/x: held by a fence=1 since 0s until 15s
        "#]],
    );
}

#[test]
fn renewal_with_a_wrong_owner_is_refused() {
    check(
        "
        0s a acquire job/x
        0s c acquire job/z
        5s b renew job/x of=a
        5s c renew job/x of=a
        5s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s c granted job/z fence=2 until 10s
            5s b refused not_holder: job/x
            5s c refused not_holder: job/x
            5s get job/x: held by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn renewal_with_a_wrong_lease_is_refused() {
    check(
        "
        0s a acquire job/x
        0s a acquire job/y as=y
        5s a renew job/x lease=y
        5s a renew job/x lease=unknown
        5s get job/x
        5s get job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            5s a refused not_holder: job/x
            5s a refused lease_lost
            5s get job/x: held by a fence=1 since 0s until 10s
            5s get job/y: held by a fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn renewal_with_a_wrong_fence_is_refused() {
    check(
        "
        0s z acquire job/z
        0s a acquire job/x
        5s a renew job/x fence=1
        5s a renew job/x fence=3
        5s get job/x
        ",
        expect![[r#"
            0s z granted job/z fence=1 until 10s
            0s a granted job/x fence=2 until 10s
            5s a refused not_holder: job/x
            5s a refused not_holder: job/x
            5s get job/x: held by a fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn renewal_with_a_wrong_scope_is_refused() {
    check(
        "
        0s a acquire job/x as=x
        5s a renew job/y grant=x
        5s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s a refused not_holder: job/y
            5s get job/x: held by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn release_with_a_wrong_owner_changes_nothing() {
    check(
        "
        0s a acquire job/x
        5s b release job/x of=a
        5s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s b refused not_holder: job/x
            5s get job/x: held by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn release_with_a_wrong_lease_changes_nothing() {
    check(
        "
        0s a acquire job/x
        0s a acquire job/y as=y
        5s a release job/x lease=y
        5s a release job/x lease=unknown
        5s get job/x
        5s get job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            5s a refused not_holder: job/x
            5s a refused not_holder: job/x
            5s get job/x: held by a fence=1 since 0s until 10s
            5s get job/y: held by a fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn release_with_a_wrong_fence_changes_nothing() {
    check(
        "
        0s a acquire job/x
        5s a release job/x fence=2
        5s a release job/x fence=0
        5s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s a refused not_holder: job/x
            5s a refused not_holder: job/x
            5s get job/x: held by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn stale_holder_cannot_touch_the_grant_of_its_successor() {
    check(
        "
        0s a acquire job/x ttl=10s as=first
        10.001s a acquire job/x ttl=10s as=second
        11s a renew job/x grant=first
        11s a release job/x grant=first
        11s a renew job/x grant=second fence=1
        11s a renew job/x grant=first fence=2
        11s get job/x
        11s a release job/x grant=second
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1
            10.001s a granted job/x fence=2 until 20.001s
            11s a refused lease_lost
            11s a refused not_holder: job/x
            11s a refused not_holder: job/x
            11s a refused lease_lost
            11s get job/x: held by a fence=2 since 10.001s until 20.001s
            11s a released job/x held 0.999s
        "#]],
    );
}

#[test]
fn fence_of_the_holder_is_good() {
    check(
        "
        0s a acquire job/x as=l
        1s a check job/x
        1s a check job/x leased
        1s a check job/x lease=unknown
        1s a check job/x fence=2
        1s a check job/x fence=0
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s check job/x fence=1: good, a fence=1 since 0s until 10s
            1s check job/x fence=1: good, a fence=1 since 0s until 10s
            1s check job/x fence=1: not good, a fence=1 since 0s until 10s
            1s check job/x fence=2: not good
            1s check job/x fence=0: not good
        "#]],
    );
}

#[test]
fn fence_is_no_good_after_release() {
    check(
        "0s a acquire job/x | 1s a release job/x | 1s a check job/x",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            1s check job/x fence=1: not good
        "#]],
    );
}

#[test]
fn fence_is_no_good_after_expiry() {
    check(
        "
        0s a acquire job/x ttl=10s
        10s a check job/x
        10.001s a check job/x
        11s b acquire job/x
        11s a check job/x
        11s b check job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10s check job/x fence=1: good, a fence=1 since 0s until 10s
            10.001s a expired job/x fence=1
            10.001s check job/x fence=1: not good
            11s b granted job/x fence=2 until 21s
            11s check job/x fence=1: not good
            11s check job/x fence=2: good, b fence=2 since 11s until 21s
        "#]],
    );
}

#[test]
fn fence_is_no_good_in_the_reclaim_window() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        12s a check job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            12s a expired job/x fence=1, reclaim window 5s
            12s check job/x fence=1: not good, a fence=1 since 0s until 15s in its reclaim window
        "#]],
    );
}

#[test]
fn fence_is_good_for_all_that_its_grant_covers() {
    check(
        "
        0s a acquire path:/srv/** as=tree
        0s a acquire inode:1@0..100 as=bytes
        0s a check path:/srv/a/b grant=tree
        0s a check path:/srv/a/** grant=tree
        0s a check path:/** grant=tree
        0s a check path:/etc grant=tree
        0s a check inode:1@10..20 grant=bytes
        0s a check inode:1@90..110 grant=bytes
        0s a check inode:2 grant=bytes
        ",
        expect![[r#"
            0s a granted path:/srv/** fence=1 until 10s
            0s a granted inode:1@0..100 fence=2 until 10s
            0s check path:/srv/a/b fence=1: good, a path:/srv/** fence=1 since 0s until 10s
            0s check path:/srv/a/** fence=1: good, a path:/srv/** fence=1 since 0s until 10s
            0s check path:/** fence=1: not good, a path:/srv/** fence=1 since 0s until 10s
            0s check path:/etc fence=1: not good
            0s check inode:1@10..20 fence=2: good, a inode:1@0..100 fence=2 since 0s until 10s
            0s check inode:1@90..110 fence=2: not good, a inode:1@0..100 fence=2 since 0s until 10s
            0s check inode:2 fence=2: not good
        "#]],
    );
}

#[test]
fn fence_of_a_recovering_grant_is_good() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s epoch conflicting
        1s a check job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s epoch 1 begun recovering=1
            1s check job/x fence=1: good, a fence=1 since 0s until 11s recovering
        "#]],
    );
}

#[test]
fn register_takes_a_fence_that_is_not_lower_than_the_last() {
    check(
        "
        0s register disk
        0s accept disk 5
        0s accept disk 5
        0s accept disk 7
        0s accept disk 6
        0s register disk
        ",
        expect![[r#"
            0s register disk: no mark
            0s register disk accepted, mark 5
            0s register disk accepted, mark 5
            0s register disk accepted, mark 7
            0s register disk refused stale_fence: 6 below 7
            0s register disk: mark 7
        "#]],
    );
}

#[test]
fn registers_are_apart_by_name_and_namespace() {
    check(
        "
        0s accept disk 5
        0s accept tape 1
        0s accept disk 2 in=red
        0s accept disk 4
        ",
        expect![[r#"
            0s register disk accepted, mark 5
            0s register tape accepted, mark 1
            0s register disk accepted, mark 2
            0s register disk refused stale_fence: 4 below 5
        "#]],
    );
}

#[test]
fn register_survives_a_restart() {
    check(
        "
        0s accept disk 5
        1s restart
        1s epoch conflicting
        1s accept disk 4
        1s accept disk 5
        ",
        expect![[r#"
            0s register disk accepted, mark 5
            1s server restarted
            1s epoch 1 begun recovering=0
            1s register disk refused stale_fence: 4 below 5
            1s register disk accepted, mark 5
        "#]],
    );
}

#[test]
fn register_stops_the_writer_that_was_overtaken() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s accept disk 1
        10.001s b acquire job/x
        11s accept disk 2
        12s accept disk 1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s register disk accepted, mark 1
            10.001s a expired job/x fence=1
            10.001s b granted job/x fence=2 until 20.001s
            11s register disk accepted, mark 2
            12s register disk refused stale_fence: 1 below 2
        "#]],
    );
}
