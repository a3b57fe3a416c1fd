//! Truncation of the log (`docs/algorithm.md#84-truncation`).
//!
//! An entry is kept until every member has acknowledged it as durable. When the kept entries weigh more than
//! a limit, the members that lack the oldest ones are *given up*: these entries are truncated, and such a
//! member gets a state transfer when it is back. It must be able to apply, on top of that state, the entries
//! that it has and the giver lacks. So it must not happen that two members, each in its half of a cut
//! cluster, give up entries that the other lacks. Hence two conditions:
//!
//! - A quorum has the entry durably: this datacenter and others, together more than half of the members, or
//!   half of them including the first. Any two quorums have a member in common.
//! - Of each other member of the quorum, a vector counts only if that member announced it and it is durable
//!   here.
//!
//! Let S have given up entries E with a quorum and R entries F. Both quorums contain some Z, which announced
//! a vector with E to S and one with F to R. Vectors of one datacenter only grow, so the one of S and R that
//! counted the later vector has all that is in both. So of any two, one lacks nothing that the other gave up;
//! and if R lacks some of E, then S has all of F.

use std::ops::Range;
use std::sync::Arc;

use super::Log;
use crate::base::time::Timestamp;
use crate::base::work;
use crate::causal_log::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet, Position};

/// One step truncates entries until they have this number of rows together, see [`Entry::rows`]; later steps
/// do the rest.
///
/// [`Entry::rows`]: crate::causal_log::Entry::rows
const TRUNCATED_PER_STEP: usize = 256;

/// After this number of truncated entries, the journal gets a record of them.
const FORGOTTEN_PER_RECORD: usize = 256;

/// The entries that this process has truncated.
#[derive(Default)]
pub(super) struct Forgotten {
    entries: VersionVector,
    /// Number of those that no record of the journal covers.
    unrecorded: usize,
}

/// The vectors that a peer announced as durable.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub last: VersionVector,
    /// A vector that the peer announced and that is durable here.
    shared: VersionVector,
    /// An announced vector that will be durable here later. Newer ones do not replace it; otherwise, under
    /// load, none would ever become durable here.
    awaited: Option<VersionVector>,
}

impl Told {
    /// Records an announced vector. Returns the previous one.
    pub fn note(&mut self, told: &VersionVector, durable: &VersionVector) -> VersionVector {
        let before = std::mem::replace(&mut self.last, told.clone());
        if !told.covers(&before) {
            // The peer lost its disk.
            self.shared = VersionVector::default();
            self.awaited = None;
        }
        if self.awaited.is_none() {
            self.awaited = Some(told.clone());
        }
        self.draw(durable);
        before
    }

    fn draw(&mut self, durable: &VersionVector) {
        if let Some(shared) = self.awaited.take_if(|awaited| durable.covers(awaited)) {
            self.shared = shared;
        }
    }
}

impl Log {
    /// Returns the approximate number of bytes of the kept entries.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns the numbers of the kept entries.
    pub fn kept_numbers(&self) -> Range<u64> {
        self.first..self.first + self.kept.len() as u64
    }

    /// Returns the kept entries with these numbers, all of which must be kept.
    pub fn kept_in(&self, numbers: Range<u64>) -> impl Iterator<Item = &Arc<Entry>> {
        assert!(numbers.start >= self.first, "the entries from {} on are kept", numbers.start);
        let places = (numbers.start - self.first) as usize..(numbers.end - self.first) as usize;
        self.kept.range(places).map(|kept| &kept.entry)
    }

    /// Truncates entries that every member has durably; and, while the kept entries weigh more than `most`,
    /// those that a quorum has, except those that `needed` does not cover. Also advances the marks of peers.
    /// Both are done in pieces: returns true if there may be more to do in the next step. No entry from the
    /// number `before` on is truncated.
    pub fn truncate(&mut self, most: usize, needed: Option<&VersionVector>, before: u64) -> bool {
        let mut goes_on = false;
        for peer in self.members.difference(DcSet::only(self.me)).iter() {
            if self.rows[peer.index()].mark.goes_on {
                self.move_mark_on(peer);
                goes_on |= self.rows[peer.index()].mark.goes_on;
            }
        }
        self.forget_some(most, needed, before) || goes_on
    }

    fn forget_some(&mut self, most: usize, needed: Option<&VersionVector>, before: u64) -> bool {
        let (mut forgotten, mut rows) = (0, 0);
        if self.weight > most {
            self.rows.iter_mut().for_each(|peer| peer.told.draw(&self.durable));
        }
        while self.first < self.durable_end.min(before) && rows < TRUNCATED_PER_STEP {
            let Some(kept) = self.kept.front() else { break };
            let (dc, seq) = (kept.dc, kept.seq);
            if !self.all_have(dc, seq) {
                let is_needed = needed.is_some_and(|covered| covered.get(dc) < seq);
                if self.weight <= most || is_needed || !self.quorum_has(dc, seq) {
                    break;
                }
            }
            forgotten += 1;
            rows += kept.entry.rows();
            self.forgotten.entries.raise(dc, seq);
            self.forget_first();
        }
        assert!(self.first <= self.durable_end, "only durable entries are truncated");
        self.forgotten.unrecorded += forgotten;
        work::count(rows);
        rows >= TRUNCATED_PER_STEP
    }

    fn forget_first(&mut self) {
        let Some(kept) = self.kept.pop_front() else { return };
        self.truncated.raise(kept.dc, kept.seq);
        self.weight -= kept.weight as usize;
        self.first += 1;
        debug_assert!(self.weight > 0 || self.kept.is_empty(), "kept entries have a weight");
    }

    /// Returns the truncated entries, if enough of them are not recorded in the journal yet.
    pub fn forgotten_to_record(&mut self) -> Option<VersionVector> {
        if self.forgotten.unrecorded < FORGOTTEN_PER_RECORD {
            return None;
        }
        self.forgotten.unrecorded = 0;
        Some(self.forgotten.entries.clone())
    }

    /// Truncates again the entries that were truncated before a restart: all that was read so far is durable.
    pub fn forget_again(&mut self, entries: &VersionVector) {
        while let Some(kept) = self.kept.front() {
            let (dc, seq) = (kept.dc, kept.seq);
            if entries.get(dc) < seq {
                break;
            }
            Arc::make_mut(&mut self.durable).raise(dc, seq);
            self.forget_first();
            self.durable_end = self.durable_end.max(self.first);
            if dc == self.me {
                self.own_end = self.own_end.max(self.first);
            }
        }
    }

    fn all_have(&self, dc: DcId, seq: u64) -> bool {
        let has_it = |peer: DcId| peer == self.me || self.rows[peer.index()].told.last.get(dc) >= seq;
        self.members.iter().all(has_it)
    }

    fn quorum_has(&self, dc: DcId, seq: u64) -> bool {
        let has_it = |peer: &DcId| *peer == self.me || self.rows[peer.index()].told.shared.get(dc) >= seq;
        is_quorum(self.members.iter().filter(has_it).collect(), self.members)
    }

    /// Returns the first truncated entry that is applied here and that `vector` does not cover.
    pub fn first_not_kept_beyond(&self, vector: &VersionVector) -> Option<(DcId, u64)> {
        let gone = self.truncated.iter().find(|(dc, seq)| vector.get(*dc) < *seq);
        gone.map(|(dc, _)| (dc, vector.get(dc) + 1))
    }

    /// Installs a state of another datacenter that has applied `vector`, as the journal has it at `position`.
    /// The entries between stay unknown here.
    pub fn install_state(
        &mut self,
        vector: &VersionVector,
        stamps: &[(DcId, Timestamp)],
        position: Position,
    ) {
        assert!(self.taken.is_none(), "one state is taken over at a time");
        for (dc, seq) in vector.iter().filter(|(dc, seq)| self.applied.get(*dc) < *seq).collect::<Vec<_>>() {
            self.applied.raise(dc, seq);
            self.truncated.raise(dc, seq);
        }
        for (dc, stamp) in stamps {
            self.stamps[dc.index()] = self.stamps[dc.index()].max(*stamp);
        }
        debug_assert!(self.applied.covers(vector), "an installed state is applied");
        self.taken = Some((position, vector.clone()));
    }

    /// Returns the vector of an installed state that is not durable yet.
    pub fn taken(&self) -> Option<&VersionVector> {
        self.taken.as_ref().map(|(_, vector)| vector)
    }
}

/// Returns true if these are a quorum of all: more than half of them, or half of them including the first.
fn is_quorum(some: DcSet, all: DcSet) -> bool {
    let twice = 2 * some.len();
    twice > all.len() || (twice == all.len() && all.iter().next().is_some_and(|first| some.contains(first)))
}

#[cfg(test)]
mod tests {
    use super::super::lag::{Lag, PASSED_PER_STEP};
    use super::*;
    use crate::base::entry_number::{COUNT_BITS, follows};
    use crate::base::time::Instant;
    use geolock_api::names::ClusterId;
    use std::time::Duration;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    /// Builds an entry of dc0.
    fn entry(seq: u64) -> Arc<Entry> {
        let (cluster, at) = (ClusterId::from_raw(1), Timestamp::from_millis(seq));
        let deps = VersionVector::from_iter([(dc(0), seq - 1)]);
        Arc::new(Entry { cluster, epoch: 0, prev: 0, lead_ms: 0, dc: dc(0), seq, at, deps, ops: Vec::new() })
    }

    #[test]
    fn what_a_peer_told_before_it_lost_its_disk_counts_for_no_quorum() {
        let vector = |a, b| VersionVector::from_iter([(dc(0), a), (dc(1), b)]);
        let members: DcSet = (0..3).map(dc).collect();
        let mut log = Log::new(dc(0), members);
        log.restore(vector(10, 6), &[], &[], &[], Instant::ZERO);
        log.note_durable(Position(1), Instant::ZERO);
        log.note_told(dc(1), &vector(10, 6), members);
        assert!(log.quorum_has(dc(0), 10));
        // Not all of the next announced vector is here, so it is awaited.
        log.note_told(dc(1), &vector(10, 7), members);
        log.note_told(dc(1), &VersionVector::default(), members);
        assert!(!log.quorum_has(dc(0), 10));
    }

    #[test]
    fn what_is_kept_counts_as_far_as_it_reaches_the_end() {
        let truncated = |kept: &[u64]| {
            let mut log = Log::new(dc(1), [dc(0), dc(1)].into_iter().collect());
            let kept: Vec<_> = kept.iter().map(|seq| entry(*seq)).collect();
            log.restore(VersionVector::from_iter([(dc(0), 20)]), &[], &[], &kept, Instant::ZERO);
            log.truncated().get(dc(0))
        };
        assert_eq!(truncated(&[]), 20);
        assert_eq!(truncated(&[19, 20]), 18);
        // A state was installed between 10 and 20.
        assert_eq!(truncated(&[9, 10]), 20);
        assert_eq!(truncated(&[9, 10, 20]), 19);
    }

    /// Entries 5 to 7 of the first server of a slot are the last that count; the next one has made two.
    #[test]
    fn the_log_of_a_slot_goes_on_with_the_next_generation() {
        let base = 1 << COUNT_BITS;
        let mut log = Log::new(dc(1), (0..3).map(dc).collect());
        let next = |seq: u64, before: u64| {
            let deps = VersionVector::from_iter([(dc(0), before)]);
            Arc::new(Entry { seq, deps, ..(*entry(1)).clone() })
        };
        let kept = [next(6, 5), next(7, 6), next(base + 1, 7), next(base + 2, base + 1)];
        let all = VersionVector::from_iter([(dc(0), base + 2)]);
        log.restore(all.clone(), &[], &[], &kept, Instant::ZERO);
        assert_eq!(log.truncated().get(dc(0)), 5, "all from 6 on are kept");
        let told = VersionVector::from_iter([(dc(0), 7)]);
        assert!(!log.note_told(dc(2), &told, DcSet::EMPTY), "it lacks nothing that is truncated");
        assert_eq!(log.lag(dc(2)).entries, 2);
        assert!(follows(base + 3, base + 2) && !follows(base + 3, 7));
        log.note_durable(Position(1), Instant::ZERO);
        log.note_told(dc(0), &all, DcSet::EMPTY);
        log.note_told(dc(2), &all, DcSet::EMPTY);
        while log.truncate(usize::MAX, None, u64::MAX) {}
        assert_eq!((log.len(), log.truncated().get(dc(0))), (0, base + 2));
        log.admit(dc(0), 2 * base);
        assert!(log.awaits_state(dc(0)) && log.acknowledged(dc(0)) == &VersionVector::default());
    }

    #[test]
    fn all_that_is_acknowledged_at_once_is_passed_and_forgotten_in_pieces() {
        const ENTRIES: u64 = 10_000;
        let all = VersionVector::from_iter([(dc(0), ENTRIES)]);
        let members: DcSet = (0..3).map(dc).collect();
        let mut log = Log::new(dc(1), members);
        let kept: Vec<_> = (1..=ENTRIES).map(entry).collect();
        log.restore(all.clone(), &[], &[], &kept, Instant::ZERO);
        log.note_durable(Position(1), Instant::ZERO);
        log.note_told(dc(0), &all, members);
        work::take();
        log.note_told(dc(2), &all, members);
        assert!(work::take() <= PASSED_PER_STEP as u64);
        let mut steps = 1;
        while log.truncate(usize::MAX, None, u64::MAX) {
            steps += 1;
            assert!(work::take() <= (TRUNCATED_PER_STEP + 2 * PASSED_PER_STEP) as u64);
        }
        assert_eq!((log.len(), log.lag(dc(2))), (0, Lag::default()));
        assert_eq!(steps, ENTRIES as usize / TRUNCATED_PER_STEP + 1);
    }

    /// The decision that admits it may be known here while its epoch is not entered.
    #[test]
    fn a_server_that_joins_is_sent_no_entries_before_its_epoch_is_entered_and_it_has_a_state() {
        let mut log = Log::new(dc(0), DcSet::only(dc(0)));
        log.restore(VersionVector::from_iter([(dc(0), 2)]), &[], &[], &[entry(1), entry(2)], Instant::ZERO);
        log.note_durable(Position(1), Instant::ZERO);
        log.link_up(dc(1));
        let tell = |log: &mut Log, own: u64| {
            let told = VersionVector::from_iter([(dc(1), own)]);
            log.note_told(dc(1), &told, DcSet::only(dc(0)));
            log.next_batch(dc(1), Instant::ZERO, Duration::ZERO, 8).len()
        };
        assert_eq!(tell(&mut log, 0), 0);
        log.admit(dc(1), 0);
        assert_eq!(tell(&mut log, 0), 0);
        // The first entry of its own says that it has a state.
        assert_eq!(tell(&mut log, 1), 2);
    }

    #[test]
    fn any_two_quorums_have_a_member_in_common() {
        for size in 1..=6_u8 {
            let members: Vec<DcId> = (0..size).filter_map(DcId::new).collect();
            let all: DcSet = members.iter().copied().collect();
            let subset = |mask: u32| -> DcSet {
                members.iter().copied().filter(|dc| mask & 1 << dc.index() != 0).collect()
            };
            let quorums: Vec<DcSet> =
                (0..1 << size).map(subset).filter(|some| is_quorum(*some, all)).collect();
            assert!(!quorums.is_empty());
            for a in &quorums {
                assert!(quorums.iter().all(|b| !a.intersection(*b).is_empty()), "of {size} members");
            }
        }
    }
}
