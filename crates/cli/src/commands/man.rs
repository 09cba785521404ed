//! `leasehold man`

use std::io;
use std::path::Path;

use clap::CommandFactory;

use super::Answered;
use crate::args::{Args, Man};
use crate::failure::{EXIT_IO, Failure};
use crate::output::Output;

pub(crate) fn run(out: &Output, args: &Man) -> Answered {
    let written = match &args.dir {
        Some(dir) => pages(dir),
        None => first_page().map(|page| out.text(&page)),
    };
    match written {
        Ok(()) => Ok(0),
        Err(error) => Err(Failure::new(EXIT_IO, format!("cannot write the manual: {error}"))),
    }
}

fn pages(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Args::command(), dir)
}

fn first_page() -> io::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
