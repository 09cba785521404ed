//! All that is known of who may do what, at one moment: file and store together, ready to be asked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_core::Principal;

use crate::UnixSeconds;
use crate::certificate::Certified;
use crate::document::Document;
use crate::file::AccessFile;
use crate::record::{Refused, TokenRecord};
use crate::rights::Rights;
use crate::rule::{Role, RoleRef, check_role_name};
use crate::token::{SecretHash, Token, TokenId};

/// The longest chain of tokens that were made from one another.
const GENERATIONS_MAX: usize = 4;

/// All access rules as of one generation. It never changes; a newer one takes its place.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    generation: u64,
    roles: BTreeMap<Box<str>, Role>,
    roles_of_file: BTreeSet<Box<str>>,
    credentials: HashMap<TokenId, Arc<Credential>>,
    principals: BTreeMap<Principal, Arc<Rights>>,
    denied_certificates: BTreeSet<String>,
    faults: Vec<SnapshotFault>,
}

/// A token with what it may do.
#[derive(Clone, Debug)]
pub struct Credential {
    pub record: TokenRecord,
    pub rights: Arc<Rights>,
    parent: Option<Arc<Credential>>,
}

/// Something that could not be taken as it is. What it concerns allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFault {
    #[error("token {0} is both in the file and in the store")]
    TokenTwice(TokenId),
    #[error("role {0} is both in the file and in the store")]
    RoleTwice(Box<str>),
    #[error("document {id}: {fault}")]
    Document { id: String, fault: String },
    #[error("{of}: {fault}")]
    Role { of: String, fault: String },
}

impl SnapshotFault {
    /// Whether a file that is newly read is to be refused for it, as a whole.
    pub fn is_clash(&self) -> bool {
        match self {
            SnapshotFault::TokenTwice(_) | SnapshotFault::RoleTwice(_) => true,
            SnapshotFault::Document { .. } | SnapshotFault::Role { .. } => false,
        }
    }
}

impl Snapshot {
    /// Puts the file and the documents of the store together. Nothing is taken from either where they clash.
    ///
    /// A caller with a newly read file looks for [`SnapshotFault::is_clash`], and if there is one keeps the file it had. What the
    /// store says is always taken, so that a revocation never waits for a file to be mended.
    pub fn new<'a>(
        generation: u64,
        file: &AccessFile,
        documents: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Snapshot {
        let mut snapshot = Snapshot {
            generation,
            roles: file.roles.clone(),
            roles_of_file: file.roles.keys().cloned().collect(),
            ..Snapshot::default()
        };
        let mut records: BTreeMap<TokenId, TokenRecord> =
            file.tokens.iter().map(|token| (token.id, token.clone())).collect();
        let mut clashes = BTreeSet::new();
        let mut roles_of_store = BTreeSet::new();
        for (id, body) in documents {
            match Document::parse(id, body) {
                Ok(Document::Other) => {}
                Ok(Document::DeniedCertificate(serial)) => {
                    snapshot.denied_certificates.insert(serial);
                }
                Ok(Document::Token(token)) => {
                    if records.contains_key(&token.id) {
                        clashes.insert(token.id);
                    }
                    records.insert(token.id, token);
                }
                Ok(Document::Role(name, role)) => {
                    if file.roles.contains_key(&name) {
                        snapshot.faults.push(SnapshotFault::RoleTwice(name.clone()));
                        snapshot.roles.remove(&name);
                    } else if roles_of_store.insert(name.clone()) {
                        snapshot.roles.insert(name, role);
                    }
                }
                Err(fault) => {
                    let (id, fault) = (id.into(), fault.to_string());
                    snapshot.faults.push(SnapshotFault::Document { id, fault });
                }
            }
        }
        for id in clashes {
            records.remove(&id);
            snapshot.faults.push(SnapshotFault::TokenTwice(id));
        }
        snapshot.link(records);
        for (principal, roles) in &file.principals {
            let of = format!("principal {principal}");
            let rights = snapshot.rights_from(&of, roles);
            snapshot.principals.insert(principal.clone(), Arc::new(rights));
        }
        snapshot
    }

    /// Parents before what was made of them; what has no parent any more is left out with all that hangs on it.
    fn link(&mut self, mut records: BTreeMap<TokenId, TokenRecord>) {
        let mut shared: BTreeMap<Vec<RoleRef>, Arc<Rights>> = BTreeMap::new();
        for _ in 0..=GENERATIONS_MAX {
            let is_ready = |_: &TokenId, record: &mut TokenRecord| {
                record.parent.is_none_or(|parent| self.credentials.contains_key(&parent))
            };
            let ready: Vec<TokenRecord> =
                records.extract_if(.., is_ready).map(|(_, record)| record).collect();
            if ready.is_empty() {
                return;
            }
            let linked: Vec<Credential> =
                ready.into_iter().map(|record| self.credential(record, &mut shared)).collect();
            for credential in linked {
                self.credentials.insert(credential.record.id, Arc::new(credential));
            }
        }
    }

    fn credential(
        &mut self,
        record: TokenRecord,
        shared: &mut BTreeMap<Vec<RoleRef>, Arc<Rights>>,
    ) -> Credential {
        let known = shared.get(&record.roles).cloned();
        let mut rights = known.unwrap_or_else(|| {
            let of = format!("token {}", record.id);
            let rights = Arc::new(self.rights_from(&of, &record.roles));
            shared.insert(record.roles.clone(), rights.clone());
            rights
        });
        let parent = record.parent.and_then(|parent| self.credentials.get(&parent).cloned());
        if let Some(rules) = &record.rules {
            rights = Arc::new(Rights::clone(&rights).narrowed(rules));
        }
        if let Some(parent) = &parent {
            let mut own = Rights::clone(&rights);
            own.within(parent.rights.clone());
            rights = Arc::new(own);
        }
        Credential { record, rights, parent }
    }

    fn rights_from(&mut self, of: &str, roles: &[RoleRef]) -> Rights {
        let mut rights = Rights::none();
        for given in roles {
            let built_in = Role::built_in(&given.role);
            let added = match self.roles.get(&given.role).or(built_in.as_ref()) {
                None => Err(crate::rule::RoleError::Unknown(given.role.to_string())),
                Some(role) => rights.add(given, role),
            };
            if let Err(fault) = added {
                let (of, fault) = (of.into(), fault.to_string());
                self.faults.push(SnapshotFault::Role { of, fault });
            }
        }
        rights
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn faults(&self) -> &[SnapshotFault] {
        &self.faults
    }

    /// The credential that a bearer token stands for.
    ///
    /// A text that is no token costs no hash. Any other costs exactly one, whether there is such a token or not.
    pub fn authenticate(
        &self,
        shown: &str,
        peer: Option<IpAddr>,
        now: UnixSeconds,
    ) -> Result<Arc<Credential>, Refused> {
        let token: Token = shown.parse().map_err(|_| Refused::Malformed)?;
        let found = self.credentials.get(&token.id());
        let hash = found.map_or(&SecretHash::NOBODY, |found| &found.record.hash);
        let is_right = hash.is_of(&token);
        let found = found.ok_or(Refused::Unknown)?;
        if !is_right {
            return Err(Refused::WrongSecret);
        }
        found.check(peer, now)?;
        Ok(found.clone())
    }

    /// A credential by its public id: for streams that go on, and for requests that another server has authenticated.
    pub fn credential_of(&self, id: TokenId) -> Option<&Arc<Credential>> {
        self.credentials.get(&id)
    }

    pub fn credentials(&self) -> impl Iterator<Item = &Arc<Credential>> {
        self.credentials.values()
    }

    /// The rights of a principal that shows no token: a local user, or the name of a certificate.
    pub fn rights_without_token(&self, principal: &Principal) -> Option<&Arc<Rights>> {
        self.principals.get(principal)
    }

    /// The rights of a principal that a certificate has named: those of its roles, and those that the file gives it.
    pub fn rights_of_certified(&self, certified: &Certified) -> Rights {
        let mut rights = match self.principals.get(&certified.principal) {
            None => Rights::none(),
            Some(rights) => Rights::clone(rights),
        };
        for given in &certified.roles {
            if let Some(role) = self.role(&given.role) {
                // A role that does not fit allows nothing.
                let _ = rights.add(given, &role);
            }
        }
        rights
    }

    /// Whether a certificate with this serial number is denied.
    pub fn is_denied(&self, serial: &str) -> bool {
        self.denied_certificates.contains(serial)
    }

    pub fn denied_certificates(&self) -> impl Iterator<Item = &str> {
        self.denied_certificates.iter().map(|serial| &**serial)
    }

    /// The rights that all credentials of a principal that are good now come to: for `policy test`.
    pub fn rights_of(&self, principal: &Principal, now: UnixSeconds) -> Vec<Arc<Rights>> {
        let is_own = |credential: &&Arc<Credential>| {
            credential.record.principal == *principal && credential.is_in_time(now)
        };
        let tokens = self.credentials.values().filter(is_own).map(|found| found.rights.clone());
        tokens.chain(self.principals.get(principal).cloned()).collect()
    }

    /// A role by its name, built-in ones too.
    pub fn role(&self, name: &str) -> Option<Role> {
        check_role_name(name).ok()?;
        self.roles.get(name).cloned().or_else(|| Role::built_in(name))
    }

    /// Whether a role stands in the access file.
    pub fn is_role_of_file(&self, name: &str) -> bool {
        self.roles_of_file.contains(name)
    }

    pub fn role_names(&self) -> impl Iterator<Item = &str> {
        Role::BUILT_IN.into_iter().chain(self.roles.keys().map(|name| &**name))
    }
}

impl Credential {
    /// Whether it, and all that it was made of, is good now and from there.
    pub fn check(&self, peer: Option<IpAddr>, now: UnixSeconds) -> Result<(), Refused> {
        self.record.check(peer, now)?;
        match &self.parent {
            None => Ok(()),
            Some(parent) => parent.check(peer, now).map_err(|_| Refused::Parent),
        }
    }

    fn is_in_time(&self, now: UnixSeconds) -> bool {
        let is_good = |record: &TokenRecord| {
            !matches!(record.check(None, now), Err(Refused::NotYetValid | Refused::Expired))
        };
        is_good(&self.record) && self.parent.as_ref().is_none_or(|parent| parent.is_in_time(now))
    }
}
