//! Registers that name members that have ended. They read as those of parts at home, and are written so bit
//! by bit, so that the slot of such a member may be given out again.

use smallvec::SmallVec;

use super::{Ownership, Register};
use geolock_api::names::DcId;

impl Ownership {
    /// Writes the registers of the `index`-th row as they count: what names members that have ended is gone.
    /// Returns true if that removed the row: then another lock may have it.
    pub fn forget_ended(&mut self, index: usize) -> bool {
        let Some(row) = self.table.get(index) else { return false };
        let counted = |(part, register)| match self.sponsors.as_it_counts(part, register) {
            counted if !counted.is_home() => (part, counted),
            _ if self.sponsors.get(part).is_some() => (part, Register::HOME),
            _ => (part, Register::default()),
        };
        let counted: SmallVec<[(DcId, Register); 3]> = row.parts().map(counted).collect();
        for (part, register) in counted {
            self.table.set_at(index, part, register);
        }
        self.drop_settled(index)
    }
}
