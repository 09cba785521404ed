//! The compiled rules against a matcher that is as plain as can be, and what may be listed against what may be seen.
#![allow(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use leasehold_access::{
    AccessFile, InodePattern, NamePattern, NamespacePattern, PathPattern, Rights, Role, RoleRef,
    Rule, RuleNamespace, Verb, Verbs, document,
};
use leasehold_core::{Namespace, Scope};
use proptest::collection::vec;
use proptest::prelude::*;

const READ: Verbs = Verbs::of(&[Verb::Read]);

fn name() -> impl Strategy<Value = String> {
    vec(prop_oneof!["a", "b", "ab", "a1", "flock:1"], 1..4).prop_map(|parts| parts.join("/"))
}

fn path() -> impl Strategy<Value = String> {
    vec(prop_oneof!["a", "b", "ab", "a b"], 0..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn lock() -> impl Strategy<Value = String> {
    prop_oneof![
        name(),
        path().prop_map(|path| format!("path:{path}")),
        path().prop_map(|path| format!("path:{}/**", path.trim_end_matches('/'))),
        (0..8u64).prop_map(|inode| format!("inode:{inode}")),
        (0..8u64).prop_map(|inode| format!("inode:{inode}@3..9")),
        (0..8u64).prop_map(|inode| format!("flock:{inode}")),
    ]
}

/// Patterns as they are written.
#[derive(Clone, Debug)]
struct Written {
    names: Vec<String>,
    paths: Vec<String>,
    inodes: Vec<String>,
}

fn written() -> impl Strategy<Value = Written> {
    let names = prop_oneof![
        6 => name(),
        6 => name().prop_map(|name| format!("{name}/")),
        1 => Just("*".to_owned()),
        1 => Just("flock:*".to_owned()),
    ];
    let paths =
        prop_oneof![path(), path().prop_map(|path| format!("{}/**", path.trim_end_matches('/'))),];
    let inodes = prop_oneof![
        (0..8u64).prop_map(|inode| inode.to_string()),
        (0..8u64, 1..4u64).prop_map(|(first, len)| format!("{first}..{}", first + len)),
        Just("*".to_owned()),
    ];
    (vec(names, 0..4), vec(paths, 0..3), vec(inodes, 0..2))
        .prop_map(|(names, paths, inodes)| Written { names, paths, inodes })
}

impl Written {
    fn rights(&self) -> Rights {
        let rule = Rule {
            verbs: READ,
            namespace: Some(RuleNamespace::Pattern(NamespacePattern::All)),
            names: self.names.iter().map(|text| NamePattern::parse(text).unwrap()).collect(),
            paths: self.paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect(),
            inodes: self.inodes.iter().map(|text| InodePattern::parse(text).unwrap()).collect(),
            ..Rule::default()
        };
        let role = Role { rules: vec![rule], quota: Default::default() };
        let mut rights = Rights::none();
        rights.add(&RoleRef::parse("r").unwrap(), &role).unwrap();
        rights
    }

    /// By cutting texts into parts and comparing them one by one.
    fn matches(&self, lock: &str) -> bool {
        let parts = |text: &str| -> Vec<String> {
            text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        if let Some(path) = lock.strip_prefix("path:") {
            let asks_subtree = path.ends_with("/**");
            let asked = parts(path.strip_suffix("/**").unwrap_or(path));
            return self.paths.iter().any(|pattern| match pattern.strip_suffix("/**") {
                Some(root) => asked.starts_with(&parts(root)),
                None => !asks_subtree && asked == parts(pattern),
            });
        }
        if let Some(file) = lock.strip_prefix("inode:") {
            let inode: u64 = file.split('@').next().unwrap().parse().unwrap();
            return self.inodes.iter().any(|pattern| match pattern.split_once("..") {
                None => pattern == "*" || pattern.parse() == Ok(inode),
                Some((first, end)) => {
                    (first.parse().unwrap()..end.parse().unwrap()).contains(&inode)
                }
            });
        }
        let asked = parts(lock);
        self.names.iter().any(|pattern| match pattern.strip_suffix('/') {
            Some(begin) => {
                let begin = parts(begin);
                asked.len() > begin.len() && asked.starts_with(&begin)
            }
            None if pattern == "*" => true,
            None if pattern == "flock:*" => {
                asked.len() == 1
                    && lock.strip_prefix("flock:").is_some_and(|n| n.parse::<u64>().is_ok())
            }
            None => lock == pattern,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_rules_match_as_plain_ones_do(written in written(), locks in vec(lock(), 1..20)) {
        let rights = written.rights().in_namespace(&Namespace::default());
        for lock in locks {
            let found = rights.allows(READ, &Scope::parse(&lock).unwrap()).is_some();
            prop_assert_eq!(found, written.matches(&lock), "{} {:?}", lock, &written);
        }
    }

    #[test]
    fn what_may_be_seen_lies_in_what_may_be_listed(
        written in written(),
        locks in vec(lock(), 1..20),
        prefix in prop_oneof![4 => Just(String::new()), 1 => name(), 1 => Just("path:".to_owned()), 1 => path().prop_map(|path| format!("path:{path}"))],
    ) {
        let rights = written.rights().in_namespace(&Namespace::default());
        let visible = rights.visible(READ, &prefix);
        prop_assert!(visible.keys.len() <= 64);
        prop_assert!(visible.keys.windows(2).all(|two| two[0].1.as_ref().is_some_and(|end| *end <= two[1].0)));
        for lock in locks {
            let scope = Scope::parse(&lock).unwrap();
            let text = scope.to_string();
            let is_asked = text.starts_with(&prefix);
            let may_see = rights.allows(READ, &scope).is_some();
            match &scope {
                Scope::Key(_) => {
                    let is_listed = visible.may_show(&text);
                    prop_assert!(is_listed || !(may_see && is_asked), "{} hidden {:?}", text, &visible);
                    prop_assert!(is_asked || !is_listed, "{} was not asked for", text);
                    if is_listed && !visible.is_rough {
                        prop_assert!(may_see, "{} shown {:?}", text, &visible);
                    }
                }
                Scope::Range { inode, .. } => {
                    let is_listed = visible.inodes.iter().any(|(first, last)| (first..=last).contains(&inode));
                    prop_assert_eq!(is_listed, may_see);
                }
            }
            if is_asked && !may_see {
                prop_assert!(visible.is_filtered, "{} is left out without a word", text);
            }
        }
    }

    #[test]
    fn narrower_rights_show_what_both_show(one in written(), other in written(), locks in vec(lock(), 1..20)) {
        let source = other.rights();
        let rules = |written: &Written| -> Vec<Rule> {
            let role = |list: &[String]| format!("{list:?}");
            let mut kinds = Vec::new();
            for (kind, list) in [("names", &written.names), ("paths", &written.paths), ("inodes", &written.inodes)] {
                if !list.is_empty() {
                    kinds.push(format!("{kind} = {}", role(list)));
                }
            }
            if kinds.is_empty() {
                return Vec::new();
            }
            let text = format!("[role.r]\nrules = [{{ verbs = [\"read\"], namespace = \"*\", {} }}]", kinds.join(", "));
            AccessFile::parse(&text).unwrap().roles["r"].rules.clone()
        };
        let narrowed = one.rights().narrowed(&rules(&other)).in_namespace(&Namespace::default());
        let both = |scope: &Scope| {
            let here = |rights: Rights| rights.in_namespace(&Namespace::default()).allows(READ, scope).is_some();
            here(one.rights()) && here(source.clone())
        };
        let visible = narrowed.visible(READ, "");
        for lock in locks {
            let scope = Scope::parse(&lock).unwrap();
            let may_see = narrowed.allows(READ, &scope).is_some();
            prop_assert_eq!(may_see, both(&scope), "{}", &lock);
            if let Scope::Key(key) = &scope {
                prop_assert!(!may_see || visible.may_show(key.as_str()), "{}", &lock);
            }
        }
    }

    #[test]
    fn roles_survive_the_way_through_a_document(one in written(), two in written(), locks in 0..9u64) {
        let rule = |written: &Written| Rule {
            verbs: READ,
            namespace: Some(RuleNamespace::Given),
            names: written.names.iter().map(|text| NamePattern::parse(text).unwrap()).collect(),
            paths: written.paths.iter().map(|text| PathPattern::parse(text).unwrap()).collect(),
            inodes: written.inodes.iter().map(|text| InodePattern::parse(text).unwrap()).collect(),
            ..Rule::default()
        };
        let rules: Vec<Rule> = [rule(&one), rule(&two)].into_iter().filter(|rule| rule.check().is_ok()).collect();
        let quota = leasehold_access::Quota {
            locks: Some(locks),
            ttl_max: Some(std::time::Duration::from_secs(90)),
            ..Default::default()
        };
        let role = Role { rules, quota };
        let (id, body) = document::of_role("tenant", &role);
        let read = leasehold_access::Document::parse(&id, &body);
        prop_assert_eq!(read, Ok(leasehold_access::Document::Role("tenant".into(), role)));
    }
}

#[test]
fn whoever_may_see_all_has_nothing_left_out() {
    let rights = Rights::all().in_namespace(&Namespace::default());
    for prefix in ["", "a", "path:", "path:/a", "inode:", "inode:7", "flock:"] {
        let visible = rights.visible(READ, prefix);
        assert!(!visible.is_filtered && !visible.is_rough, "{prefix:?} {visible:?}");
        assert_eq!(visible.keys.len(), 1);
    }
}

#[test]
fn many_runs_are_joined_to_a_few() {
    let names: Vec<String> = (0..200).map(|number| format!("team-{number:03}/")).collect();
    let written = Written { names, paths: Vec::new(), inodes: Vec::new() };
    let visible = written.rights().in_namespace(&Namespace::default()).visible(READ, "");
    assert!(visible.keys.len() <= 64 && visible.is_rough && visible.is_filtered);
    assert!((0..200).all(|number| visible.may_show(&format!("team-{number:03}/x"))));
    assert!(!visible.may_show("team") && !visible.may_show("zebra"));
}
