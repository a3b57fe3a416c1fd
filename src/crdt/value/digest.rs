//! Digests of what readers see.
//!
//! A digest is a wrapping sum of one hash for each visible *atom*: an element of a set, or the content of a
//! register, at its place. So one operation changes it by the few atoms that it touches, in whatever order
//! operations arrive. It finds replicas that differ by mistake; it is no defence against differences that are
//! constructed to cancel out.

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

use geolock_api::value::Type;

/// Sums over the visible atoms.
#[derive(Clone, Copy, Default, Debug)]
pub struct Shown {
    /// The digest.
    pub sum: u128,
    /// Number of bytes of the atoms: about the size of the values.
    pub bytes: u64,
    /// Number of the atoms that were hashed for this: the work of a digest. It is no part of what is shown,
    /// so it is added in a difference, too.
    pub atoms: u64,
}

impl PartialEq for Shown {
    fn eq(&self, other: &Shown) -> bool {
        (self.sum, self.bytes) == (other.sum, other.bytes)
    }
}

impl Eq for Shown {}

impl Shown {
    /// Adds both sums.
    #[must_use]
    pub fn plus(self, other: Shown) -> Shown {
        Shown {
            sum: self.sum.wrapping_add(other.sum),
            bytes: self.bytes.wrapping_add(other.bytes),
            atoms: self.atoms + other.atoms,
        }
    }

    /// Subtracts both sums.
    #[must_use]
    pub fn minus(self, other: Shown) -> Shown {
        Shown {
            sum: self.sum.wrapping_sub(other.sum),
            bytes: self.bytes.wrapping_sub(other.bytes),
            atoms: self.atoms + other.atoms,
        }
    }
}

/// The hash of a place: a key, or a field somewhere in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(pub u128);

impl Place {
    pub fn of_field(self, map: Type, field: &[u8]) -> Place {
        Place(self.atom(map, field))
    }

    /// Returns the hash of an atom of a value of this type at this place. It is the same in every build and
    /// version, so the order of types and the bytes of their atoms never change.
    pub fn atom(self, of: Type, content: &[u8]) -> u128 {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&self.0.to_le_bytes());
        both[16..].copy_from_slice(&xxh3_128_with_seed(content, of as u64).to_le_bytes());
        xxh3_128(&both)
    }
}
