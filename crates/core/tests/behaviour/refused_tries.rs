//! What a refused try tells, and what others can see of a queue.

use expect_test::expect;

use crate::script::{check, transcript};

#[test]
fn try_is_answered_at_once() {
    check(
        "0s a acquire job/x | 1s b acquire job/x | 2s get job/x",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b refused held: job/x by a fence=1 since 0s until 10s
            2s get job/x: held by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn refused_try_says_who_holds_it_and_how_many_wait() {
    check(
        "
        1s a acquire job/x shared ttl=30s
        2s b acquire job/x shared ttl=40s
        3s c acquire job/x wait
        4s d acquire job/x wait
        5s e acquire job/x
        ",
        expect![[r#"
            1s a granted job/x fence=1 until 31s
            2s b granted job/x fence=2 until 42s
            3s c queued job/x at 1
            4s d queued job/x at 2
            5s e refused held: job/x by a shared fence=1 since 1s until 31s and b shared fence=2 since 2s until 42s, 2 waiting
        "#]],
    );
}

#[test]
fn refused_try_may_be_held_up_by_waiters_alone() {
    check(
        "
        0s a acquire path:/srv/a
        1s b acquire path:/srv/** wait
        2s c acquire path:/srv/c
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            1s b queued path:/srv/** at 1
            2s c refused held: path:/srv/c without a holder
        "#]],
    );
}

#[test]
fn set_is_refused_for_the_scope_that_is_held() {
    check(
        "
        0s a acquire path:/srv/a
        1s b acquire path:/srv/** wait
        2s c acquire {path:/srv/c, path:/srv/a}
        ",
        expect![[r#"
            0s a granted path:/srv/a fence=1 until 10s
            1s b queued path:/srv/** at 1
            2s c refused held: path:/srv/a by a fence=1 since 0s until 10s
        "#]],
    );
}

#[test]
fn conflict_names_at_most_sixteen_holders() {
    let holders: String =
        (0..40).map(|number| format!("0s r{number} acquire job/x shared\n")).collect();
    let transcript = transcript(&format!("{holders} 0s w acquire job/x"));
    let refused = transcript.lines().last().unwrap_or_default();
    assert_eq!(refused.matches("shared fence=").count(), 16, "{refused}");
    assert!(refused.contains("r0 shared fence=1 "), "{refused}");
    assert!(refused.contains("r15 shared fence=16 "), "{refused}");
}

#[test]
fn get_shows_those_who_wait_by_place() {
    check(
        "
        0s a acquire job/x
        1s b acquire job/x wait
        2s c acquire job/x shared wait=5s
        3s d acquire {job/x, job/y} wait
        3s get job/x
        3s get job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s b queued job/x at 1
            2s c queued job/x at 2
            3s d queued {job/x, job/y} at 3
            3s get job/x: held by a fence=1 since 0s until 10s; b waits since 1s; c waits shared since 2s until 7s; d waits since 3s
            3s get job/y: free; d waits since 3s
        "#]],
    );
}

#[test]
fn request_for_two_parts_of_a_lock_waits_once() {
    check(
        "
        0s a acquire inode:1@0..10
        1s b acquire {inode:1@0..3, inode:1@5..8 shared} wait
        2s c acquire inode:1
        2s list
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            1s b queued {inode:1@0..3, inode:1@5..8} at 1
            2s c refused held: inode:1 by a inode:1@0..10 fence=1 since 0s until 10s, 1 waiting
            2s list inode:1@0..10 held by a fence=1 since 0s until 10s, 1 waiting
            2s list end
        "#]],
    );
}
