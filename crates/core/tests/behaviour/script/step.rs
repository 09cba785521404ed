//! Scripts taken apart into steps, words and options. Whatever is wrong with one fails with its place.

use std::cell::Cell;
use std::time::Duration;

use leasehold_core::{ByteRange, Claim, Mode, Namespace, Owner, Principal, Scope, Timestamp};

/// Verbs that no owner stands in front of.
const WITHOUT_OWNER: &[&str] = &[
    "accept",
    "attach",
    "break",
    "break-session",
    "check",
    "close",
    "deadline",
    "delete",
    "disconnect",
    "epoch",
    "get",
    "grace",
    "graph",
    "jump",
    "keepalive",
    "list",
    "register",
    "registers",
    "remove-file",
    "restart",
    "resume",
    "session",
    "sessions",
    "snapshot",
    "spell",
    "stats",
    "suspend",
    "tick",
    "token",
    "watch",
];

/// The steps of a script, in order.
pub(super) struct Steps;

impl Steps {
    pub(super) fn of(script: &str) -> impl Iterator<Item = Wanted<'_>> {
        script
            .split(['\n', '|'])
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .enumerate()
            .map(|(at, text)| Wanted::parse(at + 1, text))
    }
}

/// One step of a script.
pub(super) struct Wanted<'a> {
    at: usize,
    text: &'a str,
    pub(super) time: Option<Timestamp>,
    owner: Option<&'a str>,
    pub(super) verb: &'a str,
    words: Vec<Word<'a>>,
}

struct Word<'a> {
    text: &'a str,
    used: Cell<bool>,
}

impl<'a> Wanted<'a> {
    fn parse(at: usize, text: &'a str) -> Wanted<'a> {
        let mut wanted = Wanted { at, text, time: None, owner: None, verb: "", words: Vec::new() };
        let mut words = wanted.split();
        if let Some(moment) = words.first().and_then(|word| duration(word)) {
            wanted.time = Some(Timestamp::from_millis(wanted.millis(moment)));
            words.remove(0);
        }
        let owner = words.first().filter(|word| !WITHOUT_OWNER.contains(word)).copied();
        if owner.is_some() {
            wanted.owner = owner;
            words.remove(0);
        }
        if words.is_empty() {
            wanted.fail("there is no verb");
        }
        wanted.verb = words.remove(0);
        wanted.words =
            words.into_iter().map(|text| Word { text, used: Cell::new(false) }).collect();
        wanted
    }

    /// Words between spaces; a `{set}` is one.
    fn split(&self) -> Vec<&'a str> {
        let mut words = Vec::new();
        let mut rest = self.text.trim_start();
        while !rest.is_empty() {
            let end = if rest.starts_with('{') {
                let close = rest.find('}');
                close.unwrap_or_else(|| self.fail("a set has no end")) + 1
            } else {
                rest.find(' ').unwrap_or(rest.len())
            };
            words.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        words
    }

    pub(super) fn fail(&self, what: &str) -> ! {
        panic!("step {} `{}`: {what}", self.at, self.text)
    }

    /// Everything that was said must have meant something.
    pub(super) fn finish(self) {
        if let Some(word) = self.words.iter().find(|word| !word.used.get()) {
            self.fail(&format!("`{}` means nothing here", word.text));
        }
    }

    fn millis(&self, length: Duration) -> u64 {
        u64::try_from(length.as_millis()).unwrap_or_else(|_| self.fail("too long"))
    }

    pub(super) fn owner(&self) -> Owner {
        let name = self.owner.unwrap_or_else(|| self.fail("there is no owner"));
        self.named(name)
    }

    /// Whose grant or ticket is shown: the owner's own, unless it says `of=`.
    pub(super) fn owner_shown(&self) -> Owner {
        self.option("of").map_or_else(|| self.owner(), |name| self.named(name))
    }

    /// `a`, or `a@team` for that owner id of the principal `team`.
    pub(super) fn named(&self, name: &str) -> Owner {
        let (id, principal) = match name.split_once('@') {
            None => (name, Principal::ANONYMOUS),
            Some((id, principal)) => (id, self.principal_named(principal)),
        };
        let owner = Owner::of(&principal, id);
        owner.unwrap_or_else(|fault| self.fail(&format!("the owner {fault}")))
    }

    /// Whose session it is, where no owner stands in front: `by=team`.
    pub(super) fn principal(&self) -> Principal {
        self.option("by").map_or(Principal::ANONYMOUS, |name| self.principal_named(name))
    }

    fn principal_named(&self, name: &str) -> Principal {
        Principal::new(name).unwrap_or_else(|fault| self.fail(&format!("the principal {fault}")))
    }

    pub(super) fn namespace(&self) -> Namespace {
        match self.option("in") {
            None => Namespace::default(),
            Some(name) => Namespace::new(name)
                .unwrap_or_else(|fault| self.fail(&format!("the namespace {fault}"))),
        }
    }

    /// The next word that is no option and has not been taken yet.
    pub(super) fn word(&self, what: &str) -> &'a str {
        let next = self.words.iter().find(|word| !word.used.get());
        let Some(word) = next else { self.fail(&format!("{what} is missing")) };
        word.used.set(true);
        word.text
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        let found = self.words.iter().find(|word| word.text == name);
        found.inspect(|word| word.used.set(true)).is_some()
    }

    pub(super) fn option(&self, name: &str) -> Option<&'a str> {
        self.words.iter().find_map(|word| {
            let value = word.text.strip_prefix(name)?.strip_prefix('=')?;
            word.used.set(true);
            Some(value)
        })
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let value = self.option(name)?;
        let number = value.parse();
        Some(number.unwrap_or_else(|_| self.fail(&format!("`{value}` is no number"))))
    }

    pub(super) fn size(&self, name: &str) -> Option<usize> {
        self.number(name).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        let value = self.option(name)?;
        let length = duration(value);
        Some(length.unwrap_or_else(|| self.fail(&format!("`{value}` is no length of time"))))
    }

    /// The scope that the step is about.
    pub(super) fn scope(&self) -> Scope {
        self.parse_scope(self.word("the scope"))
    }

    fn parse_scope(&self, text: &str) -> Scope {
        Scope::parse(text).unwrap_or_else(|fault| self.fail(&fault.to_string()))
    }

    pub(super) fn range(&self) -> (u64, ByteRange) {
        match self.scope() {
            Scope::Range { inode, range } => (inode, range),
            Scope::Key(key) => self.fail(&format!("{key} is no byte range")),
        }
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        let text = self.word("the scope");
        let Some(set) = text.strip_prefix('{') else {
            let scope = self.parse_scope(text);
            return vec![Claim { scope, mode: self.mode() }];
        };
        let set = set.trim_end_matches('}').trim();
        let members = set.split(',').filter(|member| !member.trim().is_empty());
        members.map(|member| self.member(member)).collect()
    }

    /// One scope of a set and how it is wanted: `job/x shared`.
    fn member(&self, text: &str) -> Claim {
        let mut words = text.split_whitespace();
        let scope = self.parse_scope(words.next().unwrap_or_default());
        let mode = match words.next() {
            None => Mode::Exclusive,
            Some("shared") => Mode::Shared,
            Some(word) => match word.strip_prefix("permits=").map(str::parse) {
                Some(Ok(limit)) => Mode::Permits(limit),
                Some(Err(_)) | None => self.fail(&format!("`{word}` is no mode")),
            },
        };
        if let Some(word) = words.next() {
            self.fail(&format!("`{word}` means nothing in a set"));
        }
        Claim { scope, mode }
    }

    pub(super) fn mode(&self) -> Mode {
        match (self.flag("shared"), self.option("permits")) {
            (false, None) => Mode::Exclusive,
            (true, None) => Mode::Shared,
            (false, Some(limit)) => match limit.parse() {
                Ok(limit) => Mode::Permits(limit),
                Err(_) => self.fail(&format!("`{limit}` is no limit")),
            },
            (true, Some(_)) => self.fail("it is either shared or has permits"),
        }
    }
}

/// `10s`, `10.001s`, `500ms`, `5m` or `2h`.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut total = whole.parse::<u64>().ok()?.checked_mul(millis)?;
    if !part.is_empty() {
        let digits = u32::try_from(part.len()).ok()?;
        total += part.parse::<u64>().ok()? * millis / 10_u64.checked_pow(digits)?;
    }
    Some(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(script: &str) {
        Steps::of(script).for_each(Wanted::finish);
    }

    #[test]
    fn lengths_of_time_are_exact() {
        assert_eq!(duration("10.001s"), Some(Duration::from_millis(10_001)));
        assert_eq!(duration("1.5m"), Some(Duration::from_secs(90)));
        assert_eq!(duration("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(duration("24h"), Some(Duration::from_secs(86_400)));
        assert_eq!(duration("10"), None);
        assert_eq!(duration("job/x"), None);
    }

    #[test]
    #[should_panic(expected = "step 2 `1s a`: there is no verb")]
    fn step_without_a_verb_fails_with_its_place() {
        parse("0s tick | 1s a");
    }

    #[test]
    #[should_panic(expected = "step 3 `1s tick twice`: `twice` means nothing here")]
    fn word_that_nobody_takes_fails_with_its_place() {
        parse("0s tick\n\n 0s tick | 1s tick twice");
    }

    #[test]
    #[should_panic(expected = "step 1 `a acquire {x, y`: a set has no end")]
    fn set_without_an_end_fails_with_its_place() {
        parse("a acquire {x, y");
    }
}
