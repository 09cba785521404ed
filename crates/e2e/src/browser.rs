//! A real Chromium, driven over the WebDriver protocol. A handful of its calls is all that is needed, so they are here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Http;

/// Nothing in a page takes longer, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one window. It ends when this is dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    http: Http,
    /// A profile that has never been used.
    _profile: TempDir,
}

/// How the pages are to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    Light,
    Dark,
}

impl Browser {
    pub async fn start() -> Result<Browser> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start chromedriver: run `cargo xtask needs`")?;
        let port = match port_of(&mut driver) {
            Ok(port) => port,
            Err(error) => {
                let _ = driver.kill();
                return Err(error);
            }
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let profile = tempfile::tempdir()?;
        let http = Http::new(address);
        let session = String::new();
        let mut browser = Browser { driver, address, session, http, _profile: profile };
        let profile = browser._profile.path().display().to_string();
        let opened = browser.call(Method::POST, "/session", &wanted(&profile)).await?;
        let session = opened["sessionId"].as_str().context("a session has an id")?;
        browser.session = session.to_string();
        browser.resize(1380, 860).await?;
        Ok(browser)
    }

    pub async fn open(&mut self, url: &str) -> Result<()> {
        self.ask(Method::POST, "/url", &json!({ "url": url })).await?;
        Ok(())
    }

    /// Another window, which is in front from now on.
    pub async fn open_window(&mut self, url: &str) -> Result<()> {
        let window = self.ask(Method::POST, "/window/new", &json!({ "type": "tab" })).await?;
        let handle = json!({ "handle": window["handle"] });
        self.ask(Method::POST, "/window", &handle).await?;
        self.open(url).await
    }

    /// What a script in the page returns.
    pub async fn run(&mut self, script: &str) -> Result<Value> {
        let script = json!({ "script": script, "args": [] });
        self.ask(Method::POST, "/execute/sync", &script).await
    }

    /// Waits until a script returns something that is neither false nor nothing.
    pub async fn wait_for(&mut self, what: &str, script: &str) -> Result<Value> {
        let since = Instant::now();
        loop {
            let value = self.run(script).await?;
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return Ok(value);
            }
            if since.elapsed() > PATIENCE {
                let text = self.run("return document.body.innerText").await?;
                bail!("not seen in {PATIENCE:?}: {what}; the page says:\n{text}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows this text.
    pub async fn wait_for_text(&mut self, text: &str) -> Result<()> {
        let quoted = serde_json::to_string(text)?;
        let script = format!("return document.body.innerText.includes({quoted})");
        self.wait_for(text, &script).await.map(|_| ())
    }

    /// Clicks the first element that matches.
    pub async fn click(&mut self, selector: &str) -> Result<()> {
        let id = self.find(selector).await?;
        self.ask(Method::POST, &format!("/element/{id}/click"), &json!({})).await?;
        Ok(())
    }

    /// Types as a person would.
    pub async fn type_into(&mut self, selector: &str, text: &str) -> Result<()> {
        let id = self.find(selector).await?;
        self.ask(Method::POST, &format!("/element/{id}/value"), &json!({ "text": text })).await?;
        Ok(())
    }

    async fn find(&mut self, selector: &str) -> Result<String> {
        let quoted = serde_json::to_string(selector)?;
        let script = format!("return document.querySelector({quoted}) !== null");
        self.wait_for(selector, &script).await?;
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.ask(Method::POST, "/element", &wanted).await?;
        let id = found.as_object().and_then(|element| element.values().next());
        Ok(id.and_then(Value::as_str).context("an element has an id")?.to_string())
    }

    /// What pages have complained about since the last call: scripts that failed, things that the policy forbade.
    pub async fn complaints(&mut self) -> Result<Vec<String>> {
        let log = self.ask(Method::POST, "/se/log", &json!({ "type": "browser" })).await?;
        let entries = log.as_array().cloned().unwrap_or_default();
        let severe = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        Ok(severe.map(|entry| format!("{}: {}", entry["source"], entry["message"])).collect())
    }

    pub async fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await
    }

    pub async fn set_colours(&mut self, colours: Colours) -> Result<()> {
        let value = match colours {
            Colours::Light => "light",
            Colours::Dark => "dark",
        };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", features).await
    }

    /// What the window shows, as a PNG.
    pub async fn screenshot(&mut self) -> Result<Vec<u8>> {
        let picture = self.ask(Method::GET, "/screenshot", &Value::Null).await?;
        base64(picture.as_str().context("a picture is text")?)
    }

    async fn devtools(&mut self, command: &str, params: Value) -> Result<()> {
        let command = json!({ "cmd": command, "params": params });
        self.ask(Method::POST, "/goog/cdp/execute", &command).await?;
        Ok(())
    }

    async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        self.call(method, &path, body).await
    }

    async fn call(&mut self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let answer = match method {
            Method::POST => self.http.post(path, body).await,
            method => self.http.ask(method, path).await,
        };
        let answer = answer.with_context(|| format!("the driver does not answer {path}"))?;
        let value = answer.json::<Value>()?["value"].take();
        ensure!(answer.status == 200, "{path}: {}", value["message"]);
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser when the session ends, and not when it is killed.
        if !self.session.is_empty()
            && let Ok(mut stream) = TcpStream::connect(self.address)
        {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let head = format!("DELETE /session/{} HTTP/1.1\r\nhost: localhost\r\n", self.session);
            let _ = stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The driver says on which port it listens.
fn port_of(driver: &mut Child) -> Result<u16> {
    let said = driver.stdout.take().context("its output is ours")?;
    let mut lines = BufReader::new(said).lines();
    let port = lines.by_ref().find_map(|line| {
        let line = line.ok()?;
        let (_, port) = line.split_once("successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    // It must be able to go on talking.
    std::thread::spawn(move || lines.for_each(drop));
    port.ok_or_else(|| anyhow!("chromedriver did not say where it listens"))
}

fn wanted(profile: &str) -> Value {
    let flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        &format!("--user-data-dir={profile}"),
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:loggingPrefs": { "browser": "ALL" },
        "goog:chromeOptions": { "binary": "/usr/bin/chromium", "args": flags },
    } } })
}

/// The bytes that a text in base 64 stands for.
fn base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut len) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("{byte} is no digit of base 64"),
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        len += 6;
        if len >= 8 {
            len -= 8;
            bytes.push(u8::try_from(bits >> len & 0xff)?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base_64_is_read() {
        assert_eq!(base64("TGVhc2Vob2xk").expect("it is"), b"Leasehold");
        assert_eq!(base64("+/8=").expect("it is"), [0xfb, 0xff]);
        assert!(base64("a b").is_err());
    }
}
