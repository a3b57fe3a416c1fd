//! Three datacenters on this machine: `geolock dev` as a child process.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use geolock_client::{Client, ClientConfig, ClientError, ClientTls};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// Pause before the next attempt to connect.
const AGAIN: Duration = Duration::from_millis(500);

/// Datacenters with servers. Stopped when dropped.
pub struct Playground {
    binary: PathBuf,
    data: PathBuf,
    pub base: u16,
    /// `None`: it was there before.
    child: Option<Child>,
}

/// Returns the path of the server's binary: `GEOLOCK_BIN`, or beside the running binary, or in the path.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("GEOLOCK_BIN") {
        return path.into();
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.join("geolock")));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "geolock".into())
}

/// Returns the first of three tens of ports that are free at this moment. Others that look at the same time
/// begin elsewhere.
fn free_ports() -> Option<u16> {
    const FIRST: u16 = 20_000;
    const PLACES: u16 = 200;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| {
        let at = (Ipv4Addr::LOCALHOST, port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    let start = (std::process::id() % u32::from(PLACES)) as u16;
    let mut bases = (0..PLACES)
        .map(|_| FIRST + (start + 7 * NEXT.fetch_add(1, Ordering::Relaxed) % PLACES) % PLACES * 40);
    bases.find(|base| (0..3).all(|dc| (0..3).all(|at| is_free(base + 10 * dc + at))))
}

impl Playground {
    /// Starts three datacenters with these distances, and waits until they serve.
    pub async fn start(data: &Path, wan: &str) -> Result<Playground, String> {
        let (binary, base) = (binary(), free_ports().ok_or("no free ports")?);
        let mut command = Command::new(&binary);
        command.args(["dev", "--fresh", "--wan", wan, "--base-port", &base.to_string(), "--data"]).arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}; build it first: cargo build", binary.display()))?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("its output is piped")?).lines();
        loop {
            match lines.next_line().await {
                Ok(Some(line)) if line == "ready" => break,
                Ok(Some(_)) => {}
                _ => return Err("the playground has ended".to_owned()),
            }
        }
        // It would stop at a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Playground { binary, data: data.to_owned(), base, child: Some(child) })
    }

    /// Uses one that runs: `geolock dev --data DATA --base-port BASE`.
    pub fn running(data: &Path, base: u16) -> Playground {
        Playground { binary: binary(), data: data.to_owned(), base, child: None }
    }

    pub fn tls(&self) -> PathBuf {
        self.data.join("client")
    }

    /// Switches the server of a datacenter off, or on again.
    pub async fn switch(&self, dc: u8, is_on: bool) -> Result<(), String> {
        let mut command = Command::new(&self.binary);
        command
            .args(["dev", if is_on { "start" } else { "stop" }, &dc.to_string(), "--data"])
            .arg(&self.data);
        let status = command.stdout(Stdio::null()).status().await.map_err(|error| error.to_string())?;
        status.success().then_some(()).ok_or_else(|| format!("datacenter {dc} cannot be switched"))
    }

    pub async fn stop(mut self) {
        if let Some(child) = &mut self.child {
            // It has ended, then.
            let _ = child.kill().await;
        }
    }
}

/// Connects to a datacenter, again until it serves. The lease is that of the sequencer's lock.
pub async fn connect(base: u16, tls: &Path, dc: u8, name: &str) -> Result<Client, String> {
    let tls = ClientTls::from_dir(tls).map_err(|error| error.to_string())?;
    let mut config = ClientConfig::new([format!("127.0.0.1:{}", base + 10 * u16::from(dc))], tls);
    config.ttl = Some(Duration::from_secs(3));
    config.name = name.to_owned();
    loop {
        match Client::connect(config.clone()).await {
            Ok(client) => return Ok(client),
            // Its server is switched off, or is about to serve.
            Err(ClientError::Unreachable { .. } | ClientError::Refused(..)) => sleep(AGAIN).await,
            Err(error) => return Err(error.to_string()),
        }
    }
}
