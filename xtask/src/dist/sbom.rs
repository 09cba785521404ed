//! The bill of materials, in the format of CycloneDX: each crate that the binary is linked from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::VERSION;
use crate::cargo::cargo;

pub(super) fn of(root: &Path) -> Result<String> {
    let args = ["metadata", "--locked", "--format-version", "1", "--filter-platform"];
    let mut command = cargo(root, &args);
    let output = command.arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let text = serde_json::to_string_pretty(&bill(&metadata)?)?;
    Ok(text + "\n")
}

fn bill(metadata: &Value) -> Result<Value> {
    let linked = linked(metadata)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let linked =
        packages.iter().filter(|one| one["id"].as_str().is_some_and(|id| linked.contains(id)));
    let components: Vec<Value> = linked.map(component).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "name": "leasehold", "version": VERSION },
        },
        "components": components,
    }))
}

fn component(package: &Value) -> Value {
    let (name, version) = (package["name"].as_str(), package["version"].as_str());
    let (name, version) = (name.unwrap_or_default(), version.unwrap_or_default());
    let mut component = json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
    });
    if let Some(licence) = package["license"].as_str() {
        // As older crates write it.
        let expression = licence.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    component
}

/// The packages below the command, without those that only tests or the build need.
fn linked(metadata: &Value) -> Result<BTreeSet<&str>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("nodes")?;
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_command = |id: &&str| id.contains("crates/cli");
    let command = nodes.keys().copied().find(is_command).context("the command is a package")?;
    let (mut found, mut next) = (BTreeSet::new(), vec![command]);
    while let Some(id) = next.pop() {
        if !found.insert(id) {
            continue;
        }
        let below = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let linked = below.filter(|dependency| {
            let kinds = dependency["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        });
        next.extend(linked.filter_map(|dependency| dependency["pkg"].as_str()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_is_not() {
        let dependency =
            |pkg: &str, kind: Value| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                {"id": "path+file:///x/crates/cli#1", "name": "cli", "version": "1", "license": null},
                {"id": "a", "name": "a", "version": "2", "license": "MIT/Apache-2.0"},
                {"id": "b", "name": "b", "version": "3", "license": "MIT"},
            ],
            "resolve": { "nodes": [
                {"id": "path+file:///x/crates/cli#1",
                 "deps": [dependency("a", Value::Null), dependency("b", json!("dev"))]},
                {"id": "a", "deps": [dependency("b", json!("build"))]},
                {"id": "b", "deps": []},
            ]},
        });
        let bill = bill(&metadata).unwrap();
        let names: Vec<_> =
            bill["components"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["cli", "a"]);
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["purl"], "pkg:cargo/a@2");
    }
}
