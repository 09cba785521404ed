//! Bearer tokens, access files and documents: any text is taken or refused; what is taken is written and read back alike.
#![no_main]

use leasehold_access::{AccessFile, Document, RoleRef, Snapshot, Token, document};
use leasehold_core::{Namespace, Scope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.reveal(), text);
        assert!(token.hash().is_of(&token));
    }
    if let Ok(role) = RoleRef::parse(text) {
        assert_eq!(RoleRef::parse(&role.to_string()), Ok(role));
    }
    for id in ["role/x", "token/000000000000"] {
        let _ = Document::parse(id, text);
    }
    let Ok(file) = AccessFile::parse(text) else { return };
    for (name, role) in &file.roles {
        let (id, body) = document::of_role(name, role);
        assert_eq!(Document::parse(&id, &body), Ok(Document::Role(name.clone(), role.clone())));
    }
    for token in &file.tokens {
        let (id, body) = document::of_token(token);
        assert_eq!(Document::parse(&id, &body), Ok(Document::Token(token.clone())));
    }
    let snapshot = Snapshot::new(1, &file, []);
    let scope = Scope::parse("a/b").expect("a plain name");
    for credential in snapshot.credentials() {
        let rights = credential.rights.in_namespace(&Namespace::default());
        let verbs = credential.rights.verbs();
        let visible = rights.visible(verbs, "");
        assert!(rights.allows(verbs, &scope).is_none() || visible.may_show("a/b"));
    }
});
