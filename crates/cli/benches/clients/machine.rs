//! What limits every contender on this machine: a sync of the disk, and a round trip over loopback.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

const SAMPLES: usize = 500;

/// An `fdatasync` after 8 KiB were written over, as in a log that is used again: p50.
pub(crate) fn fdatasync(folder: &Path) -> std::io::Result<Duration> {
    use std::os::unix::fs::FileExt;
    let file = File::create(folder.join("sync"))?;
    let page = [7; 8192];
    for at in 0..64 {
        file.write_all_at(&page, at * page.len() as u64)?;
    }
    file.sync_all()?;
    let mut took = Vec::new();
    for number in 0..SAMPLES as u64 {
        let since = Instant::now();
        file.write_all_at(&page, number % 64 * page.len() as u64)?;
        file.sync_data()?;
        took.push(since.elapsed());
    }
    Ok(median(took))
}

/// A byte to another thread and back: p50.
pub(crate) fn loopback() -> std::io::Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while stream.read(&mut byte)? == 1 {
            stream.write_all(&byte)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut took = Vec::new();
    for _ in 0..SAMPLES {
        let since = Instant::now();
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        took.push(since.elapsed());
    }
    drop(stream);
    echo.join().expect("it does not panic")?;
    Ok(median(took))
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
