//! `geolock server --faults FILE`, in builds with the feature `faults`: executes the script, and its new
//! content when it is read again.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::lookup_host;
use tokio::signal::unix::{SignalKind, signal};
use tokio::spawn;

use super::failure::{Code, Failure, OrFail as _};
use crate::interdc::{Wan, WanPath, WanTally};
use crate::server::config::Config;
use crate::testkit::faults::{self, Path, Script, ScriptError};
use geolock_api::names::DcId;

struct Faults {
    file: PathBuf,
    wan: Wan,
    /// Addresses of the other datacenters.
    peers: Vec<(DcId, SocketAddr)>,
}

/// Executes the script in `file` from now on, and reads it again at every SIGUSR2. Returns the network that
/// the script controls.
pub(super) async fn begin(file: Option<PathBuf>, config: &mut Config) -> Result<Option<Wan>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let me = config.replica.dc;
    let mut peers = Vec::new();
    for member in config.members.iter().filter(|member| member.dc != me) {
        let found = lookup_host(&member.address).await?;
        peers.extend(found.map(|address| (member.dc, address)));
    }
    let faults = Faults { file, wan: Wan::new(me.get().into()), peers };
    let wan = faults.wan.clone();
    let mut again = signal(SignalKind::user_defined2())?;
    if let Some(speaks) = faults.read().or_fail(Code::Usage)?.speak {
        config.replica.speaks = speaks;
    }
    spawn(async move {
        while again.recv().await.is_some() {
            if let Err(error) = faults.read() {
                tracing::error!(%error, "the fault script stays as it was");
            }
        }
    });
    Ok(Some(wan))
}

impl Faults {
    fn read(&self) -> Result<Script, ScriptError> {
        let script = Script::load(&self.file)?;
        for (dc, address) in &self.peers {
            self.wan.set(*address, wan_path(&script.path(*dc)));
        }
        let WanTally { lost, delayed, twice } = self.wan.tally();
        tracing::warn!(lost, delayed, twice, "faults of datagrams so far");
        faults::arm(&script);
        Ok(script)
    }
}

fn wan_path(path: &Path) -> WanPath {
    let Path { cut, loss, duplicate, bytes_per_second, .. } = *path;
    WanPath { one_way: path.delay(), jitter: path.jitter(), loss, duplicate, bytes_per_second, cut }
}
