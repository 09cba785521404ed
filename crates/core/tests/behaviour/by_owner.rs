//! Taking, renewing and giving back by the owner's name alone: the simple lock.

use expect_test::expect;

use crate::script::check;

#[test]
fn same_owner_renews_with_any_ttl_and_others_are_refused() {
    check(
        "
        0s a hold lock ttl=30s window=5s
        1s a hold lock ttl=30s window=9s
        2s a hold lock ttl=10s
        3s b hold lock
        3s b let-go lock
        4s a let-go lock
        4s a let-go lock
        5s b hold lock
        ",
        expect![[r#"
            0s a granted lock fence=1 until 30s
            1s a granted lock fence=1 until 31s again, as at 0s
            2s a granted lock fence=1 until 12s again, as at 0s
            2s a has ttl 10s
            3s b refused held: lock by a fence=1 since 0s until 12s
            3s b refused held: lock by a fence=1 since 0s until 12s
            4s a released lock held 4s
            4s a refused not_holder: lock
            5s b granted lock fence=2 until 15s
        "#]],
    );
}

#[test]
fn window_is_taken_back_or_given_up_by_its_owner_alone() {
    check(
        "
        0s a hold lock ttl=10s window=5s
        11s b hold lock
        11s b let-go lock
        12s a hold lock ttl=10s window=5s
        23s a let-go lock
        23s b hold lock
        ",
        expect![[r#"
            0s a granted lock fence=1 until 10s
            11s a expired lock fence=1, reclaim window 5s
            11s b refused reclaim_window: lock by a fence=1 since 0s until 15s in its reclaim window
            11s b refused reclaim_window: lock by a fence=1 since 0s until 15s in its reclaim window
            12s a granted lock fence=2 until 22s
            12s a reclaimed lock fence=1
            23s a expired lock fence=2, reclaim window 5s
            23s a released lock held 0s
            23s b granted lock fence=3 until 33s
        "#]],
    );
}

#[test]
fn grant_of_the_last_epoch_is_renewed_by_name() {
    check(
        "
        0s a hold lock ttl=10s window=5s
        1s epoch conflicting grace=30s
        2s b hold lock
        3s a hold lock ttl=10s window=1s
        4s a let-go lock
        ",
        expect![[r#"
            0s a granted lock fence=1 until 10s
            1s epoch 1 begun recovering=1
            2s b refused held: lock by a fence=1 since 0s until 11s recovering
            3s a granted lock fence=1 until 13s again, as at 0s
            3s grace over
            4s a released lock held 4s
        "#]],
    );
}
