//! From a start to serving: what a datacenter may do at this moment.

use super::Replica;
use super::call::{Phase, Refusal};
use super::effect::Report;
use super::fork::Fork;
use super::message::Message;
use super::record::Record;
use super::serving::NotServing;
use super::stability::Floor;
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::names::{DcId, DcSet};
use crate::room::{Load, Room};
use crate::time::Instant;

/// A minority keeps so many times as much for others as `max_log` says.
const MINORITY_LOGS: usize = 4;

/// What decides about the phase.
pub(super) struct Life {
    /// A step was made since the start.
    pub begun: bool,
    /// When the first one was.
    pub began_at: Instant,
    /// After a restart: until when nothing is stamped, so that bounds of restarts do not add up.
    pub quiet_until: Option<Instant>,
    /// Every member was heard once, now or before a restart, and what they knew of our log is in it: none knows more.
    pub joined: bool,
    /// After a restart: until when members that were not heard yet are waited for. The disk may be an old copy, and then
    /// any of them may know more of our log.
    pub asks_until: Option<Instant>,
    /// The data directory is a restored copy: leases that it does not know may live until then.
    pub joins_after: Option<Instant>,
    /// It was begun in this run to wait for leases that the directory does not know. Nothing was granted since, unless it has
    /// joined after that.
    pub doubted: bool,
    /// There are two histories, of which this directory has one.
    pub fork: Option<Fork>,
    /// Peers that know version 2.
    pub upgraded: DcSet,
    /// All do, or did once: own entries name their predecessors.
    pub chained: bool,
    /// Members heard since the start.
    pub heard: DcSet,
    /// The last of our own entries that anybody is known to have.
    pub own_known: u64,
    /// What others know that we have seen and is not here: the disk is an older one. What they rely on that our commits have
    /// seen, they may have forgotten.
    pub promised: Option<VersionVector>,
    pub clock_skew: bool,
    /// The clock at the start of this run, in milliseconds since the Unix epoch.
    pub began_at_millis: u64,
    /// Most others that were heard since a restart are behind our clock by more than the limit.
    pub contradicted: bool,
    /// It keeps as many entries for others as a minority may: see [`Replica::update_log_full`].
    pub log_full: bool,
    /// What others were told last: why this datacenter does not serve.
    pub not_serving: Option<NotServing>,
    pub draining: bool,
    pub room: Room,
    pub load: Load,
    pub phase: Phase,
}

impl Life {
    /// Of a datacenter that knows nothing yet.
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
            promised: None,
            clock_skew: false,
            began_at_millis: 0,
            contradicted: false,
            log_full: false,
            not_serving: Some(NotServing::Starting),
            draining: false,
            room: Room::default(),
            load: Load::default(),
            phase: Phase::Starting,
        }
    }
}

impl Replica {
    pub(super) fn current_phase(&self) -> Phase {
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

    /// Whether it has all of its own log, as far as it can know, and leases that it may not know are over.
    pub(super) fn knows_own_log(&self) -> bool {
        self.life.joined && self.has_own_log()
    }

    /// Whether it has all of its own log, as far as it can know.
    pub(super) fn has_own_log(&self) -> bool {
        let all_heard = self.life.joined || self.life.heard.is_superset(self.peers());
        let waits = self.life.asks_until.is_some() || !all_heard;
        !waits && self.has_all_that_is_known()
    }

    /// Whether everything is here that those who were heard know to have been here.
    fn has_all_that_is_known(&self) -> bool {
        self.log.applied().get(self.config.dc) >= self.life.own_known && self.life.promised.is_none()
    }

    /// Whether some member is still to say how much it has of this datacenter's log.
    pub(super) fn asks_for_own_log(&self) -> bool {
        !self.life.joined || self.life.asks_until.is_some()
    }

    /// Until when members are waited for that were not heard since a restart. With a link to one of them its first word is on
    /// its way, and it may be that there is more of our log than is here: that is waited for, too, though not for ever.
    pub(super) fn asks_until(&self) -> Option<Instant> {
        let until = self.life.asks_until?;
        let is_silent = !self.log.linked().difference(self.life.heard).is_empty();
        Some(if is_silent { until + self.config.agreed.peer_timeout } else { until })
    }

    /// Draws the conclusions of whatever changed.
    pub(super) fn update_phase(&mut self) {
        if self.asks_until().is_some_and(|until| until <= self.now.mono) {
            self.life.asks_until = None;
        }
        if self.life.quiet_until.is_some_and(|until| until <= self.now.mono) && !self.waits_for_clock() {
            self.life.quiet_until = None;
            // Whoever reclaims may name a reading of just before the crash.
            self.renew_bound();
            self.note_skew();
            self.on_heartbeat_due();
            self.start_early();
        }
        self.life.joins_after.take_if(|after| *after <= self.now.mono);
        if self.life.promised.take_if(|promised| self.log.applied().covers(promised)).is_some() {
            self.regained = self.position;
        }
        if !self.life.joined {
            self.join_when_all_heard();
        }
        self.judge_past();
        let phase = self.current_phase();
        if phase != self.life.phase {
            self.life.phase = phase;
            self.report(Report::PhaseChanged(phase));
        }
        self.update_log_full();
        let writable = !matches!(phase, Phase::Starting | Phase::ReadOnly | Phase::Forked { .. });
        let append = writable && !self.life.clock_skew && self.life.room != Room::Full && !self.life.log_full;
        let permissions = Permissions { grant: phase == Phase::Serving, append };
        if self.locks.permit(permissions) {
            self.park_what_needs_others();
        }
        self.tell_serving();
    }

    /// A minority, which can give nobody up, keeps all that the others lack: no more than four times as much as a majority would.
    fn update_log_full(&mut self) {
        let most = self.config.local.max_log.saturating_mul(MINORITY_LOGS);
        // When the others are back entries go step by step; a lock that moves and stops again at once helps nobody.
        let limit = if self.life.log_full { most / 8 * 7 } else { most };
        let full = self.log.weight() > limit;
        if full != self.life.log_full {
            self.life.log_full = full;
            self.report(Report::LogFull { full });
        }
    }

    /// There is more room on the journal's disk than before, or less.
    pub(super) fn on_room(&mut self, room: Room) {
        let before = std::mem::replace(&mut self.life.room, room);
        if room != before {
            self.report(Report::DiskRoom { room });
        }
        if before == Room::Full && room != Room::Full {
            self.drain_inbox();
            // What came meanwhile was dropped, and whoever sent it believes it to be here.
            for peer in self.log.linked().iter() {
                let durable = (**self.log.durable()).clone();
                self.send(peer, Message::HeldBack { durable });
            }
        }
    }

    /// Whether a client may have something written.
    pub(super) fn admit_write(&self) -> Result<(), Refusal> {
        if self.life.room == Room::Enough { Ok(()) } else { Err(Refusal::DiskFull) }
    }

    /// `peer` has our entries up to `seq`.
    pub(super) fn note_own_log(&mut self, peer: DcId, seq: u64) {
        self.note_own_log_behind(seq);
        self.life.heard.insert(peer);
        self.join_when_all_heard();
    }

    /// Somebody has our entries up to `seq`.
    pub(super) fn note_own_log_behind(&mut self, seq: u64) {
        let ours = self.log.applied().get(self.config.dc);
        if seq > ours.max(self.life.own_known) {
            // While the older disk catches up, its entries come one after the other: that is no news.
            if self.life.joined || !self.life.doubted || seq > ours + 1 {
                self.report(Report::OwnLogBehind { ours, theirs: seq });
            }
            self.note_older_copy();
        }
        self.life.own_known = self.life.own_known.max(seq);
    }

    /// The disk is an older copy, or an empty one in the place of a lost one, although nobody has marked it: also after
    /// another restart.
    ///
    /// A directory that never joined is no exception. A new one has written nothing, so others know nothing of its log; if they
    /// do, leases were given under it that it does not know, and their locks are not free before these are over. When that was
    /// begun in this run it is not begun again: nothing was granted since.
    fn note_older_copy(&mut self) {
        #[cfg(test)]
        if !self.life.joined && self.mutated(crate::sim::Mutation::LostDiskNotDoubted) {
            return;
        }
        if self.life.joined || !self.life.doubted {
            self.begin_restored();
        }
    }

    /// What a peer knows that all datacenters have seen: of this one no more than it once said itself.
    pub(super) fn note_promises(&mut self, floors: &[Floor]) {
        let floor_of = |dc| floors.iter().find(|floor| floor.dc == dc).map(|floor| &floor.floor);
        let mut all = self.config.agreed.members.iter().map(floor_of);
        let Some(first) = all.next().flatten().cloned() else { return };
        let seen_by_all = all.try_fold(first, |seen, other| Some(seen.meet(other?)));
        if let Some(seen) = seen_by_all.filter(|seen| !self.log.applied().covers(seen)) {
            self.note_older_copy();
            let promised = self.life.promised.get_or_insert_default();
            seen.iter().for_each(|(dc, seq)| promised.raise(dc, seq));
        }
    }

    fn join_when_all_heard(&mut self) {
        if !self.life.heard.is_superset(self.peers()) {
            return;
        }
        self.life.asks_until = None;
        // Before its clock is believed nobody knows by how much tokens have to be ahead of it.
        let is_quiet = self.life.quiet_until.is_some();
        let may_join = self.life.joins_after.is_none() && self.has_all_that_is_known();
        if !self.life.joined && may_join && !is_quiet {
            self.pass_lost_tokens();
            self.life.joined = true;
            self.persist(Record::Joined);
        }
    }
}
