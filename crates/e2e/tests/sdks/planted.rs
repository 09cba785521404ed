//! Bugs on purpose, in a copy of a port: each must be found by the vectors or by a scenario.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use super::harness::{Sdk, Stage, Store};
use super::{basics, building, faults};

/// File, what stands there once, and what is put in its place.
type Patch = (&'static str, &'static str, &'static str);

/// What is wrong in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A lease counts from its answer.
    CountFromAnswer,
    /// The work is told to stop when the ttl is over.
    JeopardyLate,
    /// Each try is a request of its own.
    NoRequestId,
    /// A renewal that was refused is tried again.
    RetryAfterRefusal,
    /// Work that ended after its lease is fine.
    SwallowLoss,
}

impl Bug {
    const ALL: [Bug; 5] = [
        Bug::CountFromAnswer,
        Bug::JeopardyLate,
        Bug::NoRequestId,
        Bug::RetryAfterRefusal,
        Bug::SwallowLoss,
    ];

    /// What is wrong in the SDK: files, what stands there, and what is put in its place.
    fn patches(self, sdk: Sdk) -> &'static [Patch] {
        match sdk {
            Sdk::Go => self.in_go(),
            Sdk::TypeScript => self.in_typescript(),
            Sdk::Rust | Sdk::RustHttp | Sdk::PythonAsyncio | Sdk::PythonSync => self.in_python(),
        }
    }

    fn in_python(self) -> &'static [Patch] {
        match self {
            Bug::CountFromAnswer => &[(
                "src/leasehold/_machine/machine.py",
                "Standing.counted(sent.sent, answer.ttl, answer.left))",
                "Standing.counted(now, answer.ttl, answer.left))",
            )],
            Bug::JeopardyLate => &[(
                "src/leasehold/_machine/types.py",
                "return self.since + self.ttl // 2",
                "return self.since + self.ttl",
            )],
            Bug::NoRequestId => &[(
                "src/leasehold/_payload.py",
                "\"request_id\": self.request_id, \"wait_ms\"",
                "\"request_id\": __import__(\"secrets\").token_hex(16), \"wait_ms\"",
            )],
            Bug::RetryAfterRefusal => &[(
                "src/leasehold/_machine/machine.py",
                "            if not is_denied and not says_nothing_of_the_lease(problem.code):\n                self._end(sent.key, lost(Loss.TOLD, problem))\n            elif",
                "            if",
            )],
            Bug::SwallowLoss => &[
                (
                    "src/leasehold/_sync.py",
                    "        if lost is not None and error is None:\n            raise lost\n",
                    "",
                ),
                (
                    "src/leasehold/_aio.py",
                    "            raise lost from None\n        if error is None:\n            raise lost\n",
                    "            return True\n",
                ),
            ],
        }
    }

    fn in_go(self) -> &'static [Patch] {
        match self {
            Bug::CountFromAnswer => &[(
                "machine/acquiring.go",
                "counted(sent.sent, answer.TTL, answer.Left)",
                "counted(now, answer.TTL, answer.Left)",
            )],
            Bug::JeopardyLate => {
                &[("machine/types.go", "return s.Since + s.TTL/2 }", "return s.Since + s.TTL }")]
            }
            Bug::NoRequestId => {
                &[("payload.go", "\"request_id\": p.requestID", "\"request_id\": random(16)")]
            }
            Bug::RetryAfterRefusal => &[(
                "machine/machine.go",
                "m.beatFailed(now, p, problem.RetryAfter)\n\t\t} else {\n\t\t\tm.end(sent.key, Ended{EndLost, Told, problem})\n\t\t}",
                "m.beatFailed(now, p, problem.RetryAfter)\n\t\t} else {\n\t\t\tm.beatFailed(now, p, problem.RetryAfter)\n\t\t}",
            )],
            Bug::SwallowLoss => &[("lock.go", "\t\treturn lost\n", "\t\treturn nil\n")],
        }
    }

    fn in_typescript(self) -> &'static [Patch] {
        match self {
            Bug::CountFromAnswer => &[(
                "src/machine/machine.ts",
                "phase, Standing.counted(sent.sent, ttl, left)",
                "phase, Standing.counted(now, ttl, left)",
            )],
            Bug::JeopardyLate => &[(
                "src/machine/types.ts",
                "return this.since + Math.floor(this.ttl / 2);",
                "return this.since + this.ttl;",
            )],
            Bug::NoRequestId => &[(
                "src/payload.ts",
                "      request_id: requestId,",
                "      request_id: requestId.slice(0, 8) + crypto.randomUUID(),",
            )],
            Bug::RetryAfterRefusal => &[(
                "src/machine/machine.ts",
                "else if (!saysNothingOfTheLease(problem.code)) {",
                "else if (problem.code === \"\") {",
            )],
            Bug::SwallowLoss => &[
                (
                    "src/lease.ts",
                    "if (lost !== undefined && isAbort(error, signal)) throw lost;",
                    "if (lost !== undefined && isAbort(error, signal)) return undefined as T;",
                ),
                (
                    "src/lease.ts",
                    "    if (lost !== undefined) throw lost;\n    return",
                    "    void lost;\n    return",
                ),
            ],
        }
    }

    /// The scenario that has to fail.
    async fn scenario(self, stage: Stage) -> Result<()> {
        match self {
            Bug::CountFromAnswer => {
                faults::a_lease_counts_from_before_it_was_asked_for(stage).await
            }
            Bug::JeopardyLate => faults::work_is_told_to_stop_at_half_of_the_ttl(stage).await,
            Bug::NoRequestId => faults::a_grant_whose_answer_was_lost_is_got_again(stage).await,
            Bug::RetryAfterRefusal => {
                faults::a_broken_lock_is_lost_with_the_next_heartbeat(stage).await
            }
            Bug::SwallowLoss => {
                faults::a_body_that_outlives_its_lease_ends_with_its_loss(stage).await
            }
        }
    }
}

/// Side by side: what is waited for is time, not the processor.
pub(crate) fn all_are_found(sdk: Sdk) -> Result<()> {
    let trial = |bug| move || tokio::runtime::Runtime::new()?.block_on(is_found(bug, sdk));
    for running in Bug::ALL.map(|bug| std::thread::spawn(trial(bug))) {
        running.join().map_err(|_| anyhow!("a trial has panicked"))??;
    }
    Ok(())
}

/// The copy does what it should in general, and fails where the bug is.
async fn is_found(bug: Bug, sdk: Sdk) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let copy = patched(bug, sdk, &folder)?;
    let stage = Stage::of_copy(sdk, Store::Sqlite, Some(&copy)).await?;
    basics::who_waits_is_granted_when_it_comes_free(stage)
        .await
        .with_context(|| format!("{sdk:?} with {bug:?} does not work at all"))?;
    let stage = Stage::of_copy(sdk, Store::Sqlite, Some(&copy)).await?;
    // An assertion that fails is a thread that panics.
    let trial = std::thread::spawn(move || -> Result<()> {
        tokio::runtime::Runtime::new()?.block_on(bug.scenario(stage))
    });
    let found = tokio::task::spawn_blocking(move || trial.join()).await?;
    ensure!(!matches!(found, Ok(Ok(()))), "{sdk:?}: nothing fails with {bug:?}");
    Ok(())
}

fn patched(bug: Bug, sdk: Sdk, folder: &TempDir) -> Result<PathBuf> {
    let copy = folder.path().join("sdk");
    building::copied(&building::sources(sdk), &copy)?;
    for (file, before, after) in bug.patches(sdk) {
        let path = copy.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        let count = text.matches(before).count();
        ensure!(count == 1, "{bug:?}: what is to be patched in {file} is there {count} times");
        fs::write(&path, text.replace(before, after))?;
    }
    building::compile(sdk, &copy)?;
    Ok(copy)
}
