//! The fences and leases of byte ranges: what merges, what moves, what a holder may show.

use expect_test::expect;

use crate::script::check;

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
            2s check inode:1@0..20 fence=1: not good (superseded)
            2s check inode:1@0..20 fence=2: not good (other_scope)
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
            1s a refused not_holder (unknown): inode:1@0..20
            1s a refused not_holder (unknown): inode:1@0..20
            1s a refused not_holder (unknown): inode:1@0..20
            1s a refused not_holder (unknown): inode:1@0..20
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
            1s a refused not_holder (unknown): inode:1@0..20
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
            3s a refused lease_lost (released)
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
fn bytes_belong_to_the_lease_and_not_to_whoever_says_the_owner_name() {
    check(
        "
        0s a open s
        0s a open t
        0s a acquire inode:1@0..100 session=s
        1s a acquire inode:1@0..100
        1s a acquire inode:1@5..15 session=t
        1s a acquire inode:1@100..110 session=t
        1s a unlock inode:1 session=t
        2s a release inode:1@0..100 lease=t fence=1
        2s b acquire inode:1@0..100
        3s close s
        3s b acquire inode:1@0..100
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            1s a refused held: inode:1@0..100 by a fence=1 since 0s until 10s
            1s a refused held: inode:1@5..15 by a inode:1@0..100 fence=1 since 0s until 10s
            1s a granted inode:1@100..110 fence=2 until 10s
            1s a unlocked
            1s a released inode:1@100..110 fence=2
            2s a released inode:1@0..100 held 0s
            2s b refused held: inode:1@0..100 by a fence=1 since 0s until 10s
            3s s closed grants=1
            3s a closed inode:1@0..100 fence=1
            3s b granted inode:1@0..100 fence=3 until 13s
        "#]],
    );
}

#[test]
fn bytes_are_upgraded_and_extended_under_a_plain_lease() {
    check(
        "
        0s a acquire inode:1@0..10 shared as=l
        1s a acquire inode:1@0..20 session=l
        1s a acquire job/x session=l
        1s b acquire inode:1@30..40 session=l
        2s list
        3s a release inode:1@0..20
        3s keepalive l
        4s close l
        4s stats
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@0..20 fence=2 until 10s
            1s a replaced inode:1@0..10 shared fence=1
            1s a granted job/x fence=3 until 10s
            1s b refused session_not_found (unknown)
            2s list inode:1@0..20 held by a fence=2 since 1s until 10s
            2s list job/x held by a fence=3 since 1s until 10s
            2s list end
            3s a released inode:1@0..20 held 2s
            3s l renewed until 13s
            4s l closed grants=1
            4s a closed job/x fence=3
            4s stats epoch=0 fence=3 namespaces=0 grants=0 leases=0 sessions=0 recovering=0 waiters=0
        "#]],
    );
}

#[test]
fn fence_of_another_between_those_that_merged_is_not_good() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s as=one
        0s a acquire inode:2@0..10 as=other
        0s b acquire job/b
        1s a acquire inode:1@10..20 session=s as=two
        2s a renew inode:1@0..20 lease=s fence=2
        2s a renew inode:1@0..20 lease=s fence=3
        2s a release inode:1@0..20 lease=s fence=3
        2s a check inode:1@0..20 lease=s fence=3
        2s a check inode:1@0..20 lease=s fence=1
        2s a renew inode:1@0..20 grant=one
        3s a release inode:1@0..5 grant=one
        3s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:2@0..10 fence=2 until 10s
            0s b granted job/b fence=3 until 10s
            1s a granted inode:1@10..20 fence=4 until 10s
            2s a refused not_holder (unknown): inode:1@0..20
            2s a refused not_holder (unknown): inode:1@0..20
            2s a refused not_holder (unknown): inode:1@0..20
            2s check inode:1@0..20 fence=3: not good (unknown)
            2s check inode:1@0..20 fence=1: good, a fence=4 since 1s until 10s
            2s a renewed inode:1@0..20 until 12s
            3s a released inode:1@0..5 held 2s
            3s list inode:1@5..20 held by a fence=4 since 1s until 12s
            3s list inode:2@0..10 held by a fence=2 since 0s until 10s
            3s list job/b held by b fence=3 since 0s until 10s
            3s list end
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
