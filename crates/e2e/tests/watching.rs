//! Watching over restarts: everything that was told goes on from there, and what was missed is told as a gap.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_client::wire::{Event, News};
use leasehold_client::{Client, Transport, Watch};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::{Server, binary};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);

/// The command `leasehold watch`; it is killed when this is dropped.
struct WatchCommand {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl WatchCommand {
    fn start(server: &Server) -> Result<WatchCommand> {
        let mut child = Command::new(binary()?)
            .args(["watch", "w/", "-o", "jsonl", "--addr"])
            .arg(format!("http://{}", server.address()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("it is piped")?);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(WatchCommand { child, lines })
    }

    fn next(&mut self) -> Result<Event> {
        let line = self.lines.recv_timeout(LONG);
        let line = line.with_context(|| format!("no event; {:?}", self.child.try_wait()))?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for WatchCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Watchers of each kind, all of which must see the same.
struct Watchers {
    client: Client,
    sdk: Vec<(Client, Watch)>,
    command: WatchCommand,
}

impl Watchers {
    async fn start(server: &Server) -> Result<Watchers> {
        let url = format!("http://{}", server.address());
        let mut sdk = Vec::new();
        for transport in [Transport::Http, Transport::Stream] {
            let client = Client::builder(&url).transport(transport).connect().await?;
            let watch = client.watch("w/", None).await?;
            sdk.push((client, watch));
        }
        let client = Client::connect(&url).await?;
        let mut watchers = Watchers { client, sdk, command: WatchCommand::start(server)? };
        watchers.command_has_begun().await?;
        Ok(watchers)
    }

    /// The command says nothing when it begins: something happens until it tells of it.
    async fn command_has_begun(&mut self) -> Result<()> {
        let since = Instant::now();
        while self.command.lines.try_recv().is_err() {
            ensure!(since.elapsed() < LONG, "the command does not begin");
            self.client.lock("w/first").acquire().await?.release().await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until each has told of a gap. What happened before that is in it.
    async fn miss_something(&mut self) -> Result<()> {
        for (_, watch) in &mut self.sdk {
            let mut gap = false;
            while !gap {
                let event =
                    tokio::time::timeout(LONG, watch.next()).await?.context("it ends")??;
                told(&event, "", &mut gap);
            }
        }
        let mut gap = false;
        while !gap {
            told(&self.command.next()?, "", &mut gap);
        }
        Ok(())
    }

    /// Takes a lock of this name, and says for each watcher whether a gap was told before it.
    async fn see(&mut self, name: &str) -> Result<Vec<bool>> {
        self.client.lock(name).acquire().await?.release().await?;
        let mut gaps = Vec::new();
        for (_, watch) in &mut self.sdk {
            let mut gap = false;
            loop {
                let event =
                    tokio::time::timeout(LONG, watch.next()).await?.context("it ends")??;
                if told(&event, name, &mut gap) {
                    break;
                }
            }
            gaps.push(gap);
        }
        let mut gap = false;
        while !told(&self.command.next()?, name, &mut gap) {}
        gaps.push(gap);
        Ok(gaps)
    }
}

fn told(event: &Event, name: &str, gap: &mut bool) -> bool {
    *gap |= event.news == News::Resync;
    matches!(&event.news, News::Ended { lock, .. } if lock == name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_go_on_where_they_were_when_the_server_restarts() -> Result<()> {
    let mut server = Server::start().await?;
    let mut watchers = Watchers::start(&server).await?;
    let election = watchers.client.election("boss");
    let mut observer = election.observe().await?;
    ensure!(observer.next().await?.is_none());
    ensure!(watchers.see("w/1").await? == [false; 3]);

    ensure!(server.stop().await?.success());
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.start_again().await?;
    ensure!(watchers.see("w/2").await? == [false; 3], "nothing was missed over a restart");

    server.kill()?;
    server.start_again().await?;
    ensure!(watchers.see("w/3").await? == [false; 3], "nothing was missed over kill -9");

    let leadership = election.campaign("here:1").await?;
    let leader = tokio::time::timeout(LONG, observer.next()).await??.context("one leads")?;
    ensure!(leader.fencing_token == leadership.fencing_token());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_is_a_gap_and_the_watch_goes_on() -> Result<()> {
    let mut server = Server::start_with(&["--store", "memory"]).await?;
    let mut watchers = Watchers::start(&server).await?;
    let mut observer = watchers.client.election("boss").observe().await?;
    let leadership = watchers.client.election("boss").campaign("here:1").await?;
    while observer.next().await?.is_none() {}
    ensure!(watchers.see("w/1").await? == [false; 3]);

    server.kill()?;
    server.start_again().await?;
    watchers.miss_something().await?;
    ensure!(watchers.see("w/2").await? == [false; 3], "one gap is told once");
    // Its lease is forgotten too.
    let leader = tokio::time::timeout(LONG, observer.next()).await??;
    ensure!(leader.is_none(), "{leader:?}");
    drop(leadership);
    Ok(())
}

/// What a long poll after this answers.
async fn events_after(server: &Server, after: &Value) -> Result<(u16, Value)> {
    let after = after.as_str().map_or_else(|| after.to_string(), str::to_string);
    let answer = Http::new(server.address()).get(&format!("/v1/events?after={after}")).await?;
    Ok((answer.status, answer.json()?))
}

#[tokio::test]
async fn a_cursor_that_does_not_fit_is_gone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut server = Server::start().await?;
    let client = Client::connect(&format!("http://{}", server.address())).await?;
    for n in 0..5 {
        client.lock(&format!("a/{n}")).acquire().await?.release().await?;
    }
    let backup = folder.path().join("backup.db");
    let leasehold =
        |args: &[&str]| Command::new(binary()?).args(args).output().map_err(anyhow::Error::from);
    let text = |path: &std::path::Path| path.to_str().map(str::to_string).context("it is text");
    let made = leasehold(&["backup", "--data", &text(server.data())?, &text(&backup)?])?;
    ensure!(made.status.success(), "{made:?}");
    for n in 0..5 {
        client.lock(&format!("b/{n}")).acquire().await?.release().await?;
    }
    let page = events_after(&server, &Value::from(2)).await?.1;
    let (revision, cursor) =
        (page["revision"].as_u64().context("a number")?, page["cursor"].clone());
    ensure!(
        cursor
            == format!(
                "{}-{revision}",
                page["events"][0]["cursor"]
                    .as_str()
                    .context("a cursor")?
                    .split_once('-')
                    .context("both")?
                    .0
            )
    );
    ensure!(events_after(&server, &cursor).await?.0 == 200);
    let ahead = events_after(&server, &Value::from(revision + 1)).await?;
    ensure!(ahead.0 == 410 && ahead.1["code"] == "revision_compacted", "{ahead:?}");

    ensure!(server.stop().await?.success());
    let restored = folder.path().join("restored");
    let made = leasehold(&["restore", "--data", &text(&restored)?, &text(&backup)?])?;
    ensure!(made.status.success(), "{made:?}");
    let server = Server::start_on(&restored, &[]).await?;
    let client = Client::connect(&format!("http://{}", server.address())).await?;
    // As many as were lost: the revisions must not meet those that were told before.
    for n in 0..10 {
        client.lock(&format!("c/{n}")).acquire().await?.release().await?;
    }
    for after in [cursor, Value::from(revision)] {
        let (status, problem) = events_after(&server, &after).await?;
        ensure!(status == 410, "{after}: {problem}");
    }
    Ok(())
}
