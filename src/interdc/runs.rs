//! The runs of a peer. A server whose machine or data directory was copied runs twice under one identity, and
//! both runs grant the same locks.
//!
//! The hello of each run has a number of its own. A run that is started ends the one before it, so the number
//! of an earlier run does not come back. If it does, again and again, both run: the connection of one
//! replaces that of the other, and each connects again. Then both are refused for good, with a reason that
//! stops them.

use super::error::{DownReason, Refusal};
use super::hello::Hello;
use super::shared::Peer;

/// How many times an earlier run has to come back. Once may be the last connection of a run that has ended,
/// delayed in the network.
const RETURNS: u32 = 2;
/// Most numbers of earlier runs, and of refused ones, that are remembered: the latest.
const REMEMBERED: usize = 16;

/// The runs of a peer that have said hello.
#[derive(Default)]
pub(super) struct Runs {
    /// The number of the latest one; 0 before the first.
    latest: u64,
    /// Those before it, oldest first.
    earlier: Vec<u64>,
    /// How many times an earlier run came back since the last new one.
    returns: u32,
    /// Those that run at the same time as another one.
    refused: Vec<u64>,
}

/// The conclusion from a hello about the runs of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Noted {
    /// As far as is known, only this one runs.
    Only,
    /// Two run at the same time, and this hello proves it.
    Twice,
    /// The same, known before.
    TwiceBefore,
}

impl Runs {
    fn note(&mut self, run: u64) -> Noted {
        if self.refused.contains(&run) {
            return Noted::TwiceBefore;
        }
        if run == self.latest {
            return Noted::Only;
        }
        let before = std::mem::replace(&mut self.latest, run);
        let comes_back = self.earlier.contains(&run);
        self.earlier.retain(|earlier| *earlier != run);
        remember(&mut self.earlier, before);
        self.returns = if comes_back { self.returns + 1 } else { 0 };
        if self.returns < RETURNS {
            return Noted::Only;
        }
        remember(&mut self.refused, before);
        remember(&mut self.refused, run);
        Noted::Twice
    }
}

fn remember(runs: &mut Vec<u64>, run: u64) {
    if runs.len() == REMEMBERED {
        runs.remove(0);
    }
    runs.push(run);
}

impl Peer {
    /// Checks that it is the server that has the id now, as far as is known, and that only one run of it is
    /// there.
    pub(super) fn recognize(&self, hello: &Hello) -> Result<(), Refusal> {
        if let Some(known) = self.generation().filter(|known| hello.generation != u32::from(*known)) {
            return Err(Refusal::WrongGeneration { found: hello.generation, known });
        }
        let noted = self.runs.lock().expect("nothing panics while it holds the runs").note(hello.incarnation);
        if noted == Noted::Only {
            return Ok(());
        }
        let refusal = Refusal::RunsTwice(self.id);
        if noted == Noted::Twice {
            tracing::error!(peer = %self.id, "two servers run at the same time with one identity: its data directory or \
                machine was copied. Both are refused, and stop. Find out which of them is the copy, remove that, and \
                start the other one");
            if let Some(link) = self.link() {
                link.end(DownReason::ClosedHere(refusal.to_string()));
            }
        }
        Err(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(hellos: &[u64]) -> Vec<Noted> {
        let mut runs = Runs::default();
        hellos.iter().map(|run| runs.note(*run)).collect()
    }

    #[test]
    fn runs_that_follow_each_other_are_one_at_a_time() {
        let one_by_one: Vec<u64> = (1..100).flat_map(|run| [run, run]).collect();
        assert!(noted(&one_by_one).iter().all(|noted| *noted == Noted::Only));
    }

    #[test]
    fn the_last_connection_of_a_run_that_has_ended_may_come_late() {
        assert!(noted(&[1, 2, 1, 2, 3, 4, 3, 4]).iter().take(3).all(|noted| *noted == Noted::Only));
        assert!(noted(&[1, 2, 1, 3, 2, 4]).iter().all(|noted| *noted == Noted::Only));
    }

    #[test]
    fn two_runs_that_take_turns_are_both_refused_from_then_on_and_a_later_one_is_not() {
        use Noted::{Only, Twice, TwiceBefore};
        assert_eq!(
            noted(&[1, 2, 1, 2, 1, 2, 3, 3]),
            [Only, Only, Only, Twice, TwiceBefore, TwiceBefore, Only, Only]
        );
    }
}
