//! Configuration of the links.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::addresses::LastAddresses;
use super::wan::Wan;
use crate::base::wire::{MAX_FRAME, VERSIONS};
use crate::pki::Credentials;
use geolock_api::names::DcId;

/// The limit of messages that wait to be sent on one lane of one link. Beyond it the link is reset, because
/// the peer receives more slowly than it is sent to; messages that it lacks are sent again when the link is
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBound {
    pub messages: usize,
    /// Bytes of messages. Raising it costs that much memory per peer and lane, at worst.
    pub bytes: usize,
}

impl Default for QueueBound {
    fn default() -> QueueBound {
        QueueBound { messages: 65_536, bytes: 8 * MAX_FRAME }
    }
}

/// The links of one datacenter. All datacenters of a cluster must agree on `cluster`.
#[derive(Clone, Debug)]
pub struct InterdcConfig {
    /// This datacenter.
    pub me: DcId,
    /// The name of the cluster, as in the certificates.
    pub cluster: String,
    /// How often the id of this datacenter was given to another server before. A peer that knows of another
    /// number refuses the link. Default 0.
    pub generation: u16,
    /// The UDP address to listen on. Peers are dialled from it, too.
    pub listen: SocketAddr,
    /// The other members and their addresses: `host:port`, resolved again for every attempt. Their
    /// generations are not known yet, see [`Links::add_peer`](super::Links::add_peer). Default none.
    pub peers: Vec<(DcId, String)>,
    /// The credentials of this datacenter and the authorities that it trusts. Links made after a change use
    /// the new ones; existing links stay.
    pub tls: watch::Receiver<Credentials>,
    /// A peer that sends nothing for this long is taken for dead. Also the limit for a connection attempt and
    /// for a hello. Default 3 s, between 10 ms and one day. Raising it delays the detection of dead peers;
    /// lowering it below a few round trips breaks links.
    pub peer_timeout: Duration,
    /// The protocol versions spoken here. A link uses the highest common one. Default: those of this release.
    pub versions: RangeInclusive<u16>,
    /// The bound of each lane of each link.
    pub queue: QueueBound,
    /// Simulated distance, for playgrounds and tests. Default none.
    pub wan: Option<Wan>,
    /// Where the frames of [`Lane::Control`](super::Lane::Control) go, so that the control group and the
    /// reader of the events never wait for each other: a full channel stops this lane of the peers only.
    /// Default none: such frames are events like the others.
    pub control: Option<mpsc::Sender<ControlFrame>>,
    /// Where the requests of servers go that are no member and ask to join. Default none: they are refused.
    pub joins: Option<mpsc::Sender<JoinCall>>,
    /// Where peers were reached last, by the names of `peers`: used while a name cannot be resolved. Default
    /// none.
    pub addresses: LastAddresses,
}

/// A frame of the control group, on the link from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlFrame {
    pub peer: DcId,
    pub bytes: Bytes,
}

/// The request of a server that asks to join: it has a certificate of the cluster, for this datacenter.
#[derive(Debug)]
pub struct JoinCall {
    pub from: DcId,
    pub request: Bytes,
    /// The answer, at most [`MAX_JOIN_ANSWER`](super::MAX_JOIN_ANSWER) bytes. Dropping it refuses the call.
    pub answer: oneshot::Sender<Bytes>,
}

impl InterdcConfig {
    /// Creates a configuration with defaults: no peers, and credentials that do not change.
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
            generation: 0,
            listen,
            peers: Vec::new(),
            tls,
            peer_timeout: Duration::from_secs(3),
            versions: VERSIONS,
            queue: QueueBound::default(),
            wan: None,
            control: None,
            joins: None,
            addresses: LastAddresses::default(),
        }
    }
}
