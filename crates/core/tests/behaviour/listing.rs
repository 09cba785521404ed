//! Listing what is held, page by page.

use expect_test::{Expect, expect};

use crate::script::{check, transcript};

const HOLDINGS: &str = "
    0s a acquire job/b
    0s a acquire job/a shared
    0s b acquire job/a shared
    0s b acquire inode:10@0..10
    0s a acquire inode:9@20..30
    0s b acquire inode:9@0..10 shared
    0s a acquire inode:9@0..10 shared
    0s a open s
    0s a acquire path:/srv/** session=s
    0s c acquire alpha
";

/// What is listed of these holdings.
#[expect(clippy::needless_pass_by_value, reason = "so that `expect![…]` can stand as an argument")]
fn check_list(script: &str, expected: Expect) {
    let all = transcript(&format!("{HOLDINGS}\n{script}"));
    let listed: String = all.lines().skip(10).flat_map(|line| [line, "\n"]).collect();
    expected.assert_eq(&listed);
}

#[test]
fn list_is_in_the_order_of_the_canonical_texts() {
    check_list(
        "0s list",
        expect![[r#"
        0s list alpha held by c fence=9 since 0s until 10s
        0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
        0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
        0s list inode:9@20..30 held by a fence=5 since 0s until 10s
        0s list inode:10@0..10 held by b fence=4 since 0s until 10s
        0s list job/a held by a shared fence=2 since 0s until 10s and b shared fence=3 since 0s until 10s
        0s list job/b held by a fence=1 since 0s until 10s
        0s list path:/srv/** held by a fence=8 since 0s until 10s
        0s list end
    "#]],
    );
}

#[test]
fn list_may_be_of_one_prefix() {
    check_list(
        "0s list prefix=job/ | 0s list prefix=inode:9@0 | 0s list prefix=zeta",
        expect![[r#"
            0s list job/a held by a shared fence=2 since 0s until 10s and b shared fence=3 since 0s until 10s
            0s list job/b held by a fence=1 since 0s until 10s
            0s list end
            0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
            0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
            0s list end
            0s list end
        "#]],
    );
}

#[test]
fn list_may_be_of_one_owner() {
    check_list(
        "0s list owner=b | 0s list owner=nobody",
        expect![[r#"
        0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
        0s list inode:10@0..10 held by b fence=4 since 0s until 10s
        0s list job/a held by b shared fence=3 since 0s until 10s
        0s list end
        0s list end
    "#]],
    );
}

#[test]
fn list_may_be_of_one_session() {
    check_list(
        "0s list session=s",
        expect![[r#"
        0s list path:/srv/** held by a fence=8 since 0s until 10s
        0s list end
    "#]],
    );
}

#[test]
fn list_may_be_of_one_inode() {
    check_list(
        "0s list inode=9 | 0s list inode=11",
        expect![[r#"
        0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
        0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
        0s list inode:9@20..30 held by a fence=5 since 0s until 10s
        0s list end
        0s list end
    "#]],
    );
}

#[test]
fn list_may_be_of_one_state() {
    check(
        "
        0s a acquire job/held ttl=60s
        0s a acquire job/window ttl=1s window=60s
        0s a acquire job/recovering ttl=60s
        1.001s tick
        2s epoch conflicting
        3s a renew job/held
        3s list state=held
        3s list state=recovering
        3s list state=reclaim_window
        ",
        expect![[r#"
            0s a granted job/held fence=1 until 60s
            0s a granted job/window fence=2 until 1s
            0s a granted job/recovering fence=3 until 60s
            1.001s a expired job/window fence=2, reclaim window 60s
            2s epoch 1 begun recovering=2
            3s a renewed job/held until 63s
            3s list job/held held by a fence=1 since 0s until 63s
            3s list end
            3s list job/recovering recovering by a fence=3 since 0s until 62s recovering
            3s list end
            3s list job/window reclaim_window by a fence=2 since 0s until 62s in its reclaim window
            3s list end
        "#]],
    );
}

#[test]
fn list_of_another_namespace_is_empty() {
    check_list(
        "0s list in=red",
        expect![[r#"
        0s list end
    "#]],
    );
}

#[test]
fn pages_follow_on_each_other() {
    check_list(
        "0s list len=2 | 0s list len=2 next | 0s list len=2 next | 0s list len=2 next",
        expect![[r#"
            0s list alpha held by c fence=9 since 0s until 10s
            0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
            0s list more
            0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
            0s list inode:9@20..30 held by a fence=5 since 0s until 10s
            0s list more
            0s list inode:10@0..10 held by b fence=4 since 0s until 10s
            0s list job/a held by a shared fence=2 since 0s until 10s and b shared fence=3 since 0s until 10s
            0s list more
            0s list job/b held by a fence=1 since 0s until 10s
            0s list path:/srv/** held by a fence=8 since 0s until 10s
            0s list end
        "#]],
    );
}

#[test]
fn pages_of_one_lock_each_cover_everything() {
    check_list(
        "
        0s list len=1 | 0s list len=1 next | 0s list len=1 next | 0s list len=1 next
        0s list len=1 next | 0s list len=1 next | 0s list len=1 next | 0s list len=1 next
        ",
        expect![[r#"
            0s list alpha held by c fence=9 since 0s until 10s
            0s list more
            0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
            0s list more
            0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
            0s list more
            0s list inode:9@20..30 held by a fence=5 since 0s until 10s
            0s list more
            0s list inode:10@0..10 held by b fence=4 since 0s until 10s
            0s list more
            0s list job/a held by a shared fence=2 since 0s until 10s and b shared fence=3 since 0s until 10s
            0s list more
            0s list job/b held by a fence=1 since 0s until 10s
            0s list more
            0s list path:/srv/** held by a fence=8 since 0s until 10s
            0s list end
        "#]],
    );
}

#[test]
fn page_goes_on_though_the_lock_it_ended_with_is_gone() {
    check_list(
        "
        0s list len=2
        0s b release inode:9@0..10
        0s list next len=2
        0s a release inode:9@0..10
        0s a release inode:9@20..30
        0s list next len=2
        ",
        expect![[r#"
            0s list alpha held by c fence=9 since 0s until 10s
            0s list inode:9@0..10 held by b shared fence=6 since 0s until 10s
            0s list more
            0s b released inode:9@0..10 held 0s
            0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
            0s list inode:9@20..30 held by a fence=5 since 0s until 10s
            0s list more
            0s a released inode:9@0..10 held 0s
            0s a released inode:9@20..30 held 0s
            0s list inode:10@0..10 held by b fence=4 since 0s until 10s
            0s list job/a held by a shared fence=2 since 0s until 10s and b shared fence=3 since 0s until 10s
            0s list more
        "#]],
    );
}

#[test]
fn page_looks_at_a_bounded_number_of_locks() {
    check_list(
        "
        0s list owner=c looks=3 | 0s list owner=a looks=3 | 0s list owner=a looks=3 next
        0s list owner=a looks=3 next
        ",
        expect![[r#"
            0s list alpha held by c fence=9 since 0s until 10s
            0s list more
            0s list inode:9@0..10 held by a shared fence=7 since 0s until 10s
            0s list more
            0s list inode:9@20..30 held by a fence=5 since 0s until 10s
            0s list job/a held by a shared fence=2 since 0s until 10s
            0s list more
            0s list job/b held by a fence=1 since 0s until 10s
            0s list path:/srv/** held by a fence=8 since 0s until 10s
            0s list end
        "#]],
    );
}

#[test]
fn list_counts_those_who_wait() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x wait
        0s c acquire job/x wait
        0s a acquire inode:1@0..10
        0s b acquire inode:1@5..20 wait
        1s list
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b queued job/x at 1
            0s c queued job/x at 2
            0s a granted inode:1@0..10 fence=2 until 10s
            0s b queued inode:1@5..20 at 1
            1s list inode:1@0..10 held by a fence=2 since 0s until 10s, 1 waiting
            1s list job/x held by a fence=1 since 0s until 10s, 2 waiting
            1s list end
        "#]],
    );
}
