//! The identity of a server, as it reports it to clients.

use std::collections::BTreeMap;
use std::time::Instant;

use rustls::crypto::{GetRandomFailed, ring};

use crate::server::members::MembersApi;
use geolock_api::names::{DcId, Secret};
use geolock_api::proto::Feature;

/// The facts that a server reports about itself. Made once per process.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    pub dc: DcId,
    /// Names of datacenters at the start, for people.
    pub names: BTreeMap<DcId, String>,
    /// The run of this server; random, positive. Shows clients that the server was restarted.
    pub boot_id: u64,
    /// Start of the run.
    pub started: Instant,
    /// The members, if this server takes part in the control group.
    pub members: Option<MembersApi>,
}

impl ServerInfo {
    pub fn new(dc: DcId, names: BTreeMap<DcId, String>) -> Result<ServerInfo, GetRandomFailed> {
        let boot_id = u64::from_le_bytes(random()?).max(1);
        Ok(ServerInfo { dc, names, boot_id, started: Instant::now(), members: None })
    }

    /// Returns the name of a datacenter, empty if it has none.
    pub(super) fn name(&self, dc: DcId) -> String {
        let joined = || self.members.as_ref().and_then(|members| members.name(dc));
        self.names.get(&dc).cloned().or_else(joined).unwrap_or_default()
    }
}

/// The version of this software.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The fields that a client must not send to a server of an earlier release.
pub(super) fn understands() -> Vec<i32> {
    vec![Feature::Home.into(), Feature::Under.into(), Feature::Cancel.into()]
}

/// Returns a new secret for a lease.
pub(super) fn secret() -> Result<Secret, GetRandomFailed> {
    random().map(Secret::new)
}

/// Returns bytes from the operating system's secure source.
fn random<const N: usize>() -> Result<[u8; N], GetRandomFailed> {
    let mut bytes = [0; N];
    ring::default_provider().secure_random.fill(&mut bytes)?;
    Ok(bytes)
}
