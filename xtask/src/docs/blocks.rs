//! The runnable blocks of a page, by the marks behind their fences.

use super::Fault;
use super::compare::Format;

/// A script, and what it prints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of the fence, counted from 1.
    pub(super) line: usize,
    pub(super) script: String,
    pub(super) expected: Option<Expected>,
    pub(super) is_hidden: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) format: Format,
}

/// Something between fences, or in a comment.
struct Fenced<'a> {
    line: usize,
    info: Vec<&'a str>,
    body: Vec<&'a str>,
}

pub(super) fn blocks(page: &str) -> Result<Vec<Block>, Fault> {
    let mut blocks: Vec<Block> = Vec::new();
    for Fenced { line, info, body } in fenced(page)? {
        match info.as_slice() {
            ["<!--", "run"] => blocks.push(script(line, &body, true)),
            ["sh", "run"] => blocks.push(script(line, &body, false)),
            ["console", "run"] => blocks.push(console(line, &body)),
            [language, "output"] => {
                let format = if *language == "json" { Format::Json } else { Format::Text };
                let expected = Expected { line, text: body.join("\n"), format };
                match blocks.last_mut() {
                    Some(block) if block.expected.is_none() => block.expected = Some(expected),
                    _ => return Err(Fault::new(line, "there is no block before that prints this")),
                }
            }
            [] | [_] => {}
            other => {
                return Err(Fault::new(line, format!("unknown mark `{}`", other.join(" "))));
            }
        }
    }
    Ok(blocks)
}

fn script(line: usize, body: &[&str], is_hidden: bool) -> Block {
    Block { line, script: body.join("\n"), expected: None, is_hidden }
}

/// What is typed behind `$ `, with its continuations, and the rest as output.
fn console(line: usize, body: &[&str]) -> Block {
    let (mut typed, mut printed) = (Vec::new(), Vec::new());
    let mut is_continued = false;
    for text in body {
        let command = text.strip_prefix("$ ").or_else(|| is_continued.then_some(*text));
        match command {
            Some(command) => typed.push(command),
            None => printed.push(*text),
        }
        is_continued = command.is_some_and(|command| command.ends_with('\\'));
    }
    let expected = Expected { line, text: printed.join("\n"), format: Format::Text };
    Block { line, script: typed.join("\n"), expected: Some(expected), is_hidden: false }
}

fn fenced(page: &str) -> Result<Vec<Fenced<'_>>, Fault> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let (info, end) = match text.trim_start().strip_prefix("```") {
            Some(info) => (info.trim().split(' ').filter(|word| !word.is_empty()).collect(), "```"),
            None if text.trim() == "<!-- run" => (vec!["<!--", "run"], "-->"),
            None => continue,
        };
        let mut body = Vec::new();
        loop {
            match lines.next() {
                None => return Err(Fault::new(line, format!("no `{end}` ends this"))),
                Some((_, text)) if text.trim() == end => break,
                Some((_, text)) => body.push(text),
            }
        }
        found.push(Fenced { line, info, body });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_blocks_are_found_with_their_output() {
        let page =
            "text\n```sh run\na\nb\n```\nmore\n```json output\n{}\n```\n```sh\nnot run\n```\n";
        let expected = Expected { line: 7, text: "{}".into(), format: Format::Json };
        let block =
            Block { line: 2, script: "a\nb".into(), expected: Some(expected), is_hidden: false };
        assert_eq!(blocks(page), Ok(vec![block]));
    }

    #[test]
    fn console_is_taken_apart() {
        let page = "```console run\n$ a \\\n  -b\none\n$ c\ntwo\n```\n";
        let found = blocks(page).unwrap();
        assert_eq!(found[0].script, "a \\\n  -b\nc");
        assert_eq!(found[0].expected.as_ref().unwrap().text, "one\ntwo");
    }

    #[test]
    fn marks_that_cannot_be_meant_are_faults() {
        assert_eq!(blocks("```sh runn\n```\n").unwrap_err().line, 1);
        assert_eq!(blocks("\n```json output\n```\n").unwrap_err().line, 2);
        assert_eq!(blocks("\n\n```sh run\n").unwrap_err().line, 3);
    }
}
