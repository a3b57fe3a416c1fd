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

use super::member_changes::MemberChanges;
use geolock_api::names::{DcId, DcSet, Position};

/// The members that leave or have left.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parting {
    /// This datacenter gives them nothing any more; they still have parts.
    pub leaving: DcSet,
    /// Their parts count no more.
    pub left: DcSet,
}

impl MemberChanges<'_> {
    /// This datacenter gives nothing to `dc`, which leaves, any more.
    pub fn begin_leaving(&mut self, dc: DcId) {
        if dc == self.tables.view.me {
            return self.idle_return.keep_none(true);
        }
        self.tables.view.leaving.insert(dc);
        self.schedule.repark_all();
    }

    /// `dc` does not leave: this datacenter gives it what it asks for again.
    pub fn stay(&mut self, dc: DcId) {
        if dc == self.tables.view.me {
            return self.idle_return.keep_none(false);
        }
        self.tables.view.leaving.remove(dc);
        self.schedule.repark_all();
    }

    /// `dc` has left, as the entry at `position` says: its parts count no more.
    pub fn take_leave(&mut self, dc: DcId, position: Position) {
        let tables = &mut *self.tables;
        if dc == tables.view.me {
            return;
        }
        debug_assert!(tables.view.members.contains(dc), "{dc} leaves once");
        tables.view.leaving.remove(dc);
        tables.view.members.remove(dc);
        let left = tables.owners.left().union(DcSet::only(dc));
        tables.owners.set_members(tables.view.members, left);
        self.schedule.note_parts_here(tables, position);
        self.schedule.mark_all(tables);
    }

    /// The end of these members is entered with this epoch: what they own is at home, their parts count no
    /// more, and locks that had their home there have none. Call [`MemberChanges::rest_on`] with the record
    /// of that.
    pub fn end(&mut self, ended: DcSet, epoch: u64) {
        self.tables.owners.end(ended, epoch);
        self.idle_return.scan_all(self.tables);
        self.schedule.note_parts_here(self.tables, Position::default());
        self.schedule.mark_all(self.tables);
    }
}
