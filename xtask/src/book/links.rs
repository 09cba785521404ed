//! Links of pages, before and after they are built.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// The targets of all links in text outside of code, in order.
pub(super) fn all(page: &str) -> Vec<&str> {
    spans(page).into_iter().map(|span| &page[span.link.0..span.link.1]).collect()
}

/// The page with other targets, where `target` has one; a link that has none becomes its text.
pub(super) fn rewritten(page: &str, target: impl Fn(&str) -> Option<String>) -> String {
    let (mut text, mut end) = (String::new(), 0);
    for Span { whole, label, link } in spans(page) {
        let old = &page[link.0..link.1];
        text += &page[end..whole.0];
        end = whole.1;
        if is_elsewhere(old) {
            text += &page[whole.0..whole.1];
        } else if let Some(new) = target(old) {
            text += &page[whole.0..link.0];
            text += &new;
            text += &page[link.1..whole.1];
        } else {
            text += &page[label.0..label.1];
        }
    }
    text + &page[end..]
}

/// Where the parts of `[label](link)` are.
struct Span {
    whole: (usize, usize),
    label: (usize, usize),
    link: (usize, usize),
}

fn spans(page: &str) -> Vec<Span> {
    let (mut found, mut is_code, mut start) = (Vec::new(), false, 0);
    for line in page.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            add_spans(line, start, &mut found);
        }
        start += line.len();
    }
    found
}

fn add_spans(line: &str, start: usize, found: &mut Vec<Span>) {
    for (at, _) in line.match_indices("](") {
        let is_code = line[..at].matches('`').count() % 2 == 1;
        let (open, close) = (line[..at].rfind('['), line[at + 2..].find(')'));
        if let (Some(open), Some(close), false) = (open, close, is_code) {
            let link = (start + at + 2, start + at + 2 + close);
            let label = (start + open + 1, start + at);
            found.push(Span { whole: (start + open, link.1 + 1), label, link });
        }
    }
}

fn is_elsewhere(link: &str) -> bool {
    link.contains(':') || link.starts_with('/')
}

/// The path from the root that a link on a page means; none if it leads out of it.
pub(super) fn resolved(page: &str, link: &str) -> Option<String> {
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

/// The links of the pages below a folder that lead to no file of it, or to no place in that file.
pub(super) fn faults(html: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    gather(html, "", &mut pages)?;
    let mut faults = Vec::new();
    // The first repeats all pages in one, the other is shown in any folder.
    let skipped = |path: &str| path == "print.html" || path == "404.html";
    for (path, text) in pages.iter().filter(|(path, _)| !skipped(path)) {
        for link in attributes(text).filter(|link| !is_elsewhere(link)) {
            if !leads(html, &pages, path, link) {
                faults.push(format!("{path}: {link}"));
            }
        }
    }
    Ok(faults)
}

fn leads(html: &Path, pages: &BTreeMap<String, String>, page: &str, link: &str) -> bool {
    let (to, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if to.is_empty() { Some(page.to_string()) } else { resolved(page, to) };
    let Some(target) = target else { return false };
    match pages.get(&target) {
        Some(text) => anchor.is_empty() || text.contains(&format!("id=\"{anchor}\"")),
        None => html.join(&target).is_file(),
    }
}

fn attributes(html: &str) -> impl Iterator<Item = &str> {
    [" href=\"", " src=\""]
        .into_iter()
        .flat_map(|name| html.split(name).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)))
}

fn gather(folder: &Path, prefix: &str, pages: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            gather(&entry.path(), &format!("{path}/"), pages)?;
        } else if path.ends_with(".html") {
            pages.insert(path, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_get_other_targets_or_become_text() {
        let page = "[a](x.md) and [b `c`](../src/y.rs), [d](https://e/f), `[g](h)` ![i](j.png)\n```\n[k](l)\n```\n";
        let text = rewritten(page, |link| (!link.ends_with(".rs")).then(|| format!("new/{link}")));
        let wanted = "[a](new/x.md) and b `c`, [d](https://e/f), `[g](h)` ![i](new/j.png)\n```\n[k](l)\n```\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn built_links_must_lead_to_a_page_and_a_place_in_it() {
        let page = |text: &str| ("docs/a.html".to_string(), text.to_string());
        let pages = BTreeMap::from([page("<h2 id=\"here\">"), ("b.html".into(), String::new())]);
        let leads = |link| leads(Path::new("no-such-folder"), &pages, "docs/a.html", link);
        assert!(leads("#here") && leads("../b.html") && leads("a.html#here"));
        assert!(!leads("#there") && !leads("b.html") && !leads("../b.html#x") && !leads("../../b"));
    }

    #[test]
    fn paths_are_counted_from_the_page() {
        assert_eq!(resolved("docs/a.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolved("README.md", "../x"), None);
    }
}
