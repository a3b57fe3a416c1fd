//! The calls of the application.

use tokio::sync::oneshot;

use super::super::application::{Domain, Ledger, NodeStore};
use super::super::{SequencerError, SequencerStatus};
use super::{Call, Driver};
use crate::sequencer_state::{End, Event, Intent, Record, SubmitError};

impl<D: Domain, L: Ledger, S: NodeStore> Driver<D, L, S> {
    pub(super) async fn on_call(&mut self, call: Call) -> Result<(), SequencerError> {
        match call {
            Call::Submit(intent, answer, end) => self.submit(intent, answer, end).await,
            Call::Status(answer) => {
                // The caller may have gone.
                let _ = answer.send(self.status());
                Ok(())
            }
            Call::Close => Ok(()),
        }
    }

    async fn submit(
        &mut self,
        intent: Intent,
        answer: oneshot::Sender<Result<(), SubmitError>>,
        end: oneshot::Sender<End>,
    ) -> Result<(), SequencerError> {
        let id = intent.id.clone();
        if !self.machine.is_undecided(&id) {
            // One that has ended is not to begin again.
            let has_just_ended = |it: &Record| matches!(it, Record::Ended { intent, .. } if *intent == id);
            if self.state.unwritten.iter().any(has_just_ended) {
                self.commit().await?;
            }
            let refused = match self.store.find(&id).await.map_err(SequencerError::store)? {
                Some((known, _)) if known != intent => Some(SubmitError::OtherContent(id.clone())),
                Some((_, Some(known))) => {
                    // The caller may have gone.
                    let _ = (answer.send(Ok(())), end.send(known));
                    return Ok(());
                }
                _ if self.machine.undecided().len() >= self.max_undecided => {
                    Some(SubmitError::TooMany(self.max_undecided))
                }
                _ => None,
            };
            if let Some(refused) = refused {
                let _ = answer.send(Err(refused));
                return Ok(());
            }
        }
        let waiting = self.state.waiting.entry(id).or_default();
        waiting.retain(|waiting| !waiting.is_closed());
        waiting.push(end);
        self.state.submitting.push_back(answer);
        self.handle(Event::Submit(intent));
        Ok(())
    }

    fn status(&self) -> SequencerStatus {
        let machine = &self.machine;
        SequencerStatus {
            node: self.keys.me().clone(),
            phase: machine.phase(),
            epoch: machine.epoch(),
            height: machine.height(),
            coordinator: machine.choice().clone(),
            rank: machine.rank().to_vec(),
            delegate: machine.delegate().cloned(),
            silent: machine.silent().iter().cloned().collect(),
            undecided: machine.undecided().len(),
        }
    }
}
