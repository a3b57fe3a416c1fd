//! Registers that name an ended member count as those of parts at home. Each step rewrites a few of them.
//! When none is left, the slot may have another member (`replica/members/free.rs`).

use super::member_changes::MemberChanges;
use crate::base::work;

/// Most rows that one step examines.
const ROWS_PER_STEP: usize = 1_024;

impl MemberChanges<'_> {
    /// Examines some of the first `left` rows of the ownership map, from the last of them to the first.
    pub fn forget_ended(&mut self, left: &mut usize) {
        let rows = self.tables.owners.map().len();
        *left = (*left).min(rows);
        let examined = (*left).min(ROWS_PER_STEP);
        for _ in 0..examined {
            *left -= 1;
            self.tables.owners.forget_ended(*left);
        }
        work::count(examined);
    }
}
