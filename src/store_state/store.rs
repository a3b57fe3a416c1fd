//! All keys of a datacenter.

mod changes;
mod compact;
mod listing;

pub(crate) use listing::Listing;

use crate::base::bugs::{Bug, Bugs};
use std::borrow::Cow;
use std::sync::Arc;

use crate::base::some_names::SomeNames;
use crate::base::tables::{Fifo, Keyed, KeyedRows, RowIndex as _, row_index};
use crate::base::time::Timestamp;
use crate::base::work;
use crate::causal_log::{Action, Entry, Op};
use crate::crdt::VersionVector;
use crate::crdt::value::{self, At, Dot, SharedValue, Shown};
use crate::store_state::content::Content;
use crate::store_state::digest::{self, Digest, Digests};
use crate::store_state::expiring::Touched;
use crate::store_state::record::{Effect, Record, Side};
use crate::store_state::snapshots::Snapshots;
use crate::store_state::tombstones::Fate;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, MAX_ENTRY, Position};
use geolock_api::value::OpError;

/// Index of a key's record. It is reused after the record was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordIndex(u32);

row_index!(RecordIndex);

impl Keyed for Record {
    type Key = Key;

    fn key(&self) -> &Key {
        &self.key
    }
}

/// All keys of a datacenter, with the open snapshots.
pub(crate) struct Store {
    me: DcId,
    pub(super) records: KeyedRows<Record, RecordIndex>,
    snapshots: Snapshots,
    durable: Position,
    /// One for each effect that is not folded yet, in the order of application.
    pub(super) unfolded: Fifo<(Position, RecordIndex)>,
    /// Folded changes that left tombstones, in the order of application; those that were deferred
    /// are at the end.
    pub(super) uncompacted: Fifo<(Dot, RecordIndex)>,
    /// The stable vector: every further commit has seen it.
    stable: VersionVector,
    /// Number of changes of `stable`.
    stables: u64,
    /// Number of elements of `uncompacted` that are to be examined. Each is examined once when there is a
    /// reason, so those that have to wait cost nothing in between.
    to_compact: usize,
    /// Some of them wait for effects to be folded.
    some_waited: bool,
    /// Set from a restore until the restored keys are compacted: the vector that the checkpoint had applied,
    /// and the next row to compact.
    restored: Option<(VersionVector, usize)>,
    pub(super) digests: Digests,
    bugs: Bugs,
    /// Number of values that were compacted.
    #[cfg(test)]
    pub compacted: usize,
}

/// A change that cannot be made here and now. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {error}")]
pub struct ChangeError {
    /// The key.
    pub key: Key,
    /// The reason.
    pub error: OpError,
}

/// Sizes of the store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct StoreCounts {
    pub keys: u64,
    /// Approximate number of bytes of the values, as readers see them.
    pub value_bytes: u64,
    /// Effects that are not folded, because some open snapshot does not show them yet.
    pub effects: u64,
    pub snapshots: u64,
    /// Changes that left tombstones and are not compacted yet.
    pub uncompacted: u64,
}

/// Sequence number of the commit that an uncommitted change is applied with, on a copy for its own
/// transaction: above all others.
const UNCOMMITTED: u64 = MAX_ENTRY + 1;

impl Store {
    pub fn new(me: DcId, hash_seed: u64) -> Store {
        Store {
            me,
            records: KeyedRows::with_seed(hash_seed),
            snapshots: Snapshots::default(),
            durable: Position::default(),
            unfolded: Fifo::default(),
            uncompacted: Fifo::default(),
            stable: VersionVector::default(),
            stables: 1,
            to_compact: 0,
            some_waited: false,
            restored: None,
            digests: Digests::default(),
            bugs: Bugs::default(),
            #[cfg(test)]
            compacted: 0,
        }
    }

    /// The same with a deliberate bug, in tests.
    pub fn with_bugs(mut self, bugs: Bugs) -> Store {
        self.bugs = bugs;
        self
    }

    pub fn counts(&self) -> StoreCounts {
        StoreCounts {
            keys: self.records.len() as u64,
            value_bytes: self.digests.bytes(),
            effects: self.unfolded.len() as u64,
            snapshots: self.snapshots.len() as u64,
            uncompacted: self.uncompacted.len() as u64,
        }
    }

    /// Applies the commit that is operation `op` of an entry recorded at `position`. Calls `tell` for each
    /// effect that the commit has on the lifetime of a key.
    pub fn apply(
        &mut self,
        entry: &Arc<Entry>,
        op: usize,
        position: Position,
        mut tell: impl FnMut(&Key, Touched),
    ) {
        let Op::Commit(commit) = &entry.ops[op] else { unreachable!("only commits change the store") };
        debug_assert!(
            self.unfolded.back().is_none_or(|(last, _)| *last <= position),
            "commits are applied in the order of the journal"
        );
        for (index, change) in commit.changes.iter().enumerate() {
            let row = self.row(&change.key);
            let fate = self.records[row].push(Effect::new(position, entry, op, index));
            self.unfolded.push_back((position, row));
            match (&change.action, fate) {
                (_, Fate::Ends) => tell(&change.key, Touched::Ended),
                (Action::Expire(ttl), Fate::In) => tell(&change.key, Touched::Lives(*ttl)),
                (Action::Update(update), _) if value::may_be_the_last(update) => {
                    tell(&change.key, Touched::MayBeDone)
                }
                _ => {}
            }
        }
    }

    fn row(&mut self, key: &Key) -> RecordIndex {
        let found = self.records.find(key);
        found.unwrap_or_else(|| self.records.insert(Record::new(key.clone(), Content::default())))
    }

    /// Records that the journal is durable up to here; new snapshots show it.
    pub fn note_durable(&mut self, position: Position) {
        debug_assert!(position >= self.durable, "what is durable stays durable");
        self.durable = position;
    }

    /// Opens the snapshot of everything that is durable, `vector`; the caller closes it once.
    pub fn open_snapshot(&mut self, vector: &Arc<VersionVector>) -> Position {
        self.snapshots.open(self.durable, vector);
        self.durable
    }

    /// Opens the snapshot of everything that is applied, also if it is not durable yet; the caller closes it
    /// once.
    pub fn open_snapshot_at(&mut self, newest: Position, vector: &Arc<VersionVector>) {
        self.snapshots.open(newest, vector);
    }

    pub fn close_snapshot(&mut self, at: Position) {
        self.snapshots.close(at);
    }

    /// Returns the vector of the oldest open snapshot, if it is below the durable vector.
    pub fn oldest_vector(&self) -> Option<&Arc<VersionVector>> {
        self.snapshots.oldest().filter(|(at, _)| *at < self.durable).map(|(_, vector)| vector)
    }

    fn floor(&self) -> Position {
        self.snapshots.oldest().map_or(self.durable, |(oldest, _)| oldest.min(self.durable))
    }

    /// Reads a key at an open snapshot, with the changes of the reader's own transaction on top.
    pub fn read<'a>(
        &mut self,
        key: &Key,
        at: Position,
        seen: &VersionVector,
        own: impl Iterator<Item = &'a Action>,
    ) -> Option<SharedValue> {
        let me = self.me;
        let mut content = match self.records.find(key) {
            Some(row) => self.records[row].read(at),
            None => Cow::Owned(Content::default()),
        };
        for (index, action) in own.enumerate() {
            content.to_mut().apply(action, &uncommitted(me, index, seen));
        }
        SharedValue::new(content.slots(), me)
    }

    /// Returns each datacenter's rights to a bounded counter, as known here; nothing if the value has another
    /// type.
    pub fn rights(&self, key: &Key) -> Vec<(DcId, u64)> {
        let row = self.records.find(key);
        row.map_or_else(Vec::new, |row| self.records[row].newest().slots.rights())
    }

    /// Examines `most` keys, from place `from` on. Returns the bounded counters among them to which this
    /// datacenter has rights, each with these, and the next place, unless all keys were examined.
    pub fn rights_here(&self, from: usize, most: usize) -> (Vec<(Key, u64)>, Option<usize>) {
        let end = from.saturating_add(most).min(self.records.end());
        let of = |record: &Record| {
            let rights = record.newest().slots.rights().into_iter().find(|(dc, _)| *dc == self.me);
            rights.map(|(_, rights)| (record.key.clone(), rights))
        };
        let found = (from..end)
            .filter_map(|row| self.records.get(RecordIndex::from_row(row)))
            .filter_map(of)
            .collect();
        work::count(end - from);
        (found, (end < self.records.end()).then_some(end))
    }

    /// Returns the bounded counters to which these have rights, with their sum, as many as there is room for,
    /// among the first `most` keys; and true if there may be more.
    pub fn rights_of(&self, owners: DcSet, most: usize) -> (Vec<(Key, u64)>, bool) {
        let end = most.min(self.records.end());
        let mut found = SomeNames::default();
        let mut is_full = false;
        for record in (0..end).filter_map(|row| self.records.get(RecordIndex::from_row(row))) {
            let all = record.newest().slots.rights().into_iter();
            let rights = all.filter(|(dc, _)| owners.contains(*dc));
            let rights = rights.fold(0_u64, |sum, (_, rights)| sum.saturating_add(rights));
            let bytes = record.key.bucket().len() + record.key.name().len();
            if rights > 0 && !found.take((record.key.clone(), rights), bytes) {
                is_full = true;
                break;
            }
        }
        work::count(end);
        (found.into_taken(), is_full || end < self.records.end())
    }

    /// Returns the content with everything applied so far.
    fn newest(&mut self, key: &Key) -> Content {
        match self.records.find(key) {
            Some(row) => self.records[row].read(Position(u64::MAX)).into_owned(),
            None => Content::default(),
        }
    }

    /// Folds effects that every open snapshot shows into their contents, until they name or show `most`
    /// elements or more; an effect without elements counts as one. Returns true if there are more.
    #[inline]
    pub fn fold(&mut self, most: usize) -> bool {
        !self.unfolded.is_empty() && self.fold_some(most)
    }

    fn fold_some(&mut self, most: usize) -> bool {
        let floor = self.floor();
        let is_shown = |(position, _): &mut (Position, RecordIndex)| *position <= floor;
        let mut folded = 0;
        while folded < most
            && let Some((_, row)) = self.unfolded.pop_front_if(is_shown)
        {
            folded += self.fold_one(row, floor).max(1);
        }
        debug_assert!(folded == 0 || floor <= self.durable, "only durable effects are folded");
        if folded > 0 && std::mem::take(&mut self.some_waited) {
            self.to_compact = self.uncompacted.len();
        }
        self.unfolded.front().is_some_and(|(position, _)| *position <= floor)
    }

    /// Folds the next effect of a key. Returns the number of elements that it names, or that were shown
    /// before and after it: a reset names none.
    fn fold_one(&mut self, row: RecordIndex, floor: Position) -> usize {
        let record = &mut self.records[row];
        let (key, digests, mut marked) = (record.key.clone(), &mut self.digests, None);
        let (mut elements, mut atoms) = (0, 0);
        let walks = self.bugs.has(Bug::LargeValueWalked);
        let folded = record.fold_next(floor, |content, effect, side| {
            let sum = match effect.action() {
                Action::Update(_) if walks => digest::of(&key, content),
                Action::Update(update) => {
                    elements = update.op.elements();
                    digest::near(&key, content, update)
                }
                Action::Remove | Action::Expired => digest::of(&key, content),
                // Readers see no difference.
                Action::Expire(_) => Shown::default(),
            };
            atoms += sum.atoms as usize;
            match side {
                Side::Before => digests.subtract(&key, sum),
                Side::After => digests.add(&key, sum),
            }
            if leaves_tombstones(effect.action()) {
                marked = Some(effect.at().dot);
            }
        });
        assert!(folded, "every unfolded effect of {key} is there once");
        if let Some(dot) = marked {
            record.uncompacted += 1;
            self.uncompacted.push_back((dot, row));
            if dot.is_in(&self.stable) {
                self.to_compact = self.uncompacted.len();
            }
            #[cfg(test)]
            if self.bugs.has(Bug::TombstoneDroppedTooEarly) {
                record.forget_end(dot);
            }
        }
        self.forget_if_over(row);
        if walks { elements } else { elements.max(atoms) }
    }

    fn forget_if_over(&mut self, row: RecordIndex) {
        if self.records[row].is_over() {
            self.records.remove(row);
        }
    }

    /// Returns the digests of all buckets at the floor, if that is all that is durable: no snapshot is open
    /// and all effects are folded. Walks all buckets, so it is called only when the sums differ.
    pub fn digest(&self) -> Option<Digest> {
        self.shows_durable().then(|| {
            work::count(self.digests.len());
            self.digests.all()
        })
    }

    /// Returns the sum of [`Store::digest`], which is kept up to date.
    pub fn digest_sum(&self) -> Option<u128> {
        self.shows_durable().then(|| self.digests.total())
    }

    /// Returns the sum over what readers see at the floor, if everything up to there is folded: the position
    /// of the floor; its vector, `None` for all that is durable; the sum.
    pub fn digest_sum_at_floor(&self) -> Option<(Position, Option<&Arc<VersionVector>>, u128)> {
        let (floor, vector) = match self.snapshots.oldest() {
            Some((oldest, vector)) if oldest < self.durable => (oldest, Some(vector)),
            _ => (self.durable, None),
        };
        let is_folded = self.unfolded.front().is_none_or(|(position, _)| *position > floor);
        is_folded.then(|| (floor, vector, self.digests.total()))
    }

    /// Returns true if the digests are those of all that is durable.
    fn shows_durable(&self) -> bool {
        self.unfolded.front().is_none_or(|(position, _)| *position > self.durable)
    }

    /// Returns the contents of keys at an open snapshot, from at most `most` rows beginning at `row`, and the
    /// next row, `None` at the end.
    pub fn export(&mut self, at: Position, row: usize, most: usize) -> (Vec<(Key, Content)>, Option<usize>) {
        let end = row.saturating_add(most).min(self.records.end());
        let mut contents = Vec::new();
        for row in row..end {
            if let Some(record) = self.records.get_mut(RecordIndex::from_row(row)) {
                let content = record.read(at).into_owned();
                if !content.is_empty() {
                    contents.push((record.key.clone(), content));
                }
            }
        }
        (contents, (end < self.records.end()).then_some(end))
    }

    /// Returns the contents of all keys, with everything applied so far.
    pub fn contents(&self) -> Vec<(Key, Content)> {
        let newest = self.records.iter().map(|record| (record.key.clone(), record.newest()));
        newest.filter(|(_, content)| !content.is_empty()).collect()
    }

    /// Restores the contents of a checkpoint, before anything is applied.
    pub fn restore(&mut self, contents: Vec<(Key, Content)>, applied: &VersionVector) {
        for (key, content) in contents {
            assert!(self.take_in(key, content), "a checkpoint has every key once");
        }
        self.end_restore(applied);
    }

    /// Restores the content of one key, before anything is applied. Returns false if the key was already
    /// present.
    pub fn take_in(&mut self, key: Key, content: Content) -> bool {
        if self.records.find(&key).is_some() {
            return false;
        }
        self.digests.add(&key, digest::of(&key, &content));
        self.records.insert(Record::new(key, content));
        true
    }

    /// Ends a restore: the restored contents are all that `applied` amounts to.
    pub fn end_restore(&mut self, applied: &VersionVector) {
        debug_assert!(self.unfolded.is_empty(), "a restored store has folded content only");
        self.restored = Some((applied.clone(), 0));
    }
}

/// Returns true if a change leaves something that can be dropped once every datacenter has seen it.
fn leaves_tombstones(action: &Action) -> bool {
    match action {
        Action::Update(update) => value::leaves_tombstones(update),
        Action::Remove | Action::Expired => true,
        Action::Expire(_) => false,
    }
}

/// Returns the place of an uncommitted operation of a transaction: after everything that the transaction has
/// seen.
fn uncommitted(me: DcId, index: usize, seen: &VersionVector) -> At<'_> {
    let dot = Dot { dc: me, seq: UNCOMMITTED };
    At { dot, index: index as u32, stamp: Timestamp::MAX, seen }
}
