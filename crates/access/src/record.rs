//! The stored record of a token, and the narrower tokens that can be made from it.

use std::net::IpAddr;

use leasehold_core::Principal;

use crate::UnixSeconds;
use crate::network::Network;
use crate::rule::{RoleRef, Rule, RuleError};
use crate::token::{SecretHash, Token, TokenId};

/// A token as it is kept: all but its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    pub principal: Principal,
    pub roles: Vec<RoleRef>,
    pub hash: SecretHash,
    /// For people.
    pub note: String,
    pub created: Option<UnixSeconds>,
    pub created_by: Option<Principal>,
    pub not_before: Option<UnixSeconds>,
    /// The first moment at which it is no longer good; `None`: it has no end.
    pub expires: Option<UnixSeconds>,
    /// The networks it is accepted from; empty: all.
    pub networks: Vec<Network>,
    /// The token that it was made with: it is good no longer than that one.
    pub parent: Option<TokenId>,
    /// The restriction of its rights, for a narrower token.
    pub rules: Option<Vec<Rule>>,
}

/// The request for a narrower token. Fields that are left out are as in the token it is made from.
#[derive(Clone, Debug, Default)]
pub struct Narrowing {
    pub roles: Option<Vec<RoleRef>>,
    pub expires: Option<UnixSeconds>,
    pub networks: Option<Vec<Network>>,
    pub rules: Option<Vec<Rule>>,
    pub note: String,
}

/// The reason why a token would not be narrower than the one it is made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarrowError {
    #[error("the token has no role {0}")]
    Role(RoleRef),
    #[error("it would outlive the token that it is made of")]
    Expires,
    #[error("it would be good from {0}, and the token that it is made of is not")]
    Network(Network),
    #[error("{0}")]
    Rule(RuleError),
}

/// The reason why a credential is not good: for the audit log, never for whoever shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// No token at all.
    Malformed,
    Unknown,
    WrongSecret,
    NotYetValid,
    Expired,
    /// Shown from an address outside its networks.
    Network,
    /// A token that it was made with is gone, or no longer good.
    Parent,
}

impl Refused {
    pub const fn as_str(self) -> &'static str {
        match self {
            Refused::Malformed => "malformed",
            Refused::Unknown => "unknown",
            Refused::WrongSecret => "wrong_secret",
            Refused::NotYetValid => "not_yet_valid",
            Refused::Expired => "expired",
            Refused::Network => "network",
            Refused::Parent => "parent",
        }
    }
}

impl TokenRecord {
    /// Whether it is good now and from there; what can be said without its secret.
    pub fn check(&self, peer: Option<IpAddr>, now: UnixSeconds) -> Result<(), Refused> {
        if self.not_before.is_some_and(|start| now < start) {
            return Err(Refused::NotYetValid);
        }
        if self.expires.is_some_and(|end| now >= end) {
            return Err(Refused::Expired);
        }
        // Without an address, as behind a Unix socket, it is good if it is good everywhere.
        let is_near = |network: &Network| peer.is_some_and(|peer| network.contains(peer));
        if self.networks.is_empty() || self.networks.iter().any(is_near) {
            return Ok(());
        }
        Err(Refused::Network)
    }

    /// A token of the same principal that may do no more than this one.
    pub fn narrow(
        &self,
        made: &Token,
        asked: Narrowing,
        now: UnixSeconds,
    ) -> Result<TokenRecord, NarrowError> {
        let roles = asked.roles.unwrap_or_else(|| self.roles.clone());
        if let Some(role) = roles.iter().find(|role| !self.roles.contains(role)) {
            return Err(NarrowError::Role(role.clone()));
        }
        let expires = asked.expires.or(self.expires);
        if let Some(end) = self.expires
            && expires.is_none_or(|expires| expires > end)
        {
            return Err(NarrowError::Expires);
        }
        let networks = asked.networks.filter(|networks| !networks.is_empty());
        let networks = networks.unwrap_or_else(|| self.networks.clone());
        let is_inside = |network: &&Network| {
            self.networks.is_empty() || self.networks.iter().any(|own| own.covers(network))
        };
        if let Some(network) = networks.iter().find(|network| !is_inside(network)) {
            return Err(NarrowError::Network(*network));
        }
        for rule in asked.rules.iter().flatten() {
            rule.check().map_err(NarrowError::Rule)?;
        }
        Ok(TokenRecord {
            id: made.id(),
            principal: self.principal.clone(),
            roles,
            hash: made.hash(),
            note: asked.note,
            created: Some(now),
            created_by: Some(self.principal.clone()),
            not_before: self.not_before,
            expires,
            networks,
            parent: Some(self.id),
            rules: asked.rules,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tests::token;

    fn record() -> TokenRecord {
        let made = token(1);
        TokenRecord {
            id: made.id(),
            principal: Principal::new("billing").unwrap(),
            roles: vec![RoleRef::parse("reader").unwrap(), RoleRef::parse("client:x").unwrap()],
            hash: made.hash(),
            note: String::new(),
            created: None,
            created_by: None,
            not_before: Some(100),
            expires: Some(200),
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            parent: None,
            rules: None,
        }
    }

    /// Attack 6: expired, not yet valid, from elsewhere.
    #[test]
    fn token_is_good_in_its_time_and_place_only() {
        let (record, near) = (record(), "10.1.2.3".parse().ok());
        assert_eq!(record.check(near, 99), Err(Refused::NotYetValid));
        assert_eq!(record.check(near, 100), Ok(()));
        assert_eq!(record.check(near, 199), Ok(()));
        assert_eq!(record.check(near, 200), Err(Refused::Expired));
        assert_eq!(record.check("11.1.2.3".parse().ok(), 150), Err(Refused::Network));
        assert_eq!(record.check(None, 150), Err(Refused::Network));
        let anywhere = TokenRecord { networks: Vec::new(), ..record };
        assert_eq!(anywhere.check(None, 150), Ok(()));
    }

    #[test]
    fn narrower_token_may_do_no_more() {
        let (record, made) = (record(), token(2));
        let narrow = |asked| record.narrow(&made, asked, 120);
        let same = narrow(Narrowing::default()).unwrap();
        assert_eq!((same.parent, same.expires), (Some(record.id), Some(200)));
        assert_eq!((&same.principal, &same.networks), (&record.principal, &record.networks));
        let roles = |name| Some(vec![RoleRef::parse(name).unwrap()]);
        let less = Narrowing { roles: roles("reader"), expires: Some(150), ..Narrowing::default() };
        assert_eq!(narrow(less).unwrap().expires, Some(150));
        for role in ["admin", "client:y", "client:*"] {
            let asked = Narrowing { roles: roles(role), ..Narrowing::default() };
            assert!(matches!(narrow(asked), Err(NarrowError::Role(_))), "{role}");
        }
        let later = Narrowing { expires: Some(201), ..Narrowing::default() };
        assert_eq!(narrow(later), Err(NarrowError::Expires));
        let networks = Some(vec!["0.0.0.0/0".parse().unwrap()]);
        let wider = Narrowing { networks, ..Narrowing::default() };
        assert!(matches!(narrow(wider), Err(NarrowError::Network(_))));
        let empty = Narrowing { rules: Some(vec![Rule::default()]), ..Narrowing::default() };
        assert_eq!(narrow(empty), Err(NarrowError::Rule(RuleError::NoVerbs)));
    }

    #[test]
    fn narrower_token_without_networks_has_those_of_the_one_it_is_made_of() {
        let asked = Narrowing { networks: Some(Vec::new()), ..Narrowing::default() };
        let made = record().narrow(&token(2), asked, 120).unwrap();
        assert_eq!(made.networks, record().networks);
    }
}
