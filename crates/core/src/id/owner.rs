//! Identity: an owner is a principal together with an owner id.
//!
//! The principal is what a credential proves; the owner id is what the client calls itself. Both are kept in one text, with
//! a byte 0 between them that neither can contain, so two principals that use the same owner id are two owners in every
//! rule that compares owners. The anonymous principal is the empty one, and is left out together with its byte 0.

use std::fmt;
use std::str::FromStr;

use crate::name::{self, NameError};
use crate::text::Text;

const ANONYMOUS: &str = "anonymous";
const BETWEEN: char = '\0';

/// The name that a credential stands for: `billing`, `k8s/prod/worker`, `alice`.
///
/// 1 to 128 bytes of `[A-Za-z0-9._:@/-]`, without an empty part between slashes. `anonymous` is the name for requests
/// without a credential.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Text);

/// The reason why a text cannot be the name of a principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    #[error("is empty")]
    Empty,
    #[error("is {len} bytes long, the limit is {max}")]
    TooLong { len: usize, max: usize },
    #[error("has the character {0:?}: letters, digits and . _ : @ / - are allowed")]
    Character(char),
    #[error("has an empty part: parts are joined by single slashes")]
    EmptyPart,
}

impl Principal {
    pub const LEN_MAX: usize = 128;
    pub const ANONYMOUS: Principal = Principal(Text::EMPTY);

    pub fn new(name: &str) -> Result<Principal, PrincipalError> {
        match name.len() {
            0 => return Err(PrincipalError::Empty),
            len if len > Self::LEN_MAX => {
                return Err(PrincipalError::TooLong { len, max: Self::LEN_MAX });
            }
            _ => {}
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._:@/-".contains(c);
        if let Some(c) = name.chars().find(|&c| !allowed(c)) {
            return Err(PrincipalError::Character(c));
        }
        if name.split('/').any(str::is_empty) {
            return Err(PrincipalError::EmptyPart);
        }
        Ok(if name == ANONYMOUS { Principal::ANONYMOUS } else { Principal(Text::new(name)) })
    }

    pub fn is_anonymous(&self) -> bool {
        self.0.is_empty()
    }

    /// The name as it is part of an owner and is kept: empty for the anonymous principal.
    pub fn text(&self) -> &Text {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        if self.is_anonymous() { ANONYMOUS } else { self.0.as_str() }
    }
}

impl Default for Principal {
    fn default() -> Principal {
        Principal::ANONYMOUS
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(name: &str) -> Result<Principal, PrincipalError> {
        Principal::new(name)
    }
}

/// The party to conflicts and deadlocks: one thread of control of one client of one principal.
///
/// `as_str` and `Display` give the owner id alone; order, equality and hash use the principal too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Text);

impl Owner {
    /// The length limit of the owner id.
    pub const LEN_MAX: usize = 255;

    /// Stands for an owner that may not be shown. No request can come from it: an owner id is never empty.
    pub const HIDDEN: Owner = Owner(Text::EMPTY);

    pub fn is_hidden(&self) -> bool {
        self.0.is_empty()
    }

    /// An owner of the anonymous principal.
    pub fn new(id: &str) -> Result<Owner, NameError> {
        Owner::of(&Principal::ANONYMOUS, id)
    }

    /// An owner id that comes in: in normalization form C, without invisible characters.
    pub fn of(principal: &Principal, id: &str) -> Result<Owner, NameError> {
        name::admit(id, Self::LEN_MAX)?;
        if principal.is_anonymous() {
            return Ok(Owner(Text::new(id)));
        }
        Ok(Owner(Text::new(&format!("{}{BETWEEN}{id}", principal.0.as_str()))))
    }

    /// The text of an owner that was admitted once, by these rules or older ones; `None` if it cannot be one.
    pub fn stored(text: &str) -> Option<Owner> {
        let id = match text.split_once(BETWEEN) {
            None => text,
            Some((principal, id)) => {
                let named = Principal::new(principal).ok()?;
                // One spelling for each owner: an anonymous principal is left out.
                (!named.is_anonymous()).then_some(id)?
            }
        };
        name::decode(id, Self::LEN_MAX).ok()?;
        Some(Owner(Text::new(text)))
    }

    /// The whole text: principal, byte 0, owner id.
    pub fn text(&self) -> &Text {
        &self.0
    }

    /// The owner id.
    pub fn as_str(&self) -> &str {
        self.parts().1
    }

    pub fn principal(&self) -> Principal {
        Principal(Text::new(self.parts().0))
    }

    pub fn is_of(&self, principal: &Principal) -> bool {
        self.parts().0.as_bytes() == principal.0.as_bytes()
    }

    fn parts(&self) -> (&str, &str) {
        self.0.as_str().split_once(BETWEEN).unwrap_or(("", self.0.as_str()))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(name: &str) -> Principal {
        Principal::new(name).unwrap()
    }

    #[test]
    fn owner_ids_with_faults_are_refused_by_what_is_wrong() {
        assert_eq!(Owner::new(""), Err(NameError::Empty));
        assert_eq!(Owner::new(&"x".repeat(256)), Err(NameError::TooLong { len: 256, max: 255 }));
        assert_eq!(Owner::new("a\nb"), Err(NameError::Character(10)));
        assert_eq!(Owner::new("a\0b"), Err(NameError::Character(0)));
        assert_eq!(Owner::new("a\u{202e}b"), Err(NameError::Character(0x202e)));
        assert_eq!(Owner::new("e\u{301}"), Err(NameError::NotNormalized(0x65)));
        assert!(Owner::stored("e\u{301}").is_some());
        assert!(Owner::new("host-1/pid 77").is_ok());
    }

    #[test]
    fn principals_with_faults_are_refused_by_what_is_wrong() {
        let long = "x".repeat(129);
        for (name, fault) in [
            ("", PrincipalError::Empty),
            (&*long, PrincipalError::TooLong { len: 129, max: 128 }),
            ("a b", PrincipalError::Character(' ')),
            ("a\0b", PrincipalError::Character('\0')),
            ("caf\u{e9}", PrincipalError::Character('\u{e9}')),
            ("/a", PrincipalError::EmptyPart),
            ("a//b", PrincipalError::EmptyPart),
            ("a/", PrincipalError::EmptyPart),
        ] {
            assert_eq!(Principal::new(name), Err(fault), "{name:?}");
        }
        for name in ["billing", "k8s/prod/worker", "a.b_c:d@e-F9", &long[..128]] {
            assert_eq!(principal(name).as_str(), name);
        }
    }

    #[test]
    fn anonymous_is_the_principal_without_a_name() {
        assert_eq!(principal("anonymous"), Principal::ANONYMOUS);
        assert_eq!(Principal::default().to_string(), "anonymous");
        assert_eq!(Owner::of(&principal("anonymous"), "a"), Owner::new("a"));
        assert_eq!(Owner::new("a").unwrap().text().as_str(), "a");
    }

    #[test]
    fn same_id_of_another_principal_is_another_owner() {
        let (mine, theirs) = (principal("billing"), principal("bill"));
        let owner = Owner::of(&mine, "worker-1").unwrap();
        assert_ne!(owner, Owner::of(&theirs, "worker-1").unwrap());
        assert_ne!(owner, Owner::new("worker-1").unwrap());
        assert_eq!((owner.as_str(), owner.to_string()), ("worker-1", "worker-1".into()));
        assert_eq!(owner.principal(), mine);
        assert!(owner.is_of(&mine) && !owner.is_of(&theirs));
        assert!(!owner.is_of(&Principal::ANONYMOUS));
        assert!(Owner::new("billing").unwrap().is_of(&Principal::ANONYMOUS));
    }

    #[test]
    fn stored_text_is_one_spelling_of_one_owner() {
        let owner = Owner::of(&principal("k8s/prod"), "a").unwrap();
        assert_eq!(Owner::stored(owner.text().as_str()), Some(owner));
        for bad in ["", "\0a", "anonymous\0a", "p\0", "p\0a\0b", "p q\0a", "a\nb"] {
            assert_eq!(Owner::stored(bad), None, "{bad:?}");
        }
    }
}
