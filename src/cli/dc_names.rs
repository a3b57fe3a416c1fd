//! Names of datacenters, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;

use super::connect::{self, ConnectArgs};
use super::failure::{Code, Failure};
use crate::base::time::brief;
use geolock_api::names::{DcId, MAX_DCS, is_plain};
use geolock_client::{AdminClient, ClientError, Status};

/// Parses `1`, or `dc1` as the commands print it.
pub fn parse(text: &str) -> Result<DcId, String> {
    let id = text.strip_prefix("dc").unwrap_or(text).parse().ok().and_then(DcId::new);
    id.ok_or_else(|| format!("datacenters have whole numbers below {MAX_DCS}"))
}

/// A datacenter as a command line names it: by its id, such as `1` or `dc1`, or by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DcRef {
    Id(DcId),
    /// The server knows the id.
    Name(String),
}

impl DcRef {
    pub fn parse(text: &str) -> Result<DcRef, String> {
        if let Ok(id) = parse(text) {
            return Ok(DcRef::Id(id));
        }
        let is_id = text.strip_prefix("dc").unwrap_or(text).parse::<i64>().is_ok();
        match is_plain(text) && !is_id {
            true => Ok(DcRef::Name(text.to_owned())),
            false => Err(format!("a whole number below {MAX_DCS}, or the name of a datacenter")),
        }
    }

    /// Returns the id. `known`: the names of the cluster's datacenters and witnesses by their ids.
    fn id(&self, known: &BTreeMap<u32, String>) -> Result<DcId, Failure> {
        let name = match self {
            DcRef::Id(id) => return Ok(*id),
            DcRef::Name(name) => name,
        };
        let found = known.iter().find(|(_, known)| *known == name);
        let id = found.and_then(|(id, _)| DcId::new(u8::try_from(*id).ok()?));
        id.ok_or_else(|| {
            let all = known.iter().map(|(id, name)| format!("{name} (dc{id})")).collect::<Vec<_>>();
            Failure::new(
                Code::Usage,
                anyhow!("no datacenter is called {name:?}; there are {}", all.join(", ")),
            )
        })
    }
}

/// Returns the ids, in their order. Asks the server only if there is a name among them.
pub async fn of_status(dcs: &[DcRef], connect: &ConnectArgs) -> Result<Vec<DcId>, Failure> {
    let known = match dcs.iter().any(|dc| matches!(dc, DcRef::Name(_))) {
        true => {
            let status = connect.read_client().await?.status().await.map_err(connect::failure)?;
            DcNames::of(&status).names
        }
        false => BTreeMap::new(),
    };
    dcs.iter().map(|dc| dc.id(&known)).collect()
}

/// As [`of_status`], with the names of witnesses.
pub async fn of_members(dcs: &[DcRef], admin: &AdminClient) -> Result<Vec<DcId>, Failure> {
    let mut known = BTreeMap::new();
    if dcs.iter().any(|dc| matches!(dc, DcRef::Name(_))) {
        let list = admin.members().await.map_err(connect::failure)?;
        known.extend(list.members.into_iter().map(|member| (member.dc, member.name)));
        known.extend(list.witnesses.into_iter().map(|witness| (witness.dc, witness.name)));
        if known.is_empty() {
            let status = admin.read_client().status().await.map_err(connect::failure)?;
            known = DcNames::of(&status).names;
        }
    }
    dcs.iter().map(|dc| dc.id(&known)).collect()
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

    #[test]
    fn a_datacenter_is_found_by_its_name_and_the_names_are_listed_otherwise() {
        let dc = |id| DcId::new(id).expect("small");
        let known = BTreeMap::from([(0, "fra".to_owned()), (3, "syd".to_owned())]);
        let id = |text: &str| DcRef::parse(text).map(|it| it.id(&known).map_err(|error| error.to_string()));
        assert_eq!([id("syd"), id("dc1"), id("2")], [3, 1, 2].map(|id| Ok(Ok(dc(id)))));
        let unknown = Err("no datacenter is called \"sid\"; there are fra (dc0), syd (dc3)".to_owned());
        assert_eq!(id("sid"), Ok(unknown));
        for wrong in ["", "64", "dc64", "-1", "Syd", "a b"] {
            assert!(DcRef::parse(wrong).is_err(), "{wrong}");
        }
    }
}
