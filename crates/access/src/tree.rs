//! A document as a tree that knows its lines, read from TOML or JSON, so that both are checked by the same code.
#![allow(clippy::wildcard_enum_match_arm, reason = "a value of any other kind is refused")]

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::value::{Datetime, Offset};

use crate::UnixSeconds;

/// A fault and its place. It never repeats anything that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Counted from one; `None` in a document without lines.
    pub line: Option<usize>,
    what: String,
}

impl Fault {
    pub(crate) fn new(line: Option<usize>, what: impl fmt::Display) -> Fault {
        Fault { line, what: masked(&what.to_string()) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Fault {}

/// Leaves out words as long as secrets and hashes are.
fn masked(text: &str) -> String {
    const WORD_MAX: usize = 40;
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '+' || c == '=';
    let mut masked = String::with_capacity(text.len().min(1024));
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if word == 0 {
            masked.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            masked.push_str(if word > WORD_MAX { "…" } else { &rest[..word] });
            rest = &rest[word..];
        }
    }
    masked
}

/// A value and its line.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: Option<usize>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Time(UnixSeconds),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    /// Of a kind that nothing here has.
    Other,
}

impl Node {
    pub(crate) fn of_toml(text: &str) -> Result<Node, Fault> {
        let line_of =
            |at: usize| Some(1 + text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count());
        let parsed = DeTable::parse(text).map_err(|fault| {
            let at = fault.span().map_or(0, |span| span.start.min(text.len()));
            Fault::new(line_of(at), fault.message())
        })?;
        let lines = Lines::of(text);
        Ok(lines.table(Some(1), parsed.get_ref()))
    }

    pub(crate) fn of_json(text: &str) -> Result<Node, Fault> {
        let parsed: serde_json::Value =
            serde_json::from_str(text).map_err(|_| Fault::new(None, "it is not JSON"))?;
        Ok(of_json(parsed))
    }

    pub(crate) fn fault(&self, what: impl fmt::Display) -> Fault {
        Fault::new(self.line, what)
    }

    pub(crate) fn text(&self, what: &str) -> Result<&str, Fault> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.fault(format_args!("{what} is a text in quotes"))),
        }
    }

    pub(crate) fn number(&self, what: &str) -> Result<u64, Fault> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.fault(format_args!("{what} is a whole number, not negative"))),
        }
    }

    /// A moment: in TOML with its date, time and offset, in JSON in seconds since 1970.
    pub(crate) fn time(&self, what: &str) -> Result<UnixSeconds, Fault> {
        match self.value {
            Value::Time(time) => Ok(time),
            Value::Number(seconds) if self.line.is_none() => Ok(seconds),
            _ => Err(self.fault(format_args!(
                "{what} is a moment after 1970 with its offset, for example 2027-01-31T12:00:00Z"
            ))),
        }
    }

    pub(crate) fn list(&self, what: &str, len_max: usize) -> Result<&[Node], Fault> {
        match &self.value {
            Value::List(items) if items.len() > len_max => Err(self
                .fault(format_args!("{what} has {} items, the limit is {len_max}", items.len()))),
            Value::List(items) => Ok(items),
            _ => Err(self.fault(format_args!("{what} is a list in brackets"))),
        }
    }

    pub(crate) fn fields(&self, what: &str) -> Result<Fields<'_>, Fault> {
        match &self.value {
            Value::Table(fields) => Ok(Fields { of: self, fields, known: Vec::new() }),
            _ => Err(self.fault(format_args!("{what} is a table"))),
        }
    }
}

/// The fields of a table, taken one by one; whatever is left at the end is unknown.
pub(crate) struct Fields<'a> {
    of: &'a Node,
    fields: &'a [(String, Node)],
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, name: &'static str) -> Option<&'a Node> {
        self.known.push(name);
        self.fields.iter().find(|(field, _)| field == name).map(|(_, node)| node)
    }

    pub(crate) fn need(&mut self, name: &'static str) -> Result<&'a Node, Fault> {
        let of = self.of;
        self.take(name).ok_or_else(|| of.fault(format_args!("{name} is missing")))
    }

    pub(crate) fn finish(self) -> Result<(), Fault> {
        let is_known = |name: &str| self.known.contains(&name);
        match self.fields.iter().find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, node)) => {
                let known = self.known.join(", ");
                Err(node.fault(format_args!("unknown key {name:?}; there are {known}")))
            }
        }
    }
}

struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines { starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    fn line(&self, at: usize) -> Option<usize> {
        Some(self.starts.partition_point(|start| *start <= at))
    }

    fn table(&self, line: Option<usize>, table: &DeTable<'_>) -> Node {
        let fields = table.iter().map(|(name, value)| {
            let mut node = self.value(value);
            // A table is where its header is; a value where its key is.
            node.line = self.line(name.span().start);
            (name.get_ref().to_string(), node)
        });
        Node { line, value: Value::Table(fields.collect()) }
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let line = self.line(value.span().start);
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                match u64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Number(number),
                    Err(_) => Value::Other,
                }
            }
            DeValue::Datetime(moment) => unix_seconds(moment).map_or(Value::Other, Value::Time),
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| self.value(item)).collect())
            }
            DeValue::Table(table) => return self.table(line, table),
            DeValue::Float(_) | DeValue::Boolean(_) => Value::Other,
        };
        Node { line, value }
    }
}

fn of_json(value: serde_json::Value) -> Node {
    let value = match value {
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Number(number) => number.as_u64().map_or(Value::Other, Value::Number),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(of_json).collect()),
        serde_json::Value::Object(fields) => {
            Value::Table(fields.into_iter().map(|(name, value)| (name, of_json(value))).collect())
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) => Value::Other,
    };
    Node { line: None, value }
}

/// `None` for a moment without date, time or offset, or before 1970.
fn unix_seconds(moment: &Datetime) -> Option<UnixSeconds> {
    let (date, time) = (moment.date?, moment.time?);
    let offset = match moment.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    // Days since 1970 by the Gregorian calendar, with years that begin in March.
    let (year, month) = match date.month {
        1 | 2 => (i64::from(date.year) - 1, i64::from(date.month) + 9),
        month => (i64::from(date.year), i64::from(month) - 3),
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leap_days + (153 * month + 2) / 5 + i64::from(date.day) - 719_469;
    let minutes = i64::from(time.hour) * 60 + i64::from(time.minute) - offset;
    let seconds = days * 86_400 + minutes * 60 + i64::from(time.second.unwrap_or(0));
    u64::try_from(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_seconds_since_1970() {
        let seconds = |text: &str| unix_seconds(&text.parse().unwrap());
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T23:59:59Z"), Some(951_868_799));
        assert_eq!(seconds("2026-11-19T12:00:00+01:00"), Some(1_795_086_000));
        assert_eq!(seconds("2026-11-19T11:00:00Z"), Some(1_795_086_000));
        assert_eq!(seconds("1969-12-31T23:59:59Z"), None);
        assert_eq!(seconds("2026-11-19T12:00:00"), None);
        assert_eq!(seconds("2026-11-19"), None);
    }

    #[test]
    fn what_could_be_a_secret_is_masked() {
        let secret = "x".repeat(41);
        assert_eq!(masked(&format!("a \"{secret}\": b")), "a \"…\": b");
        assert_eq!(masked("name \"app1*\" has"), "name \"app1*\" has");
        assert_eq!(masked(&"y".repeat(40)), "y".repeat(40));
    }
}
