//! A playground for a load test: as `geolock dev` starts it, but with threads, ports and a folder of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::runtime::Runtime;
use tokio::time::{interval, timeout};

use crate::cli::dev::{self, DataDir, Ends, LOOK, Plan, StartArgs};
use crate::cli::failure::{Code, Failure};
use crate::lock_server::LockServerHandle;
use crate::server::node::NodeError;
use geolock_client::{Client, ClientConfig, ClientTls, Transport};

/// First candidates for free ports; not those of `geolock dev`.
const FIRST_PORT: u16 = 17_400;
const NEXT_PORT: u16 = 1_000;
const TRIES: u16 = 30;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The playground ends when this is dropped; its folder is removed.
pub(super) struct Playground {
    _threads: Threads,
    plan: Plan,
    handles: Vec<LockServerHandle>,
    ends: Ends,
    _data: DataDir,
    _folder: Folder,
}

/// The playground's own folder.
struct Folder(PathBuf);

/// The servers' own threads, so that servers and clients share only the processors.
struct Threads(Option<Runtime>);

impl Threads {
    fn new() -> anyhow::Result<Threads> {
        Ok(Threads(Some(Runtime::new().context("the system gives no threads for the servers")?)))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it goes with this")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // In the background, because a thread of another runtime must not wait for it.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Playground {
    /// Starts all datacenters. Returns when all serve and are linked.
    pub(super) async fn start(args: StartArgs) -> Result<Playground, Failure> {
        let (plan, taken) = take(&args)?;
        let folder = Folder(plan.data.clone());
        let dev::Playground { servers, data } = taken;
        let threads = Threads::new()?;
        let started = threads
            .runtime()
            .spawn(dev::start(servers))
            .await
            .map_err(|error| anyhow!("a server: {error}"))?;
        let (handles, ends) = started.map_err(anyhow::Error::from)?;
        let playground = Playground { _threads: threads, plan, handles, ends, _data: data, _folder: folder };
        match timeout(READY_WITHIN, playground.ready()).await {
            Ok(()) => Ok(playground),
            Err(_) => Err(anyhow!("the playground did not come up within {READY_WITHIN:?}").into()),
        }
    }

    async fn ready(&self) {
        let mut look = interval(LOOK);
        let dcs = self.handles.len();
        while self.handles.iter().any(|handle| dev::obstacle(handle, dcs).is_some()) {
            look.tick().await;
        }
    }

    /// Connects a client of each datacenter.
    pub(super) async fn connect(&self, transport: Transport) -> Result<Vec<Client>, Failure> {
        let tls = ClientTls::from_dir(self.plan.client_tls()).map_err(anyhow::Error::from)?;
        let mut clients = Vec::new();
        for dc in &self.plan.dcs {
            let endpoint = self.plan.listen(*dc).client.to_string();
            let config = ClientConfig { transport, ..ClientConfig::new([endpoint], tls.clone()) };
            clients.push(Client::connect(config).await.map_err(anyhow::Error::from)?);
        }
        Ok(clients)
    }

    /// Returns the distances as text.
    pub(super) fn distances(&self) -> String {
        self.plan.distances()
    }

    /// Ends the servers, and removes their files.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.handles.iter().for_each(LockServerHandle::drain);
        dev::all_ended(&mut self.ends).await.map_err(anyhow::Error::from)?;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If the folder stays, it only uses disk space.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes the first free ports.
fn take(args: &StartArgs) -> Result<(Plan, dev::Playground), Failure> {
    let mut tries = (0..TRIES).map(|n| args.at_port(FIRST_PORT + n * NEXT_PORT));
    loop {
        let args = tries
            .next()
            .ok_or_else(|| Failure::new(Code::Failed, anyhow!("no free ports for a playground")))?;
        let plan = Plan::new(&args)?;
        match plan.take() {
            Ok(taken) => return Ok((plan, taken)),
            Err(error) if matches!(error.downcast_ref(), Some(NodeError::Listen { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
