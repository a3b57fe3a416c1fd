//! The state of a datacenter as others may read it: servers, the simulator, tests and benchmarks.
//!
//! Nothing here changes the machine, and the machine decides nothing by it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Replica;
use super::call::{Counts, Phase, Status};
use super::lend::lend;
use super::record::{Checkpoint, RequestRow};
use crate::base::time::Timestamp;
use crate::crdt::{Ownership, VersionVector};
use crate::membership::{Config, Epoch, Fallen, LossReport, Proposal, Unsettled, Voter};
use crate::replica::members::{ListState, spoken_versions, unsettled};
use crate::replica::record::checkpoint_builder::FIRST_OUTCOME;
use crate::replica::record::recover::begin_checkpoint;
use crate::replica::{RecoveryView, StayView};
use crate::store_state::Content;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, FencingToken, LockName, Position};

/// Read access to a [`Replica`].
#[derive(Clone, Copy)]
pub struct Inspect<'a>(&'a Replica);

impl Replica {
    /// Returns read access to the state.
    #[inline]
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect(self)
    }
}

impl<'a> Inspect<'a> {
    /// Returns the datacenter that this machine is.
    pub fn dc(self) -> DcId {
        self.0.config.dc
    }

    /// Returns the owner of a part of a lock, as known here.
    pub fn owner_of(self, lock: &LockName, part: DcId) -> DcId {
        self.ownership().of(lock).owner(part)
    }

    /// Returns the ownership of all parts, as known here.
    pub fn ownership(self) -> &'a Ownership {
        self.0.locks.owners().map()
    }

    /// Returns every published request, by id.
    pub fn request_table(self) -> Vec<RequestRow> {
        self.0.locks.inspect().request_table()
    }

    /// Returns the contents of all keys, in no order.
    pub fn contents(self) -> Vec<(Key, Content)> {
        self.0.data.store.contents()
    }

    /// Returns the state that the records so far amount to. A server has [`Effect::Checkpoint`], which is
    /// made in bounded steps.
    ///
    /// [`Effect::Checkpoint`]: super::Effect::Checkpoint
    pub fn checkpoint(self) -> Checkpoint {
        let replica = self.0;
        let (ownership, requests) = (self.ownership().copy(), self.request_table());
        let mut leases: Vec<_> = replica.clients.leases.iter().map(|lease| lease.record()).collect();
        leases.sort_by_key(|lease| lease.lease);
        let (mut outcomes, mut commit_contents) = (Vec::new(), Vec::new());
        let (from, at, most) = (FIRST_OUTCOME, Position(u64::MAX), usize::MAX);
        replica.data.transactions.outcomes.copy(from, at, most, (&mut outcomes, &mut commit_contents));
        Checkpoint {
            ownership,
            requests,
            contents: self.contents(),
            leases,
            outcomes,
            commit_contents,
            log: replica.log.entries().iter().cloned().collect(),
            ..begin_checkpoint(replica)
        }
    }

    /// Returns the vector of the entries that are applied here.
    pub fn applied(self) -> &'a VersionVector {
        self.0.log.applied()
    }

    /// Returns the members that are unreachable, as seen from here.
    pub fn unreachable(self) -> DcSet {
        self.0.peers.reachability.unreachable()
    }

    /// Returns the members that are away, as seen from here: unreachable, or reachable and not serving. While
    /// this datacenter makes no entries, or holds those of the others back because its clock is behind, all
    /// others are away: no part can move between it and them.
    pub fn away(self) -> DcSet {
        self.0.peers.away(&self.0.members, &self.0.lifecycle, &self.0.locks)
    }

    /// Returns the reading that a token was made of, or an earlier one if the lead has grown since.
    pub(crate) fn stamp_of(self, token: FencingToken) -> Timestamp {
        self.0.ids.stamp_of(token)
    }

    /// Returns the phase of the lifecycle.
    pub fn phase(self) -> Phase {
        self.0.lifecycle.phase()
    }

    /// Returns true if there may be a link to `dc`: it is a member as far as is known here, or this server
    /// joins and does not know the members yet.
    pub fn may_link(self, dc: DcId) -> bool {
        self.0.members.may_link(dc)
    }

    /// Returns the witnesses that are heard, and by member the one that hears it, if one does.
    pub fn heard_witnesses(self) -> (DcSet, BTreeMap<DcId, DcId>) {
        let (witnesses, within) = (&self.0.peers.witnesses, self.0.config.agreed.peer_timeout);
        let now = self.0.now.mono;
        let heard = witnesses.heard(now).filter(|(.., ago)| *ago <= within);
        (witnesses.alive(now, within), heard.map(|(witness, dc, _)| (dc, witness)).collect())
    }

    /// Returns the clocks of the last heartbeats of the members that are not heard, whoever heard them.
    pub fn last_clocks(self) -> BTreeMap<DcId, Timestamp> {
        let mut clocks = self.0.members.last_clocks(&self.0.peers);
        let heard = self.heard();
        clocks.retain(|dc, _| !heard.contains(*dc));
        clocks
    }

    /// Returns the longest lease that a client of each member may have.
    pub fn lease_limits(self) -> BTreeMap<DcId, Duration> {
        self.0.members.lease_limits.of_members(self.0.members.decided.config(), &self.0.config)
    }

    /// Returns the ids of the witnesses, as far as is known here: there may be a link to each.
    pub fn witnesses(self) -> DcSet {
        self.0.members.decided.config().witnesses().dcs()
    }

    /// Returns the members of the epoch that the own log has entered: locks have parts of these here.
    pub fn members(self) -> DcSet {
        self.0.members.entered.all()
    }

    /// Returns true if this datacenter has said, as the last entry of its log, that it leaves: it acts no
    /// more.
    pub fn has_left(self) -> bool {
        self.0.members.entered.has_left(self.0.config.dc)
    }

    /// Returns true if the end of this datacenter is decided: it has left.
    pub fn is_over(self) -> bool {
        self.0.members.decided.is_over()
    }

    /// Returns true unless this server joins and has no state yet: then it knows nothing of locks.
    pub fn has_state(self) -> bool {
        !self.0.members.decided.awaits_state()
    }

    /// Returns the vector of the entries that are no longer kept here.
    pub fn truncated(self) -> &'a VersionVector {
        self.0.log.truncated().vector()
    }

    /// Returns the members after the decisions that are known here; `None` if there are none.
    pub fn decided_members(self) -> Option<&'a Config> {
        self.0.members.decided.has_decisions().then(|| self.0.members.decided.config())
    }

    /// Returns the last epoch that a member has entered, as the entries that are applied here say.
    pub fn entered_by(self, dc: DcId) -> Epoch {
        self.0.members.entered.epoch_of(dc)
    }

    /// Returns the other members that are heard, by whatever way, as of the last step.
    pub fn heard(self) -> DcSet {
        self.0.peers.reachability.alive(self.0.now.mono)
    }

    /// Returns the epoch that is entered here.
    pub fn epoch(self) -> Epoch {
        self.0.members.entered.epoch()
    }

    /// Returns true while requests that were parked, or not, are examined again bit by bit.
    pub fn is_examining(self) -> bool {
        self.0.locks.is_examining()
    }

    /// Returns the members that have said, as the last entry of their logs, that they leave.
    pub fn left(self) -> DcSet {
        self.0.members.entered.left()
    }

    /// Returns the members that have freed each slot that is over: nothing that names its last member is
    /// still to come.
    pub fn freed(self) -> BTreeMap<DcId, DcSet> {
        self.0.members.ended_slots.freed()
    }

    /// Returns the members that changes have to wait for.
    pub fn unsettled(self) -> Unsettled {
        let Replica { members, locks, log, peers, config, .. } = self.0;
        unsettled(members, locks.owners().sponsors().rules(), log, &peers.reachability, config.bugs)
    }

    /// Returns the highest version that each member and witness speaks, as far as it is known.
    pub fn versions(self) -> BTreeMap<Voter, u16> {
        spoken_versions(&self.0.members, &self.0.lifecycle, &self.0.peers)
    }

    /// Returns the forced recovery that an operator has asked for here.
    pub fn recovery(self) -> RecoveryView {
        self.0.members.recovering.view()
    }

    /// Returns true if this datacenter leaves, and has promised not to.
    pub fn is_to_stay(self) -> bool {
        self.0.members.stay.is_promised()
    }

    /// Returns the leaves that operators have taken back.
    pub fn stay(self) -> StayView {
        self.0.members.stay.view(&self.0.members.decided)
    }

    /// Returns the decisions that are known here: the last ones, and the state after those before.
    pub fn decisions(self) -> (&'a ListState, &'a [Proposal]) {
        let list = self.0.members.decided.list();
        (list.compacted(), list.proposals())
    }

    /// Returns the state after the last forced recovery, once its decision is on disk here.
    pub fn recovered(self) -> Option<&'a Config> {
        self.0.members.recovering.recovered(&self.0.members.decided)
    }

    /// Returns the forced recoveries that are entered here, and what each took with it.
    pub fn losses(self) -> &'a [LossReport] {
        self.0.members.recovering.loss_reports()
    }

    /// Returns the locks and counters of the last ends of members, the latest last.
    pub fn fallen(self) -> &'a [Fallen] {
        self.0.members.ends.all()
    }

    /// Returns the state of this datacenter for operators.
    pub fn status(self) -> Status {
        let replica = self.0;
        lend!(StatusView, replica).status()
    }

    /// Returns gauges and counters.
    pub fn counts(self) -> Counts {
        let replica = self.0;
        lend!(StatusView, replica).counts()
    }
}
