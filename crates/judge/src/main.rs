//! Judges a history that was saved: `cargo run --release -p leasehold-judge -- FILE`.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use leasehold_judge::checker::{Rules, check};
use leasehold_judge::history::load;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("name a file with a history")?;
    let history = load(Path::new(&path))?;
    let began = Instant::now();
    let checked = check(&history, Rules::default())?;
    println!("judged in {:?}: {checked:?}", began.elapsed());
    Ok(())
}
