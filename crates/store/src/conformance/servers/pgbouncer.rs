//! A pooler before a PostgreSQL of ours.

use std::net::TcpStream;

use super::Postgres;
use super::polling::wait_until;
use super::process::{Account, Process, folder, free_port, program};

/// A pgbouncer with transaction pooling: each transaction may get another connection.
#[derive(Debug)]
pub struct Pgbouncer {
    process: Process,
    port: u16,
}

impl Pgbouncer {
    pub fn start(server: &Postgres) -> Pgbouncer {
        let account = Account::of_postgres();
        let folder = folder(account);
        let port = free_port();
        let users = folder.join("users");
        let text = format!("\"{}\" \"{}\"\n", Postgres::USER, Postgres::PASSWORD);
        std::fs::write(&users, text).expect("a file can be written");
        let config = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n",
            server.port(),
            users.display()
        );
        std::fs::write(&config, text).expect("a file can be written");
        let args = [config.display().to_string()];
        let process = Process::start(&folder, account, &program("pgbouncer"), &args);
        wait_until("pgbouncer starts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Pgbouncer { process, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn url(&self, parameters: &str) -> String {
        Postgres::url_on(self.port, parameters)
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
}
