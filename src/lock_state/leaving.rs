//! A member that leaves, in order.
//!
//! First every other member says, in its log, that it gives nothing to that member any more. The one that
//! leaves returns what it has, until only its own parts are left, and says so as the last entry of its log:
//! from there on its parts count no more, wherever they are. Those that are away from home return there like
//! other idle ones, which only removes their registers; those that are left count no more when the end is
//! entered, and locks that had their home there have none from then on.
//!
//! So no lock is enumerated, no part changes its owner without a transfer, except those of locks with that
//! home, and none is on its way to a member that is gone.

use serde::{Deserialize, Serialize};

use super::locks::Locks;
use crate::base::bugs::Bug;
use geolock_api::names::{DcId, DcSet, Position};

/// The members that leave or have left.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parting {
    /// This datacenter gives them nothing any more; they still have parts.
    pub leaving: DcSet,
    /// Their parts count no more.
    pub left: DcSet,
}

impl Locks {
    /// This datacenter gives nothing to `dc`, which leaves, any more.
    pub fn begin_leaving(&mut self, dc: DcId) {
        if dc == self.tables.view.me {
            return self.return_all_idle();
        }
        self.tables.view.leaving.insert(dc);
        self.schedule.repark_all();
    }

    /// `dc` has left, as the entry at `position` says: its parts count no more.
    pub fn take_leave(&mut self, dc: DcId, position: Position) {
        let tables = &mut self.tables;
        if dc == tables.view.me {
            return;
        }
        debug_assert!(tables.view.members.contains(dc), "{dc} leaves once");
        tables.view.leaving.remove(dc);
        tables.view.members.remove(dc);
        let left = tables.owners.left().union(DcSet::only(dc));
        tables.owners.set_members(tables.view.members, left);
        self.note_parts_here(position);
        self.schedule.mark_all(&mut self.tables);
    }

    /// The end of these members is entered: what they own is at home, their parts count no more, and locks
    /// that had their home there have none. Call [`Locks::rest_on`] with the record of that.
    pub fn end(&mut self, ended: DcSet) {
        self.tables.owners.end(ended);
        self.scan_rows();
        self.note_parts_here(Position::default());
        self.schedule.mark_all(&mut self.tables);
    }

    /// Grants from now on depend on the record at `position`.
    pub fn rest_on(&mut self, position: Position) {
        self.note_parts_here(position);
    }

    /// Returns true if nothing is left here but what is at home.
    pub fn has_nothing(&self) -> bool {
        let counts = self.request_counts();
        let has_foreign = self.owners().away_here() > 0 && !self.tables.view.bugs.has(Bug::LeavesWithParts);
        counts.held + counts.waiting == 0 && !has_foreign && !self.tables.request_table.has_orphans()
    }
}
