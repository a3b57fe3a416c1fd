//! A ledger with one contract: blocks, a mempool by signer and nonce, states that are spent once, and the
//! rules of the intent and of the epoch.

use std::collections::{BTreeMap, BTreeSet};

use super::super::events::{LedgerView, Outcome, Revert};
use super::super::words::{AssemblyHash, Epoch, Intent, IntentId, Node, StateId, Transaction};
use crate::dice::Dice;

#[derive(Default)]
pub struct Ledger {
    /// The block of height 1 is the first one.
    pub blocks: Vec<Vec<Outcome>>,
    mempool: BTreeMap<Node, BTreeMap<u64, Transaction>>,
    decided_nonces: BTreeMap<Node, u64>,
    unspent: BTreeSet<StateId>,
    pub epoch: Option<Epoch>,
    pub confirmed: BTreeSet<IntentId>,
    pub decided: BTreeSet<(IntentId, Epoch, AssemblyHash)>,
    pub reverts: BTreeMap<&'static str, u64>,
}

impl Ledger {
    pub fn new(states: u64) -> Ledger {
        Ledger { unspent: first_states(states).collect(), ..Ledger::default() }
    }

    pub fn height(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub fn is_decided(&self, transaction: &Transaction) -> bool {
        self.decided_nonces.get(&transaction.signer).is_some_and(|nonce| *nonce >= transaction.nonce)
    }

    /// A mempool takes the first transaction of a nonce.
    pub fn submit(&mut self, transaction: Transaction) {
        if !self.is_decided(&transaction) {
            let of_signer = self.mempool.entry(transaction.signer.clone()).or_default();
            of_signer.entry(transaction.nonce).or_insert(transaction);
        }
    }

    /// Makes a block of all that is ready: in the order of nonces for each signer, signers mixed by chance.
    pub fn mine(&mut self, dice: &mut Dice) {
        let mut block = Vec::new();
        loop {
            let ready: Vec<Node> = self
                .mempool
                .iter()
                .filter(|(node, of_signer)| self.next_of(node, of_signer))
                .map(|(node, _)| node.clone())
                .collect();
            if ready.is_empty() {
                break;
            }
            let signer = &ready[dice.place(ready.len())];
            let of_signer = self.mempool.get_mut(signer).expect("it is one of its keys");
            let (nonce, transaction) = of_signer.pop_first().expect("its next nonce is there");
            self.decided_nonces.insert(signer.clone(), nonce);
            let result = self.apply(&transaction);
            block.push(Outcome { transaction, result });
        }
        self.blocks.push(block);
    }

    fn next_of(&self, signer: &Node, of_signer: &BTreeMap<u64, Transaction>) -> bool {
        let next = self.decided_nonces.get(signer).map_or(1, |nonce| nonce + 1);
        of_signer.first_key_value().is_some_and(|(nonce, _)| *nonce == next)
    }

    fn apply(&mut self, transaction: &Transaction) -> Result<(), Revert> {
        let Transaction { assembly, hash, epoch, .. } = transaction;
        self.decided.insert((assembly.intent.clone(), *epoch, *hash));
        let result = if self.confirmed.contains(&assembly.intent) {
            Err((Revert::DuplicateIntent, "duplicate intent"))
        } else if *epoch != Epoch::SOLO && self.epoch.is_some_and(|highest| *epoch < highest) {
            Err((Revert::StaleEpoch, "stale epoch"))
        } else if assembly.inputs.iter().any(|input| !self.unspent.contains(input)) {
            Err((Revert::Spent, "spent"))
        } else if assembly.intent.name.starts_with("refused") {
            Err((Revert::Contract("not so".to_owned()), "refused"))
        } else {
            Ok(())
        };
        if let Err((revert, name)) = result {
            *self.reverts.entry(name).or_default() += 1;
            return Err(revert);
        }
        self.epoch = self.epoch.max(Some(*epoch));
        self.confirmed.insert(assembly.intent.clone());
        assembly.inputs.iter().for_each(|input| {
            self.unspent.remove(input);
        });
        self.unspent.extend(assembly.outputs.iter().cloned());
        Ok(())
    }

    /// The view that a node with that height has at its start.
    pub fn view(&self, height: u64, intents: &[Intent]) -> LedgerView {
        let mut view = LedgerView { height, ..LedgerView::default() };
        for outcome in self.blocks[..height as usize].iter().flatten() {
            let Outcome { transaction, result } = outcome;
            view.decided_nonces.insert(transaction.signer.clone(), transaction.nonce);
            if result.is_ok() {
                view.epoch = view.epoch.max(Some(transaction.epoch));
                if intents.iter().any(|intent| intent.id == *transaction.intent()) {
                    view.confirmed.insert(transaction.intent().clone());
                }
            }
        }
        view
    }
}

pub fn first_states(states: u64) -> impl Iterator<Item = StateId> {
    (0..states).map(|number| StateId::new(&format!("genesis-{number}")))
}
