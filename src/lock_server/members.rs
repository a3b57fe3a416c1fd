//! The members of the cluster, between the machine and the control group. Decisions and commands come in and
//! proposals go out; nothing here waits for them, so a control group that is slow, or not there, holds up no
//! lock.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::engine::Engine;
use super::ports::{Links, Machine, Store};
use crate::base::time::Timestamp;
use crate::membership::{
    Command, Config, Epoch, Facts, Fallen, Index, Lineage, LossReport, Proposal, RecoveryPlan, Unsettled,
    Voter,
};
use crate::replica::{Event, MAX_LEASE_TTL, RecoveryView, StayView};
use geolock_api::names::{DcId, DcSet};

/// Most decisions that wait for the actor; a sender waits for space.
const WAITING_INPUTS: usize = 64;
/// Most proposals that wait for the control group; further ones are lost, and the machine repeats them.
const WAITING_PROPOSALS: usize = 16;

/// An input from the control group, or a command to propose.
#[derive(Debug)]
pub enum MembersInput {
    /// The control group of this lineage has made this decision, which has this number.
    Decided { lineage: Lineage, index: Index, proposal: Box<Proposal> },
    /// To be checked, and proposed if it is possible now.
    Propose(Box<Command>),
    /// An operator says that a majority of the members is gone for good.
    Recover(RecoveryPlan),
    /// An operator takes the leave of this datacenter back.
    CancelLeave,
    /// This server was evicted, or the cluster was recovered without it: it ends the leases of its clients.
    Ended,
}

impl From<MembersInput> for Event {
    fn from(input: MembersInput) -> Event {
        match input {
            MembersInput::Decided { lineage, index, proposal } => Event::Decided { lineage, index, proposal },
            MembersInput::Recover(plan) => Event::Recover { plan },
            MembersInput::CancelLeave => Event::CancelLeave,
            MembersInput::Propose(command) => Event::Propose { command },
            MembersInput::Ended => Event::Ended,
        }
    }
}

/// An output of the machine for the control group.
#[derive(Debug)]
pub enum MembersOutput {
    Propose(Box<Proposal>),
    /// A command is not possible now.
    Refused {
        why: String,
    },
}

/// The members as the machine of this datacenter sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MembersView {
    /// The state after the decisions that are known here; the default if there are none.
    pub config: Config,
    /// The last epoch that each member has entered, as far as is known here.
    pub entered: Vec<(DcId, Epoch)>,
    /// The other members that this one hears, by any path.
    pub heard: DcSet,
    /// The witnesses that this one hears, and by member the one that hears it, if one does.
    pub witnesses: (DcSet, BTreeMap<DcId, DcId>),
    /// The clocks of the last heartbeats of the members that are not heard, whoever heard them.
    pub last_clocks: BTreeMap<DcId, Timestamp>,
    /// The longest lease that a client of each member may have, as far as is known here.
    pub lease_limits: BTreeMap<DcId, Duration>,
    /// The members that have said that they leave.
    pub left: DcSet,
    /// The members that have freed each slot that is over ([`Facts::freed`]).
    pub freed: BTreeMap<DcId, DcSet>,
    /// The members that changes of the members have to wait for.
    pub unsettled: Unsettled,
    /// The highest version that each member and witness speaks, as far as it is known here.
    pub versions: BTreeMap<Voter, u16>,
    /// The forced recovery that an operator has asked this one for.
    pub recovery: RecoveryView,
    /// The leaves that operators have taken back.
    pub stay: StayView,
    /// The state after the last forced recovery, once its decision is on disk.
    pub recovered: Option<Config>,
    /// The forced recoveries that are entered here.
    pub losses: Vec<LossReport>,
    /// The locks and counters of the last ends of members, by name.
    pub fallen: Vec<Fallen>,
}

impl MembersView {
    /// Returns the facts for a check of a proposal, as far as they are known here. `me`: this datacenter.
    pub fn facts(&self, me: DcId, config: &Config) -> Facts {
        let voter = |(dc, generation)| Voter::Member { dc, generation };
        let members = || config.slots().members().map(|(dc, member)| (dc, member.generation));
        let by = members().find(|(dc, _)| *dc == me).map(voter);
        let by_witness = |(dc, witness): (&DcId, &DcId)| {
            let (id, _) = config.witnesses().at(*witness)?;
            Some((*dc, (Voter::Witness(id), Duration::ZERO)))
        };
        let by_witnesses = self.witnesses.1.iter().filter_map(by_witness);
        let heard = by_witnesses.chain(self.heard.iter().filter_map(|dc| Some((dc, (by?, Duration::ZERO)))));
        let is_reached = |dc: DcId| dc == me || self.heard.contains(dc);
        let reached = members().filter(|(dc, _)| is_reached(*dc)).map(voter);
        let witnesses = config.witnesses().iter().filter(|(_, it)| self.witnesses.0.contains(it.dc));
        Facts {
            me: Some(me),
            reachable: reached.chain(witnesses.map(|(id, _)| Voter::Witness(id))).collect(),
            entered: self.entered.iter().copied().collect(),
            left: self.left,
            freed: self.freed.clone(),
            unsettled: self.unsettled,
            heard: heard.collect(),
            heard_within: Duration::MAX,
            last_clocks: self.last_clocks.clone(),
            versions: self.versions.clone(),
        }
    }

    /// Returns the longest lease that a client of these members may have.
    pub fn longest_lease(&self, of: impl IntoIterator<Item = DcId>) -> Duration {
        let limit = |dc| self.lease_limits.get(&dc).copied().unwrap_or(MAX_LEASE_TTL);
        of.into_iter().map(limit).max().unwrap_or_default()
    }

    /// Returns the members that have not entered the last epoch, as far as is known here.
    pub fn behind(&self) -> DcSet {
        let is_behind = |(_, entered): &&(DcId, Epoch)| *entered < self.config.epoch();
        self.entered.iter().filter(is_behind).map(|(dc, _)| *dc).collect()
    }
}

/// The lock server's ends of the channels.
pub struct MembersPort {
    pub(super) inputs: mpsc::Receiver<MembersInput>,
    pub(super) outlet: MembersOutlet,
}

/// Where the machine's outputs go.
pub(super) struct MembersOutlet {
    outputs: mpsc::Sender<MembersOutput>,
    view: watch::Sender<MembersView>,
}

/// The other ends.
pub struct MembersHandle {
    pub inputs: mpsc::Sender<MembersInput>,
    pub outputs: mpsc::Receiver<MembersOutput>,
    pub view: watch::Receiver<MembersView>,
}

/// Returns both ends of the channels of a lock server.
pub fn members_port() -> (MembersPort, MembersHandle) {
    let (inputs_in, inputs) = mpsc::channel(WAITING_INPUTS);
    let (outputs, outputs_out) = mpsc::channel(WAITING_PROPOSALS);
    let view = watch::Sender::new(MembersView::default());
    let handle = MembersHandle { inputs: inputs_in, outputs: outputs_out, view: view.subscribe() };
    (MembersPort { inputs, outlet: MembersOutlet { outputs, view } }, handle)
}

impl MembersOutlet {
    pub(super) fn send(&self, output: MembersOutput) {
        // Without space, or without a control group, it is lost.
        let _ = self.outputs.try_send(output);
    }
}

impl<M: Machine, S: Store, L: Links> Engine<M, S, L> {
    /// Shows the members if something about them has changed, and links to those that are new.
    pub(super) fn publish_members(&mut self) {
        let Some(config) = self.machine.members() else { return };
        let entered: Vec<_> =
            config.slots().members().map(|(dc, _)| (dc, self.machine.entered_by(dc))).collect();
        let (heard, left, freed) = (self.machine.heard(), self.machine.left(), self.machine.freed());
        let (recovery, losses) = (self.machine.recovery(), self.machine.losses());
        let (stay, unsettled) = (self.machine.stay(), self.machine.unsettled());
        let (recovered, witnesses) = (self.machine.recovered(), self.machine.heard_witnesses());
        let (last_clocks, versions) = (self.machine.last_clocks(), self.machine.versions());
        let lease_limits = self.machine.lease_limits();
        let view = &self.outlets.members.view;
        let is_known = {
            let known = view.borrow();
            let is_same = known.config.index() == config.index() && known.entered == entered;
            let is_heard = (known.heard, known.left) == (heard, left) && known.freed == freed;
            let is_heard = is_heard && known.unsettled == unsettled && known.versions == versions;
            let is_recovered = known.recovered.as_ref().map(Config::index) == recovered.map(Config::index);
            let is_reported = known.recovery == recovery && known.losses.len() == losses.len();
            let is_heard = is_heard && known.witnesses == witnesses && known.last_clocks == last_clocks;
            let is_heard = is_heard && known.lease_limits == lease_limits;
            let ends = |fallen: &[Fallen]| fallen.last().map(|last| last.epoch);
            let is_named = ends(&known.fallen) == ends(self.machine.fallen());
            is_same && is_heard && is_recovered && is_reported && known.stay == stay && is_named
        };
        if !is_known {
            for (dc, member) in config.slots().members() {
                self.outlets.links.add_peer(dc, member.address.as_str(), member.generation.0);
            }
            // The id of a witness is used once.
            for (_, witness) in config.witnesses().iter() {
                self.outlets.links.add_peer(witness.dc, witness.address.as_str(), 0);
            }
            let (config, losses, recovered) = (config.clone(), losses.to_vec(), recovered.cloned());
            view.send_replace(MembersView {
                config,
                entered,
                heard,
                witnesses,
                last_clocks,
                lease_limits,
                left,
                freed,
                unsettled,
                versions,
                recovery,
                stay,
                recovered,
                losses,
                fallen: self.machine.fallen().to_vec(),
            });
        }
    }
}
