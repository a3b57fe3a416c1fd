//! A rule gives the locks below a prefix another home (`crdt/home_rules.rs`).
//!
//! This datacenter gives the parts that it owns by default, of all those locks, by one entry. No idle lock is
//! enumerated. Before that entry it *keeps*, by registers, the parts of the locks that are held here, and of
//! those that were held exclusively a moment ago: they stay where they are in use, and return to the new home
//! when they are idle.

use super::inspect::Inspect;
use super::lock::LockIndex;
use super::member_changes::MemberChanges;
use super::schedule::Schedule;
use super::tables::Tables;
use crate::base::bugs::Bug;
use crate::base::tables::RowIndex;
use crate::base::work;
use geolock_api::names::{DcId, DcSet, LockName, Position};

/// Most rows that one step examines.
const ROWS_PER_STEP: usize = 1_024;
/// Most locks whose parts one step keeps, before the last one.
const KEPT_PER_STEP: usize = 64;
/// Most locks that are not held and keep their parts all the same: each costs a row everywhere.
const MOST_KEPT: usize = 100_000;

/// Progress of keeping the parts of locks in use.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    prefix: LockName,
    /// The rule that it is about.
    epoch: u64,
    /// The rows of the lock table below this one are still to be examined.
    left: usize,
    /// Locks whose parts were kept in this walk over the rows.
    kept: usize,
    /// In the first walk, so many locks that are not held may still keep their parts.
    unheld: usize,
}

impl MemberChanges<'_> {
    /// The epoch of a rule is entered: the locks below this prefix get this home, or none.
    pub fn begin_rule(&mut self, prefix: &LockName, home: Option<DcId>, epoch: u64) {
        let tables = &mut *self.tables;
        let members = tables.view.members;
        let rules = tables.owners.sponsors_mut().rules_mut();
        rules.begin(prefix, home, epoch, members);
        if tables.view.bugs.has(Bug::RuleAtOnce) {
            members.iter().for_each(|dc| rules.admit(dc, epoch));
            self.schedule.note_parts_here(tables, Position::default());
        }
    }

    /// Begins to keep the parts of locks in use here; `None` if this datacenter has nothing to give.
    pub fn begin_keeping(&self) -> Option<Keeping> {
        let (prefix, epoch) = self.tables.owners.sponsors().rules().to_give(self.tables.view.me)?;
        let left = self.tables.locks.end();
        Some(Keeping { prefix: prefix.clone(), epoch, left, kept: 0, unheld: MOST_KEPT })
    }

    /// Keeps some. Returns true if all are kept: then the entry that gives the rest follows in this step.
    pub fn keep_some(&mut self, keeping: &mut Keeping) -> bool {
        self.tables.view.bugs.has(Bug::RehomedInUse) || keeping.keep_some(self.tables, self.schedule)
    }

    /// `dc` gives by the rule of an epoch, as its entry with this number says, which is recorded at
    /// `position`.
    pub fn give(&mut self, dc: DcId, epoch: u64, seq: u64, position: Position) {
        self.tables.owners.sponsors_mut().rules_mut().give(dc, epoch, seq);
        self.schedule.note_parts_here(self.tables, position);
    }
}

impl<'a> Inspect<'a> {
    /// Returns the locks below the prefix of the rule of this epoch that are held here by parts without
    /// registers.
    pub fn held_by_default(self, epoch: u64) -> Vec<LockName> {
        let prefix = self.0.owners.sponsors().rules().prefix(epoch);
        let held = prefix.into_iter().flat_map(|prefix| self.held_below(prefix));
        held.filter(|name| !by_default(self.0, name).is_empty()).cloned().collect()
    }

    /// Returns the plain locks below a prefix that are held here.
    pub(super) fn held_below(self, prefix: &LockName) -> impl Iterator<Item = &'a LockName> {
        let locks = (0..self.0.locks.end()).filter_map(|row| self.0.locks.get(LockIndex::from_row(row)));
        let held = locks.filter(move |lock| lock.holders.mode.is_some() && is_below(&lock.name, prefix));
        held.map(|lock| &lock.name)
    }
}

fn is_below(name: &LockName, prefix: &LockName) -> bool {
    name.home().is_none() && name.as_bytes().starts_with(prefix.as_bytes())
}

impl Keeping {
    /// Returns the epoch of the rule.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Locks may be granted behind the walk, so the last walk, in which few are found, is one step.
    fn keep_some(&mut self, tables: &mut Tables, schedule: &mut Schedule) -> bool {
        let is_last = self.left == 0 && self.kept <= KEPT_PER_STEP;
        if self.left == 0 {
            // Under load, locks come as fast as they are walked over.
            (self.left, self.kept, self.unheld) = (tables.locks.end(), 0, 0);
        }
        let (mut examined, before) = (0, self.kept);
        while self.left > 0 && (is_last || (examined < ROWS_PER_STEP && self.kept - before < KEPT_PER_STEP)) {
            self.left -= 1;
            examined += 1;
            let Some((name, is_held)) = self.in_use(tables, LockIndex::from_row(self.left)) else { continue };
            let parts = by_default(tables, &name);
            if !parts.is_empty() {
                schedule.keep_parts(tables, &name, parts);
                self.kept += 1;
                self.unheld = self.unheld.saturating_sub(usize::from(!is_held));
            }
        }
        work::count(if is_last { self.kept } else { examined });
        is_last
    }

    /// Returns the lock of a row, and if it is held, if the rule is about it and its parts are to be kept.
    fn in_use(&self, tables: &Tables, index: LockIndex) -> Option<(LockName, bool)> {
        let lock = tables.locks.get(index)?;
        let is_held = lock.holders.mode.is_some();
        let is_kept = is_below(&lock.name, &self.prefix)
            && (is_held || (self.unheld > 0 && lock.is_used_exclusively()));
        is_kept.then(|| (lock.name.clone(), is_held))
    }
}

/// Returns the parts of a lock that are here without a register.
fn by_default(tables: &Tables, name: &LockName) -> DcSet {
    let owners = tables.owners.map().of(name);
    let here = tables.owners.parts_here(name);
    here.iter().filter(|part| owners.register(*part).version() == 0).collect()
}
