//! Documents of the store: tokens and roles as JSON, with a version.

use crate::UnixSeconds;
use crate::certificate;
use crate::read;
use crate::record::TokenRecord;
use crate::rule::{Role, check_role_name};
use crate::tree::{Fault, Node};

/// The version that this build writes, and the only one there is.
const VERSION: u64 = 1;

/// A document that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `token/ID`.
    Token(TokenRecord),
    /// `role/NAME`.
    Role(Box<str>, Role),
    /// `cert/SERIAL`: no certificate with this serial number is good any more, whatever the document says.
    DeniedCertificate(String),
    /// Of a kind that says nothing of rights: keys, login codes.
    Other,
}

impl Document {
    pub fn parse(id: &str, body: &str) -> Result<Document, Fault> {
        let (kind, name) = id.split_once('/').unwrap_or((id, ""));
        if kind == "cert" {
            let serial = certificate::serial(name);
            return serial
                .map(Document::DeniedCertificate)
                .ok_or_else(|| Fault::new(None, "what it is kept under is no serial number"));
        }
        if kind != "token" && kind != "role" {
            return Ok(Document::Other);
        }
        let tree = Node::of_json(body)?;
        let mut fields = tree.fields("a document")?;
        match fields.need("v")?.number("v")? {
            VERSION => {}
            other => {
                let said = format!("it has version {other}, this build reads version {VERSION}");
                return Err(tree.fault(said));
            }
        }
        if kind == "role" {
            check_role_name(name).map_err(|fault| tree.fault(fault))?;
            if Role::built_in(name).is_some() {
                return Err(tree.fault(format_args!("role {name} is built in")));
            }
            return Ok(Document::Role(name.into(), read::role(&tree)?));
        }
        let token = read::token(&tree)?;
        if token.id.as_str() != name {
            return Err(tree.fault("its id is not the one it is kept under"));
        }
        Ok(Document::Token(token))
    }
}

/// The id and the body of the document that keeps a token.
pub fn of_token(token: &TokenRecord) -> (String, String) {
    (format!("token/{}", token.id), read::token_json(token).to_string())
}

/// The id and the body of the document that denies the certificate with a [`serial`](certificate::serial) number.
pub fn of_denied_certificate(serial: &str, note: &str, now: UnixSeconds) -> (String, String) {
    let body = serde_json::json!({ "v": VERSION, "denied": now, "note": note });
    (format!("cert/{serial}"), body.to_string())
}

/// A role as it is written in JSON, without its name.
pub fn role_of_json(text: &str) -> Result<Role, Fault> {
    read::role(&Node::of_json(text)?)
}

/// The id and the body of the document that keeps a role.
pub fn of_role(name: &str, role: &Role) -> (String, String) {
    (format!("role/{name}"), read::role_json(role).to_string())
}
