//! What every SDK promises, each driven through its own driver against the real server: the scenarios of `sdk/README.md`.

#[path = "sdks/access.rs"]
mod access;
#[path = "sdks/believers.rs"]
mod believers;
#[path = "sdks/building.rs"]
mod building;
#[path = "sdks/harness.rs"]
mod harness;
#[path = "sdks/basics.rs"]
mod basics;
#[path = "sdks/faults.rs"]
mod faults;
#[path = "sdks/histories.rs"]
mod histories;
#[path = "sdks/action.rs"]
mod action;
#[path = "sdks/pages.rs"]
mod pages;
#[path = "sdks/planted.rs"]
mod planted;

macro_rules! for_every_sdk {
    ($($module:ident::$test:ident),* $(,)?) => {
        for_every_sdk!(@ rust, Sdk::Rust, $($module::$test),*);
        for_every_sdk!(@ rust_http, Sdk::RustHttp, $($module::$test),*);
        for_every_sdk!(@ python_asyncio, Sdk::PythonAsyncio, $($module::$test),*);
        for_every_sdk!(@ python_sync, Sdk::PythonSync, $($module::$test),*);
        for_every_sdk!(@ go, Sdk::Go, $($module::$test),*);
        for_every_sdk!(@ typescript, Sdk::TypeScript, $($module::$test),*);
    };
    (@ $sdk:ident, $kind:expr, $($module:ident::$test:ident),*) => {
        mod $sdk {
            use super::harness::{Sdk, Stage};
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() -> anyhow::Result<()> {
                super::$module::$test(Stage::of($kind, super::$module::STORE).await?).await
            })*
        }
    };
}

for_every_sdk!(
    basics::a_lock_is_held_by_one_at_a_time,
    basics::who_waits_is_granted_when_it_comes_free,
    basics::shared_permits_ranges_and_paths,
    basics::a_set_is_all_or_nothing,
    basics::one_session_keeps_many_locks,
    basics::a_deadlock_is_refused_with_its_cycle,
    basics::retries_are_bounded,
    basics::a_release_says_what_happened,
    basics::a_lease_without_heartbeats_is_lost_by_the_clock,
    basics::fences_turn_stale_tokens_away,
    basics::leaders_follow_each_other,
    basics::everything_is_given_back_on_close,
    basics::a_dropped_guard_is_given_back,
    basics::a_canceled_wait_leaves_the_queue,
    basics::a_lease_that_others_wait_for_is_wanted,
    basics::a_session_hears_that_others_wait,
    basics::who_would_wait_for_itself_is_refused,
    basics::many_workers_share_a_client,
    basics::the_next_server_is_asked,
    basics::no_connection_is_left_after_close,
    basics::low_level_calls_answer_as_the_interface_does,
    faults::a_lease_outlives_its_ttl_by_heartbeats,
    faults::a_lease_counts_from_before_it_was_asked_for,
    faults::work_is_told_to_stop_at_half_of_the_ttl,
    faults::a_body_that_outlives_its_lease_ends_with_its_loss,
    faults::a_broken_lock_is_lost_with_the_next_heartbeat,
    faults::who_slept_through_the_ttl_knows_at_once,
    faults::a_stopped_process_believes_in_nothing_when_it_goes_on,
    faults::a_program_that_blocks_loses_no_lock,
    faults::a_lease_survives_a_restart_of_the_server,
    faults::a_wait_survives_a_restart_of_the_server,
    faults::a_grant_whose_answer_was_lost_is_got_again,
    faults::a_place_in_line_outlives_its_connection,
    faults::unreachable_is_not_refused,
    faults::what_may_have_been_granted_is_given_back,
    faults::a_killed_holder_is_outlived_by_its_ttl_alone,
    faults::watchers_miss_nothing,
    faults::a_watcher_that_missed_events_is_told,
    faults::work_under_a_session_is_told_to_stop_with_it,
    faults::a_session_survives_a_restart_of_the_server,
    faults::a_session_whose_answer_was_lost_is_opened_once,
    faults::heartbeats_every_sixth_outlast_longer_outages,
    faults::a_fork_holds_nothing,
    access::tls_and_tokens_are_spoken,
    access::a_token_goes_unencrypted_to_this_machine_alone,
    access::a_leader_that_was_not_named_is_not_followed,
    access::a_token_file_is_read_again,
    access::who_is_not_let_in_any_more_keeps_its_lease_as_if_cut_off,
    believers::two_never_believe_at_once,
    histories::a_long_history_can_have_happened,
);

/// A call that the interface has and an SDK lacks is found by its path.
mod interface {
    use anyhow::{Context, Result, ensure};
    use leasehold_e2e::client::Http;
    use leasehold_e2e::server::Server;
    use serde_json::Value;

    const CALLS: [&str; 3] =
        ["python/src/leasehold/_calls.py", "go/api.go", "typescript/src/api.ts"];

    #[tokio::test]
    async fn every_call_is_in_every_sdk() -> Result<()> {
        let server = Server::start_with(&["--store", "memory"]).await?;
        let described = Http::new(server.address()).get("/openapi.json").await?;
        let described: Value = described.json()?;
        let paths = described["paths"].as_object().context("there are paths")?.keys();
        // A watch is more than a call, and roles, tokens and backups are managed by the command.
        let others = ["/v1/watch", "/v1/backup"];
        let is_call = |path: &&String| {
            path.starts_with("/v1/")
                && !others.contains(&path.as_str())
                && !path.starts_with("/v1/auth/")
        };
        let calls: Vec<_> = paths.filter(is_call).collect();
        ensure!(calls.len() > 20, "{calls:?}");
        for file in CALLS {
            let source = format!("{}/../../sdk/{file}", env!("CARGO_MANIFEST_DIR"));
            let source = std::fs::read_to_string(source)?;
            for call in &calls {
                // What stands between the parameters.
                let parts = call.split('{').map(|part| part.split('}').next_back().unwrap_or(part));
                let mut parts = parts.map(|part| part.trim_matches('/'));
                ensure!(parts.all(|part| source.contains(part)), "{file} lacks {call}");
            }
        }
        Ok(())
    }
}

mod examples {
    use super::harness::{Sdk, Stage, Store};

    async fn run(sdk: Sdk) -> anyhow::Result<()> {
        let stage = Stage::of(sdk, Store::Memory).await?;
        stage.run_example("migrate", "step 2 with token").await?;
        stage.run_example("leader", "elected with token").await?;
        stage.run_example("tour", "the tour is over").await
    }

    #[tokio::test]
    async fn of_the_python_sdk_run() -> anyhow::Result<()> {
        run(Sdk::PythonSync).await
    }

    #[tokio::test]
    async fn of_the_go_sdk_run() -> anyhow::Result<()> {
        run(Sdk::Go).await
    }

    #[tokio::test]
    async fn of_the_typescript_sdk_run() -> anyhow::Result<()> {
        run(Sdk::TypeScript).await
    }
}

mod first_screens {
    use super::harness::Sdk;
    use super::pages::run;

    #[tokio::test]
    async fn of_the_python_sdk_run() -> anyhow::Result<()> {
        run(Sdk::PythonSync).await
    }

    #[tokio::test]
    async fn of_the_go_sdk_run() -> anyhow::Result<()> {
        run(Sdk::Go).await
    }

    #[tokio::test]
    async fn of_the_typescript_sdk_run() -> anyhow::Result<()> {
        run(Sdk::TypeScript).await
    }
}

/// Bugs that are put into a copy of a port must be found, or real ones would not be either.
mod planted_bugs {
    use super::harness::Sdk;
    use super::planted::all_are_found;

    #[test]
    fn are_found_in_the_python_sdk() -> anyhow::Result<()> {
        all_are_found(Sdk::PythonAsyncio)?;
        all_are_found(Sdk::PythonSync)
    }

    #[test]
    fn are_found_in_the_go_sdk() -> anyhow::Result<()> {
        all_are_found(Sdk::Go)
    }

    #[test]
    fn are_found_in_the_typescript_sdk() -> anyhow::Result<()> {
        all_are_found(Sdk::TypeScript)
    }
}
