//! The thread that writes: numbers each line, names the line before it by its hash, syncs, and rotates.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use super::key::KeyError;
use super::limit::Limiter;
use super::line::Line;
use crate::mac::{hex, sha256};

const SYNC_EVERY: Duration = Duration::from_secs(1);
/// More than a line can have.
const TAIL_LEN: u64 = 64 * 1024;

/// Something for the thread.
#[derive(Debug)]
pub(super) enum Entry {
    Line(String),
    /// Written and synced before the answer, which says whether they are; not at all if nobody waits for it any more.
    Required {
        bodies: Arc<[String]>,
        done: oneshot::Sender<bool>,
    },
    Reopen,
}

/// The reason why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot write the audit log {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the last line of the audit log {} cannot be read: is it one?", path.display())]
    NotALog { path: PathBuf },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot start the thread of the audit log: {0}")]
    Thread(io::Error),
}

/// The log file, and the position reached in it.
#[derive(Debug)]
pub(super) struct Log {
    sink: Sink,
    /// The number of the last line, and its hash.
    seq: u64,
    hash: [u8; 32],
    /// Bytes of a line that was torn when the server ended, and is cut off.
    torn: u64,
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(Rotated),
}

#[derive(Debug)]
struct Rotated {
    path: PathBuf,
    file: File,
    len: u64,
    bytes_max: u64,
    files_max: usize,
}

impl Log {
    pub(super) fn stderr() -> Log {
        Log { sink: Sink::Stderr, seq: 0, hash: [0; 32], torn: 0 }
    }

    /// Goes on where the file ends.
    pub(super) fn open(path: &Path, bytes_max: u64, files_max: usize) -> Result<Log, OpenError> {
        let failed = |source| OpenError::File { path: path.into(), source };
        let mut file = opened(path).map_err(failed)?;
        let torn = cut_torn(&mut file).map_err(failed)?;
        let mut last = last_line(&mut file).map_err(failed)?;
        // It was rotated, and nothing has happened since.
        if last.is_none()
            && let Ok(mut before) = File::open(rotated(path, 1))
        {
            last = last_line(&mut before).map_err(failed)?;
        }
        let (seq, hash) = match last {
            None => (0, [0; 32]),
            Some(line) => {
                let seq = seq_of(&line).ok_or_else(|| OpenError::NotALog { path: path.into() })?;
                (seq, sha256(&line))
            }
        };
        let len = file.metadata().map_err(failed)?.len();
        let sink = Sink::File(Rotated { path: path.into(), file, len, bytes_max, files_max });
        Ok(Log { sink, seq, hash, torn })
    }

    /// Writes a line; one that fails leaves nothing behind.
    pub(super) fn append(&mut self, body: &str) -> io::Result<()> {
        let seq = self.seq + 1;
        let mut line =
            format!("{{\"v\":1,\"seq\":{seq},{body},\"prev\":\"sha256:{}\"}}", hex(&self.hash));
        let hash = sha256(line.as_bytes());
        line.push('\n');
        match &mut self.sink {
            Sink::Stderr => io::stderr().lock().write_all(line.as_bytes())?,
            Sink::File(file) => file.append(line.as_bytes())?,
        }
        (self.seq, self.hash) = (seq, hash);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stderr => Ok(()),
            // A device has nothing to sync.
            Sink::File(rotated) => match rotated.file.sync_data() {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            },
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stderr => Ok(()),
            Sink::File(rotated) => rotated.reopen(),
        }
    }
}

impl Rotated {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let len = line.len() as u64;
        if self.len > 0 && self.len + len > self.bytes_max {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(line) {
            // What there is of it must not become part of the next line.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += len;
        Ok(())
    }

    /// The file becomes the first of the old ones; the oldest one goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        for number in (1..self.files_max).rev() {
            let (from, to) = (rotated(&self.path, number), rotated(&self.path, number + 1));
            match std::fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        std::fs::rename(&self.path, rotated(&self.path, 1))?;
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.file = opened(&self.path)?;
        self.len = self.file.metadata()?.len();
        Ok(())
    }
}

fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn opened(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// The end of a file, and where it begins.
fn tail(file: &mut File) -> io::Result<(u64, Vec<u8>)> {
    let metadata = file.metadata()?;
    let from = metadata.len().saturating_sub(TAIL_LEN);
    let mut tail = Vec::new();
    if metadata.is_file() {
        file.seek(SeekFrom::Start(from))?;
        file.take(TAIL_LEN).read_to_end(&mut tail)?;
    }
    Ok((from, tail))
}

/// Cuts off what a server that was killed had written of a line. Returns how much that was.
fn cut_torn(file: &mut File) -> io::Result<u64> {
    let (from, tail) = tail(file)?;
    let end = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let torn = (tail.len() - end) as u64;
    if torn > 0 {
        file.set_len(from + end as u64)?;
    }
    Ok(torn)
}

fn last_line(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let (_, mut tail) = tail(file)?;
    if tail.pop() != Some(b'\n') {
        return Ok(None);
    }
    let start = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    Ok(Some(tail.split_off(start)))
}

fn seq_of(line: &[u8]) -> Option<u64> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    line["seq"].as_u64()
}

/// The thread and what it knows.
#[derive(Debug)]
pub(super) struct Worker {
    log: Log,
    name: String,
    limiter: Arc<Limiter>,
    lost: Counter,
    /// The number of lost lines that the log has told of.
    told: u64,
    unsynced: bool,
    complained: Option<Instant>,
}

impl Worker {
    pub(super) fn new(log: Log, name: &str, limiter: Arc<Limiter>, lost: Counter) -> Worker {
        let told = lost.get();
        Worker { log, name: name.into(), limiter, lost, told, unsynced: false, complained: None }
    }

    /// Writes until everybody who could send something is gone.
    pub(super) fn run(mut self, entries: &Receiver<Entry>) {
        if self.log.torn > 0 {
            let line = Line::new("audit.torn", "ok").with("bytes", self.log.torn);
            self.line(&line.body(&self.name));
        }
        let mut tick = Instant::now() + SYNC_EVERY;
        loop {
            match entries.recv_timeout(tick.saturating_duration_since(Instant::now())) {
                Ok(Entry::Line(body)) => self.line(&body),
                Ok(Entry::Required { bodies, done }) => self.required(&bodies, done),
                Ok(Entry::Reopen) => {
                    if let Err(error) = self.log.reopen() {
                        self.complain(&error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= tick {
                self.tick();
                tick = Instant::now() + SYNC_EVERY;
            }
        }
        self.tick();
    }

    fn line(&mut self, body: &str) {
        match self.log.append(body) {
            Ok(()) => self.unsynced = true,
            Err(error) => {
                self.lost.inc();
                self.complain(&error);
            }
        }
    }

    fn required(&mut self, bodies: &[String], done: oneshot::Sender<bool>) {
        if done.is_closed() {
            return;
        }
        let written = bodies.iter().try_for_each(|body| self.log.append(body));
        let synced = written.and_then(|()| self.log.sync());
        if let Err(error) = &synced {
            self.complain(error);
        }
        let _ = done.send(synced.is_ok());
    }

    fn tick(&mut self) {
        for (address, count) in self.limiter.left_out(Instant::now()) {
            let line = Line::new("auth.more", "failed");
            let line = line.with("peer", address.to_string()).with("lines", count);
            self.line(&line.body(&self.name));
        }
        let lost = self.lost.get();
        if lost > self.told {
            let line = Line::new("audit.lost", "failed").with("lines", lost - self.told);
            if self.log.append(&line.body(&self.name)).is_ok() {
                (self.told, self.unsynced) = (lost, true);
            }
        }
        if std::mem::take(&mut self.unsynced)
            && let Err(error) = self.log.sync()
        {
            self.complain(&error);
        }
    }

    /// To the ordinary log, once a second.
    fn complain(&mut self, error: &io::Error) {
        if self.complained.is_none_or(|before| before.elapsed() >= SYNC_EVERY) {
            self.complained = Some(Instant::now());
            tracing::error!(error = %error, "the audit log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::verify;
    use super::*;

    fn lines(log: &mut Log, count: usize) {
        for _ in 0..count {
            log.append(&Line::new("test.line", "ok").body("s")).unwrap();
        }
    }

    #[test]
    fn file_goes_on_where_it_ended_and_what_was_torn_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        lines(&mut Log::open(&path, 1 << 20, 10).unwrap(), 3);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"{\"v\":1,\"seq\":4,\"at").unwrap();
        let mut log = Log::open(&path, 1 << 20, 10).unwrap();
        assert_eq!((log.seq, log.torn), (3, 18));
        lines(&mut log, 2);
        let verified = verify(std::slice::from_ref(&path)).unwrap();
        assert_eq!((verified.lines, verified.faults.len()), (5, 0), "{verified:?}");
        std::fs::write(&path, "not a log\n").unwrap();
        assert!(matches!(Log::open(&path, 1 << 20, 10), Err(OpenError::NotALog { .. })));
    }

    #[test]
    fn rotated_files_are_one_chain_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut log = Log::open(&path, 600, 3).unwrap();
        lines(&mut log, 20);
        let files: Vec<PathBuf> = [3, 2, 1].map(|number| rotated(&path, number)).into();
        let files: Vec<PathBuf> = files.into_iter().chain([path.clone()]).collect();
        assert!(files.iter().all(|file| std::fs::metadata(file).unwrap().len() <= 600));
        assert!(!rotated(&path, 4).exists());
        let verified = verify(&files).unwrap();
        assert_eq!((verified.last_seq, verified.faults.len()), (20, 0), "{verified:?}");
        // Others rotate it too.
        std::fs::rename(&path, folder.path().join("theirs")).unwrap();
        log.reopen().unwrap();
        lines(&mut log, 1);
        assert_eq!(verify(&[folder.path().join("theirs"), path]).unwrap().faults, [""; 0]);
    }

    #[test]
    fn line_that_cannot_be_written_is_not_counted() {
        let mut log = Log::open(Path::new("/dev/full"), 1 << 20, 3).unwrap();
        let body = Line::new("test.line", "ok").body("s");
        log.append(&body).unwrap_err();
        assert_eq!((log.seq, log.hash), (0, [0; 32]));
    }
}
