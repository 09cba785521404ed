//! The cases about access documents. Each is the sentence that its name is.

use std::sync::Arc;

use super::Harness;
use super::steps::lead;
use crate::access::{AccessChange, AccessStore, Changed, Document, DocumentId, Documents};

async fn open(harness: &dyn Harness) -> Arc<dyn AccessStore> {
    harness.open().await.access().expect("it keeps access documents")
}

fn id(text: &str) -> DocumentId {
    DocumentId::new(text).expect("it is an id")
}

fn document(text: &str, body: &str) -> Document {
    Document::new(id(text), body).expect("it is short")
}

fn change(puts: &[(&str, &str)], removes: &[&str]) -> AccessChange {
    let puts = puts.iter().map(|(id, body)| document(id, body)).collect();
    AccessChange::new(puts, removes.iter().map(|text| id(text)).collect()).expect("it is a change")
}

async fn make(store: &Arc<dyn AccessStore>, expected: u64, wanted: AccessChange) -> Changed {
    store.change(expected, wanted).await.expect("a change can be asked for")
}

async fn read(store: &Arc<dyn AccessStore>) -> Documents {
    let documents = store.documents().await.expect("they can be read");
    assert_eq!(store.version().await.expect("it can be read"), documents.version);
    documents
}

fn documents(version: u64, all: &[(&str, &str)]) -> Documents {
    Documents { version, all: all.iter().map(|(id, body)| document(id, body)).collect() }
}

pub async fn access_documents_come_back_in_order(harness: &dyn Harness) {
    let store = open(harness).await;
    assert_eq!(read(&store).await, Documents::default());
    let odd = "{\"note\":\"it's \u{fc}n\u{ef}code \u{1f512}, $1 \\\\ ''\"}";
    let first = change(&[("token/b", odd), ("role/x", "{}"), ("token/A", "1")], &["never/there"]);
    assert_eq!(make(&store, 0, first).await, Changed::To(1));
    let expected = documents(1, &[("role/x", "{}"), ("token/A", "1"), ("token/b", odd)]);
    assert_eq!(read(&store).await, expected);
    let second = change(&[("token/b", "new"), ("cluster-key", "")], &["role/x"]);
    assert_eq!(make(&store, 1, second).await, Changed::To(2));
    let expected = documents(2, &[("cluster-key", ""), ("token/A", "1"), ("token/b", "new")]);
    assert_eq!(read(&store).await, expected);
}

pub async fn access_change_for_another_version_changes_nothing(harness: &dyn Harness) {
    let store = open(harness).await;
    for expected in [1, 7] {
        let refused = make(&store, expected, change(&[("a", "1")], &[])).await;
        assert_eq!(refused, Changed::Conflict { version: 0 });
    }
    assert_eq!(make(&store, 0, change(&[("a", "1"), ("b", "1")], &[])).await, Changed::To(1));
    let late = make(&store, 0, change(&[("a", "2"), ("c", "2")], &["b"])).await;
    assert_eq!(late, Changed::Conflict { version: 1 });
    assert_eq!(read(&store).await, documents(1, &[("a", "1"), ("b", "1")]));
}

pub async fn one_of_many_access_changes_at_once_is_made(harness: &dyn Harness) {
    let store = open(harness).await;
    let names: Vec<String> = (0..8).map(|number| format!("token/{number}")).collect();
    let asked: Vec<_> =
        names.iter().map(|name| store.change(0, change(&[(name, "x")], &[]))).collect();
    let mut made = Vec::new();
    for (name, answer) in names.iter().zip(asked) {
        let answer = answer.await.expect("a change can be asked for");
        if answer == Changed::To(1) {
            made.push(name.as_str());
        } else {
            assert_eq!(answer, Changed::Conflict { version: 1 });
        }
    }
    assert_eq!(made.len(), 1);
    assert_eq!(read(&store).await, documents(1, &[(made[0], "x")]));
}

pub async fn access_documents_are_there_after_reopening(harness: &dyn Harness) {
    let store = open(harness).await;
    assert_eq!(make(&store, 0, change(&[("a", "1")], &[])).await, Changed::To(1));
    drop(store);
    let store = open(harness).await;
    assert_eq!(read(&store).await, documents(1, &[("a", "1")]));
    assert_eq!(make(&store, 1, change(&[], &["a"])).await, Changed::To(2));
    drop(store);
    assert_eq!(read(&open(harness).await).await, documents(2, &[]));
}

pub async fn access_documents_do_not_ask_who_leads(harness: &dyn Harness) {
    let journal = harness.open().await;
    let store = journal.clone().access().expect("it keeps access documents");
    assert_eq!(make(&store, 0, change(&[("a", "1")], &[])).await, Changed::To(1));
    let epoch = lead(&journal).await;
    assert_eq!(make(&store, 1, change(&[("a", "2")], &[])).await, Changed::To(2));
    journal.resign(epoch).await.expect("it leads");
    assert_eq!(make(&store, 2, change(&[("b", "3")], &[])).await, Changed::To(3));
    assert_eq!(read(&store).await, documents(3, &[("a", "2"), ("b", "3")]));
}

pub async fn largest_access_change_is_made_whole(harness: &dyn Harness) {
    let store = open(harness).await;
    let body = "x".repeat(Document::BYTES_MAX);
    let names: Vec<String> =
        (0..AccessChange::LEN_MAX).map(|number| format!("token/{number:03}")).collect();
    let puts: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), &*body)).collect();
    assert_eq!(make(&store, 0, change(&puts, &[])).await, Changed::To(1));
    assert_eq!(read(&store).await, documents(1, &puts));
    let removes: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(make(&store, 1, change(&[], &removes)).await, Changed::To(2));
    assert_eq!(read(&store).await, documents(2, &[]));
}
