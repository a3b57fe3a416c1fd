//! The file by which a data directory remembers that it belongs to a server that was admitted. With it, a
//! server continues where it was stopped: before it has a state, or long after.
//!
//! It is written once, before the journal begins. The journal then has the decisions, which count: the
//! members here are only those to ask first.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::durable_file::{self, FileFault};
use super::wire::{Admitted, AdmittedMember};
use crate::membership::{Address, AgreedOptions, Generation, MemberName, ServerId};
use geolock_api::names::DcId;

const FILE: &str = "joined.json";
const FORMAT: u32 = 1;

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinedFileError {
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} does not say as which member this server joined ({reason}): restore it from a backup of the directory",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
}

impl From<FileFault> for JoinedFileError {
    fn from(fault: FileFault) -> JoinedFileError {
        match fault {
            FileFault::Io { doing, path, source } => JoinedFileError::Io { doing, path, source },
            FileFault::Damaged { path, reason } => JoinedFileError::Damaged { path, reason },
        }
    }
}

/// A server that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub cluster: String,
    pub dc: DcId,
    /// It is a witness, and no member.
    pub is_witness: bool,
    /// The id by which the decisions name it.
    pub server: ServerId,
    /// The number of servers that had its slot before.
    pub generation: Generation,
    /// The members at its admission, itself included.
    pub members: Vec<(DcId, MemberName, Address)>,
    pub options: AgreedOptions,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    cluster: String,
    dc: u8,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    witness: bool,
    server: String,
    #[serde(default)]
    generation: Generation,
    options: AgreedOptions,
    members: Vec<MemberLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberLine {
    dc: u8,
    name: String,
    address: String,
}

impl Joined {
    pub(super) fn new(
        cluster: &str,
        (dc, is_witness): (DcId, bool),
        server: ServerId,
        admitted: Admitted,
    ) -> Joined {
        let member = |AdmittedMember { dc, name, address }| (dc, name, address);
        let members = admitted.members.into_iter().map(member).collect();
        let Admitted { generation, options, .. } = admitted;
        Joined { cluster: cluster.into(), dc, is_witness, server, generation, members, options }
    }
}

/// Returns true if the directory has the file.
pub fn is_joined(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Reads the file of a data directory, if there is one.
pub fn read(dir: &Path) -> Result<Option<Joined>, JoinedFileError> {
    let damaged = |reason| JoinedFileError::Damaged { path: dir.join(FILE), reason };
    let content = durable_file::read::<Content>(dir, FILE)?;
    content.map(|content| parse(content).map_err(damaged)).transpose()
}

fn parse(content: Content) -> Result<Joined, String> {
    if content.format != FORMAT {
        return Err(format!("format {}, known here is {FORMAT}", content.format));
    }
    let slot = |id: u8| DcId::new(id).ok_or_else(|| format!("there is no datacenter {id}"));
    let member = |line: MemberLine| {
        let name = MemberName::new(&line.name).map_err(|error| error.to_string())?;
        let address = Address::new(&line.address).map_err(|error| error.to_string())?;
        Ok((slot(line.dc)?, name, address))
    };
    content.options.validate().map_err(|refused| refused.to_string())?;
    Ok(Joined {
        dc: slot(content.dc)?,
        is_witness: content.witness,
        server: u128::from_str_radix(&content.server, 16)
            .map(|id| ServerId(id.to_be_bytes()))
            .map_err(|error| format!("its server id: {error}"))?,
        generation: content.generation,
        members: content.members.into_iter().map(member).collect::<Result<_, String>>()?,
        cluster: content.cluster,
        options: content.options,
    })
}

/// Writes the file durably, in a directory that exists.
pub(super) fn write(dir: &Path, joined: &Joined) -> Result<(), JoinedFileError> {
    let content = Content {
        format: FORMAT,
        cluster: joined.cluster.clone(),
        dc: joined.dc.get(),
        witness: joined.is_witness,
        server: joined.server.to_string(),
        generation: joined.generation,
        options: joined.options,
        members: joined
            .members
            .iter()
            .map(|(dc, name, address)| MemberLine {
                dc: dc.get(),
                name: name.to_string(),
                address: address.to_string(),
            })
            .collect(),
    };
    Ok(durable_file::write(dir, FILE, &content)?)
}
