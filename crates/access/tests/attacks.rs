//! Attacks that the rules alone must stop, each as it would be tried.
#![allow(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use std::collections::BTreeMap;

use leasehold_access::{
    AccessFile, Object, Operation, Refused, Rights, RoleRef, Snapshot, Token, Verb, Verbs, document,
};
use leasehold_core::{Namespace, Principal, RegisterName, Scope};

const ACQUIRE: Verbs = Verbs::of(&[Verb::Acquire]);
const READ: Verbs = Verbs::of(&[Verb::Read]);

fn token(seed: u8) -> Token {
    Token::mint(&[seed; Token::RANDOM_BYTES])
}

/// The rights of one role, written as in a file.
fn rights(rules: &str) -> Rights {
    let file = AccessFile::parse(&format!("[role.tenant]\nrules = [\n{rules}\n]\n")).unwrap();
    let mut rights = Rights::none();
    rights.add(&RoleRef::parse("tenant").unwrap(), &file.roles["tenant"]).unwrap();
    rights
}

fn may(rights: &Rights, namespace: &str, lock: &str) -> bool {
    let scope = Scope::parse(lock).unwrap();
    rights.in_namespace(&Namespace::new(namespace).unwrap()).allows(ACQUIRE, &scope).is_some()
}

/// Attack 20.
#[test]
fn names_below_a_name_are_not_names_that_begin_alike() {
    let rights =
        rights(r#"{ verbs = ["acquire"], namespace = "default", names = ["app1/", "b"] },"#);
    for allowed in ["app1/x", "app1/x/y", "b"] {
        assert!(may(&rights, "default", allowed), "{allowed}");
    }
    for denied in ["app10/x", "app1", "APP1/x", "app1%2F..%2Fapp2", "app", "b/c", "path:/app1/x"] {
        assert!(!may(&rights, "default", denied), "{denied}");
    }
    assert!(Scope::parse("app1/../app2/x").is_err());
    // The decomposed twin of a name is refused before it is compared with anything.
    assert!(Scope::parse("app1/cafe\u{301}").is_err());
    assert!(!may(&rights, "other", "app1/x"));
}

/// Attack 21.
#[test]
fn what_is_asked_must_lie_inside_a_subtree() {
    let rights = rights(r#"{ verbs = ["acquire"], namespace = "default", paths = ["/a/**"] },"#);
    for allowed in ["path:/a", "path:/a/b", "path:/a/**", "path:/a/b/**", "path:/a//./b"] {
        assert!(may(&rights, "default", allowed), "{allowed}");
    }
    for denied in ["path:/**", "path:/", "path:/ab", "path:/ab/**", "path:/b", "a/b", "inode:1"] {
        assert!(!may(&rights, "default", denied), "{denied}");
    }
    assert!(Scope::parse("path:/a/../b").is_err());
}

#[test]
fn files_are_allowed_by_number_and_flocks_with_them() {
    let rights = rights(
        r#"{ verbs = ["acquire"], namespace = "nfs", inodes = [7, "10..20"], names = ["flock:*"] },"#,
    );
    for allowed in ["inode:7", "inode:10@0..5", "inode:19", "flock:7", "flock:99"] {
        assert!(may(&rights, "nfs", allowed), "{allowed}");
    }
    for denied in ["inode:8", "inode:20", "flock:x", "flock:7/x", "flock"] {
        assert!(!may(&rights, "nfs", denied), "{denied}");
    }
}

/// Attack 22.
#[test]
fn set_is_refused_as_a_whole_and_names_the_first_that_is_forbidden() {
    let rights = rights(r#"{ verbs = ["acquire"], namespace = "default", names = ["a", "b"] },"#);
    let namespace = Namespace::default();
    let scopes = ["a", "x", "y"].map(|name| Scope::parse(name).unwrap());
    let decide =
        |scopes: &[&Scope]| rights.decide(Operation::Acquire, Object::Scopes(&namespace, scopes));
    let denied = decide(&[&scopes[0], &scopes[1], &scopes[2]]).unwrap_err();
    assert_eq!((denied.claim, denied.verbs.to_string()), (1, "acquire".into()));
    let source = decide(&[&scopes[0]]).unwrap().unwrap();
    assert_eq!(source.to_string(), "rule 1 of role tenant");
}

/// Attack 23: the namespace that is checked is the one that is used, and patterns of namespaces do not leak.
#[test]
fn namespaces_match_whole_parts() {
    let rights = rights(
        r#"{ verbs = ["acquire"], namespace = "team-a.*", names = "*" },
           { verbs = ["acquire"], namespace = "exactly", names = "*" },"#,
    );
    for (namespace, allowed) in [
        ("team-a.x", true),
        ("team-a.x.y", true),
        ("team-a", false),
        ("team-a.", false),
        ("team-ab", false),
        ("xteam-a.x", false),
        ("exactly", true),
        ("exactly.x", false),
        ("Exactly", false),
    ] {
        assert_eq!(may(&rights, namespace, "job"), allowed, "{namespace}");
    }
}

/// Attack 24.
#[test]
fn reserved_namespaces_are_not_among_all() {
    let client = |namespace: &str| {
        let role = Snapshot::default().role("client").unwrap();
        let mut rights = Rights::none();
        rights.add(&RoleRef::parse(&format!("client:{namespace}")).unwrap(), &role).unwrap();
        rights
    };
    assert!(!may(&client("*"), "leasehold.simple", "lock"));
    assert!(!may(&client("leasehold/*"), "leasehold.simple", "lock"));
    assert!(may(&client("leasehold.simple"), "leasehold.simple", "lock"));
    assert!(may(&client("*"), "default", "lock"));
    assert!(may(&Rights::all(), "leasehold.simple", "lock"));
}

#[test]
fn operations_need_what_the_table_says() {
    let rights = rights(
        r#"{ verbs = ["acquire", "read"], namespace = "default", names = "a/" },
           { verbs = ["fence"], namespace = "default", fences = ["reports/"] },
           { verbs = ["metrics"] },"#,
    );
    let (namespace, lock) = (Namespace::default(), Scope::parse("a/x").unwrap());
    let other = Namespace::new("other").unwrap();
    let register = |name: &str| RegisterName::new(name).unwrap();
    let is_allowed = |operation, object: Object<'_>| rights.decide(operation, object).is_ok();
    assert!(is_allowed(Operation::Acquire, Object::Scopes(&namespace, &[&lock])));
    assert!(is_allowed(Operation::GetLock, Object::Scopes(&namespace, &[&lock])));
    assert!(!is_allowed(Operation::BreakLock, Object::Scopes(&namespace, &[&lock])));
    assert!(is_allowed(Operation::OpenSession, Object::Namespace(&namespace)));
    assert!(!is_allowed(Operation::OpenSession, Object::Namespace(&other)));
    assert!(!is_allowed(Operation::Watch, Object::Namespace(&namespace)));
    assert!(!is_allowed(Operation::BreakSession, Object::Namespace(&namespace)));
    let accept = |name: &str| {
        is_allowed(Operation::AcceptFence, Object::Register(&namespace, &register(name)))
    };
    assert!(accept("reports/x") && !accept("reports") && !accept("other"));
    assert!(is_allowed(Operation::Metrics, Object::Server));
    assert!(!is_allowed(Operation::Administer, Object::Server));
    assert!(is_allowed(Operation::UseLease, Object::Server));
    // An operation about a lock, without one.
    assert!(!is_allowed(Operation::Acquire, Object::Server));
    assert!(!is_allowed(Operation::Acquire, Object::Namespace(&namespace)));
    let nobody = Rights::none();
    for operation in Operation::ALL {
        use leasehold_access::Need::{Nothing, Principal};
        let open = matches!(operation.needs(), Nothing | Principal);
        let scopes = [&lock];
        for object in [Object::Server, Object::Namespace(&namespace)]
            .into_iter()
            .chain([Object::Scopes(&namespace, &scopes)])
        {
            assert_eq!(nobody.decide(operation, object).is_ok(), open, "{operation:?}");
            let root = Rights::all().decide(operation, Object::Scopes(&namespace, &scopes));
            let needs_register = matches!(operation, Operation::AcceptFence | Operation::GetFence);
            assert_eq!(root.is_ok(), !needs_register, "{operation:?}");
        }
    }
}

/// Attack 2 and 6: one hash for each token that has the form of one, known or not.
#[test]
fn credentials_that_are_not_good_are_refused_alike() {
    let (mine, other) = (token(1), token(2));
    let file = format!(
        "[[token]]\nid = \"{}\"\nprincipal = \"billing\"\nroles = [\"reader\"]\nsha256 = \"{}\"\n\
         not_before = 2026-01-01T00:00:00Z\nexpires = 2027-01-01T00:00:00Z\ncidrs = [\"10.0.0.0/8\"]\n",
        mine.id(),
        mine.hash(),
    );
    let snapshot = Snapshot::new(1, &AccessFile::parse(&file).unwrap(), []);
    let (near, now) = ("10.0.0.1".parse().ok(), 1_780_000_000);
    let refused = |text: &str, peer, now| snapshot.authenticate(text, peer, now).unwrap_err();
    let good = snapshot.authenticate(mine.reveal(), near, now).unwrap();
    assert_eq!(good.record.principal, Principal::new("billing").unwrap());
    assert!(good.rights.verbs().contains(Verb::Read));
    assert_eq!(refused(other.reveal(), near, now), Refused::Unknown);
    assert_eq!(refused(mine.reveal(), near, 1_700_000_000), Refused::NotYetValid);
    assert_eq!(refused(mine.reveal(), near, 1_900_000_000), Refused::Expired);
    assert_eq!(refused(mine.reveal(), "11.0.0.1".parse().ok(), now), Refused::Network);
    assert_eq!(refused("lk_", near, now), Refused::Malformed);
    // The id of one token with the secret of another.
    let mut random = [1; Token::RANDOM_BYTES];
    random[39] = 9;
    let forged = Token::mint(&random);
    assert_eq!(forged.id(), mine.id());
    assert_eq!(refused(forged.reveal(), near, now), Refused::WrongSecret);
}

#[test]
fn token_is_good_no_longer_than_what_it_was_made_with() {
    let (parent, child, grandchild) = (token(1), token(2), token(3));
    let file = format!(
        "[[token]]\nid = \"{}\"\nprincipal = \"billing\"\nroles = [\"client:x\", \"reader\"]\nsha256 = \"{}\"\n",
        parent.id(),
        parent.hash()
    );
    let file = AccessFile::parse(&file).unwrap();
    let narrowing = |rules: &str| {
        let file = AccessFile::parse(&format!("[role.r]\nrules = [{rules}]")).unwrap();
        leasehold_access::Narrowing {
            rules: Some(file.roles["r"].rules.clone()),
            ..leasehold_access::Narrowing::default()
        }
    };
    let only_job = r#"{ verbs = ["acquire", "read"], namespace = "x", names = "job" }"#;
    let made = file.tokens[0].narrow(&child, narrowing(only_job), 100).unwrap();
    let all = r#"{ verbs = ["acquire"], namespace = "*", names = "*" }"#;
    let again = made.narrow(&grandchild, narrowing(all), 100).unwrap();
    let documents: BTreeMap<String, String> =
        [document::of_token(&made), document::of_token(&again)].into();
    let stored = || documents.iter().map(|(id, body)| (&**id, &**body));
    let snapshot = Snapshot::new(1, &file, stored());
    assert_eq!(snapshot.faults(), []);
    let rights = |token: &Token| {
        snapshot.authenticate(token.reveal(), None, 100).map(|found| found.rights.clone())
    };
    let (first, second) = (rights(&child).unwrap(), rights(&grandchild).unwrap());
    assert!(may(&first, "x", "job") && !may(&first, "x", "other") && !may(&first, "y", "job"));
    assert!(may(&second, "x", "job") && !may(&second, "x", "other"));
    let namespace = Namespace::new("x").unwrap();
    assert!(first.in_namespace(&namespace).allows(READ, &Scope::parse("job").unwrap()).is_some());
    assert!(second.in_namespace(&namespace).allows(READ, &Scope::parse("job").unwrap()).is_none());
    assert!(first.on_server(Verb::TokenSelf).is_none());
    // Revoke the first: what hangs on it is gone too.
    let snapshot = Snapshot::new(2, &AccessFile::default(), stored());
    let gone = snapshot.authenticate(grandchild.reveal(), None, 100);
    assert_eq!(gone.unwrap_err(), Refused::Unknown);
}

/// Attack 57: what a file must not say, with its line.
#[test]
fn files_with_faults_are_refused_with_the_line() {
    let hash = token(1).hash();
    let id = token(1).id();
    let head = format!("[[token]]\nid = \"{id}\"\nprincipal = \"a\"\nsha256 = \"{hash}\"\n");
    let rule = |rule: &str| format!("[role.x]\nrules = [\n  {rule},\n]\n");
    let cases = [
        ("colour = \"red\"\n".to_owned(), "line 1: unknown key \"colour\""),
        ("[role.x]\nrules = []\nrule = 1\n".into(), "line 3: unknown key \"rule\""),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x", names = ["app1*"] }"#),
            "line 3: \"app1*\" has a '*' in it",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "app*", names = "*" }"#),
            "line 3: \"app*\" has a '*'",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x", paths = ["/a/"] }"#),
            "line 3: \"/a/\" is not in canonical form: write \"/a\"",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x", paths = ["a/**"] }"#),
            "line 3: path \"a/**\" is not absolute",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x", names = ["a//b"] }"#),
            "line 3: name \"a//b\"",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x", names = ["path:/a"] }"#),
            "line 3: \"path:/a\" is not the name of a lock",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x", inodes = ["20..10"] }"#),
            "line 3: range \"20..10\" is empty",
        ),
        (
            rule(r#"{ verbs = ["acquire"], namespace = "x" }"#),
            "line 3: acquire has nothing to match",
        ),
        (
            rule(r#"{ verbs = ["acquire"], names = "*" }"#),
            "line 3: acquire is about things in a namespace",
        ),
        (
            rule(r#"{ verbs = ["fence"], namespace = "x", fences = "*", names = "*" }"#),
            "line 3: names match nothing",
        ),
        (
            rule(r#"{ verbs = ["acquires"], namespace = "x", names = "*" }"#),
            "line 3: there is no verb \"acquires\"",
        ),
        (
            rule(r#"{ verbs = [], namespace = "x", names = "*" }"#),
            "line 3: a rule has at least one verb",
        ),
        ("[role.admin]\nrules = []\n".into(), "line 1: role admin is built in"),
        ("[role.x]\nrules = []\n[role.x]\nrules = []\n".into(), "line 3: duplicate key"),
        ("[role.X]\nrules = []\n".into(), "line 1: role \"X\""),
        (format!("{head}roles = [\"client\"]\n"), "line 1: role client needs a namespace"),
        (format!("{head}roles = [\"x\"]\n{head}roles = [\"x\"]\n"), "line 6: token"),
        (format!("{head}roles = [\"x\"]\nexpires = 2027-01-01\n"), "line 6: expires is a moment"),
        (
            format!("{head}roles = [\"x\"]\ncidrs = \"10.0.0.1/8\"\n"),
            "line 6: 10.0.0.1 has bits behind its /8",
        ),
        (format!("{head}roles = [\"x\"]\nparent = \"{id}\"\n"), "line 6: unknown key \"parent\""),
        (
            head.replace("\"a\"", "\"uid/0\"") + "roles = []\n",
            "line 3: principal \"uid/0\" is reserved",
        ),
        (head.clone(), "line 1: roles is missing"),
        (
            "[principal.anonymous]\nroles = []\n".into(),
            "line 1: principal \"anonymous\" is reserved",
        ),
        (
            "[role.x]\nrules = []\nquota = { ttl_max = \"1 hour\" }\n".into(),
            "line 3: ttl_max is a duration",
        ),
        (
            "[role.x]\nrules = []\nquota = { locks = -1 }\n".into(),
            "line 3: locks is a whole number",
        ),
        ("[role\n".into(), "line 1: "),
    ];
    for (text, said) in cases {
        let fault = AccessFile::parse(&text).expect_err(&text).to_string();
        assert!(fault.starts_with(said), "{text}\nsaid {fault}\nnot  {said}");
    }
}

#[test]
fn no_fault_repeats_a_secret() {
    let made = token(1);
    let (secret, hash) = (made.reveal(), made.hash().to_string());
    for text in [
        format!("[[token]]\nid = \"{secret}\"\n"),
        format!("[[token]]\nsecret = \"{secret}\"\n"),
        format!("{secret} = 1\n"),
        format!("[role.{secret}]\nrules = []\n"),
        format!("[[token]]\nid = \"{}\"\nprincipal = \"{secret} {hash}\"\n", made.id()),
        format!("[[token]]\nid = \"{}\"\nprincipal = \"a\"\nsha256 = \"{secret}\"\n", made.id()),
        format!("[role.x]\nrules = [{{ verbs = [\"{secret}\"] }}]\n"),
        format!("[role.x]\nrules = [{{ verbs = [\"read\"], namespace = \"{secret}*\" }}]\n"),
        format!("x = \"{secret}\n"),
        format!("x = {secret}\n"),
    ] {
        let fault = AccessFile::parse(&text).expect_err(&text).to_string();
        assert!(!fault.contains(&secret[16..59]) && !fault.contains(&hash), "{fault}");
    }
}

/// Attack 57: the same id, or the same role, in the file and in the store.
#[test]
fn what_is_in_the_file_and_in_the_store_counts_for_neither() {
    let made = token(1);
    let text = format!(
        "[role.tenant]\nrules = [{{ verbs = [\"read\"], namespace = \"x\", names = \"*\" }}]\n\
         [[token]]\nid = \"{}\"\nprincipal = \"a\"\nroles = [\"admin\"]\nsha256 = \"{}\"\n",
        made.id(),
        made.hash()
    );
    let file = AccessFile::parse(&text).unwrap();
    let stored: BTreeMap<String, String> = [
        document::of_token(&file.tokens[0]),
        document::of_role("tenant", &file.roles["tenant"]),
        ("token/broken".into(), "{}".into()),
        ("cluster-key".into(), "not read here".into()),
    ]
    .into();
    let snapshot = Snapshot::new(7, &file, stored.iter().map(|(id, body)| (&**id, &**body)));
    let said: Vec<String> = snapshot.faults().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "role tenant is both in the file and in the store".to_owned(),
            "document token/broken: v is missing".into(),
            format!("token {} is both in the file and in the store", made.id()),
        ]
    );
    assert_eq!(snapshot.faults().iter().filter(|fault| fault.is_clash()).count(), 2);
    assert_eq!(snapshot.authenticate(made.reveal(), None, 0).unwrap_err(), Refused::Unknown);
    assert!(snapshot.role("tenant").is_none());
    assert_eq!(snapshot.generation(), 7);
}

#[test]
fn local_users_have_the_roles_that_the_file_gives_them() {
    let text = "[principal.\"uid/1000\"]\nroles = [\"client:default\", \"nothing\"]\n";
    let snapshot = Snapshot::new(1, &AccessFile::parse(text).unwrap(), []);
    let rights = snapshot.rights_without_token(&leasehold_access::principal::of_uid(1000)).unwrap();
    assert!(may(rights, "default", "job") && !may(rights, "other", "job"));
    assert!(snapshot.rights_without_token(&leasehold_access::principal::of_uid(0)).is_none());
    let said = snapshot.faults()[0].to_string();
    assert_eq!(said, "principal uid/1000: there is no role nothing");
}
