//! The options of a control group.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::member::MemberId;
use super::transport::ControlTransport;

/// How a member starts whose directory is empty. A directory that is not empty continues where it stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The group is founded with these voters, once all of them are there. Each of them must have the same
    /// list. From then on the group's own list counts.
    Found(BTreeSet<MemberId>),
    /// The group is founded with these voters, of which this member is none: the leader asks it for its
    /// directory ([`ControlGroup::directory_of`](super::ControlGroup::directory_of)), and takes it in.
    Follow(BTreeSet<MemberId>),
    /// The group exists: wait until it takes this member in.
    Join,
}

/// The times of the group, all made from one figure, so that they keep their order: a heartbeat is due four
/// times in an election timeout, and a request outlives an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    election: Duration,
}

impl Timing {
    /// Election timeouts shorter than this begin elections because of one slow sync of a disk.
    const SHORTEST: Duration = Duration::from_millis(500);
    /// A leader that is gone for longer than this would be noticed by an operator first.
    pub(super) const LONGEST: Duration = Duration::from_secs(20);

    /// Returns the times for a group whose farthest members are this far apart, there and back. An election
    /// begins after 12 to 20 round trips without a leader, at least 0.6 s and at most 40 s. Longer: a leader
    /// that is gone is replaced later. Shorter: a slow path looks like one.
    pub fn for_round_trip(largest: Duration) -> Timing {
        Timing { election: largest.saturating_mul(10).clamp(Timing::SHORTEST, Timing::LONGEST) }
    }

    /// Returns times with this shortest election timeout, without the bounds of production.
    #[cfg(test)]
    pub(super) fn with_election(election: Duration) -> Timing {
        Timing { election }
    }

    /// The time from which the others are made. A voter begins an election after 1.25 to 2 times this without
    /// a leader.
    pub fn election(&self) -> Duration {
        self.election
    }

    /// The time between two heartbeats of a leader.
    pub(super) fn heartbeat(&self) -> Duration {
        self.election / 4
    }

    /// The limit for one answer of a follower, which syncs its disk before it.
    pub(super) fn answer(&self) -> Duration {
        self.election * 2
    }

    /// For this long after a leader was heard this member votes for nobody else. Shorter than the wait of any
    /// candidate, by more than the time that a heartbeat takes longer to one than to another.
    pub(super) fn lease(&self) -> Duration {
        self.election
    }

    /// A leader from which nothing was heard for this long counts as gone.
    pub(super) fn leader_silence(&self) -> Duration {
        self.election * 2
    }

    /// The limit for a request to the group: time for some elections without a winner, and for a commit.
    pub(super) fn request(&self) -> Duration {
        self.election * 16
    }
}

/// Everything that a member of a control group needs to start.
#[derive(Clone)]
pub struct ControlConfig {
    /// This member.
    pub me: MemberId,
    /// The directory of the vote and the log. The file in it is a few hundred kilobytes.
    pub dir: PathBuf,
    /// The start with an empty directory.
    pub start: Start,
    /// The times until a round trip to a voter is measured. They may differ between members.
    pub timing: Timing,
    /// The way to the other members.
    pub transport: Arc<dyn ControlTransport>,
}
