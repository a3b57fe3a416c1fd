//! The links as the control group sees them: the peers whose links have a lane for it.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::control::ControlLinks;
use crate::interdc::Links;
use geolock_api::names::{DcId, DcSet};

/// The control lanes of all links.
pub(super) struct Lanes {
    links: Links,
    peers: watch::Receiver<DcSet>,
}

impl Lanes {
    pub(super) fn new(links: Links) -> Lanes {
        let peers = links.control_peers();
        Lanes { links, peers }
    }
}

impl ControlLinks for Lanes {
    fn linked(&self) -> DcSet {
        *self.peers.borrow()
    }

    fn send(&self, to: DcId, frame: Bytes) -> bool {
        self.links.send_control(to, frame)
    }

    fn round_trip(&self, to: DcId) -> Option<Duration> {
        self.links.round_trip(to)
    }
}
