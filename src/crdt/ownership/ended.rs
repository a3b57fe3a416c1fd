//! Registers that name members that have ended. They read as those of parts at home, and are written so bit
//! by bit, so that the slot of such a member may be given out again.

use super::{Ownership, Register};
use geolock_api::names::DcId;

impl Ownership {
    /// Writes the registers of the `index`-th row as they count: what names members that have ended is gone.
    /// Returns true if that removed the row: then another lock may have it.
    pub fn forget_ended(&mut self, index: usize) -> bool {
        let before = self.rows.len();
        let Some(row) = self.rows.get(index) else { return false };
        let written = row.registers.clone();
        for (part, register) in (0_u8..).filter_map(DcId::new).zip(written) {
            let counted = match self.sponsors.as_it_counts(part, register) {
                counted if !counted.is_home() => counted,
                _ if self.sponsors.get(part).is_some() => Register::HOME,
                _ => Register::default(),
            };
            if counted != register {
                self.note_before(index);
                self.at_mut(index).registers[part.index()] = counted;
            }
        }
        self.drop_if_empty(index);
        debug_assert!(self.rows.len() + 1 >= before, "at most this row is removed");
        self.rows.len() < before
    }
}
