//! Byte ranges between owners and leases: waiting, upgrading, tokens, testing.

use expect_test::expect;

use crate::script::check;

#[test]
fn unlocking_what_is_not_held_succeeds() {
    check(
        "
        0s a open s
        0s a unlock inode:1 session=s
        0s b acquire inode:1@0..10
        0s a unlock inode:1 session=s
        0s get inode:1
        ",
        expect![[r#"
            0s s opened until 10s
            0s a unlocked nothing
            0s b granted inode:1@0..10 fence=1 until 10s
            0s a unlocked nothing
            0s get inode:1: held by b inode:1@0..10 fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn unlocking_under_a_session_that_is_gone_is_refused() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire inode:1@0..10 session=s
        10.001s a unlock inode:1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            10.001s a expired inode:1@0..10 fence=1
            10.001s s of a expired
            10.001s a refused session_not_found
        "#]],
    );
}

#[test]
fn unlocking_touches_one_owner_only() {
    check(
        "
        0s host open s
        0s p1 acquire inode:1@0..10 session=s
        0s p2 acquire inode:1@10..20 session=s
        1s p1 unlock inode:1 session=s
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s p1 granted inode:1@0..10 fence=1 until 10s
            0s p2 granted inode:1@10..20 fence=2 until 10s
            1s p1 unlocked
            1s p1 released inode:1@0..10 fence=1
            1s list inode:1@10..20 held by p2 fence=2 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn unlocking_wakes_waiters_on_the_bytes_that_came_free() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..100 session=s
        0s b acquire inode:1@10..20 wait
        0s c acquire inode:1@15..25 wait
        0s d acquire inode:1@90..95 wait
        1s a unlock inode:1@10..30 session=s
        2s b release inode:1@10..20
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            0s b queued inode:1@10..20 at 1
            0s c queued inode:1@15..25 at 1
            0s d queued inode:1@90..95 at 1
            1s a unlocked
            1s a released inode:1@10..30 fence=1
            1s b granted inode:1@10..20 fence=2 until 11s waited 1s
            2s b released inode:1@10..20 held 1s
            2s c granted inode:1@15..25 fence=3 until 12s waited 2s
        "#]],
    );
}

#[test]
fn downgrade_wakes_waiting_readers() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s b acquire inode:1@0..10 shared wait
        1s c acquire inode:1@0..10 wait
        2s a acquire inode:1@0..10 shared session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            1s c queued inode:1@0..10 at 2
            2s a granted inode:1@0..10 fence=2 until 10s
            2s a replaced inode:1@0..10 fence=1
            2s b granted inode:1@0..10 fence=3 until 12s waited 1s
        "#]],
    );
}

#[test]
fn downgrade_of_a_part_wakes_those_who_want_that_part() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..100 session=s
        1s b acquire inode:1@40..60 shared wait
        1s c acquire inode:1@0..10 shared wait
        2s a acquire inode:1@30..70 shared session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            1s b queued inode:1@40..60 at 1
            1s c queued inode:1@0..10 at 1
            2s a granted inode:1@30..70 fence=2 until 10s
            2s a replaced inode:1@30..70 fence=1
            2s b granted inode:1@40..60 fence=3 until 12s waited 1s
        "#]],
    );
}

#[test]
fn refused_upgrade_leaves_the_shared_range() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 shared session=s
        0s b acquire inode:1@5..6 shared
        1s a acquire inode:1@0..10 session=s
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@5..6 fence=2 until 10s
            1s a refused held: inode:1@0..10 by b inode:1@5..6 shared fence=2 since 0s until 10s
            1s list inode:1@0..10 held by a shared fence=1 since 0s until 10s
            1s list inode:1@5..6 held by b shared fence=2 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn upgrade_that_waits_keeps_the_shared_range_meanwhile() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 shared session=s
        0s b acquire inode:1@5..6 shared
        1s a acquire inode:1@0..10 session=s wait
        2s list
        2s c acquire inode:1@0..1
        3s b release inode:1@5..6
        3s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@5..6 fence=2 until 10s
            1s a queued inode:1@0..10 at 1
            2s list inode:1@0..10 held by a shared fence=1 since 0s until 10s, 1 waiting
            2s list inode:1@5..6 held by b shared fence=2 since 0s until 10s, 1 waiting
            2s list end
            2s c refused held: inode:1@0..1 by a inode:1@0..10 shared fence=1 since 0s until 10s, 1 waiting
            3s b released inode:1@5..6 held 3s
            3s a replaced inode:1@0..10 shared fence=1
            3s a granted inode:1@0..10 fence=3 until 10s waited 2s
            3s list inode:1@0..10 held by a fence=3 since 3s until 10s
            3s list end
        "#]],
    );
}

#[test]
fn second_owner_that_upgrades_the_same_range_is_told() {
    check(
        "
        0s a open s
        0s b open t
        0s a acquire inode:1@0..10 shared session=s
        0s b acquire inode:1@0..10 shared session=t
        1s a acquire inode:1@0..10 session=s wait
        2s b acquire inode:1@0..10 session=t wait
        2s list
        3s b unlock inode:1 session=t
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@0..10 fence=2 until 10s
            1s a queued inode:1@0..10 at 1
            2s b refused deadlock: b -(inode:1@0..10)-> a -(inode:1@0..10)-> b
            2s list inode:1@0..10 held by a shared fence=1 since 0s until 10s, 1 waiting
            2s list inode:1@0..10 held by b shared fence=2 since 0s until 10s, 1 waiting
            2s list end
            3s b unlocked
            3s b released inode:1@0..10 shared fence=2
            3s a replaced inode:1@0..10 shared fence=1
            3s a granted inode:1@0..10 fence=3 until 10s waited 2s
        "#]],
    );
}

#[test]
fn owners_upgrading_different_parts_are_no_deadlock() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        0s b acquire inode:1@10..20 shared
        0s c acquire inode:1@0..20 shared
        1s a acquire inode:1@0..10 wait
        2s b acquire inode:1@10..20 wait
        3s c release inode:1@0..20
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@10..20 fence=2 until 10s
            0s c granted inode:1@0..20 fence=3 until 10s
            1s a queued inode:1@0..10 at 1
            2s b queued inode:1@10..20 at 1
            3s c released inode:1@0..20 held 3s
            3s a replaced inode:1@0..10 shared fence=1
            3s a granted inode:1@0..10 fence=4 until 13s waited 2s
            3s b replaced inode:1@10..20 shared fence=2
            3s b granted inode:1@10..20 fence=5 until 13s waited 1s
        "#]],
    );
}

#[test]
fn upgrade_does_not_queue_behind_those_who_wait_for_the_owner_itself() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 shared session=s
        1s b acquire inode:1@0..10 wait
        2s a acquire inode:1@0..10 session=s
        3s a unlock inode:1 session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            2s a granted inode:1@0..10 fence=2 until 10s
            2s a replaced inode:1@0..10 shared fence=1
            3s a unlocked
            3s a released inode:1@0..10 fence=2
            3s b granted inode:1@0..10 fence=3 until 13s waited 2s
        "#]],
    );
}

#[test]
fn downgrade_of_own_bytes_does_not_queue() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s b acquire inode:1@0..10 wait
        2s a acquire inode:1@3..5 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            2s a granted inode:1@3..5 fence=2 until 10s
            2s a replaced inode:1@3..5 fence=1
            2s list inode:1@0..3 held by a fence=1 since 0s until 10s, 1 waiting
            2s list inode:1@3..5 held by a shared fence=2 since 2s until 10s, 1 waiting
            2s list inode:1@5..10 held by a fence=1 since 0s until 10s, 1 waiting
            2s list end
        "#]],
    );
}

#[test]
fn bytes_beyond_the_own_range_queue_behind_earlier_waiters() {
    check(
        "
        0s a open s
        0s c acquire inode:1@10..20 shared
        0s a acquire inode:1@0..10 session=s
        1s b acquire inode:1@10..20 wait
        2s a acquire inode:1@0..20 shared session=s wait
        3s c release inode:1@10..20
        4s b release inode:1@10..20
        ",
        expect![[r#"
            0s s opened until 10s
            0s c granted inode:1@10..20 fence=1 until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            1s b queued inode:1@10..20 at 1
            2s a queued inode:1@0..20 at 1
            3s c released inode:1@10..20 held 3s
            3s b granted inode:1@10..20 fence=3 until 13s waited 2s
            4s b released inode:1@10..20 held 1s
            4s a replaced inode:1@0..10 fence=2
            4s a granted inode:1@0..20 fence=4 until 10s waited 2s
        "#]],
    );
}

#[test]
fn reader_behind_a_waiting_writer_waits_too() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        1s b acquire inode:1@5..15 wait
        2s c acquire inode:1@0..10 shared wait
        2s d acquire inode:1@0..5 shared
        3s a release inode:1@0..10
        4s b release inode:1@5..15
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@5..15 at 1
            2s c queued inode:1@0..10 at 1
            2s d granted inode:1@0..5 fence=2 until 12s
            3s a released inode:1@0..10 held 3s
            3s b granted inode:1@5..15 fence=3 until 13s waited 2s
            4s b released inode:1@5..15 held 1s
            4s c granted inode:1@0..10 fence=4 until 14s waited 2s
        "#]],
    );
}

#[test]
fn waiters_on_disjoint_bytes_do_not_meet() {
    check(
        "
        0s a acquire inode:1
        1s b acquire inode:1@0..10 wait
        1s c acquire inode:1@10..20 wait
        1s d acquire inode:1@5..15 wait
        2s a release inode:1
        3s b release inode:1@0..10
        4s c release inode:1@10..20
        ",
        expect![[r#"
            0s a granted inode:1 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            1s c queued inode:1@10..20 at 1
            1s d queued inode:1@5..15 at 1
            2s a released inode:1 held 2s
            2s b granted inode:1@0..10 fence=2 until 12s waited 1s
            2s c granted inode:1@10..20 fence=3 until 12s waited 1s
            3s b released inode:1@0..10 held 1s
            4s c released inode:1@10..20 held 2s
            4s d granted inode:1@5..15 fence=4 until 14s waited 3s
        "#]],
    );
}

#[test]
fn merged_range_carries_the_highest_of_its_fences() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s z acquire job/z
        1s a acquire inode:1@10..20 session=s
        1s get inode:1
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s z granted job/z fence=2 until 10s
            1s a granted inode:1@10..20 fence=3 until 10s
            1s get inode:1: held by a inode:1@0..20 fence=3 since 1s until 10s
        "#]],
    );
}

#[test]
fn any_fence_of_the_parts_is_good_for_the_merged_range() {
    check(
        "
        0s a open s ttl=10s
        0s a acquire inode:1@0..10 session=s as=one
        1s a acquire inode:1@10..20 session=s as=two
        2s a renew inode:1@10..20 grant=one
        3s a renew inode:1@0..10 grant=two
        3s a check inode:1@0..20 grant=one leased
        4s a release inode:1@5..15 grant=one
        4s list
        5s a release inode:1 grant=two
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@10..20 fence=2 until 10s
            2s a renewed inode:1@10..20 until 12s
            3s a renewed inode:1@0..10 until 13s
            3s check inode:1@0..20 fence=1: good, a fence=2 since 1s until 13s
            4s a released inode:1@5..15 held 3s
            4s list inode:1@0..5 held by a fence=2 since 1s until 13s
            4s list inode:1@15..20 held by a fence=2 since 1s until 13s
            4s list end
            5s a released inode:1 held 4s
            5s a released inode:1@0..5 fence=2
            5s a released inode:1@15..20 fence=2
        "#]],
    );
}

#[test]
fn check_without_a_lease_knows_the_highest_fence_only() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s as=one
        0s z acquire job/z as=other
        1s a acquire inode:1@10..20 session=s as=two
        2s a check inode:1@0..20 grant=one
        2s a check inode:1@0..20 grant=other
        2s a check inode:1@0..20 grant=two
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s z granted job/z fence=2 until 10s
            1s a granted inode:1@10..20 fence=3 until 10s
            2s check inode:1@0..20 fence=1: not good
            2s check inode:1@0..20 fence=2: not good
            2s check inode:1@0..20 fence=3: good, a fence=3 since 1s until 10s
        "#]],
    );
}

#[test]
fn fence_from_outside_the_merged_range_is_refused() {
    check(
        "
        0s z acquire job/z
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@10..20 session=s
        1s a renew inode:1@0..20 fence=1
        1s a renew inode:1@0..20 fence=4
        1s a release inode:1@0..20 fence=1
        1s a release inode:1@0..20 fence=4
        1s list
        ",
        expect![[r#"
            0s z granted job/z fence=1 until 10s
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=2 until 10s
            0s a granted inode:1@10..20 fence=3 until 10s
            1s a refused not_holder: inode:1@0..20
            1s a refused not_holder: inode:1@0..20
            1s a refused not_holder: inode:1@0..20
            1s a refused not_holder: inode:1@0..20
            1s list inode:1@0..20 held by a fence=3 since 0s until 10s
            1s list job/z held by z fence=1 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn release_of_bytes_ends_just_them() {
    check(
        "
        0s a acquire inode:1@0..100
        1s a release inode:1@40..60
        1s list
        2s a release inode:1@0..40
        3s a release inode:1@50..100
        3s stats
        ",
        expect![[r#"
            0s a granted inode:1@0..100 fence=1 until 10s
            1s a released inode:1@40..60 held 1s
            1s list inode:1@0..40 held by a fence=1 since 0s until 10s
            1s list inode:1@60..100 held by a fence=1 since 0s until 10s
            1s list end
            2s a released inode:1@0..40 held 2s
            3s a released inode:1@50..100 held 3s
            3s a released inode:1@60..100 fence=1
            3s stats epoch=0 fence=1 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn release_of_bytes_that_are_not_held_succeeds() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s a release inode:1@50..60
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a released inode:1@50..60 held 0s
            1s list inode:1@0..10 held by a fence=1 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn release_over_bytes_of_another_fence_is_refused_whole() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s as=one
        0s a acquire inode:1@10..20 shared session=s as=two
        1s a release inode:1@0..20 grant=one
        1s list
        1s a release inode:1@0..10 grant=one
        1s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@10..20 fence=2 until 10s
            1s a refused not_holder: inode:1@0..20
            1s list inode:1@0..10 held by a fence=1 since 0s until 10s
            1s list inode:1@10..20 held by a shared fence=2 since 0s until 10s
            1s list end
            1s a released inode:1@0..10 held 1s
            1s list inode:1@10..20 held by a shared fence=2 since 0s until 10s
            1s list end
        "#]],
    );
}

#[test]
fn plain_lease_lasts_as_long_as_some_of_its_bytes() {
    check(
        "
        0s a acquire inode:1@0..10 ttl=10s
        1s a release inode:1@0..5
        2s a renew inode:1@5..10
        3s a release inode:1@5..10
        3s a renew inode:1@5..10
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a released inode:1@0..5 held 1s
            2s a renewed inode:1@5..10 until 12s
            3s a released inode:1@5..10 held 3s
            3s a refused lease_lost
        "#]],
    );
}

#[test]
fn ranges_of_two_leases_do_not_merge() {
    check(
        "
        0s a open s
        0s a open t
        0s a acquire inode:1@0..10 session=s
        1s a acquire inode:1@10..20 session=t
        1s list
        2s close s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@10..20 fence=2 until 10s
            1s list inode:1@0..10 held by a fence=1 since 0s until 10s
            1s list inode:1@10..20 held by a fence=2 since 1s until 10s
            1s list end
            2s s closed grants=1
            2s a closed inode:1@0..10 fence=1
            2s list inode:1@10..20 held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn bytes_locked_over_move_to_the_newer_lease() {
    check(
        "
        0s a open s
        0s a open t
        0s a acquire inode:1@0..20 session=s
        1s a acquire inode:1@5..15 session=t
        1s list
        2s close s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted inode:1@0..20 fence=1 until 10s
            1s a granted inode:1@5..15 fence=2 until 10s
            1s a replaced inode:1@5..15 fence=1
            1s list inode:1@0..5 held by a fence=1 since 0s until 10s
            1s list inode:1@5..15 held by a fence=2 since 1s until 10s
            1s list inode:1@15..20 held by a fence=1 since 0s until 10s
            1s list end
            2s s closed grants=2
            2s a closed inode:1@0..5 fence=1
            2s a closed inode:1@15..20 fence=1
            2s list inode:1@5..15 held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn plain_lease_whose_bytes_all_moved_is_gone() {
    check(
        "
        0s a acquire inode:1@0..10 as=first
        1s a acquire inode:1@0..10 as=second
        1s a renew inode:1@0..10 grant=first
        1s a renew inode:1@0..10 grant=second
        1s stats
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@0..10 fence=2 until 11s
            1s a replaced inode:1@0..10 fence=1
            1s a refused lease_lost
            1s a renewed inode:1@0..10 until 11s
            1s stats epoch=0 fence=2 namespaces=1 grants=1 leases=1 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn fence_of_the_older_lease_is_not_good_for_bytes_that_moved() {
    check(
        "
        0s a open s
        0s a open t
        0s a acquire inode:1@0..20 session=s as=old
        1s a acquire inode:1@5..15 session=t as=new
        2s a check inode:1@5..15 grant=old
        2s a check inode:1@0..5 grant=old
        2s a release inode:1@5..15 grant=old
        2s a release inode:1@5..15 grant=new
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted inode:1@0..20 fence=1 until 10s
            1s a granted inode:1@5..15 fence=2 until 10s
            1s a replaced inode:1@5..15 fence=1
            2s check inode:1@5..15 fence=1: not good
            2s check inode:1@0..5 fence=1: good, a fence=1 since 0s until 10s
            2s a released inode:1@5..15 held 0s
            2s a released inode:1@5..15 held 1s
            2s list inode:1@0..5 held by a fence=1 since 0s until 10s
            2s list inode:1@15..20 held by a fence=1 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn testing_returns_the_first_conflicting_grant() {
    check(
        "
        0s a acquire inode:1@50..60
        0s b acquire inode:1@20..30 shared
        0s c acquire inode:1@20..40 shared
        1s d test inode:1
        1s d test inode:1@25..
        1s d test inode:1@45..
        1s d test inode:1@20..30 shared
        1s d test inode:1@60..
        1s d test inode:2
        ",
        expect![[r#"
            0s a granted inode:1@50..60 fence=1 until 10s
            0s b granted inode:1@20..30 fence=2 until 10s
            0s c granted inode:1@20..40 fence=3 until 10s
            1s d test inode:1: held by b inode:1@20..30 shared fence=2 since 0s until 10s
            1s d test inode:1@25..: held by b inode:1@20..30 shared fence=2 since 0s until 10s
            1s d test inode:1@45..: held by a inode:1@50..60 fence=1 since 0s until 10s
            1s d test inode:1@20..30: free
            1s d test inode:1@60..: free
            1s d test inode:2: free
        "#]],
    );
}

#[test]
fn testing_never_sees_what_its_owner_holds() {
    check(
        "
        0s a acquire inode:1@0..10
        0s b acquire inode:1@20..30
        1s a test inode:1@0..10
        1s a test inode:1
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@20..30 fence=2 until 10s
            1s a test inode:1@0..10: free
            1s a test inode:1: held by b inode:1@20..30 fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn testing_sees_holders_and_not_waiters() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        1s b acquire inode:1@0..10 wait
        2s c test inode:1@0..10 shared
        2s c test inode:1@0..10
        3s get inode:1
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@0..10 at 1
            2s c test inode:1@0..10: free
            2s c test inode:1@0..10: held by a inode:1@0..10 shared fence=1 since 0s until 10s
            3s get inode:1: held by a inode:1@0..10 shared fence=1 since 0s until 10s; b waits for inode:1@0..10 since 1s
        "#]],
    );
}

#[test]
fn testing_works_on_names_and_paths() {
    check(
        "
        0s a acquire job/x shared
        0s a acquire path:/srv/a
        1s b test job/x
        1s b test job/x shared
        1s b test path:/srv/**
        1s b test path:/srv
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted path:/srv/a fence=2 until 10s
            1s b test job/x: held by a job/x shared fence=1 since 0s until 10s
            1s b test job/x: free
            1s b test path:/srv/**: held by a path:/srv/a fence=2 since 0s until 10s
            1s b test path:/srv: free
        "#]],
    );
}

#[test]
fn flock_is_apart_from_fcntl_ranges() {
    check(
        "
        0s a acquire inode:42
        0s b acquire flock:42
        0s c acquire flock:42 shared
        0s c acquire inode:42@0..1 shared
        ",
        expect![[r#"
            0s a granted inode:42 fence=1 until 10s
            0s b granted flock:42 fence=2 until 10s
            0s c refused held: flock:42 by b fence=2 since 0s until 10s
            0s c refused held: inode:42@0..1 by a inode:42 fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn removing_a_file_drops_its_grants_and_fails_its_waiters() {
    check(
        "
        0s a open s
        0s a acquire inode:42@0..10 session=s
        0s b acquire inode:42@20..30 shared
        0s a acquire inode:43 session=s
        1s c acquire inode:42@0..5 wait
        1s d acquire {job/x, inode:42@25..26} wait
        1s e acquire job/x wait
        1s f acquire inode:43@0..1 wait
        2s remove-file 42
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:42@0..10 fence=1 until 10s
            0s b granted inode:42@20..30 fence=2 until 10s
            0s a granted inode:43 fence=3 until 10s
            1s c queued inode:42@0..5 at 1
            1s d queued {job/x, inode:42@25..26} at 1
            1s e queued job/x at 2
            1s f queued inode:43@0..1 at 1
            2s file 42 removed grants=2 waiters=2
            2s c refused file_removed: inode 42
            2s d refused file_removed: inode 42
            2s a file_removed inode:42@0..10 fence=1
            2s b file_removed inode:42@20..30 shared fence=2
            2s e granted job/x fence=4 until 12s waited 1s
            2s list inode:43 held by a fence=3 since 0s until 10s, 1 waiting
            2s list job/x held by e fence=4 since 2s until 12s
            2s list end
        "#]],
    );
}

#[test]
fn removed_file_may_be_locked_again() {
    check(
        "
        0s a acquire inode:42
        1s remove-file 42
        1s b acquire inode:42
        1s a renew inode:42
        2s remove-file 44
        2s remove-file 42 in=red
        ",
        expect![[r#"
            0s a granted inode:42 fence=1 until 10s
            1s file 42 removed grants=1 waiters=0
            1s a file_removed inode:42 fence=1
            1s b granted inode:42 fence=2 until 11s
            1s a refused lease_lost
            2s file 44 removed grants=0 waiters=0
            2s file 42 removed grants=0 waiters=0
        "#]],
    );
}

#[test]
fn expiry_of_another_reader_lets_an_upgrade_through() {
    check(
        "
        0s a open s ttl=60s
        0s a acquire inode:1@0..10 shared session=s
        0s b acquire inode:1@5..6 shared ttl=10s
        1s a acquire inode:1@0..10 session=s wait
        10.001s tick
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted inode:1@0..10 fence=1 until 60s
            0s b granted inode:1@5..6 fence=2 until 10s
            1s a queued inode:1@0..10 at 1
            10.001s b expired inode:1@5..6 shared fence=2
            10.001s a replaced inode:1@0..10 shared fence=1
            10.001s a granted inode:1@0..10 fence=3 until 60s waited 9.001s
        "#]],
    );
}

#[test]
fn cancel_of_a_waiting_writer_lets_readers_behind_it_go() {
    check(
        "
        0s a acquire inode:1@0..10 shared
        1s b acquire inode:1@5..15 wait
        1s c acquire inode:1@0..10 shared wait
        1s d acquire inode:1@12..20 shared wait
        2s b cancel inode:1@5..15
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued inode:1@5..15 at 1
            1s c queued inode:1@0..10 at 1
            1s d queued inode:1@12..20 at 1
            2s b cancelled
            2s c granted inode:1@0..10 fence=2 until 12s waited 1s
            2s d granted inode:1@12..20 fence=3 until 12s waited 1s
        "#]],
    );
}

#[test]
fn ranges_of_two_owners_under_one_session_do_not_merge() {
    check(
        "
        0s host open s
        0s p1 acquire inode:1@0..10 shared session=s
        0s p2 acquire inode:1@10..20 shared session=s
        0s p1 acquire inode:1@20..30 shared session=s
        0s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s p1 granted inode:1@0..10 fence=1 until 10s
            0s p2 granted inode:1@10..20 fence=2 until 10s
            0s p1 granted inode:1@20..30 fence=3 until 10s
            0s list inode:1@0..10 held by p1 shared fence=1 since 0s until 10s
            0s list inode:1@10..20 held by p2 shared fence=2 since 0s until 10s
            0s list inode:1@20..30 held by p1 shared fence=3 since 0s until 10s
            0s list end
        "#]],
    );
}

#[test]
fn upgrade_waits_for_the_bytes_that_others_share() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..100 shared session=s
        0s b acquire inode:1@90..100 shared
        1s a acquire inode:1@0..50 session=s
        1s a acquire inode:1@50..100 session=s wait
        1s list
        2s b release inode:1@90..100
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            0s b granted inode:1@90..100 fence=2 until 10s
            1s a granted inode:1@0..50 fence=3 until 10s
            1s a replaced inode:1@0..50 shared fence=1
            1s a queued inode:1@50..100 at 1
            1s list inode:1@0..50 held by a fence=3 since 1s until 10s
            1s list inode:1@50..100 held by a shared fence=1 since 0s until 10s, 1 waiting
            1s list inode:1@90..100 held by b shared fence=2 since 0s until 10s, 1 waiting
            1s list end
            2s b released inode:1@90..100 held 2s
            2s a replaced inode:1@50..100 shared fence=1
            2s a granted inode:1@50..100 fence=4 until 10s waited 1s
            2s list inode:1@0..100 held by a fence=4 since 2s until 10s
            2s list end
        "#]],
    );
}
