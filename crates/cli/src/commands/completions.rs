//! `leasehold completions`

use clap::CommandFactory;

use super::Answered;
use crate::args::{Args, Completions};
use crate::output::Output;

pub(crate) fn run(out: &Output, args: &Completions) -> Answered {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "leasehold", &mut text);
    out.text(&String::from_utf8_lossy(&text));
    Ok(0)
}
