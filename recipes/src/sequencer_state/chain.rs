//! The ledger, as far as this node's view of it goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::events::{LedgerView, Outcome};
use super::words::{Epoch, IntentId, Node, Transaction};

#[derive(Debug)]
pub(super) struct Chain {
    height: u64,
    epoch: Option<Epoch>,
    decided_nonces: BTreeMap<Node, u64>,
    /// The latest confirmed intents: a sender whose view is older may still delegate them.
    confirmed: BTreeSet<IntentId>,
    in_order: VecDeque<IntentId>,
    kept: usize,
}

impl Chain {
    /// `kept`: confirmed intents to remember.
    pub fn new(view: &LedgerView, kept: usize) -> Chain {
        Chain {
            height: view.height,
            epoch: view.epoch,
            decided_nonces: view.decided_nonces.clone(),
            confirmed: BTreeSet::new(),
            in_order: VecDeque::new(),
            kept,
        }
    }

    /// Takes the next block. Returns false for any other one: to pass over a block would be to pass over a
    /// confirmation.
    pub fn take(&mut self, height: u64, outcomes: &[Outcome]) -> bool {
        if Some(height) != self.height.checked_add(1) {
            return false;
        }
        self.height = height;
        for Outcome { transaction, result } in outcomes {
            let decided = self.decided_nonces.entry(transaction.signer.clone()).or_default();
            *decided = (*decided).max(transaction.nonce);
            if result.is_ok() {
                self.epoch = self.epoch.max(Some(transaction.epoch));
                self.remember(transaction.intent());
            }
        }
        true
    }

    fn remember(&mut self, intent: &IntentId) {
        if self.confirmed.insert(intent.clone()) {
            self.in_order.push_back(intent.clone());
        }
        if self.in_order.len() > self.kept
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.confirmed.remove(&oldest);
        }
    }

    pub fn height(&self) -> u64 {
        self.height
    }

    /// Returns the highest nonce of a signer that is decided; 0 if none is.
    pub fn decided_nonce(&self, signer: &Node) -> u64 {
        self.decided_nonces.get(signer).copied().unwrap_or_default()
    }

    pub fn has_decided(&self, transaction: &Transaction) -> bool {
        self.decided_nonce(&transaction.signer) >= transaction.nonce
    }

    /// Returns true if the ledger refuses transactions of that epoch from now on.
    pub fn fences(&self, epoch: Epoch) -> bool {
        epoch != Epoch::SOLO && self.epoch > Some(epoch)
    }

    /// Returns true if the intent is one of the latest that were confirmed.
    pub fn has_confirmed(&self, intent: &IntentId) -> bool {
        self.confirmed.contains(intent)
    }
}
