//! A node's disk: a journal that loses what was not synced, and checkpoints.
//!
//! A sync takes time and makes durable what was appended before its start. A crash keeps some prefix: at
//! least what is durable, at most everything. For the oracle, the disk also keeps the state that its durable
//! records amount to ([`Facts`]): a node may announce no more than that. A copy of the disk ([`Disk::copy`])
//! may replace it later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crdts::{CmRDT, CvRDT};

use crate::base::capacity::DiskSpace;
use crate::base::rng::Rng;
use crate::causal_log::{LockParts, Op};
use crate::crdt::value::Dot;
use crate::crdt::{Ownership, PartMove, VersionVector};
use crate::replica::{Checkpoint, LeaseRecord, Position, Record};
use geolock_api::names::{DcId, LeaseId};

/// The state that records up to some position amount to, as far as the oracle needs it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub applied: VersionVector,
    pub ownership: Ownership,
    pub leases: BTreeMap<LeaseId, LeaseRecord>,
    /// Leases that were opened, including those that ended since.
    pub opened: BTreeSet<LeaseId>,
    /// Number of times that it was found to be an older copy of itself, or marked as one.
    pub doubted: u64,
    /// Entries that it has only as a part of a state: the log, the number before the first one, the last
    /// number.
    in_states: Vec<(DcId, u64, u64)>,
}

impl Facts {
    fn new() -> Facts {
        Facts {
            applied: VersionVector::default(),
            ownership: Ownership::new(0),
            leases: BTreeMap::new(),
            opened: BTreeSet::new(),
            doubted: 0,
            in_states: Vec::new(),
        }
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Entry(entry) | Record::EntryV1(entry) => {
                self.applied.raise(entry.dc, entry.seq);
                entry.ops.iter().for_each(|op| apply_transfers(&mut self.ownership, op));
            }
            Record::LeaseOpened(lease) => {
                self.leases.insert(lease.lease, *lease);
                self.opened.insert(lease.lease);
            }
            Record::LeaseEnded { lease } => {
                self.leases.remove(lease);
            }
            Record::StateTaken { vector } => {
                let new = vector.iter().filter(|(dc, seq)| self.applied.get(*dc) < *seq);
                self.in_states.extend(new.map(|(dc, seq)| (dc, self.applied.get(dc), seq)));
                self.applied.merge(vector.clone());
            }
            Record::Restored => self.doubted += 1,
            Record::IdReservation { .. }
            | Record::Joined
            | Record::StatePiece(_)
            | Record::Forked(_)
            | Record::ForkResolved
            | Record::TokenLead { .. }
            | Record::Forgotten { .. }
            | Record::Decided { .. }
            | Record::Silent { .. }
            | Record::RecoveryPromised(_)
            | Record::StayPromised
            | Record::EnteredAgain { .. }
            | Record::Compacted(_)
            | Record::Recovered(_)
            | Record::AllSpeak { .. }
            | Record::ForceReleased(_) => {}
        }
    }
}

/// Applies the transfers of an operation.
pub(super) fn apply_transfers(ownership: &mut Ownership, op: &Op) {
    let Op::Transfer { to, parts } = op else { return };
    for LockParts { lock, parts } in parts {
        for &(part, version) in parts {
            ownership.apply(PartMove { lock: lock.clone(), part, owner: *to, version });
        }
    }
}

/// The result of recovery: a checkpoint, and the records after it.
pub(super) type Recovery = (Option<Checkpoint>, Vec<(Position, Record)>);

/// The disk of one node.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Newest first: the one that recovery starts from, and the one before it.
    checkpoints: VecDeque<Checkpoint>,
    /// A checkpoint that is being written.
    writing: Option<Checkpoint>,
    /// All records after the older checkpoint; the first has position `first`.
    records: VecDeque<Record>,
    first: u64,
    durable: Position,
    syncing: Option<Position>,
    /// The ownership maps of installed states, by the position of their record.
    taken: BTreeMap<Position, Ownership>,
    /// While the disk is full nothing is written; a write under way still succeeds.
    pub room: DiskSpace,
    pub facts: Facts,
    /// The hashes of the entries that the disk has, also after they were truncated: recorded only in worlds
    /// with damaged disks. Of entries that came within a state nothing is known.
    hashes: BTreeMap<DcId, BTreeMap<u64, u64>>,
}

impl Disk {
    pub fn new() -> Disk {
        Disk {
            checkpoints: VecDeque::new(),
            writing: None,
            records: VecDeque::new(),
            first: 1,
            durable: Position(0),
            syncing: None,
            taken: BTreeMap::new(),
            room: DiskSpace::Enough,
            facts: Facts::new(),
            hashes: BTreeMap::new(),
        }
    }

    /// Returns the durable part as a disk of its own.
    pub fn copy(&self) -> Disk {
        let mut copy = self.clone();
        copy.keep(copy.durable);
        copy
    }

    /// Records the hash of the entry that was just appended.
    pub fn note_hash(&mut self, dc: DcId, seq: u64, hash: u64) {
        self.hashes.entry(dc).or_default().insert(seq, hash);
    }

    /// Returns the hash of an entry that the disk has; `None` if it is not known.
    pub fn hash_of(&self, dc: DcId, seq: u64) -> Option<u64> {
        self.hashes.get(&dc)?.get(&seq).copied()
    }

    /// Returns an entry of which the other disk has a different one under the same number.
    pub fn differs_from(&self, other: &Disk) -> Option<(DcId, u64)> {
        let mut all =
            self.hashes.iter().flat_map(|(dc, row)| row.iter().map(|(seq, hash)| (*dc, *seq, *hash)));
        let differs = |(dc, seq, hash): &(DcId, u64, u64)| {
            other.hash_of(*dc, *seq).is_some_and(|others| others != *hash)
        };
        all.find(differs).map(|(dc, seq, _)| (dc, seq))
    }

    pub fn appended(&self) -> Position {
        Position(self.first + self.records.len() as u64 - 1)
    }

    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Returns the position that recovery would start from.
    pub fn checkpointed(&self) -> Position {
        self.checkpoints.front().map_or(Position(0), |c| c.position)
    }

    /// Appends a record. If the positions have a gap, refuses it and returns the position that was due.
    pub fn append(&mut self, position: Position, record: Record) -> Result<(), Position> {
        let due = Position(self.appended().0 + 1);
        if position != due {
            return Err(due);
        }
        self.records.push_back(record);
        Ok(())
    }

    /// Returns the vector that is applied when everything before `position` is read and a state with vector
    /// `taken` is installed.
    pub fn applied_before(&self, position: Position, taken: &VersionVector) -> VersionVector {
        let mut applied = self.facts.applied.clone();
        applied.merge(taken.clone());
        for position in self.durable.0 + 1..position.0 {
            match &self.records[(position - self.first) as usize] {
                Record::Entry(entry) => {
                    applied.raise(entry.dc, entry.seq);
                }
                Record::StateTaken { vector } => applied.merge(vector.clone()),
                _ => {}
            }
        }
        applied
    }

    /// Records the ownership map after the record at `position`, which installs a state. The entries that the
    /// state consists of are unknown.
    pub fn note_taken(&mut self, position: Position, vector: &VersionVector, ownership: Ownership) {
        self.hashes.iter_mut().for_each(|(dc, row)| row.retain(|seq, _| *seq > vector.get(*dc)));
        self.taken.insert(position, ownership);
    }

    /// Returns true if the disk has an entry only as a part of a state, once everything is durable.
    pub fn is_in_state(&self, dot: Dot) -> bool {
        let mut facts = self.facts.clone();
        let first = (self.durable.0 + 1 - self.first) as usize;
        self.records.range(first..).for_each(|record| facts.apply(record));
        facts
            .in_states
            .iter()
            .any(|(dc, after, until)| *dc == dot.dc && (after + 1..=*until).contains(&dot.seq))
    }

    /// Begins a sync and returns true if there is something to sync, space for it, and none under way.
    pub fn begin_sync(&mut self) -> bool {
        let can = self.syncing.is_none() && self.room != DiskSpace::Full;
        let begins = can && self.appended() > self.durable;
        if begins {
            self.syncing = Some(self.appended());
        }
        begins
    }

    /// Ends a sync. Returns the durable position.
    pub fn end_sync(&mut self) -> Position {
        let until = self.syncing.take().expect("a sync ends once, after it began");
        self.settle(until);
        until
    }

    fn settle(&mut self, until: Position) {
        for position in self.durable.0 + 1..=until.0 {
            self.facts.apply(&self.records[(position - self.first) as usize]);
            if let Some(ownership) = self.taken.remove(&Position(position)) {
                self.facts.ownership = ownership;
            }
        }
        self.durable = until;
    }

    /// Begins the write of a checkpoint; one at a time.
    pub fn begin_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.writing = Some(checkpoint);
    }

    /// Ends the write. The checkpoint is kept if everything that it covers is durable and there is space for
    /// it. Returns true if it was kept.
    pub fn end_checkpoint(&mut self) -> bool {
        let Some(checkpoint) = self.writing.take_if(|c| c.position <= self.durable) else {
            return false;
        };
        if self.room == DiskSpace::Full || checkpoint.position <= self.checkpointed() {
            return false;
        }
        self.checkpoints.push_front(checkpoint);
        if self.checkpoints.len() > 2 {
            self.checkpoints.truncate(2);
        }
        if let [_, older] = self.checkpoints.make_contiguous() {
            let gone = (older.position.0 + 1).saturating_sub(self.first);
            self.records.drain(..gone as usize);
            self.first += gone;
        }
        true
    }

    /// Loses a random part of what was not durable. Returns the number of lost records.
    pub fn crash(&mut self, rng: &mut Rng) -> u64 {
        let appended = self.appended();
        let kept = Position(rng.between(self.durable.0, appended.0));
        self.keep(kept);
        appended.0 - kept.0
    }

    /// Loses the records after that position, and the state in memory.
    fn keep(&mut self, kept: Position) {
        self.records.truncate((kept.0 + 1 - self.first) as usize);
        self.syncing = None;
        self.settle(kept);
        self.taken.clear();
        self.writing = None;
        let applied = &self.facts.applied;
        self.hashes.iter_mut().for_each(|(dc, row)| row.retain(|seq, _| *seq <= applied.get(*dc)));
    }

    /// Returns what a start reads: the newest checkpoint, and the records after it.
    pub fn recover(&self) -> Recovery {
        self.recover_from(self.checkpoints.front())
    }

    /// Returns the same state by the longer way: the previous checkpoint and all records since. `None` if
    /// there is no longer way.
    pub fn recover_longer(&self) -> Option<Recovery> {
        (!self.checkpoints.is_empty()).then(|| self.recover_from(self.checkpoints.get(1)))
    }

    fn recover_from(&self, checkpoint: Option<&Checkpoint>) -> Recovery {
        let after = checkpoint.map_or(0, |c| c.position.0);
        let numbered = (self.first..).map(Position).zip(self.records.iter().cloned());
        (checkpoint.cloned(), numbered.filter(|(position, _)| position.0 > after).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::replica::Past;
    use geolock_api::names::DcSet;

    fn bound(n: u64) -> Record {
        Record::IdReservation { clock: Timestamp::ZERO, n }
    }

    fn disk_with(records: u64) -> Disk {
        let mut disk = Disk::new();
        for n in 1..=records {
            disk.append(Position(n), bound(n)).expect("no gap");
        }
        disk
    }

    fn checkpoint(position: u64) -> Checkpoint {
        Checkpoint {
            position: Position(position),
            members: DcSet::EMPTY,
            joined: false,
            clock: Timestamp::ZERO,
            n: position,
            applied: VersionVector::default(),
            last_stamps: Vec::new(),
            ownership: Ownership::new(0),
            requests: Vec::new(),
            leases: Vec::new(),
            contents: Vec::new(),
            outcomes: Vec::new(),
            log: Vec::new(),
            past: Past::default(),
            forced: Vec::new(),
            hashes: Vec::new(),
            all_speak: 1,
            fork: None,
            lead_ms: 0,
            members_state: None,
            lost_commits: Vec::new(),
            commit_contents: Vec::new(),
        }
    }

    #[test]
    fn a_gap_is_refused() {
        let mut disk = disk_with(2);
        assert_eq!(disk.append(Position(4), bound(4)), Err(Position(3)));
        assert_eq!(disk.append(Position(2), bound(2)), Err(Position(3)));
    }

    #[test]
    fn a_sync_covers_what_was_appended_before_it_began() {
        let mut disk = disk_with(2);
        assert!(disk.begin_sync());
        disk.append(Position(3), bound(3)).expect("no gap");
        assert!(!disk.begin_sync(), "one at a time");
        assert_eq!(disk.end_sync(), Position(2));
        assert_eq!((disk.durable(), disk.appended()), (Position(2), Position(3)));
        assert!(disk.begin_sync());
    }

    #[test]
    fn a_full_disk_keeps_what_is_appended_in_memory() {
        let mut disk = disk_with(1);
        assert!(disk.begin_sync());
        disk.room = DiskSpace::Full;
        disk.append(Position(2), bound(2)).expect("no gap");
        assert_eq!(disk.end_sync(), Position(1), "that was written before");
        assert!(!disk.begin_sync());
        disk.begin_checkpoint(checkpoint(1));
        assert!(!disk.end_checkpoint());
        disk.room = DiskSpace::Low;
        assert!(disk.begin_sync());
        assert_eq!(disk.end_sync(), Position(2));
    }

    #[test]
    fn a_crash_keeps_a_prefix_with_all_that_is_durable() {
        let mut kept = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut disk = disk_with(2);
            disk.begin_sync();
            disk.end_sync();
            (3..=5).for_each(|n| disk.append(Position(n), bound(n)).expect("no gap"));
            disk.crash(&mut Rng::new(seed, 0));
            kept.insert(disk.appended().0);
            assert_eq!(disk.durable(), disk.appended());
        }
        assert_eq!(kept, (2..=5).collect());
    }

    #[test]
    fn recovery_starts_from_the_newest_checkpoint_that_is_durable() {
        let mut disk = disk_with(5);
        disk.begin_sync();
        disk.end_sync();
        disk.append(Position(6), bound(6)).expect("no gap");
        disk.begin_checkpoint(checkpoint(6));
        assert!(!disk.end_checkpoint(), "position 6 is not durable");
        for position in [2, 3, 4] {
            disk.begin_checkpoint(checkpoint(position));
            assert!(disk.end_checkpoint());
        }
        let positions = |(_, records): (_, Vec<(Position, Record)>)| -> Vec<u64> {
            records.into_iter().map(|(position, _)| position.0).collect()
        };
        assert_eq!(positions(disk.recover()), [5, 6]);
        assert_eq!(positions(disk.recover_longer().expect("two checkpoints are kept")), [4, 5, 6]);
    }
}
