//! The folders of `deploy/kustomize`: valid for Kubernetes, consistent in themselves, and understood by the server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::{Server, binary};
use leasehold_e2e::tools::python_tool;
use serde_json::Value;

/// What the schemas of Kubernetes know nothing of.
const CUSTOM: &str = "ServiceMonitor";

const FOLDERS: [&str; 2] = ["single", "cluster"];

#[test]
fn manifests_are_valid() -> Result<()> {
    for folder in FOLDERS {
        let text = built(folder)?;
        let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
        std::fs::write(file.path(), &text)?;
        let mut command = Command::new(python_tool("kubernetes-validate")?);
        let output = command.args(["--strict", "--no-warn"]).arg(file.path()).output()?;
        let said = String::from_utf8([output.stdout, output.stderr].concat())?;
        ensure!(output.status.success(), "{folder}: {said}");
        let passed = said.matches(" passed for resource ").count();
        let wanted = documents(&text)?.iter().filter(|one| one["kind"] != CUSTOM).count();
        ensure!(passed == wanted && wanted >= 4, "{passed} of {wanted} passed: {said}");
    }
    Ok(())
}

#[test]
fn selectors_and_ports_meet() -> Result<()> {
    for folder in FOLDERS {
        let documents = documents(&built(folder)?)?;
        let pod = &workload(&documents)?["spec"]["template"];
        let labels = &pod["metadata"]["labels"];
        let ports = &pod["spec"]["containers"][0]["ports"];
        let has_port = |name: &Value| {
            ports.as_array().is_some_and(|ports| ports.iter().any(|port| port["name"] == *name))
        };
        let service = one(&documents, "Service")?;
        ensure!(is_selected(&service["spec"]["selector"], labels), "{folder}: the service");
        ensure!(has_port(&service["spec"]["ports"][0]["targetPort"]), "{folder}: its port");
        let selects_pods = |selector: &Value| is_selected(&selector["matchLabels"], labels);
        let own = &workload(&documents)?["spec"]["selector"];
        ensure!(selects_pods(own), "{folder}: the workload");
        let policy = one(&documents, "NetworkPolicy")?;
        ensure!(selects_pods(&policy["spec"]["podSelector"]), "{folder}: the network policy");
        ensure!(has_port(&policy["spec"]["ingress"][0]["ports"][0]["port"]), "{folder}: its port");
        let monitor = one(&documents, CUSTOM)?;
        let of_service = &service["metadata"]["labels"];
        let selector = &monitor["spec"]["selector"]["matchLabels"];
        ensure!(is_selected(selector, of_service), "{folder}: the monitor");
        let endpoint = &monitor["spec"]["endpoints"][0];
        ensure!(endpoint["port"] == service["spec"]["ports"][0]["name"], "{folder}: its port");
        let label = monitor["spec"]["jobLabel"].as_str().context("a label")?;
        ensure!(of_service[label] == "leasehold", "{folder}: the alerts expect this job");
        if folder == "cluster" {
            let budget = one(&documents, "PodDisruptionBudget")?;
            ensure!(selects_pods(&budget["spec"]["selector"]), "the disruption budget");
        }
    }
    Ok(())
}

#[tokio::test]
async fn server_understands_its_settings_and_answers_the_probes() -> Result<()> {
    let server = Server::start().await?;
    let mut http = Http::new(server.address());
    for folder in FOLDERS {
        let documents = documents(&built(folder)?)?;
        let container = &workload(&documents)?["spec"]["template"]["spec"]["containers"][0];
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            let path = container[probe]["httpGet"]["path"].as_str().context("a path")?;
            ensure!(http.get(path).await?.status == 200, "{folder}: {path}");
        }
        let monitor = one(&documents, CUSTOM)?;
        let path = monitor["spec"]["endpoints"][0]["path"].as_str().context("a path")?;
        ensure!(http.get(path).await?.status == 200, "{folder}: {path}");
        check_config(container).with_context(|| folder.to_string())?;
    }
    Ok(())
}

/// The server with the arguments and the environment of the container.
fn check_config(container: &Value) -> Result<()> {
    let mut command = Command::new(binary()?);
    command.env_clear().stdin(Stdio::null()).current_dir(std::env::temp_dir());
    for argument in container["args"].as_array().context("arguments")? {
        command.arg(argument.as_str().context("text")?);
    }
    let ip = "10.1.2.3";
    for variable in container["env"].as_array().context("an environment")? {
        let name = variable["name"].as_str().context("a name")?;
        let value = match variable["value"].as_str() {
            Some(value) => value.replace("$(POD_IP)", ip),
            None if name == "POD_IP" => ip.into(),
            None if name == "LEASEHOLD_STORE" => "postgres://locks@db/locks".into(),
            None => anyhow::bail!("{name} comes from nowhere"),
        };
        command.env(name, value);
    }
    let output = command.arg("--check-config").output()?;
    let said = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(output.status.success() && said.trim() == "configuration OK", "{said}");
    // Without it the address would be refused: the check has read the environment.
    let refused = command.env_remove("LEASEHOLD_INSECURE").output()?;
    ensure!(refused.status.code() == Some(78), "{}", refused.status);
    Ok(())
}

fn built(folder: &str) -> Result<String> {
    let path = kustomize().join(folder);
    let output = Command::new("kubectl").arg("kustomize").arg(&path).output();
    let output = output.context("kubectl is missing: run `cargo xtask needs`")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn documents(text: &str) -> Result<Vec<Value>> {
    let program = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), text)?;
    let mut python = Command::new(python_tool("python")?);
    let output = python.args(["-c", program]).arg(file.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn workload(documents: &[Value]) -> Result<&Value> {
    one(documents, "StatefulSet").or_else(|_| one(documents, "Deployment"))
}

fn one<'a>(documents: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => anyhow::bail!("there is not one {kind}"),
    }
}

fn is_selected(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().filter(|wanted| !wanted.is_empty());
    wanted.is_some_and(|wanted| wanted.iter().all(|(name, value)| labels[name] == *value))
}

fn kustomize() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize")
}
