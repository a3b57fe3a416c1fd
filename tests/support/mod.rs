//! A datacenter on loopback, in this process, with TLS and a disk; and a network that can be cut.

// Each test binary uses a part of this.
#![allow(dead_code)]

#[path = "../common/basics.rs"]
mod basics;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use basics::{key, lock as name, within};
use geolock::client::{Client, ClientConfig, ClientTls};
use geolock::config::Config;
use geolock::lock_server::LockServerHandle;
use geolock::names::DcId;
use geolock::native::bound_kernel;
use geolock::node::{Node, Sockets};
use geolock::pki::playground;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

const CLUSTER: &str = "test";
const DC: DcId = match DcId::new(0) {
    Some(dc) => dc,
    None => panic!("0 is the id of a datacenter"),
};
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub type AnyError = Box<dyn Error + Send + Sync>;

/// Starts an empty datacenter.
pub async fn start() -> Result<(TempDir, Datacenter), AnyError> {
    let dir = tempfile::tempdir()?;
    let datacenter = Datacenter::start(dir.path()).await?;
    Ok((dir, datacenter))
}

/// Returns a new client with a direct connection.
pub async fn connect(datacenter: &Datacenter) -> Result<Client, AnyError> {
    Ok(Client::connect(datacenter.client_config(&[datacenter.address])?).await?)
}

/// The one datacenter of a cluster.
pub struct Datacenter {
    dir: PathBuf,
    pub address: SocketAddr,
    node: Node,
}

impl Datacenter {
    /// Starts a datacenter with certificates and data in `dir`, which may be new.
    pub async fn start(dir: &Path) -> Result<Datacenter, AnyError> {
        playground(dir, CLUSTER, [DC])?;
        Datacenter::start_at(dir.to_owned(), ANY).await
    }

    async fn start_at(dir: PathBuf, address: SocketAddr) -> Result<Datacenter, AnyError> {
        let mut config = Config::alone(CLUSTER, DC, &dir);
        config.listen.grpc = address;
        config.server.drain_timeout = Duration::from_millis(100);
        let sockets = Sockets::bind(&config.listen)?;
        let address = sockets.grpc()?;
        let node = Node::start(sockets, config, None).await?;
        Ok(Datacenter { dir, address, node })
    }

    /// Starts a stopped datacenter again, with its data, at its old address.
    pub async fn restart(stopped: Stopped) -> Result<Datacenter, AnyError> {
        Datacenter::start_at(stopped.dir, stopped.address).await
    }

    /// Returns the handle of its lock server, as for a program that embeds it.
    pub fn lock_server(&self) -> LockServerHandle {
        self.node.handle()
    }

    /// Tells clients that it stops, and continues for a moment.
    pub fn drain(&self) {
        self.node.handle().drain();
    }

    /// Stops it, whatever locks are held. Leases and ownership stay on disk.
    pub async fn stop(self) -> Result<Stopped, AnyError> {
        self.drain();
        self.node.ended().await?;
        Ok(Stopped { dir: self.dir, address: self.address })
    }

    /// Returns the configuration of a client of `endpoints`.
    pub fn client_config(&self, endpoints: &[SocketAddr]) -> Result<ClientConfig, AnyError> {
        let tls = ClientTls::from_dir(self.dir.join("client"))?;
        Ok(ClientConfig::new(endpoints.iter().map(SocketAddr::to_string), tls))
    }
}

/// The data and address of a stopped datacenter.
pub struct Stopped {
    dir: PathBuf,
    address: SocketAddr,
}

/// A path to a server that can be cut.
pub struct Proxy {
    pub address: SocketAddr,
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy)]
struct Way {
    /// Connections made before the last cut are ended.
    cuts: u64,
    is_open: bool,
    /// Nothing arrives any more, whatever is sent, not even the end of the connection.
    is_silent: bool,
}

impl Proxy {
    pub async fn start(to: SocketAddr) -> Result<Proxy, AnyError> {
        Proxy::start_with(to, None).await
    }

    /// Starts one that passes about that many bytes a second each way, and buffers little.
    pub async fn slow(to: SocketAddr, per_second: u32) -> Result<Proxy, AnyError> {
        Proxy::start_with(to, Some(per_second)).await
    }

    async fn start_with(to: SocketAddr, per_second: Option<u32>) -> Result<Proxy, AnyError> {
        let listener = TcpListener::bind(ANY).await?;
        let address = listener.local_addr()?;
        let (way, seen) = watch::channel(Way { cuts: 0, is_open: true, is_silent: false });
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, to, seen.clone(), per_second));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Proxy { address, way, task })
    }

    /// Ends all connections, and new ones at once.
    pub fn cut(&self) {
        self.way.send_modify(|way| *way = Way { cuts: way.cuts + 1, is_open: false, ..*way });
    }

    /// Passes nothing any more, without an error: bytes that clients write are accepted.
    pub fn silence(&self) {
        self.way.send_modify(|way| way.is_silent = true);
    }

    pub fn mend(&self) {
        self.way.send_modify(|way| way.is_open = true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut client: TcpStream, to: SocketAddr, mut way: watch::Receiver<Way>, per_second: Option<u32>) {
    let before = way.borrow().cuts;
    let passing = async {
        let mut server = TcpStream::connect(to).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        if let Some(per_second) = per_second {
            bound_kernel(&client)?;
            bound_kernel(&server)?;
            let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
            let (there, back) =
                (trickle(from_client, to_server, per_second), trickle(from_server, to_client, per_second));
            return tokio::try_join!(there, back).map(drop);
        }
        copy_bidirectional(&mut client, &mut server).await.map(drop)
    };
    let mut silent = way.clone();
    let silent = async { silent.wait_for(|way| way.is_silent).await.map(drop) };
    let ended = async { way.wait_for(|way| !way.is_open || way.cuts != before).await.map(drop) };
    tokio::pin!(ended);
    tokio::select! {
        // Bytes not passed when it was silenced are never passed.
        biased;
        _ = &mut ended => {}
        _ = silent => drop(ended.await),
        // Either side may close at any time.
        _ = passing => {}
    }
}

/// Copies at a limited rate.
async fn trickle(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, per_second: u32) -> std::io::Result<()> {
    let mut bytes = vec![0; 4 << 10];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        tokio::time::sleep(Duration::from_secs(count as u64) / per_second).await;
        to.write_all(&bytes[..count]).await?;
    }
}
