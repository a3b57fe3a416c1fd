//! Changes of the members: other parts count, and parts without a register get another owner.
//!
//! `joining.rs` has the members that join, `leaving.rs` those that leave in order, and `evicting.rs` those
//! that are evicted; `forgetting.rs` removes the registers that still name a member that has ended.

use super::idle_return::IdleReturn;
use super::leaving::Parting;
use super::schedule::Schedule;
use super::tables::Tables;
use crate::crdt::Sponsors;
use geolock_api::names::{DcSet, Position};

/// Applies changes of the members, see [`super::Locks::member_changes`].
pub(crate) struct MemberChanges<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) schedule: &'a mut Schedule,
    pub(super) idle_return: &'a mut IdleReturn,
}

impl MemberChanges<'_> {
    /// Grants from now on depend on the record at `position`.
    pub fn rest_on(&mut self, position: Position) {
        self.schedule.note_parts_here(self.tables, position);
    }

    /// Sets the members and sponsors of a state that is about to be installed.
    pub fn install_members(&mut self, parting: Parting, members: DcSet, sponsors: Sponsors) {
        let tables = &mut *self.tables;
        debug_assert!(members.contains(tables.view.me), "{} is a member", tables.view.me);
        (tables.view.members, tables.view.leaving) = (members, parting.leaving);
        tables.owners.set_members(members, parting.left);
        tables.owners.set_sponsors(sponsors);
    }
}
