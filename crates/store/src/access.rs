//! The port for access documents: who may do what, as far as it is kept in the store.
//!
//! They stand beside the journal and not in it. There is one set of them for a store, not one for each group; any server may
//! change them, whoever leads; a follower reads them without loading a journal. The store does not know what they mean.
//!
//! All documents have one version number together, which rises with every change. A change names the version that it was made
//! for, and is refused if there is another one by now: two administrators never overwrite each other unseen.

use std::collections::BTreeSet;
use std::fmt;

use crate::error::Error;
use crate::journal::Pending;

/// The name of a document: `token/ID`, `role/NAME`, `cluster-key`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Box<str>);

impl DocumentId {
    pub const LEN_MAX: usize = 160;

    /// `None` unless it is 1 to 160 of `[A-Za-z0-9._:@/-]`.
    pub fn new(id: &str) -> Option<DocumentId> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@/-".contains(&byte);
        let is_good = (1..=DocumentId::LEN_MAX).contains(&id.len()) && id.bytes().all(allowed);
        is_good.then(|| DocumentId(id.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A document. `Debug` does not print what is in it: there may be keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    id: DocumentId,
    body: Box<str>,
}

impl Document {
    pub const BYTES_MAX: usize = 16 * 1024;

    /// `None` if the body is too long.
    pub fn new(id: DocumentId, body: &str) -> Option<Document> {
        (body.len() <= Document::BYTES_MAX).then(|| Document { id, body: body.into() })
    }

    pub fn id(&self) -> &DocumentId {
        &self.id
    }

    pub fn body(&self) -> &str {
        &self.body
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({}, {} bytes)", self.id, self.body.len())
    }
}

/// All documents as of one version, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    pub version: u64,
    pub all: Vec<Document>,
}

/// Documents to put and to remove, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessChange {
    puts: Vec<Document>,
    removes: Vec<DocumentId>,
}

impl AccessChange {
    /// The most documents in one change.
    pub const LEN_MAX: usize = 64;

    /// `None` if a document is named twice, or they are none or too many.
    pub fn new(puts: Vec<Document>, removes: Vec<DocumentId>) -> Option<AccessChange> {
        let len = puts.len() + removes.len();
        let ids: BTreeSet<&DocumentId> = puts.iter().map(Document::id).chain(&removes).collect();
        let is_good = ids.len() == len && (1..=AccessChange::LEN_MAX).contains(&len);
        is_good.then_some(AccessChange { puts, removes })
    }

    pub fn puts(&self) -> &[Document] {
        &self.puts
    }

    pub fn removes(&self) -> &[DocumentId] {
        &self.removes
    }
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was made, and gave this version.
    To(u64),
    /// Nothing was changed: the version is another one by now.
    Conflict { version: u64 },
    /// Nothing was changed: there would be too many documents.
    Full,
}

/// The most documents in a store.
pub const DOCUMENTS_MAX: usize = 20_000;

/// The port to stored access documents. See the top of this file.
pub trait AccessStore: Send + Sync + fmt::Debug {
    /// The version of the documents; 0 before the first change. Cheap enough to be asked several times a second.
    fn version(&self) -> Pending<u64>;

    /// All documents, as of one moment.
    fn documents(&self) -> Pending<Documents>;

    /// Makes a change if the version is still `expected`: atomic and durable. A document to be removed need not be there.
    ///
    /// After [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) read the documents to learn what came of it.
    fn change(&self, expected: u64, change: AccessChange) -> Pending<Changed>;
}

/// Copies all documents to another store, in place of its own, and says how many. Other documents than these are replaced only if
/// `force` says so.
pub async fn copy_access(
    from: &dyn AccessStore,
    to: &dyn AccessStore,
    force: bool,
) -> Result<usize, Error> {
    let (source, target) = (from.documents().await?, to.documents().await?);
    if source.all == target.all || (source.all.is_empty() && !force) {
        return Ok(source.all.len());
    }
    if !target.all.is_empty() && !force {
        let said = "the store to copy to has roles and tokens of its own: --force replaces them";
        return Err(Error::unavailable(said));
    }
    let ids: BTreeSet<&DocumentId> = source.all.iter().map(Document::id).collect();
    let gone = target.all.iter().map(Document::id).filter(|id| !ids.contains(id));
    let removes = gone.cloned().map(|id| (None, Some(id)));
    let puts = source.all.iter().cloned().map(|document| (Some(document), None));
    let changes: Vec<(Option<Document>, Option<DocumentId>)> = removes.chain(puts).collect();
    let mut version = target.version;
    for part in changes.chunks(AccessChange::LEN_MAX) {
        let (puts, removes): (Vec<_>, Vec<_>) = part.iter().cloned().unzip();
        let puts = puts.into_iter().flatten().collect();
        let change = AccessChange::new(puts, removes.into_iter().flatten().collect());
        let change = change.expect("each document has an id of its own");
        match to.change(version, change).await? {
            Changed::To(next) => version = next,
            Changed::Conflict { .. } => {
                return Err(Error::unavailable("another server changes roles and tokens there"));
            }
            Changed::Full => return Err(Error::unavailable("there are too many tokens and roles")),
        }
    }
    Ok(source.all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_bodies_have_their_limits() {
        let id = |text: &str| DocumentId::new(text);
        assert!(id("token/7k2m9q4wx3ta").is_some() && id(&"x".repeat(160)).is_some());
        for bad in ["", "a b", "a\nb", "\u{e9}", &"x".repeat(161)] {
            assert_eq!(id(bad), None, "{bad:?}");
        }
        let document = |len: usize| Document::new(id("a").unwrap(), &"x".repeat(len));
        assert!(document(Document::BYTES_MAX).is_some());
        assert!(document(Document::BYTES_MAX + 1).is_none());
        assert_eq!(format!("{:?}", document(3).unwrap()), "Document(a, 3 bytes)");
    }

    #[test]
    fn change_names_each_document_once() {
        let id = |text: &str| DocumentId::new(text).unwrap();
        let document = |text: &str| Document::new(id(text), "{}").unwrap();
        assert!(AccessChange::new(vec![document("a")], vec![id("b")]).is_some());
        assert!(AccessChange::new(vec![], vec![]).is_none());
        assert!(AccessChange::new(vec![document("a")], vec![id("a")]).is_none());
        assert!(AccessChange::new(vec![document("a"), document("a")], vec![]).is_none());
        let many = (0..65).map(|number| id(&format!("a/{number}"))).collect();
        assert!(AccessChange::new(vec![], many).is_none());
    }
}
