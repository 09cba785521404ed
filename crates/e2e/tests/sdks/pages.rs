//! What stands first in the README of an SDK and on its page of the documentation, run as it stands there.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use leasehold_e2e::tools::python_tool;

use super::building;
use super::harness::{Sdk, Stage, Store};

/// The address that pages are written with.
const SERVER: &str = "http://127.0.0.1:8080";

/// What a program has around the block: a store that says what it was given.
struct Around {
    language: &'static str,
    page: &'static str,
    before: &'static str,
    after: &'static str,
}

fn around(sdk: Sdk) -> Result<Around> {
    Ok(match sdk {
        Sdk::PythonAsyncio | Sdk::PythonSync => Around {
            language: "python",
            page: "python.md",
            before: "class Store:\n    def write(self, rows, token):\n        print('written', rows, token)\n\nstore, rows, batches = Store(), 'rows', ['rows']\n",
            after: "\nclient.close()\n",
        },
        Sdk::Go => Around {
            language: "go",
            page: "go.md",
            before: "package main\n\nimport (\n\t\"context\"\n\t\"errors\"\n\t\"fmt\"\n\t\"log\"\n\t\"time\"\n\n\tleasehold \"leasehold.example/sdk/go\"\n)\n\ntype database struct{}\n\nfunc (database) Write(_ context.Context, token uint64, rows string) error {\n\tfmt.Println(\"written\", rows, token)\n\treturn nil\n}\n\nfunc main() {\n\tctx, store, rows := context.Background(), database{}, \"rows\"\n",
            after: "\n\tif err != nil && !errors.Is(err, context.Canceled) {\n\t\tlog.Fatal(err)\n\t}\n}\n",
        },
        Sdk::TypeScript => Around {
            language: "ts",
            page: "typescript.md",
            before: "const store = { write: async (rows, how) => console.log(\"written\", rows, how.token) };\nconst [rows, batches] = [\"rows\", [\"rows\"]];\n",
            after: "\nawait client.close();\n",
        },
        Sdk::Rust | Sdk::RustHttp => bail!("the pages of the SDK for Rust are tests of its own"),
    })
}

pub(crate) async fn run(sdk: Sdk) -> Result<()> {
    let stage = Stage::of(sdk, Store::Memory).await?;
    let lies = building::built(sdk)?;
    let around = around(sdk)?;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    for page in [building::sources(sdk).join("README.md"), docs.join(around.page)] {
        let block = first_block(&page, around.language)?;
        ensure!(block.contains(SERVER), "{} names no server", page.display());
        let block = block.replace(SERVER, &stage.url());
        let program = format!("{}{block}{}", around.before, around.after);
        let folder = if sdk.is_compiled() {
            tempfile::Builder::new().prefix("page").tempdir_in(&lies)?
        } else {
            tempfile::tempdir()?
        };
        let mut command = command(sdk, &lies, folder.path(), &program)?;
        let done = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = String::from_utf8_lossy(&done.stdout);
        let complained = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success() && said.starts_with("written rows "),
            "{}: {said}{complained}",
            page.display()
        );
        ensure!(stage.is_free("db/migrate").await?, "it was not given back");
    }
    Ok(())
}

/// A program inside of the SDK, where its language finds the package by its name.
fn command(sdk: Sdk, lies: &Path, folder: &Path, program: &str) -> Result<Command> {
    let mut command;
    match sdk {
        Sdk::Go => {
            fs::write(folder.join("main.go"), program)?;
            command = building::go()?;
            command.args(["run", "."]);
        }
        Sdk::TypeScript => {
            fs::write(folder.join("program.mjs"), program)?;
            command = Command::new(python_tool("node")?);
            command.arg("program.mjs");
        }
        Sdk::PythonAsyncio | Sdk::PythonSync | Sdk::Rust | Sdk::RustHttp => {
            command = Command::new(python_tool("python")?);
            command.args(["-c", program]).env("PYTHONPATH", lies.join("src"));
            command.env("PYTHONDONTWRITEBYTECODE", "1");
        }
    }
    command.current_dir(folder);
    Ok(command)
}

fn first_block(page: &Path, language: &str) -> Result<String> {
    let text = fs::read_to_string(page)?;
    let begin = format!("```{language}\n");
    let block = text.split_once(&begin).and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.with_context(|| format!("no {language} in {}", page.display()))?;
    Ok(block.to_owned())
}
