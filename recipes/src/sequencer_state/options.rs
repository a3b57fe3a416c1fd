//! The options of a sequencer.

use std::time::Duration;

use super::placement::Placement;
use crate::limits::{MAX_TIME, TooLong, check_times};

/// Most intents that a heartbeat lists. With the longest names it has to fit into a change of the store.
const MAX_COORDINATED: usize = 4_000;
/// Most assemblies that rest on each other: the states of all of them are sent with each question.
const MAX_AHEAD: usize = 100;

/// When a coordinator that works is displaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stickiness {
    /// The most preferred live node coordinates: a stand-in gives back when it hears of a node before it, and
    /// every range has its own coordinator. All members get their share.
    #[default]
    Return,
    /// An active coordinator is displaced only by its silence, the loss of its lock, or when it has nothing
    /// to do. Fewer switches, uneven shares.
    Stay,
}

/// A coordinator behind a partition that keeps the lock away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solo {
    /// It waits until the partition heals: never two that dispatch.
    Never,
    /// It dispatches without the lock after this time, under epoch 0. Two may then dispatch, and the ledger
    /// decides.
    After(Duration),
}

/// The endorsements that an assembly needs, of the whole committee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threshold {
    /// Each member. One that is away stops the contract.
    #[default]
    All,
    /// At least so many. With 1 the coordinator's own is enough: it asks the others only if it refuses.
    AtLeast(usize),
}

/// The options of a sequencer. All nodes of a contract have to have the same `placement`, `block_range` and
/// `stickiness`; the others may differ. All times, and `beat` x `grace`, are at most 365 days.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SequencerOptions {
    /// The rule of who coordinates. Default: rendezvous hashing.
    pub placement: Placement,
    /// Blocks that have one order of coordinators. Longer ranges cost fewer switches; shorter ones spread the
    /// work sooner. A range has to last for several round trips and `retry`, or no intent gets through in it.
    /// Default 100, at least 1.
    pub block_range: u64,
    /// Endorsements for an assembly: the domain says how many.
    pub(crate) threshold: Threshold,
    /// When a coordinator that works is displaced. Default: as soon as a preferred one is there.
    pub stickiness: Stickiness,
    /// Going on behind a partition. Default: after 30 s, longer than the restart of a server.
    pub solo: Solo,
    /// Pause between two heartbeats of a coordinator with work. Each is one commit that all nodes hear.
    /// Default 1 s, at least 100 ms.
    pub beat: Duration,
    /// Beats without a sign after which a node counts as silent. `beat` x `grace` has to be above the longest
    /// one-way delay. Default 3, at least 2: one lost beat displaces nobody.
    pub grace: u32,
    /// Beats of a coordinator that has given up, so that all hear of it. Default 2.
    pub closing_grace: u32,
    /// Longest wait of the old and of the new coordinator for transactions that the old one dispatched; also
    /// how long a sender leaves a dispatched intent to a coordinator that is gone. Above the time in which
    /// the ledger confirms. Default 30 s.
    pub flush_timeout: Duration,
    /// Pause before something is asked again that was refused for a reason that passes. Default 1 s.
    pub retry: Duration,
    /// A message without an answer is sent again after this. Above the round trip to the farthest node.
    /// Default 3 s.
    pub request_timeout: Duration,
    /// An intent that is in one state for so long goes back to the pool, so that others are served. Above
    /// `request_timeout`. Default 10 s.
    pub state_timeout: Duration,
    /// Undecided intents of a sender that a coordinator takes; more wait at the sender. It bounds messages
    /// and beats. Default 500, at least 1; times the members, at most 4 000.
    pub max_in_flight: usize,
    /// Undecided intents of this node; more are refused. Default 10 000, at least 1.
    pub max_undecided: usize,
    /// Assemblies that rest on each other before the first of them is confirmed, so about the most
    /// transactions in a block. All behind one that reverts are assembled again. Default 100, 1 to 100.
    pub max_ahead: usize,
    /// Intents of one sender that are assembled in one round trip to it, one on top of the other. More bring
    /// more transactions; fewer bring the turn of the other senders sooner. Default 10, at least 1.
    pub batch: usize,
    /// Failures of one intent before it is given up, of assembly, endorsement and on the ledger each. One
    /// that reverts because it rests on another one that does has not failed. Default 3, at least 1.
    pub max_failures: u32,
}

impl Default for SequencerOptions {
    fn default() -> SequencerOptions {
        SequencerOptions {
            placement: Placement::default(),
            block_range: 100,
            threshold: Threshold::All,
            stickiness: Stickiness::Return,
            solo: Solo::After(Duration::from_secs(30)),
            beat: Duration::from_secs(1),
            grace: 3,
            closing_grace: 2,
            flush_timeout: Duration::from_secs(30),
            retry: Duration::from_secs(1),
            request_timeout: Duration::from_secs(3),
            state_timeout: Duration::from_secs(10),
            max_in_flight: 500,
            max_undecided: 10_000,
            max_ahead: 100,
            batch: 10,
            max_failures: 3,
        }
    }
}

/// Options of a sequencer that cannot be used together, or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequencerConfigError {
    /// [`SequencerOptions::beat`] is below its bound.
    #[error("`beat` is at least 100 ms, here it is {0:?}")]
    Beat(Duration),
    /// [`SequencerOptions::grace`] is below its bound.
    #[error("`grace` is at least 2 beats, here it is {0}")]
    Grace(u32),
    /// An option that has to be above zero.
    #[error("`{0}` is above 0")]
    Zero(&'static str),
    /// [`SequencerOptions::state_timeout`] is too short for the other one.
    #[error("`state_timeout` ({state:?}) is above `request_timeout` ({request:?})")]
    StateTimeout {
        /// `state_timeout`.
        state: Duration,
        /// `request_timeout`.
        request: Duration,
    },
    /// Heartbeats, which list all intents of all members, would be too long.
    #[error("`max_in_flight` ({in_flight}) times the members ({members}) is at most {MAX_COORDINATED}")]
    InFlight {
        /// `max_in_flight`.
        in_flight: usize,
        /// The size of the committee.
        members: usize,
    },
    /// [`SequencerOptions::max_ahead`] is above its bound.
    #[error("`max_ahead` is at most {MAX_AHEAD}, here it is {0}")]
    Ahead(usize),
    /// A time is longer than 365 days.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// [`Threshold::AtLeast`] asks for none, or for more than there are.
    #[error("`threshold` asks for {asked} endorsements of {members} members")]
    Threshold {
        /// The endorsements.
        asked: usize,
        /// The size of the committee.
        members: usize,
    },
}

impl SequencerOptions {
    /// Checks the options alone and together, for a committee of this size.
    pub(crate) fn check(&self, members: usize) -> Result<(), SequencerConfigError> {
        check_times(&[
            ("beat", self.beat),
            ("flush_timeout", self.flush_timeout),
            ("retry", self.retry),
            ("request_timeout", self.request_timeout),
            ("state_timeout", self.state_timeout),
            ("solo", if let Solo::After(time) = self.solo { time } else { Duration::ZERO }),
        ])?;
        if self.silence() > MAX_TIME {
            return Err(TooLong { option: "beat x grace", time: self.silence() }.into());
        }
        if self.beat < Duration::from_millis(100) {
            return Err(SequencerConfigError::Beat(self.beat));
        }
        if self.grace < 2 {
            return Err(SequencerConfigError::Grace(self.grace));
        }
        let positive = [
            ("block_range", self.block_range > 0),
            ("flush_timeout", !self.flush_timeout.is_zero()),
            ("retry", !self.retry.is_zero()),
            ("request_timeout", !self.request_timeout.is_zero()),
            ("max_in_flight", self.max_in_flight > 0),
            ("max_undecided", self.max_undecided > 0),
            ("max_ahead", self.max_ahead > 0),
            ("batch", self.batch > 0),
            ("max_failures", self.max_failures > 0),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, is_positive)| !is_positive) {
            return Err(SequencerConfigError::Zero(name));
        }
        if self.state_timeout <= self.request_timeout {
            let (state, request) = (self.state_timeout, self.request_timeout);
            return Err(SequencerConfigError::StateTimeout { state, request });
        }
        if self.max_in_flight.saturating_mul(members) > MAX_COORDINATED {
            return Err(SequencerConfigError::InFlight { in_flight: self.max_in_flight, members });
        }
        if self.max_ahead > MAX_AHEAD {
            return Err(SequencerConfigError::Ahead(self.max_ahead));
        }
        match self.threshold {
            Threshold::AtLeast(asked) if asked == 0 || asked > members => {
                Err(SequencerConfigError::Threshold { asked, members })
            }
            Threshold::AtLeast(_) | Threshold::All => Ok(()),
        }
    }

    /// Returns the number of the range that a height is in.
    pub(crate) fn range(&self, height: u64) -> u64 {
        height / self.block_range
    }

    /// Returns the time without a sign after which a node counts as silent.
    pub(crate) fn silence(&self) -> Duration {
        self.beat.saturating_mul(self.grace)
    }

    /// Returns the endorsements that an assembly needs.
    pub(crate) fn endorsements(&self, members: usize) -> usize {
        match self.threshold {
            Threshold::All => members,
            Threshold::AtLeast(least) => least.min(members),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_named() {
        let of = |change: fn(&mut SequencerOptions)| {
            let mut options = SequencerOptions::default();
            change(&mut options);
            options.check(4)
        };
        assert_eq!(of(|_| {}), Ok(()));
        let beat = Duration::from_millis(99);
        assert_eq!(of(|it| it.beat = Duration::from_millis(99)), Err(SequencerConfigError::Beat(beat)));
        assert_eq!(of(|it| it.grace = 1), Err(SequencerConfigError::Grace(1)));
        assert_eq!(of(|it| it.block_range = 0), Err(SequencerConfigError::Zero("block_range")));
        assert_eq!(of(|it| it.max_ahead = 0), Err(SequencerConfigError::Zero("max_ahead")));
        assert_eq!(of(|it| it.max_ahead = 101), Err(SequencerConfigError::Ahead(101)));
        let error = SequencerConfigError::InFlight { in_flight: 1_001, members: 4 };
        assert_eq!(of(|it| it.max_in_flight = 1_001), Err(error));
        let (state, request) = (Duration::from_secs(3), Duration::from_secs(3));
        let error = SequencerConfigError::StateTimeout { state, request };
        assert_eq!(of(|it| it.state_timeout = Duration::from_secs(3)), Err(error));
        let too_long = |option| Err(TooLong { option, time: Duration::MAX }.into());
        assert_eq!(of(|it| it.beat = Duration::MAX), too_long("beat"));
        assert_eq!(of(|it| it.flush_timeout = Duration::MAX), too_long("flush_timeout"));
        assert_eq!(of(|it| it.retry = Duration::MAX), too_long("retry"));
        assert_eq!(of(|it| it.request_timeout = Duration::MAX), too_long("request_timeout"));
        assert_eq!(of(|it| it.state_timeout = Duration::MAX), too_long("state_timeout"));
        assert_eq!(of(|it| it.solo = Solo::After(Duration::MAX)), too_long("solo"));
        let silence = Duration::from_secs(u32::MAX.into());
        let error = TooLong { option: "beat x grace", time: silence };
        assert_eq!(of(|it| it.grace = u32::MAX), Err(error.into()));
        for asked in [0, 5] {
            let options = SequencerOptions { threshold: Threshold::AtLeast(asked), ..Default::default() };
            assert_eq!(options.check(4), Err(SequencerConfigError::Threshold { asked, members: 4 }));
        }
    }

    #[test]
    fn a_range_begins_at_a_multiple_of_its_length() {
        let options = SequencerOptions { block_range: 4, ..SequencerOptions::default() };
        assert_eq!([0, 3, 4, 7, 8].map(|height| options.range(height)), [0, 0, 1, 1, 2]);
    }
}
