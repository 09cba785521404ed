//! Reads a log again: every line has the number after, and the hash of, the line before it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use crate::mac::{hex, sha256};

/// No line is longer.
const LINE_LEN_MAX: u64 = 64 * 1024;
/// After so many faults nothing more is looked at.
const FAULTS_MAX: usize = 20;

/// The report on files that were read one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub lines: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    /// The hash of the last line: the next line has it, in this file or in the one after it.
    pub last_hash: String,
    /// Each names its line.
    pub faults: Vec<String>,
}

#[derive(Debug)]
struct Before {
    place: String,
    seq: u64,
    hash: String,
}

/// Reads files, the oldest first.
pub fn verify(files: &[PathBuf]) -> io::Result<Verified> {
    let mut verified = Verified::default();
    let mut before: Option<Before> = None;
    for path in files {
        let mut reader = BufReader::new(File::open(path)?);
        let mut number = 0;
        loop {
            let mut line = Vec::new();
            (&mut reader).take(LINE_LEN_MAX).read_until(b'\n', &mut line)?;
            if line.is_empty() || verified.faults.len() >= FAULTS_MAX {
                break;
            }
            number += 1;
            let place = format!("{}:{number}", path.display());
            before = look(&mut verified, before, place, &line);
        }
    }
    if let Some(Before { seq, hash, .. }) = before {
        (verified.last_seq, verified.last_hash) = (seq, hash);
    }
    Ok(verified)
}

fn look(
    verified: &mut Verified,
    before: Option<Before>,
    place: String,
    line: &[u8],
) -> Option<Before> {
    verified.lines += 1;
    let mut fault = |said: String| verified.faults.push(said);
    let Some(text) = line.strip_suffix(b"\n") else {
        fault(format!("{place}: the line has no end"));
        return before;
    };
    let hash = format!("sha256:{}", hex(&sha256(text)));
    let read: Option<(u64, String)> =
        serde_json::from_slice(text).ok().and_then(|line: serde_json::Value| {
            Some((line["seq"].as_u64()?, line["prev"].as_str()?.to_owned()))
        });
    let Some((seq, prev)) = read else {
        fault(format!("{place}: this is not a line of an audit log"));
        // The next line still names it.
        let seq = before.as_ref().map_or(0, |before| before.seq + 1);
        return Some(Before { place, seq, hash });
    };
    match &before {
        None => verified.first_seq = seq,
        Some(before) if seq > before.seq + 1 => {
            let missing = seq - before.seq - 1;
            fault(format!(
                "{place}: {missing} lines before it are missing (after seq {})",
                before.seq
            ));
        }
        Some(before) if seq <= before.seq => {
            fault(format!("{place}: seq {seq} comes after seq {}", before.seq));
        }
        Some(before) if prev != before.hash => {
            fault(format!(
                "{}: seq {} was changed: the next line has another hash of it",
                before.place, before.seq
            ));
        }
        Some(_) => {}
    }
    if before.is_none() && seq == 1 && prev != format!("sha256:{}", hex(&[0; 32])) {
        verified.faults.push(format!("{place}: seq 1 names a line before it"));
    }
    Some(Before { place, seq, hash })
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::super::log::Log;
    use super::*;

    /// Attack 68.
    #[test]
    fn line_that_was_changed_or_cut_out_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut log = Log::open(&path, 1 << 20, 10).unwrap();
        for number in 0..6 {
            log.append(&Line::new("test.line", "ok").with("n", number).body("s")).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let all: Vec<&str> = text.lines().collect();
        let faults = |lines: &[String]| {
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
            verify(std::slice::from_ref(&path)).unwrap().faults
        };
        let own: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(faults(&own), [""; 0]);
        let mut changed = own.clone();
        changed[2] = changed[2].replace("\"n\":2", "\"n\":7");
        let said = faults(&changed);
        assert!(said.len() == 1 && said[0].contains(":3: seq 3 was changed"), "{said:?}");
        let mut cut = own.clone();
        cut.remove(3);
        let said = faults(&cut);
        assert!(
            said.len() == 1 && said[0].contains(":4: 1 lines before it are missing"),
            "{said:?}"
        );
        let mut swapped = own.clone();
        swapped.swap(1, 2);
        assert!(!faults(&swapped).is_empty());
        let mut broken = own.clone();
        broken[4] = "{".into();
        let said = faults(&broken);
        assert!(said[0].contains(":5: this is not a line"), "{said:?}");
        let mut first = own;
        first.remove(0);
        assert_eq!(faults(&first), [""; 0], "older files were not given");
    }
}
