//! A hash that every process computes alike, today and after an upgrade.
//!
//! FNV-1a (Fowler, Noll, Vo) with 128 bits, and the finisher of splitmix64 (Steele et al. 2014) where all
//! bits have to be even. It keeps apart what honest processes make; it is no defence against somebody who
//! looks for collisions.

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A hash over fields. Each is preceded by its length, so that "ab", "c" and "a", "bc" differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher(u128);

impl Hasher {
    /// `purpose`: hashes for different purposes have nothing to do with each other.
    pub fn new(purpose: &str) -> Hasher {
        Hasher(OFFSET).field(purpose.as_bytes())
    }

    pub fn field(self, bytes: &[u8]) -> Hasher {
        (bytes.len() as u64)
            .to_le_bytes()
            .iter()
            .chain(bytes)
            .fold(self, |Hasher(hash), byte| Hasher((hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }

    pub fn number(self, number: u64) -> Hasher {
        self.field(&number.to_le_bytes())
    }

    pub fn finish(self) -> u128 {
        self.0
    }

    /// Returns 64 bits, all of them as good as drawn.
    pub fn even(self) -> u64 {
        let folded = (self.0 >> 64) as u64 ^ self.0 as u64;
        let mixed = (folded ^ (folded >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_same_for_ever_and_fields_are_kept_apart() {
        let of =
            |fields: &[&str]| fields.iter().fold(Hasher::new("test"), |it, field| it.field(field.as_bytes()));
        assert_eq!(of(&["ab", "c"]).even(), GOLDEN);
        assert_ne!(of(&["ab", "c"]).finish(), of(&["a", "bc"]).finish());
        assert_ne!(of(&["ab", "c"]).even(), of(&["a", "bc"]).even());
    }

    /// Nodes of two versions that computed another one would not agree on a coordinator.
    const GOLDEN: u64 = 7_200_696_395_377_175_873;
}
