//! Upgrading and downgrading byte ranges while others hold or wait.

use expect_test::expect;

use crate::script::check;

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
        0s a acquire inode:1@0..10 shared as=one
        0s b acquire inode:1@10..20 shared as=other
        0s c acquire inode:1@0..20 shared
        1s a acquire inode:1@0..10 wait session=one
        2s b acquire inode:1@10..20 wait session=other
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
            3s a granted inode:1@0..10 fence=4 until 10s waited 2s
            3s b replaced inode:1@10..20 shared fence=2
            3s b granted inode:1@10..20 fence=5 until 10s waited 1s
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

#[test]
fn waiter_that_weakens_its_own_bytes_lets_later_readers_in() {
    check(
        "
        0s a open s ttl=60s
        0s a acquire inode:1@0..10 session=s
        0s b acquire inode:1@10..20
        1s a acquire inode:1@0..20 shared session=s wait
        2s c acquire inode:1@0..5 shared wait
        3s b release inode:1@10..20
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted inode:1@0..10 fence=1 until 60s
            0s b granted inode:1@10..20 fence=2 until 10s
            1s a queued inode:1@0..20 at 1
            2s c queued inode:1@0..5 at 1
            3s b released inode:1@10..20 held 3s
            3s a replaced inode:1@0..10 fence=1
            3s a granted inode:1@0..20 fence=3 until 60s waited 2s
            3s c granted inode:1@0..5 fence=4 until 13s waited 1s
        "#]],
    );
}

#[test]
fn waiter_that_weakens_its_own_bytes_lets_earlier_readers_in() {
    check(
        "
        0s a open s ttl=60s
        0s a acquire inode:1@0..10 session=s
        0s b acquire inode:1@10..20
        1s c acquire inode:1@0..5 shared wait
        2s a acquire inode:1@0..20 shared session=s wait
        3s b release inode:1@10..20
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted inode:1@0..10 fence=1 until 60s
            0s b granted inode:1@10..20 fence=2 until 10s
            1s c queued inode:1@0..5 at 1
            2s a queued inode:1@0..20 at 1
            3s b released inode:1@10..20 held 3s
            3s a replaced inode:1@0..10 fence=1
            3s a granted inode:1@0..20 fence=3 until 60s waited 1s
            3s c granted inode:1@0..5 fence=4 until 13s waited 2s
        "#]],
    );
}
