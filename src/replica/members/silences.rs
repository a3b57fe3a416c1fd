//! The silence of a voter, of a member or a witness: the statements that it has recorded, and the time since
//! which it counts. `silence.rs` has the rules of members beyond that.

use std::collections::BTreeMap;

use super::decided::Decided;
use crate::base::bugs::{Bug, Bugs};
use crate::base::time::{Instant, Now, Timestamp};
use crate::membership::{Command, Epoch, Mark, Proposal};
use crate::replica::effect::Effect;
use crate::replica::outputs::Outputs;
use crate::replica::peers::reachability::Reachability;
use crate::replica::record::Record;
use geolock_api::names::{DcId, DcSet, Position};

/// The silence of this voter.
#[derive(Default)]
pub(in crate::replica) struct Silences {
    /// The last statement about each member that is in the journal.
    marked: BTreeMap<DcId, Marked>,
    /// By member: the time before which no silence is counted.
    since: BTreeMap<DcId, Instant>,
    /// The epoch of the policy for which `since` counts.
    policy: Epoch,
    /// The members that were acknowledged at the last heartbeat.
    acknowledged: DcSet,
}

/// A statement in the journal.
#[derive(Clone, Copy, Debug)]
struct Marked {
    number: u64,
    policy: Epoch,
    /// Position of its record.
    recorded: Position,
}

impl Silences {
    /// Returns the statements, for a checkpoint.
    pub fn state(&self) -> Vec<(DcId, u64, Epoch)> {
        self.marked.iter().map(|(of, marked)| (*of, marked.number, marked.policy)).collect()
    }

    /// Takes over the statements of a checkpoint.
    pub fn restore(&mut self, state: &[(DcId, u64, Epoch)]) {
        state.iter().for_each(|(of, number, policy)| self.note(*of, *number, *policy, Position::default()));
    }

    /// The slot has another member, about which nothing was said yet.
    pub(super) fn forget(&mut self, of: DcId) {
        self.marked.remove(&of);
        self.since.remove(&of);
        self.acknowledged.remove(of);
    }

    /// A record in the journal says that this voter is silent about a member.
    pub fn note(&mut self, of: DcId, number: u64, policy: Epoch, recorded: Position) {
        let before = self.marked.insert(of, Marked { number, policy, recorded }).map(|marked| marked.number);
        assert!(before <= Some(number), "statement {number} about {of} follows {before:?}");
    }

    /// This voter counts no silence any more. Its statements stay.
    pub(super) fn stop(&mut self) {
        *self = Silences { marked: std::mem::take(&mut self.marked), ..Silences::default() };
    }

    /// Follows the members and the policy. Silence about a member that is acknowledged anew is counted anew.
    fn follow(&mut self, members: DcSet, policy: Epoch, acknowledged: DcSet, now: Instant) {
        if std::mem::replace(&mut self.policy, policy) != policy {
            self.since.clear();
        }
        self.since.retain(|dc, _| members.contains(*dc));
        for dc in acknowledged.difference(self.acknowledged).iter() {
            self.since.insert(dc, now);
        }
        for dc in members.iter() {
            self.since.entry(dc).or_insert(now);
        }
        assert!(members.is_superset(acknowledged), "{acknowledged:?} are acknowledged, of {members:?}");
        self.acknowledged = acknowledged;
    }
}

/// A voter that listens: it acknowledges heartbeats of members, or states that it is silent about them.
pub(in crate::replica) struct Listener<'a> {
    pub(in crate::replica) bugs: Bugs,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) decided: &'a Decided,
    pub(in crate::replica) silences: &'a mut Silences,
    pub(in crate::replica) reachability: &'a Reachability,
    /// The members of which it has promised to take nothing more.
    pub(in crate::replica) promised: DcSet,
    /// It may become silent about members: it is not cut off itself.
    pub(in crate::replica) may_begin: bool,
}

impl Listener<'_> {
    /// Returns the statement about a member that is in the journal and not decided.
    fn undecided(&self, of: DcId) -> Option<Marked> {
        let marked = self.silences.marked.get(&of).copied();
        marked.filter(|marked| marked.number > self.decided.decided_number(of))
    }

    /// Returns true if this voter acknowledges heartbeats of a member.
    fn acknowledges(&self, of: DcId) -> bool {
        let is_silent = self.decided.own_silence(of).is_some_and(|silence| silence.silent);
        let is_quiet = is_silent || self.undecided(of).is_some();
        (!is_quiet || self.bugs.has(Bug::AcknowledgesSilent)) && !self.promised.contains(of)
    }

    /// Returns the heartbeats of these members that this voter acknowledges, by their clocks.
    pub(in crate::replica) fn acknowledged(&self, members: DcSet) -> Vec<(DcId, Timestamp)> {
        let is_voter = self.decided.own_vote().is_some();
        let acknowledged = members.iter().filter(|dc| is_voter && self.acknowledges(*dc));
        acknowledged.filter_map(|dc| Some((dc, self.reachability.last_clock(dc)?))).collect()
    }

    /// Says, with each heartbeat, about which of these members, all but itself, this voter is silent. Returns
    /// the position with which it continues when that is on disk.
    pub(in crate::replica) fn drive(&mut self, members: DcSet) -> Option<Position> {
        let policy = self.decided.config().policy_epoch();
        let acknowledged = members.iter().filter(|dc| self.acknowledges(*dc)).collect();
        self.silences.follow(members, policy, acknowledged, self.now.mono);
        let alive = self.reachability.alive(self.now.mono);
        let mut goes_on_at = None;
        for of in members.iter() {
            if !acknowledged.contains(of) {
                self.state_again(of, alive.contains(of));
            } else if self.is_silent_about(of) {
                goes_on_at = Some(self.begin_silence(of));
            }
        }
        goes_on_at
    }

    /// Returns true if nothing of a member was heard for `evict_after`.
    fn is_silent_about(&self, of: DcId) -> bool {
        let since = self.silences.since.get(&of).copied().unwrap_or(self.now.mono);
        let since = if self.bugs.has(Bug::SilenceFromBefore) { Instant::ZERO } else { since };
        let heard = self.reachability.last_heard(of).unwrap_or(Instant::ZERO);
        let after = self.decided.config().policy().evict_after();
        self.may_begin && self.now.mono >= since.max(heard) + after
    }

    /// From now on nothing of this member is acknowledged. Returns the position of the record.
    fn begin_silence(&mut self, of: DcId) -> Position {
        let number = self.decided.decided_number(of) + 1;
        let policy = self.decided.config().policy_epoch();
        let is_undecided = self.undecided(of).is_some();
        debug_assert!(!is_undecided || self.bugs.has(Bug::AcknowledgesSilent), "silence begins once");
        let recorded = match self.bugs.has(Bug::SilenceNotOnDisk) {
            true => Position::default(),
            false => self.out.persist(Record::Silent { of, number, policy }),
        };
        self.silences.note(of, number, policy, recorded);
        self.silences.acknowledged.remove(of);
        recorded
    }

    /// Proposes the silence that is not decided, once it is on disk; or takes silence back, if the member is
    /// heard, or the policy for which it was counted is over. A proposal may be lost, so it is repeated.
    fn state_again(&mut self, of: DcId, is_alive: bool) {
        let policy = self.decided.config().policy_epoch();
        let (undecided, decided) = (self.undecided(of), self.decided.decided_number(of));
        let (Some(by), Some(of_generation)) =
            (self.decided.own_vote(), self.decided.config().slots().generation(of))
        else {
            return;
        };
        let mark = |number| Mark { by, of, of_generation, number };
        let last = undecided.map_or(decided, |marked| marked.number);
        let is_silent = self.decided.own_silence(of).is_some_and(|silence| silence.silent);
        let command = match undecided {
            _ if is_alive && (is_silent || undecided.is_some()) => Command::Heard { mark: mark(last + 1) },
            Some(marked) if marked.policy != policy => Command::Heard { mark: mark(last + 1) },
            Some(marked) if self.out.output_commit.may_emit(marked.recorded) => {
                Command::Silent { mark: mark(marked.number), policy }
            }
            _ => return,
        };
        let proposal = Proposal { checked: self.decided.config().revision(), command };
        self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
    }
}
