//! Datacenters as people know them.

use std::collections::BTreeMap;

use crate::client::{ClientError, Status};

/// Names of datacenters by id.
#[derive(Clone, Debug, Default)]
pub struct DcNames {
    names: BTreeMap<u32, String>,
    /// The one that answered.
    own: Option<u32>,
}

impl DcNames {
    /// From what a server answered. Without an answer there are none, and ids have to do.
    pub fn of_answer(status: Result<Status, ClientError>) -> DcNames {
        status.map(|status| DcNames::of(&status)).unwrap_or_default()
    }

    pub fn of(status: &Status) -> DcNames {
        let peers = status.peers.iter().map(|peer| (peer.dc, peer.dc_name.clone()));
        let names = peers.chain([(status.dc, status.dc_name.clone())]).collect();
        DcNames { names, own: Some(status.dc) }
    }

    /// Whether it is another one than that which answered.
    pub fn is_elsewhere(&self, dc: u32) -> bool {
        self.own.is_some_and(|own| own != dc)
    }

    /// `dc1 (virginia)`, or `dc1` if that is all there is to say.
    pub fn show(&self, dc: u32) -> String {
        let id = format!("dc{dc}");
        match self.names.get(&dc) {
            Some(name) if !name.is_empty() && *name != id => format!("{id} ({name})"),
            _ => id,
        }
    }

    /// All of them, separated by commas.
    pub fn list(&self, dcs: &[u32]) -> String {
        dcs.iter().map(|dc| self.show(*dc)).collect::<Vec<_>>().join(", ")
    }
}
