//! Snapshots: the table as it was when the snapshot began, whatever happens while it is taken.

use expect_test::expect;

use crate::script::check;

#[test]
fn snapshot_of_an_empty_table() {
    check(
        "0s snapshot begin | 0s snapshot finish",
        expect![[r#"
        0s snapshot of 1 entries: the table as it was at the beginning
    "#]],
    );
}

#[test]
fn snapshot_holds_everything_that_lasts() {
    check(
        "
        0s a open s ttl=10s adapter=smb keep=60s meta=laptop
        0s a acquire {job/x, inode:1@0..10, pool permits=3} session=s id=r1 window=5s meta=note
        0s b acquire path:/srv/** shared in=red
        0s c acquire job/y ttl=1s window=60s
        0s accept disk 3
        2s snapshot begin
        2s snapshot finish
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted {job/x, inode:1@0..10, pool} fence=1 until 10s
            0s b granted path:/srv/** fence=2 until 10s
            0s c granted job/y fence=3 until 1s
            0s register disk accepted, mark 3
            2s c expired job/y fence=3, reclaim window 60s
            2s snapshot of 5 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn snapshot_is_of_the_moment_it_began() {
    check(
        "
        0s a acquire job/1
        0s b acquire job/2
        0s c acquire job/3
        0s d acquire job/4
        1s snapshot begin
        1s snapshot next len=2
        1s a release job/1
        1s c release job/3
        1s e acquire job/5
        1s f acquire job/3
        2s snapshot finish
        ",
        expect![[r#"
            0s a granted job/1 fence=1 until 10s
            0s b granted job/2 fence=2 until 10s
            0s c granted job/3 fence=3 until 10s
            0s d granted job/4 fence=4 until 10s
            1s snapshot 2 more
            1s a released job/1 held 1s
            1s c released job/3 held 1s
            1s e granted job/5 fence=5 until 11s
            1s f granted job/3 fence=6 until 11s
            2s snapshot of 5 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn grants_added_to_a_session_meanwhile_are_no_part_of_it() {
    check(
        "
        0s z acquire job/z
        0s a open s
        0s a acquire job/x session=s
        1s snapshot begin
        1s a acquire job/y session=s
        1s a acquire inode:1@0..10 session=s
        1s a release job/x
        1s snapshot finish
        ",
        expect![[r#"
            0s z granted job/z fence=1 until 10s
            0s s opened until 10s
            0s a granted job/x fence=2 until 10s
            1s a granted job/y fence=3 until 10s
            1s a granted inode:1@0..10 fence=4 until 10s
            1s a released job/x held 1s
            1s snapshot of 3 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn leases_that_lapse_meanwhile_are_still_in_it() {
    check(
        "
        0s a acquire job/x ttl=10s
        0s b acquire job/y ttl=10s window=60s
        0s c acquire job/z ttl=60s
        1s snapshot begin
        1s snapshot next
        10.001s tick
        11s d acquire job/x
        12s b acquire job/y
        13s snapshot finish
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 10s
            0s c granted job/z fence=3 until 60s
            1s snapshot 1 more
            10.001s a expired job/x fence=1
            10.001s b expired job/y fence=2, reclaim window 60s
            11s d granted job/x fence=4 until 21s
            12s b granted job/y fence=5 until 22s
            12s b reclaimed job/y fence=2
            13s snapshot of 4 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn number_that_is_used_again_meanwhile_does_not_confuse_it() {
    check(
        "
        0s a acquire job/1
        0s b acquire job/2
        0s c acquire job/3
        1s snapshot begin
        1s b release job/2
        1s d acquire job/2
        1s d release job/2
        1s e acquire job/4
        1s snapshot next len=1
        1s a release job/1
        1s f acquire job/1
        1s snapshot finish
        ",
        expect![[r#"
            0s a granted job/1 fence=1 until 10s
            0s b granted job/2 fence=2 until 10s
            0s c granted job/3 fence=3 until 10s
            1s b released job/2 held 1s
            1s d granted job/2 fence=4 until 11s
            1s d released job/2 held 0s
            1s e granted job/4 fence=5 until 11s
            1s snapshot 1 more
            1s a released job/1 held 1s
            1s f granted job/1 fence=6 until 11s
            1s snapshot of 4 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn ranges_that_move_and_merge_meanwhile_stay_as_they_were() {
    check(
        "
        0s a open s
        0s a open t
        0s a acquire inode:1@0..20 session=s
        0s a acquire inode:1@30..40 session=s
        0s a acquire inode:1@20..30 shared session=t id=r1
        1s snapshot begin
        1s a acquire inode:1@20..25 session=t
        1s a acquire inode:1@15..20 shared session=s
        1s a acquire inode:1@20..30 session=s
        1s close t
        1s a acquire inode:1@0..40 session=s
        1s a unlock inode:1@5..6 session=s
        1s snapshot finish
        ",
        expect![[r#"
            0s s opened until 10s
            0s t opened until 10s
            0s a granted inode:1@0..20 fence=1 until 10s
            0s a granted inode:1@30..40 fence=2 until 10s
            0s a granted inode:1@20..30 fence=3 until 10s
            1s a granted inode:1@20..25 fence=4 until 10s
            1s a replaced inode:1@20..25 shared fence=3
            1s a granted inode:1@15..20 fence=5 until 10s
            1s a replaced inode:1@15..20 fence=1
            1s a refused held: inode:1@20..30 by a inode:1@25..30 shared fence=3 since 0s until 10s and a inode:1@20..25 fence=4 since 1s until 10s
            1s t closed grants=2
            1s a closed inode:1@20..25 fence=4
            1s a closed inode:1@25..30 shared fence=3
            1s a granted inode:1@0..40 fence=6 until 10s
            1s a replaced inode:1@15..20 shared fence=5
            1s a unlocked
            1s a released inode:1@5..6 fence=6
            1s snapshot of 3 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn changed_ttl_and_register_stay_as_they_were() {
    check(
        "
        0s jump epoch=1 fence=100
        0s a acquire job/x ttl=10s
        0s accept disk 5
        0s accept spool 5
        1s snapshot begin
        1s delete spool
        1s a renew job/x ttl=60s
        1s accept disk 9
        1s accept tape 1
        1s jump epoch=9 fence=1000
        1s snapshot finish
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s a granted job/x fence=101 until 10s
            0s register disk accepted, mark 5
            0s register spool accepted, mark 5
            1s register spool deleted, mark was 5
            1s a renewed job/x until 61s
            1s a has ttl 60s
            1s register disk accepted, mark 9
            1s register tape accepted, mark 1
            1s server jumped to epoch 9 fence 1000
            1s snapshot of 4 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn namespaces_that_come_and_go_meanwhile_do_not_confuse_it() {
    crate::script::check_with(
        |limits| limits.namespaces_max = 2,
        "
        0s a acquire job/x in=red
        0s b acquire job/x in=blue
        1s snapshot begin
        1s snapshot next len=1
        1s b release job/x in=blue
        1s c acquire job/y in=green
        1s d acquire job/z in=red
        1s snapshot finish
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/x fence=2 until 10s
            1s snapshot 1 more
            1s b released job/x held 1s
            1s c granted job/y fence=3 until 11s
            1s d granted job/z fence=4 until 11s
            1s snapshot of 3 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn snapshot_begun_anew_is_of_the_later_moment() {
    check(
        "
        0s a acquire job/1
        0s b acquire job/2
        1s snapshot begin
        1s snapshot next
        1s a release job/1
        2s snapshot begin
        2s b release job/2
        2s snapshot finish
        ",
        expect![[r#"
            0s a granted job/1 fence=1 until 10s
            0s b granted job/2 fence=2 until 10s
            1s snapshot 1 more
            1s a released job/1 held 1s
            2s b released job/2 held 2s
            2s snapshot of 2 entries: the table as it was at the beginning
        "#]],
    );
}

#[test]
fn epoch_that_begins_meanwhile_is_no_part_of_it() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        0s b acquire job/y ttl=1s window=60s
        2s snapshot begin
        2s epoch conflicting
        3s a renew job/x
        20s tick
        20s snapshot finish
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b granted job/y fence=2 until 1s
            2s b expired job/y fence=2, reclaim window 60s
            2s epoch 1 begun recovering=1
            3s a renewed job/x until 13s
            3s grace over
            20s a expired job/x fence=1, reclaim window 5s
            20s a window_over job/x fence=1
            20s snapshot of 3 entries: the table as it was at the beginning
        "#]],
    );
}
