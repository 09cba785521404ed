//! Output to stdout: a table for people, or the server's answer for programs.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::args::{Color, Format, Global};
use crate::failure::EXIT_IO;

/// The format of output. Broken pipes are the reader's wish, not an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) colors: bool,
    /// Said nothing but what was asked for.
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    is_terminal: bool,
    /// The width of a terminal in columns; elsewhere lines are as long as they are.
    width: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Head,
    Good,
    Bad,
    Faint,
}

impl Output {
    pub(crate) fn of(global: &Global) -> Output {
        let is_terminal = io::stdout().is_terminal();
        Output {
            format: global.output,
            colors: are_wanted(global.color, is_terminal),
            quiet: global.quiet,
            verbose: global.verbose,
            is_terminal,
            width: terminal_width(),
        }
    }

    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    pub(crate) fn is_json(&self) -> bool {
        match self.format {
            Format::Json | Format::Jsonl => true,
            Format::Table => false,
        }
    }

    /// A whole answer: as the server says it if JSON was asked for, otherwise as `people` makes it.
    pub(crate) fn answer<T: Serialize>(&self, answer: &T, people: impl FnOnce(&Self) -> String) {
        match self.format {
            Format::Json | Format::Jsonl => self.json(answer),
            Format::Table => self.text(&people(self)),
        }
    }

    /// Something that was put together from several answers.
    pub(crate) fn json<T: Serialize>(&self, answer: &T) {
        match self.format {
            Format::Json if self.is_terminal => self.line(&pretty(answer)),
            Format::Json | Format::Jsonl | Format::Table => self.line(&line(answer)),
        }
    }

    pub(crate) fn text(&self, text: &str) {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Who reads no more has what they wanted; anything else is a loss of data.
            if error.kind() == io::ErrorKind::BrokenPipe {
                std::process::exit(0);
            }
            talk(&format!("leasehold: cannot write the output: {error}"));
            std::process::exit(EXIT_IO.into());
        }
    }

    pub(crate) fn line(&self, text: &str) {
        self.text(&format!("{text}\n"));
    }

    pub(crate) fn json_line<T: Serialize>(&self, item: &T) {
        self.text(&(line(item) + "\n"));
    }

    /// A remark for people, on stderr.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            talk(text);
        }
    }

    pub(crate) fn styled(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.into(),
            Style::Head => "1",
            Style::Good => "32",
            Style::Bad => "31",
            Style::Faint => "2",
        };
        if self.colors { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.into() }
    }

    /// Columns side by side, with a head.
    pub(crate) fn table(&self, head: &[&str], rows: &[Vec<String>]) -> String {
        let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some(width) = self.width {
            narrow(&mut widths, rows, width);
        }
        let head: Vec<String> = head.iter().map(|cell| (*cell).to_string()).collect();
        let mut text = self.styled(Style::Head, &aligned(&head, &widths)) + "\n";
        for row in rows {
            text += &aligned(row, &widths);
            text.push('\n');
        }
        text
    }

    /// Names on the left, values on the right.
    pub(crate) fn fields(&self, fields: &[(&str, String)]) -> String {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line = |(name, value): &(&str, String)| {
            format!("{}  {value}\n", self.styled(Style::Faint, &format!("{name:<width$}")))
        };
        fields.iter().map(line).collect()
    }
}

fn are_wanted(colors: Color, is_terminal: bool) -> bool {
    let no_color = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match colors {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && !no_color(),
    }
}

/// A line on stderr. If nobody can read it, that is no reason to end otherwise.
pub(crate) fn talk(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in row.iter().zip(widths) {
        let cell = cut(cell, *width);
        text += &cell;
        let missing = width.saturating_sub(cell.chars().count());
        text.extend(std::iter::repeat_n(' ', missing + 2));
    }
    text.truncate(text.trim_end().len());
    text
}

/// No column becomes narrower than this.
const COLUMN_MIN: usize = 8;

/// Makes the widest columns narrower until all fit. Numbers are never cut.
fn narrow(widths: &mut [usize], rows: &[Vec<String>], width: usize) {
    let is_number = |cell: &String| cell.bytes().all(|byte| byte.is_ascii_digit());
    let is_fixed = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(is_number));
    let fixed: Vec<bool> = (0..widths.len()).map(is_fixed).collect();
    while widths.iter().map(|width| width + 2).sum::<usize>() > width + 2 {
        let names = widths.iter_mut().zip(&fixed).filter(|(_, is_fixed)| !**is_fixed);
        match names.map(|(width, _)| width).max() {
            Some(widest) if *widest > COLUMN_MIN => *widest -= 1,
            Some(_) | None => return,
        }
    }
}

/// As much of a text as fits, with a mark where it goes on.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    (kept + "…").into()
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// So many of something.
pub(crate) fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A duration in a sentence: `300 ms`, `4.2 s`, `59 s`, `12 min`, `3 h`.
pub(crate) fn spelled(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

fn pretty<T: Serialize>(answer: &T) -> String {
    serde_json::to_string_pretty(answer).expect("an answer has no keys that are not text")
}

fn line<T: Serialize>(answer: &T) -> String {
    serde_json::to_string(answer).expect("an answer has no keys that are not text")
}

/// A name from elsewhere as it is safe to print: nothing in it may steer the terminal.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A length in two figures or so: `4.2s`, `12m`.
pub(crate) fn short(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..10_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{}s", ms / 1000),
        120_000..7_200_000 => format!("{}m", ms / 60_000),
        _ => format!("{}h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Output {
        Output {
            format: Format::Table,
            colors: false,
            quiet: false,
            verbose: false,
            is_terminal: false,
            width: None,
        }
    }

    #[test]
    fn columns_are_cut_to_the_width_of_the_terminal() {
        let rows = [vec!["n".repeat(60), "owner".into(), "5".into()]];
        let output = Output { width: Some(30), ..plain() };
        let table = output.table(&["LOCK", "OWNER", "TOKEN"], &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{table}");
        assert!(lines[1].contains('…') && lines[1].ends_with("owner  5"), "{table}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["job/nightly".into(), "a".into()], vec!["x".into(), "bb".into()]];
        let table = plain().table(&["LOCK", "OWNER"], &rows);
        assert_eq!(table, "LOCK         OWNER\njob/nightly  a\nx            bb\n");
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(shown("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn lengths_are_short() {
        let lengths = [5, 999, 1000, 4250, 59_999, 600_000, 86_400_000].map(short);
        assert_eq!(lengths, ["5ms", "999ms", "1.0s", "4.2s", "59s", "10m", "24h"]);
    }
}
