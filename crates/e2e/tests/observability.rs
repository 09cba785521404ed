//! The dashboard, the alerts and the page about metrics speak of what a server really serves.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use serde_json::{Value, json};

/// What Prometheus adds to each sample, or makes of it.
const ADDED_LABELS: [&str; 2] = ["job", "instance"];
const ADDED_METRICS: [&str; 1] = ["up"];

const WORDS: [&str; 9] =
    ["and", "by", "group_left", "group_right", "ignoring", "offset", "on", "or", "without"];

#[tokio::test]
async fn every_expression_names_metrics_and_labels_that_are_served() -> Result<()> {
    let served = Served::of_busy_server().await?;
    let (rules, dashboard) = (alerts()?, dashboard_expressions()?);
    ensure!(rules.len() > 10 && dashboard.len() > 30, "{} {}", rules.len(), dashboard.len());
    for expression in rules.iter().map(|alert| &alert.expression).chain(&dashboard) {
        let names = Names::of(expression);
        ensure!(!names.metrics.is_empty(), "{expression} names no metric");
        for metric in &names.metrics {
            ensure!(served.has_sample(metric), "{metric} is not served: {expression}");
        }
        for label in &names.labels {
            ensure!(served.has_label(label), "no metric has a label {label}: {expression}");
        }
    }
    documented(&served)
}

#[test]
fn alerts_fire_when_they_should() -> Result<()> {
    let folder = repository().join("contrib/prometheus");
    promtool(&folder, &["check", "rules", "leasehold.rules.yml"])?;
    promtool(&folder, &["test", "rules", "leasehold.rules.test.yml"])?;
    let tests = std::fs::read_to_string(folder.join("leasehold.rules.test.yml"))?;
    for alert in alerts()? {
        let is_tried = tests.contains(&format!("alertname: {}\n", alert.name));
        ensure!(is_tried, "no test lets {} fire", alert.name);
    }
    Ok(())
}

#[test]
fn every_alert_has_its_section() -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/operate/alerts.md"))?;
    let sections: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts = alerts()?;
    for Alert { name, runbook, .. } in &alerts {
        ensure!(
            sections.contains(name.as_str()),
            "{name} has no section in docs/operate/alerts.md"
        );
        let wanted = format!("docs/operate/alerts.md#{}", name.to_lowercase());
        ensure!(*runbook == wanted, "the runbook of {name} is {runbook}");
    }
    ensure!(sections.len() == alerts.len(), "a section is about no alert: {sections:?}");
    Ok(())
}

#[test]
fn dashboard_is_what_grafana_reads() -> Result<()> {
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (at, expression) in dashboard_expressions()?.iter().enumerate() {
        let quoted = serde_json::to_string(expression)?;
        writeln!(rules, "      - {{record: 'dashboard:{at}', expr: {quoted}}}")?;
    }
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("rules.yml"), rules)?;
    promtool(folder.path(), &["check", "rules", "rules.yml"])?;
    let dashboard = dashboard()?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    ensure!(ids.len() == panels.len(), "each panel has an id of its own");
    // Grafana moves panels that lie upon each other: then it is not the dashboard that was meant.
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |field: &str| panel["gridPos"][field].as_u64().context("a number");
        let (x, y, width, height) = (at("x")?, at("y")?, at("w")?, at("h")?);
        ensure!(x + width <= 24, "{} is too wide", panel["title"]);
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            ensure!(taken.insert(cell), "{} lies upon another panel", panel["title"]);
        }
    }
    Ok(())
}

/// The metrics of a server that has had some of everything.
struct Served {
    /// Names without the endings of their samples.
    families: BTreeSet<String>,
    samples: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Served {
    async fn of_busy_server() -> Result<Served> {
        let folder = tempfile::tempdir()?;
        let settings = folder.path().join("leasehold.toml");
        // A snapshot is due after the first record.
        std::fs::write(&settings, "snapshot_bytes = 1\n")?;
        let config = settings.to_str().context("a path is text")?;
        let server = Server::start_with(&["--config", config]).await?;
        let mut http = Http::new(server.address());
        let lock = json!({"owner_id": "a", "ttl_ms": 60_000});
        ensure!(http.post("/v1/locks/x/acquire", &lock).await?.status == 200);
        let wait = json!({"owner_id": "b", "ttl_ms": 60_000, "wait_ms": 20});
        ensure!(http.post("/v1/locks/x/acquire", &wait).await?.status == 409);
        let brief = json!({"owner_id": "a", "ttl_ms": 100});
        ensure!(http.post("/v1/locks/y/acquire", &brief).await?.status == 200);
        for _ in 0..1000 {
            let answer = http.get("/metrics").await?;
            let served = Served::read(std::str::from_utf8(&answer.body)?);
            let has_all = served.has_sample("leasehold_snapshot_age_seconds")
                && served.has_sample("leasehold_locks_release_total");
            if has_all {
                return Ok(served);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("no snapshot was written, or no lease expired")
    }

    fn read(text: &str) -> Served {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let families = types.filter_map(|line| Some(line.split_once(' ')?.0.to_string())).collect();
        let (mut samples, mut labels) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            samples.insert(line[..end].to_string());
            labels.extend(Names::of(line).labels);
        }
        Served { families, samples, labels }
    }

    fn has_sample(&self, name: &str) -> bool {
        self.samples.contains(name) || ADDED_METRICS.contains(&name)
    }

    fn has_label(&self, name: &str) -> bool {
        self.labels.contains(name) || ADDED_LABELS.contains(&name)
    }
}

/// The page has each metric that is served, and none that is not.
fn documented(served: &Served) -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/operate/metrics.md"))?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names: BTreeSet<String> =
        rows.flat_map(|cell| cell.split(", ").map(|name| name.replace('`', ""))).collect();
    let unknown: Vec<_> = names.difference(&served.families).collect();
    let unsaid: Vec<_> = served.families.difference(&names).collect();
    ensure!(unknown.is_empty(), "docs/operate/metrics.md has what is not served: {unknown:?}");
    ensure!(unsaid.is_empty(), "docs/operate/metrics.md lacks {unsaid:?}");
    Ok(())
}

/// What an expression of PromQL names.
#[derive(Debug, Default)]
struct Names {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Names {
    /// A name before `(` is a function, one in braces or in the list after `by` is a label, a word of the language is neither.
    fn of(expression: &str) -> Names {
        let mut names = Names::default();
        let text = without_strings(expression);
        let (mut rest, mut in_braces, mut in_list) = (text.as_str(), false, false);
        let mut before = "";
        while let Some(first) = rest.chars().next() {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
            let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len()).max(first.len_utf8());
            let (token, after) = rest.split_at(len);
            rest = after.trim_start();
            match token {
                "{" => in_braces = true,
                "}" => in_braces = false,
                "(" => in_list = matches!(before, "by" | "without" | "on" | "ignoring"),
                ")" => in_list = false,
                _ if !first.is_ascii_alphabetic() => {}
                _ if in_braces || in_list => drop(names.labels.insert(token.into())),
                _ if WORDS.contains(&token) || is_before_list(rest) => {}
                _ => drop(names.metrics.insert(token.into())),
            }
            before = token;
        }
        names
    }
}

/// Whether a name with this after it is a function, with its arguments or first with its labels.
fn is_before_list(rest: &str) -> bool {
    let [by, without] = ["by", "without"].map(|word| rest.strip_prefix(word));
    let rest = by.or(without).unwrap_or(rest);
    rest.trim_start().starts_with('(')
}

/// The expression without what is quoted, and without durations in brackets.
fn without_strings(expression: &str) -> String {
    let mut text = String::new();
    let mut end = None;
    let mut is_escaped = false;
    for c in expression.chars() {
        match end {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if c == '\\' => is_escaped = true,
            Some(quote) if c == quote => end = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => end = Some(c),
            None if c == '[' => end = Some(']'),
            None => text.push(c),
        }
    }
    text
}

struct Alert {
    name: String,
    expression: String,
    runbook: String,
}

/// The alerts of the file, which is written in a few shapes only.
fn alerts() -> Result<Vec<Alert>> {
    let text =
        std::fs::read_to_string(repository().join("contrib/prometheus/leasehold.rules.yml"))?;
    let blocks = text.split("- alert: ").skip(1);
    blocks.map(|block| alert(block).with_context(|| block.to_string())).collect()
}

fn alert(block: &str) -> Option<Alert> {
    let name = block.lines().next()?.trim().to_string();
    let (_, rest) = block.split_once("expr: ")?;
    let ends = ["\n        for: ", "\n        labels: "];
    let end = ends.iter().filter_map(|end| rest.find(end)).min()?;
    let expression = rest[..end].trim_start_matches(">-").trim().to_string();
    let (_, runbook) = block.split_once("runbook_url: ")?;
    Some(Alert { name, expression, runbook: runbook.lines().next()?.trim().to_string() })
}

fn dashboard() -> Result<Value> {
    let file = repository().join("contrib/grafana/leasehold.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

/// All expressions of the dashboard, with something in the place of its variables.
fn dashboard_expressions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    gather(&dashboard()?, &mut found);
    let filled = found.into_iter().map(|expression| {
        let expression = expression.replace("$__rate_interval", "5m");
        expression.replace("$instance", ".*").replace("$namespace", ".*")
    });
    Ok(filled.collect())
}

fn gather(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_string));
            fields.values().for_each(|value| gather(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| gather(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn promtool(folder: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new("promtool");
    let output = command.args(args).current_dir(folder).output();
    let output = output.context("promtool is missing: run `cargo xtask needs`")?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said));
    Ok(())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn names_of_an_expression_are_told_apart() {
    let names = Names::of(
        r#"sum by (le, job) (rate(a_total{x="b_total{",y!~"c"}[5m] offset 1d)) / on(z) d or vector(0)"#,
    );
    assert_eq!(names.metrics.iter().collect::<Vec<_>>(), ["a_total", "d"]);
    assert_eq!(names.labels.iter().collect::<Vec<_>>(), ["job", "le", "x", "y", "z"]);
}
