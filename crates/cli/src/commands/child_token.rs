//! The token that a command gets in place of that of `leasehold run`: it may look at the lock, and give it back.

use std::time::Duration;

use leasehold_api::{CreateTokenRequest, CreatedToken, RevokedToken};
use leasehold_client::Method;
use serde_json::json;

use super::auth::ask;
use super::millis;
use crate::asking::Server;

/// It is revoked when the command has ended; this is for a machine that fails before.
const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A narrower token of our own, if the server makes one.
pub(super) struct ChildToken(Option<CreatedToken>);

impl ChildToken {
    pub(super) async fn of(server: &Server, locks: &[String]) -> ChildToken {
        if !server.has_token() {
            return ChildToken(None);
        }
        let request = CreateTokenRequest {
            ttl_ms: Some(millis(TTL)),
            note: Some("for a command of leasehold run".into()),
            rules: Some(rules(server.namespace(), locks)),
            ..CreateTokenRequest::default()
        };
        match ask(server, Method::POST, "/v1/auth/tokens", Some(&request)).await {
            Ok(made) => ChildToken(Some(made)),
            Err(failure) => {
                if server.out.verbose {
                    let said = "leasehold: the command gets no token";
                    server.out.say(&format!("{said}: {}", failure.said));
                }
                ChildToken(None)
            }
        }
    }

    pub(super) fn reveal(&self) -> Option<&str> {
        self.0.as_ref().map(|made| made.token.as_str())
    }

    /// It ends by itself if this fails.
    pub(super) async fn give_back(&self, server: &Server) {
        let Some(made) = &self.0 else { return };
        let path = format!("/v1/auth/tokens/{}", made.record.id);
        let gone = ask::<RevokedToken>(server, Method::DELETE, &path, None::<&()>);
        let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
    }
}

/// One rule that allows to read these locks.
fn rules(namespace: &str, locks: &[String]) -> serde_json::Value {
    let (mut names, mut paths, mut inodes) = (Vec::new(), Vec::new(), Vec::new());
    for lock in locks {
        if let Some(path) = lock.strip_prefix("path:") {
            paths.push(path);
        } else if let Some(inode) = lock.strip_prefix("inode:") {
            inodes.push(inode.split('@').next().unwrap_or(inode));
        } else {
            names.push(lock.as_str());
        }
    }
    let mut rule = json!({ "verbs": ["read"], "namespace": namespace });
    for (kind, patterns) in [("names", names), ("paths", paths), ("inodes", inodes)] {
        if !patterns.is_empty() {
            rule[kind] = patterns.into();
        }
    }
    json!([rule])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_that_roles_have() {
        let locks = ["job/a", "path:/srv/a/**", "inode:42@1..2"].map(String::from);
        let text = json!({ "rules": rules("billing", &locks) }).to_string();
        leasehold_access::document::role_of_json(&text).unwrap();
        for locks in [&locks[..1], &locks[1..2], &locks[2..]] {
            let text = json!({ "rules": rules("default", locks) }).to_string();
            leasehold_access::document::role_of_json(&text).unwrap();
        }
    }
}
