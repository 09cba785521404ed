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
            5s b refused not_holder (unknown): job/x
            5s c refused not_holder (unknown): job/x
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
            5s a refused not_holder (unknown): job/x
            5s a refused lease_lost (unknown)
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
            5s a refused not_holder (unknown): job/x
            5s a refused not_holder (unknown): job/x
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
            5s a refused not_holder (other_scope): job/y
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
            5s b refused not_holder (unknown): job/x
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
            5s a refused not_holder (unknown): job/x
            5s a refused not_holder (unknown): job/x
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
            5s a refused not_holder (unknown): job/x
            5s a refused not_holder (unknown): job/x
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
            11s a refused lease_lost (expired)
            11s a refused not_holder (expired): job/x
            11s a refused not_holder (unknown): job/x
            11s a refused lease_lost (expired)
            11s get job/x: held by a fence=2 since 10.001s until 20.001s
            11s a released job/x held 0.999s
        "#]],
    );
}
