//! Which crate may use which: the drawing in ARCHITECTURE.md, compared with what the manifests say.
//!
//! The drawing is a fenced block marked `arrows`, with a line such as `store -> core` for each folder in `crates`.

use std::collections::BTreeMap;

use super::files::File;
use super::manifest::{Dependency, Table, dependencies};
use super::{Fault, Found, numbered};

const MAP: &str = "ARCHITECTURE.md";
const PREFIX: &str = "leasehold-";
/// Built to test the others: any crate may use them in its tests.
const TEST_CRATES: &[&str] = &["sim"];
/// Who uses whom in tests and benchmarks alone: the servers of PostgreSQL that `store` starts for tests.
const IN_TESTS: &[(&str, &str)] = &[("cli", "store")];

/// For each crate those that it may use.
type Arrows = BTreeMap<String, Vec<String>>;

pub(super) fn faults(files: &[File]) -> Vec<Fault> {
    let drawn = files.iter().find(|file| file.path == MAP).map(|file| arrows(&file.text));
    let Some(arrows) = drawn.filter(|arrows| !arrows.is_empty()) else {
        let found = Found::new(1, "has no block marked `arrows`");
        return vec![Fault { path: MAP.into(), found }];
    };
    let manifests = files.iter().filter_map(|file| Some((file, crate_of(&file.path)?)));
    manifests
        .flat_map(|(file, name)| {
            let found = faults_of(name, &file.text, &arrows);
            found.into_iter().map(|found| Fault { path: file.path.clone(), found })
        })
        .collect()
}

/// The folder in `crates` that this is the manifest of.
fn crate_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

fn arrows(map: &str) -> Arrows {
    let block = map.lines().skip_while(|line| line.trim() != "```arrows").skip(1);
    let lines = block.take_while(|line| line.trim() != "```");
    lines.filter_map(|line| line.split_once("->")).map(|(from, to)| arrow(from, to)).collect()
}

fn arrow(from: &str, to: &str) -> (String, Vec<String>) {
    let to = to.split(',').map(str::trim).filter(|name| !name.is_empty());
    (from.trim().into(), to.map(str::to_string).collect())
}

fn faults_of(name: &str, manifest: &str, arrows: &Arrows) -> Vec<Found> {
    let Some(allowed) = arrows.get(name) else {
        return vec![Found::new(1, format!("{name} has no line among the arrows in {MAP}"))];
    };
    let mut found: Vec<Found> = misnamed(name, manifest).into_iter().collect();
    for dependency in dependencies(manifest) {
        let Some(used) = dependency.name.strip_prefix(PREFIX) else {
            continue;
        };
        if !is_allowed(used, &dependency, name, allowed) {
            let what = format!("{name} may not use {used}: {MAP} draws no such arrow");
            found.push(Found::new(dependency.line, what));
        }
    }
    found
}

fn is_allowed(used: &str, dependency: &Dependency, user: &str, allowed: &[String]) -> bool {
    let in_tests = match dependency.table {
        Table::Dev => {
            used == user || TEST_CRATES.contains(&used) || IN_TESTS.contains(&(user, used))
        }
        Table::Workspace | Table::Normal | Table::Build => false,
    };
    in_tests || allowed.iter().any(|name| name == used)
}

/// A package is named after its folder, or the arrows could not be told from the manifests.
fn misnamed(name: &str, manifest: &str) -> Option<Found> {
    let is_name = |line: &str| line.split('=').next().is_some_and(|key| key.trim() == "name");
    let (number, line) = numbered(manifest).find(|(_, line)| is_name(line))?;
    let expected = format!("\"{PREFIX}{name}\"");
    (!line.contains(&expected))
        .then(|| Found::new(number, format!("the package in crates/{name} is named {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "# Map\n```arrows\ncore ->\nstore -> core\nengine -> core, store\n\
        api ->\nclient -> api\n```\nserver -> everything, outside the block\n";

    fn faults_with(name: &str, rest: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"leasehold-{name}\"\n{rest}\n");
        let path = format!("crates/{name}/Cargo.toml");
        let files = [File::new(MAP, DRAWING), File::new(&path, &manifest)];
        faults(&files).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn arrows_that_are_drawn_may_be_used() {
        let rest = "[dependencies]\nleasehold-core.workspace = true\n\
            leasehold-store = { workspace = true }\nlibc.workspace = true";
        assert_eq!(faults_with("engine", rest), Vec::<String>::new());
    }

    #[test]
    fn arrow_that_is_not_drawn_is_found() {
        for (user, used) in
            [("core", "store"), ("core", "api"), ("api", "core"), ("client", "engine")]
        {
            for table in ["dependencies", "build-dependencies", "dev-dependencies"] {
                let rest = format!("[{table}]\nleasehold-{used}.workspace = true");
                let what = format!("{user} may not use {used}: {MAP} draws no such arrow");
                let expected = format!("crates/{user}/Cargo.toml:4: {what}");
                assert_eq!(faults_with(user, &rest), [expected]);
            }
        }
    }

    #[test]
    fn crates_for_tests_are_used_by_tests_alone() {
        let uses = |table: &str| {
            faults_with("core", &format!("[{table}]\nleasehold-sim.workspace = true"))
        };
        assert_eq!(uses("dev-dependencies").len(), 0);
        assert_eq!(uses("dependencies").len(), 1);
    }

    #[test]
    fn store_is_used_by_the_benchmarks_of_the_command_alone() {
        for (table, faults) in [("dev-dependencies", 0), ("dependencies", 1)] {
            let used = format!("[{table}]\nleasehold-store.workspace = true");
            let manifest = format!("[package]\nname = \"leasehold-cli\"\n{used}\n");
            let drawing = File::new(MAP, "```arrows\ncli -> api\n```\n");
            let files = [drawing, File::new("crates/cli/Cargo.toml", &manifest)];
            assert_eq!(super::faults(&files).len(), faults, "{table}");
        }
    }

    #[test]
    fn crate_that_is_not_drawn_is_found() {
        let expected =
            "crates/helper/Cargo.toml:1: helper has no line among the arrows in ARCHITECTURE.md";
        assert_eq!(faults_with("helper", ""), [expected]);
    }

    #[test]
    fn package_with_another_name_than_its_folder_is_found() {
        let manifest = File::new("crates/core/Cargo.toml", "[package]\nname = \"rules\"\n");
        let found = faults(&[File::new(MAP, DRAWING), manifest]);
        let expected = "the package in crates/core is named \"leasehold-core\"";
        assert_eq!(found[0].found, Found::new(2, expected));
    }

    #[test]
    fn missing_drawing_is_found() {
        assert_eq!(faults(&[]).len(), 1);
        assert_eq!(faults(&[File::new(MAP, "# Map\n")]).len(), 1);
    }

    #[test]
    fn block_ends_where_its_fence_ends() {
        assert_eq!(arrows(DRAWING).len(), 5);
    }
}
