//! Every commit there is, and what a snapshot has to show of them.
//!
//! The model shares nothing with the store: it keeps all operations for ever and looks at them anew for each reading,
//! in no order but that of the types' conflict rules. So whatever the store folds, settles, keeps ahead or reads from
//! a checkpoint has to come out the same.
//!
//! A removal takes away every update of its key that had not seen it, also one that comes later. So an update counts
//! if its transaction had seen all removals that the snapshot shows. A lapse does so, too, but for updates that come
//! after another end of the same: how many ends, one after the other, a change comes after is its generation, and it
//! counts if the snapshot shows no higher one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::causal_log::{Action, Change, Commit, Entry, Op};
use crate::crdt::VersionVector;
use crate::crdt::value::{Dot, Reading, Update, VersionedReading};
use crate::keys::Key;
use crate::names::DcId;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::readings::{Item, Rank, evaluate, is_below_bound};
use crate::sim::oracle::{Broken, READER};
use crate::time::{TimeToLive, Timestamp};

/// All entries that were made and not lost by a crash, and the changes in them.
#[derive(Debug, Default)]
pub(super) struct Commits {
    logs: BTreeMap<DcId, Vec<Arc<Entry>>>,
    by_key: BTreeMap<Key, Vec<Row>>,
}

/// One change of one commit.
#[derive(Clone, Debug)]
struct Row {
    entry: Arc<Entry>,
    op: usize,
    index: usize,
    /// How many ends of the key, one after the other, it comes after; an end counts itself.
    generation: u64,
}

/// Why a key may lapse.
#[derive(Debug)]
pub(super) struct Mortality {
    /// The commits that asked for its end, and after how long.
    pub expiries: Vec<(Dot, TimeToLive)>,
    pub is_done: bool,
}

impl Row {
    fn commit(&self) -> &Commit {
        self.entry.ops[self.op].as_commit().expect("rows are changes of commits")
    }

    fn action(&self) -> &Action {
        &self.commit().changes[self.index].action
    }

    fn dot(&self) -> Dot {
        Dot { dc: self.entry.dc, seq: self.entry.seq }
    }

    fn rank(&self) -> Rank {
        (self.entry.at, self.entry.dc.get(), self.index)
    }

    fn is_removal(&self) -> bool {
        *self.action() == Action::Remove
    }

    fn is_end(&self) -> bool {
        matches!(self.action(), Action::Remove | Action::Lapse)
    }

    fn has_seen(&self, other: &Row) -> bool {
        if other.dot() == self.dot() {
            return other.index < self.index;
        }
        self.commit().seen.get(other.entry.dc) >= other.entry.seq
    }
}

impl Commits {
    /// A datacenter made its next entry.
    pub fn add(&mut self, entry: &Arc<Entry>) {
        let log = self.logs.entry(entry.dc).or_default();
        assert_eq!(log.len() as u64 + 1, entry.seq, "{} makes its entries one after the other", entry.dc);
        log.push(entry.clone());
        for (op, commit) in entry.ops.iter().enumerate().filter_map(|(i, op)| Some((i, op.as_commit()?))) {
            for (index, change) in commit.changes.iter().enumerate() {
                let rows = self.by_key.entry(change.key.clone()).or_default();
                let mut row = Row { entry: entry.clone(), op, index, generation: 0 };
                let ends = rows.iter().filter(|other| other.is_end() && row.has_seen(other));
                let before = ends.map(|end| end.generation).max().unwrap_or(0);
                row.generation = before + u64::from(row.is_end());
                rows.push(row);
            }
        }
    }

    /// A crash of `dc` lost its entries after `seq`.
    pub fn cut(&mut self, dc: DcId, seq: u64) {
        if let Some(log) = self.logs.get_mut(&dc) {
            log.truncate(seq as usize);
        }
        self.by_key
            .values_mut()
            .for_each(|rows| rows.retain(|row| row.entry.dc != dc || row.entry.seq <= seq));
    }

    pub fn get(&self, dot: Dot) -> Option<&Arc<Entry>> {
        self.logs.get(&dot.dc)?.get(usize::try_from(dot.seq).ok()?.checked_sub(1)?)
    }

    /// All entries of a vector, in no causal order.
    pub fn entries(&self, vector: &VersionVector) -> impl Iterator<Item = &Arc<Entry>> {
        let logs = vector.iter().filter_map(|(dc, seq)| Some((self.logs.get(&dc)?, seq)));
        logs.flat_map(|(log, seq)| log.iter().take(seq as usize))
    }

    /// The commit of an entry.
    pub fn commit(&self, dot: Dot) -> Option<&Commit> {
        self.get(dot)?.ops.iter().find_map(Op::as_commit)
    }

    /// Whatever a snapshot shows, it shows all that it depends on.
    pub fn check_closed(&self, snapshot: &VersionVector) -> Result<(), Broken> {
        for (dc, seq) in snapshot.iter() {
            let what = match self.get(Dot { dc, seq }) {
                None => format!("the snapshot {snapshot} has entry {dc}:{seq}, which never was"),
                Some(entry) if !snapshot.covers(&entry.deps) => {
                    format!("the snapshot {snapshot} has entry {dc}:{seq}, which depends on {}", entry.deps)
                }
                Some(_) => continue,
            };
            return Err(Broken::new(FailureKind::SnapshotNotClosed, what));
        }
        Ok(())
    }

    /// The keys that anybody ever changed.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }

    /// Whether the snapshot shows that the key ended at some time.
    pub fn was_removed(&self, key: &Key, snapshot: &VersionVector) -> bool {
        self.shown(key, snapshot).any(Row::is_end)
    }

    fn shown(&self, key: &Key, snapshot: &VersionVector) -> impl Iterator<Item = &Row> {
        let rows = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        rows.iter().filter(|row| row.entry.seq <= snapshot.get(row.entry.dc))
    }

    /// What a reader of datacenter `me` sees at a snapshot who has made changes of his own on top.
    pub fn reading(&self, key: &Key, snapshot: &VersionVector, own: &[Change], me: DcId) -> Option<Reading> {
        evaluate(&self.items(key, snapshot, own, me), me)
    }

    /// Whether the snapshot shows a bounded counter below its bound.
    pub fn is_below_bound(&self, key: &Key, snapshot: &VersionVector) -> bool {
        is_below_bound(&self.items(key, snapshot, &[], READER))
    }

    /// Why a key may lapse that a snapshot shows.
    pub fn mortality(&self, key: &Key, snapshot: &VersionVector) -> Mortality {
        let rows = self.counting(key, snapshot).into_iter();
        let expiry = |row: &Row| match row.action() {
            Action::Expire(ttl) => Some((row.dot(), *ttl)),
            _ => None,
        };
        let reading = self.reading(key, snapshot, &[], READER);
        let is_done = matches!(reading, Some(Reading::Versioned(Some(VersionedReading { done: true, .. }))));
        Mortality { expiries: rows.filter_map(expiry).collect(), is_done }
    }

    /// The changes of a key that a snapshot shows and that are of what is there now.
    fn counting(&self, key: &Key, snapshot: &VersionVector) -> Vec<&Row> {
        let shown: Vec<&Row> = self.shown(key, snapshot).collect();
        let newest = shown.iter().filter(|row| row.is_end()).map(|row| row.generation).max().unwrap_or(0);
        let removals: Vec<&Row> = shown.iter().filter(|row| row.is_removal()).copied().collect();
        let last: VersionVector = removals.iter().map(|row| (row.entry.dc, row.entry.seq)).collect();
        let has_seen_all = |row: &Row| {
            row.commit().seen.covers(&last)
                // One of them may stand in the same commit.
                || (row.entry.seq == last.get(row.entry.dc) && removals.iter().all(|r| row.has_seen(r)))
        };
        shown.into_iter().filter(|row| row.generation == newest && has_seen_all(row)).collect()
    }

    /// A change of this commit that has no effect, as known to its maker when it made it.
    pub fn without_effect(&self, dot: Dot) -> Option<&Change> {
        let (entry, commit) = (self.get(dot)?, self.commit(dot)?);
        let mut known = entry.deps.clone();
        known.raise(dot.dc, dot.seq);
        let is_lost = |(index, change): &(usize, &Change)| {
            let is_end = |change: &Change| matches!(change.action, Action::Remove | Action::Lapse);
            let ends_itself = |other: &Change| other.key == change.key && is_end(other);
            let counts = |row: &&Row| row.dot() == dot && row.index == *index;
            !is_end(change)
                && !commit.changes[index + 1..].iter().any(ends_itself)
                && !self.counting(&change.key, &known).iter().any(counts)
        };
        commit.changes.iter().enumerate().find(is_lost).map(|(_, change)| change)
    }

    /// How often keys lapsed.
    pub fn lapses(&self) -> u64 {
        self.by_key.values().flatten().filter(|row| *row.action() == Action::Lapse).count() as u64
    }

    /// The updates of a key that count.
    fn items<'a>(
        &'a self,
        key: &Key,
        snapshot: &VersionVector,
        own: &'a [Change],
        me: DcId,
    ) -> Vec<Item<'a>> {
        let mut own: Vec<&Action> = own.iter().filter(|c| c.key == *key).map(|c| &c.action).collect();
        let removed = own.iter().rposition(|action| **action == Action::Remove);
        own.drain(..removed.map_or(0, |index| index + 1));
        let mut items = Vec::new();
        if removed.is_none() {
            let rows = self.counting(key, snapshot).into_iter();
            items.extend(rows.filter_map(|row| {
                let (rank, seen) = (row.rank(), Some((row.dot(), &row.commit().seen)));
                Some(Item { dc: row.entry.dc, rank, seen, op: &update_of(row.action())?.op })
            }));
        }
        items.extend(own.into_iter().enumerate().filter_map(|(index, action)| {
            let rank = (Timestamp::MAX, 0, index);
            Some(Item { dc: me, rank, seen: None, op: &update_of(action)?.op })
        }));
        items
    }
}

fn update_of(action: &Action) -> Option<&Update> {
    match action {
        Action::Update(update) => Some(update),
        Action::Remove | Action::Expire(_) | Action::Lapse => None,
    }
}
