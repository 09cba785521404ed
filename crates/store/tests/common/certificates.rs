//! Certificates, made anew for each test with the `openssl` command.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An authority, and a certificate for `localhost` and 127.0.0.1 that it has signed.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let certificates = Certificates { folder };
        certificates.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority
             -addext basicConstraints=critical,CA:TRUE -keyout authority.key -out authority.pem",
        );
        certificates.openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost
             -keyout server.key -out server.csr",
        );
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        std::fs::write(certificates.path("names"), names).expect("a file can be written");
        certificates.openssl(
            "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2
             -extfile names -out server.pem",
        );
        certificates
    }

    fn openssl(&self, args: &str) {
        let mut command = Command::new("openssl");
        command.args(args.split_whitespace()).current_dir(self.folder.path());
        let done = command.output().expect("openssl can be started");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("server.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.path("server.key")
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
