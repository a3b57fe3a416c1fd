//! The members of the cluster: the decisions that are known here, the epoch that the own log has entered, and
//! the members that are joining.
//!
//! Decisions come from the control group, or from other members (`decisions.rs`). They say which epochs are
//! to come (`decided.rs`). Each member enters an epoch by an entry of its own log (`enter.rs`), so no
//! acquire waits for a decision; from then on it acts by the members of that epoch (`entered.rs`). A new
//! member gets a state, and is settled once no lock goes along with its sponsor's parts any more
//! (`join.rs`). The slot of a member that has ended may be given out again (`free.rs`).
//!
//! Each part owns its fields. [`Members`] has the rules that need several of them.
//!
//! # Decisions
//!
//! - **A started server asks under every policy if it was evicted** (`asking.rs`). The first design let a
//!   lone restart serve under `wait`. The others can leave that policy while the server is down, and evict
//!   it. An epoch that all enter before `wait` ends would keep the lone restart, but then nobody could
//!   evict a datacenter that is down, and that is the reason to change the policy.
//! - **A witness is another machine in the actor of the lock server** (`witness.rs`,
//!   `lock_server/witness.rs`), with the same events and effects, journal, links and control group. It
//!   shares the parts of a voter with the members and has none of the others.
//! - **Forced recovery is decided by the machines, with messages of their own** (`recover.rs`,
//!   `docs/algorithm/membership.md#7-forced-recovery`), so the simulator has it. The library of the control
//!   group only starts from the result.
//! - **The times of decisions are not on disk.** All members have the same list, and each learns a decision
//!   at another moment. `geolock audit` shows the times of the present run, the log those of earlier ones.

pub(super) mod member_lease;

mod asking;
mod decided;
mod decisions;
mod enter;
mod entered;
mod evict;
mod fallen;
mod free;
mod join;
mod lease_limits;
mod leave;
mod list_state;
mod listing;
mod pending;
mod recover;
mod recovery_state;
mod rehoming;
mod silence;
mod silences;
mod state;
mod stay;
mod versions;
mod witness;

use std::slice;

use crate::causal_log::Majority;
use crate::membership::{Phase, ServerId, VoterSet};
use asking::Asking;
use decided::Decided;
pub(in crate::replica) use decisions::Decisions;
pub(in crate::replica) use decisions::unsettled;
use entered::Entered;
pub(in crate::replica) use evict::Fate;
use evict::Promise;
use fallen::Ends;
use free::EndedSlots;
use geolock_api::names::{DcId, DcSet, Position};
use join::{Join, Joins};
use lease_limits::LeaseLimits;
pub use list_state::ListState;
pub use listing::{Decision, MAX_LISTED};
use pending::Pending;
pub(in crate::replica) use recover::ForcedRecovery;
pub use recover::RecoveryMessage;
use recovery_state::Recovering;
pub use recovery_state::RecoveryView;
use rehoming::Rehoming;
pub(in crate::replica) use silence::FailureDetector;
use silences::Silences;
pub(in crate::replica) use state::MembersStateV3;
pub use state::{JoinState, MembersState};
use stay::Stay;
pub use stay::StayView;
pub(in crate::replica) use versions::spoken_versions;
pub use witness::{Witness, WitnessConfig, WitnessRecoveryError};

/// The members of the cluster.
pub(super) struct Members {
    /// The decisions that are known here.
    pub decided: Decided,
    /// Epochs that are known and not entered.
    pending: Pending,
    /// The epoch that the own log has entered: this datacenter acts by its members.
    pub entered: Entered,
    /// Slots that are over, until they may be given out again.
    pub ended_slots: EndedSlots,
    /// Members that are admitted and, as seen here, not settled.
    joins: Joins,
    /// The parts that this member has to give by the last rule about homes.
    rehoming: Rehoming,
    /// The promise not to leave.
    pub stay: Stay,
    /// The eviction under way.
    promise: Option<Promise>,
    /// The question of this run whether this server still is a member.
    pub asking: Asking,
    /// How long the leases of each member's clients may be.
    pub lease_limits: LeaseLimits,
    /// The members about which this voter is silent.
    pub silences: Silences,
    /// The locks and counters of the last ends of members, by name.
    pub ends: Ends,
    /// Forced recovery, as far as it is under way here.
    pub recovering: Recovering,
    /// An eviction or the own joining goes on when the record at this position is on disk.
    goes_on_at: Option<Position>,
}

impl Members {
    /// Returns the members of a cluster that is founded, or is not known yet (`joins`). `all`: the members of
    /// the configuration; this datacenter alone if it joins.
    pub fn new(me: DcId, server: ServerId, all: DcSet, joins: bool) -> Members {
        assert!(all.contains(me), "{me} is a member of its own cluster {all:?}");
        Members {
            decided: Decided::new(me, server, joins),
            pending: Pending::default(),
            entered: Entered::new(all),
            ended_slots: EndedSlots::default(),
            joins: Joins::default(),
            rehoming: Rehoming::default(),
            stay: Stay::default(),
            promise: None,
            asking: Asking::new(),
            lease_limits: LeaseLimits::default(),
            silences: Silences::default(),
            ends: Ends::default(),
            recovering: Recovering::default(),
            goes_on_at: None,
        }
    }

    /// Returns the members of the configuration; none if there are decisions, or this datacenter joins.
    pub fn configured(&self) -> DcSet {
        if self.decided.names_members() { DcSet::EMPTY } else { self.entered.all() }
    }

    /// Returns the other members that may be linked to: those of decisions that are not entered yet, too.
    #[inline]
    pub fn peers(&self) -> DcSet {
        let members = self.decided.config().slots().member_set().union(self.entered.all());
        members.difference(DcSet::only(self.decided.me()))
    }

    /// Returns true if there may be a link to `dc`: it is a member as far as is known here, or was one and
    /// may not know that, or this server joins and does not know the members yet.
    pub fn may_link(&self, dc: DcId) -> bool {
        self.peers().contains(dc) || self.entered.ended().contains(dc) || self.decided.awaits_state()
    }

    /// Returns how many of the voters of each set that may decide by now have to have a commit, so that no
    /// eviction loses it: a majority of the voters remains and has reported, so at least one of these has
    /// it. Empty if nobody votes: then nobody can be evicted.
    pub fn voter_majorities(&self) -> impl Iterator<Item = Majority> {
        let config = self.decided.config();
        let current = slice::from_ref(config.voters());
        let sets = config.voter_sets_since(self.entered.epoch()).unwrap_or(current);
        // With all members that vote it is lost only with all of them, and some member always remains.
        let majority = |set: &VoterSet| {
            let of = set.members();
            Majority { of, needed: set.majority().min(of.len()) }
        };
        sets.iter().map(majority).filter(|majority| !majority.of.is_empty())
    }

    /// Returns true if this datacenter cannot enter epochs one by one: it joins, or lacks decisions that are
    /// compacted elsewhere.
    #[inline]
    pub fn needs_state(&self) -> bool {
        self.decided.awaits_state() || self.pending.needs_state()
    }

    /// Returns true if this datacenter may grant: it is a founder, or its part is settled, and it was not
    /// evicted while it was down.
    pub fn may_serve(&self) -> bool {
        let Members { decided, entered, joins, .. } = self;
        let may_be_over = self.asking.is_open() || self.needs_state() || entered.has_left(decided.me());
        let is_settled = || {
            let own = decided.own_member();
            own.is_some_and(|member| member.phase != Phase::Joining)
                && entered.contains(decided.me())
                && joins.find(decided.me()).is_none()
        };
        !may_be_over && (!decided.has_decisions() || is_settled())
    }

    /// Returns true if a new member may be given a state: every older member has entered its admission.
    /// Before that, one that has not might have truncated entries that only the giver and itself have.
    pub fn may_give_to(&self, peer: DcId) -> bool {
        let is_entered = |join: &Join| join.is_entered(&self.entered);
        let have_entered = self.joins.find(peer).is_none_or(is_entered);
        self.entered.contains(peer) && !self.needs_state() && have_entered
    }

    /// Returns true if the next step has more to do for a new member, or for a slot that is over.
    #[inline]
    pub fn have_work(&self) -> bool {
        self.joins.are_naming() || self.rehoming.is_keeping() || self.ended_slots.is_walking()
    }

    /// Returns true if an eviction or the own joining may go on before the next heartbeat.
    #[inline]
    pub fn goes_on(&self) -> bool {
        self.goes_on_at.is_some()
    }

    /// Returns true if nothing changes at present.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty()
            && self.joins.is_empty()
            && !self.rehoming.is_owed()
            && self.ended_slots.is_quiet()
            && self.entered.epoch_of(self.decided.me()) == self.entered.epoch()
            && !self.decided.is_leaving()
    }

    /// Asserts the relations of the parts.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let (entered, config) = (&self.entered, self.decided.config());
        entered.check();
        self.joins.check(entered.all());
        self.ended_slots.check();
        self.ended_slots.check_ended(entered.ended());
        self.pending.check(entered.epoch(), config.epoch());
        let leaves = |dc: &DcId| {
            let member = config.slots().member(*dc);
            member.is_none_or(|it| it.phase == Phase::Leaving || it.admitted > entered.epoch())
        };
        assert!(entered.left().iter().all(|dc| leaves(&dc)), "of {:?}, none stays", entered.left());
        let attempt = config.attempt().map(|attempt| attempt.id);
        let promised = self.promise.map(|promise| promise.attempt());
        assert_eq!(promised, attempt, "a promise is about the eviction under way");
        if self.decided.has_decisions() && !self.needs_state() {
            let known = self.decided.known_at(entered.epoch());
            assert_eq!(entered.known(), known, "the decisions say the same of the entered epoch");
        }
    }
}
