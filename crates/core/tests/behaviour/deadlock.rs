//! Deadlock: a wait that would close a circle is refused, with the circle; no other wait is.

use expect_test::expect;

use crate::script::{check, transcript};

#[test]
fn two_owners_that_cross_are_a_deadlock() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s a acquire job/y wait
        2s b acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            2s b refused deadlock: b -(job/x)-> a -(job/y)-> b
        "#]],
    );
}

#[test]
fn circle_of_three_is_told_whole() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        0s c acquire job/z
        1s a acquire job/y wait
        1s b acquire job/z wait
        1s c acquire job/x wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            0s c granted job/z fence=3 until 10s
            1s a queued job/y at 1
            1s b queued job/z at 1
            1s c refused deadlock: c -(job/x)-> a -(job/y)-> b -(job/z)-> c
        "#]],
    );
}

#[test]
fn long_circle_is_found() {
    use std::fmt::Write;

    let mut script = String::new();
    for number in 0..20 {
        writeln!(script, "0s o{number} acquire job/{number}").unwrap();
    }
    for number in 0..20 {
        let next = (number + 1) % 20;
        writeln!(script, "1s o{number} acquire job/{next} wait").unwrap();
    }
    let transcript = transcript(&script);
    let last = transcript.lines().last().unwrap();
    assert!(last.starts_with("1s o19 refused deadlock: o19 -(job/0)-> o0 -(job/1)-> o1 "));
    assert!(last.ends_with(" o18 -(job/19)-> o19"));
    assert_eq!(last.matches("->").count(), 20);
}

#[test]
fn of_a_long_circle_64_steps_are_told() {
    use std::fmt::Write;

    let mut script = String::new();
    for number in 0..1000 {
        writeln!(script, "0s o{number} acquire job/{number}").unwrap();
    }
    for number in 0..1000 {
        let next = (number + 1) % 1000;
        writeln!(script, "1s o{number} acquire job/{next} wait").unwrap();
    }
    let transcript = transcript(&script);
    let last = transcript.lines().last().unwrap();
    assert!(
        last.starts_with("1s o999 refused deadlock: o999 -(job/0)-> o0 -(job/1)-> o1 "),
        "{last}"
    );
    assert!(last.ends_with(" -(job/999)-> o999"), "{last}");
    assert_eq!(last.matches("->").count(), 64, "{last}");
}

#[test]
fn second_acquire_by_the_same_owner_is_the_shortest_circle() {
    check(
        "
        0s a acquire job/x
        1s a acquire job/x wait
        1s a acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a refused deadlock: a -(job/x)-> a
            1s a refused held: job/x by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn upgrade_of_a_name_waits_on_itself() {
    check(
        "0s a acquire job/x shared | 1s a acquire job/x wait",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a refused deadlock: a -(job/x)-> a
        "#]],
    );
}

#[test]
fn owner_waits_on_itself_across_its_sessions() {
    check(
        "
        0s a open s1
        0s a open s2
        0s a acquire job/x session=s1
        1s a acquire job/x session=s2 wait
        ",
        expect![[r#"
            0s s1 opened until 10s
            0s s2 opened until 10s
            0s a granted job/x fence=1 until 10s
            1s a refused deadlock: a -(job/x)-> a
        "#]],
    );
}

#[test]
fn waiting_behind_oneself_is_a_deadlock() {
    check(
        "
        0s b acquire job/x
        1s a acquire job/x wait
        2s a acquire job/x wait
        ",
        expect![[r#"
            0s b granted job/x fence=1 until 10s
            1s a queued job/x at 1
            2s a refused deadlock: a -(job/x)-> a
        "#]],
    );
}

#[test]
fn refused_request_leaves_what_its_owner_holds() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y
        1s a acquire job/y wait
        2s b acquire job/x wait
        2s get job/x
        2s get job/y
        3s b release job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s a queued job/y at 1
            2s b refused deadlock: b -(job/x)-> a -(job/y)-> b
            2s get job/x: held by a fence=1 since 0s until 10s
            2s get job/y: held by b fence=2 since 0s until 10s; a waits since 1s
            3s b released job/y held 3s
            3s a granted job/y fence=3 until 13s waited 2s
        "#]],
    );
}

#[test]
fn every_holder_of_a_shared_lock_is_followed() {
    check(
        "
        0s a acquire job/x shared
        0s b acquire job/x shared
        0s c acquire job/y
        1s c acquire job/x wait
        2s b acquire job/y wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            0s c granted job/y fence=3 until 10s
            1s c queued job/x at 1
            2s b refused deadlock: b -(job/y)-> c -(job/x)-> b
        "#]],
    );
}

#[test]
fn shared_waits_close_circles_too() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/y shared
        1s b acquire job/x shared wait
        2s a acquire job/y wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            1s b queued job/x at 1
            2s a refused deadlock: a -(job/y)-> b -(job/x)-> a
        "#]],
    );
}

#[test]
fn earlier_waiter_is_followed_to_what_else_it_waits_for() {
    check(
        "
        0s a acquire job/x shared
        0s r acquire job/y
        1s w acquire job/x wait
        1s w acquire job/y wait
        2s r acquire job/x shared wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s r granted job/y fence=2 until 10s
            1s w queued job/x at 1
            1s w queued job/y at 1
            2s r refused deadlock: r -(job/x)-> w -(job/y)-> r
        "#]],
    );
}

#[test]
fn circle_through_an_earlier_waiter_is_found() {
    check(
        "
        0s a acquire job/x shared
        0s r acquire job/z
        1s w acquire job/x wait
        2s a acquire job/z wait
        3s r acquire job/x shared wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s r granted job/z fence=2 until 10s
            1s w queued job/x at 1
            2s a queued job/z at 1
            3s r refused deadlock: r -(job/x)-> w -(job/x)-> a -(job/z)-> r
        "#]],
    );
}

#[test]
fn sets_are_followed_at_each_of_their_scopes() {
    check(
        "
        0s a acquire job/x
        0s b acquire {job/y, job/z}
        1s a acquire {job/w, job/z} wait
        2s b acquire {job/v, job/x} wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted {job/y, job/z} fence=2 until 10s
            1s a queued {job/w, job/z} at 1
            2s b refused deadlock: b -(job/x)-> a -(job/z)-> b
        "#]],
    );
}

#[test]
fn waiting_set_is_an_earlier_waiter_where_nobody_holds() {
    check(
        "
        0s a acquire job/x
        0s c acquire job/z
        1s b acquire {job/x, job/y} wait
        2s c acquire job/y wait
        3s a acquire job/z wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s c granted job/z fence=2 until 10s
            1s b queued {job/x, job/y} at 1
            2s c queued job/y at 2
            3s a refused deadlock: a -(job/z)-> c -(job/y)-> b -(job/x)-> a
        "#]],
    );
}

#[test]
fn semaphore_whose_holders_are_all_stuck_is_a_deadlock() {
    check(
        "
        0s a acquire pool permits=2
        0s c acquire pool permits=2
        0s b acquire job/y
        1s a acquire job/y wait
        2s b acquire pool permits=2 wait
        3s c acquire job/y wait
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s c granted pool fence=2 until 10s
            0s b granted job/y fence=3 until 10s
            1s a queued job/y at 1
            2s b queued pool at 1
            3s c refused deadlock: c -(job/y)-> b -(pool)-> c
        "#]],
    );
}

#[test]
fn owner_of_all_permits_waits_on_itself() {
    check(
        "
        0s a acquire pool permits=2
        0s a acquire pool permits=2
        1s a acquire pool permits=2 wait
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s a granted pool fence=2 until 10s
            1s a refused deadlock: a -(pool)-> a
        "#]],
    );
}

#[test]
fn two_owners_that_each_want_the_permit_of_the_other_are_a_deadlock() {
    check(
        "
        0s a acquire pool permits=2
        0s b acquire pool permits=2
        1s a acquire pool permits=2 wait
        2s b acquire pool permits=2 wait
        3s b release pool
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b granted pool fence=2 until 10s
            1s a queued pool at 1
            2s b refused deadlock: b -(pool)-> b
            3s b released pool held 3s
            3s a granted pool fence=3 until 13s waited 2s
        "#]],
    );
}

#[test]
fn paths_and_subtrees_close_circles() {
    check(
        "
        0s a acquire path:/srv/a
        0s b acquire path:/opt/b/c
        1s a acquire path:/opt/b/** wait
        2s b acquire path:/srv/** wait
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b granted path:/opt/b/c fence=2 until 10s
            1s a queued path:/opt/b/** at 1
            2s b refused deadlock: b -(path:/srv/**)-> a -(path:/opt/b/**)-> b
        "#]],
    );
}

#[test]
fn subtree_above_an_own_path_waits_on_itself() {
    check(
        "
        0s a acquire path:/srv/a
        1s a acquire path:/srv/** wait
        1s a acquire path:/srv/b wait
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            1s a refused deadlock: a -(path:/srv/**)-> a
            1s a granted path:/srv/b fence=2 until 11s
        "#]],
    );
}

#[test]
fn ranges_close_circles() {
    check(
        "
        0s a acquire inode:1@0..10 as=one
        0s b acquire inode:1@10..20 as=other
        1s a acquire inode:1@15..16 wait session=one
        2s b acquire inode:1@5..30 wait session=other
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@10..20 fence=2 until 10s
            1s a queued inode:1@15..16 at 1
            2s b refused deadlock: b -(inode:1@5..30)-> a -(inode:1@15..16)-> b
        "#]],
    );
}

#[test]
fn circle_through_scopes_of_every_kind_is_found() {
    check(
        "
        0s a acquire job/x
        0s b acquire path:/srv/**
        0s c acquire inode:1
        0s d acquire pool permits=1
        1s a acquire path:/srv/a wait
        1s b acquire inode:1@5..6 shared wait
        1s c acquire pool permits=1 wait
        1s d acquire {job/w, job/x shared} wait
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted path:/srv/** fence=2 until 10s
            0s c granted inode:1 fence=3 until 10s
            0s d granted pool fence=4 until 10s
            1s a queued path:/srv/a at 1
            1s b queued inode:1@5..6 at 1
            1s c queued pool at 1
            1s d refused deadlock: d -(job/x)-> a -(path:/srv/a)-> b -(inode:1@5..6)-> c -(pool)-> d
        "#]],
    );
}

#[test]
fn waiting_for_bytes_of_the_same_owner_name_under_another_lease_is_the_shortest_circle() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s a acquire inode:1@5..15 wait
        1s a open t
        2s a acquire inode:1@5..15 wait session=t
        3s b acquire inode:2 shared
        3s a acquire inode:2 wait session=s
        4s a acquire inode:2@0..1 wait session=t
        4s a acquire inode:2@0..1 wait session=s
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a refused deadlock: a -(inode:1@5..15)-> a
            1s t opened until 11s
            2s a refused deadlock: a -(inode:1@5..15)-> a
            3s b granted inode:2 fence=2 until 13s
            3s a queued inode:2 at 1
            4s a refused deadlock: a -(inode:2@0..1)-> a
            4s a queued inode:2@0..1 at 1
        "#]],
    );
}

#[test]
fn two_owners_upgrading_the_same_range_are_a_deadlock() {
    check(
        "
        0s a acquire inode:1@0..10 shared as=one
        0s b acquire inode:1@0..10 shared as=other
        1s a acquire inode:1@0..10 wait session=one
        2s b acquire inode:1@0..10 wait session=other
        3s list
        4s b release inode:1@0..10
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@0..10 fence=2 until 10s
            1s a queued inode:1@0..10 at 1
            2s b refused deadlock: b -(inode:1@0..10)-> a -(inode:1@0..10)-> b
            3s list inode:1@0..10 held by a shared fence=1 since 0s until 10s, 1 waiting
            3s list inode:1@0..10 held by b shared fence=2 since 0s until 10s, 1 waiting
            3s list end
            4s b released inode:1@0..10 held 4s
            4s a granted inode:1@0..10 fence=3 until 10s waited 3s
        "#]],
    );
}

#[test]
fn circle_that_only_arises_later_costs_the_youngest_wait() {
    check(
        "
        0s a acquire job/x ttl=5s window=60s
        0s b acquire job/y ttl=60s
        6s b acquire job/x wait
        7s a acquire job/y wait
        8s a acquire job/x
        8s graph
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 5s
            0s b granted job/y fence=2 until 60s
            6s a expired job/x fence=1, reclaim window 60s
            6s b queued job/x at 1
            7s a queued job/y at 1
            8s a granted job/x fence=3 until 18s
            8s a reclaimed job/x fence=1
            8s a refused deadlock: a -(job/y)-> b -(job/x)-> a
            8s graph holds a job/x fence=3 since 8s until 18s
            8s graph b -(job/x)-> a waited 2s
        "#]],
    );
}

#[test]
fn of_two_circles_of_one_length_the_first_by_name_is_told() {
    check(
        "
        0s b acquire job/2
        0s c acquire job/3
        0s z acquire {job/1}
        1s b acquire job/1 wait
        1s c acquire job/1 wait
        2s z acquire {job/2, job/3} wait
        ",
        expect![[r#"
            0s b granted job/2 fence=1 until 10s
            0s c granted job/3 fence=2 until 10s
            0s z granted job/1 fence=3 until 10s
            1s b queued job/1 at 1
            1s c queued job/1 at 2
            2s z refused deadlock: z -(job/2)-> b -(job/1)-> z
        "#]],
    );
}

#[test]
fn owner_that_only_waits_can_close_a_circle() {
    check(
        "
        0s h acquire job/x
        0s c acquire job/y
        1s r acquire job/x wait
        2s c acquire job/x wait
        3s r acquire job/y wait
        ",
        expect![[r#"
            0s h granted job/x fence=1 until 10s
            0s c granted job/y fence=2 until 10s
            1s r queued job/x at 1
            2s c queued job/x at 2
            3s r refused deadlock: r -(job/y)-> c -(job/x)-> r
        "#]],
    );
}

#[test]
fn coming_back_to_a_kept_place_can_close_a_circle() {
    check(
        "
        0s a acquire inode:1@7..10 shared ttl=60s
        0s b open t ttl=60s
        1s b acquire inode:1@9..11 wait=1s keep session=t
        2s c acquire inode:1@6.. wait
        2.001s tick
        3s b acquire inode:1 shared wait session=t
        4s b acquire inode:1@9..11 wait ticket session=t
        ",
        expect![[r#"
            0s a granted inode:1@7..10 fence=1 until 60s
            0s t opened until 60s
            1s b queued inode:1@9..11 at 1
            2s c queued inode:1@6.. at 1
            2.001s b refused held: inode:1@9..11 by a inode:1@7..10 shared fence=1 since 0s until 60s, 1 waiting, waited 1.001s, place 1 kept
            3s b queued inode:1 at 1
            4s b refused deadlock: b -(inode:1)-> c -(inode:1@6..)-> b
        "#]],
    );
}

#[test]
fn circle_that_is_told_has_only_edges_that_are_stuck() {
    check(
        "
        0s d acquire sem permits=2
        0s d acquire sem permits=2
        0s a acquire pool permits=2
        0s d acquire pool permits=2
        1s d acquire {pool permits=2, sem permits=2} wait
        ",
        expect![[r#"
            0s d granted sem fence=1 until 10s
            0s d granted sem fence=2 until 10s
            0s a granted pool fence=3 until 10s
            0s d granted pool fence=4 until 10s
            1s d refused deadlock: d -(sem)-> d
        "#]],
    );
}
