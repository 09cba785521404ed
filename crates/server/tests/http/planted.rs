//! The list of planted bugs and the hooks in the server say the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_hook_is_described_and_every_description_has_its_hook() {
    let described: BTreeSet<String> = include_str!("../../planted.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(": ")?.0.to_owned()))
        .collect();
    let mut hooks = BTreeSet::new();
    find_hooks(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut hooks);
    assert_eq!(hooks, described);
}

fn find_hooks(place: &Path, hooks: &mut BTreeSet<String>) {
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_hooks(&path, hooks);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let found = source.split("planted!(\"").skip(1);
            hooks.extend(found.filter_map(|rest| Some(rest.split('"').next()?.to_owned())));
        }
    }
}
