//! The figures that the servers of a system report, before and after a measurement.

use geolock_client::{Client, ClientError};

/// The figures of one datacenter at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub name: String,
    pub version: String,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    /// Grants, and among them those that asked no other datacenter.
    pub grants: u64,
    pub local_grants: u64,
    pub resident_bytes: u64,
    /// By peer: its name, and the round trip in µs.
    pub rtts: Vec<(String, u64)>,
}

/// Asks a datacenter for its figures.
pub(super) async fn figures(client: &Client) -> Result<Figures, ClientError> {
    let status = client.status().await?;
    let count = |name: &str| status.counts.get(name).copied().unwrap_or(0);
    Ok(Figures {
        name: status.dc_name.clone(),
        version: status.version.clone(),
        messages_sent: status.peers.iter().map(|peer| peer.messages_sent).sum(),
        bytes_sent: status.peers.iter().map(|peer| peer.bytes_sent).sum(),
        grants: count("grants_total"),
        local_grants: count("grants_local_total"),
        resident_bytes: status.resident_bytes,
        rtts: status.peers.iter().map(|peer| (peer.dc_name.clone(), peer.rtt_us)).collect(),
    })
}
