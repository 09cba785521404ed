//! The choice of the server to talk to.

/// Bound of the memory that a server can fill by naming leaders; no group has as many servers.
const LEARNED_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Servers {
    addresses: Vec<String>,
    current: usize,
}

impl Servers {
    pub(super) fn new(addresses: Vec<String>) -> Servers {
        assert!(!addresses.is_empty(), "a client has at least one server");
        Servers { addresses, current: 0 }
    }

    pub(super) fn current(&self) -> &str {
        &self.addresses[self.current]
    }

    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn rotate(&mut self) {
        self.current = (self.current + 1) % self.addresses.len();
    }

    /// Goes to the server that is said to lead; false if it is the one we talk to.
    pub(super) fn follow(&mut self, hint: &str) -> bool {
        let hint = same_scheme(self.current(), hint);
        match self.addresses.iter().position(|address| *address == hint) {
            Some(index) if index == self.current => return false,
            Some(index) => self.current = index,
            None if self.addresses.len() >= LEARNED_MAX => return false,
            None => {
                self.addresses.push(hint);
                self.current = self.addresses.len() - 1;
            }
        }
        true
    }
}

/// A hint without a scheme means the one in use.
fn same_scheme(current: &str, hint: &str) -> String {
    let hint = hint.trim_end_matches('/');
    match current.split_once("://") {
        Some((scheme, _)) if !hint.contains("://") => format!("{scheme}://{hint}"),
        Some(_) | None => hint.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_followed_whether_the_server_was_known_or_not() {
        let mut servers = Servers::new(vec!["http://a:1".into(), "http://b:1".into()]);
        assert!(!servers.follow("http://a:1/"));
        assert!(servers.follow("b:1"));
        assert_eq!(servers.current(), "http://b:1");
        assert!(servers.follow("http://c:1"));
        assert_eq!(servers.current(), "http://c:1");
        servers.rotate();
        assert_eq!(servers.current(), "http://a:1");
    }

    #[test]
    fn servers_that_are_only_said_to_be_there_are_limited() {
        let mut servers = Servers::new(vec!["http://a:1".into()]);
        for port in 0..100 {
            servers.follow(&format!("http://x:{port}"));
        }
        assert_eq!(servers.len(), LEARNED_MAX);
    }
}
