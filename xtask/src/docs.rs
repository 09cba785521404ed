//! The documentation, run: every code block that is marked so, against a real server.
//!
//! Each page gets a server of its own on a free port, an empty directory and one shell for all its blocks. Port 8080 in the
//! text stands for the server's port. What a block prints is compared with the block behind it that is marked `output`.

mod blocks;
mod compare;
mod shell;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::test;
use blocks::Block;
use compare::Bindings;
use shell::Shell;

pub(crate) const CHORE: Chore = Chore {
    name: "docs",
    args: "[PAGE...]",
    about: "Run the code blocks of the documentation",
    help: "Runs the code blocks of README.md, CONTRIBUTING.md, SECURITY.md and docs/ that are marked as runnable, against a
server started for each page. PAGE is a part of a path; without one, all pages are run.

  ```sh run           a script for bash; it fails with the first command that fails
  ```console run      lines that begin with `$ ` are the script, the others are what it prints
  ```json output      what the block before prints: JSON, white space does not matter
  ```text output      the same for other text; columns may have other widths
  <!-- run            a script that readers do not see, up to a line `-->`

In the output, `…` stands for any text; ids, times and durations may be others than on the page. A lease id that was
printed takes the place of the one on the page from then on. `kill_server` and `start_server` are shell functions.
LEASEHOLD_BIN names the binary; without it, target/debug/leasehold is built first, as for the tests.",
    run: |root, args| {
        let binary = match std::env::var_os("LEASEHOLD_BIN") {
            Some(binary) => PathBuf::from(binary),
            None => {
                // As a part of the workspace's tests, which have it built already: see `test::test`.
                let args = ["test", "--locked", "--workspace", "--test", "help", "--no-run"];
                run(&mut cargo(root, &args))?;
                test::server(root)
            }
        };
        run_pages(root, &binary, args)
    },
};

/// Runs all pages, or those whose path contains one of `wanted`.
pub(crate) fn run_pages(root: &Path, binary: &Path, wanted: &[String]) -> Result<()> {
    let mut faults = 0;
    let mut blocks = 0;
    for path in pages(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        match run_page(&text, || Shell::with_server(binary)) {
            Ok(count) => blocks += count,
            Err(fault) => {
                eprintln!("{name}:{}: {}", fault.line, fault.what);
                faults += 1;
            }
        }
    }
    match faults {
        0 => eprintln!("docs: {blocks} blocks did what the pages say"),
        1 => bail!("a page does not do what it says"),
        many => bail!("{many} pages do not do what they say"),
    }
    Ok(())
}

/// The first thing on a page that is not as it says.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    line: usize,
    what: String,
}

impl Fault {
    fn new(line: usize, what: impl Into<String>) -> Fault {
        Fault { line, what: what.into() }
    }
}

/// Runs the blocks of a page in a shell that is only started if there are any. Returns how many there were.
fn run_page(text: &str, start: impl FnOnce() -> Result<Shell>) -> Result<usize, Fault> {
    let blocks = blocks::blocks(text)?;
    let Some(first) = blocks.first() else { return Ok(0) };
    let mut shell = start().map_err(|error| Fault::new(first.line, format!("{error:#}")))?;
    let mut bindings = Bindings::default();
    for block in &blocks {
        run_block(block, &mut shell, &mut bindings)?;
    }
    Ok(blocks.iter().filter(|block| !block.is_hidden).count())
}

fn run_block(block: &Block, shell: &mut Shell, bindings: &mut Bindings) -> Result<(), Fault> {
    let script = bindings.put_into(&block.script);
    let printed =
        shell.run(&script).map_err(|error| Fault::new(block.line, format!("{error:#}")))?;
    let Some(expected) = &block.expected else { return Ok(()) };
    let wanted = bindings.put_into(&expected.text);
    if compare::matches(&wanted, &printed, expected.format, bindings) {
        return Ok(());
    }
    Err(Fault::new(
        expected.line,
        format!(
            "the output is another\n--- on the page\n{}\n--- printed\n{printed}",
            expected.text
        ),
    ))
}

/// The pages in the order of their paths.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name));
    let mut pages: Vec<PathBuf> = top.into_iter().filter(|path| path.is_file()).collect();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a page on a shell without a server.
    fn run(page: &str) -> Result<usize, Fault> {
        run_page(page, Shell::plain)
    }

    #[test]
    fn page_that_does_what_it_says_passes() {
        let page = "# Page\n\n```sh run\necho one\nname=two\n```\n```text output\none\n```\nThen\n\
            ```console run\n$ echo $name\ntwo\n```\n";
        assert_eq!(run(page), Ok(2));
        assert_eq!(run("# Page\n```sh\nexit 1\n```\n"), Ok(0));
    }

    #[test]
    fn output_that_differs_is_found_at_its_line() {
        let fault =
            run("# Page\n\n```sh run\necho one\n```\n\n```text output\ntwo\n```\n").unwrap_err();
        assert_eq!(fault.line, 7);
        assert!(fault.what.contains("two") && fault.what.contains("one"), "{fault:?}");
        let fault = run("```sh run\necho '{\"a\":1}'\n```\n```json output\n{\"a\": 2}\n```\n");
        assert_eq!(fault.unwrap_err().line, 4);
    }

    #[test]
    fn command_that_fails_is_found_at_its_block() {
        let fault = run("```sh run\necho before\nfalse\necho after\n```\n").unwrap_err();
        assert_eq!(fault.line, 1);
        assert!(fault.what.contains("before") && !fault.what.contains("after"), "{fault:?}");
        assert_eq!(run("\n```sh run\nif then\n```\n").unwrap_err().line, 2);
    }

    #[test]
    fn id_that_was_printed_is_used_from_then_on() {
        let page = "```sh run\nid=0123456789abcdef0123456789abcdef; echo \"{\\\"lease_id\\\":\\\"$id\\\"}\"\n```\n\
            ```json output\n{\"lease_id\":\"ffffffffffffffffffffffffffffffff\"}\n```\n\
            ```sh run\ntest \"$id\" = ffffffffffffffffffffffffffffffff\n```\n";
        assert_eq!(run(page), Ok(2));
    }

    #[test]
    fn script_in_a_comment_is_run_and_not_counted() {
        let page = "<!-- run\nname=hidden\n-->\n```sh run\ntest $name = hidden\n```\n";
        assert_eq!(run(page), Ok(1));
        assert_eq!(run("\n<!-- run\nfalse\n-->\n").unwrap_err().line, 2);
    }
}
