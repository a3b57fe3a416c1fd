//! The register of a part, and its moves.

use geolock_api::names::{DcId, LockName};

/// The register of one part: version in the upper 56 bits, owner in the lowest 8. So the higher version is
/// the greater number. Version 0 means never moved, or at home ([`Register::HOME`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Register(pub(super) u64);

impl Register {
    /// The part is at home, and its member is not settled: without this register it would go along with the
    /// part of its sponsor. No owner has so high a number.
    pub const HOME: Register = Register(0x40);

    /// Returns the register of a part after its `version`th move.
    pub fn new(version: u64, owner: DcId) -> Register {
        assert!(version < 1 << 56, "version {version} of a part: 2^56 moves never happen");
        let register = Register(version << 8 | u64::from(owner.get()));
        debug_assert!(version == 0 || register.owner() == Some(owner), "a register names its owner");
        register
    }

    /// Returns the number of moves.
    pub const fn version(self) -> u64 {
        self.0 >> 8
    }

    /// Returns true for [`Register::HOME`].
    pub const fn is_home(self) -> bool {
        self.0 == Register::HOME.0
    }

    /// Returns the owner, or `None` for a part that is at home or never moved.
    pub const fn owner(self) -> Option<DcId> {
        if self.version() == 0 { None } else { DcId::new(self.0 as u8) }
    }
}

/// A move of one part to one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMove {
    /// The lock.
    pub lock: LockName,
    /// The part.
    pub part: DcId,
    /// The new owner.
    pub owner: DcId,
    /// The version of the register.
    pub version: u64,
}

/// Two different owners at the same version: a broken invariant. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two owners of part {part} of lock {lock} at version {version}: {ours} here, {theirs} there")]
pub struct DoubleOwner {
    /// The lock.
    pub lock: LockName,
    /// The part.
    pub part: DcId,
    /// The version of the register.
    pub version: u64,
    /// The owner known here.
    pub ours: DcId,
    /// The owner of the received move.
    pub theirs: DcId,
}
