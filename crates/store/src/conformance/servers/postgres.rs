//! A PostgreSQL of our own.

use std::path::Path;
use std::process::Command;

use super::process::{Account, Process, folder, free_port, program};

/// A PostgreSQL server with a user `keeper`, who has a password and owns the database of the same name.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
}

/// Not fit for an address as it is, so that it has to be written with percent signs.
const PASSWORD: &str = "hush: 100%";
const PASSWORD_IN_URL: &str = "hush%3A%20100%25";

impl Postgres {
    pub const USER: &'static str = "keeper";
    pub const PASSWORD: &'static str = PASSWORD;

    pub fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// With these settings too, as `name=value`.
    pub fn start_with(settings: &[&str]) -> Postgres {
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_string()).collect();
        Postgres::start_in(&folder(Account::of_postgres()), settings)
    }

    /// Behind TLS, with this certificate and its key.
    pub fn start_with_tls(certificate: &Path, key: &Path) -> Postgres {
        let account = Account::of_postgres();
        let folder = folder(account);
        let mut settings = vec!["ssl=on".to_string()];
        for (setting, from) in [("ssl_cert_file", certificate), ("ssl_key_file", key)] {
            let to = folder.join(setting);
            std::fs::copy(from, &to).expect("a file can be copied");
            Account::give(account, &to);
            settings.push(format!("{setting}={}", to.display()));
        }
        Postgres::start_in(&folder, settings)
    }

    fn start_in(folder: &Path, settings: Vec<String>) -> Postgres {
        let account = Account::of_postgres();
        let data = folder.join("data");
        let password = folder.join("password");
        std::fs::write(&password, format!("{PASSWORD}\n")).expect("a file can be written");
        let mut init = Command::new(program("initdb"));
        init.arg("--pgdata").arg(&data).arg("--pwfile").arg(&password).current_dir("/");
        init.args(["--username", Postgres::USER, "--auth", "scram-sha-256"]);
        init.args(["--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]);
        Account::apply(account, &mut init);
        let made = init.output().expect("initdb can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let mut args = vec!["-D".to_string(), data.display().to_string()];
        let own = [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".into(),
            "unix_socket_directories=".into(),
            "max_connections=200".into(),
            "shared_buffers=32MB".into(),
            "dynamic_shared_memory_type=mmap".into(),
        ];
        args.extend(
            own.into_iter().chain(settings).flat_map(|setting| ["-c".to_string(), setting]),
        );
        let process = Process::start(folder, account, &program("postgres"), &args);
        let mut server = Postgres { process, port };
        server.wait_until_ready();
        server.ask("postgres", &format!("CREATE DATABASE {}", Postgres::USER));
        server
    }

    fn wait_until_ready(&mut self) {
        let port = self.port.to_string();
        self.process.wait_until_ready(|| {
            let mut probe = Command::new(program("pg_isready"));
            probe.args(["-q", "-h", "127.0.0.1", "-p", &port]);
            probe.status().expect("pg_isready can be started").success()
        });
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the database, for a store with these parameters.
    pub fn url(&self, parameters: &str) -> String {
        Postgres::url_on(self.port, parameters)
    }

    /// The same through another port: a pooler or a proxy.
    pub fn url_on(port: u16, parameters: &str) -> String {
        let user = Postgres::USER;
        format!("postgres://{user}:{PASSWORD_IN_URL}@127.0.0.1:{port}/{user}?{parameters}")
    }

    /// Runs SQL in our database with psql; what it prints.
    pub fn sql(&self, statements: &str) -> String {
        self.ask(Postgres::USER, statements)
    }

    fn ask(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(program("psql"));
        psql.env("PGPASSWORD", PASSWORD).args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", Postgres::USER]);
        let done = psql.args(["-d", database, "-c", statements]).output();
        let done = done.expect("psql can be started");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_string()
    }

    /// Ends it as a crash would, and starts it again: what was committed is there.
    pub fn crash(&mut self) {
        self.process.end("QUIT");
        self.process.start_again();
        self.wait_until_ready();
    }

    /// Stops it, as an operator does.
    pub fn stop(&mut self) {
        self.process.end("INT");
    }

    pub fn start_again(&mut self) {
        self.process.start_again();
        self.wait_until_ready();
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
}
