//! The rows of the ownership map.

use geolock_api::names::{DcId, DcSet, LockName};
use smallvec::SmallVec;

use super::Register;

/// Registers by part number; as many as the highest moved part needs.
pub(super) type Registers = SmallVec<[Register; 3]>;

/// A lock with at least one part away from home, and its registers.
#[derive(Clone)]
pub(super) struct LockRow {
    lock: LockName,
    registers: Registers,
}

impl LockRow {
    pub fn new(lock: LockName, registers: Registers) -> LockRow {
        LockRow { lock, registers }
    }

    #[inline]
    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    pub fn registers(&self) -> &[Register] {
        &self.registers
    }

    /// Returns every part up to the highest moved one, with its register.
    pub fn parts(&self) -> impl Iterator<Item = (DcId, Register)> {
        (0_u8..).filter_map(DcId::new).zip(self.registers.iter().copied())
    }

    #[inline]
    pub fn register(&self, part: DcId) -> Register {
        self.registers.get(part.index()).copied().unwrap_or_default()
    }

    /// Returns true if no part has a register.
    pub fn is_empty(&self) -> bool {
        self.registers.iter().all(|register| *register == Register::default())
    }

    /// Returns the datacenters that own a part which is named after another one, by the registers as written.
    pub fn away_owners(&self) -> DcSet {
        let away = |(part, register): (DcId, Register)| register.owner().filter(|owner| *owner != part);
        self.parts().filter_map(away).collect()
    }

    pub fn set(&mut self, part: DcId, to: Register) {
        if self.register(part) == to {
            return;
        }
        if self.registers.len() <= part.index() {
            self.registers.resize(part.index() + 1, Register::default());
        }
        self.registers[part.index()] = to;
    }
}

/// Some rows of the map.
pub struct OwnedRows(pub(super) Vec<LockRow>);

impl OwnedRows {
    /// Returns the number of locks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is no lock.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
