//! The credentials of this command, and the servers that it trusts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::args::Global;
use crate::failure::{EXIT_CONFIG, Failure};
use crate::output::Output;

/// The environment variables that have the token, or name a file with it.
pub(crate) const TOKENS: [&str; 2] = [TOKEN, "LEASEHOLD_TOKEN_FILE"];

const TOKEN: &str = "LEASEHOLD_TOKEN";
const ALLOW_CLEARTEXT: &str = "LEASEHOLD_ALLOW_CLEARTEXT_TOKEN";
/// No token is nearly as long: it is the wrong file.
const TOKEN_BYTES_MAX: usize = 8192;

/// The token to show, if there is one: as the command line or the environment says, or that of the profile.
pub(crate) fn token(global: &Global) -> Result<Option<String>, Failure> {
    match (given_token(global)?, &global.login_token) {
        (None, Some(file)) => read_token(global, file).map(Some),
        (given, _) => Ok(given),
    }
}

/// The token that the command line or the environment says.
pub(crate) fn given_token(global: &Global) -> Result<Option<String>, Failure> {
    if let Some(file) = &global.token_file {
        return read_token(global, file).map(Some);
    }
    match std::env::var(TOKEN) {
        Ok(token) => Ok(Some(token.trim().to_string()).filter(|token| !token.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::new(EXIT_CONFIG, format!("{TOKEN} holds something that is not text")))
        }
    }
}

/// True if the token may be sent unencrypted to other machines.
pub(crate) fn allows_cleartext_token() -> bool {
    std::env::var_os(ALLOW_CLEARTEXT).is_some_and(|value| value == "1")
}

fn read_token(global: &Global, file: &Path) -> Result<String, Failure> {
    let wrong = |why: &str| {
        let said = format!("there is no token in {}: {why}", file.display());
        Failure::new(EXIT_CONFIG, said).next("a token file holds the token and nothing else")
    };
    let text = fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(wrong("it is empty"));
    }
    if token.len() > TOKEN_BYTES_MAX || token.contains(['\n', '\r']) {
        return Err(wrong("it has more than one line"));
    }
    // Where files are mounted for a program, as secrets often are, nobody can choose this: it is no reason to refuse.
    if fs::metadata(file).is_ok_and(|about| about.mode() & 0o007 != 0) {
        let said = "everybody on this machine can read the token in";
        Output::of(global)
            .say(&format!("leasehold: {said} {}: chmod 600 would help", file.display()));
    }
    Ok(token.into())
}

/// Certificates of the authorities to trust, as the file has them.
pub(crate) fn authorities(global: &Global) -> Result<Option<Vec<u8>>, Failure> {
    let Some(file) = &global.cacert else { return Ok(None) };
    fs::read(file).map(Some).map_err(|error| {
        Failure::new(EXIT_CONFIG, format!("--cacert {} cannot be read: {error}", file.display()))
    })
}
