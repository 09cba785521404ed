//! The files that ports of the SDK are held to say what the machine does today.

use std::fs;
use std::path::Path;

use leasehold_sim::vectors;

#[test]
fn vectors_are_those_of_the_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/vectors");
    let wanted = vectors::all();
    let advice = "write them anew with `cargo xtask vectors`, and look at what has changed";
    for (path, text) in &wanted {
        let found = fs::read_to_string(folder.join(path)).unwrap_or_default();
        let differs = found.lines().zip(text.lines()).position(|(found, wanted)| found != wanted);
        assert!(found == *text, "{path} differs from line {differs:?} on: {advice}");
    }
    for path in vectors::present(&folder).unwrap() {
        assert!(wanted.contains_key(&path), "{path} is no vector any more: {advice}");
    }
}
