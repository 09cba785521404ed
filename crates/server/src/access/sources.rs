//! The sources of rights: `access.toml`, and the access documents of the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_access::{AccessFile, Snapshot, document};
use leasehold_access::{RoleRef, Token, TokenRecord, UnixSeconds, Verb};
use leasehold_api::Code;
use leasehold_core::Principal;
use leasehold_store::{
    AccessChange, AccessStore, Changed, Document, DocumentId, Documents, Error, Location,
    with_cause,
};

use super::file::{self, FileError};
use super::keys::Extras;
use crate::service::problems::Failure;
use crate::stamp::Stamp;

/// The number of times a token is written anew because another server was faster.
const BOOTSTRAP_TRIES: usize = 5;

/// The state as it was read last, and its sources.
#[derive(Debug)]
pub(super) struct Sources {
    path: Option<PathBuf>,
    file: AccessFile,
    /// The file as it was looked at last, whether it was taken or not.
    stamp: Option<Stamp>,
    store: Option<Arc<dyn AccessStore>>,
    documents: Documents,
    generation: u64,
}

impl Sources {
    /// Reads the file, which has to be right; the store is asked later.
    pub(super) fn new(
        path: Option<PathBuf>,
        store: Option<Arc<dyn AccessStore>>,
    ) -> Result<Sources, FileError> {
        let (stamp, file) = match path.as_deref().map(file::read).transpose()? {
            None => (None, AccessFile::default()),
            Some((stamp, file)) => (Some(stamp), file),
        };
        Ok(Sources { path, file, stamp, store, documents: Documents::default(), generation: 0 })
    }

    pub(super) fn file(&self) -> &AccessFile {
        &self.file
    }

    /// The snapshot that a change would lead to.
    fn after(&self, change: &AccessChange) -> Snapshot {
        let kept = self.documents.all.iter().filter(|document| {
            !change.removes().contains(document.id())
                && !change.puts().iter().any(|put| put.id() == document.id())
        });
        let documents = kept.chain(change.puts());
        let documents = documents.map(|document| (document.id().as_str(), document.body()));
        Snapshot::new(self.generation, &self.file, documents)
    }

    /// Makes a change if nobody was faster: `None` then. One that leaves nobody who may administer is not made unless `force`
    /// says so.
    pub(super) async fn change(
        &mut self,
        change: AccessChange,
        force: bool,
        now: UnixSeconds,
    ) -> Result<Option<()>, Failure> {
        let Some(store) = self.store.clone() else {
            let said = "this store keeps no credentials: they are in the access file alone";
            return Err(Failure::new(Code::InvalidRequest, said));
        };
        let is_last =
            !has_admin(&self.after(&change), now) && has_admin(&self.built(&self.file), now);
        if is_last && !force {
            let said = "nobody could administer the server any more; with force=true it is done";
            return Err(Failure::new(Code::PermissionDenied, said));
        }
        match store.change(self.documents.version, change).await.map_err(|error| unread(&error))? {
            Changed::To(_) => Ok(Some(())),
            Changed::Conflict { .. } => Ok(None),
            Changed::Full => {
                let said = "there are as many tokens and roles as the store keeps";
                Err(Failure::new(Code::QuotaExceeded, said))
            }
        }
    }

    /// Both together.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.generation += 1;
        self.built(&self.file)
    }

    fn built(&self, file: &AccessFile) -> Snapshot {
        let documents = self.documents.all.iter();
        let documents = documents.map(|document| (document.id().as_str(), document.body()));
        Snapshot::new(self.generation, file, documents)
    }

    /// The documents' contents beside rights.
    pub(super) fn extras(&self) -> Extras {
        Extras::of(self.documents.version, self.documents.all.iter())
    }

    /// Asks the store; whether there is something new.
    pub(super) async fn ask_store(&mut self) -> Result<bool, Error> {
        let Some(store) = self.store.clone() else { return Ok(false) };
        if store.version().await? == self.documents.version {
            return Ok(false);
        }
        self.documents = store.documents().await?;
        Ok(true)
    }

    /// Whether the file is another one than was looked at last.
    pub(super) fn is_file_changed(&self) -> bool {
        self.path.as_deref().is_some_and(|path| Stamp::at(path) != self.stamp)
    }

    /// Reads the file. One that is not right, or clashes with the store, changes nothing.
    pub(super) fn read_file(&mut self) -> Result<(), FileError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        self.stamp = Stamp::at(&path);
        let (stamp, file) = file::read(&path)?;
        self.stamp = Some(stamp);
        let snapshot = self.built(&file);
        if let Some(clash) = snapshot.faults().iter().find(|fault| fault.is_clash()) {
            return Err(FileError::Clash { path, clash: clash.to_string() });
        }
        self.file = file;
        Ok(())
    }

    /// Makes a token the first document of the store, with the role `admin`. False if there was one before.
    pub(super) async fn bootstrap(
        &mut self,
        token: &Token,
        now: UnixSeconds,
    ) -> Result<bool, Error> {
        let Some(store) = self.store.clone() else { return Ok(false) };
        let (id, body) = document::of_token(&first_token(token, now));
        let document = DocumentId::new(&id).and_then(|id| Document::new(id, &body));
        let change = AccessChange::new(document.into_iter().collect(), Vec::new());
        let change = change.expect("one small document is a change");
        for _ in 0..BOOTSTRAP_TRIES {
            // Another server may have been first: then that one's token is the one.
            if self.documents.all.iter().any(|known| known.id().as_str().starts_with("token/")) {
                break;
            }
            let changed = store.change(self.documents.version, change.clone()).await?;
            self.ask_store().await?;
            if matches!(changed, Changed::To(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Writes a token with the role `admin` straight into a store: for whoever is locked out, and can reach the store.
pub async fn bootstrap(location: &Location, token: &Token) -> Result<(), String> {
    let told = |error: &dyn std::error::Error| with_cause(error);
    let journal = leasehold_store::open(location, 0).await.map_err(|error| told(&error))?;
    let store = journal.access().ok_or("this store keeps no credentials")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (id, body) = document::of_token(&first_token(token, now));
    let document = DocumentId::new(&id).and_then(|id| Document::new(id, &body));
    let change = AccessChange::new(document.into_iter().collect(), Vec::new());
    let change = change.expect("one small document is a change");
    for _ in 0..BOOTSTRAP_TRIES {
        let version = store.version().await.map_err(|error| told(&error))?;
        let changed = store.change(version, change.clone()).await;
        match changed.map_err(|error| told(&error))? {
            Changed::To(_) => return Ok(()),
            Changed::Conflict { .. } => {}
            Changed::Full => return Err("there are as many tokens as the store keeps".into()),
        }
    }
    Err("others are changing tokens at the same time".into())
}

/// Whether there is a credential now with which roles and tokens can be changed.
fn has_admin(snapshot: &Snapshot, now: UnixSeconds) -> bool {
    snapshot.credentials().any(|credential| {
        let record = &credential.record;
        let is_over = record.expires.is_some_and(|end| now >= end);
        !is_over && credential.rights.on_server(Verb::Admin).is_some()
    })
}

pub(super) fn unread(error: &Error) -> Failure {
    tracing::warn!(error = with_cause(error), "access documents cannot be read or changed");
    let said = "the store of credentials cannot be read or changed for now";
    Failure::new(Code::StoreUnavailable, said).retried_soon()
}

/// The record of the token that everything else is set up with.
fn first_token(token: &Token, now: UnixSeconds) -> TokenRecord {
    TokenRecord {
        id: token.id(),
        principal: Principal::new("root").expect("it is a name"),
        roles: vec![RoleRef::parse("admin").expect("it is built in")],
        hash: token.hash(),
        note: "first token".into(),
        created: Some(now),
        created_by: None,
        not_before: None,
        expires: None,
        networks: Vec::new(),
        parent: None,
        rules: None,
    }
}
