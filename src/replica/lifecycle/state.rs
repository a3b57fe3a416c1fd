//! The states of the lifecycle and all transitions between them (`docs/algorithm/recovery.md#1-lifecycle`).
//! The picture is at the top of the [parent module](super).
//!
//! Only a start and a fork are stored, with all that belongs to them. Between them a datacenter runs, and the
//! [`Facts`] alone decide if it is read-only, in grace, or serving: a phase that contradicts them cannot be
//! represented.

use super::fork::Fork;
use crate::base::time::Instant;
use crate::replica::call::Phase;

/// The state of the lifecycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum State {
    /// Just restarted: nothing is stamped before the clock is found right.
    Starting(Start),
    /// The clock may be read, and no fork is known. The [`Facts`] decide the phase.
    Running,
    /// One log has two histories.
    Forked(Fork),
}

/// The state of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) struct Start {
    /// The clock is judged then, and not before, so that reservations of repeated restarts do not add up.
    pub(super) judge_at: Instant,
    /// When the clock was last judged, most peers contradicted it.
    contradicted: bool,
    /// Two histories, as the disk or a peer has shown. The start ends with them.
    fork: Option<Fork>,
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

/// An event that changes the state.
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
}

/// The facts that decide the phase of a datacenter that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// The own log is whole, no lease can live that this directory does not know, and the member is settled.
    pub knows_own_log: bool,
    /// Leases that have neither reclaimed nor ended since the restart.
    pub leases_in_grace: usize,
}

impl Facts {
    fn phase(self) -> Phase {
        match self {
            Facts { knows_own_log: false, .. } => Phase::ReadOnly,
            Facts { leases_in_grace: 0, .. } => Phase::Serving,
            Facts { leases_in_grace: leases, .. } => Phase::Grace { leases },
        }
    }
}

impl State {
    /// Returns the state after an input.
    #[must_use]
    pub(super) fn next(self, input: Input) -> State {
        use Judgement::{Contradicted, Right, Unconfirmed};
        use State::{Forked, Running, Starting};
        match (self, input) {
            (state, Input::Restarted { judge_at }) => {
                Starting(Start { judge_at, contradicted: false, fork: state.fork() })
            }
            // Only a right clock ends a start.
            (Starting(start), Input::ClockJudged { judgement, again_at }) => match (judgement, start.fork) {
                (Right, None) => Running,
                (Right, Some(fork)) => Forked(fork),
                (Unconfirmed | Contradicted, _) => {
                    assert!(
                        again_at > start.judge_at,
                        "a clock is judged again later, or an update never ends"
                    );
                    Starting(Start { judge_at: again_at, contradicted: judgement == Contradicted, ..start })
                }
            },
            // The first fork that was found is kept.
            (Starting(start), Input::Forked(fork)) => {
                Starting(Start { fork: Some(start.fork.unwrap_or(fork)), ..start })
            }
            (Running, Input::Forked(fork)) => Forked(fork),
            (Forked(_), Input::Forked(_)) => self,
            // Only an operator ends a fork, before the first step of another run.
            (Starting(start), Input::ForkResolved) => Starting(Start { fork: None, ..start }),
            (Running | Forked(_), Input::ForkResolved) => Running,
            // The clock is judged in a start only.
            (Running | Forked(_), Input::ClockJudged { .. }) => self,
        }
    }

    /// Returns true if nothing may be stamped yet after a restart.
    #[inline]
    pub fn is_starting(&self) -> bool {
        matches!(self, State::Starting(_))
    }

    /// Returns true if two histories of one log are known. This may be so in a start.
    #[inline]
    pub fn is_forked(&self) -> bool {
        matches!(self, State::Forked(_) | State::Starting(Start { fork: Some(_), .. }))
    }

    /// Returns the fork, if one is known.
    pub fn fork(&self) -> Option<Fork> {
        match self {
            State::Starting(start) => start.fork,
            State::Forked(fork) => Some(*fork),
            State::Running => None,
        }
    }

    /// Returns true if most peers contradict the clock of this restarted server.
    pub fn is_contradicted(&self) -> bool {
        matches!(self, State::Starting(Start { contradicted: true, .. }))
    }

    /// Returns the phase, as clients and operators see it.
    pub(super) fn phase(&self, facts: Facts) -> Phase {
        match *self {
            State::Starting(_) => Phase::Starting,
            State::Running => facts.phase(),
            State::Forked(Fork { dc, seq, .. }) => Phase::Forked { dc, seq },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State::{Forked, Running, Starting};
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
    fn the_facts_decide_the_phase_of_a_datacenter_that_runs() {
        let phases = [LACKING, IN_GRACE, WHOLE].map(|facts| Running.phase(facts));
        assert_eq!(phases, [Phase::ReadOnly, Phase::Grace { leases: 2 }, Phase::Serving]);
    }

    #[test]
    fn the_facts_decide_nothing_in_a_start_and_beside_a_fork() {
        for facts in [LACKING, IN_GRACE, WHOLE] {
            assert_eq!(start(500, false, None).phase(facts), Phase::Starting);
            assert_eq!(start(500, false, Some(fork(7))).phase(facts), Phase::Starting);
            assert_eq!(Forked(fork(7)).phase(facts), Phase::Forked { dc: fork(7).dc, seq: 7 });
        }
    }

    #[test]
    fn a_restart_stamps_nothing_before_its_reservation_is_over() {
        assert_eq!(Running.next(RESTART), start(500, false, None));
        assert!(start(500, false, None).is_starting());
    }

    #[test]
    fn a_start_goes_on_until_a_peer_confirms_the_clock() {
        let starting = start(500, true, None);
        assert_eq!(starting.next(judged(Judgement::Unconfirmed)), start(900, false, None));
    }

    #[test]
    fn a_start_goes_on_while_most_peers_contradict_the_clock() {
        let starting = start(500, false, None);
        assert!(!starting.is_contradicted());
        assert_eq!(starting.next(judged(Judgement::Contradicted)), start(900, true, None));
        assert!(start(900, true, None).is_contradicted());
    }

    #[test]
    fn a_right_clock_ends_the_start() {
        assert_eq!(start(500, true, None).next(judged(Judgement::Right)), Running);
        assert_eq!(start(500, true, Some(fork(7))).next(judged(Judgement::Right)), Forked(fork(7)));
    }

    #[test]
    fn two_histories_end_everything_but_a_start() {
        assert_eq!(Running.next(Input::Forked(fork(7))), Forked(fork(7)));
        let starting = start(500, false, None).next(Input::Forked(fork(7)));
        assert_eq!(starting, start(500, false, Some(fork(7))), "it still may not stamp");
        assert_eq!(starting.fork(), Some(fork(7)), "but it is forked");
    }

    #[test]
    fn the_first_fork_is_kept() {
        let found = Input::Forked(fork(8));
        assert_eq!(Forked(fork(7)).next(found), Forked(fork(7)));
        assert_eq!(start(5, false, Some(fork(7))).next(found), start(5, false, Some(fork(7))));
    }

    #[test]
    fn nothing_but_an_operator_ends_a_fork() {
        assert_eq!(Forked(fork(7)).next(judged(Judgement::Right)), Forked(fork(7)));
        let restarted = Forked(fork(7)).next(RESTART);
        assert_eq!(restarted, start(500, false, Some(fork(7))), "the disk knows");
        assert_eq!(restarted.next(Input::ForkResolved), start(500, false, None));
        assert_eq!(Forked(fork(7)).next(Input::ForkResolved), Running);
    }

    #[test]
    fn elsewhere_a_judgement_and_a_resolved_fork_change_nothing() {
        assert_eq!(Running.next(judged(Judgement::Right)), Running);
        assert_eq!(Running.next(Input::ForkResolved), Running);
    }

    #[test]
    #[should_panic(expected = "a clock is judged again later")]
    fn a_clock_is_not_judged_again_at_once() {
        let _ = start(900, false, None).next(judged(Judgement::Unconfirmed));
    }
}
