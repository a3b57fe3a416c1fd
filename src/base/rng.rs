//! The only random generator of the simulator and of load tests: xoshiro256++ 1.0, seeded through splitmix64.
//!
//! Both are by David Blackman and Sebastiano Vigna, public domain, <https://prng.di.unimi.it>. Written out
//! here so that a seed means the same run for as long as this file stays as it is.

use std::time::Duration;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Returns the `stream`-th stream of a seed. Streams are independent, so one more draw by the network
    /// changes nothing for the clients.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut state = seed;
        let mut mixed = splitmix64(&mut state) ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Rng(std::array::from_fn(|_| splitmix64(&mut mixed)))
    }

    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..bound` (to within 2^-64 of `bound`, which no test here can detect).
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Uniform in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        assert!(from <= to, "there is no number from {from} to {to}");
        from + self.below(to - from + 1)
    }

    pub fn duration(&mut self, from: Duration, to: Duration) -> Duration {
        Duration::from_nanos(self.between(from.as_nanos() as u64, to.as_nanos() as u64))
    }

    /// Uniform around a mean, from a quarter of it to seven quarters.
    pub fn around(&mut self, mean: Duration) -> Duration {
        self.duration(mean / 4, mean * 7 / 4)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        debug_assert!(percent <= 100, "{percent} of 100");
        self.below(100) < percent
    }

    /// Uniform in `-magnitude..=magnitude`.
    pub fn signed(&mut self, magnitude: i64) -> i64 {
        assert!(magnitude >= 0, "a magnitude has no sign");
        self.below(2 * magnitude.unsigned_abs() + 1) as i64 - magnitude
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation of splitmix64 for state 1234567.
    #[test]
    fn splitmix64_is_the_reference() {
        let mut state = 1_234_567;
        assert_eq!(splitmix64(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(&mut state), 3_203_168_211_198_807_973);
    }

    /// The first outputs of the reference implementation of xoshiro256++ for state 1, 2, 3, 4.
    #[test]
    fn xoshiro_is_the_reference() {
        let mut rng = Rng([1, 2, 3, 4]);
        assert_eq!(rng.next_u64(), 41_943_041);
        assert_eq!(rng.next_u64(), 58_720_359);
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(1, 2);
        let draws: Vec<u64> = (0..1_000).map(|_| rng.between(3, 5)).collect();
        assert!(draws.iter().all(|d| (3..=5).contains(d)));
        assert!((3..=5).all(|wanted| draws.contains(&wanted)));
        assert!((0..1_000).any(|_| rng.signed(1) == -1));
    }

    #[test]
    fn streams_of_a_seed_differ() {
        assert_ne!(Rng::new(1, 1).next_u64(), Rng::new(1, 2).next_u64());
        assert_ne!(Rng::new(1, 1).next_u64(), Rng::new(2, 1).next_u64());
    }
}
