//! The questions of log recovery: the own one, and those of others that pass here. A question travels along
//! all links, once along each in every round, and an answer returns along the path of its question
//! (`docs/algorithm/recovery.md#3-log-recovery`).

use std::collections::{BTreeMap, VecDeque};

use geolock_api::names::DcId;

/// The own question, and the questions of others that passed here.
#[derive(Default)]
pub(super) struct Questions {
    /// Identifies this run, once it has asked.
    run: Option<u64>,
    round: u64,
    /// Questions of other datacenters that passed here: the last runs of each, latest last.
    asked: BTreeMap<DcId, VecDeque<Question>>,
}

/// Runs of one datacenter whose questions are remembered. With only one, the questions of two runs went round
/// in circles for ever: each was new again after the other.
const RUNS: usize = 8;

/// A question of another datacenter.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub run: u64,
    pub round: u64,
    /// The peer that sent the question, and gets the answers.
    pub from: DcId,
}

impl Questions {
    /// Returns the number that identifies this run, if it has asked.
    pub fn run(&self) -> Option<u64> {
        self.run
    }

    /// Begins the next round of the own question. Returns its number.
    pub fn begin_round(&mut self, run: u64) -> u64 {
        assert!(self.run.is_none_or(|before| before == run), "a run keeps its number");
        self.run = Some(run);
        self.round += 1;
        self.round
    }

    /// Notes a question of `of`. Returns true if it is new.
    pub fn note(&mut self, of: DcId, question: Question) -> bool {
        let runs = self.asked.entry(of).or_default();
        if let Some(known) = runs.iter_mut().find(|known| known.run == question.run) {
            let is_news = question.round > known.round;
            if is_news {
                *known = question;
            }
            return is_news;
        }
        if runs.len() == RUNS {
            runs.pop_front();
        }
        runs.push_back(question);
        debug_assert!(runs.len() <= RUNS, "the memory of questions is bounded");
        true
    }

    /// Returns the peer that sent the question of this run of `of`.
    pub fn sender(&self, of: DcId, run: u64) -> Option<DcId> {
        let asked = self.asked.get(&of)?.iter().find(|asked| asked.run == run);
        asked.map(|asked| asked.from)
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        assert_eq!(self.run.is_some(), self.round > 0, "a round has the number of its run");
        for runs in self.asked.values() {
            assert!((1..=RUNS).contains(&runs.len()), "the memory of questions is bounded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn question(run: u64, round: u64, from: u8) -> Question {
        Question { run, round, from: dc(from) }
    }

    #[test]
    fn a_question_is_new_once_in_each_round_and_answers_return_to_its_last_sender() {
        let mut questions = Questions::default();
        assert!(questions.note(dc(0), question(7, 1, 1)));
        assert!(!questions.note(dc(0), question(7, 1, 2)), "it came along another path");
        assert_eq!(questions.sender(dc(0), 7), Some(dc(1)));
        assert!(questions.note(dc(0), question(7, 2, 2)));
        assert_eq!((questions.sender(dc(0), 7), questions.sender(dc(0), 8)), (Some(dc(2)), None));
        assert!(!questions.note(dc(0), question(7, 1, 1)), "a question of an earlier round is late");
    }

    #[test]
    fn the_last_runs_of_a_datacenter_are_remembered() {
        let mut questions = Questions::default();
        (0..=RUNS as u64).for_each(|run| assert!(questions.note(dc(0), question(run, 1, 1))));
        assert_eq!(questions.sender(dc(0), 0), None);
        assert!((1..=RUNS as u64).all(|run| !questions.note(dc(0), question(run, 1, 1))));
    }

    #[test]
    fn the_own_question_keeps_its_run_over_its_rounds() {
        let mut questions = Questions::default();
        assert_eq!(questions.run(), None);
        assert_eq!((questions.begin_round(9), questions.begin_round(9)), (1, 2));
        assert_eq!(questions.run(), Some(9));
    }
}
