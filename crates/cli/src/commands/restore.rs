//! `leasehold restore`

use std::process::ExitCode;

use leasehold_server::{Fence, Store, restore};

use super::backup::one_line;
use crate::args::Restore;
use crate::fail;

const EXIT_USAGE: u8 = 64;
const EXIT_FAILED: u8 = 74;

pub(crate) fn run(args: &Restore) -> ExitCode {
    let fence_above = match args.fence_above.map(Fence::new) {
        None => None,
        Some(Some(fence)) => Some(fence),
        Some(None) => return fail(EXIT_USAGE, "--fence-above is higher than any token there is"),
    };
    if let Err(error) = std::fs::create_dir_all(&args.data) {
        return fail(EXIT_FAILED, &format!("cannot make {}: {error}", args.data.display()));
    }
    let Store::Sqlite(to) = Store::in_directory(&args.data) else {
        unreachable!("a data directory has an SQLite file")
    };
    match restore(&args.from, &to, fence_above) {
        Ok(done) => {
            println!("{}: fencing tokens go on above {}", to.display(), done.fence);
            ExitCode::SUCCESS
        }
        Err(error) => fail(EXIT_FAILED, &one_line(&error)),
    }
}
