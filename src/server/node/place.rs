//! The place of a server in its cluster: a founder, by its configuration, or a server that joined. A data
//! directory that has joined continues as that member; the configuration has no effect on that.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::NodeError;
use super::lost_history::{self, LostHistory};
use crate::base::wire::{CONTROL_VERSION, VERSIONS};
use crate::control::{ControlFile, MAX_VOTERS, MemberId, Timing};
use crate::interdc::{InterdcConfig, LastAddresses, Links, Wan};
use crate::journal::MemberNames;
use crate::lock_server::{DatacenterConfig, MembersHandle};
use crate::membership::{
    Address, AgreedOptions, Founder, Founding, Generation, MemberName, Policy, TextError,
};
use crate::pki::Credentials;
use crate::replica::AgreedConfig;
use crate::runtime::tasks::joined;
use crate::server::config::Config;
use crate::server::members::{
    Channels, Founders, Group, GroupConfig, JoinOptions, Joined, channels, founder_id, is_returning, join,
    read_joined, set_aside,
};
use geolock_api::names::{DcId, DcSet};
use tokio::sync::watch;

/// The place of a server as its data directory knows it.
enum Known {
    /// The configuration decides.
    Nothing,
    Joined(Box<Joined>),
    /// It was evicted, and joins again. The addresses of members to ask.
    Returning(Vec<String>),
}

fn known(dir: &Path) -> Result<Known, NodeError> {
    if let Some(returning) = set_aside(dir)? {
        return Ok(Known::Returning(returning.members));
    }
    Ok(read_joined(dir)?.map_or(Known::Nothing, |joined| Known::Joined(Box::new(joined))))
}

/// A server that knows its place.
pub(super) struct Place {
    config: Config,
    /// The member that it joined as.
    joined: Option<Joined>,
    /// The control group's file, if it was needed to join.
    file: Option<ControlFile>,
}

impl Place {
    /// Returns the place of this server. Joins first, if the configuration has `join` and the data directory
    /// is empty.
    pub(super) async fn find(config: Config, tls: &Credentials) -> Result<Place, NodeError> {
        lost_history::check(&config)?;
        let dir = config.journal.dir.clone();
        let known = joined(spawn_blocking(move || known(&dir)).await)?;
        if let Known::Joined(joined) = &known {
            is_member(&config, joined)?;
        }
        let to_ask = match &known {
            Known::Nothing => config.join.clone().map(|member| (vec![member], false)),
            Known::Returning(members) => Some((members.clone(), true)),
            Known::Joined(_) => None,
        };
        let (joined, file) = match (known, to_ask) {
            (Known::Joined(joined), _) => (Some(*joined), None),
            (_, Some((members, is_patient))) => {
                let (joined, file) = join(join_options(&config, members, (is_patient, false))?, tls).await?;
                (Some(joined), Some(file))
            }
            (_, None) => (None, None),
        };
        let config = match &joined {
            Some(joined) => as_joined(config, joined)?,
            None => config,
        };
        Ok(Place { config, joined, file })
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.config.journal.dir
    }

    /// Returns the members that are known at the start, with their names.
    pub(super) fn names(&self) -> BTreeMap<DcId, String> {
        match &self.joined {
            Some(joined) => joined.members.iter().map(|(dc, name, _)| (*dc, name.to_string())).collect(),
            None => self.config.members.iter().map(|member| (member.dc, member.name.clone())).collect(),
        }
    }

    /// Returns the watch over a founder that may have forgotten members that joined later.
    pub(super) fn lost_history(&self) -> LostHistory {
        LostHistory::of(&self.config, self.joined.is_some())
    }

    /// Returns the configuration of the lock server and its links, the channels of the control group, and
    /// the rest of the place.
    pub(super) fn parts(
        self,
        tls: watch::Receiver<Credentials>,
        wan: Option<Wan>,
        addresses: LastAddresses,
    ) -> (DatacenterConfig, Channels, GroupPlan) {
        let Place { config, joined, file } = self;
        let me = config.replica.dc;
        let (channels, control, joins) = channels();
        let generation = joined.as_ref().map_or(Generation(0), |joined| joined.generation);
        let peers = match &joined {
            Some(joined) => {
                joined.members.iter().map(|(dc, _, address)| (*dc, address.to_string())).collect()
            }
            None => {
                config.members.iter().map(|member| (member.dc, member.address.clone())).collect::<Vec<_>>()
            }
        };
        let links = InterdcConfig {
            peers: peers.into_iter().filter(|(dc, _)| *dc != me).collect(),
            peer_timeout: config.replica.agreed.peer_timeout,
            versions: *VERSIONS.start()..=config.replica.speaks,
            wan,
            control: Some(control),
            joins: Some(joins),
            addresses,
            generation: generation.0,
            ..InterdcConfig::following(me, &config.cluster_name, config.listen.quic, tls)
        };
        let has_joined = joined.is_some();
        let founders: Option<MemberNames> = (!has_joined).then(|| config.member_names());
        let plan = GroupPlan {
            me: MemberId { dc: me, generation: generation.0 },
            dir: config.journal.dir.clone(),
            file,
            founders: match joined {
                Some(_) => Founders::Joins,
                None => Founders::Configured(founding(&config)),
            },
            peer_timeout: config.replica.agreed.peer_timeout,
            has_rules: config.access.acl.is_some(),
        };
        let mut replica = config.replica;
        if !has_joined {
            replica.server = founder_id(replica.agreed.cluster, me);
        }
        replica.has_control_group = replica.speaks >= CONTROL_VERSION;
        let datacenter =
            DatacenterConfig { replica, journal: config.journal, links, server: config.server, founders };
        (datacenter, channels, plan)
    }
}

/// This server's part in the control group, not started.
pub(super) struct GroupPlan {
    me: MemberId,
    dir: std::path::PathBuf,
    file: Option<ControlFile>,
    founders: Founders,
    peer_timeout: Duration,
    has_rules: bool,
}

impl GroupPlan {
    pub(super) fn start(self, channels: Channels, links: Links, members: MembersHandle) -> io::Result<Group> {
        let config = GroupConfig {
            me: self.me,
            dir: self.dir,
            file: self.file,
            founders: self.founders,
            // A member that is silent for that long counts as unreachable, and so does a leader.
            timing: Timing::for_round_trip(self.peer_timeout / 10),
            has_rules: self.has_rules,
        };
        Group::start(config, channels, links, members)
    }
}

/// Returns an error if this is a witness.
fn is_member(config: &Config, joined: &Joined) -> Result<(), NodeError> {
    match joined.is_witness {
        true => Err(NodeError::OtherCommand { dir: config.journal.dir.clone(), is_witness: true }),
        false => Ok(()),
    }
}

/// Returns the witness that this server is. Joins first, if the data directory is empty.
pub(super) async fn joined_as_witness(
    config: &Config,
    tls: &Credentials,
) -> Result<(Joined, Option<ControlFile>), NodeError> {
    let (own, before) = (config.clone(), config.journal.dir.clone());
    joined(spawn_blocking(move || check_witness(&own)).await)?;
    let known = joined(spawn_blocking(move || read_joined(&before)).await)?;
    let (witness, file) = match known {
        Some(witness) => (witness, None),
        None => {
            let member = config.join.clone().ok_or(NodeError::NoJoin)?;
            let (witness, file) = join(join_options(config, vec![member], (false, true))?, tls).await?;
            (witness, Some(file))
        }
    };
    check_identity(config, &witness)?;
    Ok((witness, file))
}

/// Checks that the directory is that of a witness, or empty.
pub(crate) fn check_witness(config: &Config) -> Result<(), NodeError> {
    let dir = config.journal.dir.clone();
    if is_returning(&dir) {
        return Err(NodeError::OtherCommand { dir, is_witness: false });
    }
    match read_joined(&dir)? {
        Some(member) if !member.is_witness => Err(NodeError::OtherCommand { dir, is_witness: false }),
        Some(witness) => check_identity(config, &witness),
        None if config.join.is_none() => Err(NodeError::NoJoin),
        None => Ok(()),
    }
}

fn join_options(
    config: &Config,
    members: Vec<String>,
    (is_patient, is_witness): (bool, bool),
) -> Result<JoinOptions, NodeError> {
    let this = config.this_member();
    Ok(JoinOptions {
        members,
        is_patient,
        is_witness,
        without_rules: config.access.acl.is_none() && !config.join_without_rules,
        cluster: config.cluster_name.clone(),
        dc: this.dc,
        name: MemberName::new(&this.name)?,
        address: Address::new(&this.address)?,
        data_dir: config.journal.dir.clone(),
        version: config.replica.speaks,
    })
}

/// Returns an error if the certificate and the configuration are those of another server.
fn check_identity(config: &Config, joined: &Joined) -> Result<(), NodeError> {
    if joined.cluster != config.cluster_name || joined.dc != config.replica.dc {
        return Err(NodeError::OtherMember {
            dir: config.journal.dir.clone(),
            found: format!("{} of cluster {}", joined.dc, joined.cluster),
            configured: format!("{} of cluster {}", config.replica.dc, config.cluster_name),
        });
    }
    Ok(())
}

/// Returns the configuration of a server that joined as this member.
fn as_joined(mut config: Config, joined: &Joined) -> Result<Config, NodeError> {
    check_identity(&config, joined)?;
    let millis = |millis: u32| Duration::from_millis(millis.into());
    let agreed = AgreedConfig {
        members: DcSet::only(joined.dc),
        heartbeat: millis(joined.options.heartbeat_ms),
        peer_timeout: millis(joined.options.peer_timeout_ms),
        max_clock_skew: millis(joined.options.max_clock_skew_ms),
        ..config.replica.agreed.clone()
    };
    config.replica.agreed = agreed;
    config.replica.joins = true;
    config.replica.server = joined.server;
    Ok(config)
}

/// Returns the first decision, as this configuration has it. The members with the lowest ids vote.
fn founding(config: &Config) -> Result<Founding, TextError> {
    let cluster = config.replica.agreed.cluster;
    let ids: BTreeSet<DcId> = config.members.iter().map(|member| member.dc).collect();
    let voters: BTreeSet<DcId> = ids.into_iter().take(MAX_VOTERS).collect();
    let founder = |member: &crate::server::config::Member| {
        Ok(Founder {
            dc: member.dc,
            server: founder_id(cluster, member.dc),
            name: MemberName::new(&member.name)?,
            address: Address::new(&member.address)?,
            votes: voters.contains(&member.dc),
        })
    };
    let AgreedConfig { heartbeat, peer_timeout, max_clock_skew, .. } = config.replica.agreed;
    // All are at most an hour.
    let millis = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    Ok(Founding {
        cluster,
        founders: config.members.iter().map(founder).collect::<Result<_, TextError>>()?,
        policy: Policy { join: config.join_policy, ..Policy::default() },
        options: AgreedOptions {
            heartbeat_ms: millis(heartbeat),
            peer_timeout_ms: millis(peer_timeout),
            max_clock_skew_ms: millis(max_clock_skew),
        },
        version: CONTROL_VERSION,
    })
}

/// Checks that the directory is one of a founder with these members, or of a server that joined.
pub(crate) fn check(config: &Config) -> Result<(), NodeError> {
    let dir: &Path = &config.journal.dir;
    lost_history::check(config)?;
    if is_returning(dir) {
        return Ok(());
    }
    match read_joined(dir)? {
        Some(joined) => {
            is_member(config, &joined)?;
            as_joined(config.clone(), &joined).map(drop)
        }
        None if config.join.is_some() => Ok(()),
        None => Ok(crate::journal::check_members(dir, &config.member_names())
            .map_err(crate::lock_server::StartError::from)?),
    }
}
