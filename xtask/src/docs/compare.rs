//! Output on a page compared with output of a run: what differs from run to run may differ.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Text,
}

/// The ids on the page, and what they are in this run.
#[derive(Debug, Default)]
pub(super) struct Bindings(BTreeMap<String, String>);

impl Bindings {
    /// The text with the ids of this run.
    pub(super) fn put_into(&self, text: &str) -> String {
        self.0.iter().fold(text.into(), |text, (from, to)| text.replace(from, to))
    }
}

/// Fields of answers whose numbers are times.
const TIMES: &[&str] = &[
    "expires_in_ms",
    "lease_expiry_ms",
    "recommended_retry_ms",
    "waited_ms",
    "held_ms",
    "since_ms",
    "revision",
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// `…`
    Gap,
    /// 16 and more hexadecimal digits.
    Id(String),
    /// A moment, a duration, or a field that has one.
    Time,
    Char(char),
}

impl Token {
    fn is_like(&self, other: &Token) -> bool {
        match (self, other) {
            (Token::Id(_), Token::Id(_)) => true,
            _ => self == other,
        }
    }
}

/// Whether `printed` is what `expected` says. If so, its ids are bound to those on the page.
pub(super) fn matches(
    expected: &str,
    printed: &str,
    format: Format,
    bindings: &mut Bindings,
) -> bool {
    let (wanted, found) = (tokens(expected, format), tokens(printed, format));
    let Some(ids) = matched(&wanted, &found) else { return false };
    for (from, to) in ids {
        if from != to {
            bindings.0.insert(from, to);
        }
    }
    true
}

/// The pairs of ids, if the tokens match. A gap takes as little as it can.
fn matched(wanted: &[Token], found: &[Token]) -> Option<Vec<(String, String)>> {
    let mut ids = Vec::new();
    let (mut at, mut here) = (0, 0);
    // Where the last gap stands, what it has taken so far, and the ids before it.
    let mut gap: Option<(usize, usize, usize)> = None;
    loop {
        match (wanted.get(at), found.get(here)) {
            (Some(Token::Gap), _) => {
                gap = Some((at, here, ids.len()));
                at += 1;
            }
            (None, None) => return Some(ids),
            (Some(one), Some(other)) if one.is_like(other) => {
                if let (Token::Id(from), Token::Id(to)) = (one, other) {
                    ids.push((from.clone(), to.clone()));
                }
                (at, here) = (at + 1, here + 1);
            }
            _ => {
                let (start, taken, before) = gap?;
                if taken >= found.len() {
                    return None;
                }
                gap = Some((start, taken + 1, before));
                ids.truncate(before);
                (at, here) = (start + 1, taken + 1);
            }
        }
    }
}

fn tokens(text: &str, format: Format) -> Vec<Token> {
    let text = match format {
        Format::Json => without_space(text),
        Format::Text => with_single_spaces(text),
    };
    let mut tokens = Vec::new();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let is_inside = text[..text.len() - rest.len()].ends_with(|c: char| c.is_alphanumeric());
        let (token, len) = match special(&text, rest) {
            Some(found) if !is_inside => found,
            _ if first == '…' => (Token::Gap, first.len_utf8()),
            _ => (Token::Char(first), first.len_utf8()),
        };
        tokens.push(token);
        rest = &rest[len..];
    }
    tokens
}

/// A token of several characters at the start of `rest`, which is the end of `text`.
fn special(text: &str, rest: &str) -> Option<(Token, usize)> {
    if let Some(len) = moment(rest).or_else(|| duration(rest)) {
        return Some((Token::Time, len));
    }
    let word = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
    if word >= 16 && !rest[word..].starts_with(|c: char| c.is_alphanumeric()) {
        return Some((Token::Id(rest[..word].into()), word));
    }
    let before = &text[..text.len() - rest.len()];
    let is_time = TIMES.iter().any(|field| before.ends_with(&format!("\"{field}\":")));
    let len = digits(rest);
    (is_time && len > 0).then_some((Token::Time, len))
}

/// The length of a moment such as `2026-11-15T13:54:29.247Z`.
fn moment(text: &str) -> Option<usize> {
    let len = text.find('Z')? + 1;
    let moment = &text[..len];
    let is_one = len >= 20
        && moment.as_bytes().get(10) == Some(&b'T')
        && moment[..len - 1].chars().all(|c| c.is_ascii_digit() || "-:.T".contains(c));
    is_one.then_some(len)
}

/// The length of a duration such as `29941 ms`, `1m30s` or `0.5 s`.
fn duration(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let number = digits(&text[at..]);
        if number == 0 {
            break;
        }
        let mut unit = at + number;
        if let Some(fraction) = text[unit..].strip_prefix('.') {
            unit += 1 + digits(fraction);
        }
        let space = usize::from(text[unit..].starts_with(' '));
        let letters = &text[unit + space..];
        let len =
            ["ms", "µs", "s", "m", "h"].iter().find(|name| letters.starts_with(**name))?.len();
        at = unit + space + len;
    }
    (at > 0 && !text[at..].starts_with(|c: char| c.is_alphanumeric())).then_some(at)
}

fn digits(text: &str) -> usize {
    text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len()
}

/// Without the white space between the parts of JSON.
fn without_space(text: &str) -> String {
    let (mut kept, mut is_in_string, mut is_escaped) = (String::new(), false, false);
    for c in text.chars() {
        if is_in_string || !c.is_whitespace() {
            kept.push(c);
        }
        if c == '"' && !is_escaped {
            is_in_string = !is_in_string;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    kept
}

fn with_single_spaces(text: &str) -> String {
    let lines = text.trim().lines();
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(expected: &str, printed: &str, format: Format) -> bool {
        matches(expected, printed, format, &mut Bindings::default())
    }

    #[test]
    fn white_space_between_parts_of_json_does_not_matter() {
        assert!(is_match(
            "{\"a\": 1,\n \"b\": \"c d\"}",
            "{\"a\":1,\"b\":\"c d\"}\n",
            Format::Json
        ));
        assert!(!is_match("{\"b\":\"c d\"}", "{\"b\":\"cd\"}", Format::Json));
        assert!(is_match("A    B\n1  2", "A  B  \n1      2\n", Format::Text));
        assert!(!is_match("A\nB", "A B", Format::Text));
    }

    #[test]
    fn times_and_ids_may_be_others() {
        let page = r#"{"id":"05ef3f5968198d8ec9a1867654f67438","expires_in_ms":29994,"at":"2026-11-15T11:46:26.361Z"}"#;
        let run = r#"{"id":"ffffffffffffffffffffffffffffffff","expires_in_ms":30000,"at":"2027-01-02T03:04:05Z"}"#;
        assert!(is_match(page, run, Format::Json));
        assert!(is_match("held for 29941 ms, 28s left", "held for 3 ms, 1m2s left", Format::Text));
        for run in [r#"{"ttl_ms":1}"#, r#"{"id":"05ef"}"#] {
            assert!(!is_match(r#"{"ttl_ms":2}"#, run, Format::Json), "{run}");
        }
        assert!(!is_match("token 7", "token 8", Format::Text));
    }

    #[test]
    fn gap_stands_for_any_text() {
        for printed in ["a z", "a b c z", "a\nb\nz"] {
            assert!(is_match("a…z", printed, Format::Text), "{printed:?}");
        }
        assert!(!is_match("a…z", "a b", Format::Text));
        assert!(is_match("…", "", Format::Text));
        assert!(is_match("a…b…c", "a b x b c", Format::Text));
    }

    #[test]
    fn ids_are_bound_behind_a_gap() {
        let mut bindings = Bindings::default();
        let (page, run) = ("aaaaaaaaaaaaaaaa1", "bbbbbbbbbbbbbbbb2");
        let expected = format!("… id {page}");
        assert!(matches(&expected, &format!("id {run} x id {run}"), Format::Text, &mut bindings));
        assert_eq!(bindings.put_into(&format!("renew {page}")), format!("renew {run}"));
    }
}
