//! Names of datacenters, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::time::brief;

use geolock_api::names::{DcId, MAX_DCS};
use geolock_client::{ClientError, Status};

/// Parses `1`, or `dc1` as the commands print it.
pub fn parse(text: &str) -> Result<DcId, String> {
    let id = text.strip_prefix("dc").unwrap_or(text).parse().ok().and_then(DcId::new);
    id.ok_or_else(|| format!("datacenters have whole numbers below {MAX_DCS}"))
}

/// Names of datacenters by id.
#[derive(Clone, Debug, Default)]
pub struct DcNames {
    names: BTreeMap<u32, String>,
    /// The datacenter that answered.
    own: Option<u32>,
    /// How long ago it heard others, in ms.
    heard_ms: BTreeMap<u32, u64>,
}

impl DcNames {
    /// Takes the names from a server's status. Without a status there are none, and ids are shown.
    pub fn of_answer(status: Result<Status, ClientError>) -> DcNames {
        status.map(|status| DcNames::of(&status)).unwrap_or_default()
    }

    pub fn of(status: &Status) -> DcNames {
        let peers = status.peers.iter().map(|peer| (peer.dc, peer.dc_name.clone()));
        let names = peers.chain([(status.dc, status.dc_name.clone())]).collect();
        let heard = status.peers.iter().filter_map(|peer| Some((peer.dc, peer.at_stake?.heard_ms?)));
        DcNames { names, own: Some(status.dc), heard_ms: heard.collect() }
    }

    /// Returns true if it is not the datacenter that answered.
    pub fn is_elsewhere(&self, dc: u32) -> bool {
        self.own.is_some_and(|own| own != dc)
    }

    /// Returns `dc1 (virginia)`, or `dc1` without a name.
    pub fn show(&self, dc: u32) -> String {
        let id = format!("dc{dc}");
        match self.names.get(&dc) {
            Some(name) if !name.is_empty() && *name != id => format!("{id} ({name})"),
            _ => id,
        }
    }

    /// Returns them with the times since they were heard, separated by commas.
    pub fn list_unheard(&self, dcs: &[u32]) -> String {
        let one = |dc: &u32| match self.heard_ms.get(dc) {
            Some(ms) => format!("{}, last heard {} ago", self.show(*dc), brief(Duration::from_millis(*ms))),
            None => self.show(*dc),
        };
        dcs.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Returns all of them, separated by commas.
    pub fn list(&self, dcs: &[u32]) -> String {
        dcs.iter().map(|dc| self.show(*dc)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datacenter_is_a_number_with_or_without_dc() {
        let one = DcId::new(1).expect("small");
        assert_eq!([parse("1"), parse("dc1")], [Ok(one), Ok(one)]);
        for wrong in ["", "dc", "64", "-1", "oslo"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
