//! The SDKs in other languages than Rust: whether they are in order by the tools of their language, and whether what is
//! published of them can be installed and used.

pub(crate) mod go;
pub(crate) mod node;
mod python;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::{needs, test};

pub(crate) const CHORE: Chore = Chore {
    name: "sdk",
    args: "[LANGUAGE]",
    about: "Lint, type-check, test and package the SDKs in other languages",
    help: "LANGUAGE is one of:
  python      ruff, mypy --strict, pyright, pytest (vectors, units, Celery, APScheduler and Django); the wheel, installed into
              an empty environment
  go          gofmt, go vet, go test -race (vectors, tables, units, examples); a module that depends on ours
  typescript  tsc, node --test (vectors, tables, the client with a server) on Node 24; publint and attw; the package,
              installed into an empty project

Without one, all of them. The tools are installed first: see `cargo xtask needs --help`. Nothing is written into the
repository. How the SDKs fare with a real server under faults is a test of leasehold-e2e,
`cargo test -p leasehold-e2e --test sdks`, which is a part of `cargo xtask test`.",
    run: |root, args| {
        needs::install()?;
        // The tests of some start a server. Built as for all tests, or most dependencies would be built a second time.
        let server = ["test", "--locked", "--workspace", "--test", "help", "--no-run"];
        run(&mut cargo(root, &server))?;
        chosen(root, args)
    },
};

/// A language, and what must hold for its SDK.
type Language = (&'static str, fn(&Workshop) -> Result<()>);

const LANGUAGES: [Language; 3] =
    [("python", python::check), ("go", go::check), ("typescript", node::check)];

pub(crate) fn check(root: &Path) -> Result<()> {
    chosen(root, &[])
}

fn chosen(root: &Path, args: &[String]) -> Result<()> {
    let languages = match args {
        [] => LANGUAGES.to_vec(),
        [name] => LANGUAGES.into_iter().filter(|(own, _)| own == name).collect(),
        _ => Vec::new(),
    };
    if languages.is_empty() {
        bail!("name one language, or none: python, go, typescript");
    }
    for (name, check) in languages {
        let began = Instant::now();
        check(&Workshop::of(root, name, &test::server(root))?)?;
        eprintln!("the SDK for {name}: {} s", began.elapsed().as_secs());
    }
    Ok(())
}

/// Where an SDK lies, and what it is worked on with.
pub(crate) struct Workshop {
    root: PathBuf,
    pub(crate) sdk: PathBuf,
    pub(crate) tools: PathBuf,
    /// The binary of the server.
    server: PathBuf,
}

impl Workshop {
    pub(crate) fn of(root: &Path, name: &str, server: &Path) -> Result<Workshop> {
        let (sdk, tools) = (root.join("sdk").join(name), needs::tools_folder()?);
        Ok(Workshop { root: root.into(), sdk, tools, server: server.into() })
    }

    /// A program from the packages of PyPI: Python itself, Go, Node.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.tools.join("python/bin").join(name));
        command.current_dir(&self.sdk).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("LEASEHOLD_BIN", &self.server);
        command.env("LEASEHOLD_VECTORS", self.root.join("sdk/vectors"));
        command
    }

    /// An empty folder beside the tools.
    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.tools.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }
}

/// The first block of this language on the first screen of a README.
fn first_block(readme: &Path, language: &str) -> Result<String> {
    let text = fs::read_to_string(readme)?;
    let begin = format!("```{language}\n");
    let block = text.split_once(&begin).and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.with_context(|| format!("no {language} in {}", readme.display()))?;
    Ok(block.to_string())
}

/// The binary that a release build leaves in the target folder.
pub(crate) fn release(root: &Path) -> PathBuf {
    let server = test::server(root);
    let name = server.file_name().unwrap_or_default().to_os_string();
    server.with_file_name("").join("../release").join(name)
}

/// What a command prints.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?} failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}
