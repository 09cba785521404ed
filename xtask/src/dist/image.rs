//! An image in the layout of OCI, written without an engine: two layers, the C library below and the binary above.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Dist, VERSION, reproducible_tar, sha256, sorted};
use crate::cargo::run;

/// What the binary and TLS need; the newest that the sources of this machine have.
const BASE: [&str; 3] = ["libc6", "libgcc-s1", "ca-certificates"];
/// Who the server runs as.
const USER: &str = "65532";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

struct Layer {
    /// Of the tar archive.
    diff_id: String,
    descriptor: Value,
    about: &'static str,
}

pub(super) fn write(dist: &Dist) -> Result<()> {
    let layout = dist.stage.join("oci");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layers = [base(dist, &blobs)?, program(dist, &blobs)?];
    let architecture = dist.architecture()?.debian;
    let config = blob(&blobs, CONFIG, serde_json::to_vec(&config(architecture, &layers))?)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": layers.each_ref().map(|layer| &layer.descriptor),
    });
    let mut manifest = blob(&blobs, MANIFEST, serde_json::to_vec(&manifest)?)?;
    manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": VERSION });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let archive = dist.out.join(format!("{}-oci.tar", dist.name()?));
    run(reproducible_tar().arg("-cf").arg(archive).arg("-C").arg(&layout).arg("."))
}

fn config(architecture: &str, layers: &[Layer]) -> Value {
    let history = |layer: &Layer| json!({ "created_by": layer.about });
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin:/bin", "LEASEHOLD_LISTEN=0.0.0.0:8080", "LEASEHOLD_DATA=/data"],
            "Entrypoint": ["/usr/bin/leasehold"],
            "Cmd": ["serve"],
            "ExposedPorts": { "8080/tcp": {} },
            "Volumes": { "/data": {} },
            "WorkingDir": "/data",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "leasehold",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>(),
        },
        "history": layers.iter().map(history).collect::<Vec<_>>(),
    })
}

/// What a Debian has of the C library and of certificates, a user, and a folder for data.
fn base(dist: &Dist, blobs: &Path) -> Result<Layer> {
    let (packages, root) = (dist.stage.join("base-packages"), dist.stage.join("base"));
    fs::create_dir_all(&packages)?;
    fs::create_dir_all(root.join("etc/ssl/certs"))?;
    run(Command::new("apt-get").args(["-q", "download"]).args(BASE).current_dir(&packages))?;
    for package in sorted(&packages)? {
        run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    }
    // What the package would write when it is installed.
    let mut certificates = String::new();
    for file in sorted(&root.join("usr/share/ca-certificates/mozilla"))? {
        certificates += &fs::read_to_string(file)?;
    }
    fs::write(root.join("etc/ssl/certs/ca-certificates.crt"), certificates)?;
    let users =
        format!("root:x:0:0::/:/sbin/nologin\nleasehold:x:{USER}:{USER}::/data:/sbin/nologin\n");
    fs::write(root.join("etc/passwd"), users)?;
    fs::write(root.join("etc/group"), format!("root:x:0:\nleasehold:x:{USER}:\n"))?;
    fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    for folder in ["data", "tmp", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let archive = dist.stage.join("base.tar");
    let mut tar = reproducible_tar();
    tar.args(["--exclude=./data", "--exclude=./tmp", "--exclude=./usr/share/doc/*/changelog*"]);
    run(tar.arg("-cf").arg(&archive).arg("-C").arg(&root).arg("."))?;
    for (folder, owner, mode) in [("./data", USER, "0700"), ("./tmp", "0", "1777")] {
        let mut tar = Command::new("tar");
        tar.args(["--mtime=@0", "--numeric-owner", "--owner", owner, "--group", owner]);
        tar.args(["--mode", mode, "-rf"]).arg(&archive).arg("-C").arg(&root);
        run(tar.arg(folder))?;
    }
    layer(&archive, blobs, "libc6, libgcc-s1 and ca-certificates of Debian")
}

fn program(dist: &Dist, blobs: &Path) -> Result<Layer> {
    let root = dist.stage.join("program");
    for (file, place) in [
        ("leasehold", "usr/bin/leasehold"),
        ("sbom.cdx.json", "usr/share/doc/leasehold/sbom.cdx.json"),
        ("copyright", "usr/share/doc/leasehold/copyright"),
    ] {
        let place = root.join(place);
        fs::create_dir_all(place.parent().context("it lies in a folder")?)?;
        fs::copy(dist.stage.join(file), place)?;
    }
    let archive = dist.stage.join("program.tar");
    run(reproducible_tar().arg("-cf").arg(&archive).arg("-C").arg(&root).arg("."))?;
    layer(&archive, blobs, "leasehold")
}

fn layer(archive: &PathBuf, blobs: &Path, about: &'static str) -> Result<Layer> {
    let diff_id = format!("sha256:{}", sha256(&fs::read(archive)?));
    let output = Command::new("gzip").args(["--no-name", "--stdout"]).arg(archive).output()?;
    Ok(Layer { diff_id, descriptor: blob(blobs, LAYER, output.stdout)?, about })
}

/// Keeps the bytes by their digest, and describes them.
fn blob(blobs: &Path, media_type: &str, bytes: Vec<u8>) -> Result<Value> {
    let digest = sha256(&bytes);
    let size = bytes.len();
    fs::write(blobs.join(&digest), bytes)?;
    Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size }))
}
