//! Evictions: what the members that remain do about one that is lost, until it is over.
//!
//! ```text
//! decision  Begin   from now on every member that remains takes nothing more of the lost one: its promise
//! decision  Have    of each: the entries that it had, on disk, when it promised
//! decision  End     once all have reported: the highest report is the cut, the last entry that counts
//! log       Enter   of each, when it has everything up to the cut: what the lost one owned is at home
//! decision  Abort   instead of `End`, if the lost one is heard again, or one that has to report is lost, too
//! ```
//!
//! So no member ever has more of the lost one than the cut, none has shown a client an entry beyond the cut,
//! and nothing that a member has is lost.

use super::Members;
use super::decided::Decided;
use super::pending::Evicted;
use crate::base::bugs::{Bug, Bugs};
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::membership::{AttemptId, Command, Epoch, FIRST_FENCE, Generation, Proposal, Voter};
use crate::replica::effect::Effect;
use crate::replica::members::Decisions;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet, Position};

/// An attempt is given up when a member that has to report was not heard for this many peer timeouts since it
/// began.
const PATIENCE: u32 = 4;

/// The eviction under way, as this member sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::replica) struct Promise {
    attempt: AttemptId,
    /// Position of the record of the decision that began it: with that, the promise is on disk.
    recorded: Position,
    /// The time at which it was learnt.
    since: Instant,
}

impl Promise {
    /// Returns the eviction that it is about.
    pub(in crate::replica) fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Returns the position of its record: with that it is on disk.
    pub(in crate::replica) fn recorded(&self) -> Position {
        self.recorded
    }

    /// Follows the decision recorded at `position`, which may begin or end an eviction.
    pub(in crate::replica) fn follow(
        promise: Option<Promise>,
        decided: &Decided,
        position: Position,
        now: Instant,
    ) -> Option<Promise> {
        let attempt = decided.config().attempt().map(|attempt| attempt.id);
        debug_assert!(promise.is_none_or(|promise| promise.since <= now), "time does not go back");
        match promise.map(|promise| promise.attempt) == attempt {
            true => promise,
            false => attempt.map(|attempt| Promise { attempt, recorded: position, since: now }),
        }
    }
}

/// The fate of an entry, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum Fate {
    Counts,
    /// Its maker is to be evicted: it counts if it is not beyond the cut, or if the eviction is given up.
    Waits,
    /// Its maker's generation is over, and it is beyond the cut.
    BeyondCut,
}

impl Members {
    /// Returns the datacenters of which this one takes nothing more, for an eviction or a forced recovery.
    pub(super) fn promised(&self) -> DcSet {
        self.decided.evicting_and_recut().union(self.recovering.given_up())
    }

    /// Returns what becomes of an entry that is not applied here.
    pub fn fate(&self, dc: DcId, seq: u64, bugs: Bugs) -> Fate {
        if !self.decided.has_decisions() || bugs.has(Bug::PromiseBroken) {
            return Fate::Counts;
        }
        match self.decided.config().slots().cut(dc, Generation::of_seq(seq)) {
            Some(cut) if seq > cut => Fate::BeyondCut,
            _ if self.promised().contains(dc) => Fate::Waits,
            _ => Fate::Counts,
        }
    }

    /// Returns true if a vector, to which a state would bring this member, has entries that do not count, or
    /// of which it has promised to take none.
    pub fn has_beyond(&self, vector: &VersionVector, applied: &VersionVector, bugs: Bugs) -> bool {
        vector.iter().any(|(dc, seq)| seq > applied.get(dc) && self.fate(dc, seq, bugs) != Fate::Counts)
    }

    /// Notes an eviction that the decision recorded at `position` begins or ends.
    pub(super) fn note_promise(&mut self, position: Position, now: Instant) {
        self.promise = Promise::follow(self.promise, &self.decided, position, now);
    }

    /// Returns true if this member may enter the epoch in which these are over: it has all of them up to the
    /// cuts, nothing goes along with their parts, and it has what the others did before the epoch before. One
    /// that a later end evicts may have entered this epoch: its last entries are taken only then.
    pub(super) fn may_enter_end(&self, end: Evicted, applied: &VersionVector, bugs: Bugs) -> bool {
        let (slots, entered) = (self.decided.config().slots(), self.entered.epoch());
        let evicted = self.pending.evicted();
        debug_assert!(evicted.is_superset(end.members), "{:?} are of {evicted:?}", end.members);
        let remain = self.entered.staying().difference(evicted);
        let has_all = |dc| slots.last_past(dc).is_none_or(|past| past.is_reached_by(applied.get(dc)));
        // A member that was joining when it was decided may settle only after it.
        let settled =
            evicted.union(end.joining).union(self.joins.orphans(&self.pending, slots, applied, bugs));
        !evicted.contains(self.decided.me())
            && (end.members.iter().all(has_all) || bugs.has(Bug::EndWithoutCut))
            && evicted.iter().all(|dc| has_all(dc) || self.entered.epoch_of(dc) >= entered)
            && settled.is_superset(self.joins.parts())
            && self.entered.have_entered(remain, entered)
    }

    /// Returns the highest bits of fencing tokens in the entered epoch; `None` before the first eviction,
    /// when tokens are plain readings.
    pub fn fence(&self) -> Option<u16> {
        let (decided, ahead) = (self.decided.config().evictions(), self.pending.fences());
        assert!(ahead <= decided, "{ahead} of {decided} evictions are not entered");
        let entered = decided - ahead;
        (entered > 0).then_some(FIRST_FENCE + entered)
    }
}

impl Writer<'_> {
    /// Acts without these members, which are over, from now on.
    pub(super) fn enter_end(&mut self, evicted: DcSet, epoch: Epoch) {
        for dc in evicted.iter() {
            let past = self.members.decided.config().slots().last_past(dc).expect("an end has a cut");
            let (cut, applied) = (past.cut, self.log.applied().get(dc));
            let bug = self.config.bugs.has(Bug::EndWithoutCut) || self.config.bugs.has(Bug::PromiseBroken);
            let is_reached = past.is_reached_by(applied) && applied <= cut;
            assert!(is_reached || bug, "{dc} ends at {cut}, and {applied} is applied");
        }
        self.locks.member_changes().end_evicted(evicted, epoch.0, self.now.mono);
        self.log.peers_mut().set_members(self.members.entered.all());
        self.ids.fence = self.members.fence();
        self.settle_complete(&self.log.applied().clone());
    }
}

impl Decisions<'_> {
    /// Does what an eviction needs from this member. A proposal may be lost, so it is repeated with each
    /// heartbeat.
    pub(in crate::replica) fn drive_eviction(&mut self) {
        let (evicting, Some(promise)) = (self.members.decided.evicting(), self.members.promise) else {
            return;
        };
        let config = self.members.decided.config();
        let attempt = config.attempt().map(|attempt| attempt.id);
        assert_eq!(attempt, Some(promise.attempt), "a promise is about the eviction under way");
        if evicting.is_empty() {
            return;
        }
        let missing = config.missing_reports();
        let me = self.config.dc;
        let is_promised = config.attempt().is_some_and(|attempt| attempt.is_promised(config.voters()));
        let is_on_disk = self.out.output_commit.may_emit(promise.recorded)
            && self
                .members
                .promised()
                .iter()
                .all(|dc| self.log.durable().get(dc) == self.log.applied().get(dc));
        let command = if self.is_hopeless(evicting, missing, promise) {
            Command::Abort { attempt: promise.attempt }
        } else if missing.is_empty() && is_promised {
            Command::End { attempt: promise.attempt }
        } else if let Some(by) = self.promises_for(missing) {
            Command::Have { attempt: promise.attempt, by, vector: VersionVector::default() }
        } else if missing.contains(me) && is_on_disk && !self.members.needs_state() {
            let Some(generation) = config.slots().generation(me) else { return };
            let by = Voter::Member { dc: me, generation };
            let vector = (**self.log.durable()).clone();
            Command::Have { attempt: promise.attempt, by, vector }
        } else {
            return;
        };
        let proposal = Proposal { checked: config.revision(), command };
        self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
    }

    /// Returns the witness for which a member promises by mistake.
    fn promises_for(&self, missing: DcSet) -> Option<Voter> {
        let promises = missing.is_empty() && self.config.bugs.has(Bug::PromisesForWitness);
        let mut witnesses = self.members.decided.config().witnesses().iter().filter(|_| promises);
        witnesses.next().map(|(id, _)| Voter::Witness(id))
    }

    /// Returns true if one that is to be evicted is heard, here or by a witness, or was by a voter whose
    /// silence counted, or was started after the operator vouched for its end, or one that has to report is
    /// not heard here.
    fn is_hopeless(&self, evicting: DcSet, missing: DcSet, promise: Promise) -> bool {
        let evicting = self.members.decided.config().need_silence(evicting);
        let heard = self.peers.reachability.alive(self.now.mono);
        let silent = missing.difference(heard).difference(DcSet::only(self.config.dc));
        let until = promise.since + self.config.agreed.peer_timeout * PATIENCE;
        let by_witness = self.peers.witnesses.hear(self.now.mono, self.config.agreed.peer_timeout);
        let was_started =
            self.members.decided.config().evicts_started(|dc| self.peers.reachability.newest_clock(dc));
        !evicting.intersection(heard.union(by_witness)).is_empty()
            || self.members.decided.config().lacks_silence()
            || (was_started && !self.config.bugs.has(Bug::StartNotSeen))
            || (!silent.is_empty() && self.now.mono >= until)
    }
}
