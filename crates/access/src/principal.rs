//! The principals that may be named in each place.

use leasehold_core::{Principal, PrincipalError};

/// The place that names a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A token is made for it.
    Token,
    /// Roles are given to it.
    Roles,
    /// It is mentioned.
    Named,
}

/// The reason why a principal cannot be named here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("principal {0:?} {1}")]
    Fault(String, PrincipalError),
    #[error("principal {0:?} is reserved: {1}")]
    Reserved(String, &'static str),
}

/// The principal of a local user behind a Unix socket.
pub fn of_uid(uid: u32) -> Principal {
    Principal::new(&format!("uid/{uid}")).expect("digits are allowed")
}

/// A principal by its name, if it may be used for that.
pub fn parse(name: &str, of: Use) -> Result<Principal, NameError> {
    let principal = Principal::new(name).map_err(|fault| {
        NameError::Fault(name.chars().take(Principal::LEN_MAX).collect(), fault)
    })?;
    match (reserved_for(&principal), of) {
        (None, _) | (_, Use::Named) | (Some(Reserved::Uid), Use::Roles) => Ok(principal),
        (Some(reserved), _) => Err(NameError::Reserved(name.into(), reserved.said())),
    }
}

/// Names that no credential but one kind stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    Anonymous,
    Server,
    Uid,
}

impl Reserved {
    fn said(self) -> &'static str {
        match self {
            Reserved::Anonymous => "it stands for requests without a credential",
            Reserved::Server => "it stands for the servers of a cluster",
            Reserved::Uid => "it stands for a local user",
        }
    }
}

fn reserved_for(principal: &Principal) -> Option<Reserved> {
    let first = principal.as_str().split('/').next().unwrap_or_default();
    match first {
        "server" => Some(Reserved::Server),
        "uid" => Some(Reserved::Uid),
        _ if principal.is_anonymous() => Some(Reserved::Anonymous),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_principals_are_no_names_for_tokens() {
        for name in ["anonymous", "server", "server/locks-1", "uid/0", "uid"] {
            assert!(parse(name, Use::Token).is_err(), "{name}");
            assert!(parse(name, Use::Named).is_ok(), "{name}");
        }
        for name in ["servers/a", "uids", "root", "k8s/server"] {
            assert!(parse(name, Use::Token).is_ok(), "{name}");
        }
        assert_eq!(parse("uid/1000", Use::Roles).unwrap(), of_uid(1000));
        let said = parse("anonymous", Use::Roles).unwrap_err().to_string();
        assert_eq!(
            said,
            "principal \"anonymous\" is reserved: it stands for requests without a credential"
        );
    }
}
