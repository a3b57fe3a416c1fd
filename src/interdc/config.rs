//! What links need to know.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::sync::watch;

use super::wan::Wan;
use crate::names::DcId;
use crate::pki::Credentials;
use crate::wire::MAX_FRAME;

/// How much may wait to be sent on one lane of one link. Beyond it the link is reset: the peer takes less than it
/// is sent, and what it lacks is sent again once it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBound {
    pub messages: usize,
    /// Raising it costs that much memory per peer and lane, at worst.
    pub bytes: usize,
}

impl Default for QueueBound {
    fn default() -> QueueBound {
        QueueBound { messages: 65_536, bytes: 8 * MAX_FRAME }
    }
}

/// The versions of the protocol between datacenters that this release speaks.
const VERSIONS: RangeInclusive<u16> = 1..=2;

/// The links of one datacenter. What all datacenters must agree on: `cluster`, `epoch`.
#[derive(Clone, Debug)]
pub struct InterdcConfig {
    /// This datacenter.
    pub me: DcId,
    /// The name of the cluster, as in the certificates.
    pub cluster: String,
    /// The membership epoch. Default 0.
    pub epoch: u32,
    /// The UDP address to listen on; every peer is dialled from it, too.
    pub listen: SocketAddr,
    /// The other members, and where they are reached: `host:port`, resolved anew for every attempt. Default none.
    pub peers: Vec<(DcId, String)>,
    /// Who this datacenter is, and whom it trusts. Links made after a change go by the new ones; those that are up stay.
    pub tls: watch::Receiver<Credentials>,
    /// A peer that says nothing for so long is gone. Also how long an attempt to connect, or a hello, may take.
    /// Default 3 s, between 10 ms and a day; raising it delays the discovery of dead peers, lowering it below a few round
    /// trips breaks links.
    pub peer_timeout: Duration,
    /// The protocol versions spoken here; with each peer the highest common one. Default: those of this release.
    pub versions: RangeInclusive<u16>,
    /// For each lane of each link.
    pub queue: QueueBound,
    /// Simulated distance, for playgrounds and tests. Default none.
    pub wan: Option<Wan>,
}

impl InterdcConfig {
    /// All else by default; so it knows no peers yet, and its credentials stay as they are.
    pub fn new(me: DcId, cluster: &str, listen: SocketAddr, tls: Credentials) -> InterdcConfig {
        InterdcConfig::following(me, cluster, listen, watch::channel(tls).1)
    }

    /// As [`InterdcConfig::new`], with credentials that may change.
    pub fn following(
        me: DcId,
        cluster: &str,
        listen: SocketAddr,
        tls: watch::Receiver<Credentials>,
    ) -> InterdcConfig {
        InterdcConfig {
            me,
            cluster: cluster.into(),
            epoch: 0,
            listen,
            peers: Vec::new(),
            tls,
            peer_timeout: Duration::from_secs(3),
            versions: VERSIONS,
            queue: QueueBound::default(),
            wan: None,
        }
    }
}
