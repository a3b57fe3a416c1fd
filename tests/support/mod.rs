//! A datacenter on loopback, in this process, with TLS and a disk; and a network that can be cut.

// Each test binary uses its part of this.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use geolock::api::{ApiOptions, ServeError, ServerInfo, serve};
use geolock::client::{ClientConfig, ClientTls};
use geolock::interdc::{InterdcConfig, QueueBound};
use geolock::journal::JournalOptions;
use geolock::lock_server::{DatacenterConfig, LockServer, LockServerOptions, start_datacenter};
use geolock::names::{ClusterId, DcId, DcSet};
use geolock::pki::{Credentials, playground};
use geolock::replica::{AgreedConfig, LocalConfig, ReplicaConfig};
use tokio::io::copy_bidirectional;
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

/// The one datacenter of a cluster.
pub struct Datacenter {
    dir: PathBuf,
    pub address: SocketAddr,
    server: LockServer,
    api: JoinHandle<Result<(), ServeError>>,
}

impl Datacenter {
    /// Starts one whose certificates and data are in `dir`, which may be new.
    pub async fn start(dir: &Path) -> Result<Datacenter, AnyError> {
        playground(dir, CLUSTER, [DC])?;
        Datacenter::start_at(dir.to_owned(), ANY).await
    }

    async fn start_at(dir: PathBuf, address: SocketAddr) -> Result<Datacenter, AnyError> {
        let tls = Credentials::load(&dir.join("tls/dc0"))?;
        let server = start_datacenter(config(&dir, &tls), None, Arc::default())?;
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let info = ServerInfo::new(DC, BTreeMap::from([(DC, "here".to_owned())]));
        let info = info.map_err(|_| "the system gives no random bytes")?;
        let tls = Arc::new(tls.accept_clients()?);
        let api = tokio::spawn(serve(listener, tls, server.handle(), info, ApiOptions::default()));
        Ok(Datacenter { dir, address, server, api })
    }

    /// Starts again what was stopped, with its data, at its old address.
    pub async fn restart(stopped: Stopped) -> Result<Datacenter, AnyError> {
        Datacenter::start_at(stopped.dir, stopped.address).await
    }

    /// Tells clients that it stops, and goes on for a moment.
    pub fn drain(&self) {
        self.server.handle().drain();
    }

    /// Stops it, whatever is held. Leases and ownership stay on disk.
    pub async fn stop(self) -> Result<Stopped, AnyError> {
        self.drain();
        self.server.stopped().await?;
        self.api.await??;
        Ok(Stopped { dir: self.dir, address: self.address })
    }

    /// For a client of `endpoints`.
    pub fn client_config(&self, endpoints: &[SocketAddr]) -> Result<ClientConfig, AnyError> {
        let tls = ClientTls::from_dir(self.dir.join("client"))?;
        Ok(ClientConfig::new(endpoints.iter().map(SocketAddr::to_string), tls))
    }
}

/// What is left of a datacenter that stopped.
pub struct Stopped {
    dir: PathBuf,
    address: SocketAddr,
}

fn config(dir: &Path, tls: &Credentials) -> DatacenterConfig {
    let cluster = ClusterId::of(CLUSTER);
    let agreed = AgreedConfig::new(cluster, DcSet::only(DC));
    DatacenterConfig {
        replica: ReplicaConfig::new(DC, agreed, LocalConfig::default()),
        journal: JournalOptions::new(dir.join("data"), cluster, DC),
        links: InterdcConfig {
            me: DC,
            cluster: CLUSTER.into(),
            epoch: 0,
            listen: ANY,
            peers: vec![],
            tls: tls.clone(),
            peer_timeout: Duration::from_secs(3),
            versions: 1..=1,
            queue: QueueBound::default(),
            wan: None,
        },
        server: LockServerOptions {
            drain_timeout: Duration::from_millis(100),
            ..LockServerOptions::default()
        },
    }
}

/// A way to a server that can be cut.
pub struct Proxy {
    pub address: SocketAddr,
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy)]
struct Way {
    /// Connections made before the last of them are ended.
    cuts: u64,
    is_open: bool,
}

impl Proxy {
    pub async fn start(to: SocketAddr) -> Result<Proxy, AnyError> {
        let listener = TcpListener::bind(ANY).await?;
        let address = listener.local_addr()?;
        let (way, seen) = watch::channel(Way { cuts: 0, is_open: true });
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, to, seen.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Proxy { address, way, task })
    }

    /// Ends all connections, and new ones at once.
    pub fn cut(&self) {
        self.way.send_modify(|way| *way = Way { cuts: way.cuts + 1, is_open: false });
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

async fn pass(mut client: TcpStream, to: SocketAddr, mut way: watch::Receiver<Way>) {
    let before = way.borrow().cuts;
    let passing = async {
        let mut server = TcpStream::connect(to).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = way.wait_for(|way| !way.is_open || way.cuts != before) => {}
        // Either side may go away at any time.
        _ = passing => {}
    }
}
