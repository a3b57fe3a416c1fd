//! All commits, and a model of what a snapshot has to show of them.
//!
//! The model shares no code with the store. It keeps all operations for ever and evaluates them anew for each
//! reading, in no order but that of the types' conflict rules. So the store must have the same readings,
//! whatever it has folded, compacted, precomputed or read from a checkpoint.
//!
//! A removal takes away every update of its key that had not seen it, also one that arrives later. So an
//! update counts if its transaction had seen all removals that the snapshot shows. An expiry does the same,
//! except to updates that come after another end of the same generation. The generation of a change is the
//! number of ends, one after the other, that it comes after; the change counts if the snapshot shows no
//! higher one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::entry_number::follows;
use crate::base::time::{TimeToLive, Timestamp};
use crate::causal_log::{Action, Change, Commit, Entry, Op};
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::readings::{Item, Rank, evaluate, is_below_bound};
use crate::sim::oracle::{Broken, READER};
use geolock_api::keys::Key;
use geolock_api::names::DcId;
use geolock_api::value::{Reading, Type, Update, VersionedReading};

/// All entries that were made and not lost by a crash, and the changes in them.
#[derive(Debug, Default)]
pub(super) struct Commits {
    logs: BTreeMap<DcId, Vec<Arc<Entry>>>,
    by_key: BTreeMap<Key, Rows>,
}

/// The changes of one key. A key that is removed thousands of times is still evaluated in a few steps: most
/// changes are of generations before the one that a snapshot shows.
#[derive(Debug, Default)]
struct Rows {
    /// By generation, in the order made.
    generations: BTreeMap<u64, Vec<Row>>,
    removals: Ends,
    /// Removals and expiries.
    ends: Ends,
}

/// Ends of a key, by datacenter in the order of its log.
#[derive(Debug, Default)]
struct Ends(BTreeMap<DcId, Vec<End>>);

#[derive(Clone, Copy, Debug)]
struct End {
    seq: u64,
    index: usize,
    generation: u64,
    /// The highest generation of this end and the earlier ones in the log.
    highest: u64,
}

/// One change of one commit.
#[derive(Clone, Debug)]
struct Row {
    entry: Arc<Entry>,
    op: usize,
    index: usize,
    /// The number of ends of the key, one after the other, that it comes after; an end counts itself.
    generation: u64,
}

/// The reasons for which a key may expire.
#[derive(Debug)]
pub(super) struct Mortality {
    /// The commits that gave it a time to live, with that time.
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

    fn is_end(&self) -> bool {
        matches!(self.action(), Action::Remove | Action::Expired)
    }

    fn is_lapse(&self) -> bool {
        *self.action() == Action::Expired
    }

    fn is_shown(&self, snapshot: &VersionVector) -> bool {
        self.entry.seq <= snapshot.get(self.entry.dc)
    }
}

impl Ends {
    fn push(&mut self, row: &Row) {
        let of_dc = self.0.entry(row.entry.dc).or_default();
        let highest = of_dc.last().map_or(row.generation, |end| end.highest.max(row.generation));
        let Row { index, generation, .. } = *row;
        of_dc.push(End { seq: row.entry.seq, index, generation, highest });
    }

    fn cut(&mut self, dc: DcId, seq: u64) {
        if let Some(ends) = self.0.get_mut(&dc) {
            ends.truncate(ends.partition_point(|end| end.seq <= seq));
        }
    }

    /// Returns the last end of each datacenter that a snapshot shows.
    fn last_shown<'a>(&'a self, snapshot: &'a VersionVector) -> impl Iterator<Item = (DcId, End)> + 'a {
        self.0.iter().filter_map(|(&dc, ends)| {
            let shown = ends.partition_point(|end| end.seq <= snapshot.get(dc));
            Some((dc, *ends[..shown].last()?))
        })
    }

    /// Returns the ends in the same commit as a row, and those of its datacenter before that commit.
    fn around(&self, row: &Row) -> (&[End], &[End]) {
        let ends = self.0.get(&row.entry.dc).map_or(&[][..], Vec::as_slice);
        let before = ends.partition_point(|end| end.seq < row.entry.seq);
        let with = ends.partition_point(|end| end.seq <= row.entry.seq);
        (&ends[before..with], &ends[..before])
    }
}

impl Rows {
    /// Returns the number of ends, one after the other, that a change comes after.
    fn ends_before(&self, row: &Row) -> u64 {
        let (same_commit, _) = self.ends.around(row);
        let earlier = same_commit.iter().filter(|end| end.index < row.index);
        // A commit has seen entries of its own log only from before it.
        let seen = self.ends.last_shown(&row.commit().seen).map(|(_, end)| end.highest);
        earlier.map(|end| end.generation).chain(seen).max().unwrap_or(0)
    }

    fn push(&mut self, row: Row) {
        if row.is_end() {
            self.ends.push(&row);
        }
        if *row.action() == Action::Remove {
            self.removals.push(&row);
        }
        self.generations.entry(row.generation).or_default().push(row);
    }

    fn cut(&mut self, dc: DcId, seq: u64) {
        self.ends.cut(dc, seq);
        self.removals.cut(dc, seq);
        let is_kept = |row: &Row| row.entry.dc != dc || row.entry.seq <= seq;
        self.generations.values_mut().for_each(|rows| rows.retain(is_kept));
    }

    /// Returns true if a change has seen all removals that a snapshot shows with it; `last` has the last ones
    /// of each datacenter.
    fn has_seen_removals(&self, row: &Row, last: &[(DcId, End)]) -> bool {
        if last.is_empty() {
            return true;
        }
        let seen = &row.commit().seen;
        let (same_commit, earlier) = self.removals.around(row);
        if same_commit.is_empty() {
            return last.iter().all(|(dc, last)| seen.get(*dc) >= last.seq);
        }
        let is_seen_or_with_it = |(dc, last): &(DcId, End)| match *dc == row.entry.dc {
            true => last.seq == row.entry.seq,
            false => seen.get(*dc) >= last.seq,
        };
        last.iter().all(is_seen_or_with_it)
            && earlier.last().is_none_or(|end| seen.get(row.entry.dc) >= end.seq)
            && same_commit.iter().all(|end| end.index < row.index)
    }

    /// Returns the changes that a snapshot shows and that belong to the present key.
    fn counting<'a>(&'a self, snapshot: &VersionVector) -> impl DoubleEndedIterator<Item = &'a Row> {
        let newest = self.ends.last_shown(snapshot).map(|(_, end)| end.highest).max().unwrap_or(0);
        let last: Vec<(DcId, End)> = self.removals.last_shown(snapshot).collect();
        let rows = self.generations.get(&newest).map_or(&[][..], Vec::as_slice).iter();
        rows.filter(move |row| row.is_shown(snapshot) && self.has_seen_removals(row, &last))
    }
}

impl Commits {
    /// Adds the next entry of a datacenter.
    pub fn add(&mut self, entry: &Arc<Entry>) {
        assert!(self.is_next(entry), "{} makes its entries one after the other", entry.dc);
        self.logs.entry(entry.dc).or_default().push(entry.clone());
        for (op, commit) in entry.ops.iter().enumerate().filter_map(|(i, op)| Some((i, op.as_commit()?))) {
            for (index, change) in commit.changes.iter().enumerate() {
                let rows = self.by_key.entry(change.key.clone()).or_default();
                let mut row = Row { entry: entry.clone(), op, index, generation: 0 };
                row.generation = rows.ends_before(&row) + u64::from(row.is_end());
                rows.push(row);
            }
        }
    }

    /// Returns the number of the last entry of a log; 0 for an empty one.
    pub fn last_of(&self, dc: DcId) -> u64 {
        self.logs.get(&dc).and_then(|log| log.last()).map_or(0, |last| last.seq)
    }

    /// Returns true if an entry may be the next one of its log.
    pub fn is_next(&self, entry: &Entry) -> bool {
        follows(entry.seq, self.last_of(entry.dc))
    }

    /// Returns the entries of a log after `after` up to `upto`.
    pub fn between(&self, dc: DcId, after: u64, upto: u64) -> &[Arc<Entry>] {
        let log = self.logs.get(&dc).map_or(&[][..], Vec::as_slice);
        let place = |seq| log.partition_point(|entry| entry.seq <= seq);
        &log[place(after.min(upto))..place(upto)]
    }

    /// Removes and returns the entries of `dc` after `seq`, which a crash lost.
    pub fn cut(&mut self, dc: DcId, seq: u64) -> Vec<Arc<Entry>> {
        let lost = self.logs.get_mut(&dc).map_or_else(Vec::new, |log| {
            let kept = log.partition_point(|entry| entry.seq <= seq);
            log.split_off(kept)
        });
        self.by_key.values_mut().for_each(|rows| rows.cut(dc, seq));
        lost
    }

    pub fn get(&self, dot: Dot) -> Option<&Arc<Entry>> {
        let log = self.logs.get(&dot.dc)?;
        log.binary_search_by_key(&dot.seq, |entry| entry.seq).ok().map(|place| &log[place])
    }

    /// Returns all entries of a vector, in no causal order.
    pub fn entries(&self, vector: &VersionVector) -> impl Iterator<Item = &Arc<Entry>> {
        vector.iter().flat_map(|(dc, seq)| self.between(dc, 0, seq))
    }

    /// Returns the commit of an entry.
    pub fn commit(&self, dot: Dot) -> Option<&Commit> {
        self.get(dot)?.ops.iter().find_map(Op::as_commit)
    }

    /// Returns the changes of an entry's commit, if it has one.
    pub fn changes(&self, dot: Dot) -> &[Change] {
        self.commit(dot).map_or(&[][..], |commit| commit.changes.as_slice())
    }

    /// Checks that a snapshot covers the dependencies of all its entries.
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

    /// Returns the keys that were ever changed.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }

    /// Returns true if the snapshot shows that the key ended at some time.
    pub fn was_removed(&self, key: &Key, snapshot: &VersionVector) -> bool {
        self.by_key.get(key).is_some_and(|rows| rows.ends.last_shown(snapshot).next().is_some())
    }

    /// Returns the reading in datacenter `me` at a snapshot, with the reader's own changes on top.
    pub fn reading(&self, key: &Key, snapshot: &VersionVector, own: &[Change], me: DcId) -> Option<Reading> {
        evaluate(&self.items(key, snapshot, own, me), me)
    }

    /// Returns true if the snapshot shows a bounded counter below its bound.
    pub fn is_below_bound(&self, key: &Key, snapshot: &VersionVector) -> bool {
        // A key is written as one type.
        let is_bounded =
            |row: &Row| update_of(row.action()).map(|update| update.root_type() == Type::BoundedCounter);
        self.counting(key, snapshot).find_map(is_bounded) == Some(true)
            && is_below_bound(&self.items(key, snapshot, &[], READER))
    }

    /// Returns the reasons for which a key may expire that a snapshot shows.
    pub fn mortality(&self, key: &Key, snapshot: &VersionVector) -> Mortality {
        let rows = self.counting(key, snapshot);
        let expiry = |row: &Row| match row.action() {
            Action::Expire(ttl) => Some((row.dot(), *ttl)),
            _ => None,
        };
        let reading = self.reading(key, snapshot, &[], READER);
        let is_done = matches!(reading, Some(Reading::Versioned(Some(VersionedReading { done: true, .. }))));
        Mortality { expiries: rows.filter_map(expiry).collect(), is_done }
    }

    fn counting<'a>(
        &'a self,
        key: &Key,
        snapshot: &VersionVector,
    ) -> impl DoubleEndedIterator<Item = &'a Row> {
        self.by_key.get(key).into_iter().flat_map(|rows| rows.counting(snapshot))
    }

    /// Returns a change of this commit that has no effect, as its maker knew when it made it.
    pub fn without_effect(&self, dot: Dot) -> Option<&Change> {
        let (entry, commit) = (self.get(dot)?, self.commit(dot)?);
        let mut known = entry.deps.clone();
        known.raise(dot.dc, dot.seq);
        let is_lost = |(index, change): &(usize, &Change)| {
            let is_end = |change: &Change| matches!(change.action, Action::Remove | Action::Expired);
            let ends_itself = |other: &Change| other.key == change.key && is_end(other);
            let counts = |row: &Row| row.dot() == dot && row.index == *index;
            !is_end(change)
                && !commit.changes[index + 1..].iter().any(ends_itself)
                // The change is among the latest.
                && !self.counting(&change.key, &known).rev().any(counts)
        };
        commit.changes.iter().enumerate().find(is_lost).map(|(_, change)| change)
    }

    /// Returns the number of expiries.
    pub fn lapses(&self) -> u64 {
        let rows = self.by_key.values().flat_map(|rows| rows.generations.values()).flatten();
        rows.filter(|row| row.is_lapse()).count() as u64
    }

    /// Returns the updates of a key that count.
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
            let rows = self.counting(key, snapshot);
            items.extend(rows.filter_map(|row| {
                let (rank, seen) = (row.rank(), Some((row.dot(), &row.commit().seen)));
                Some(Item::new(row.entry.dc, rank, seen, update_of(row.action())?))
            }));
        }
        items.extend(own.into_iter().enumerate().filter_map(|(index, action)| {
            let rank = (Timestamp::MAX, 0, index);
            Some(Item::new(me, rank, None, update_of(action)?))
        }));
        items
    }
}

/// Returns true for a change of a thousand elements or more, or of 64 KiB or more.
pub(super) fn is_large(change: &Change) -> bool {
    let update = update_of(&change.action);
    update.is_some_and(|update| update.op.elements() >= 1_000 || update.weight() >= 64 << 10)
}

fn update_of(action: &Action) -> Option<&Update> {
    match action {
        Action::Update(update) => Some(update),
        Action::Remove | Action::Expire(_) | Action::Expired => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use geolock_api::names::ClusterId;

    /// The changes that count by the rules of this module, evaluated change by change.
    fn counting_by_the_rules<'a>(rows: &[&'a Row], snapshot: &VersionVector) -> Vec<&'a Row> {
        let has_seen = |row: &Row, other: &Row| match other.dot() == row.dot() {
            true => other.index < row.index,
            false => row.commit().seen.get(other.entry.dc) >= other.entry.seq,
        };
        fn generation(row: &Row, rows: &[&Row], has_seen: &impl Fn(&Row, &Row) -> bool) -> u64 {
            let ends = rows.iter().filter(|other| other.is_end() && has_seen(row, other));
            let before = ends.map(|end| end.generation).max().unwrap_or(0);
            before + u64::from(row.is_end())
        }
        let shown: Vec<&Row> = rows.iter().filter(|row| row.is_shown(snapshot)).copied().collect();
        shown.iter().for_each(|row| assert_eq!(row.generation, generation(row, rows, &has_seen)));
        let newest = shown.iter().filter(|row| row.is_end()).map(|row| row.generation).max().unwrap_or(0);
        let removals = || shown.iter().filter(|row| *row.action() == Action::Remove);
        let counts =
            |row: &&Row| row.generation == newest && removals().all(|removal| has_seen(row, removal));
        shown.iter().copied().filter(counts).collect()
    }

    #[test]
    fn the_short_way_to_what_counts_is_right() {
        let dcs: Vec<DcId> = (0..3).filter_map(DcId::new).collect();
        let key = Key::new(b"b", b"k").expect("a short name");
        for seed in 0..200 {
            let mut rng = Rng::new(seed, 0);
            let mut commits = Commits::default();
            let mut applied = VersionVector::default();
            for stamp in 0..40 {
                let dc = *rng.pick(&dcs);
                let below = |rng: &mut Rng, applied: &VersionVector| {
                    dcs.iter().map(|&dc| (dc, rng.between(0, applied.get(dc)))).collect::<VersionVector>()
                };
                let seen = below(&mut rng, &applied);
                let action = |rng: &mut Rng| match rng.below(4) {
                    0 => Action::Remove,
                    1 => Action::Expired,
                    _ => Action::Update(Update { path: Vec::new(), op: geolock_api::value::Op::Counter(1) }),
                };
                let changes =
                    (0..rng.between(1, 3)).map(|_| Change { key: key.clone(), action: action(&mut rng) });
                let commit = Commit { seen, client: None, changes: changes.collect() };
                let seq = applied.get(dc) + 1;
                applied.raise(dc, seq);
                let entry = Entry {
                    cluster: ClusterId::from_raw(1),
                    epoch: 0,
                    dc,
                    seq,
                    at: Timestamp::from_millis(stamp),
                    deps: applied.clone(),
                    ops: vec![Op::Commit(commit)],
                    prev: 0,
                    lead_ms: 0,
                };
                commits.add(&Arc::new(entry));
                let snapshot = below(&mut rng, &applied);
                let mut rows: Vec<&Row> = commits.by_key[&key].generations.values().flatten().collect();
                rows.sort_by_key(|row| (row.entry.at, row.index));
                let mut counting: Vec<&Row> = commits.counting(&key, &snapshot).collect();
                counting.sort_by_key(|row| (row.entry.at, row.index));
                let places = |rows: &[&Row]| -> Vec<(Dot, usize)> {
                    rows.iter().map(|row| (row.dot(), row.index)).collect()
                };
                let should = counting_by_the_rules(&rows, &snapshot);
                assert_eq!(places(&counting), places(&should), "seed {seed}, {snapshot}");
            }
        }
    }
}
