//! A shell for the blocks of one page: in a directory of its own, with a server of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a block may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Says on a line of its own that a block has ended.
const END: &str = "\u{1}end of block";
/// The port that pages speak of.
const PORT_ON_PAGES: u16 = 8080;

/// Functions for the pages. The server is told where to listen, and its log is kept for when it does not start.
const PRELUDE: &str = r#"
start_server() {
    leasehold serve --data leasehold-data --listen "127.0.0.1:$PORT" >>server.log 2>&1 &
    SERVER=$!
    disown "$SERVER"
    local turn
    for turn in $(seq 300); do
        if curl -s -f -o ready.txt "127.0.0.1:$PORT/readyz"; then return 0; fi
        sleep 0.1
    done
    cat server.log
    return 1
}
kill_server() {
    kill -9 "$SERVER"
    while kill -0 "$SERVER" 2>&-; do sleep 0.02; done
}
"#;

#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    folder: PathBuf,
    port: u16,
    blocks: usize,
}

impl Shell {
    pub(super) fn with_server(binary: &Path) -> Result<Shell> {
        let binary = binary.canonicalize();
        let binary = binary.context("there is no server to run the pages against")?;
        let mut shell = Shell::start(binary.parent())?;
        shell.run(PRELUDE)?;
        shell.run("start_server").context("the server does not start")?;
        Ok(shell)
    }

    /// Without a server.
    #[cfg(test)]
    pub(super) fn plain() -> Result<Shell> {
        Shell::start(None)
    }

    fn start(programs: Option<&Path>) -> Result<Shell> {
        let folder = new_folder()?;
        // So that curl says no more than on a terminal.
        std::fs::write(folder.join(".curlrc"), "silent\nshow-error\n")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = programs.map(Path::to_path_buf);
        let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command
            .args(["--noprofile", "--norc", "-eu"])
            .current_dir(&folder)
            .env("PATH", path)
            .env("HOME", &folder)
            .env("PORT", port.to_string())
            .env("LEASEHOLD_ADDR", format!("http://127.0.0.1:{port}"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own, which ends as a whole.
            .process_group(0);
        let mut child = command.spawn().context("cannot start bash")?;
        let mut stdin = child.stdin.take().context("bash has no stdin")?;
        let stdout = child.stdout.take().context("bash has no stdout")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            for line in lines {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        stdin.write_all(b"exec 2>&1\n")?;
        Ok(Shell { child, stdin, lines, folder, port, blocks: 0 })
    }

    /// Runs a script in the shell, and returns all that it prints. One that fails is an error.
    pub(super) fn run(&mut self, script: &str) -> Result<String> {
        self.blocks += 1;
        let name = format!(".block-{}.sh", self.blocks);
        let script = self.with_port(script, PORT_ON_PAGES, self.port);
        std::fs::write(self.folder.join(&name), script + "\n")?;
        // Scripts are read from files: what they run must not read on from the shell's own input.
        writeln!(self.stdin, ". ./{name} </dev/null\nprintf '\\n%s\\n' '{END}'")?;
        let printed = self.printed()?;
        Ok(self.with_port(&printed, self.port, PORT_ON_PAGES))
    }

    /// All up to the end of the block.
    fn printed(&mut self) -> Result<String> {
        let since = Instant::now();
        let mut printed = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT.saturating_sub(since.elapsed())) {
                Ok(line) if line == END => return Ok(printed.join("\n").trim_end().to_string()),
                Ok(line) => printed.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("not done after {TIMEOUT:?}; so far:\n{}", printed.join("\n"))
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    bail!("it failed ({status}):\n{}", printed.join("\n").trim_end())
                }
            }
        }
    }

    fn with_port(&self, text: &str, from: u16, to: u16) -> String {
        ["localhost", "127.0.0.1"].iter().fold(text.to_string(), |text, host| {
            text.replace(&format!("{host}:{from}"), &format!("{host}:{to}"))
        })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The group is ours: nothing else is in it but what the page has started.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn new_folder() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("leasehold-docs-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}
