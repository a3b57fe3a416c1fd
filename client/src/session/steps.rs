//! Answers of the server about transactions.

use super::refusals::is_judged_first;
use super::transactions::{Txn, TxnStage};
use super::{Output, Session, Why};
use crate::error::LostReason;
use crate::tag::Tag;
use crate::txn_error::{CommitError, TxnError, of_step};
use geolock_api::proto::{self, Reason, StepResponse, TransactionState};
use geolock_api::time::Instant;

impl Session {
    /// Processes the answer to a begin: the transaction is open, or it was one step and is over.
    pub(super) fn on_begun(&mut self, number: u64, answer: StepResponse) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        if txn.stage != TxnStage::Beginning {
            return;
        }
        self.drained = 0;
        if answer.state() == TransactionState::Open {
            txn.stage = TxnStage::Open;
            txn.made = std::mem::take(&mut txn.new.step.changes).len();
            if let Some(deadline) = txn.deadline.take() {
                self.overdue.remove(&(deadline + self.settings.connect_timeout, number));
            }
        } else {
            self.forget_txn(number);
        }
        self.outputs.push(Output::Stepped { number, outcome: Ok(answer) });
    }

    /// Processes the answer to the step in flight.
    pub(super) fn on_stepped(&mut self, number: u64, answer: StepResponse) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        if txn.stage != TxnStage::Open {
            return;
        }
        let Some((step, asked)) = txn.steps.pop_front() else { return };
        txn.step_asked = 0;
        txn.made += asked.changes.len();
        let over = answer.state() != TransactionState::Open;
        self.outputs.push(Output::Stepped { number: step, outcome: Ok(answer) });
        if over {
            let message = "a step before it ended the transaction";
            self.end_txn(number, || TxnError::Over(Reason::TransactionCommitted, message.to_owned()).into());
        } else {
            self.ask_step(number);
        }
    }

    /// Processes the outcome of an orphan.
    pub(super) fn on_outcome(&mut self, number: u64, answer: StepResponse) {
        let Some(Txn { stage: TxnStage::Orphan, steps, .. }) = self.txns.get(&number) else { return };
        let waiting = steps.front().map_or(number, |(step, _)| *step);
        self.forget_txn(number);
        self.outputs.push(Output::Stepped { number: waiting, outcome: Ok(answer) });
    }

    pub(super) fn on_txn_refused(&mut self, now: Instant, tag: Tag, error: proto::Error) {
        match tag {
            Tag::Begin(number) => self.on_begin_refused(now, number, error),
            Tag::Step(number) => self.on_step_refused(number, error),
            // The transaction is over, was never begun, or has committed: it has no handle any more.
            Tag::Abort(number) => drop(self.forget_txn(number)),
            Tag::Outcome(number) => self.on_no_outcome(number, error),
            _ => {}
        }
    }

    fn on_begin_refused(&mut self, now: Instant, number: u64, error: proto::Error) {
        let Some(Txn { stage: TxnStage::Beginning, asked, .. }) = self.txns.get(&number) else { return };
        let asked = *asked;
        match error.reason() {
            reason if is_judged_first(reason) && asked > 1 => self.turn_txn_down(number, error),
            Reason::Draining if self.move_on() => {}
            // Its answer was lost, or the server knows higher keys by now. It did not commit and never will.
            Reason::TransactionUnknown if asked > 1 => {
                let key = self.number();
                if let Some(txn) = self.txns.get_mut(&number) {
                    (txn.key, txn.asked) = (key, 0);
                }
                self.ask_begin(now, number);
            }
            _ => {
                self.forget_txn(number);
                self.outputs.push(Output::Stepped { number, outcome: Err(of_step(error)) });
            }
        }
    }

    fn on_step_refused(&mut self, number: u64, error: proto::Error) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        if txn.stage != TxnStage::Open {
            return;
        }
        if is_judged_first(error.reason()) && txn.step_asked > 1 {
            return self.turn_txn_down(number, error);
        }
        let Some((step, _)) = txn.steps.pop_front() else { return };
        txn.step_asked = 0;
        let over = |error: CommitError| {
            matches!(error, CommitError::OutcomeUnknown(_) | CommitError::NotCommitted(TxnError::Over(..)))
        };
        self.outputs.push(Output::Stepped { number: step, outcome: Err(of_step(error.clone())) });
        if over(of_step(error.clone())) {
            self.end_txn(number, || of_step(error.clone()));
        } else {
            self.ask_step(number);
        }
    }

    /// The server refused without looking up the transaction: the call may have been executed when it was
    /// sent first. So the transaction may have committed. If it did not, it is aborted, because its content
    /// is unknown.
    fn turn_txn_down(&mut self, number: u64, error: proto::Error) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        let (began, may_have_committed) = (txn.stage == TxnStage::Beginning, txn.may_have_committed());
        txn.stage = TxnStage::GivenUp;
        let steps = std::mem::take(&mut txn.steps);
        let told = began.then_some(number).into_iter().chain(steps.into_iter().map(|(step, _)| step));
        let why = || match may_have_committed {
            true => CommitError::OutcomeUnknown(error.message.clone()),
            false => TxnError::Over(error.reason(), error.message.clone()).into(),
        };
        self.outputs.extend(told.map(|number| Output::Stepped { number, outcome: Err(why()) }));
        self.send_abort(number);
    }

    /// The server does not know the orphan, so it did not commit. The same follows if the server does not
    /// know the lease: it remembers the commits of an ended lease for longer than the client asks.
    fn on_no_outcome(&mut self, number: u64, error: proto::Error) {
        match error.reason() {
            Reason::Unavailable | Reason::ResourceExhausted => self.leave(Why::NotAttached),
            Reason::OutcomeUnknown => self.end_txn(number, || of_step(error.clone())),
            reason if is_judged_first(reason) => {
                self.end_txn(number, || CommitError::OutcomeUnknown(error.message.clone()));
            }
            Reason::UnknownLease | Reason::LeaseEnded | Reason::Draining => {
                self.end_txn(number, || TxnError::LeaseLost(LostReason::LeaseEnded).into());
            }
            _ => self.end_txn(number, || of_step(error.clone())),
        }
    }
}
