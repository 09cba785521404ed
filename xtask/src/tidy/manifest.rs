//! Dependencies of a Cargo.toml: versions stand in `[workspace.dependencies]` alone, and nothing comes from git.
//!
//! Reads as much TOML as manifests have: tables, and one key a line whose value may go on while a bracket is open.

use super::{Found, numbered};

/// One dependency as the manifest states it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) table: Table,
    /// Everything that is said about it.
    said: String,
}

/// Which of the dependency tables it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Workspace,
    Normal,
    Build,
    Dev,
}

pub(super) fn faults(text: &str) -> Vec<Found> {
    dependencies(text).iter().filter_map(fault).collect()
}

fn fault(dependency: &Dependency) -> Option<Found> {
    let words: String = dependency.said.split_whitespace().collect();
    let what = match dependency.table {
        Table::Workspace if words.contains("git=") => "comes from git: take a published version",
        Table::Workspace => return None,
        Table::Normal | Table::Build | Table::Dev if words.contains("workspace=true") => {
            return None;
        }
        Table::Normal | Table::Build | Table::Dev => {
            "must say `workspace = true`: its version stands in the workspace's Cargo.toml"
        }
    };
    Some(Found::new(dependency.line, format!("{} {what}", dependency.name)))
}

/// All dependencies of a manifest, in order.
pub(super) fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut header = String::new();
    for (line, statement) in statements(text) {
        if let Some(name) = table_header(&statement) {
            header = name.to_string();
        } else if let Some((name, said)) = statement.split_once('=') {
            let (table, path) = split_header(&header);
            let Some(table) = table else { continue };
            let (name, said) = match path {
                // [dependencies.libc] and below it: version = "0.2"
                Some(name) => (name.to_string(), statement.clone()),
                None => split_key(name.trim(), said.trim()),
            };
            add(&mut found, Dependency { line, name, table, said });
        }
    }
    found
}

/// What is said about one dependency in several lines is put together.
fn add(found: &mut Vec<Dependency>, new: Dependency) {
    match found.iter_mut().find(|old| old.name == new.name && old.table == new.table) {
        Some(old) => old.said = format!("{}, {}", old.said, new.said),
        None => found.push(new),
    }
}

/// `libc.workspace = true` says of libc that `workspace = true`.
fn split_key(key: &str, value: &str) -> (String, String) {
    match key.split_once('.') {
        Some((name, rest)) => (unquoted(name).into(), format!("{rest} = {value}")),
        None => (unquoted(key).into(), value.into()),
    }
}

/// The dependency table that a header opens, and the dependency it names if it is about one alone.
fn split_header(header: &str) -> (Option<Table>, Option<&str>) {
    const TABLES: [(&str, Table); 4] = [
        ("workspace.dependencies", Table::Workspace),
        ("dev-dependencies", Table::Dev),
        ("build-dependencies", Table::Build),
        ("dependencies", Table::Normal),
    ];
    for (name, table) in TABLES {
        let Some((before, after)) = header.split_once(name) else {
            continue;
        };
        // As in `[target.'cfg(unix)'.dependencies]` and `[dependencies.libc]`.
        let begins = before.is_empty() || before.ends_with('.');
        if begins && (after.is_empty() || after.starts_with('.')) {
            return (Some(table), after.strip_prefix('.').map(unquoted));
        }
    }
    (None, None)
}

fn table_header(statement: &str) -> Option<&str> {
    let inner = statement.strip_prefix('[')?.strip_suffix(']')?;
    Some(inner.trim_matches(['[', ']']).trim())
}

fn unquoted(key: &str) -> &str {
    key.trim_matches(['"', '\''])
}

/// The statements of the file, each on one line, without comments.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in numbered(text) {
        let line = without_comment(line).trim();
        match statements.last_mut() {
            Some((_, last)) if open => *last = format!("{last} {line}"),
            Some(_) | None if line.is_empty() => {}
            Some(_) | None => statements.push((number, line.into())),
        }
        open = statements.last().is_some_and(|(_, last)| is_open(last));
    }
    statements
}

fn without_comment(line: &str) -> &str {
    let ends = line.match_indices('#').map(|(at, _)| at);
    let mut ends = ends.filter(|&at| line[..at].matches('"').count().is_multiple_of(2));
    ends.next().map_or(line, |at| &line[..at])
}

/// Whether a bracket waits to be closed.
fn is_open(statement: &str) -> bool {
    let count = |bracket: char| statement.matches(bracket).count();
    count('[') > count(']') || count('{') > count('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(text: &str) -> Vec<String> {
        faults(text).into_iter().map(|found| format!("{} {}", found.line, found.what)).collect()
    }

    const REST: &str =
        "must say `workspace = true`: its version stands in the workspace's Cargo.toml";

    #[test]
    fn dependencies_from_the_workspace_are_in_order() {
        let text = "[package]\nversion.workspace = true\n[dependencies]\nlibc.workspace = true\n\
            rusqlite = { workspace = true, features = [\n  \"bundled\", # one file\n] }\n";
        assert_eq!(whats(text), Vec::<String>::new());
    }

    #[test]
    fn version_in_a_member_is_found_in_every_spelling() {
        for text in [
            "[dependencies]\nlibc = \"0.2\"",
            "[dependencies]\nlibc = { version = \"0.2\" }",
            "[dependencies]\nlibc.version = \"0.2\"",
            "[dev-dependencies]\n\"libc\" = \"0.2\" # for tests",
            "[target.'cfg(unix)'.dependencies]\nlibc = { path = \"../libc\" }",
        ] {
            assert_eq!(whats(text), [format!("2 libc {REST}")], "{text}");
        }
        let table = "[build-dependencies.libc]\nfeatures = []\nversion = \"0.2\"\n";
        assert_eq!(whats(table), [format!("2 libc {REST}")]);
    }

    #[test]
    fn table_of_one_dependency_from_the_workspace_is_in_order() {
        let text = "[dependencies.libc]\nfeatures = []\nworkspace = true\n";
        assert_eq!(whats(text), Vec::<String>::new());
    }

    #[test]
    fn versions_of_the_workspace_are_where_they_belong() {
        let text = "[workspace.dependencies]\nlibc = \"0.2\"\nours = { path = \"crates/ours\" }\n";
        assert_eq!(whats(text), Vec::<String>::new());
    }

    #[test]
    fn source_from_git_is_found() {
        let text = "[workspace.dependencies]\nlibc = { git = \"https://example.org/libc\" }\n";
        assert_eq!(whats(text), ["2 libc comes from git: take a published version"]);
    }

    #[test]
    fn other_tables_are_no_dependencies() {
        let text = "[features]\nplanted = []\n[workspace.lints.rust]\nunsafe_code = \"deny\"\n\
            [[bench]]\nname = \"core\"\n[profile.dev]\ndebug = \"limited\"\n";
        assert_eq!(dependencies(text), []);
    }
}
