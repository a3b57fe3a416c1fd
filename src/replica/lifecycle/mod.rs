//! The lifecycle of a datacenter from its start to serving, and the permissions of each phase
//! (`docs/algorithm.md#91-lifecycle`).

mod fork;
mod log_recovery;
mod not_serving;

pub use fork::Fork;
pub(in crate::replica) use log_recovery::LogRecovery;
pub use not_serving::NotServing;
pub(in crate::replica) use not_serving::is_same;

use crate::capacity::{DiskSpace, Load};
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::names::{DcId, DcSet};
use crate::replica::Replica;
use crate::replica::call::{Phase, Refusal};
use crate::replica::effect::Report;
use crate::replica::message::Message;
use crate::replica::record::Record;
use crate::replica::stability::Floor;
use crate::time::Instant;

/// A minority keeps up to this many times `max_log` for the others.
const MINORITY_LOGS: usize = 4;

/// The state that decides the phase.
pub(in crate::replica) struct Life {
    /// A step was made since the start.
    pub begun: bool,
    /// Time of the first step.
    pub began_at: Instant,
    /// After a restart: until then nothing is stamped, so that reservations of repeated restarts do not add
    /// up.
    pub quiet_until: Option<Instant>,
    /// Every member was heard once, now or before a restart, and all that they knew of our log is here.
    pub joined: bool,
    /// After a restart: until then we wait for members that were not heard yet. The disk may be an old copy,
    /// and then any of them may know more of our log.
    pub asks_until: Option<Instant>,
    /// The data directory is a restored copy: leases that it does not know may live until then.
    pub joins_after: Option<Instant>,
    /// This run began to wait for leases that the directory does not know. Nothing was granted since, unless
    /// the datacenter has joined after that.
    pub doubted: bool,
    /// Two histories exist, and this directory has one of them.
    pub fork: Option<Fork>,
    /// Peers that know version 2 of the protocol.
    pub upgraded: DcSet,
    /// All members know version 2, now or earlier: own entries name their predecessors.
    pub chained: bool,
    /// Members heard since the start.
    pub heard: DcSet,
    /// Seq of the last own entry that any member is known to have.
    pub own_known: u64,
    /// Entries that peers know we applied but that are missing here: this disk is an old copy. Relying on
    /// that, peers may already have dropped tombstones.
    pub relied_on: Option<VersionVector>,
    pub clock_skew: bool,
    /// The clock at the start of this run, in milliseconds since the Unix epoch.
    pub began_at_millis: u64,
    /// Most members heard since the restart are behind our clock by more than the limit.
    pub contradicted: bool,
    /// A minority keeps as many entries for others as it may: see [`Replica::update_log_full`].
    pub log_full: bool,
    /// The reason why this datacenter does not serve, as last announced to the peers.
    pub not_serving: Option<NotServing>,
    pub draining: bool,
    pub room: DiskSpace,
    pub load: Load,
    pub phase: Phase,
}

impl Life {
    /// The state of a datacenter that knows nothing yet.
    pub fn new() -> Life {
        Life {
            begun: false,
            began_at: Instant::ZERO,
            quiet_until: None,
            joined: false,
            asks_until: None,
            joins_after: None,
            doubted: false,
            fork: None,
            upgraded: DcSet::EMPTY,
            chained: false,
            heard: DcSet::EMPTY,
            own_known: 0,
            relied_on: None,
            clock_skew: false,
            began_at_millis: 0,
            contradicted: false,
            log_full: false,
            not_serving: Some(NotServing::Starting),
            draining: false,
            room: DiskSpace::default(),
            load: Load::default(),
            phase: Phase::Starting,
        }
    }
}

impl Replica {
    pub(in crate::replica) fn current_phase(&self) -> Phase {
        if self.life.quiet_until.is_some() {
            Phase::Starting
        } else if let Some(Fork { dc, seq, .. }) = self.life.fork {
            Phase::Forked { dc, seq }
        } else if !self.knows_own_log() {
            Phase::ReadOnly
        } else if self.leases.in_grace() > 0 {
            Phase::Grace { leases: self.leases.in_grace() }
        } else {
            Phase::Serving
        }
    }

    /// Returns true if the own log is whole, as far as any heard member knows, and leases that this disk may
    /// not know are over.
    pub(in crate::replica) fn knows_own_log(&self) -> bool {
        self.life.joined && self.has_own_log()
    }

    /// Returns true if the own log is whole, as far as any heard member knows.
    pub(in crate::replica) fn has_own_log(&self) -> bool {
        let all_heard = self.life.joined || self.life.heard.is_superset(self.peers());
        let waits = self.life.asks_until.is_some() || !all_heard;
        !waits && self.has_all_that_is_known()
    }

    /// Returns true if everything is applied that the heard members know to have been here.
    fn has_all_that_is_known(&self) -> bool {
        self.log.applied().get(self.config.dc) >= self.life.own_known && self.life.relied_on.is_none()
    }

    /// Returns true if some member has still to announce how much it has of this datacenter's log.
    pub(in crate::replica) fn asks_for_own_log(&self) -> bool {
        !self.life.joined || self.life.asks_until.is_some()
    }

    /// Returns until when we wait for members that were not heard since the restart. If a link to one of them
    /// is up, its first heartbeat is on its way and may show more of our log: then we wait longer, but not
    /// for ever (`docs/algorithm.md#93-log-recovery`).
    pub(in crate::replica) fn asks_until(&self) -> Option<Instant> {
        let until = self.life.asks_until?;
        let is_silent = !self.log.linked().difference(self.life.heard).is_empty();
        Some(if is_silent { until + self.config.agreed.peer_timeout } else { until })
    }

    /// Updates the phase, and all that depends on it.
    pub(in crate::replica) fn update_phase(&mut self) {
        if self.asks_until().is_some_and(|until| until <= self.now.mono) {
            self.life.asks_until = None;
        }
        if self.life.quiet_until.is_some_and(|until| until <= self.now.mono) && !self.waits_for_clock() {
            self.life.quiet_until = None;
            // A client that reclaims may name a reading of just before the crash.
            self.renew_reservation();
            self.note_skew();
            self.on_heartbeat_due();
            self.run_deferred();
        }
        self.life.joins_after.take_if(|after| *after <= self.now.mono);
        if self.life.relied_on.take_if(|seen| self.log.applied().covers(seen)).is_some() {
            self.regained = self.position;
        }
        if !self.life.joined {
            self.join_when_all_heard();
        }
        self.resume_deferred();
        let phase = self.current_phase();
        if phase != self.life.phase {
            self.life.phase = phase;
            self.report(Report::PhaseChanged(phase));
        }
        self.update_log_full();
        let writable = !matches!(phase, Phase::Starting | Phase::ReadOnly | Phase::Forked { .. });
        let append =
            writable && !self.life.clock_skew && self.life.room != DiskSpace::Full && !self.life.log_full;
        let permissions = Permissions { grant: phase == Phase::Serving, append };
        if self.locks.permit(permissions) {
            self.park_what_needs_others();
        }
        self.tell_serving();
    }

    /// A minority, which can give no member up, keeps all that the others lack, but at most four times as
    /// much as a majority keeps (`docs/algorithm.md#84-truncation`).
    fn update_log_full(&mut self) {
        let most = self.config.local.max_log.saturating_mul(MINORITY_LOGS);
        // Hysteresis: when the others are back the log shrinks entry by entry, and making entries for a
        // moment helps nobody.
        let limit = if self.life.log_full { most / 8 * 7 } else { most };
        let full = self.log.weight() > limit;
        if full != self.life.log_full {
            self.life.log_full = full;
            self.report(Report::LogFull { full });
        }
    }

    /// The room on the journal's disk has changed.
    pub(in crate::replica) fn on_room(&mut self, room: DiskSpace) {
        let before = std::mem::replace(&mut self.life.room, room);
        if room != before {
            self.report(Report::DiskRoom { room });
        }
        if before == DiskSpace::Full && room != DiskSpace::Full {
            self.drain_inbox();
            // Entries that arrived meanwhile were dropped, and their senders believe that they are here.
            for peer in self.log.linked().iter() {
                let durable = (**self.log.durable()).clone();
                self.send(peer, Message::HeldBack { durable });
            }
        }
    }

    /// Refuses a write of a client unless the disk has enough room.
    pub(in crate::replica) fn admit_write(&self) -> Result<(), Refusal> {
        if self.life.room == DiskSpace::Enough { Ok(()) } else { Err(Refusal::DiskFull) }
    }

    /// `peer` has our entries up to `seq`.
    pub(in crate::replica) fn note_own_log(&mut self, peer: DcId, seq: u64) {
        self.note_own_log_behind(seq);
        self.life.heard.insert(peer);
        self.join_when_all_heard();
    }

    /// Some member has our entries up to `seq`.
    pub(in crate::replica) fn note_own_log_behind(&mut self, seq: u64) {
        let ours = self.log.applied().get(self.config.dc);
        if seq > ours.max(self.life.own_known) {
            // While the old disk catches up, its entries come one after the other; this is not reported.
            if self.life.joined || !self.life.doubted || seq > ours + 1 {
                self.report(Report::OwnLogBehind { ours, theirs: seq });
            }
            self.note_older_copy();
        }
        self.life.own_known = self.life.own_known.max(seq);
    }

    /// This disk is an old copy, or an empty one in the place of a used one, although no operator marked it.
    /// The datacenter becomes doubted, also after further restarts
    /// (`docs/algorithm.md#94-doubted-datacenters`).
    ///
    /// A directory that never joined is no exception. A really new directory has written nothing, so no
    /// member knows of its log. If one does, leases were opened that this directory does not know, and their
    /// locks are not free before these leases are over. A wait that was begun in this run is not begun again:
    /// nothing was granted since.
    fn note_older_copy(&mut self) {
        #[cfg(test)]
        if !self.life.joined && self.mutated(crate::sim::Mutation::LostDiskNotDoubted) {
            return;
        }
        if self.life.joined || !self.life.doubted {
            self.begin_restored();
        }
    }

    /// Checks the stability floors that a peer knows. If it knows one of every member, all of them, this one
    /// included, announced that their further commits have seen the minimum. A disk that lacks some of it
    /// is an old copy (`docs/algorithm.md#93-log-recovery`).
    pub(in crate::replica) fn note_floors(&mut self, floors: &[Floor]) {
        let floor_of = |dc| floors.iter().find(|floor| floor.dc == dc).map(|floor| &floor.floor);
        let mut all = self.config.agreed.members.iter().map(floor_of);
        let Some(first) = all.next().flatten().cloned() else { return };
        let seen_by_all = all.try_fold(first, |seen, other| Some(seen.meet(other?)));
        if let Some(seen) = seen_by_all.filter(|seen| !self.log.applied().covers(seen)) {
            self.note_older_copy();
            let relied_on = self.life.relied_on.get_or_insert_default();
            seen.iter().for_each(|(dc, seq)| relied_on.raise(dc, seq));
        }
    }

    fn join_when_all_heard(&mut self) {
        if !self.life.heard.is_superset(self.peers()) {
            return;
        }
        self.life.asks_until = None;
        // Before the own clock is trusted, the token lead cannot be computed.
        let is_quiet = self.life.quiet_until.is_some();
        let may_join = self.life.joins_after.is_none() && self.has_all_that_is_known();
        if !self.life.joined && may_join && !is_quiet {
            self.pass_lost_tokens();
            self.life.joined = true;
            self.persist(Record::Joined);
        }
    }
}
