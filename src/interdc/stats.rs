//! Statistics of links.

use std::time::Duration;

use geolock_api::names::DcId;

/// Statistics of the links of one datacenter since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterdcStats {
    /// Ordered by id.
    pub peers: Vec<PeerStats>,
    /// Incoming connections refused: strangers, wrong certificates, too many at once.
    pub refused: u64,
    pub last_refusal: Option<String>,
}

/// Statistics of the links to one peer since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStats {
    pub peer: DcId,
    pub up: bool,
    /// QUIC's estimate, while the link is up.
    pub rtt: Option<Duration>,
    pub urgent: LaneStats,
    pub bulk: LaneStats,
    pub state: LaneStats,
    pub control: LaneStats,
    pub wire: WireStats,
    /// Links after the first.
    pub reconnects: u64,
    /// The reason why there is no link, or why there was none before this one.
    pub last_error: Option<String>,
}

impl PeerStats {
    /// Returns the number of messages sent on all lanes.
    pub fn messages_sent(&self) -> u64 {
        [self.urgent, self.bulk, self.state, self.control].iter().map(|lane| lane.messages_sent).sum()
    }

    /// Returns the number of messages received on all lanes.
    pub fn messages_received(&self) -> u64 {
        [self.urgent, self.bulk, self.state, self.control].iter().map(|lane| lane.messages_received).sum()
    }
}

/// Messages on one lane, and their bytes without framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
}

/// Bytes in UDP datagrams, including QUIC's own frames, acknowledgements and retransmissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl WireStats {
    pub(super) fn and(self, connection: &quinn::Connection) -> WireStats {
        let stats = connection.stats();
        WireStats {
            bytes_sent: self.bytes_sent + stats.udp_tx.bytes,
            bytes_received: self.bytes_received + stats.udp_rx.bytes,
        }
    }
}
