//! The list of planted bugs and the hooks in the code say the same.

use std::collections::BTreeSet;

#[test]
fn every_hook_is_described_and_every_description_has_its_hook() {
    let described: BTreeSet<&str> = include_str!("../planted.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(": ")?.0))
        .collect();
    let sources = [
        include_str!("../../engine/src/engine.rs"),
        include_str!("../../engine/src/member.rs"),
        include_str!("../../engine/src/snapshots.rs"),
        include_str!("../../store/src/memory.rs"),
        include_str!("../../client/src/machine/acquiring.rs"),
        include_str!("../../client/src/machine/holding.rs"),
        include_str!("../../client/src/machine/link.rs"),
        include_str!("../../client/src/machine/standing.rs"),
        include_str!("../src/store.rs"),
    ];
    let hooks: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| source.split("planted!(\"").skip(1))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert_eq!(hooks, described);
}
