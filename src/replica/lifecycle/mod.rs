//! The lifecycle of a datacenter from its start to serving, and what each state permits
//! (`docs/algorithm/recovery.md#1-lifecycle`).
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
//! on in a start and beside a fork, too. Independent of both are the stalls ([`stalls`]), the member lease
//! ([`member_lease`]), the admission of new work ([`admission`]) and the protocol versions of the peers
//! ([`peer_versions`]).
//!
//! Each of these owns its fields and answers for itself; the replica names the part that it asks. Events that
//! may change what is permitted come in through the lifecycle (`on_*`): it tells its parts, and notes that an
//! update is due. Answers that rest on several parts are in [`queries`]. An event takes effect at once.
//! Transitions that follow from the time or from applied entries wait for an update, twice in each step: the
//! replica performs what [`Lifecycle::poll`] returns, and then what [`Lifecycle::settle`] says has changed
//! ([`update`]). Most steps change nothing; [`Lifecycle::needs_update`] tells with two comparisons.
//!
//! # Decisions
//!
//! - **A new directory writes nothing before every member was heard once** (`Record::Joined`,
//!   `docs/algorithm/recovery.md#3-log-recovery`), because an empty disk in the place of a lost one looks
//!   like a new one. So the first start of a cluster needs all members; later restarts do not. Rejected:
//!   waiting only when a peer says that it knows more, which is too late.
//! - **A fork stops every member that learns of it** (`fork.rs`). Rejected: stopping only what depends on
//!   the entries that differ, which cannot be known, because each side has continued from its own.
//! - **A new directory of whose log no member knows an entry waits for no leases**
//!   (`docs/algorithm/recovery.md#4-doubted-datacenters`). If a peer knows one, the directory replaces a lost
//!   one, whose leases must end first.

mod admission;
mod fork;
mod log_recovery;
mod member_lease;
mod not_serving;
mod own_log;
mod peer_versions;
mod queries;
mod questions;
mod run;
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
pub(in crate::replica) use peer_versions::{CHAINED, UNDER};
pub(in crate::replica) use state::Judgement;

use std::time::Duration;

use crate::base::bugs::{Bug, Bugs};
use crate::base::capacity::DiskSpace;
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::replica::call::Phase;
use admission::Admission;
use geolock_api::names::{DcId, DcSet};
use member_lease::MemberLeaseState;
use own_log::OwnLog;
use peer_versions::PeerVersions;
use questions::Questions;
use run::Run;
use stalls::Stalls;
use state::{Input, State};

/// The lifecycle of one datacenter. The replica asks the parts that it sees. Events of the parts that may
/// change the permissions are visible in this folder only, because an update has to follow them.
pub(in crate::replica) struct Lifecycle {
    pub state: State,
    pub own_log: OwnLog,
    questions: Questions,
    /// False for a new member whose part is not settled.
    may_serve: bool,
    /// Leases that have neither reclaimed nor ended since the restart.
    leases_in_grace: usize,
    pub stalls: Stalls,
    pub member_lease: MemberLeaseState,
    pub admission: Admission,
    pub versions: PeerVersions,
    pub run: Run,
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
    /// The highest version of the protocol that this datacenter speaks.
    pub speaks: u16,
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
        let Parameters { me, peers, peer_timeout, max_log, may_serve, speaks } = *parameters;
        Lifecycle {
            state: State::Running,
            own_log: OwnLog::new(me, peers, peer_timeout),
            questions: Questions::default(),
            may_serve,
            leases_in_grace: 0,
            stalls: Stalls::new(max_log),
            member_lease: MemberLeaseState::default(),
            admission: Admission::default(),
            versions: PeerVersions::new(me, peers, speaks, may_serve),
            run: Run::default(),
            announced: Announced { phase: Phase::Starting, not_serving: Some(NotServing::Starting) },
            is_pending: true,
        }
    }

    fn enter(&mut self, input: Input) {
        self.state = self.state.next(input);
        self.is_pending = true;
    }

    /// A new member is settled now, or is not.
    pub fn on_may_serve(&mut self, may_serve: bool) {
        self.is_pending |= std::mem::replace(&mut self.may_serve, may_serve) != may_serve;
        self.versions.set_member(may_serve);
    }

    /// This server was started, and does not know yet whether it still is a member; or it knows now.
    pub fn on_may_be_over(&mut self, may_be_over: bool) {
        self.member_lease.set_may_be_over(may_be_over);
    }

    /// This server is over, for example evicted.
    pub fn on_ended(&mut self) {
        self.admission.end();
        self.is_pending = true;
    }

    /// The monotonic clock has stood still for some time.
    pub fn on_clock_stood_still(&mut self, bugs: Bugs) {
        if !bugs.has(Bug::TellsStoppedClock) {
            self.member_lease.forget_told();
        }
    }

    /// These are the other members now. `to_hear`: those that have to be heard after a start.
    pub fn set_peers(&mut self, peers: DcSet, to_hear: DcSet) {
        self.is_pending |= self.own_log.set_peers(to_hear);
        self.versions.set_peers(peers);
    }

    /// The disk was read. `judge_at`: when to judge the clock; `None` if the disk was empty.
    pub fn on_restart(&mut self, judge_at: Option<Instant>, clock_ms: u64, applied: &VersionVector) {
        assert!(!self.run.has_begun(), "the disk is read before the first step");
        self.own_log.restart(applied);
        self.run.set_clock(clock_ms);
        if let Some(judge_at) = judge_at {
            self.enter(Input::Restarted { judge_at });
        }
    }

    /// A majority of the voters backs this member until then. `is_fenced`: without that it serves no clients.
    pub fn on_member_lease(&mut self, until: Instant, is_fenced: bool, now: Instant) {
        self.is_pending |= self.member_lease.renew(until, is_fenced, now);
    }

    /// Begins a step. Returns true if it is the first one of this run.
    #[inline]
    pub fn begin_step(&mut self, now: Instant) -> bool {
        self.is_pending |= self.member_lease.expire(now);
        !self.run.has_begun() && self.begin(now)
    }

    fn begin(&mut self, now: Instant) -> bool {
        self.run.begin(now);
        if self.state.is_starting() {
            self.own_log.ask(now);
            self.is_pending = true;
        }
        true
    }

    /// The clock of a restarted server was judged. Unless it is right, it is judged again `again_at`.
    pub fn on_clock_judged(&mut self, judgement: Judgement, again_at: Instant) {
        assert!(self.state.is_starting(), "the clock is judged in a start");
        self.enter(Input::ClockJudged { judgement, again_at });
    }

    /// The directory may be an old copy: leases that it does not know may live until then.
    pub fn on_doubt(&mut self, leases_until: Instant) {
        self.own_log.doubt(leases_until);
        self.is_pending = true;
    }

    /// A record in the journal says that the directory has joined.
    pub fn on_joined(&mut self) {
        self.own_log.join();
        self.is_pending = true;
    }

    /// `peer` announced how much of the own log it has. Call [`OwnLog::note_known`] first.
    pub fn on_heard(&mut self, peer: DcId) {
        let was_asking = self.own_log.is_asking();
        self.own_log.hear(peer);
        self.is_pending |= was_asking != self.own_log.is_asking();
    }

    /// This number of leases has neither reclaimed nor ended since the restart.
    pub fn on_leases_in_grace(&mut self, leases: usize) {
        self.is_pending |= std::mem::replace(&mut self.leases_in_grace, leases) != leases;
    }

    pub fn on_fork(&mut self, fork: Fork) {
        self.enter(Input::Forked(fork));
        assert!(self.state.is_forked(), "a fork does not end by another one");
    }

    /// An operator has chosen this directory. Returns true if there was a fork.
    pub fn on_fork_resolved(&mut self) -> bool {
        assert!(!self.run.has_begun(), "an operator chooses a directory before the first step");
        let was_forked = self.state.is_forked();
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
        let changed = self.stalls.set_clock_behind(behind_ms);
        self.is_pending |= changed;
        changed
    }

    /// The space on the journal's disk is this now. Returns the space before.
    pub fn on_disk_space(&mut self, space: DiskSpace) -> DiskSpace {
        self.is_pending = true;
        self.stalls.set_disk(space)
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
        self.is_pending |= self.own_log.end_asking(now, linked);
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
        self.is_pending = self.may_change_by_itself();
        let phase = self.phase();
        let changed = std::mem::replace(&mut self.announced.phase, phase) != phase;
        let log_full = self.stalls.on_log_weight(log_weight);
        Settled { phase: changed.then_some(phase), log_full, permissions: self.permissions() }
    }

    /// Returns true if the last update has left nothing to another one but what the time, or applied entries,
    /// may change.
    fn is_settled(&self, log_weight: usize) -> bool {
        self.may_change_by_itself() || !self.needs_update(log_weight)
    }

    /// Returns true if the time, or applied entries, may change something without another event.
    fn may_change_by_itself(&self) -> bool {
        self.state.is_starting() || !self.own_log.is_recovered()
    }

    /// Returns when time alone may change something.
    #[inline]
    pub fn next_deadline(&self, linked: DcSet) -> Instant {
        let unbacked_at = self.member_lease.next_deadline();
        if self.is_pending { self.next_of_some(linked).min(unbacked_at) } else { unbacked_at }
    }

    fn next_of_some(&self, linked: DcSet) -> Instant {
        match self.state {
            State::Starting(start) => start.judge_at.min(self.own_log.next_deadline(linked)),
            State::Running | State::Forked(_) => self.own_log.next_deadline(linked),
        }
    }

    /// Asserts the invariants.
    pub fn check(&self, applied: &VersionVector, leases_in_grace: usize) {
        self.own_log.check(applied);
        self.questions.check();
        self.versions.check();
        assert_eq!(self.leases_in_grace, leases_in_grace, "the lifecycle knows of all leases in grace");
        let permissions = self.permissions();
        if permissions.grant {
            assert!(self.own_log.is_recovered(), "nothing is granted before the own log is known");
            assert!(!self.awaits_reclaims(), "nothing is granted before clients have reclaimed");
        }
        if self.state.is_starting() || self.state.is_forked() {
            assert!(
                !permissions.grant && !permissions.append,
                "nothing is written in a start, or beside a fork"
            );
        }
        assert!(!self.own_log.is_asking() || self.run.has_begun(), "a run that asks has begun");
        if !self.is_pending {
            assert_eq!(self.announced.phase, self.phase(), "a change of the phase is reported");
            let reason = self.not_serving(Duration::ZERO);
            assert!(is_same(self.announced.not_serving, reason), "peers are told {reason:?}");
            assert!(!self.may_change_by_itself(), "an update is due");
            assert_eq!(self.next_of_some(DcSet::EMPTY), Instant::FAR_FUTURE, "time changes something");
        }
    }
}

impl Announced {
    /// Notes the reason why this datacenter does not serve, for an announcement to the peers. Returns true if
    /// it differs from that of the last one.
    fn announce(&mut self, reason: Option<NotServing>) -> bool {
        let is_news = !is_same(reason, self.not_serving);
        if is_news {
            self.not_serving = reason;
        }
        is_news
    }
}
