//! docs/assurance.md: what campaigns have run, on which commit, and what they found. It is the memory of the campaigns too.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const PATH: &str = "docs/assurance.md";
/// What stands between these is written by campaigns, and read again by the next one.
const BEGIN: &str = "<!-- campaigns -->\n";
const END: &str = "<!-- /campaigns -->";
const HEAD: &str =
    "| campaign | commit | rounds | minutes | what was run | found |\n|---|---|---|---|---|---|\n";
const ALL: &str = "all";

/// What was run of one kind on one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: String,
    pub(super) commit: String,
    pub(super) rounds: u64,
    pub(super) seconds: u64,
    pub(super) failed: u64,
    pub(super) counts: Vec<(String, u64)>,
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.rounds += other.rounds;
        self.seconds += other.seconds;
        self.failed += other.failed;
        for (name, count) in &other.counts {
            match self.counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => self.counts.push((name.clone(), *count)),
            }
        }
    }

    /// What was run and what came of it, for people.
    pub(super) fn summary(&self) -> String {
        format!("{}: {}", self.counted(), self.found())
    }

    fn counted(&self) -> String {
        let counts = self.counts.iter().map(|(name, count)| format!("{count} {name}"));
        counts.collect::<Vec<_>>().join(" + ")
    }

    fn found(&self) -> String {
        match self.failed {
            0 => "nothing".into(),
            1 => "1 round failed".into(),
            many => format!("{many} rounds failed"),
        }
    }

    fn line(&self) -> String {
        let Row { kind, commit, rounds, seconds, .. } = self;
        let (minutes, rest) = (seconds / 60, seconds % 60);
        let (counted, found) = (self.counted(), self.found());
        format!("| {kind} | {commit} | {rounds} | {minutes}:{rest:02} | {counted} | {found} |\n")
    }

    fn parse(line: &str) -> Option<Row> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &["", kind, commit, rounds, time, counted, found, ""] = cells.as_slice() else {
            return None;
        };
        let (minutes, seconds) = time.split_once(':')?;
        let count = |text: &str| {
            let (count, name) = text.split_once(' ')?;
            Some((name.to_string(), count.parse().ok()?))
        };
        Some(Row {
            kind: kind.into(),
            commit: commit.into(),
            rounds: rounds.parse().ok()?,
            seconds: minutes.parse::<u64>().ok()? * 60 + seconds.parse::<u64>().ok()?,
            failed: found.split_once(' ').map_or(Some(0), |(number, _)| number.parse().ok())?,
            counts: counted.split(" + ").map(count).collect::<Option<_>>()?,
        })
    }
}

/// The page, with its rows in the order in which they came.
#[derive(Debug)]
pub(super) struct Page {
    before: String,
    rows: Vec<Row>,
    after: String,
}

impl Page {
    pub(super) fn read(root: &Path) -> Result<Page> {
        Page::parse(&fs::read_to_string(root.join(PATH))?)
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        Ok(fs::write(root.join(PATH), self.text())?)
    }

    fn parse(text: &str) -> Result<Page> {
        let marks = || format!("{PATH} lacks the marks of campaigns");
        let (before, rest) = text.split_once(BEGIN).with_context(marks)?;
        let (table, after) = rest.split_once(END).with_context(marks)?;
        let lines = table.strip_prefix(HEAD).unwrap_or(table).lines();
        let rows: Vec<_> = lines.map(|line| (line, Row::parse(line))).collect();
        if let Some((line, _)) = rows.iter().find(|(_, row)| row.is_none()) {
            ensure!(line.is_empty(), "{PATH} has a row that no campaign wrote: {line}");
        }
        let rows = rows.into_iter().filter_map(|(_, row)| row).filter(|row| row.commit != ALL);
        Ok(Page { before: before.into(), rows: rows.collect(), after: after.into() })
    }

    /// How many rounds of a kind there were, on whatever commit.
    pub(super) fn rounds(&self, kind: &str) -> u64 {
        self.rows.iter().filter(|row| row.kind == kind).map(|row| row.rounds).sum()
    }

    pub(super) fn add(&mut self, new: Row) {
        let is_same = |row: &&mut Row| row.kind == new.kind && row.commit == new.commit;
        match self.rows.iter_mut().find(is_same) {
            Some(row) => row.add(&new),
            None => self.rows.push(new),
        }
    }

    /// A row for each kind and commit, and below them what they come to.
    fn text(&self) -> String {
        let mut sums: Vec<Row> = Vec::new();
        for row in &self.rows {
            match sums.iter_mut().find(|sum| sum.kind == row.kind) {
                Some(sum) => sum.add(row),
                None => sums.push(Row { commit: ALL.into(), ..row.clone() }),
            }
        }
        let mut text = format!("{}{BEGIN}{HEAD}", self.before);
        for row in self.rows.iter().chain(&sums) {
            let _ = write!(text, "{}", row.line());
        }
        text + END + &self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(commit: &str, kills: u64, failed: u64) -> Row {
        let counts = vec![("kills".to_string(), kills), ("grants seen again".to_string(), 3)];
        Row { kind: "kills".into(), commit: commit.into(), rounds: 1, seconds: 75, failed, counts }
    }

    #[test]
    fn page_is_its_own_memory() {
        let mut page = Page::parse(&format!("# Title\n\n{BEGIN}{END}\n\nMore.\n")).unwrap();
        page.add(row("abc", 100, 0));
        page.add(row("abc", 40, 1));
        let mut again = Page::parse(&page.text()).unwrap();
        assert_eq!(again.rows, page.rows);
        assert_eq!((again.rounds("kills"), again.rounds("power")), (2, 0));
        again.add(row("def", 1, 1));
        let text = again.text();
        assert!(text.starts_with("# Title\n\n") && text.ends_with("\n\nMore.\n"), "{text}");
        let found = "| kills | abc | 2 | 2:30 | 140 kills + 6 grants seen again | 1 round failed |";
        assert!(text.contains(found), "{text}");
        let sum = "| kills | all | 3 | 3:45 | 141 kills + 9 grants seen again | 2 rounds failed |";
        assert!(text.contains(sum), "{text}");
    }

    #[test]
    fn row_that_no_campaign_wrote_is_refused() {
        let text = format!("{BEGIN}{HEAD}| kills | abc | many |\n{END}");
        assert!(Page::parse(&text).unwrap_err().to_string().contains("| kills | abc | many |"));
    }

    #[test]
    fn page_of_the_repository_can_be_read() {
        Page::read(&crate::workspace::root()).unwrap();
    }
}
