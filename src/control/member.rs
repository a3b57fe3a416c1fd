//! Names of the members of a control group.

use std::fmt;

use geolock_api::names::DcId;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// A member of the group: one generation of a slot. It is never given out twice, though slots are; so it is
/// the name that Raft knows a voter by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The slot.
    pub dc: DcId,
    /// How often the slot was given out before.
    pub generation: u16,
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.dc, self.generation)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of one directory: random, made when the directory is made, and lost with it.
#[cfg_attr(test, derive(Default))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(u128);

impl ServerId {
    /// Returns a new name. Fails if the operating system has no random numbers.
    pub(super) fn random() -> std::io::Result<ServerId> {
        let mut bytes = [0; 16];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| std::io::Error::other("the operating system gives no random numbers"))?;
        Ok(ServerId(u128::from_le_bytes(bytes)))
    }

    /// Returns a number for draws that have to differ from those of other members.
    pub(super) fn seed(self) -> u64 {
        self.0 as u64
    }

    /// Returns the name as bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns the name with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> ServerId {
        ServerId(u128::from_be_bytes(bytes))
    }

    #[cfg(test)]
    pub(super) fn from_raw(raw: u128) -> ServerId {
        ServerId(raw)
    }
}

/// The tests of openraft for stores number their members.
#[cfg(test)]
impl From<u64> for MemberId {
    fn from(number: u64) -> MemberId {
        let dc = DcId::new((number % 64) as u8).expect("it is below 64");
        MemberId { dc, generation: (number / 64) as u16 }
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
