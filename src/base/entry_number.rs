//! Numbers of entries. A datacenter's entries are numbered without gaps within one *generation* of its slot;
//! the generation is in the upper bits. So a number is never used again, though a slot is.

pub use geolock_api::names::EntryNumber;

/// Number of bits that count within a generation.
pub const COUNT_BITS: u32 = EntryNumber::COUNT_BITS;

/// Returns the number that the first entry of the generation of entry `seq` follows.
pub const fn base_of(seq: u64) -> u64 {
    seq >> COUNT_BITS << COUNT_BITS
}

/// Returns true if `seq` is the first entry of a generation.
pub const fn is_first(seq: u64) -> bool {
    seq == base_of(seq) + 1
}

/// Returns true if entry `seq` may follow entry `before` of the same log: it is the next one, or the first
/// one of a later generation.
pub const fn follows(seq: u64, before: u64) -> bool {
    before < seq && (seq - 1 == before || is_first(seq))
}

/// Returns the number of entries after `after` up to `upto`. Of the generations before that of `upto` it is
/// not known how many they had: only those of the last one count.
pub const fn entries_between(after: u64, upto: u64) -> u64 {
    let base = base_of(upto);
    upto.saturating_sub(if after > base { after } else { base })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_generation_and_the_count() {
        let shown = [5, (1 << COUNT_BITS) + 5, 3 << COUNT_BITS].map(|seq| EntryNumber(seq).to_string());
        assert_eq!(shown, ["5", "1/5", "3/0"]);
    }

    #[test]
    fn numbers_follow_one_another_within_a_generation_and_across() {
        let base = |generation: u64| generation << COUNT_BITS;
        assert!(
            follows(1, 0) && follows(8, 7) && follows(base(1) + 1, 7) && follows(base(3) + 1, base(1) + 9)
        );
        assert!(!follows(9, 7) && !follows(7, 7) && !follows(base(1) + 2, 7) && !follows(base(1), 7));
        assert!(!follows(base(1) + 1, base(1) + 1) && !follows(base(1) + 1, base(2)));
        assert_eq!(
            (entries_between(3, 7), entries_between(7, 3), entries_between(3, base(1) + 2)),
            (4, 0, 2)
        );
    }
}
