//! An etcd of our own, alone or as a cluster.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use super::polling::wait_until;
use super::process::{Process, folder, free_port, program};

/// A member of an etcd cluster; by itself a cluster of one.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    port: u16,
}

/// Several members, which elect one of them.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Etcd>,
}

struct Place {
    name: String,
    client: u16,
    peer: u16,
}

impl Etcd {
    /// A cluster of one.
    pub fn start() -> Etcd {
        let mut cluster = EtcdCluster::start(1);
        cluster.members.remove(0)
    }

    /// A cluster of one behind TLS, which asks for a certificate signed by the authority in turn.
    pub fn start_with_tls(authority: &Path, certificate: &Path, key: &Path) -> Etcd {
        let place = Place { name: "member-1".into(), client: free_port(), peer: free_port() };
        let peers = format!("{}=http://127.0.0.1:{}", place.name, place.peer);
        let path = |path: &Path| path.display().to_string();
        let tls = [
            ["--cert-file".to_string(), path(certificate)],
            ["--key-file".into(), path(key)],
            ["--trusted-ca-file".into(), path(authority)],
        ];
        let tls = tls.into_iter().flatten().chain(["--client-cert-auth".into()]).collect();
        let etcd = member(&place, &peers, "https", tls);
        // Without a certificate there is no asking whether it is well.
        wait_until("etcd starts", || TcpStream::connect(("127.0.0.1", place.client)).is_ok());
        etcd
    }

    /// From now on it asks for this password, of the user `root`.
    pub fn ask_for_password(&self, password: &str) {
        for (path, body) in [
            ("user/add", format!(r#"{{"name":"root","password":"{password}"}}"#)),
            ("role/add", r#"{"name":"root"}"#.into()),
            ("user/grant", r#"{"user":"root","role":"root"}"#.into()),
            ("enable", "{}".into()),
        ] {
            let request = format!(
                "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = ask(self.port, &request).unwrap_or_default();
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, parameters: &str) -> String {
        format!("etcd://127.0.0.1:{}?{parameters}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn kill(&mut self) {
        self.process.end("KILL");
    }

    pub fn start_again(&mut self) {
        self.process.start_again();
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        self.process.signal("STOP");
    }

    pub fn go_on(&self) {
        self.process.signal("CONT");
    }

    pub fn wait_until_ready(&mut self) {
        self.process.wait_until_ready(|| is_healthy(self.port));
    }

    /// Nothing that it was asked to write is on its way through the cluster.
    pub fn is_settled(&self) -> bool {
        let metric = "etcd_server_proposals_pending 0";
        get(self.port, "/metrics").is_some_and(|text| text.contains(metric))
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
}

impl EtcdCluster {
    pub fn start(members: usize) -> EtcdCluster {
        let places: Vec<Place> = (1..=members)
            .map(|number| Place {
                name: format!("member-{number}"),
                client: free_port(),
                peer: free_port(),
            })
            .collect();
        let peers: Vec<String> = places
            .iter()
            .map(|place| format!("{}=http://127.0.0.1:{}", place.name, place.peer))
            .collect();
        let peers = peers.join(",");
        let members =
            places.iter().map(|place| member(place, &peers, "http", Vec::new())).collect();
        let mut cluster = EtcdCluster { members };
        for member in &mut cluster.members {
            member.wait_until_ready();
        }
        cluster
    }

    pub fn members(&mut self) -> &mut [Etcd] {
        &mut self.members
    }

    pub fn url(&self, parameters: &str) -> String {
        let hosts: Vec<String> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("etcd://{}?{parameters}", hosts.join(","))
    }

    /// The place of the member that leads the cluster.
    pub fn leader(&self) -> Option<usize> {
        let metric = "etcd_server_is_leader 1";
        self.members.iter().position(|member| {
            get(member.port, "/metrics").is_some_and(|text| text.contains(metric))
        })
    }
}

fn member(place: &Place, peers: &str, scheme: &str, more: Vec<String>) -> Etcd {
    let folder = folder(None);
    let client = format!("{scheme}://127.0.0.1:{}", place.client);
    let peer = format!("http://127.0.0.1:{}", place.peer);
    let data = folder.join("data").display().to_string();
    let args = [
        ["--name", &place.name],
        ["--data-dir", &data],
        ["--listen-client-urls", &client],
        ["--advertise-client-urls", &client],
        ["--listen-peer-urls", &peer],
        ["--initial-advertise-peer-urls", &peer],
        ["--initial-cluster", peers],
        ["--initial-cluster-state", "new"],
        ["--logger", "zap"],
        ["--log-level", "error"],
    ];
    let args = args.into_iter().flatten().map(String::from);
    let args: Vec<String> = args.chain(more).collect();
    Etcd { process: Process::start(&folder, None, &program("etcd"), &args), port: place.client }
}

fn is_healthy(port: u16) -> bool {
    get(port, "/health").is_some_and(|text| text.contains("\"health\":\"true\""))
}

fn get(port: u16, path: &str) -> Option<String> {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n"))
}

fn ask(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
