//! The decisions of the ledger on the intents of this node, and the question whose failure a revert is.
//!
//! Transactions rest on each other before the first of them is confirmed. If one of them reverts, all those
//! on top of it revert, too, as their inputs are not there; and of two coordinators that dispatch at a time
//! one spends what the other one's assemblies rest on. Neither is a failure of the intent: it is assembled
//! again, on what is confirmed then. It fails only by the contract's own reason, or if it asks for a state
//! that was not there when it was assembled.

use std::collections::VecDeque;

use super::super::bugs::Bug;
use super::super::events::{End, Failure, Grant, Outcome, Revert};
use super::super::shared::Shared;
use super::super::words::{Assembly, Epoch, Node, StateId};
use super::task::{Stage, Task};
use super::{IntentId, Sender};

/// The latest transactions of the contract that the ledger has decided.
#[derive(Debug, Default)]
pub(super) struct Recent {
    decided: VecDeque<Decided>,
    /// The height of the last one that was forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Decided {
    height: u64,
    is_confirmed: bool,
    inputs: Vec<StateId>,
    outputs: Vec<StateId>,
}

impl Recent {
    fn remember(&mut self, height: u64, outcome: &Outcome, most: usize) {
        let Assembly { inputs, outputs, .. } = outcome.transaction.assembly.clone();
        self.decided.push_back(Decided { height, is_confirmed: outcome.result.is_ok(), inputs, outputs });
        if self.decided.len() > most
            && let Some(oldest) = self.decided.pop_front()
        {
            self.forgotten = oldest.height;
        }
    }

    /// Returns true if one of the states may not be there for a reason that its assembler could not know at
    /// that height: the transaction that was to make it has reverted, or another one has spent it since.
    fn explains(&self, inputs: &[StateId], height: u64) -> bool {
        inputs.iter().any(|input| match self.decided.iter().rev().find_map(|it| it.fate_of(input)) {
            Some(Fate::NotMade) => true,
            Some(Fate::Spent { at }) => at > height,
            Some(Fate::Made) => false,
            None => self.forgotten > height,
        })
    }
}

/// The thing that a transaction did to a state.
enum Fate {
    Made,
    NotMade,
    Spent { at: u64 },
}

impl Decided {
    fn fate_of(&self, state: &StateId) -> Option<Fate> {
        if self.is_confirmed && self.inputs.contains(state) {
            return Some(Fate::Spent { at: self.height });
        }
        let fate = if self.is_confirmed { Fate::Made } else { Fate::NotMade };
        self.outputs.contains(state).then_some(fate)
    }
}

impl Sender {
    pub fn on_block(&mut self, shared: &mut Shared, outcomes: &[Outcome]) {
        self.tasks.values_mut().for_each(|task| task.forget_fenced(&shared.chain));
        let most = shared.options().max_in_flight.saturating_mul(shared.members().len());
        for outcome in outcomes {
            let intent = outcome.transaction.intent().clone();
            match &outcome.result {
                Ok(()) => self.end(shared, &intent, End::Confirmed),
                Err(revert) => self.on_revert(shared, &intent, outcome, revert),
            }
            self.recent.remember(shared.chain.height(), outcome, most);
        }
        self.give_up_hopeless(shared);
    }

    fn on_revert(&mut self, shared: &Shared, intent: &IntentId, outcome: &Outcome, revert: &Revert) {
        let transaction = &outcome.transaction;
        let failure = self.failure_of(shared, outcome, revert);
        let Some(task) = self.task(intent) else { return };
        let (signer, epoch) = (&transaction.signer, transaction.epoch);
        let is_other = |it: &Grant| it.to != *signer || it.epoch != epoch || it.hash != transaction.hash;
        task.grants.retain(is_other);
        task.given_back.retain(|(it, _)| is_other(it));
        let is_it = |by: &(Node, Epoch)| by.0 == *signer && by.1 == epoch;
        let is_last = match &task.stage {
            Stage::Dispatched { by, .. } => by.as_ref().is_none_or(is_it),
            Stage::Pending | Stage::Delegated { .. } => false,
        };
        if is_last && !shared.has(Bug::DispatchTrusted) {
            task.stage = Stage::Pending;
        }
        if let Some(failure) = failure {
            task.failures.count(failure);
            self.note_if_hopeless(shared, intent);
        }
    }

    /// Returns the failure of an intent that a revert is, if it is the intent's own.
    fn failure_of(&self, shared: &Shared, outcome: &Outcome, revert: &Revert) -> Option<Failure> {
        let why = match revert {
            Revert::Spent if shared.has(Bug::SpentIsOwn) => "an input is spent",
            Revert::Spent => {
                let assembly = &outcome.transaction.assembly;
                let task = self.tasks.get(self.numbers.get(&assembly.intent)?)?;
                // A node that was started since does not know what it knew then.
                let height = task.assembled_at(outcome.transaction.hash)?;
                if self.recent.explains(&assembly.inputs, height) {
                    return None;
                }
                "an input is spent"
            }
            Revert::Contract(why) => why,
            Revert::DuplicateIntent | Revert::StaleEpoch => return None,
        };
        Some(Failure::Reverted(why.to_owned()))
    }
}

impl Task {
    /// Notes the height of this node when the domain began with an assembly that is granted now.
    pub(super) fn note_granted(&mut self, hash: super::AssemblyHash) {
        let Task { grants, known, assembly, .. } = self;
        known.retain(|(of, _)| grants.iter().any(|grant| grant.hash == *of));
        let height = assembly.as_ref().filter(|made| made.assembly.hash() == hash).map(|made| made.height);
        known.extend(height.map(|height| (hash, height)));
    }

    fn assembled_at(&self, hash: super::AssemblyHash) -> Option<u64> {
        self.known.iter().find(|(of, _)| *of == hash).map(|(_, height)| *height)
    }
}
