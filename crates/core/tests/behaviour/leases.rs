//! Leases: how long something is held.

use expect_test::expect;

use crate::script::check;

#[test]
fn waiter_is_granted_when_the_holder_expires() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s b acquire job/x wait
        10s tick
        10.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            10.001s a expired job/x fence=1
            10.001s b granted job/x fence=2 until 20.001s waited 9.001s
        "#]],
    );
}

#[test]
fn renewal_sets_the_deadline_to_now_plus_ttl() {
    check(
        "
        0s a acquire job/x ttl=10s
        4s a renew job/x
        10.001s get job/x
        14.001s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            4s a renewed job/x until 14s
            10.001s get job/x: held by a fence=1 since 0s until 14s
            14.001s a expired job/x fence=1
            14.001s get job/x: free; last fence=1
        "#]],
    );
}

#[test]
fn renewal_on_the_deadline_is_in_time() {
    check(
        "
        0s a acquire job/x ttl=10s
        10s a renew job/x
        20s a renew job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10s a renewed job/x until 20s
            20s a renewed job/x until 30s
        "#]],
    );
}

#[test]
fn renewal_after_the_deadline_is_too_late() {
    check(
        "
        0s a acquire job/x ttl=10s
        10.001s a renew job/x
        10.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1
            10.001s a refused lease_lost (expired)
            10.001s b granted job/x fence=2 until 20.001s
        "#]],
    );
}

#[test]
fn deadline_moment_belongs_to_the_holder() {
    check(
        "
        0s a acquire job/x ttl=10s
        10s b acquire job/x
        10s a check job/x
        10s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10s b refused held: job/x by a fence=1 since 0s until 10s
            10s check job/x fence=1: good, a fence=1 since 0s until 10s
            10s a released job/x held 10s
        "#]],
    );
}

#[test]
fn lease_is_over_the_moment_after_its_deadline() {
    check(
        "
        0s a acquire job/x ttl=10s
        10.001s a release job/x
        10.001s b acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s a expired job/x fence=1
            10.001s a refused not_holder (expired): job/x
            10.001s b granted job/x fence=2 until 20.001s
        "#]],
    );
}

#[test]
fn table_says_when_the_next_deadline_is_past() {
    check(
        "
        0s deadline
        0s a acquire job/x ttl=10s
        0s b acquire job/y ttl=5s
        0s deadline
        5.001s deadline
        10.001s deadline
        ",
        expect![[r#"
            0s no deadline
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 5s
            0s next deadline 5.001s
            5.001s b expired job/y fence=2
            5.001s next deadline 10.001s
            10.001s a expired job/x fence=1
            10.001s no deadline
        "#]],
    );
}

#[test]
fn next_deadline_counts_waits_and_the_grace() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b acquire job/x wait=3s
        0s deadline
        3.001s tick
        4s epoch conflicting grace=5s
        4s deadline
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b queued job/x at 1
            0s next deadline 3.001s
            3.001s b refused held: job/x by a fence=1 since 0s until 10s, waited 3.001s
            4s epoch 1 begun recovering=1
            4s next deadline 9.001s
        "#]],
    );
}

#[test]
fn plain_acquire_opens_a_lease_for_that_one_grant() {
    check(
        "
        0s a acquire job/x ttl=10s
        2s a acquire job/y ttl=20s
        2s stats
        5s a renew job/y
        10.001s get job/x
        10.001s get job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            2s a granted job/y fence=2 until 22s
            2s stats epoch=0 fence=2 namespaces=1 grants=2 leases=2 sessions=0 recovering=0 waiters=0
            5s a renewed job/y until 25s
            10.001s a expired job/x fence=1
            10.001s get job/x: free; last fence=1
            10.001s get job/y: held by a fence=2 since 2s until 25s
        "#]],
    );
}

#[test]
fn released_lease_is_gone_with_its_grant() {
    check(
        "
        0s a acquire job/x
        3s a release job/x
        3s stats
        3s a renew job/x
        3s a release job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            3s a released job/x held 3s
            3s stats epoch=0 fence=1 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
            3s a refused lease_lost (released)
            3s a released job/x held 3s, as before
        "#]],
    );
}

#[test]
fn renewal_with_a_longer_ttl_changes_the_lease() {
    check(
        "
        0s a acquire job/x ttl=10s
        5s a renew job/x ttl=60s
        64s a renew job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s a renewed job/x until 65s
            5s a has ttl 60s
            64s a renewed job/x until 124s
        "#]],
    );
}

#[test]
fn renewal_with_a_shorter_ttl_moves_the_deadline_nearer() {
    check(
        "
        0s a acquire job/x ttl=60s
        5s a renew job/x ttl=1s
        6s get job/x
        6.001s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 60s
            5s a renewed job/x until 6s
            5s a has ttl 1s
            6s get job/x: held by a fence=1 since 0s until 6s
            6.001s a expired job/x fence=1
            6.001s get job/x: free; last fence=1
        "#]],
    );
}

#[test]
fn renewal_that_keeps_the_ttl_changes_nothing_lasting() {
    check(
        "
        0s watch
        0s a acquire job/x ttl=10s
        1s a renew job/x
        2s a renew job/x ttl=10s
        3s a acquire job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s event 1: a granted job/x fence=1 ttl 10s
            1s a renewed job/x until 11s
            2s a renewed job/x until 12s
            3s a granted job/y fence=2 until 13s
            3s event 2: a granted job/y fence=2 ttl 10s
        "#]],
    );
}

#[test]
fn time_never_goes_back() {
    check(
        "
        5s a acquire job/x ttl=10s
        3s a renew job/x
        3s b acquire job/y ttl=1s
        6.001s get job/y
        ",
        expect![[r#"
            5s a granted job/x fence=1 until 15s
            3s a renewed job/x until 15s
            3s b granted job/y fence=2 until 6s
            6.001s b expired job/y fence=2
            6.001s get job/y: free; last fence=2
        "#]],
    );
}

#[test]
fn leases_due_together_end_in_the_order_of_their_deadlines() {
    check(
        "
        0s a acquire job/x ttl=3s
        0s b acquire job/y ttl=2s
        0s c acquire job/z ttl=2s
        9s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 3s
            0s b granted job/y fence=2 until 2s
            0s c granted job/z fence=3 until 2s
            9s b expired job/y fence=2
            9s c expired job/z fence=3
            9s a expired job/x fence=1
        "#]],
    );
}

#[test]
fn holder_is_told_that_its_lease_has_ended() {
    check(
        "
        0s a acquire job/x ttl=10s as=mine
        1s watch
        10.001s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10.001s mine told: lost, expired
            10.001s a expired job/x fence=1
        "#]],
    );
}

#[test]
fn metadata_is_shown_and_never_looked_at() {
    check(
        "
        0s a acquire job/x meta=host-7
        0s b acquire job/x
        0s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused held: job/x by a fence=1 since 0s until 10s meta=host-7
            0s get job/x: held by a fence=1 since 0s until 10s meta=host-7
        "#]],
    );
}

#[test]
fn renewed_lease_ends_in_the_order_of_its_new_deadline() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s b acquire job/y ttl=10s
        5s a renew job/x
        60s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b granted job/y fence=2 until 11s
            5s a renewed job/x until 15s
            60s b expired job/y fence=2
            60s a expired job/x fence=1
        "#]],
    );
}

#[test]
fn leases_of_all_namespaces_end_in_one_order() {
    check(
        "
        0s a acquire job/x in=red ttl=3s
        0s b acquire job/y in=blue ttl=2s
        0s c acquire job/z in=red ttl=1s
        9s tick
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 3s
            0s b granted job/y fence=2 until 2s
            0s c granted job/z fence=3 until 1s
            9s c expired job/z fence=3
            9s b expired job/y fence=2
            9s a expired job/x fence=1
        "#]],
    );
}
