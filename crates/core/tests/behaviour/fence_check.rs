//! Is this fence still good? Asked of the service, or of a fence register.

use expect_test::expect;

use crate::script::check;

#[test]
fn fence_of_the_holder_is_good() {
    check(
        "
        0s a acquire job/x as=l
        1s a check job/x
        1s a check job/x leased
        1s a check job/x lease=unknown
        1s a check job/x fence=2
        1s a check job/x fence=0
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s check job/x fence=1: good, a fence=1 since 0s until 10s
            1s check job/x fence=1: good, a fence=1 since 0s until 10s
            1s check job/x fence=1: not good (unknown), a fence=1 since 0s until 10s
            1s check job/x fence=2: not good (unknown)
            1s check job/x fence=0: not good (unknown)
        "#]],
    );
}

#[test]
fn fence_is_no_good_after_release() {
    check(
        "0s a acquire job/x | 1s a release job/x | 1s a check job/x",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            1s check job/x fence=1: not good (released)
        "#]],
    );
}

#[test]
fn fence_is_no_good_after_expiry() {
    check(
        "
        0s a acquire job/x ttl=10s
        10s a check job/x
        10.001s a check job/x
        11s b acquire job/x
        11s a check job/x
        11s b check job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            10s check job/x fence=1: good, a fence=1 since 0s until 10s
            10.001s a expired job/x fence=1
            10.001s check job/x fence=1: not good (expired)
            11s b granted job/x fence=2 until 21s
            11s check job/x fence=1: not good (expired)
            11s check job/x fence=2: good, b fence=2 since 11s until 21s
        "#]],
    );
}

#[test]
fn fence_is_no_good_in_the_reclaim_window() {
    check(
        "
        0s a acquire job/x ttl=10s window=5s
        12s a check job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            12s a expired job/x fence=1, reclaim window 5s
            12s check job/x fence=1: not good (expired), a fence=1 since 0s until 15s in its reclaim window
        "#]],
    );
}

#[test]
fn fence_is_good_for_all_that_its_grant_covers() {
    check(
        "
        0s a acquire path:/srv/** as=tree
        0s a acquire inode:1@0..100 as=bytes
        0s a check path:/srv/a/b grant=tree
        0s a check path:/srv/a/** grant=tree
        0s a check path:/** grant=tree
        0s a check path:/etc grant=tree
        0s a check inode:1@10..20 grant=bytes
        0s a check inode:1@90..110 grant=bytes
        0s a check inode:2 grant=bytes
        ",
        expect![[r#"
            0s a granted path:/srv/** fence=1 until 10s
            0s a granted inode:1@0..100 fence=2 until 10s
            0s check path:/srv/a/b fence=1: good, a path:/srv/** fence=1 since 0s until 10s
            0s check path:/srv/a/** fence=1: good, a path:/srv/** fence=1 since 0s until 10s
            0s check path:/** fence=1: not good (other_scope), a path:/srv/** fence=1 since 0s until 10s
            0s check path:/etc fence=1: not good (other_scope)
            0s check inode:1@10..20 fence=2: good, a inode:1@0..100 fence=2 since 0s until 10s
            0s check inode:1@90..110 fence=2: not good (other_scope), a inode:1@0..100 fence=2 since 0s until 10s
            0s check inode:2 fence=2: not good (other_scope)
        "#]],
    );
}

#[test]
fn fence_of_a_recovering_grant_is_good() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s epoch conflicting
        1s a check job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s epoch 1 begun recovering=1
            1s check job/x fence=1: good, a fence=1 since 0s until 11s recovering
        "#]],
    );
}

#[test]
fn register_takes_a_fence_that_is_not_lower_than_the_last() {
    check(
        "
        0s jump epoch=1 fence=100
        0s register disk
        0s accept disk 5
        0s accept disk 5
        0s accept disk 7
        0s accept disk 6
        0s register disk
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk: no mark
            0s register disk accepted, mark 5
            0s register disk accepted, mark 5
            0s register disk accepted, mark 7
            0s register disk refused stale_fence: 6 below 7
            0s register disk: mark 7
        "#]],
    );
}

#[test]
fn registers_are_apart_by_name_and_namespace() {
    check(
        "
        0s jump epoch=1 fence=100
        0s accept disk 5
        0s accept tape 1
        0s accept disk 2 in=red
        0s accept disk 4
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk accepted, mark 5
            0s register tape accepted, mark 1
            0s register disk accepted, mark 2
            0s register disk refused stale_fence: 4 below 5
        "#]],
    );
}

#[test]
fn register_survives_a_restart() {
    check(
        "
        0s jump epoch=1 fence=100
        0s accept disk 5
        1s restart
        1s epoch conflicting
        1s accept disk 4
        1s accept disk 5
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk accepted, mark 5
            1s server restarted
            1s epoch 2 begun recovering=0
            1s register disk refused stale_fence: 4 below 5
            1s register disk accepted, mark 5
        "#]],
    );
}

#[test]
fn register_stops_the_writer_that_was_overtaken() {
    check(
        "
        0s a acquire job/x ttl=10s
        1s accept disk 1
        10.001s b acquire job/x
        11s accept disk 2
        12s accept disk 1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s register disk accepted, mark 1
            10.001s a expired job/x fence=1
            10.001s b granted job/x fence=2 until 20.001s
            11s register disk accepted, mark 2
            12s register disk refused stale_fence: 1 below 2
        "#]],
    );
}

#[test]
fn register_refuses_a_token_that_was_never_issued() {
    check(
        "
        0s accept disk 9007199254740991
        0s accept disk 1
        0s a acquire job/x
        0s accept disk 2
        0s accept disk 1
        0s accept disk 2
        0s register disk
        ",
        expect![[r#"
            0s register disk refused invalid: fencing token 9007199254740991 was never issued: the last one is 0
            0s register disk refused invalid: fencing token 1 was never issued: the last one is 0
            0s a granted job/x fence=1 until 10s
            0s register disk refused invalid: fencing token 2 was never issued: the last one is 1
            0s register disk accepted, mark 1
            0s register disk refused invalid: fencing token 2 was never issued: the last one is 1
            0s register disk: mark 1
        "#]],
    );
}

#[test]
fn deleted_register_starts_anew() {
    check(
        "
        0s jump epoch=1 fence=100
        0s accept disk 50
        0s accept tape 7
        1s delete disk reason=moved
        1s delete disk
        1s delete disk in=red
        1s register disk
        1s registers
        1s accept disk 3
        2s restart
        2s registers
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s register disk accepted, mark 50
            0s register tape accepted, mark 7
            1s register disk deleted, mark was 50
            1s register disk refused not_found
            1s register disk refused not_found
            1s register disk: no mark
            1s registers: tape 7
            1s register disk accepted, mark 3
            2s server restarted
            2s registers: disk 3, tape 7
        "#]],
    );
}

#[test]
fn registers_are_listed_by_name_page_by_page() {
    check(
        "
        0s jump epoch=1 fence=100
        0s registers
        0s accept b 2
        0s accept a 1
        0s accept c 3
        0s accept a 9 in=red
        0s registers len=2
        0s registers len=2 after=b
        0s registers after=c
        0s registers in=red
        ",
        expect![[r#"
            0s server jumped to epoch 1 fence 100
            0s registers: 
            0s register b accepted, mark 2
            0s register a accepted, mark 1
            0s register c accepted, mark 3
            0s register a accepted, mark 9
            0s registers: a 1, b 2
            0s registers: c 3
            0s registers: 
            0s registers: a 9
        "#]],
    );
}
