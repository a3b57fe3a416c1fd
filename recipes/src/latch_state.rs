//! Pure. A caller that waits for a count-down latch.
//!
//! Each count-down is a commit that adds one to a counter, and a watch tells each commit once. So the caller
//! reads the counter once, and adds up the commits after that.

/// A thing that the driver has read or heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The counter, at the snapshot where the watch begins.
    Read(i64),
    /// A commit after that has added so much.
    Added(i64),
}

/// A caller that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    needed: u64,
    count: i64,
}

impl Waiter {
    pub fn new(needed: u64) -> Waiter {
        Waiter { needed, count: 0 }
    }

    pub fn handle(&mut self, news: News) {
        self.count = match news {
            News::Read(count) => count,
            News::Added(by) => self.count.saturating_add(by),
        };
    }

    /// Returns how many count-downs are lacking.
    pub fn lacking(&self) -> u64 {
        self.needed.saturating_sub(u64::try_from(self.count).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// Commits of a counter in three datacenters, each with its own order of them. A watch begins anywhere,
    /// is interrupted and begins again, and never returns early or late.
    #[test]
    fn a_waiter_counts_each_commit_once() {
        const NEEDED: u64 = 30;
        for seed in 1..500_u64 {
            let mut dice = Dice::new(seed);
            let (mut waiter, mut applied, mut watched) = (Waiter::new(NEEDED), 0_u64, None);
            while applied < NEEDED {
                match (dice.below(6), watched) {
                    // It begins, or begins again because the watch could not resume.
                    (0, _) | (_, None) => {
                        waiter.handle(News::Read(i64::try_from(applied).expect("it is small")));
                        watched = Some(applied);
                    }
                    // It hears of a commit.
                    (1..=3, Some(seen)) if seen < applied => {
                        waiter.handle(News::Added(1));
                        watched = Some(seen + 1);
                    }
                    // The datacenter applies one.
                    _ => applied += 1,
                }
                let seen = watched.unwrap_or(0);
                assert_eq!(waiter.lacking(), NEEDED - seen, "seed {seed}");
            }
            for _ in watched.unwrap_or(0)..applied {
                assert!(waiter.lacking() > 0, "seed {seed}: too early");
                waiter.handle(News::Added(1));
            }
            assert_eq!(waiter.lacking(), 0, "seed {seed}");
        }
    }

    #[test]
    fn strange_counts_are_no_count_downs() {
        let mut waiter = Waiter::new(2);
        waiter.handle(News::Read(-5));
        assert_eq!(waiter.lacking(), 2);
        waiter.handle(News::Added(i64::MAX));
        waiter.handle(News::Added(i64::MAX));
        assert_eq!(waiter.lacking(), 0);
    }
}
