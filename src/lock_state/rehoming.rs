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
use super::use_walk::UseWalk;
use crate::base::bugs::Bug;
use crate::base::tables::RowIndex;
use crate::crdt::is_below;
use geolock_api::names::{DcId, DcSet, LockName, Position};

/// Progress of keeping the parts of locks in use.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    prefix: LockName,
    /// The rule that it is about.
    epoch: u64,
    in_use: UseWalk,
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
        Some(Keeping { prefix: prefix.clone(), epoch, in_use: UseWalk::begin(self.tables) })
    }

    /// Keeps some. Returns true if all are kept: then the entry that gives the rest follows in this step.
    pub fn keep_some(&mut self, keeping: &mut Keeping) -> bool {
        self.tables.view.bugs.has(Bug::RehomedInUse) || keeping.keep_some(self.tables, self.schedule)
    }

    /// `dc` gives by the rule of an epoch, as its entry with this number says, which is recorded at
    /// `position`.
    pub fn give(&mut self, dc: DcId, epoch: u64, seq: u64, position: Position) {
        let rules = self.tables.owners.sponsors_mut().rules_mut();
        rules.give(dc, epoch, seq);
        let Some(prefix) = rules.prefix(epoch).cloned() else { return };
        self.schedule.note_parts_below(self.tables, &prefix, position);
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

impl Keeping {
    /// Returns the epoch of the rule.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn keep_some(&mut self, tables: &mut Tables, schedule: &mut Schedule) -> bool {
        let Keeping { prefix, in_use, .. } = self;
        in_use.step(
            tables,
            |lock| lock.holders.mode.is_some(),
            |tables, index| {
                let name = &tables.locks[index].name;
                let parts = if is_below(name, prefix) { by_default(tables, name) } else { DcSet::EMPTY };
                if !parts.is_empty() {
                    let name = name.clone();
                    schedule.keep_parts(tables, &name, parts);
                }
                !parts.is_empty()
            },
        )
    }
}

/// Returns the parts of a lock that are here without a register.
fn by_default(tables: &Tables, name: &LockName) -> DcSet {
    let owners = tables.owners.map().of(name);
    let here = tables.owners.parts_here(name);
    here.iter().filter(|part| owners.register(*part).version() == 0).collect()
}
