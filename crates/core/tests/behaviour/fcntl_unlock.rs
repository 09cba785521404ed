//! Unlocking bytes of one owner, as fcntl(2) does it.
//!
//! Each test is one cell of the table: how the unlocked range lies to the held one.

use expect_test::expect;

use crate::script::check;

#[test]
fn unlocking_apart_from_what_is_held_changes_nothing() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a unlock inode:1@50..60 session=s
        1s a unlock inode:2@0..19 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a unlocked nothing
            1s a unlocked nothing
            2s list inode:1@20..40 held by a fence=1 since 0s until 10s
            2s list inode:2@20..40 held by a fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn unlocking_beside_what_is_held_changes_nothing() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a unlock inode:1@40..50 session=s
        1s a unlock inode:2@10..20 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a unlocked nothing
            1s a unlocked nothing
            2s list inode:1@20..40 held by a fence=1 since 0s until 10s
            2s list inode:2@20..40 held by a fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn unlocking_all_of_it_removes_it() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        0s a acquire inode:3@20..40 session=s
        0s a acquire inode:4@20..40 session=s
        1s a unlock inode:1@20..40 session=s
        1s a unlock inode:2@10..50 session=s
        1s a unlock inode:3@20..50 session=s
        1s a unlock inode:4@0..40 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            0s a granted inode:3@20..40 fence=3 until 10s
            0s a granted inode:4@20..40 fence=4 until 10s
            1s a unlocked
            1s a released inode:1@20..40 fence=1
            1s a unlocked
            1s a released inode:2@20..40 fence=2
            1s a unlocked
            1s a released inode:3@20..40 fence=3
            1s a unlocked
            1s a released inode:4@20..40 fence=4
            2s list end
        "#]],
    );
}

#[test]
fn unlocking_inside_splits() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        1s a unlock inode:1@25..35 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            1s a unlocked
            1s a released inode:1@25..35 fence=1
            2s list inode:1@20..25 held by a fence=1 since 0s until 10s
            2s list inode:1@35..40 held by a fence=1 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn unlocking_over_an_edge_trims() {
    check(
        "
        0s a open s
        0s a acquire inode:1@20..40 session=s
        0s a acquire inode:2@20..40 session=s
        1s a unlock inode:1@10..30 session=s
        1s a unlock inode:2@30..50 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@20..40 fence=1 until 10s
            0s a granted inode:2@20..40 fence=2 until 10s
            1s a unlocked
            1s a released inode:1@20..30 fence=1
            1s a unlocked
            1s a released inode:2@30..40 fence=2
            2s list inode:1@30..40 held by a fence=1 since 0s until 10s
            2s list inode:2@20..30 held by a fence=2 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn unlocking_over_several_trims_and_removes() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 shared session=s
        0s a acquire inode:1@40..50 session=s
        0s a acquire inode:1@50..60 shared session=s
        1s a unlock inode:1@5..55 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@20..30 fence=2 until 10s
            0s a granted inode:1@40..50 fence=3 until 10s
            0s a granted inode:1@50..60 fence=4 until 10s
            1s a unlocked
            1s a released inode:1@5..10 fence=1
            1s a released inode:1@20..30 shared fence=2
            1s a released inode:1@40..50 fence=3
            1s a released inode:1@50..55 shared fence=4
            2s list inode:1@0..5 held by a fence=1 since 0s until 10s
            2s list inode:1@55..60 held by a shared fence=4 since 0s until 10s
            2s list end
        "#]],
    );
}

#[test]
fn everything_is_unlocked_at_once() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        0s a acquire inode:1@20..30 shared session=s
        0s a acquire inode:1@40.. session=s
        1s a unlock inode:1 session=s
        2s list
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@20..30 fence=2 until 10s
            0s a granted inode:1@40.. fence=3 until 10s
            1s a unlocked
            1s a released inode:1@0..10 fence=1
            1s a released inode:1@20..30 shared fence=2
            1s a released inode:1@40.. fence=3
            2s list end
        "#]],
    );
}
