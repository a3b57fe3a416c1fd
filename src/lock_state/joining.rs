//! A member that joins: its part goes along with the part of its sponsor, is split off, and settled
//! (`crdt/sponsors.rs`).
//!
//! No idle lock is enumerated. A member that learns of the new one walks its lock table once, to note that
//! the part goes along. Before the sponsor splits the part off, it *names* the part for locks that are held
//! exclusively there, and for those that were so since it joins: they keep it, so their next use costs no
//! round trip to the new member. After that, every other member names the part of each lock whose sponsor's
//! part it owns, some locks per step: the part of an idle lock goes home.

use super::lock::{Lock, LockIndex};
use super::member_changes::MemberChanges;
use super::schedule::Schedule;
use super::tables::Tables;
use super::use_walk::{FOUND_PER_STEP, ROWS_PER_STEP, UseWalk};
use crate::base::bugs::Bug;
use crate::base::tables::RowIndex;
use crate::base::work;
use crate::crdt::Sponsored;
use geolock_api::names::{DcId, DcSet, LockName, Mode, Position};

/// Progress of naming the part of one new member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naming {
    part: DcId,
    sponsor: DcId,
    /// The part is split off, so it has its home.
    is_split: bool,
    /// The rows of the ownership map below this one are still to be examined: at the sponsor those of homed
    /// locks. From the last to the first: a row that leaves is replaced by the last one, which was examined.
    rows_left: usize,
    /// At the sponsor: the walk over the locks that are held exclusively, after that.
    in_use: UseWalk,
}

impl MemberChanges<'_> {
    /// This datacenter enters an epoch with a new member, whose part goes along with that of `sponsor`.
    pub fn admit(&mut self, part: DcId, sponsor: DcId, epoch: u64) {
        let tables = &mut *self.tables;
        debug_assert!(tables.view.members.contains(sponsor), "the sponsor {sponsor} is a member");
        debug_assert!(part != tables.view.me, "a member knows its own admission from its state");
        if tables.owners.has_ended(part) {
            tables.owners.reuse_slot(part);
        }
        tables.view.members.insert(part);
        tables.owners.set_members(tables.view.members, tables.owners.left());
        tables.owners.admit(part, sponsor, epoch);
        for index in (0..tables.locks.end()).map(LockIndex::from_row) {
            if let Some(lock) = tables.locks.get_mut(index).filter(|lock| lock.parts.contains(sponsor)) {
                lock.parts.insert(part);
            }
        }
    }

    /// The sponsor has split the part off.
    pub fn split(&mut self, part: DcId) {
        self.tables.owners.sponsors_mut().split(part);
        self.schedule.note_parts_here(self.tables, Position::default());
    }

    /// Nothing goes along with the sponsor's part any more. Registers that say that a part is at home say
    /// nothing once all are settled.
    pub fn settle(&mut self, part: DcId) {
        self.tables.owners.sponsors_mut().settle(part);
        self.idle_return.scan_all(self.tables);
    }

    /// The sponsor of the part is over and has not split it off: the part is its own from now on.
    pub fn settle_orphan(&mut self, part: DcId) {
        self.tables.owners.sponsors_mut().orphan(part);
        self.schedule.note_parts_here(self.tables, Position::default());
        self.idle_return.scan_all(self.tables);
    }

    /// Begins to name the part of a new member for locks that are here.
    pub fn begin_naming(&self, of: Sponsored) -> Naming {
        let Sponsored { part, sponsor, split: is_split } = of;
        let skips = sponsor == self.tables.view.me && self.tables.view.bugs.has(Bug::HomedUnnamed);
        let rows_left = if skips { 0 } else { self.tables.owners.map().len() };
        Naming { part, sponsor, is_split, rows_left, in_use: UseWalk::begin(self.tables) }
    }

    /// Names some. Returns true if no part goes along here any more that has to be named.
    pub fn name_some(&mut self, naming: &mut Naming) -> bool {
        let is_sponsor = naming.sponsor == self.tables.view.me;
        let bug = if is_sponsor { Bug::SplitUnnamed } else { Bug::DoneUnnamed };
        if self.tables.view.bugs.has(bug) {
            return true;
        }
        match is_sponsor {
            true if naming.rows_left > 0 => {
                naming.name_homed(self.tables, self.schedule);
                false
            }
            true => naming.name_held(self.tables, self.schedule),
            false => naming.name_away(self.tables, self.schedule),
        }
    }
}

impl Naming {
    /// At the sponsor: keeps the part of the locks that are held exclusively here, or were so a moment ago.
    fn name_held(&mut self, tables: &mut Tables, schedule: &mut Schedule) -> bool {
        let (naming, bug) = (*self, tables.view.bugs.has(Bug::NamedElsewhere));
        let is_held = |lock: &Lock| lock.holders.mode == Some(Mode::Exclusive);
        self.in_use.step(tables, is_held, |tables, index| {
            let name = &tables.locks[index].name;
            let is_named = naming.goes_along_here(tables, name) || bug && naming.goes_along(tables, name);
            if is_named {
                let name = name.clone();
                schedule.name_part(tables, &name, naming.part, tables.view.me);
            }
            is_named
        })
    }

    /// Elsewhere: names the part of the locks whose sponsor's part is here. Every member names it with each
    /// transfer by now, so none goes along here that the walk has passed.
    fn name_away(&mut self, tables: &mut Tables, schedule: &mut Schedule) -> bool {
        let (mut examined, mut named) = (0, 0);
        while self.rows_left > 0 && examined < ROWS_PER_STEP && named < FOUND_PER_STEP {
            self.rows_left -= 1;
            examined += 1;
            let Some(name) = tables.owners.map().lock_at(self.rows_left).cloned() else { continue };
            if self.goes_along_here(tables, &name) {
                // The home of a lock may be away; its new part returns to it with the others.
                let stays = !self.is_split
                    || tables.owners.home(&name).is_some()
                    || is_used_exclusively(tables, &name);
                let to = if stays { tables.view.me } else { self.part };
                schedule.name_part(tables, &name, self.part, to);
                named += 1;
            }
        }
        work::count(examined);
        self.rows_left == 0
    }

    /// At the sponsor: names the part of the homed locks whose sponsor's part is here and has another home.
    /// As elsewhere, every member names it with each transfer by now.
    fn name_homed(&mut self, tables: &mut Tables, schedule: &mut Schedule) {
        let (mut examined, mut named) = (0, 0);
        while self.rows_left > 0 && examined < ROWS_PER_STEP && named < FOUND_PER_STEP {
            self.rows_left -= 1;
            examined += 1;
            let owners = &tables.owners;
            let homed = owners.map().lock_at(self.rows_left).filter(|name| owners.home(name).is_some());
            let Some(name) = homed.cloned() else { continue };
            if self.goes_along_here(tables, &name) {
                schedule.name_part(tables, &name, self.part, tables.view.me);
                named += 1;
            }
        }
        work::count(examined);
    }

    fn goes_along_here(&self, tables: &Tables, name: &LockName) -> bool {
        let owners = &tables.owners;
        // A part that is at home there stays when it is settled.
        owners.home(name) != Some(tables.view.me)
            && owners.owner(name, self.sponsor) == tables.view.me
            && self.goes_along(tables, name)
    }

    fn goes_along(&self, tables: &Tables, name: &LockName) -> bool {
        tables.owners.going_along(name, DcSet::only(self.sponsor)).contains(self.part)
    }
}

fn is_used_exclusively(tables: &Tables, name: &LockName) -> bool {
    tables.locks.find(name).is_some_and(|index| tables.locks[index].is_used_exclusively())
}
