//! The effects of the machine: those that rest on no record, its records, and then all others, in order.

use std::sync::Arc;

use super::super::application::{Domain, Ledger, NodeStore};
use super::super::ask::{assemble, endorse};
use super::super::lock::Command;
use super::super::{SequencerError, Warning};
use super::Driver;
use crate::sequencer_state::{Beat, Effect, LockEffect, Node, Phase};

/// Questions to the domain at a time. Further ones are lost, and asked again.
const MAX_ASKED: usize = 64;

/// An effect that is no record.
pub(super) enum Outward {
    Lock(Command),
    Other(Effect),
}

impl<D: Domain, L: Ledger, S: NodeStore> Driver<D, L, S> {
    /// Takes the effects of the machine over. A request for the lock has its number from here on: news of the
    /// one before are void at once.
    pub(super) fn take_effects(&mut self) {
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                effect if !effect.rests_on_records() => self.state.early.push(effect),
                Effect::Persist(record) => self.state.unwritten.push(record),
                Effect::Lock(effect) => self.lock_effect(effect),
                effect => self.state.outward.push(Outward::Other(effect)),
            }
        }
    }

    pub(super) fn lock_effect(&mut self, effect: LockEffect) {
        match effect {
            LockEffect::Acquire | LockEffect::Release => self.state.lock_number += 1,
            LockEffect::WriteHandover(_) => self.state.handover_number += 1,
        }
        let (number, handover) = (self.state.lock_number, self.state.handover_number);
        self.state.outward.push(Outward::Lock(Command { number, handover, effect }));
    }

    /// Performs the effects that rest on no record, writes all records in one transaction, and then performs
    /// the other effects.
    pub(super) async fn commit(&mut self) -> Result<(), SequencerError> {
        for effect in std::mem::take(&mut self.state.early) {
            self.perform(effect)?;
        }
        if !self.state.unwritten.is_empty() {
            let records = std::mem::take(&mut self.state.unwritten);
            self.store.write(records).await.map_err(SequencerError::store)?;
        }
        for effect in std::mem::take(&mut self.state.outward) {
            match effect {
                // The task is there as long as this.
                Outward::Lock(command) => drop(self.channels.lock.send(command)),
                Outward::Other(effect) => self.perform(effect)?,
            }
        }
        Ok(())
    }

    fn perform(&mut self, effect: Effect) -> Result<(), SequencerError> {
        match effect {
            Effect::Persist(_) | Effect::Lock(_) => unreachable!("they are taken over as something else"),
            Effect::Send { to, message } => {
                if !self.outbox.send(&self.keys.to(&to)?, message) {
                    self.warn(Warning::NotSent { to });
                }
            }
            Effect::Beat(beat) => self.beat(beat),
            // If there is no room it is submitted again later.
            Effect::SubmitToLedger(transaction) => {
                let _ = self.channels.to_ledger.try_send(transaction);
            }
            Effect::Assemble { to, round, intent, speculation } => {
                if self.state.asked.len() < MAX_ASKED {
                    let domain = Arc::clone(&self.domain);
                    self.state.asked.spawn(assemble(domain, to, round, intent, speculation));
                }
            }
            Effect::Endorse { to, round, assembly } => {
                if self.state.asked.len() < MAX_ASKED {
                    self.state.asked.spawn(endorse(Arc::clone(&self.domain), to, round, assembly));
                }
            }
            // The callers of both may have gone.
            Effect::Submitted { answer, .. } => {
                let _ = self.state.submitting.pop_front().map(|caller| caller.send(answer));
            }
            Effect::Finished { intent, end } => {
                for waiting in self.state.waiting.remove(&intent).into_iter().flatten() {
                    let _ = waiting.send(end.clone());
                }
                let _ = self.channels.ends.send((intent, end));
            }
        }
        Ok(())
    }

    /// A heartbeat with another state than the last one goes at once.
    fn beat(&mut self, beat: Beat) {
        let is_routine = self
            .state
            .last_beat
            .as_ref()
            .is_some_and(|last| (last.phase, last.epoch) == (beat.phase, beat.epoch));
        self.state.last_beat = Some(beat.clone()).filter(|beat| beat.phase != Phase::Idle);
        let within = is_routine.then_some(self.beat / 2);
        if !self.outbox.beat(self.keys.beat(), beat, within) {
            self.warn(Warning::NotSent { to: Node::new("*") });
        }
    }
}
