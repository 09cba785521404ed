//! The chores of the workspace. `cargo xtask --help` lists them; each has a file of its own.

mod check;
mod fix;
mod test;

mod bench;
mod book;
mod campaign;
mod console;
mod deps;
mod dist;
mod docs;
mod fuzz;
mod needs;
mod planted;
mod platforms;
mod release;
mod sdk;
mod sim;
mod tidy;
mod vectors;

mod cargo;
mod workspace;

use std::path::Path;
use std::process::ExitCode;

/// Something that is done to the workspace from the command line.
struct Chore {
    name: &'static str,
    /// What may follow the name.
    args: &'static str,
    /// One line for the list.
    about: &'static str,
    /// The rest of the story, for `--help`.
    help: &'static str,
    run: fn(&Path, &[String]) -> anyhow::Result<()>,
}

/// In the order of the list that `--help` prints.
const CHORES: &[Chore] = &[
    check::CHORE,
    fix::CHORE,
    test::CHORE,
    docs::CHORE,
    needs::CHORE,
    deps::CHORE,
    bench::CHORE,
    sim::CHORE,
    campaign::CHORE,
    planted::CHORE,
    fuzz::CHORE,
    tidy::CHORE,
    vectors::CHORE,
    platforms::CHORE,
    sdk::CHORE,
    dist::CHORE,
    book::CHORE,
    release::CHORE,
    console::SCREENSHOTS,
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        None => usage_fault("name a chore"),
        Some((name, _)) if is_help(name) => {
            println!("{}", overview());
            ExitCode::SUCCESS
        }
        Some((name, rest)) => match CHORES.iter().find(|chore| chore.name == name) {
            Some(chore) => start(chore, rest),
            None => usage_fault(&format!("there is no chore {name:?}")),
        },
    }
}

fn start(chore: &Chore, args: &[String]) -> ExitCode {
    if args.first().is_some_and(|arg| is_help(arg)) {
        println!("{}", details(chore));
        return ExitCode::SUCCESS;
    }
    if chore.args.is_empty() && !args.is_empty() {
        return usage_fault(&format!("{} takes no arguments", chore.name));
    }
    match (chore.run)(&workspace::root(), args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_help(arg: &str) -> bool {
    matches!(arg, "help" | "--help" | "-h")
}

fn usage_fault(what: &str) -> ExitCode {
    eprintln!("error: {what}\n\n{}", overview());
    ExitCode::from(2)
}

fn overview() -> String {
    let mut text = String::from("Usage: cargo xtask <CHORE> [ARGS]\n\nChores:\n");
    for chore in CHORES {
        text += &format!("  {:<22}{}\n", format!("{} {}", chore.name, chore.args), chore.about);
    }
    text + "\n`cargo xtask <CHORE> --help` tells more about one of them."
}

fn details(chore: &Chore) -> String {
    let usage = format!("cargo xtask {} {}", chore.name, chore.args);
    format!("{}\n\nUsage: {}\n\n{}", chore.about, usage.trim_end(), chore.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chore_is_listed_under_its_own_name() {
        for (at, chore) in CHORES.iter().enumerate() {
            assert!(overview().contains(&format!("\n  {} ", chore.name)), "{}", chore.name);
            assert!(CHORES[..at].iter().all(|other| other.name != chore.name), "{}", chore.name);
        }
    }

    #[test]
    fn help_of_a_chore_says_how_it_is_called() {
        assert!(details(&bench::CHORE).contains("Usage: cargo xtask bench [--write] [NAME"));
        assert!(details(&check::CHORE).contains("Usage: cargo xtask check\n"));
    }
}
