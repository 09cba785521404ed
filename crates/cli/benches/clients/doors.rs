//! Our own server behind its doors: with tokens, or with tokens and TLS.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use leasehold_access::Token;
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::process::{Folder, Server, free_port};

/// What a client needs.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) port: u16,
    /// Nobody is asked for one without it.
    pub(crate) token: Option<String>,
    /// Who has signed for the server, if it speaks TLS.
    pub(crate) authority: Option<String>,
}

impl Door {
    pub(crate) fn open(port: u16) -> Door {
        Door { port, token: None, authority: None }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }
}

/// The real server with SQLite, in a process of its own, that lets nobody in without a token.
pub(crate) async fn serve(folder: &Folder, with_tls: bool) -> Result<(Server, Door), String> {
    let port = free_port();
    let place = folder.fresh("doors");
    let mut random = [0; Token::RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    let token = Token::mint(&random);
    let access = place.join("access.toml");
    let lines = format!(
        "[[token]]\nid = \"{}\"\nprincipal = \"bench\"\nroles = [\"client:default\"]\nsha256 = \"{}\"\n",
        token.id(),
        token.hash()
    );
    write(&access, &lines)?;
    let mut settings = format!(
        "listen = \"127.0.0.1:{port}\"\nstore = \"sqlite:{}\"\n[auth]\nenabled = true\naccess_file = {access:?}\n",
        place.join("locks.db").display()
    );
    let mut door = Door { token: Some(token.reveal().to_owned()), ..Door::open(port) };
    if with_tls {
        let (cert, key) = (place.join("server.pem"), place.join("server.key"));
        door.authority = Some(certify(&cert, &key)?);
        settings.push_str(&format!("[tls]\ncert = {cert:?}\nkey = {key:?}\n"));
    }
    let config = place.join("leasehold.toml");
    write(&config, &settings)?;
    let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    program.arg("serve").arg("--config").arg(&config).env("LEASEHOLD_LOG", "error");
    Ok((Server::start(&mut program, port).await?, door))
}

/// Makes a certificate and its key; who has signed it.
fn certify(cert: &Path, key: &Path) -> Result<String, String> {
    let failed = |error: rcgen::Error| error.to_string();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    let pair = KeyPair::generate().map_err(failed)?;
    let authority = CertifiedIssuer::self_signed(authority, pair).map_err(failed)?;
    let pair = KeyPair::generate().map_err(failed)?;
    let params = CertificateParams::new(vec!["127.0.0.1".into()]).map_err(failed)?;
    let signed = params.signed_by(&pair, &authority).map_err(failed)?;
    write(cert, &signed.pem())?;
    write(key, &pair.serialize_pem())?;
    Ok(authority.pem())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = std::fs::write(path, text)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)));
    written.map_err(|error| format!("{}: {error}", path.display()))
}
