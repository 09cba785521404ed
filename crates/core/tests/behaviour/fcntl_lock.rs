//! Locking bytes over what the same owner holds already, as fcntl(2) does it.
//!
//! Each test is one cell of the table: how the new range lies to the held one, in the same mode or another.

use expect_test::expect;

use crate::script::check;

#[test]
fn range_apart_from_a_held_one_is_another() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a acquire inode:1@50..60 session=s
        1s a acquire inode:2@0..19 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a granted inode:1@50..60 fence=3 until 10s
            1s a granted inode:2@0..19 fence=4 until 10s
            2s list inode:1@20..40 held by a fence=1 since 0s until 10s
            2s list inode:1@50..60 held by a fence=3 since 1s until 10s
            2s list inode:2@0..19 held by a fence=4 since 1s until 10s
            2s list inode:2@20..40 held by a fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_apart_in_another_mode_is_another() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a acquire inode:1@50..60 shared session=s
        1s a acquire inode:2@0..19 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a granted inode:1@50..60 fence=3 until 10s
            1s a granted inode:2@0..19 fence=4 until 10s
            2s list inode:1@20..40 held by a fence=1 since 0s until 10s
            2s list inode:1@50..60 held by a shared fence=3 since 1s until 10s
            2s list inode:2@0..19 held by a shared fence=4 since 1s until 10s
            2s list inode:2@20..40 held by a fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn adjacent_range_merges() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a acquire inode:1@40..50 session=s
        1s a acquire inode:2@10..20 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a granted inode:1@40..50 fence=3 until 10s
            1s a granted inode:2@10..20 fence=4 until 10s
            2s list inode:1@20..50 held by a fence=3 since 1s until 10s
            2s list inode:2@10..40 held by a fence=4 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn adjacent_range_in_another_mode_stands_beside() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a acquire inode:1@40..50 shared session=s
        1s a acquire inode:2@10..20 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a granted inode:1@40..50 fence=3 until 10s
            1s a granted inode:2@10..20 fence=4 until 10s
            2s list inode:1@20..40 held by a fence=1 since 0s until 10s
            2s list inode:1@40..50 held by a shared fence=3 since 1s until 10s
            2s list inode:2@10..20 held by a shared fence=4 since 1s until 10s
            2s list inode:2@20..40 held by a fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn covering_range_takes_its_place() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        0s a acquire inode:3@20..40 session=s
        0s a acquire inode:4@20..40 session=s
        1s a acquire inode:1@20..40 session=s
        1s a acquire inode:2@10..50 session=s
        1s a acquire inode:3@20..50 session=s
        1s a acquire inode:4@0..40 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            0s a granted inode:3@20..40 fence=3 until 10s
            0s a granted inode:4@20..40 fence=4 until 10s
            1s a granted inode:1@20..40 fence=5 until 10s
            1s a granted inode:2@10..50 fence=6 until 10s
            1s a granted inode:3@20..50 fence=7 until 10s
            1s a granted inode:4@0..40 fence=8 until 10s
            2s list inode:1@20..40 held by a fence=5 since 1s until 10s
            2s list inode:2@10..50 held by a fence=6 since 1s until 10s
            2s list inode:3@20..50 held by a fence=7 since 1s until 10s
            2s list inode:4@0..40 held by a fence=8 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn covering_range_in_another_mode_takes_its_place() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        0s a acquire inode:3@20..40 session=s
        0s a acquire inode:4@20..40 session=s
        1s a acquire inode:1@20..40 shared session=s
        1s a acquire inode:2@10..50 shared session=s
        1s a acquire inode:3@20..50 shared session=s
        1s a acquire inode:4@0..40 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            0s a granted inode:3@20..40 fence=3 until 10s
            0s a granted inode:4@20..40 fence=4 until 10s
            1s a granted inode:1@20..40 fence=5 until 10s
            1s a replaced inode:1@20..40 fence=1
            1s a granted inode:2@10..50 fence=6 until 10s
            1s a replaced inode:2@20..40 fence=2
            1s a granted inode:3@20..50 fence=7 until 10s
            1s a replaced inode:3@20..40 fence=3
            1s a granted inode:4@0..40 fence=8 until 10s
            1s a replaced inode:4@20..40 fence=4
            2s list inode:1@20..40 held by a shared fence=5 since 1s until 10s
            2s list inode:2@10..50 held by a shared fence=6 since 1s until 10s
            2s list inode:3@20..50 held by a shared fence=7 since 1s until 10s
            2s list inode:4@0..40 held by a shared fence=8 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_inside_a_held_one_leaves_it_whole() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        1s a acquire inode:1@25..35 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            1s a granted inode:1@25..35 fence=2 until 10s
            2s list inode:1@20..40 held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_inside_in_another_mode_makes_three_pieces() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        1s a acquire inode:1@25..35 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            1s a granted inode:1@25..35 fence=2 until 10s
            1s a replaced inode:1@25..35 fence=1
            2s list inode:1@20..25 held by a fence=1 since 0s until 10s
            2s list inode:1@25..35 held by a shared fence=2 since 1s until 10s
            2s list inode:1@35..40 held by a fence=1 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_over_an_edge_makes_the_union() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a acquire inode:1@10..30 session=s
        1s a acquire inode:2@30..50 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a granted inode:1@10..30 fence=3 until 10s
            1s a granted inode:2@30..50 fence=4 until 10s
            2s list inode:1@10..40 held by a fence=3 since 1s until 10s
            2s list inode:2@20..50 held by a fence=4 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_over_an_edge_in_another_mode_trims() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a acquire inode:1@10..30 shared session=s
        1s a acquire inode:2@30..50 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a granted inode:1@10..30 fence=3 until 10s
            1s a replaced inode:1@20..30 fence=1
            1s a granted inode:2@30..50 fence=4 until 10s
            1s a replaced inode:2@30..40 fence=2
            2s list inode:1@10..30 held by a shared fence=3 since 1s until 10s
            2s list inode:1@30..40 held by a fence=1 since 0s until 10s
            2s list inode:2@20..30 held by a fence=2 since 0s until 10s
            2s list inode:2@30..50 held by a shared fence=4 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_over_several_of_mixed_modes_replaces_and_merges() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 shared session=s
        0s a acquire inode:1@40..50 session=s
        0s a acquire inode:1@50..60 shared session=s
        1s a acquire inode:1@5..45 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@20..30 fence=2 until 10s
            0s a granted inode:1@40..50 fence=3 until 10s
            0s a granted inode:1@50..60 fence=4 until 10s
            1s a granted inode:1@5..45 fence=5 until 10s
            1s a replaced inode:1@20..30 shared fence=2
            2s list inode:1@0..50 held by a fence=5 since 1s until 10s
            2s list inode:1@50..60 held by a shared fence=4 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn shared_range_over_several_of_mixed_modes_replaces_and_merges() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 shared session=s
        0s a acquire inode:1@40..50 session=s
        0s a acquire inode:1@50..60 shared session=s
        1s a acquire inode:1@5..50 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@20..30 fence=2 until 10s
            0s a granted inode:1@40..50 fence=3 until 10s
            0s a granted inode:1@50..60 fence=4 until 10s
            1s a granted inode:1@5..50 fence=5 until 10s
            1s a replaced inode:1@5..10 fence=1
            1s a replaced inode:1@40..50 fence=3
            2s list inode:1@0..5 held by a fence=1 since 0s until 10s
            2s list inode:1@5..60 held by a shared fence=5 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn shared_hole_in_an_exclusive_range_closes_again() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..100 session=s
        1s a acquire inode:1@40..60 shared session=s
        1s list
        2s a acquire inode:1@40..60 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..100 fence=1 until 10s
            1s a granted inode:1@40..60 fence=2 until 10s
            1s a replaced inode:1@40..60 fence=1
            1s list inode:1@0..40 held by a fence=1 since 0s until 10s
            1s list inode:1@40..60 held by a shared fence=2 since 1s until 10s
            1s list inode:1@60..100 held by a fence=1 since 0s until 10s
            1s list end
            2s a granted inode:1@40..60 fence=3 until 10s
            2s a replaced inode:1@40..60 shared fence=2
            2s list inode:1@0..100 held by a fence=3 since 2s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn gap_between_two_ranges_is_filled() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 session=s
        1s a acquire inode:1@10..20 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@20..30 fence=2 until 10s
            1s a granted inode:1@10..20 fence=3 until 10s
            2s list inode:1@0..30 held by a fence=3 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn downgrade_of_a_whole_range_keeps_its_place() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        1s a acquire inode:1@0..10 shared session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@0..10 fence=2 until 10s
            1s a replaced inode:1@0..10 fence=1
            2s list inode:1@0..10 held by a shared fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn upgrade_that_nobody_hinders_is_done_at_once() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 shared session=s
        1s a acquire inode:1@0..10 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@0..10 fence=2 until 10s
            1s a replaced inode:1@0..10 shared fence=1
            2s list inode:1@0..10 held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn range_to_the_end_of_the_file_is_cut_without_overflow() {
    check(
        "
        0s a open s
        0s a acquire inode:1 session=s
        1s a unlock inode:1@18446744073709551615.. session=s
        1s list
        1s a unlock inode:1@0..1 session=s
        1s list
        1s a acquire inode:1@18446744073709551615.. session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1 fence=1 until 10s
            1s a unlocked
            1s a released inode:1@18446744073709551615.. fence=1
            1s list inode:1@0..18446744073709551615 held by a fence=1 since 0s until 10s
            1s list end
            1s a unlocked
            1s a released inode:1@0..1 fence=1
            1s list inode:1@1..18446744073709551615 held by a fence=1 since 0s until 10s
            1s list end
            1s a granted inode:1@18446744073709551615.. fence=2 until 10s
            2s list inode:1@1.. held by a fence=2 since 1s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn pieces_of_other_owners_are_left_alone() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 shared session=s
        0s b acquire inode:1@0..10 shared session=s
        1s a unlock inode:1@0..10 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s b granted inode:1@0..10 fence=2 until 10s
            1s a unlocked
            1s a released inode:1@0..10 shared fence=1
            2s list inode:1@0..10 held by b shared fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}
