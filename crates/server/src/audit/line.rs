//! One line: what happened, on whose behalf, and what is known about it.

use serde_json::Value;

use crate::service::caller::Caller;

/// A line has at most 4 KiB; the rest is for its number and the hash of the line before.
const BODY_LEN_MAX: usize = 3900;
/// A text is cut after so many bytes, and after so many if the line is too long then.
const TEXT_LEN_MAX: usize = 1024;
const TEXT_LEN_CUT: usize = 96;

/// A line on its way to the log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    event: &'static str,
    outcome: String,
    fields: Vec<(&'static str, Value)>,
}

impl Line {
    pub(crate) fn new(event: &'static str, outcome: &str) -> Line {
        Line { event, outcome: outcome.into(), fields: Vec::new() }
    }

    /// The same event with something else come of it.
    pub(crate) fn came_to(&self, outcome: &str) -> Line {
        Line { outcome: outcome.into(), ..self.clone() }
    }

    /// On whose request, and how that one is known.
    pub(crate) fn by(self, caller: &Caller) -> Line {
        let credential = caller.credential.token().map(|token| token.record.id.to_string());
        self.with("principal", caller.principal.as_str())
            .with("via", caller.credential.kind())
            .with_some("credential", credential)
            .with("peer", caller.peer.to_string())
            .with("transport", caller.transport.as_str())
            .with("request_id", &*caller.request_id)
            .with_some("through", caller.through.as_deref())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Line {
        self.fields.push((name, value.into()));
        self
    }

    pub(crate) fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Line {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Its fields as JSON, without the braces: the thread puts its number before and the hash behind it.
    pub(super) fn body(&self, server: &str) -> String {
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let body = self.written(&at, server, TEXT_LEN_MAX);
        if body.len() <= BODY_LEN_MAX { body } else { self.written(&at, server, TEXT_LEN_CUT) }
    }

    fn written(&self, at: &str, server: &str, text_len_max: usize) -> String {
        let mut body = format!("\"at\":\"{at}\",\"event\":\"{}\"", self.event);
        let own = [("outcome", Value::from(&*self.outcome)), ("server", Value::from(server))];
        let (outcome, server) = own.split_at(1);
        let fields = outcome.iter().chain(&self.fields).chain(server);
        for (name, value) in fields {
            body.push_str(",\"");
            body.push_str(name);
            body.push_str("\":");
            match value.as_str() {
                Some(text) => push_text(&mut body, cut(text, text_len_max)),
                None => push_visible(&mut body, &value.to_string()),
            }
        }
        body
    }
}

fn cut(text: &str, len_max: usize) -> &str {
    &text[..text.floor_char_boundary(len_max)]
}

fn push_text(line: &mut String, text: &str) {
    let text = serde_json::to_string(text).expect("a text is JSON");
    push_visible(line, &text);
}

/// Escapes the characters that JSON lets through and a terminal acts on.
fn push_visible(line: &mut String, json: &str) {
    for c in json.chars() {
        match is_acted_on(c) {
            true => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    line.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => line.push(c),
        }
    }
}

fn is_acted_on(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &Line) -> Value {
        let body = line.body("server-1");
        assert!(body.len() <= BODY_LEN_MAX, "{}", body.len());
        serde_json::from_str(&format!("{{{body}}}")).unwrap()
    }

    #[test]
    fn what_clients_chose_stays_inside_its_field() {
        let nasty = "\n{\"event\":\"admin\"} \u{1b}[2J \u{202e}desrever \u{9b}31m \u{e0041}";
        let line = Line::new("lock.break", "ok").with("owner_id", nasty);
        let body = line.body("server-1");
        assert!(body.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{body}");
        assert_eq!(read(&line)["owner_id"], nasty);
        assert_eq!(read(&line)["event"], "lock.break");
    }

    #[test]
    fn line_is_bounded_whatever_is_in_it() {
        let mut line = Line::new("lock.break", "ok");
        for name in ["lock", "owner_id", "reason", "of", "namespace", "detail"] {
            line = line.with(name, "\u{1}ü".repeat(4000));
        }
        let read = read(&line);
        assert_eq!(read["outcome"], "ok");
        assert_eq!(read["reason"].as_str().unwrap().len(), TEXT_LEN_CUT);
        let short = Line::new("x", "ok").with("reason", "a".repeat(255));
        assert_eq!(self::read(&short)["reason"].as_str().unwrap().len(), 255);
    }
}
