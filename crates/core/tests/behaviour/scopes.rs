//! Scopes: what a lock covers, and the one spelling of it.

use expect_test::expect;

use crate::script::{check, transcript};

#[test]
fn namespace_is_default_when_none_is_given() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x in=default
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused held: job/x by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn two_namespaces_never_meet() {
    check(
        "
        0s a acquire job/x in=red
        0s b acquire job/x in=blue
        0s a release job/x in=red
        0s get job/x in=red
        0s get job/x in=blue
        0s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            0s a released job/x held 0s
            0s get job/x: free; last fence=1
            0s get job/x: held by b fence=2 since 0s until 10s
            0s get job/x: free
        "#]],
    );
}

#[test]
fn lease_of_another_namespace_proves_nothing() {
    check(
        "
        0s a acquire job/x in=red as=red
        0s a acquire job/x in=blue as=blue
        0s a renew job/x in=blue lease=red
        0s a release job/x in=blue grant=red
        0s a renew job/x in=green grant=red
        0s a release job/x in=green grant=red
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/x fence=2 until 10s
            0s a refused lease_lost (unknown)
            0s a refused not_holder (unknown): job/x
            0s a refused lease_lost (unknown)
            0s a refused not_holder (unknown): job/x
        "#]],
    );
}

#[test]
fn name_covers_itself_and_nothing_else() {
    check(
        "
        0s a acquire job/x
        0s b acquire job
        0s c acquire job/x/y
        0s d acquire job/xy
        0s e acquire job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job fence=2 until 10s
            0s c granted job/x/y fence=3 until 10s
            0s d granted job/xy fence=4 until 10s
            0s e refused held: job/x by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn path_conflicts_with_the_same_path() {
    check(
        "
        0s a acquire path:/srv/a
        0s b acquire path:/srv/a
        0s c acquire path:/srv
        0s d acquire path:/srv/a/b
        0s e acquire path:/srv/ab
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b refused held: path:/srv/a by a fence=1 since 0s until 10s
            0s c granted path:/srv fence=2 until 10s
            0s d granted path:/srv/a/b fence=3 until 10s
            0s e granted path:/srv/ab fence=4 until 10s
        "#]],
    );
}

#[test]
fn path_conflicts_with_a_subtree_on_it_or_on_an_ancestor() {
    check(
        "
        0s a acquire path:/srv/a
        0s b acquire path:/srv/a/**
        0s c acquire path:/srv/**
        0s d acquire path:/**
        0s e acquire path:/srv/a/b/**
        0s f acquire path:/srv/ab/**
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b refused held: path:/srv/a/** by a path:/srv/a fence=1 since 0s until 10s
            0s c refused held: path:/srv/** by a path:/srv/a fence=1 since 0s until 10s
            0s d refused held: path:/** by a path:/srv/a fence=1 since 0s until 10s
            0s e granted path:/srv/a/b/** fence=2 until 10s
            0s f granted path:/srv/ab/** fence=3 until 10s
        "#]],
    );
}

#[test]
fn subtree_conflicts_with_what_lies_at_or_below_it() {
    check(
        "
        0s a acquire path:/srv/a/**
        0s b acquire path:/srv/a
        0s c acquire path:/srv/a/b
        0s d acquire path:/srv/a/b/c/**
        0s e acquire path:/srv
        0s f acquire path:/srv/a0
        0s g acquire path:/srv/a-b/**
        ",
        expect![[r#"
            0s a granted path:/srv/a/** fence=1 until 10s
            0s b refused held: path:/srv/a by a path:/srv/a/** fence=1 since 0s until 10s
            0s c refused held: path:/srv/a/b by a path:/srv/a/** fence=1 since 0s until 10s
            0s d refused held: path:/srv/a/b/c/** by a path:/srv/a/** fence=1 since 0s until 10s
            0s e granted path:/srv fence=2 until 10s
            0s f granted path:/srv/a0 fence=3 until 10s
            0s g granted path:/srv/a-b/** fence=4 until 10s
        "#]],
    );
}

#[test]
fn subtree_conflicts_with_subtrees_above_it() {
    check(
        "
        0s a acquire path:/srv/a/**
        0s b acquire path:/srv/**
        0s c acquire path:/**
        ",
        expect![[r#"
            0s a granted path:/srv/a/** fence=1 until 10s
            0s b refused held: path:/srv/** by a path:/srv/a/** fence=1 since 0s until 10s
            0s c refused held: path:/** by a path:/srv/a/** fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn subtree_of_the_root_covers_every_path() {
    check(
        "
        0s a acquire path:/**
        0s b acquire path:/
        0s c acquire path:/x
        0s d acquire path:/x/y/**
        0s e acquire srv
        ",
        expect![[r#"
            0s a granted path:/** fence=1 until 10s
            0s b refused held: path:/ by a path:/** fence=1 since 0s until 10s
            0s c refused held: path:/x by a path:/** fence=1 since 0s until 10s
            0s d refused held: path:/x/y/** by a path:/** fence=1 since 0s until 10s
            0s e granted srv fence=2 until 10s
        "#]],
    );
}

#[test]
fn shared_subtrees_and_paths_go_together() {
    check(
        "
        0s a acquire path:/srv/** shared
        0s b acquire path:/srv/a shared
        0s c acquire path:/** shared
        0s d acquire path:/srv/b
        ",
        expect![[r#"
            0s a granted path:/srv/** fence=1 until 10s
            0s b granted path:/srv/a fence=2 until 10s
            0s c granted path:/** fence=3 until 10s
            0s d refused held: path:/srv/b by a path:/srv/** shared fence=1 since 0s until 10s and c path:/** shared fence=3 since 0s until 10s
        "#]],
    );
}

#[test]
fn shared_subtree_is_kept_out_by_one_exclusive_path_below_it() {
    check(
        "
        0s a acquire path:/srv/a shared
        0s b acquire path:/srv/b
        0s c acquire path:/srv/c shared
        0s d acquire path:/srv/** shared
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b granted path:/srv/b fence=2 until 10s
            0s c granted path:/srv/c fence=3 until 10s
            0s d refused held: path:/srv/** by b path:/srv/b fence=2 since 0s until 10s
        "#]],
    );
}

#[test]
fn inode_is_the_whole_file() {
    check(
        "
        0s a acquire inode:42
        0s b acquire inode:42@100..200
        0s c acquire inode:42@18446744073709551615..
        0s d acquire inode:43
        ",
        expect![[r#"
            0s a granted inode:42 fence=1 until 10s
            0s b refused held: inode:42@100..200 by a inode:42 fence=1 since 0s until 10s
            0s c refused held: inode:42@18446744073709551615.. by a inode:42 fence=1 since 0s until 10s
            0s d granted inode:43 fence=2 until 10s
        "#]],
    );
}

#[test]
fn ranges_of_a_file_conflict_when_they_overlap() {
    check(
        "
        0s a acquire inode:42@100..200
        0s b acquire inode:42@0..100
        0s c acquire inode:42@200..
        0s d acquire inode:42@199..300
        0s e acquire inode:42@0..101
        0s f acquire inode:43@100..200
        ",
        expect![[r#"
            0s a granted inode:42@100..200 fence=1 until 10s
            0s b granted inode:42@0..100 fence=2 until 10s
            0s c granted inode:42@200.. fence=3 until 10s
            0s d refused held: inode:42@199..300 by a inode:42@100..200 fence=1 since 0s until 10s and c inode:42@200.. fence=3 since 0s until 10s
            0s e refused held: inode:42@0..101 by a inode:42@100..200 fence=1 since 0s until 10s and b inode:42@0..100 fence=2 since 0s until 10s
            0s f granted inode:43@100..200 fence=4 until 10s
        "#]],
    );
}

#[test]
fn open_range_reaches_beyond_the_end_of_the_file() {
    check(
        "
        0s a acquire inode:42@100..
        0s b acquire inode:42@0..100
        0s c acquire inode:42@18446744073709551614..18446744073709551615
        0s d acquire inode:42@18446744073709551615..
        ",
        expect![[r#"
            0s a granted inode:42@100.. fence=1 until 10s
            0s b granted inode:42@0..100 fence=2 until 10s
            0s c refused held: inode:42@18446744073709551614..18446744073709551615 by a inode:42@100.. fence=1 since 0s until 10s
            0s d refused held: inode:42@18446744073709551615.. by a inode:42@100.. fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn files_names_and_paths_never_meet() {
    check(
        "
        0s a acquire inode:42
        0s b acquire 42
        0s c acquire path:/42/**
        0s d acquire flock:42
        ",
        expect![[r#"
            0s a granted inode:42 fence=1 until 10s
            0s b granted 42 fence=2 until 10s
            0s c granted path:/42/** fence=3 until 10s
            0s d granted flock:42 fence=4 until 10s
        "#]],
    );
}

#[test]
fn other_spellings_are_the_same_scope() {
    check(
        "
        0s a acquire path:/srv//a/./
        0s b acquire path:/srv/a
        0s a acquire inode:007@0..
        0s b acquire inode:7
        0s list
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            0s b refused held: path:/srv/a by a fence=1 since 0s until 10s
            0s a granted inode:7 fence=2 until 10s
            0s b refused held: inode:7 by a fence=2 since 0s until 10s
            0s list inode:7 held by a fence=2 since 0s until 10s
            0s list path:/srv/a held by a fence=1 since 0s until 10s
            0s list end
        "#]],
    );
}

#[test]
fn canonical_text_parses_back_to_itself() {
    check(
        "
        spell job/nightly | spell path:/srv/a | spell path:/srv/a/** | spell inode:42
        spell inode:42@100..200 | spell inode:42@100.. | spell flock:42
        spell path:/srv//a/./b/ | spell inode:042@00..
        ",
        expect![[r#"
            0s named job/nightly
            0s path path:/srv/a
            0s subtree path:/srv/a/**
            0s inode inode:42
            0s range inode:42@100..200
            0s range inode:42@100..
            0s named flock:42
            0s path path:/srv/a/b
            0s inode inode:42
        "#]],
    );
}

#[test]
fn name_that_looks_like_another_kind_is_refused_with_a_clear_error() {
    check(
        "spell path:nightly | spell inode:nightly | spell inode:42@nightly | spell inode:42@5..5",
        expect![[r#"
            0s no scope: path "nightly" is not absolute: write path:/…
            0s no scope: "nightly" is not an inode number: write inode:42 or inode:42@100..200
            0s no scope: "nightly" is not a byte range: write 100..200 or 100..
            0s no scope: byte range "5..5" is empty: its end must lie after its start
        "#]],
    );
}

#[test]
fn paths_that_are_not_normal_are_refused() {
    check(
        "spell path:/srv/../etc | spell path:/srv/**/a",
        expect![[r#"
        0s no scope: path "/srv/../etc" has a part '..': give the path it leads to
        0s no scope: path "/srv/**/a" has '**' before its end: only a last part '**' means the subtree
    "#]],
    );
}

#[test]
fn names_have_up_to_512_bytes() {
    let (longest, too_long) = ("é".repeat(256), "é".repeat(257));
    assert_eq!(
        transcript(&format!("0s a acquire {longest} | 0s spell {too_long}")),
        format!(
            "0s a granted {longest} fence=1 until 10s\n\
             0s no scope: lock is 514 bytes long, the limit is 512\n"
        )
    );
}

#[test]
fn names_with_control_characters_are_refused() {
    check(
        "spell a\tb | spell a\u{7f}b | spell a\u{202e}b",
        expect![[r#"
        0s no scope: lock has a control or invisible character (U+0009)
        0s no scope: lock has a control or invisible character (U+007F)
        0s no scope: lock has a control or invisible character (U+202E)
    "#]],
    );
}

#[test]
fn inodes_and_offsets_are_64_bits() {
    check(
        "
        0s a acquire inode:18446744073709551615@18446744073709551615..
        0s spell inode:18446744073709551616
        0s spell inode:1@18446744073709551616..
        0s b acquire inode:18446744073709551615@0..18446744073709551615
        ",
        expect![[r#"
            0s a granted inode:18446744073709551615@18446744073709551615.. fence=1 until 10s
            0s no scope: "18446744073709551616" is not an inode number: write inode:42 or inode:42@100..200
            0s no scope: "18446744073709551616.." is not a byte range: write 100..200 or 100..
            0s b granted inode:18446744073709551615@0..18446744073709551615 fence=2 until 10s
        "#]],
    );
}
