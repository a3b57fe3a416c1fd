//! The states of the lifecycle and all transitions between them (`docs/algorithm.md#91-lifecycle`). The
//! picture is at the top of the [parent module](super).

use super::fork::Fork;
use crate::base::time::Instant;
use crate::replica::call::Phase;

/// The state of the lifecycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Just restarted: nothing is stamped before the clock is found right.
    Starting(Start),
    /// The own log may lack entries, or leases may live that this directory does not know.
    ReadOnly,
    /// The own log is whole, and this number of leases has neither reclaimed nor ended since the restart.
    Grace {
        leases: usize,
    },
    Serving,
    /// One log has two histories.
    Forked(Fork),
}

/// The state of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    /// The clock is judged then, and not before, so that reservations of repeated restarts do not add up.
    pub judge_at: Instant,
    /// When the clock was last judged, most peers contradicted it.
    pub contradicted: bool,
    /// Two histories, as the disk or a peer has shown. The start ends with them.
    pub fork: Option<Fork>,
}

/// The judgement on the clock of a restarted server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum Judgement {
    Right,
    /// No peer was heard yet that could confirm it.
    Unconfirmed,
    /// It is ahead of most peers that were heard.
    Contradicted,
}

/// An event that may change the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// The disk was read, and it was not empty.
    Restarted { judge_at: Instant },
    /// The clock was judged. Unless it is right, it is judged again.
    ClockJudged { judgement: Judgement, again_at: Instant },
    /// Two histories of one log were found.
    Forked(Fork),
    /// An operator has chosen this directory.
    ForkResolved,
    /// The [`Facts`] have changed.
    Facts,
}

/// The facts that decide between the states in which the clock may be read and no fork is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// The own log is whole, and no lease can live that this directory does not know.
    pub knows_own_log: bool,
    /// Leases that have neither reclaimed nor ended since the restart.
    pub leases_in_grace: usize,
}

impl Facts {
    fn state(self) -> State {
        match self {
            Facts { knows_own_log: false, .. } => State::ReadOnly,
            Facts { leases_in_grace: 0, .. } => State::Serving,
            Facts { leases_in_grace: leases, .. } => State::Grace { leases },
        }
    }
}

impl State {
    /// Returns the state after an input. `facts` are those after it.
    #[must_use]
    pub fn next(self, input: Input, facts: Facts) -> State {
        use Judgement::{Contradicted, Right, Unconfirmed};
        use State::{Forked, Grace, ReadOnly, Serving, Starting};
        match (self, input) {
            (state, Input::Restarted { judge_at }) => {
                Starting(Start { judge_at, contradicted: false, fork: state.fork() })
            }
            // Only a right clock ends a start.
            (Starting(start), Input::ClockJudged { judgement, again_at }) => match (judgement, start.fork) {
                (Right, None) => facts.state(),
                (Right, Some(fork)) => Forked(fork),
                (Unconfirmed | Contradicted, _) => {
                    Starting(Start { judge_at: again_at, contradicted: judgement == Contradicted, ..start })
                }
            },
            (Starting(start), Input::Forked(fork)) => {
                Starting(Start { fork: Some(start.fork.unwrap_or(fork)), ..start })
            }
            (Starting(start), Input::ForkResolved) => Starting(Start { fork: None, ..start }),
            (Starting(_), Input::Facts) => self,
            // Only an operator ends a fork, before the first step of another run. The first one that was
            // found is kept.
            (Forked(_), Input::ForkResolved) => facts.state(),
            (Forked(_), Input::Forked(_) | Input::ClockJudged { .. } | Input::Facts) => self,
            (ReadOnly | Grace { .. } | Serving, Input::Forked(fork)) => Forked(fork),
            (ReadOnly | Grace { .. } | Serving, Input::Facts) => facts.state(),
            // The clock is judged in a start only, and there is no fork.
            (ReadOnly | Grace { .. } | Serving, Input::ClockJudged { .. } | Input::ForkResolved) => self,
        }
    }

    /// Returns the fork, if one is known.
    pub fn fork(&self) -> Option<Fork> {
        match self {
            State::Starting(start) => start.fork,
            State::Forked(fork) => Some(*fork),
            State::ReadOnly | State::Grace { .. } | State::Serving => None,
        }
    }

    /// Returns the state as clients and operators see it.
    pub fn phase(&self) -> Phase {
        match *self {
            State::Starting(_) => Phase::Starting,
            State::ReadOnly => Phase::ReadOnly,
            State::Grace { leases } => Phase::Grace { leases },
            State::Serving => Phase::Serving,
            State::Forked(Fork { dc, seq, .. }) => Phase::Forked { dc, seq },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State::{Forked, Grace, ReadOnly, Serving, Starting};
    use super::*;
    use geolock_api::names::DcId;

    const RESTART: Input = Input::Restarted { judge_at: Instant::from_nanos(500) };
    const WHOLE: Facts = Facts { knows_own_log: true, leases_in_grace: 0 };
    const IN_GRACE: Facts = Facts { knows_own_log: true, leases_in_grace: 2 };
    const LACKING: Facts = Facts { knows_own_log: false, leases_in_grace: 2 };

    fn fork(seq: u64) -> Fork {
        let dc = DcId::new(1).expect("a small id");
        Fork { dc, seq, ours: 1, theirs: 2, peer: dc }
    }

    fn start(judge_at: u64, contradicted: bool, fork: Option<Fork>) -> State {
        Starting(Start { judge_at: Instant::from_nanos(judge_at), contradicted, fork })
    }

    fn judged(judgement: Judgement) -> Input {
        Input::ClockJudged { judgement, again_at: Instant::from_nanos(900) }
    }

    #[test]
    fn an_empty_directory_is_read_only_until_its_log_is_known() {
        assert_eq!(ReadOnly.next(Input::Facts, LACKING), ReadOnly);
        assert_eq!(ReadOnly.next(Input::Facts, WHOLE), Serving);
    }

    #[test]
    fn a_restart_stamps_nothing_before_its_reservation_is_over() {
        assert_eq!(ReadOnly.next(RESTART, IN_GRACE), start(500, false, None));
    }

    #[test]
    fn a_start_does_not_end_because_the_log_is_whole_or_leases_have_reclaimed() {
        let starting = start(500, false, None);
        assert_eq!(starting.next(Input::Facts, WHOLE), starting);
    }

    #[test]
    fn a_start_goes_on_until_a_peer_confirms_the_clock() {
        let starting = start(500, true, None);
        assert_eq!(starting.next(judged(Judgement::Unconfirmed), WHOLE), start(900, false, None));
    }

    #[test]
    fn a_start_goes_on_while_most_peers_contradict_the_clock() {
        let starting = start(500, false, None);
        assert_eq!(starting.next(judged(Judgement::Contradicted), WHOLE), start(900, true, None));
    }

    #[test]
    fn a_right_clock_ends_the_start() {
        let next = |facts| start(500, true, None).next(judged(Judgement::Right), facts);
        assert_eq!([LACKING, IN_GRACE, WHOLE].map(next), [ReadOnly, Grace { leases: 2 }, Serving]);
    }

    #[test]
    fn leases_are_waited_for_once_the_log_is_whole() {
        assert_eq!(ReadOnly.next(Input::Facts, IN_GRACE), Grace { leases: 2 });
    }

    #[test]
    fn grace_counts_the_leases_that_are_left_and_ends_with_the_last() {
        let one_left = Facts { leases_in_grace: 1, ..IN_GRACE };
        assert_eq!(Grace { leases: 2 }.next(Input::Facts, one_left), Grace { leases: 1 });
        assert_eq!(Grace { leases: 1 }.next(Input::Facts, WHOLE), Serving);
    }

    #[test]
    fn a_peer_that_knows_more_of_the_own_log_ends_grace_and_serving() {
        assert_eq!(Grace { leases: 2 }.next(Input::Facts, LACKING), ReadOnly);
        assert_eq!(Serving.next(Input::Facts, LACKING), ReadOnly);
    }

    #[test]
    fn two_histories_end_everything_but_a_start() {
        for state in [ReadOnly, Grace { leases: 2 }, Serving] {
            assert_eq!(state.next(Input::Forked(fork(7)), WHOLE), Forked(fork(7)));
        }
        let starting = start(500, false, None).next(Input::Forked(fork(7)), WHOLE);
        assert_eq!(starting, start(500, false, Some(fork(7))), "it still may not stamp");
        assert_eq!(starting.fork(), Some(fork(7)), "but it is forked");
        assert_eq!(starting.next(judged(Judgement::Right), WHOLE), Forked(fork(7)));
    }

    #[test]
    fn the_first_fork_is_kept() {
        let found = Input::Forked(fork(8));
        assert_eq!(Forked(fork(7)).next(found, WHOLE), Forked(fork(7)));
        assert_eq!(start(5, false, Some(fork(7))).next(found, WHOLE), start(5, false, Some(fork(7))));
    }

    #[test]
    fn nothing_but_an_operator_ends_a_fork() {
        for input in [Input::Facts, judged(Judgement::Right)] {
            assert_eq!(Forked(fork(7)).next(input, WHOLE), Forked(fork(7)));
        }
        let restarted = Forked(fork(7)).next(RESTART, WHOLE);
        assert_eq!(restarted, start(500, false, Some(fork(7))), "the disk knows");
        assert_eq!(restarted.next(Input::ForkResolved, WHOLE), start(500, false, None));
        assert_eq!(Forked(fork(7)).next(Input::ForkResolved, IN_GRACE), Grace { leases: 2 });
    }

    #[test]
    fn elsewhere_a_judgement_and_a_resolved_fork_change_nothing() {
        for state in [ReadOnly, Grace { leases: 2 }, Serving] {
            assert_eq!(state.next(judged(Judgement::Right), LACKING), state);
            assert_eq!(state.next(Input::ForkResolved, LACKING), state);
        }
    }
}
