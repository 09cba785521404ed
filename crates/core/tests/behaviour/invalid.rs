//! Everything that can be wrong with a request in itself.

use std::time::Duration;

use expect_test::expect;

use crate::script::{check, check_with, transcript};

#[test]
fn ttl_has_a_least_and_a_greatest_length() {
    check(
        "
        0s a acquire job/x ttl=99ms
        0s a acquire job/x ttl=86400001ms
        0s a open s ttl=99ms
        0s a acquire job/x ttl=100ms
        0s a acquire job/y ttl=24h
        0s a renew job/y ttl=99ms
        0s a renew job/y ttl=86400001ms
        0s a open t ttl=24h
        0s keepalive t ttl=99ms
        ",
        expect![[r#"
            0s a refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
            0s a refused invalid: ttl is 86400001 ms; it must be 100 to 86400000 ms
            0s s refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
            0s a granted job/x fence=1 until 0.1s
            0s a granted job/y fence=2 until 86400s
            0s a refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
            0s a refused invalid: ttl is 86400001 ms; it must be 100 to 86400000 ms
            0s t opened until 86400s
            0s t refused invalid: ttl is 99 ms; it must be 100 to 86400000 ms
        "#]],
    );
}

#[test]
fn ttl_that_no_number_can_hold_is_refused() {
    check_with(
        |limits| limits.lease_ttl_max = Duration::MAX,
        "0s a acquire job/x ttl=1200h | 0s a acquire job/x ttl=1193h",
        expect![[r#"
            0s a refused invalid: ttl is 4320000000 ms; it must be 100 to 18446744073709551615999 ms
            0s a granted job/x fence=1 until 4294800s
        "#]],
    );
}

#[test]
fn disconnect_ttl_has_a_greatest_length() {
    check(
        "0s a open s keep=86400001ms | 0s a open t keep=24h",
        expect![[r#"
            0s s refused invalid: disconnect ttl is 86400001 ms, the limit is 86400000 ms
            0s t opened until 10s
        "#]],
    );
}

#[test]
fn reclaim_window_has_a_greatest_length() {
    check(
        "0s a acquire job/x window=86400001ms | 0s a acquire job/x window=24h",
        expect![[r#"
            0s a refused invalid: reclaim window is 86400001 ms, the limit is 86400000 ms
            0s a granted job/x fence=1 until 10s
        "#]],
    );
}

#[test]
fn wait_has_a_greatest_length() {
    check(
        "
        0s a acquire job/x
        0s b acquire job/x wait=86400001ms
        0s b acquire job/x wait=24h
        ",
        expect![[r#"
            0s a granted job/x fence=1 until 10s
            0s b refused invalid: wait is 86400001 ms, the limit is 86400000 ms
            0s b queued job/x at 1
        "#]],
    );
}

#[test]
fn set_of_more_than_64_is_refused() {
    let members: Vec<String> = (0..65).map(|number| format!("job/{number}")).collect();
    let set = format!("{{{}}}", members.join(", "));
    assert_eq!(
        transcript(&format!("0s a acquire {set}")),
        "0s a refused invalid: a set has 1 to 64 scopes, not 65\n"
    );
}

#[test]
fn permits_cannot_be_had_on_byte_ranges() {
    check(
        "
        0s a acquire inode:1@0..10 permits=2
        0s a acquire {job/x, inode:1 permits=2}
        ",
        expect![[r#"
            0s a refused invalid: permits cannot be had on inode:1@0..10: byte ranges are shared or exclusive
            0s a refused invalid: permits cannot be had on inode:1: byte ranges are shared or exclusive
        "#]],
    );
}

#[test]
fn semaphore_has_a_greatest_limit() {
    check_with(
        |limits| limits.permits_max = 3,
        "0s a acquire pool permits=4 | 0s a acquire {job/x, pool permits=4} | 0s a acquire pool permits=3",
        expect![[r#"
            0s a refused invalid: a limit of 4 permits is too high, the most is 3
            0s a refused invalid: a limit of 4 permits is too high, the most is 3
            0s a granted pool fence=1 until 10s
        "#]],
    );
}

#[test]
fn metadata_has_a_greatest_size() {
    check_with(
        |limits| limits.metadata_bytes_max = 4,
        "
        0s a acquire job/x meta=12345
        0s a open s meta=12345
        0s a acquire job/x meta=1234
        0s a open s meta=1234
        ",
        expect![[r#"
            0s a refused invalid: metadata has 5 bytes, the limit is 4
            0s s refused invalid: metadata has 5 bytes, the limit is 4
            0s a granted job/x fence=1 until 10s
            0s s opened until 10s
        "#]],
    );
}

#[test]
fn lease_id_that_is_in_use_is_refused() {
    check(
        "
        0s a open s
        0s a acquire job/x as=l ttl=10s window=5s
        0s a acquire job/y lease=s
        0s a acquire job/y lease=l
        0s b open t lease=l
        11s a acquire job/y lease=l
        15.001s a acquire job/y lease=l
        ",
        expect![[r#"
            0s s opened until 10s
            0s a granted job/x fence=1 until 10s
            0s a refused invalid: the lease id is in use
            0s a refused invalid: the lease id is in use
            0s l refused invalid: the lease id is in use
            11s s of a expired
            11s a expired job/x fence=1, reclaim window 5s
            11s a refused invalid: the lease id is in use
            15.001s a window_over job/x fence=1
            15.001s a granted job/y fence=2 until 25.001s
        "#]],
    );
}

#[test]
fn fault_is_found_before_anything_else_is_looked_at() {
    check(
        "
        0s suspend
        0s a acquire job/x ttl=1ms
        ",
        expect![[r#"
            0s server suspended
            0s a refused invalid: ttl is 1 ms; it must be 100 to 86400000 ms
        "#]],
    );
}
