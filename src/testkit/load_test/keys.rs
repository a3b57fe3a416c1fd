//! The choice of the next lock: uniform, or skewed towards a few.

use crate::base::rng::Rng;

/// A choice among numbered things by Zipf's law: the n-th has a probability in proportion to 1 / n^s.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    len: usize,
    /// The probability of each thing or one before it, in 2^-64; empty for a uniform choice.
    cumulative: Vec<u64>,
}

impl Choice {
    /// Creates a choice among `len` things with exponent `s`.
    pub(super) fn new(len: usize, s: f64) -> Choice {
        if s == 0.0 {
            return Choice { len, cumulative: Vec::new() };
        }
        let weights: Vec<f64> = (1..=len).map(|n| (n as f64).powf(-s)).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let cumulative = weights.iter().map(|weight| {
            sum += weight / total;
            // Saturates at the end, where rounding could exceed 1.
            (sum * 2f64.powi(64)) as u64
        });
        Choice { len, cumulative: cumulative.collect() }
    }

    /// Returns one of `0..len`.
    pub(super) fn draw(&self, rng: &mut Rng) -> usize {
        if self.cumulative.is_empty() {
            return rng.index(self.len);
        }
        let at = rng.next_u64();
        self.cumulative.partition_point(|upto| *upto <= at).min(self.len - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(choice: &Choice, draws: usize) -> Vec<usize> {
        let (mut rng, mut counts) = (Rng::new(7, 0), vec![0; choice.len]);
        (0..draws).for_each(|_| counts[choice.draw(&mut rng)] += 1);
        counts
    }

    #[test]
    fn all_alike_means_all_alike() {
        let counts = counts(&Choice::new(10, 0.0), 100_000);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_first_of_a_thousand_gets_an_eighth() {
        let counts = counts(&Choice::new(1_000, 0.99), 100_000);
        // 1 / (sum of n^-0.99 up to 1000) is 12.9 %; the second gets half of that.
        assert!((12_400..13_400).contains(&counts[0]), "{}", counts[0]);
        assert!((6_000..7_000).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[999] < 100);
    }
}
