//! `leasehold doctor`: looks at everything that is often wrong, and says what to do.

mod certificate;
mod store;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_api::{OpenRequest, Version};
use leasehold_client::Transport;
use leasehold_server::{Config, Store};
use serde::Serialize;

use super::{Answered, default_owner};
use crate::args::{Doctor, Global};
use crate::asking::Server;
use crate::failure::{EXIT_CONFIG, EXIT_NO, EXIT_UNREACHABLE, Failure};
use crate::output::{Output, Style, short, shown};

/// Below this a server or a busy client runs out of connections.
const OPEN_FILES_WANTED: u64 = 4096;
/// Times in answers are for people: a difference matters when they compare logs.
const DRIFT_MAX: Duration = Duration::from_secs(2);
const SLOW_COMMIT: Duration = Duration::from_millis(100);
/// So many tenths of a server's descriptors may be in use.
const DESCRIPTOR_TENTHS_MAX: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Bad,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Ok, detail: detail.into(), advice: None }
    }

    fn warning(
        check: &'static str,
        detail: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let (detail, advice) = (detail.into(), Some(advice.into()));
        Finding { check, verdict: Verdict::Warning, detail, advice }
    }

    fn bad(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Finding {
        let (detail, advice) = (detail.into(), Some(advice.into()));
        Finding { check, verdict: Verdict::Bad, detail, advice }
    }
}

pub(crate) async fn run(global: &Global, args: &Doctor) -> Answered {
    let out = Output::of(global);
    let mut findings = vec![open_files(), processes()];
    findings.extend(named(global, args).await?);
    let mut reached = 0;
    for address in &global.addr {
        let mut one = global.clone();
        one.addr = vec![address.clone()];
        match look_at(&one, address).await {
            Ok(more) => {
                reached += 1;
                findings.extend(more);
            }
            Err(failure) => findings.push(Finding::bad(
                "server",
                format!("{}: {}", shown(address), failure.said),
                "start it with `leasehold serve`, or set --addr or LEASEHOLD_ADDR to where it is",
            )),
        }
    }
    show(&out, &findings);
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(match (reached, is_bad) {
        (0, _) => EXIT_UNREACHABLE,
        (_, true) => EXIT_NO,
        (_, false) => 0,
    })
}

/// Findings about the stores and files that the settings and the flags name.
async fn named(global: &Global, args: &Doctor) -> Result<Vec<Finding>, Failure> {
    let wrong = |error: &dyn std::error::Error| Failure::from_chain(EXIT_CONFIG, error);
    let config = args.config.as_deref().map(Config::read).transpose();
    let config = config.map_err(|error| wrong(&error))?;
    let store = args.store.as_deref().map(Store::parse).transpose();
    let store = store.map_err(|error| wrong(&error))?;
    let mut findings = Vec::new();
    if let Some(store) = store.as_ref().or(config.as_ref().map(|config| &config.store)) {
        findings.push(store::of(store).await);
    }
    let tls = config.as_ref().and_then(|config| config.tls.as_ref());
    let of_config =
        tls.into_iter().flat_map(|tls| std::iter::once(&tls.cert).chain(&tls.client_ca));
    let files = global.cacert.iter().chain(of_config).chain(&args.certificate);
    findings.extend(files.map(|file| certificate::of_file(file)));
    Ok(findings)
}

fn show(out: &Output, findings: &[Finding]) {
    if out.format == crate::args::Format::Jsonl {
        findings.iter().for_each(|finding| out.json_line(finding));
    } else if out.is_json() {
        out.json(&findings);
    } else {
        for finding in findings {
            let (word, style) = match finding.verdict {
                Verdict::Ok => ("ok  ", Style::Good),
                Verdict::Warning => ("warn", Style::Head),
                Verdict::Bad => ("BAD ", Style::Bad),
            };
            out.line(&format!(
                "{}  {}: {}",
                out.styled(style, word),
                finding.check,
                finding.detail
            ));
            if let Some(advice) = &finding.advice {
                out.line(&format!("      {advice}"));
            }
        }
    }
}

/// An error means that the server could not be reached; everything else is a finding.
async fn look_at(global: &Global, address: &str) -> Result<Vec<Finding>, Failure> {
    let server = Server::connect(global, Transport::Http).await?;
    let start = Instant::now();
    let version = server.ask(server.client.api().version()).await?;
    let took = start.elapsed();
    let mut findings = vec![
        Finding::ok("server", format!("{} answers in {took:.1?}", shown(address))),
        same_version(&version),
    ];
    // A change first: that the store fails is known only when something was to be written.
    let written = write(&server).await;
    let failed = written.iter().any(|finding| finding.verdict == Verdict::Bad);
    findings.push(ready(&server, failed).await);
    findings.extend(leaders(&server).await);
    findings.extend(written);
    findings.extend(descriptors(&server).await);
    Ok(findings)
}

fn same_version(server: &Version) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let detail = format!("the server is {}, this command is {ours}", shown(&server.version));
    if !server.api.iter().any(|api| api == "v1") {
        return Finding::bad(
            "version",
            detail,
            "they have no interface in common: use the same version",
        );
    }
    if server.version == ours {
        Finding::ok("version", detail)
    } else {
        Finding::warning(
            "version",
            detail,
            "they understand each other; newer features may be missing",
        )
    }
}

async fn ready(server: &Server, failed: bool) -> Finding {
    match server.ask(server.client.api().ready()).await {
        Ok(_) if failed => Finding::warning(
            "ready",
            "the server says that it is ready, but a change failed",
            "see `write` below; look again in a moment",
        ),
        Ok(health) => {
            let details: Vec<String> =
                health.checks.iter().map(|check| shown(&check.detail)).collect();
            Finding::ok("ready", details.join("; "))
        }
        Err(failure) => Finding::bad(
            "ready",
            failure.said,
            "look into the server's log: it says what failed and how it goes on",
        ),
    }
}

async fn leaders(server: &Server) -> Vec<Finding> {
    let cluster = match server.ask(server.client.api().cluster()).await {
        Ok(cluster) => cluster,
        Err(failure) => {
            return vec![Finding::bad("leader", failure.said, "is this a Leasehold server?")];
        }
    };
    let without = cluster.groups.iter().filter(|group| group.leader.is_none()).count();
    let mut findings = Vec::new();
    findings.push(if without == 0 {
        let leaders = cluster.groups.iter().filter_map(|group| group.leader.as_ref());
        let names: BTreeSet<String> = leaders.map(|leader| shown(&leader.name)).collect();
        let names: Vec<String> = names.into_iter().collect();
        let lead = if names.len() == 1 { "leads" } else { "lead" };
        Finding::ok("leader", format!("{} {lead}, epoch {}", names.join(", "), cluster.epoch))
    } else {
        let detail = format!("{without} of {} groups have no leader", cluster.groups.len());
        Finding::bad(
            "leader",
            detail,
            "wait for the election; if it stays so, the servers cannot reach their store",
        )
    });
    if let Some(grace) = &cluster.grace {
        let detail = format!(
            "active for another {}, leases not yet renewed: {}",
            short(grace.ends_in_ms),
            grace.expected
        );
        findings.push(Finding::warning(
            "grace",
            detail,
            "holders from before the restart have precedence; it ends by itself",
        ));
    }
    findings
}

/// Opens and closes a session: a real change, durable, of nothing that matters.
async fn write(server: &Server) -> Vec<Finding> {
    let request = OpenRequest {
        owner_id: format!("doctor:{}", default_owner()),
        ttl_ms: 10_000,
        ..OpenRequest::default()
    };
    let (start, asked) = (Instant::now(), SystemTime::now());
    let opened = server.ask(server.client.api().open_session(&request)).await;
    let took = start.elapsed();
    let opened = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            let advice = failure.next.unwrap_or_else(|| "look into the server's log".into());
            return vec![Finding::bad("write", failure.said, advice)];
        }
    };
    let closed = server.ask(server.client.api().close_session(&opened.session_id)).await;
    let mut findings = vec![if took > SLOW_COMMIT {
        Finding::warning(
            "write",
            format!("a change took {took:.1?}"),
            "the store's disk or network is slow: every new lock waits for it",
        )
    } else {
        Finding::ok("write", format!("a change is durable in {took:.1?}"))
    }];
    if let Err(failure) = closed {
        findings.push(Finding::bad(
            "write",
            failure.said,
            "a session could be opened but not closed",
        ));
    }
    let server_now = opened.lease_expiry_ms.saturating_sub(opened.expires_in_ms);
    findings.push(drift(asked + took / 2, server_now));
    findings
}

fn drift(ours: SystemTime, server_ms: u64) -> Finding {
    let server = UNIX_EPOCH + Duration::from_millis(server_ms);
    let apart = server.duration_since(ours).unwrap_or_else(|behind| behind.duration());
    let detail = format!("the server's wall clock is {apart:.1?} from ours");
    if apart > DRIFT_MAX {
        Finding::warning(
            "clock",
            detail,
            "no lease depends on it, but times in logs and lists do: set up NTP on both",
        )
    } else {
        Finding::ok("clock", detail)
    }
}

/// The number of descriptors that the server has open, if we may read its metrics.
async fn descriptors(server: &Server) -> Option<Finding> {
    let metrics = server.ask(server.client.api().metrics()).await.ok()?;
    let [open, max] = ["process_open_fds", "process_max_fds"].map(|name| gauge(&metrics, name));
    let (open, max) = (open?, max?);
    let detail = format!("the server has {open} of {max} descriptors open");
    Some(if open.saturating_mul(10) > max.saturating_mul(DESCRIPTOR_TENTHS_MAX) {
        let advice = "raise its limit: LimitNOFILE= in its unit; or find out who connects so often";
        Finding::warning("descriptors", detail, advice)
    } else {
        Finding::ok("descriptors", detail)
    })
}

/// A metric without labels.
fn gauge(metrics: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    metrics.lines().find_map(value)
}

fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.current {
        Some(soft) if soft < OPEN_FILES_WANTED => Finding::warning(
            "limits",
            format!("{soft} open files at most (ulimit -n)"),
            format!(
                "for a server or many clients raise it: ulimit -n {OPEN_FILES_WANTED}, or LimitNOFILE= in its unit"
            ),
        ),
        Some(soft) => Finding::ok("limits", format!("{soft} open files at most")),
        None => Finding::ok("limits", "any number of open files"),
    }
}

/// `leasehold run` finds the processes of its command there.
fn processes() -> Finding {
    if Path::new("/proc/self/stat").exists() {
        Finding::ok("processes", "/proc can be read")
    } else {
        Finding::bad(
            "processes",
            "/proc cannot be read",
            "mount it: `leasehold run` needs it to stop a command",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_is_found_by_its_whole_name() {
        let metrics = "# HELP process_open_fds x\nprocess_open_fds_max 7\nprocess_open_fds 12\n";
        assert_eq!(gauge(metrics, "process_open_fds"), Some(12));
        assert_eq!(gauge(metrics, "process_max_fds"), None);
    }

    #[test]
    fn clocks_that_differ_are_told() {
        let ours = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(drift(ours, 1_000_001_000).verdict, Verdict::Ok);
        for server_ms in [1_000_003_000, 999_997_000] {
            let found = drift(ours, server_ms);
            assert_eq!((found.check, found.verdict), ("clock", Verdict::Warning));
            assert!(found.detail.contains("3.0s"), "{}", found.detail);
        }
    }
}
