//! The members of the cluster: the decisions that are known here, the epoch that the own log has entered, and
//! the members that are joining.
//!
//! Decisions come from the control group, or from other members (`decisions.rs`). Each member enters an epoch
//! by an entry of its own log (`enter.rs`), so nothing on the path of a lock waits for a decision. A new
//! member gets a state, and is settled once nothing goes along with its sponsor's parts any more (`join.rs`).
//! The slot of one that has ended may be given out again (`free.rs`).

pub(super) mod member_lease;

mod asking;
mod decisions;
mod enter;
mod evict;
mod free;
mod join;
mod leave;
mod listing;
mod recover;
mod recovery_state;
mod silence;
mod state;

use std::collections::VecDeque;
use std::slice;
use std::time::Duration;

use crate::base::time::Instant;
use crate::causal_log::Majority;
use crate::lock_state::{Known, Parting};
use crate::membership::{Config, Epoch, Generation, Index, Member, Phase, ServerId};
pub(in crate::replica) use decisions::Decisions;
pub(in crate::replica) use evict::Fate;
use evict::Promise;
use free::Slots;
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};
use join::Join;
pub use listing::{Decision, MAX_LISTED};
use listing::{DecisionList, Learnt};
pub(in crate::replica) use recover::ForcedRecovery;
pub use recover::RecoveryMessage;
use recovery_state::Recovering;
pub use recovery_state::RecoveryView;
pub(in crate::replica) use silence::FailureDetector;
use silence::Silences;
pub use state::{JoinState, MembersState};

/// The members of the cluster.
pub(super) struct Members {
    me: DcId,
    server: ServerId,
    /// The state after the decisions that are known here.
    config: Config,
    /// All of these decisions.
    decisions: DecisionList,
    /// Epochs that are known and not entered, in their order.
    pending: VecDeque<Change>,
    entered: Epoch,
    /// The members of the entered epoch.
    all: DcSet,
    /// Those that had been members before the entered epoch, and whose slots have no others.
    ended: DcSet,
    /// The slots that have had a member before the entered epoch which has ended: they are no homes any more.
    no_homes: DcSet,
    /// Slots that are over, until they may be given out again.
    slots: Slots,
    /// Members of the entered epoch that leave: nothing is given to them any more, or they have left.
    parting: Parting,
    /// The last epoch that each member has entered, as the applied entries say.
    entered_by: [Epoch; MAX_DCS],
    /// Members that are admitted and, as seen here, not settled.
    joins: Vec<Join>,
    /// This directory was made to join a running cluster, and has no state yet.
    awaits_state: bool,
    /// A peer has said that it knows decisions.
    are_decided_elsewhere: bool,
    /// The eviction under way.
    promise: Option<Promise>,
    /// This run has not heard yet whether it still is a member.
    asks: bool,
    /// The number of decisions that each peer has told in this run.
    told: [Option<Index>; MAX_DCS],
    /// The members about which this voter is silent.
    silences: Silences,
    /// Forced recovery, as far as it is under way here.
    recovering: Recovering,
    /// When no lease of a client is longer than the policy to be entered permits.
    leases_fit_at: Option<Instant>,
    /// The part of this datacenter is settled by entries that are recorded up to this position. Not set if
    /// that came with a state.
    settled_by: Option<Position>,
    /// An eviction or the own joining goes on when the record at this position is on disk.
    goes_on_at: Option<Position>,
    /// The longest time to live of the leases that were read from the journal.
    longest_before: Duration,
}

/// A change of the members by a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    epoch: Epoch,
    kind: Kind,
}

/// The effect of an epoch on the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A member is admitted.
    Admits(Admitted),
    /// This member is to leave.
    Leaves(DcId),
    /// This member has left. The number of its last entry.
    Ends(DcId, u64),
    /// These members are evicted.
    Evicts(Evicted),
    /// Members are evicted by time, from when all know that.
    Policy,
    /// The members stay the same.
    None,
}

/// The members that a decision evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Evicted {
    members: DcSet,
    /// The others that are joining, and not settled yet.
    joining: DcSet,
    /// The number of evictions that it counts for.
    fences: u16,
}

/// A member that a decision admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Admitted {
    dc: DcId,
    generation: Generation,
    sponsor: DcId,
}

impl Members {
    /// Returns the members of a cluster that is founded, or is not known yet (`joins`). `all`: the members of
    /// the configuration; this datacenter alone if it joins.
    pub fn new(me: DcId, server: ServerId, all: DcSet, joins: bool) -> Members {
        assert!(all.contains(me), "{me} is a member of its own cluster {all:?}");
        Members {
            me,
            server,
            config: Config::default(),
            decisions: DecisionList::default(),
            pending: VecDeque::new(),
            entered: Epoch(0),
            all,
            ended: DcSet::EMPTY,
            no_homes: DcSet::EMPTY,
            slots: Slots::default(),
            parting: Parting::default(),
            entered_by: [Epoch(0); MAX_DCS],
            joins: Vec::new(),
            awaits_state: joins,
            are_decided_elsewhere: false,
            promise: None,
            asks: false,
            told: [None; MAX_DCS],
            silences: Silences::default(),
            recovering: Recovering::default(),
            leases_fit_at: None,
            settled_by: None,
            goes_on_at: None,
            longest_before: Duration::ZERO,
        }
    }

    /// Returns this datacenter.
    #[inline]
    pub fn me(&self) -> DcId {
        self.me
    }

    /// Returns all members of the entered epoch, this datacenter included.
    #[inline]
    pub fn all(&self) -> DcSet {
        self.all
    }

    /// Returns the members of the configuration; none if there are decisions, or this datacenter joins.
    pub fn configured(&self) -> DcSet {
        if self.are_decided() || self.awaits_state { DcSet::EMPTY } else { self.all }
    }

    /// Returns true if `dc` is a member of the entered epoch.
    #[inline]
    pub fn contains(&self, dc: DcId) -> bool {
        self.all.contains(dc)
    }

    /// Returns the other members that may be linked to: those of decisions that are not entered yet, too.
    #[inline]
    pub fn peers(&self) -> DcSet {
        self.config.slots().member_set().union(self.all).difference(DcSet::only(self.me))
    }

    /// Returns true if there may be a link to `dc`: it is a member as far as is known here, or was one and
    /// may not know that, or this server joins and does not know the members yet.
    pub fn may_link(&self, dc: DcId) -> bool {
        self.peers().contains(dc) || self.ended.contains(dc) || self.awaits_state
    }

    /// Returns true if there is a list of decisions: then it counts, not the configuration.
    #[inline]
    pub fn are_decided(&self) -> bool {
        self.config.index() > Index(0)
    }

    /// Returns true if decisions say who the members are, so a message may name one that is not known here
    /// yet.
    pub fn know_decisions(&self) -> bool {
        self.are_decided() || self.awaits_state
    }

    /// Returns true if there are decisions, known here or not: a message may name a member of which this
    /// datacenter has not heard.
    pub fn may_be_unknown(&self) -> bool {
        self.know_decisions() || self.are_decided_elsewhere
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the decisions that are known here.
    pub fn decisions(&self) -> &DecisionList {
        &self.decisions
    }

    /// Returns the epoch that the own log has entered.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.entered
    }

    /// Returns the last epoch that a member has entered, as the applied entries say.
    pub fn entered_by(&self, dc: DcId) -> Epoch {
        self.entered_by[dc.index()]
    }

    /// Returns the datacenters that an entry of an epoch that is entered here may name.
    pub fn known_at(&self, epoch: Epoch) -> Known {
        if epoch == self.entered || !self.are_decided() {
            return Known { members: self.all, left: self.ended, no_homes: self.no_homes };
        }
        let (left, no_homes) = (self.config.slots().ended_at(epoch), self.config.slots().no_homes_at(epoch));
        Known { members: self.at(epoch), left, no_homes }
    }

    /// Returns the members that had left before the epoch that is entered here.
    pub fn ended(&self) -> DcSet {
        self.ended
    }

    /// Returns the members of an epoch that is entered here.
    pub fn at(&self, epoch: Epoch) -> DcSet {
        if epoch == self.entered || !self.are_decided() {
            return self.all;
        }
        self.config.slots().members_at(epoch).map(|(dc, _)| dc).collect()
    }

    /// Returns true if this directory joins a running cluster and has no state yet.
    #[inline]
    pub fn awaits_state(&self) -> bool {
        self.awaits_state
    }

    /// Returns how many of the voters of each set that may decide by now have to have a commit, so that no
    /// eviction loses it: a majority of the voters remains and has reported, so at least one of these has
    /// it. Empty if nobody votes: then nobody can be evicted.
    pub fn voter_majorities(&self) -> impl Iterator<Item = Majority> {
        let current = slice::from_ref(self.config.voters());
        let sets = self.config.voter_sets_since(self.entered).unwrap_or(current);
        let voting = sets.iter().filter(|set| !set.voters.is_empty());
        voting.map(|set| Majority { of: set.members(), needed: set.majority() })
    }

    /// Returns true if this datacenter may grant: it is a founder, or its part is settled, and it was not
    /// evicted while it was down.
    pub fn may_serve(&self) -> bool {
        !self.asks && !self.awaits_state && !self.has_left() && (!self.are_decided() || self.is_settled())
    }

    fn is_settled(&self) -> bool {
        self.own_member().is_some_and(|member| member.phase != Phase::Joining) && self.all.contains(self.me)
    }

    /// Returns this server as a member: only an admission that names its id makes it one, whoever else has
    /// its slot.
    fn own_member(&self) -> Option<&Member> {
        self.config.slots().member(self.me).filter(|member| member.server == self.server)
    }

    /// Returns true if a new member may be given a state: every older member has entered its admission.
    /// Before that, one that has not might have truncated entries that only the giver and itself have.
    pub fn may_give_to(&self, peer: DcId) -> bool {
        let join = self.joins.iter().find(|join| join.admitted.dc == peer);
        let have_entered = join.is_none_or(|join| self.have_entered(join.older, join.epoch));
        self.all.contains(peer) && !self.awaits_state && have_entered
    }

    /// Returns the number that the first own entry follows: that of the generation of this server.
    pub fn own_base(&self) -> u64 {
        self.own_member().map_or(0, |member| member.generation.base())
    }

    fn have_entered(&self, members: DcSet, epoch: Epoch) -> bool {
        members.iter().all(|dc| self.entered_by(dc) >= epoch)
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
            && self.slots.is_quiet()
            && self.entered_by(self.me) == self.entered
            && !self.is_leaving()
    }
}
