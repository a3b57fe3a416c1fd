//! The capacity of a datacenter: free space on the disk of its journal, and load.

/// Disk space, from good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum DiskSpace {
    /// The whole reserve is free.
    #[default]
    Enough,
    /// Part of the reserve is used: new writes of clients are refused. Accepted ones and entries of other
    /// datacenters are still written.
    Low,
    /// Half of the reserve is used, or a write found no space: nothing new is written.
    Full,
}

/// The load of a datacenter, compared with the calls of its clients.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Load {
    /// The server keeps up.
    #[default]
    Fits,
    /// The server is far behind: new calls of clients are refused, calls under way continue.
    TooMuch,
}

impl DiskSpace {
    /// Returns the next state when this number of bytes is free. It improves only when an eighth of the
    /// reserve more is free than the amount that made it worse, so that it does not oscillate.
    pub fn when_free(self, free: u64, reserve: u64) -> DiskSpace {
        let room = |more: u64| match free {
            free if free < reserve / 2 + more => DiskSpace::Full,
            free if free < reserve + more => DiskSpace::Low,
            _ => DiskSpace::Enough,
        };
        room(reserve / 8).min(self).max(room(0))
    }
}

#[cfg(test)]
mod tests {
    use super::DiskSpace::{self, Enough, Full, Low};

    #[test]
    fn it_gets_worse_at_once_and_better_with_some_more() {
        let after = |room: DiskSpace, free| room.when_free(free, 80);
        assert_eq!([80, 79, 40, 39, 0].map(|free| after(Enough, free)), [Enough, Low, Low, Full, Full]);
        assert_eq!([90, 89, 40, 39].map(|free| after(Low, free)), [Enough, Low, Low, Full]);
        assert_eq!([90, 89, 50, 49].map(|free| after(Full, free)), [Enough, Low, Low, Full]);
        assert_eq!(Full.when_free(0, 0), Enough, "without a reserve only writes tell");
    }
}
