//! Links between pages: each relative one leads to a file or folder that is there, and to a heading in it.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::File;
use super::{Fault, Found, numbered};

pub(super) fn faults(files: &[File], root: &Path) -> Vec<Fault> {
    faults_where(files, |path| root.join(path).exists())
}

fn faults_where(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for page in files.iter().filter(|file| is_page(&file.path)) {
        for (line, link) in links(&page.text) {
            if let Some(what) = fault(page, link, files, &exists) {
                faults.push(Fault { path: page.path.clone(), found: Found::new(line, what) });
            }
        }
    }
    faults
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md")
}

fn fault(page: &File, link: &str, files: &[File], exists: impl Fn(&str) -> bool) -> Option<String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, to)| (path, Some(to)));
    let target = if path.is_empty() { page.path.clone() } else { resolved(&page.path, path)? };
    let there = files.iter().find(|file| file.path == target);
    if there.is_none() && !exists(&target) {
        return Some(format!("the link leads nowhere: {link}"));
    }
    let (anchor, there) = (anchor?, there.filter(|file| is_page(&file.path))?);
    (!anchors(&there.text).contains(anchor))
        .then(|| format!("no heading of {target} has the anchor #{anchor}"))
}

/// The path from the root that a link on a page means; a link out of the repository means none.
fn resolved(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The relative links of a page with their lines, but for those in code.
fn links(page: &str) -> Vec<(usize, &str)> {
    let prose = prose(page);
    prose
        .flat_map(|(number, line)| links_in(line).into_iter().map(move |to| (number, to)))
        .collect()
}

fn links_in(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (open, close) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
        for (at, _) in line.match_indices(open) {
            let rest = &line[at + open.len()..];
            let is_in_code = line[..at].matches('`').count() % 2 == 1;
            if let Some(end) = rest.find(close).filter(|_| !is_in_code) {
                found.push(&rest[..end]);
            }
        }
    }
    found.retain(|link| !link.contains(':') && !link.starts_with('/'));
    found
}

/// The anchors of a page's headings, as forges make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = slug(heading.trim());
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered);
        anchors.extend(free.into_iter().find(|anchor| !anchors.contains(anchor)));
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines outside of fenced code.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    numbered(page).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let other = File::new("docs/other.md", "# Other\n## Two words: here\n## Two words: here\n");
        let files = [File::new("docs/page.md", text), other];
        let faults = faults_where(&files, |path| path == "docs/images/a.png" || path == "docs");
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Page\n[a](other.md) [b](other.md#two-words-here) [c](other.md#two-words-here-1)\n\
            [d](#page) ![e](images/a.png) [f](../docs/other.md) [g](../docs)\n\
            <img src=\"images/a.png\"> [h](https://example.org/x.md)\n";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for link in ["gone.md", "../other.md", "images/b.png", "other.md#gone", "#gone"] {
            let said = found(&format!("# Page\n\nsee [it]({link})\n"));
            assert_eq!(said.len(), 1, "{link}");
            assert!(said[0].starts_with("docs/page.md:3: "), "{said:?}");
        }
        assert_eq!(found("<img src=\"images/b.png\">\n").len(), 1);
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(found("# Page\n```\n[a](gone.md)\n```\n`[a](gone.md)`\n"), Vec::<String>::new());
    }
}
