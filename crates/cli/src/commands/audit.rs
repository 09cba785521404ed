//! `leasehold audit`

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use leasehold_server::{AuditKey, verify_audit};

use super::Answered;
use crate::args::{AuditCommand, AuditHash, AuditTail, AuditVerify};
use crate::failure::{EXIT_IO, EXIT_NO, Failure};
use crate::output::Output;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const SECRET_LEN_MAX: u64 = 8192;

pub(crate) fn run(out: &Output, command: &AuditCommand) -> Answered {
    match command {
        AuditCommand::Tail(args) => tail(out, args),
        AuditCommand::Verify(args) => verify(out, args),
        AuditCommand::Hash(args) => hash(out, args),
    }
}

fn unread(path: &Path, error: &io::Error) -> Failure {
    Failure::new(EXIT_IO, format!("{}: {error}", path.display()))
}

fn tail(out: &Output, args: &AuditTail) -> Answered {
    let failed = |error: io::Error| unread(&args.file, &error);
    let mut reader = BufReader::new(File::open(&args.file).map_err(failed)?);
    let mut last = VecDeque::new();
    let mut line = String::new();
    while reader.read_line(&mut line).map_err(failed)? > 0 {
        last.push_back(std::mem::take(&mut line));
        if last.len() > args.lines {
            last.pop_front();
        }
    }
    last.iter().for_each(|line| out.text(line));
    if !args.follow {
        return Ok(0);
    }
    // What there is of a line so far; it ends with the next look.
    loop {
        if reader.read_line(&mut line).map_err(failed)? > 0 {
            if line.ends_with('\n') {
                out.text(&std::mem::take(&mut line));
            }
            continue;
        }
        if is_rotated(&args.file, reader.get_ref()).map_err(failed)? {
            reader = BufReader::new(File::open(&args.file).map_err(failed)?);
            continue;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether another file is at the path by now.
fn is_rotated(path: &Path, open: &File) -> io::Result<bool> {
    let ours = open.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) != (ours.dev(), ours.ino())),
        // Between two files there is none for a moment.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn verify(out: &Output, args: &AuditVerify) -> Answered {
    let verified = verify_audit(&args.files);
    let verified = verified.map_err(|error| Failure::new(EXIT_IO, error.to_string()))?;
    let is_whole = verified.faults.is_empty();
    let answer = serde_json::json!({
        "lines": verified.lines,
        "first_seq": verified.first_seq,
        "last_seq": verified.last_seq,
        "last_hash": verified.last_hash,
        "faults": verified.faults,
    });
    out.answer(&answer, |_| {
        let mut text: String = verified.faults.iter().map(|fault| format!("{fault}\n")).collect();
        let (first, last, hash) = (verified.first_seq, verified.last_seq, &verified.last_hash);
        match (verified.lines, is_whole) {
            (0, _) => text.push_str("no lines\n"),
            (lines, true) => text.push_str(&format!(
                "{lines} lines, seq {first} to {last}, nothing changed or missing; the last one is {hash}\n"
            )),
            (_, false) => {}
        }
        text
    });
    Ok(if is_whole { 0 } else { EXIT_NO })
}

fn hash(out: &Output, args: &AuditHash) -> Answered {
    let key =
        AuditKey::read(&args.key).map_err(|error| Failure::new(EXIT_IO, error.to_string()))?;
    let mut secret = String::new();
    io::stdin().take(SECRET_LEN_MAX).read_to_string(&mut secret)?;
    let hash = key.hash(secret.trim());
    out.answer(&serde_json::json!({ "hash": hash }), |_| format!("{hash}\n"));
    Ok(0)
}
