//! Builds the files of the console into the server: a table of them, each with its type and a tag for caches.

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    println!("cargo:rerun-if-changed={}", console.display());
    let mut files = Vec::new();
    gather(&console, &mut files)?;
    files.sort();
    let mut table = String::from("static FILES: &[File] = &[\n");
    for file in &files {
        let name = file.strip_prefix(&console).map_err(io::Error::other)?;
        let name = name.to_string_lossy().replace('\\', "/");
        let Some(kind) = kind(&name) else { continue };
        let mut hasher = DefaultHasher::new();
        fs::read(file)?.hash(&mut hasher);
        let etag = format!("\"{:016x}\"", hasher.finish());
        let place = file.display().to_string();
        writeln!(
            table,
            "    File {{ path: {name:?}, kind: {kind:?}, etag: {etag:?}, bytes: include_bytes!({place:?}) }},"
        )
        .map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    let out = std::env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::other("no OUT_DIR"))?;
    fs::write(out.join("console.rs"), table)
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The media type of a file; anything else is not part of the console.
fn kind(name: &str) -> Option<&'static str> {
    Some(match name.rsplit('.').next()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}
