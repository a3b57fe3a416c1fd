//! Bytes read as choices, so that a fuzzer's change of the bytes changes the events.

use geolock_api::names::DcId;

/// Choices until the bytes are used up; after that always the first one.
pub(super) struct Choices<'a>(&'a [u8]);

/// Numbers at which sums and comparisons often fail.
const EDGES: [u64; 12] =
    [0, 1, 2, 255, 1 << 20, 1 << 32, 1 << 47, 1 << 55, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns at most that many bytes.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = self.below(most + 1).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    /// Returns a number below `bound`, which is at most 65 536.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!((1..=1 << 16).contains(&bound), "two bytes choose one of {bound}");
        let raw = if bound > 256 {
            usize::from(u16::from_be_bytes([self.byte(), self.byte()]))
        } else {
            self.byte().into()
        };
        raw % bound
    }

    /// Returns true once in that many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a number that is nearly always about `usual`, sometimes anything.
    pub fn number(&mut self, usual: u64) -> u64 {
        match self.below(16) {
            0..=9 => usual,
            10 => usual.wrapping_add(1),
            11 => usual.wrapping_sub(1),
            12 => usual.wrapping_add(self.byte().into()),
            13 => u64::from_be_bytes(std::array::from_fn(|_| self.byte())),
            _ => self.pick(&EDGES),
        }
    }

    /// Returns a datacenter: nearly always one of `members`.
    pub fn dc(&mut self, members: u8) -> DcId {
        let id = if self.one_in(32) { self.byte() % 64 } else { self.byte() % members };
        DcId::new(id).expect("there are 64")
    }

    /// Returns a list of at most `most` items.
    pub fn many<T>(&mut self, most: usize, mut one: impl FnMut(&mut Choices<'a>) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }
}
