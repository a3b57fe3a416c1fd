//! The lifecycle of a datacenter from its start to serving, and what each state permits
//! (`docs/algorithm.md#91-lifecycle`).
//!
//! ```text
//!   restart                  empty directory
//!      |                            |
//!      v     the clock is right     v
//!   Starting ------------> +-----------------------------------------------------+
//!     |  ^                 |  own log          own log known,     own log known, |
//!     +--+                 |  not known        leases in grace    no such lease  |
//!   judged again           |                                                     |
//!                          |  ReadOnly ---------> Grace ----------> Serving      |
//!                          |   ^ |  ^               |                 ^ |        |
//!                          |   | |  +---------------+                 | |        |
//!                          |   | +------------------------------------+ |        |
//!                          |   +----------------------------------------+        |
//!                          +-----------------------------------------------------+
//!                               | two histories of one log are found:
//!                               v in a start, when it ends
//!                            Forked ---> restart; an operator may choose this directory
//! ```
//!
//! [`state`] has these transitions. "Own log known" comes from a machine of its own, [`own_log`], which goes
//! on in a start and beside a fork, too. Independent of both are the write stalls ([`stalls`]), the admission
//! of new work ([`admission`]) and the protocol versions of the peers ([`peer_versions`]).
//!
//! The replica passes in events (`on_*`) and asks what is permitted ([`queries`]). An event takes effect at
//! once. Transitions that follow from the time or from applied entries wait for an update, twice in each
//! step: the replica performs what [`Lifecycle::poll`] returns, and then what [`Lifecycle::settle`] says has
//! changed ([`update`]). Most steps change nothing; [`Lifecycle::needs_update`] tells with two comparisons.

mod admission;
mod fork;
mod log_recovery;
mod not_serving;
mod own_log;
mod peer_versions;
mod queries;
mod questions;
mod stalls;
mod state;
#[cfg(test)]
mod tests;
mod update;

pub use fork::Fork;
pub(in crate::replica) use fork::{fork_in_entry, fork_in_hashes, heads_to_tell};
pub(in crate::replica) use log_recovery::LogRecovery;
pub use not_serving::NotServing;
pub(in crate::replica) use not_serving::is_same;
pub(in crate::replica) use peer_versions::CHAINED;
pub(in crate::replica) use state::Judgement;

use std::time::Duration;

use crate::base::capacity::{DiskSpace, Load};
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::replica::call::Phase;
use admission::Admission;
use geolock_api::names::{DcId, DcSet};
use own_log::OwnLog;
use peer_versions::PeerVersions;
use questions::Questions;
use stalls::WriteStalls;
use state::{Facts, Input, State};

/// The lifecycle of one datacenter.
pub(in crate::replica) struct Lifecycle {
    state: State,
    own_log: OwnLog,
    questions: Questions,
    /// Leases that have neither reclaimed nor ended since the restart.
    leases_in_grace: usize,
    stalls: WriteStalls,
    /// By how many milliseconds at least our clock is behind most others, if that exceeds the limit.
    clock_behind_ms: Option<u64>,
    admission: Admission,
    versions: PeerVersions,
    /// False for a new member whose part is not settled.
    may_serve: bool,
    member_lease: MemberLeaseState,
    run: Run,
    announced: Announced,
    /// False if [`Lifecycle::settle`] would change nothing whatever the time, given the same weight of the
    /// log.
    is_pending: bool,
}

/// The parameters of a lifecycle.
pub(in crate::replica) struct Parameters {
    pub me: DcId,
    pub peers: DcSet,
    /// A silent peer is unreachable after this time.
    pub peer_timeout: Duration,
    /// Bytes of entries that a majority keeps for others.
    pub max_log: usize,
    /// False for a new member whose part is not settled.
    pub may_serve: bool,
}

/// The member lease, under the eviction policy `auto`.
struct MemberLeaseState {
    /// A majority of the voters backs this member until then.
    until: Instant,
    /// The same if it may be evicted by time.
    fenced_at: Instant,
    /// As of the last step: it may serve clients.
    backed: bool,
    /// Longest time to live of a client's lease by the policy.
    longest: Option<Duration>,
}

impl Default for MemberLeaseState {
    fn default() -> MemberLeaseState {
        MemberLeaseState { until: Instant::ZERO, fenced_at: Instant::FAR_FUTURE, backed: true, longest: None }
    }
}

/// The beginning of this run.
struct Run {
    /// Time of the first step.
    began_at: Option<Instant>,
    /// The clock at the start, in milliseconds since the Unix epoch.
    clock_ms: u64,
}

/// The last announcements: of the phase to the operator, and to the peers of the reason why this datacenter
/// does not serve.
struct Announced {
    phase: Phase,
    not_serving: Option<NotServing>,
}

/// A transition that the replica has to perform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum Action {
    /// Judge the clock and call [`Lifecycle::on_clock_judged`].
    JudgeClock,
    /// Entries that this disk had lost are applied again: nothing rests on them before they are on disk.
    AwaitRegained,
    /// Record that the directory has joined and call [`Lifecycle::on_joined`].
    Join,
}

/// The results of an update.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::replica) struct Settled {
    /// The new phase, if it has changed.
    pub phase: Option<Phase>,
    /// The log has become full, or has ceased to be full.
    pub log_full: Option<bool>,
    pub permissions: Permissions,
}

/// The events.
impl Lifecycle {
    /// Returns the lifecycle of a datacenter whose directory is empty.
    pub fn new(parameters: &Parameters) -> Lifecycle {
        let Parameters { me, peers, peer_timeout, max_log, may_serve } = *parameters;
        Lifecycle {
            state: State::ReadOnly,
            own_log: OwnLog::new(me, peers, peer_timeout),
            questions: Questions::default(),
            leases_in_grace: 0,
            stalls: WriteStalls::new(max_log),
            clock_behind_ms: None,
            admission: Admission::default(),
            versions: PeerVersions::new(me, peers),
            may_serve,
            member_lease: MemberLeaseState::default(),
            run: Run { began_at: None, clock_ms: 0 },
            announced: Announced { phase: Phase::Starting, not_serving: Some(NotServing::Starting) },
            is_pending: true,
        }
    }

    fn enter(&mut self, input: Input) {
        let facts = self.facts();
        self.state = self.state.next(input, facts);
        self.is_pending = true;
    }

    fn facts(&self) -> Facts {
        let knows_own_log = self.knows_own_log() && self.may_serve;
        Facts { knows_own_log, leases_in_grace: self.leases_in_grace }
    }

    /// A new member is settled now, or is not.
    pub fn on_may_serve(&mut self, may_serve: bool) {
        if std::mem::replace(&mut self.may_serve, may_serve) != may_serve {
            self.enter(Input::Facts);
        }
    }

    /// These are the other members now.
    pub fn set_peers(&mut self, peers: DcSet) {
        let was_asking = self.own_log.is_asking();
        self.own_log.set_peers(peers);
        self.versions.set_peers(peers);
        if was_asking != self.own_log.is_asking() {
            self.enter(Input::Facts);
        }
    }

    /// The disk was read. `judge_at`: when to judge the clock; `None` if the disk was empty.
    pub fn on_restart(&mut self, judge_at: Option<Instant>, clock_ms: u64, applied: &VersionVector) {
        self.own_log.restart(applied);
        self.run.clock_ms = clock_ms;
        if let Some(judge_at) = judge_at {
            self.enter(Input::Restarted { judge_at });
        }
    }

    /// A majority of the voters backs this member until then. `is_fenced`: without that it serves no clients.
    pub fn on_member_lease(&mut self, until: Instant, is_fenced: bool, now: Instant) {
        self.member_lease.until = until;
        self.member_lease.fenced_at = if is_fenced { until } else { Instant::FAR_FUTURE };
        self.note_backed(now);
    }

    /// Leases of clients live at most that long, by the policy.
    pub fn limit_leases(&mut self, longest: Option<Duration>) {
        self.member_lease.longest = longest;
    }

    #[inline]
    fn note_backed(&mut self, now: Instant) {
        let backed = now < self.member_lease.fenced_at;
        if backed != self.member_lease.backed {
            self.member_lease.backed = backed;
            self.is_pending = true;
        }
    }

    /// Begins a step. Returns true if it is the first one of this run.
    #[inline]
    pub fn begin_step(&mut self, now: Instant) -> bool {
        self.note_backed(now);
        self.run.began_at.is_none() && self.begin(now)
    }

    fn begin(&mut self, now: Instant) -> bool {
        self.run.began_at = Some(now);
        if self.is_starting() {
            self.own_log.ask(now);
            self.enter(Input::Facts);
        }
        true
    }

    /// Nothing was stamped yet, and the clock was set to another time.
    pub fn on_clock_set(&mut self, clock_ms: u64) {
        self.run.clock_ms = clock_ms;
    }

    /// The clock of a restarted server was judged. Unless it is right, it is judged again `again_at`.
    pub fn on_clock_judged(&mut self, judgement: Judgement, again_at: Instant) {
        self.enter(Input::ClockJudged { judgement, again_at });
    }

    /// The directory may be an old copy: leases that it does not know may live until then.
    pub fn on_doubt(&mut self, leases_until: Instant) {
        self.own_log.doubt(leases_until);
        self.enter(Input::Facts);
    }

    /// A record in the journal says that the directory has joined.
    pub fn on_joined(&mut self) {
        self.own_log.join();
        self.enter(Input::Facts);
    }

    /// `peer` announced how much of the own log it has. Call [`Lifecycle::on_own_log`] first.
    pub fn on_heard(&mut self, peer: DcId) {
        let was_asking = self.own_log.is_asking();
        self.own_log.hear(peer);
        if was_asking != self.own_log.is_asking() {
            self.enter(Input::Facts);
        }
    }

    /// Some member has own entries up to `seq`. Returns true if that shows, for the first time, that this
    /// disk lacks so many: then the datacenter has to be doubted.
    #[must_use]
    pub fn on_own_log(&mut self, seq: u64, applied: &VersionVector) -> bool {
        self.own_log.note_known(seq, applied)
    }

    /// Peers rely on everything in `seen` being applied here. The datacenter is doubted.
    pub fn on_relied_on(&mut self, seen: &VersionVector) {
        self.own_log.note_relied_on(seen);
    }

    /// This number of leases has neither reclaimed nor ended since the restart.
    pub fn on_leases_in_grace(&mut self, leases: usize) {
        if std::mem::replace(&mut self.leases_in_grace, leases) != leases {
            self.enter(Input::Facts);
        }
    }

    pub fn on_fork(&mut self, fork: Fork) {
        self.enter(Input::Forked(fork));
    }

    /// An operator has chosen this directory. Returns true if there was a fork.
    pub fn on_fork_resolved(&mut self) -> bool {
        let was_forked = self.is_forked();
        self.enter(Input::ForkResolved);
        was_forked
    }

    /// Our stamps are too far ahead of most linked peers, or no longer. Returns true if that is a change.
    pub fn on_clock_skew(&mut self, active: bool) -> bool {
        let changed = self.stalls.set_clock_skew(active);
        self.is_pending |= changed;
        changed
    }

    /// Our clock is behind most others by at least so many milliseconds, which exceeds the limit, or (`None`)
    /// no longer. Returns true if it is so now and was not before, or the other way round.
    pub fn on_clock_behind(&mut self, behind_ms: Option<u64>) -> bool {
        let before = std::mem::replace(&mut self.clock_behind_ms, behind_ms);
        let changed = before.is_some() != behind_ms.is_some();
        self.is_pending |= changed;
        changed
    }

    /// The space on the journal's disk is this now. Returns the space before.
    pub fn on_disk_space(&mut self, space: DiskSpace) -> DiskSpace {
        self.is_pending = true;
        self.stalls.set_disk(space)
    }

    pub fn on_load(&mut self, load: Load) {
        self.admission.set_load(load);
    }

    /// The server is about to stop.
    pub fn on_drain(&mut self) {
        self.admission.drain();
    }

    pub fn versions_mut(&mut self) -> &mut PeerVersions {
        &mut self.versions
    }
}

/// The update.
impl Lifecycle {
    /// Returns false if an update would change nothing.
    #[inline]
    pub fn needs_update(&self, log_weight: usize) -> bool {
        self.is_pending || self.stalls.is_full_at(log_weight) != self.stalls.is_log_full()
    }

    /// Returns the next transition that follows from the time or from applied entries. Call it until it
    /// returns `None`, and perform each one before the next call.
    pub fn poll(&mut self, now: Instant, applied: &VersionVector, linked: DcSet) -> Option<Action> {
        if self.own_log.end_asking(now, linked) {
            self.enter(Input::Facts);
        }
        match self.state {
            State::Starting(start) if start.judge_at <= now => return Some(Action::JudgeClock),
            _ => self.own_log.end_leases(now),
        }
        if self.own_log.end_relied_on(applied) {
            return Some(Action::AwaitRegained);
        }
        self.may_join(applied).then_some(Action::Join)
    }

    /// Ends an update: returns what has changed since the last one.
    #[must_use]
    pub fn settle(&mut self, log_weight: usize) -> Settled {
        // Until the own log is known, time and every applied entry may change something.
        self.is_pending = self.is_starting() || !self.knows_own_log();
        let phase = self.phase();
        let changed = std::mem::replace(&mut self.announced.phase, phase) != phase;
        let log_full = self.stalls.on_log_weight(log_weight);
        Settled { phase: changed.then_some(phase), log_full, permissions: self.permissions() }
    }

    /// Notes the reason why this datacenter does not serve, for an announcement to the peers. Returns true if
    /// it differs from that of the last one.
    pub fn announce(&mut self, reason: Option<NotServing>) -> bool {
        let is_news = !is_same(reason, self.announced.not_serving);
        if is_news {
            self.announced.not_serving = reason;
        }
        is_news
    }

    /// Returns when time alone may change something.
    #[inline]
    pub fn next_deadline(&self, linked: DcSet) -> Instant {
        let unbacked_at =
            if self.member_lease.backed { self.member_lease.fenced_at } else { Instant::FAR_FUTURE };
        if self.is_pending { self.next_of_some(linked).min(unbacked_at) } else { unbacked_at }
    }

    fn next_of_some(&self, linked: DcSet) -> Instant {
        match self.state {
            State::Starting(start) => start.judge_at.min(self.own_log.next_deadline(linked)),
            _ => self.own_log.next_deadline(linked),
        }
    }

    /// Asserts the invariants.
    pub fn check(&self, applied: &VersionVector, leases_in_grace: usize) {
        self.own_log.check(applied);
        assert_eq!(self.leases_in_grace, leases_in_grace, "the lifecycle knows of all leases in grace");
        let facts = self.facts();
        assert_eq!(self.state, self.state.next(Input::Facts, facts), "every change is passed in");
        if !self.is_pending {
            assert_eq!(self.announced.phase, self.phase(), "a change of the phase is reported");
            assert!(!self.is_starting() && self.knows_own_log(), "time may change something");
            assert_eq!(self.next_of_some(DcSet::EMPTY), Instant::FAR_FUTURE, "time changes something");
        }
    }
}
