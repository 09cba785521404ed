//! Calls of cargo: the same one that runs us, in the workspace's folder, shown before it starts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A call of cargo, not yet started.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root).args(args);
    // What is said to us about our own package would let some dependencies be built anew.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_about_package) {
            command.env_remove(&name);
        }
    }
    command
}

fn is_about_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Runs the command to its end; a failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed");
    }
    Ok(())
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_shown_as_one_would_type_it() {
        let command = cargo(Path::new("."), &["fmt", "--all"]);
        assert_eq!(shown(&command), "cargo fmt --all");
    }

    #[test]
    fn failing_command_is_an_error_that_names_it() {
        let mut command = cargo(Path::new("."), &["no-such-command"]);
        let error = run(command.stderr(std::process::Stdio::null())).unwrap_err();
        assert_eq!(error.to_string(), "`cargo no-such-command` failed");
    }
}
