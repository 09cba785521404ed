//! `leasehold man`

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Args, Man};
use crate::fail;

const EXIT_FAILED: u8 = 74;

pub(crate) fn run(args: &Man) -> ExitCode {
    let command = Args::command();
    let written = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir))
        }
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            rendered.and_then(|()| std::io::stdout().write_all(&page))
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(EXIT_FAILED, &format!("cannot write the manual: {error}")),
    }
}
