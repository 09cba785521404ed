//! What is remembered of grants that have ended: why a token or a lease is not good, and what was done before.

use expect_test::expect;

use crate::script::{check, check_with};

#[test]
fn check_tells_how_a_grant_ended() {
    check(
        "
        0s a acquire job/released
        0s a acquire job/expired ttl=2s
        0s a acquire job/broken ttl=60s
        0s a open s | 0s a acquire job/closed session=s
        1s a release job/released | 1s close s | 1s break job/broken
        3s a check job/released
        3s a check job/expired
        3s a check job/broken
        3s a check job/closed
        3s a check job/released fence=9
        ",
        expect![[r#"
            0s a granted job/released fence=1 until 10s
            0s a granted job/expired fence=2 until 2s
            0s a granted job/broken fence=3 until 60s
            0s s opened until 10s
            0s a granted job/closed fence=4 until 10s
            1s a released job/released held 1s
            1s s closed grants=1
            1s a closed job/closed fence=4
            1s break job/broken grants=1
            1s a revoked job/broken fence=3
            3s a expired job/expired fence=2
            3s check job/released fence=1: not good (released)
            3s check job/expired fence=2: not good (expired)
            3s check job/broken fence=3: not good (released)
            3s check job/closed fence=4: not good (released)
            3s check job/released fence=9: not good (unknown)
        "#]],
    );
}

#[test]
fn check_tells_a_token_of_another_lock() {
    check(
        "
        0s a acquire job/x as=x | 0s a acquire path:/srv/** as=tree | 0s b acquire job/y as=y
        0s a check job/y grant=x
        0s a check path:/etc grant=tree
        0s a check path:/** grant=tree
        1s a release job/x | 1s a release path:/srv/**
        1s a check job/y grant=x
        1s a check job/x grant=x
        1s a check path:/srv/a/b grant=tree
        1s a check path:/etc grant=tree
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted path:/srv/** fence=2 until 10s
            0s b granted job/y fence=3 until 10s
            0s check job/y fence=1: not good (other_scope)
            0s check path:/etc fence=2: not good (other_scope)
            0s check path:/** fence=2: not good (other_scope), a path:/srv/** fence=2 since 0s until 10s
            1s a released job/x held 1s
            1s a released path:/srv/** held 1s
            1s check job/y fence=1: not good (other_scope)
            1s check job/x fence=1: not good (released)
            1s check path:/srv/a/b fence=2: not good (released)
            1s check path:/etc fence=2: not good (other_scope)
        "#]],
    );
}

#[test]
fn check_with_a_wrong_lease_tells_nothing_of_the_grant() {
    check(
        "
        0s a acquire job/x as=x | 0s a acquire job/y
        0s a check job/x lease=unknown
        0s a check job/y grant=x lease=unknown
        1s a release job/x
        1s a check job/x lease=unknown
        1s a check job/x leased
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 10s
            0s check job/x fence=1: not good (unknown), a fence=1 since 0s until 10s
            0s check job/y fence=1: not good (unknown)
            1s a released job/x held 1s
            1s check job/x fence=1: not good (unknown)
            1s check job/x fence=1: not good (released)
        "#]],
    );
}

#[test]
fn token_of_bytes_that_were_locked_over_is_superseded() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s as=first
        1s a acquire inode:1@10..20 session=s as=second
        1s a check inode:1@0..10 grant=first
        1s a check inode:1@0..10 grant=first leased
        1s token 1
        1s token 2
        2s a acquire inode:1@0..20 session=s shared
        2s a check inode:1@0..10 grant=second leased
        2s token 2
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            1s a granted inode:1@10..20 fence=2 until 10s
            1s check inode:1@0..10 fence=1: not good (superseded)
            1s check inode:1@0..10 fence=1: good, a inode:1@0..20 fence=2 since 1s until 10s
            1s token 1: a inode:1@0..10 since 0s replaced at 1s
            1s token 2: a inode:1@0..20 fence=2 since 1s until 10s
            2s a granted inode:1@0..20 fence=3 until 10s
            2s a replaced inode:1@0..20 fence=2
            2s check inode:1@0..10 fence=2: not good (superseded)
            2s token 2: a inode:1@0..20 since 1s replaced at 2s
        "#]],
    );
}

#[test]
fn reclaimed_token_is_superseded() {
    check(
        "
        0s a acquire job/x ttl=2s window=10s as=first
        3s a check job/x grant=first
        3s token 1
        3s a acquire job/x
        3s a check job/x grant=first
        3s a renew job/x grant=first
        3s token 1
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 2s
            3s a expired job/x fence=1, reclaim window 10s
            3s check job/x fence=1: not good (expired), a fence=1 since 0s until 12s in its reclaim window
            3s token 1: a job/x fence=1 since 0s until 12s in its reclaim window
            3s a granted job/x fence=2 until 13s
            3s a reclaimed job/x fence=1
            3s check job/x fence=1: not good (superseded)
            3s a refused lease_lost (superseded)
            3s token 1: a job/x since 0s reclaimed at 3s
        "#]],
    );
}

#[test]
fn lower_token_than_the_last_is_superseded_once_its_grant_is_forgotten() {
    check_with(
        |limits| limits.endings_max = 2,
        "
        0s a acquire job/x as=first | 0s a release job/x
        0s b acquire job/x | 0s b release job/x
        0s a check job/x grant=first
        0s c acquire job/x | 0s c release job/x
        0s a check job/x grant=first
        0s a release job/x grant=first
        0s d acquire job/y | 0s d release job/y | 0s d acquire job/z | 0s d release job/z
        0s a check job/x grant=first
        0s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a released job/x held 0s
            0s b granted job/x fence=2 until 10s
            0s b released job/x held 0s
            0s check job/x fence=1: not good (released)
            0s c granted job/x fence=3 until 10s
            0s c released job/x held 0s
            0s check job/x fence=1: not good (superseded)
            0s a refused not_holder (unknown): job/x
            0s d granted job/y fence=4 until 10s
            0s d released job/y held 0s
            0s d granted job/z fence=5 until 10s
            0s d released job/z held 0s
            0s check job/x fence=1: not good (unknown)
            0s get job/x: free
        "#]],
    );
}

#[test]
fn token_leads_to_its_grant_held_or_ended() {
    check(
        "
        0s a acquire job/x shared ttl=5s
        0s b acquire {job/y, inode:1@0..10} in=other as=set
        0s token 1 | 0s token 2
        1s b unlock inode:1@0..5 session=set in=other
        1s token 2
        6s token 1
        6s token 3
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 5s
            0s b granted {job/y, inode:1@0..10} fence=2 until 10s
            0s token 1: a job/x shared fence=1 since 0s until 5s
            0s token 2 in other: b job/y fence=2 since 0s until 10s; b inode:1@0..10 fence=2 since 0s until 10s
            1s b unlocked
            1s b released inode:1@0..5 fence=2
            1s token 2 in other: b job/y fence=2 since 0s until 10s; b inode:1@5..10 fence=2 since 0s until 10s; b inode:1@0..5 since 0s released at 1s
            6s a expired job/x shared fence=1
            6s token 1: a job/x shared since 0s expired at 6s
            6s token 3: unknown
        "#]],
    );
}

#[test]
fn last_token_of_a_lock_is_told_after_its_grants_have_ended() {
    check(
        "
        0s a acquire pool permits=2 | 0s b acquire pool permits=2
        1s b release pool | 1s get pool
        2s a release pool | 2s get pool | 2s get pool in=other
        2s a acquire inode:1@0..10 | 2s a release inode:1@0..10
        2s get inode:1@5..6 | 2s get inode:1@10..20
        ",
        expect![[r#"
            0s a granted pool fence=1 until 10s
            0s b granted pool fence=2 until 10s
            1s b released pool held 1s
            1s get pool: held by a permits=2 fence=1 since 0s until 10s; last fence=2
            2s a released pool held 2s
            2s get pool: free; last fence=2
            2s get pool: free
            2s a granted inode:1@0..10 fence=3 until 12s
            2s a released inode:1@0..10 held 0s
            2s get inode:1@5..6: free; last fence=3
            2s get inode:1@10..20: free
        "#]],
    );
}

#[test]
fn renewal_tells_how_the_lease_ended() {
    check(
        "
        0s a acquire job/x | 0s a acquire job/y ttl=2s as=y | 0s a acquire job/z
        1s a release job/x
        1s a renew job/x
        3s a renew job/y
        3s a renew job/x lease=unknown
        3s a renew job/z fence=9
        3s a renew job/z grant=y
        3s a renew job/z of=a lease=unknown
        3s b renew job/z of=a
        3s a acquire job/u ttl=5s as=u | 3s a renew job/z grant=u
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s a granted job/y fence=2 until 2s
            0s a granted job/z fence=3 until 10s
            1s a released job/x held 1s
            1s a refused lease_lost (released)
            3s a expired job/y fence=2
            3s a refused lease_lost (expired)
            3s a refused lease_lost (unknown)
            3s a refused not_holder (unknown): job/z
            3s a refused lease_lost (expired)
            3s a refused lease_lost (unknown)
            3s b refused not_holder (unknown): job/z
            3s a granted job/u fence=4 until 8s
            3s a refused not_holder (other_scope): job/z
        "#]],
    );
}

#[test]
fn release_repeated_by_the_same_owner_and_lease_is_answered_as_before() {
    check(
        "
        0s a acquire job/x
        3s a release job/x
        5s a release job/x
        5s b release job/x of=a
        5s a release job/x lease=unknown
        5s a release job/x fence=9
        6s b acquire job/x
        7s a release job/x
        7s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            3s a released job/x held 3s
            5s a released job/x held 3s, as before
            5s b refused not_holder (released): job/x
            5s a refused not_holder (unknown): job/x
            5s a refused not_holder (released): job/x
            6s b granted job/x fence=2 until 16s
            7s a released job/x held 3s, as before
            7s get job/x: held by b fence=2 since 6s until 16s
        "#]],
    );
}

#[test]
fn release_of_what_ended_otherwise_is_refused_with_the_reason() {
    check(
        "
        0s a acquire job/x ttl=2s | 0s a acquire job/y ttl=60s
        0s a open s | 0s a acquire job/z session=s
        1s break job/y | 1s close s
        3s a release job/x
        3s a release job/y
        3s a release job/z
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 2s
            0s a granted job/y fence=2 until 60s
            0s s opened until 10s
            0s a granted job/z fence=3 until 10s
            1s break job/y grants=1
            1s a revoked job/y fence=2
            1s s closed grants=1
            1s a closed job/z fence=3
            3s a expired job/x fence=1
            3s a refused not_holder (expired): job/x
            3s a refused not_holder (released): job/y
            3s a refused not_holder (released): job/z
        "#]],
    );
}

#[test]
fn release_of_a_set_is_repeated_by_any_of_its_locks() {
    check(
        "
        0s a acquire {job/x, job/y, inode:1@0..10} as=set
        2s a release job/x grant=set
        3s a release job/y grant=set
        3s a release inode:1@0..10 grant=set
        3s a release job/z grant=set
        ",
        expect![[r#"
            0s a granted {job/x, job/y, inode:1@0..10} fence=1 until 10s
            2s a released job/x held 2s
            2s a released job/y fence=1
            2s a released inode:1@0..10 fence=1
            3s a released job/y held 2s, as before
            3s a released inode:1@0..10 held 2s, as before
            3s a refused not_holder (other_scope): job/z
        "#]],
    );
}

#[test]
fn release_of_bytes_is_repeated_for_all_that_it_released() {
    check(
        "
        0s a open s
        0s a acquire inode:1@0..10 session=s
        2s a acquire inode:1@20..30 session=s as=late
        2s a acquire inode:1@10..20 session=s shared as=middle
        3s a release inode:1@20..30 grant=late
        4s a release inode:1@20..30 grant=late
        4s a release inode:1@25..26 grant=late
        4s a release inode:2 grant=late
        4s a release inode:1@10..20 grant=late
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted inode:1@0..10 fence=1 until 10s
            2s a granted inode:1@20..30 fence=2 until 10s
            2s a granted inode:1@10..20 fence=3 until 10s
            3s a released inode:1@20..30 held 1s
            4s a released inode:1@20..30 held 1s, as before
            4s a released inode:1@25..26 held 1s, as before
            4s a released inode:2 held 0s
            4s a refused not_holder (other_scope): inode:1@10..20
        "#]],
    );
}

#[test]
fn closing_is_repeated_with_the_same_count() {
    check(
        "
        0s a open s ttl=60s | 0s a acquire job/x session=s | 0s a acquire job/y session=s
        1s close s
        2s close s
        2s keepalive s
        2s a acquire job/z session=s
        2s a acquire {job/u, job/v} as=set
        3s close set | 3s close set
        3s a open empty | 3s close empty | 3s close empty
        ",
        expect![[r#"
            0s s opened until 60s
            0s a granted job/x fence=1 until 60s
            0s a granted job/y fence=2 until 60s
            1s s closed grants=2
            1s a closed job/x fence=1
            1s a closed job/y fence=2
            2s s closed grants=2, as before
            2s s refused session_not_found (released)
            2s a refused session_not_found (released)
            2s a granted {job/u, job/v} fence=3 until 12s
            3s set closed grants=2
            3s a closed job/u fence=3
            3s a closed job/v fence=3
            3s set closed grants=2, as before
            3s empty opened until 13s
            3s empty closed grants=0
            3s empty closed grants=0, as before
        "#]],
    );
}

#[test]
fn closing_what_ended_otherwise_is_refused_with_the_reason() {
    check(
        "
        0s a open s ttl=2s | 0s a acquire job/x as=plain | 0s a open t ttl=60s
        1s a release job/x | 1s break-session t
        3s close s | 3s keepalive s
        3s close plain | 3s keepalive plain
        3s close t
        3s close unknown
        ",
        expect![[r#"
            0s s opened until 2s
            0s a granted job/x fence=1 until 10s
            0s t opened until 60s
            1s a released job/x held 1s
            1s break t grants=0
            1s t of a revoked
            3s s of a expired
            3s s refused session_not_found (expired)
            3s s refused session_not_found (expired)
            3s plain refused session_not_found (released)
            3s plain refused session_not_found (released)
            3s t refused session_not_found (released)
            3s lease refused session_not_found (unknown)
        "#]],
    );
}

#[test]
fn unlocking_is_idempotent_under_a_plain_lease_too() {
    check(
        "
        0s a acquire inode:1@0..10 as=plain | 0s a acquire inode:1@20..30 session=plain
        1s a unlock inode:1@0..15 session=plain
        1s a unlock inode:1@0..15 session=plain
        2s a unlock inode:1 session=plain
        2s a unlock inode:1 session=plain
        2s b unlock inode:1 session=plain
        2s a acquire inode:1@0..10 ttl=1s as=short
        5s a unlock inode:1 session=short
        ",
        expect![[r#"
            0s a granted inode:1@0..10 fence=1 until 10s
            0s a granted inode:1@20..30 fence=2 until 10s
            1s a unlocked
            1s a released inode:1@0..10 fence=1
            1s a unlocked nothing
            2s a unlocked
            2s a released inode:1@20..30 fence=2
            2s a unlocked nothing
            2s b refused session_not_found (released)
            2s a granted inode:1@0..10 fence=3 until 3s
            5s a expired inode:1@0..10 fence=3
            5s a refused session_not_found (expired)
        "#]],
    );
}

#[test]
fn plain_lease_is_kept_alive_and_closed_as_a_session_is() {
    check(
        "
        0s a acquire job/x as=plain ttl=10s
        5s keepalive plain
        5s a acquire job/y session=plain
        5s b acquire job/z session=plain
        6s close plain
        6s get job/x | 6s get job/y
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            5s plain renewed until 15s
            5s a granted job/y fence=2 until 15s
            5s b refused session_not_found (unknown)
            6s plain closed grants=2
            6s a closed job/x fence=1
            6s a closed job/y fence=2
            6s get job/x: free; last fence=1
            6s get job/y: free; last fence=2
        "#]],
    );
}

#[test]
fn endings_are_forgotten_with_the_epoch() {
    check(
        "
        0s a acquire job/x | 1s a release job/x
        2s epoch conflicting
        2s a release job/x
        2s a check job/x
        2s token 1
        2s get job/x
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            1s a released job/x held 1s
            2s epoch 1 begun recovering=0
            2s a refused not_holder (unknown): job/x
            2s check job/x fence=1: not good (unknown)
            2s token 1: unknown
            2s get job/x: free
        "#]],
    );
}
