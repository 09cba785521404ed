//! One version in all places that state it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Mode;
use crate::dist::VERSION;

/// A file, and what stands before and behind the version in it.
const PLACES: &[(&str, &str, &str)] = &[
    ("Cargo.toml", "leasehold-api = { path = \"crates/api\", version = \"", "\""),
    ("Cargo.toml", "leasehold-client = { path = \"crates/client\", version = \"", "\""),
    ("fuzz/Cargo.toml", "name = \"leasehold-fuzz\"\nversion = \"", "\""),
    ("sdk/go/transport.go", "const Version = \"", "\""),
    ("sdk/python/src/leasehold/_version.py", "VERSION = \"", "\""),
    ("sdk/typescript/src/version.ts", "VERSION = \"", "\""),
    ("sdk/typescript/package.json", "\"version\": \"", "\""),
    ("sdk/typescript/package-lock.json", "\"version\": \"", "\""),
    ("contrib/action/package.json", "\"version\": \"", "\""),
    ("contrib/action/package.json", "\"leasehold\": \"", "\""),
    ("deploy/kustomize/single/kustomization.yaml", "newTag: ", "\n"),
    ("deploy/kustomize/cluster/kustomization.yaml", "newTag: ", "\n"),
    ("docs/operate/install.md", "install ./leasehold_", "_amd64.deb"),
];

pub(super) fn agree(root: &Path, mode: Mode) -> Result<()> {
    one(root)?;
    let files = format!("crates/cli/tests/releases/{VERSION}");
    ensure!(
        root.join(&files).is_dir(),
        "{files} is missing: see \"Keep the files of a release\" in CONTRIBUTING.md"
    );
    let changelog = fs::read_to_string(root.join("CHANGELOG.md"))?;
    let section = format!("\n## {VERSION}");
    let has_section = changelog.contains(&section);
    ensure!(
        has_section || (mode == Mode::Dry && changelog.contains("\n## Unreleased")),
        "CHANGELOG.md has no section {VERSION}"
    );
    Ok(())
}

fn one(root: &Path) -> Result<()> {
    for (path, before, behind) in PLACES {
        let text = fs::read_to_string(root.join(path)).with_context(|| (*path).to_string())?;
        let stated = text.split_once(before).and_then(|(_, rest)| rest.split_once(behind));
        let (stated, _) = stated.with_context(|| format!("{path} states no version"))?;
        ensure!(stated == VERSION, "{path} states {stated}, the workspace {VERSION}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_places_state_the_version_of_the_workspace() {
        super::one(&crate::workspace::root()).unwrap();
    }
}
