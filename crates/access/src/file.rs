//! `access.toml`: roles, tokens by the hash of their secret, and the roles of local users.
//!
//! It never holds a secret. Whether others can write it is for the caller to check, before it is read.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::Principal;

use crate::principal::Use;
use crate::read;
use crate::record::TokenRecord;
use crate::rule::{Role, RoleRef, check_role_name};
use crate::tree::{Fault, Node, Value};

const TOKENS_MAX: usize = 20_000;
const ROLES_MAX: usize = 1_000;

/// A file that was read and is right in itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFile {
    pub roles: BTreeMap<Box<str>, Role>,
    pub tokens: Vec<TokenRecord>,
    /// Roles of principals that show no token: local users, and what certificates are mapped to.
    pub principals: BTreeMap<Principal, Vec<RoleRef>>,
}

impl AccessFile {
    pub fn parse(text: &str) -> Result<AccessFile, Fault> {
        let tree = Node::of_toml(text)?;
        let mut fields = tree.fields("the file")?;
        let roles = fields.take("role").map_or(Ok(BTreeMap::new()), roles)?;
        let mut file = AccessFile { roles, ..AccessFile::default() };
        let mut ids = BTreeSet::new();
        for node in fields.take("token").map_or(Ok(&[][..]), |all| all.list("token", TOKENS_MAX))? {
            let token = read::token(node)?;
            if !ids.insert(token.id) {
                return Err(node.fault(format_args!("token {} is there twice", token.id)));
            }
            token.roles.iter().try_for_each(|role| file.check_role(node, role))?;
            file.tokens.push(token);
        }
        if let Some(node) = fields.take("principal") {
            file.principals = file.principals_of(node)?;
        }
        fields.finish()?;
        Ok(file)
    }

    fn principals_of(&self, node: &Node) -> Result<BTreeMap<Principal, Vec<RoleRef>>, Fault> {
        let Value::Table(principals) = &node.value else {
            return Err(node.fault("principals are tables: [principal.\"uid/1000\"]"));
        };
        let read = |(name, node): &(String, Node)| {
            let principal = read::principal_of(node, name, Use::Roles)?;
            let mut fields = node.fields("a principal")?;
            let roles = read::role_refs(fields.need("roles")?)?;
            fields.finish()?;
            roles.iter().try_for_each(|role| self.check_role(node, role))?;
            Ok((principal, roles))
        };
        principals.iter().map(read).collect()
    }

    /// A role of this file or a built-in one must fit. Others may be in the store.
    fn check_role(&self, node: &Node, given: &RoleRef) -> Result<(), Fault> {
        let built_in = Role::built_in(&given.role);
        match self.roles.get(&given.role).or(built_in.as_ref()) {
            None => Ok(()),
            Some(role) => given.rules_of(role).map(drop).map_err(|fault| node.fault(fault)),
        }
    }
}

fn roles(node: &Node) -> Result<BTreeMap<Box<str>, Role>, Fault> {
    let Value::Table(roles) = &node.value else {
        return Err(node.fault("roles are tables: [role.NAME]"));
    };
    if roles.len() > ROLES_MAX {
        return Err(node.fault(format_args!("there are more than {ROLES_MAX} roles")));
    }
    let read = |(name, node): &(String, Node)| {
        check_role_name(name).map_err(|fault| node.fault(fault))?;
        if Role::built_in(name).is_some() {
            return Err(node.fault(format_args!("role {name} is built in: take another name")));
        }
        Ok((Box::from(&**name), read::role(node)?))
    };
    roles.iter().map(read).collect()
}
