//! Profiles: how a server is reached and known, in `~/.config/leasehold/config.toml`; the token of each lies apart, mode 0600.

use std::collections::BTreeMap;
use std::path::PathBuf;

use leasehold_api::LOCAL_SERVER;
use serde::{Deserialize, Serialize};

use super::private::{self, PUBLIC, SECRET};
use crate::args::Global;
use crate::failure::{EXIT_CONFIG, Failure};

/// The one that is used when none is named.
pub(crate) const DEFAULT: &str = "default";
const DEFAULT_NAMESPACE: &str = "default";

/// One server, or those of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    pub(crate) addr: String,
    /// The hash of the authority that signs the server's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<String>,
    /// A file with certificates of authorities, in place of that hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cacert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Profiles {
    pub(crate) profile: BTreeMap<String, Profile>,
}

/// A directory of the user: as the XDG variable says, or below the home directory.
fn below(variable: &str, home: &str) -> Result<PathBuf, Failure> {
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let found = given(variable).or_else(|| Some(given("HOME")?.join(home)));
    found.map(|path| path.join("leasehold")).ok_or_else(|| {
        Failure::new(EXIT_CONFIG, format!("there is no home directory: set HOME or {variable}"))
    })
}

fn config_file() -> Result<PathBuf, Failure> {
    Ok(below("XDG_CONFIG_HOME", ".config")?.join("config.toml"))
}

/// The place where the token of a profile is kept.
pub(crate) fn token_file(profile: &str) -> Result<PathBuf, Failure> {
    Ok(below("XDG_STATE_HOME", ".local/state")?.join("tokens").join(profile))
}

/// Profiles name files, so they are words.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        let said = "a profile's name is 1 to 64 letters, digits, - and _";
        return Err(Failure::new(EXIT_CONFIG, said));
    }
    Ok(())
}

impl Profiles {
    /// None are there before the first `login`.
    pub(crate) fn read() -> Result<Profiles, Failure> {
        let Ok(path) = config_file() else { return Ok(Profiles::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::new(EXIT_CONFIG, format!("{}: {error}", path.display())));
            }
        };
        toml::from_str(&text).map_err(|error| {
            let said = format!("{}: {}", path.display(), error.message().replace('\n', " "));
            Failure::new(EXIT_CONFIG, said)
                .next("mend it, or remove it and `leasehold login` again")
        })
    }

    /// Writes all of them, and the token of one.
    pub(crate) fn save(&self, name: &str, token: Option<&str>) -> Result<(), Failure> {
        let path = config_file()?;
        private::directory(path.parent().unwrap_or(&path))?;
        private::write(&path, &self.text(), PUBLIC)?;
        let file = token_file(name)?;
        match token {
            None => private::remove(&file),
            Some(token) => {
                private::directory(file.parent().unwrap_or(&file))?;
                private::write(&file, &format!("{token}\n"), SECRET)
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::from("# Written by `leasehold login`. Tokens are not in here.\n");
        for (name, profile) in &self.profile {
            text += &format!("\n[profile.{name}]\n");
            let cacert = profile.cacert.as_ref().map(|path| path.to_string_lossy().into_owned());
            let fields = [
                ("addr", Some(&profile.addr)),
                ("authority", profile.authority.as_ref()),
                ("cacert", cacert.as_ref()),
                ("namespace", profile.namespace.as_ref()),
            ];
            for (field, value) in fields {
                if let Some(value) = value {
                    // A string of JSON is one of TOML too.
                    text += &format!("{field} = {}\n", serde_json::Value::from(value.as_str()));
                }
            }
        }
        text
    }
}

/// Completes what the command line and the environment left open. The token and the authority of a profile are for its own address
/// alone.
pub(crate) fn settle(global: &mut Global) -> Result<(), Failure> {
    let named = global.profile.clone();
    if let Some(name) = &named {
        check_name(name)?;
    }
    let name = named.as_deref().unwrap_or(DEFAULT);
    let profile = Profiles::read()?.profile.remove(name);
    if profile.is_none() && named.is_some() {
        let said = format!("there is no profile {name}");
        return Err(Failure::new(EXIT_CONFIG, said)
            .next(format!("leasehold login --profile {name} https://HOST:PORT")));
    }
    let profile = profile.filter(|profile| {
        global.addr.is_empty() || global.addr.join(",") == profile.addr || named.is_some()
    });
    if let Some(profile) = profile {
        let addr: Vec<String> = profile.addr.split(',').map(str::to_owned).collect();
        let is_its_own = global.addr.is_empty() || global.addr == addr;
        if global.addr.is_empty() {
            global.addr = addr;
        }
        if let (true, Some(namespace)) = (global.namespace.is_empty(), profile.namespace) {
            global.namespace = namespace;
        }
        if is_its_own {
            if global.cacert.is_none() {
                global.authority = profile.authority;
                global.cacert = profile.cacert;
            }
            global.login_token = token_file(name).ok().filter(|file| private::is_there(file));
        }
    }
    if global.addr.is_empty() {
        global.addr = vec![LOCAL_SERVER.into()];
    }
    if global.namespace.is_empty() {
        global.namespace = DEFAULT_NAMESPACE.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_they_are_written() {
        let profile = Profile {
            addr: "https://a:1,https://b:1".into(),
            authority: Some("x".repeat(43)),
            cacert: Some("/tmp/a \"b\"\\c".into()),
            namespace: None,
        };
        let all = Profiles {
            profile: [("one".into(), profile.clone()), ("two-2".into(), Profile::default())].into(),
        };
        let read: Profiles = toml::from_str(&all.text()).unwrap();
        assert_eq!(read.profile, all.profile);
    }

    #[test]
    fn names_of_profiles_cannot_lead_out_of_their_directory() {
        for name in ["", ".", "..", "a/b", "../x", "a.b", "ä"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        check_name("locks-1_a").unwrap();
    }
}
