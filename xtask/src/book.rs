//! The documentation as a book.

mod links;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::needs;

pub(crate) const CHORE: Chore = Chore {
    name: "book",
    args: "",
    about: "Build the documentation as a book, in target/book/html",
    help: "docs/SUMMARY.md has the order of the pages, and must list every page of docs; docs/book.toml has the settings. Links to
files that are no pages become plain text, and every link of what was built must lead somewhere. mdBook is installed with
`cargo install` into target/tools/mdbook if it is missing, which takes some minutes. It is not part of `check`.",
    run: |root, _| book(root),
};

const MDBOOK: &str = "0.5.4";
/// A page by this name would become the first of its folder, and links to it be lost.
const README: (&str, &str) = ("README.md", "introduction.md");

fn book(root: &Path) -> Result<()> {
    let program = mdbook(root)?;
    let stage = needs::tools_folder()?.with_file_name("book");
    let _ = fs::remove_dir_all(&stage);
    staged(root, &stage)?;
    run(Command::new(program).arg("build").arg(&stage))?;
    let html = stage.join("html");
    let faults = links::faults(&html)?;
    ensure!(faults.is_empty(), "links lead nowhere:\n{}", faults.join("\n"));
    eprintln!("book: {}", html.join("index.html").display());
    Ok(())
}

fn mdbook(root: &Path) -> Result<PathBuf> {
    let folder = needs::tools_folder()?.join("mdbook");
    let program = folder.join("bin/mdbook");
    let is_there = Command::new(&program).arg("--version").output();
    if !is_there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(MDBOOK)) {
        let args = ["install", "--locked", "--force", "mdbook", "--version", MDBOOK, "--root"];
        run(cargo(root, &args).arg(&folder))?;
    }
    Ok(program)
}

/// Lays the pages out as they lie in the repository, so that links between them stay as they are.
fn staged(root: &Path, stage: &Path) -> Result<()> {
    let source = stage.join("src");
    fs::create_dir_all(&source)?;
    fs::copy(root.join("docs/book.toml"), stage.join("book.toml"))?;
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md"))?;
    let pages = pages(&summary);
    complete(root, &pages)?;
    let in_summary = |link: &str| pages.get(link).map(|path| renamed(path));
    fs::write(source.join("SUMMARY.md"), links::rewritten(&summary, in_summary))?;
    for path in pages.values() {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        let text = links::rewritten(&text, |link| {
            let (to, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if to.is_empty() { path.clone() } else { links::resolved(path, to)? };
            let is_page = pages.values().any(|page| *page == target);
            let is_image = target.starts_with("docs/images/");
            let hash = if anchor.is_empty() { "" } else { "#" };
            (is_page || is_image).then(|| format!("{}{hash}{anchor}", renamed(to)))
        });
        let place = source.join(renamed(path));
        fs::create_dir_all(place.parent().unwrap_or(&source))?;
        fs::write(place, text)?;
    }
    let images = source.join("docs");
    run(Command::new("cp").arg("-r").arg(root.join("docs/images")).arg(images))
}

/// The pages of the summary: how it links them, and where they lie in the repository.
fn pages(summary: &str) -> BTreeMap<String, String> {
    let links = links::all(summary).into_iter();
    links
        .filter_map(|link| Some((link.into(), links::resolved("docs/SUMMARY.md", link)?)))
        .collect()
}

/// A page that the book does not have would be missed by nobody but its reader.
fn complete(root: &Path, pages: &BTreeMap<String, String>) -> Result<()> {
    for folder in ["docs", "docs/guide", "docs/operate", "docs/adr"] {
        for entry in fs::read_dir(root.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            let is_page = name.ends_with(".md") && name != "SUMMARY.md";
            ensure!(
                !is_page || pages.values().any(|page| *page == path),
                "docs/SUMMARY.md lacks {path}"
            );
        }
    }
    Ok(())
}

fn renamed(path: &str) -> String {
    path.replace(README.0, README.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_where_the_summary_says() {
        let pages = pages("# Summary\n\n- [Start](../README.md)\n  - [HTTP](guide/http.md)\n");
        let paths: Vec<_> = pages.values().map(String::as_str).collect();
        assert_eq!(paths, ["README.md", "docs/guide/http.md"]);
        assert_eq!(renamed("sdk/go/README.md"), "sdk/go/introduction.md");
    }
}
