//! What may not stand in a file, whatever it is about.

use super::{Found, numbered};

// Cut in two, or this file would break its own rules.
const MARKER: &str = concat!("FIX", "ME");
const HOLES: &[&str] = &[concat!("todo", "!("), concat!("unimplemented", "!(")];
const MACHINE_FOLDERS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// The faults of a Rust file that other files cannot have.
pub(super) fn rust(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push(Found::new(1, "a Rust file opens with `//!`"));
    }
    for (number, line) in numbered(text) {
        let holes = HOLES.iter().filter(|hole| line.contains(**hole));
        found.extend(holes.map(|hole| Found::new(number, format!("`{hole}…)` is left to write"))));
    }
    found
}

/// The faults that any file can have.
pub(super) fn any(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        if line.contains(MARKER) {
            found
                .push(Found::new(number, format!("{MARKER}: mend it, or write it down elsewhere")));
        }
        if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names_folder(line, folder)) {
            found.push(Found::new(number, format!("a path below {folder} is of one machine only")));
        }
    }
    found
}

/// Whether the line has an absolute path into this folder. The text of a path lock is none: such a lock may have any name.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = &line[..at];
        !before.ends_with("path:") && !before.ends_with(is_inside_a_path)
    })
}

fn is_inside_a_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '*' | '}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(found: Vec<Found>) -> Vec<(usize, String)> {
        found.into_iter().map(|found| (found.line, found.what)).collect()
    }

    #[test]
    fn file_in_order_has_no_faults() {
        let text = "//! A file.\n\nfn work() {}\n";
        assert_eq!([rust(text), any(text)].concat(), []);
    }

    #[test]
    fn rust_file_without_its_first_line_is_found() {
        for text in ["", "\n//! Late.\n", "// A comment.\n", "use std::fmt;\n"] {
            assert_eq!(whats(rust(text)), [(1, "a Rust file opens with `//!`".into())], "{text:?}");
        }
    }

    #[test]
    fn holes_are_found() {
        for hole in HOLES {
            let found = rust(&format!("//! A file.\nfn work() {{ {hole}) }}\n"));
            assert_eq!(found.len(), 1, "{hole}");
            assert_eq!(found[0].line, 2);
        }
    }

    #[test]
    fn marker_of_unfinished_work_is_found() {
        let found = any(&format!("one\n# {MARKER}: later\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for folder in MACHINE_FOLDERS {
            for line in
                [format!("{folder}a"), format!("see `{folder}a`"), format!("file:{folder}a")]
            {
                assert_eq!(any(&line).len(), 1, "{line}");
            }
        }
    }

    #[test]
    fn parts_of_other_paths_are_not_mistaken_for_a_machine() {
        let folder = MACHINE_FOLDERS[0];
        for line in [format!("https://example.org{folder}a"), format!("crates{folder}a")] {
            assert_eq!(any(&line), [], "{line}");
        }
    }

    #[test]
    fn text_of_a_path_lock_may_have_any_name() {
        assert_eq!(any(&format!("path:{}a", MACHINE_FOLDERS[0])), []);
    }
}
