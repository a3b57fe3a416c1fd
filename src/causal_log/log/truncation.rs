//! Truncation of the log (`docs/algorithm/log.md#34-truncation`).
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

use std::sync::Arc;

use super::Log;
use crate::base::work;
use crate::crdt::VersionVector;

/// One step truncates entries until they have this number of rows together, see [`Entry::rows`]; later steps
/// do the rest.
///
/// [`Entry::rows`]: crate::causal_log::Entry::rows
const TRUNCATED_PER_STEP: usize = 256;

impl Log {
    /// Truncates entries that every member has durably; and, while the kept entries weigh more than `most`,
    /// those that a quorum has, except those that `needed` does not cover. Also continues to count the
    /// entries that peers have acknowledged. Both are done in pieces: returns true if there may be more to do
    /// in the next step. No entry from the number `before` on is truncated.
    pub fn truncate(&mut self, most: usize, needed: Option<&VersionVector>, before: u64) -> bool {
        let goes_on = self.peers.continue_match(&self.entries);
        self.truncate_some(most, needed, before) || goes_on
    }

    fn truncate_some(&mut self, most: usize, needed: Option<&VersionVector>, before: u64) -> bool {
        let mut rows = 0;
        if self.entries.weight() > most {
            self.peers.update_shared(&self.durable);
        }
        while rows < TRUNCATED_PER_STEP
            && let Some(oldest) = self.entries.oldest_durable(before)
        {
            let (dc, seq) = (oldest.dc, oldest.seq);
            if !self.peers.all_have(dc, seq) {
                let is_needed = needed.is_some_and(|covered| covered.get(dc) < seq);
                if self.entries.weight() <= most || is_needed || !self.peers.quorum_has(dc, seq) {
                    break;
                }
            }
            rows += oldest.entry.rows();
            self.truncated.add(dc, seq);
            self.entries.pop_oldest();
        }
        work::count(rows);
        rows >= TRUNCATED_PER_STEP
    }

    /// Truncates again the entries that were truncated before a restart: all that was read so far is durable.
    pub fn truncate_again(&mut self, recorded: &VersionVector) {
        while let Some(oldest) = self.entries.oldest().filter(|oldest| recorded.get(oldest.dc) >= oldest.seq)
        {
            let (dc, seq) = (oldest.dc, oldest.seq);
            Arc::make_mut(&mut self.durable).raise(dc, seq);
            self.truncated.add_recorded(dc, seq);
            self.entries.pop_oldest();
        }
        debug_assert!(self.applied.covers(&self.durable), "nothing is durable that was not applied");
    }
}

#[cfg(test)]
mod tests {
    use super::super::lag::{Lag, PASSED_PER_STEP};
    use super::*;
    use crate::base::bugs::Bugs;
    use crate::base::entry_number::{COUNT_BITS, follows};
    use crate::base::time::Instant;
    use crate::base::time::Timestamp;
    use crate::causal_log::Entry;
    use geolock_api::names::{ClusterId, DcId, DcSet, Position};
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

    fn lag(log: &Log, peer: DcId) -> Lag {
        log.peer(peer).acknowledged().lag(log.applied(), log.entries())
    }

    #[test]
    fn what_is_kept_counts_as_far_as_it_reaches_the_end() {
        let truncated = |kept: &[u64]| {
            let mut log = Log::new(dc(1), [dc(0), dc(1)].into_iter().collect(), Bugs::default());
            let kept: Vec<_> = kept.iter().map(|seq| entry(*seq)).collect();
            log.restore(VersionVector::from_iter([(dc(0), 20)]), &[], &[], &kept, Instant::ZERO);
            log.truncated().vector().get(dc(0))
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
        let mut log = Log::new(dc(1), (0..3).map(dc).collect(), Bugs::default());
        let next = |seq: u64, before: u64| {
            let deps = VersionVector::from_iter([(dc(0), before)]);
            Arc::new(Entry { seq, deps, ..(*entry(1)).clone() })
        };
        let kept = [next(6, 5), next(7, 6), next(base + 1, 7), next(base + 2, base + 1)];
        let all = VersionVector::from_iter([(dc(0), base + 2)]);
        log.restore(all.clone(), &[], &[], &kept, Instant::ZERO);
        assert_eq!(log.truncated().vector().get(dc(0)), 5, "all from 6 on are kept");
        let told = VersionVector::from_iter([(dc(0), 7)]);
        assert!(!log.note_announced(dc(2), &told, DcSet::EMPTY), "it lacks nothing that is truncated");
        assert_eq!(lag(&log, dc(2)).entries, 2);
        assert!(follows(base + 3, base + 2) && !follows(base + 3, 7));
        log.note_durable(Position(1), Instant::ZERO);
        log.note_announced(dc(0), &all, DcSet::EMPTY);
        log.note_announced(dc(2), &all, DcSet::EMPTY);
        while log.truncate(usize::MAX, None, u64::MAX) {}
        assert_eq!((log.entries().len(), log.truncated().vector().get(dc(0))), (0, base + 2));
        log.admit(dc(0), 2 * base);
        assert!(
            log.peer(dc(0)).awaits_state()
                && log.peer(dc(0)).acknowledged().vector() == &VersionVector::default()
        );
    }

    #[test]
    fn all_that_is_acknowledged_at_once_is_passed_and_forgotten_in_pieces() {
        const ENTRIES: u64 = 10_000;
        let all = VersionVector::from_iter([(dc(0), ENTRIES)]);
        let members: DcSet = (0..3).map(dc).collect();
        let mut log = Log::new(dc(1), members, Bugs::default());
        let kept: Vec<_> = (1..=ENTRIES).map(entry).collect();
        log.restore(all.clone(), &[], &[], &kept, Instant::ZERO);
        log.note_durable(Position(1), Instant::ZERO);
        log.note_announced(dc(0), &all, members);
        work::take();
        log.note_announced(dc(2), &all, members);
        assert!(work::take() <= PASSED_PER_STEP as u64);
        let mut steps = 1;
        while log.truncate(usize::MAX, None, u64::MAX) {
            steps += 1;
            assert!(work::take() <= (TRUNCATED_PER_STEP + 2 * PASSED_PER_STEP) as u64);
        }
        assert_eq!((log.entries().len(), lag(&log, dc(2))), (0, Lag::default()));
        assert_eq!(steps, ENTRIES as usize / TRUNCATED_PER_STEP + 1);
    }

    /// The decision that admits it may be known here while its epoch is not entered.
    #[test]
    fn a_server_that_joins_is_sent_no_entries_before_its_epoch_is_entered_and_it_has_a_state() {
        let mut log = Log::new(dc(0), DcSet::only(dc(0)), Bugs::default());
        log.restore(VersionVector::from_iter([(dc(0), 2)]), &[], &[], &[entry(1), entry(2)], Instant::ZERO);
        log.note_durable(Position(1), Instant::ZERO);
        log.peers_mut().link_up(dc(1));
        let tell = |log: &mut Log, own: u64| {
            let told = VersionVector::from_iter([(dc(1), own)]);
            log.note_announced(dc(1), &told, DcSet::only(dc(0)));
            log.next_batch(dc(1), Instant::ZERO, Duration::ZERO, 8).len()
        };
        assert_eq!(tell(&mut log, 0), 0);
        log.admit(dc(1), 0);
        assert_eq!(tell(&mut log, 0), 0);
        // The first entry of its own says that it has a state.
        assert_eq!(tell(&mut log, 1), 2);
    }
}
