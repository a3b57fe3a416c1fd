//! The transactions that this node has dispatched, until the ledger has decided them: in its database before
//! anybody hears of them, submitted under the same nonce again and again, whatever became of the coordinator.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::bugs::Bug;
use super::super::events::{Effect, Record, Restored};
use super::super::shared::Shared;
use super::super::words::{Assembly, AssemblyHash, Epoch, IntentId, Message, Node, Notice, Transaction};

#[derive(Debug)]
pub(super) struct Dispatches {
    open: BTreeMap<u64, Dispatch>,
    last_nonce: u64,
}

#[derive(Debug)]
struct Dispatch {
    transaction: Transaction,
    /// The time at which the ledger is told again.
    submit_at: Duration,
    /// The time at which the sender is told again, until it has acknowledged.
    notify_at: Option<Duration>,
}

impl Dispatches {
    /// Begins with what the database has, as far as the ledger has not decided it meanwhile. The ledger's
    /// word on nonces comes first: the database may be lost, or an older copy.
    pub fn new(shared: &mut Shared, restored: &Restored) -> Dispatches {
        let mut dispatches = Dispatches { open: BTreeMap::new(), last_nonce: 0 };
        dispatches.take_up(shared, restored);
        dispatches
    }

    /// Enters what only the database has, as far as the ledger has not decided it: the ledger waits for each
    /// nonce, so without one of them all later ones would wait for ever.
    pub fn take_up(&mut self, shared: &mut Shared, restored: &Restored) {
        if !shared.has(Bug::NoncesReused) {
            self.last_nonce = self.last_nonce.max(restored.last_nonce);
        }
        for transaction in restored.dispatches.iter().cloned() {
            assert!(transaction.signer == *shared.me(), "the database is this node's");
            if shared.has(Bug::DispatchesForgotten) {
                continue;
            }
            let (submit_at, notify_at) = (Duration::ZERO, Some(Duration::ZERO));
            let dispatch = Dispatch { transaction, submit_at, notify_at };
            self.open.entry(dispatch.transaction.nonce).or_insert(dispatch);
        }
        self.forget_decided(shared);
    }

    /// Returns the highest nonce that this node has used, as far as it knows.
    pub fn last_nonce(&self) -> u64 {
        self.last_nonce
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.open.values().map(|it| &it.transaction)
    }

    pub fn contains(&self, intent: &IntentId) -> bool {
        self.transactions().any(|it| it.intent() == intent)
    }

    /// Returns true if the transaction of a permission is on its way.
    pub fn has(&self, intent: &IntentId, epoch: Epoch, hash: AssemblyHash) -> bool {
        self.transactions().any(|it| it.intent() == intent && it.epoch == epoch && it.hash == hash)
    }

    /// Dispatches an assembly: the database first, then the ledger and the sender.
    pub fn dispatch(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        assembly: Assembly,
        epoch: Epoch,
    ) -> AssemblyHash {
        self.last_nonce += 1;
        let (hash, signer, nonce) = (assembly.hash(), shared.me().clone(), self.last_nonce);
        let transaction = Transaction { assembly, hash, epoch, signer, nonce };
        let written = Effect::Persist(Record::Dispatch(transaction.clone()));
        let submitted = Effect::SubmitToLedger(transaction.clone());
        let order = match shared.has(Bug::SubmitBeforeDispatch) {
            true => [submitted, written],
            false => [written, submitted],
        };
        order.into_iter().for_each(|effect| shared.effect(effect));
        notify(shared, &transaction);
        let (submit_at, notify_at) = again_at(now, shared);
        self.open.insert(nonce, Dispatch { transaction, submit_at, notify_at: Some(notify_at) });
        hash
    }

    /// Forgets transactions that the ledger has decided.
    pub fn forget_decided(&mut self, shared: &mut Shared) {
        let decided = shared.chain.decided_nonce(shared.me());
        if !shared.has(Bug::NoncesReused) {
            self.last_nonce = self.last_nonce.max(decided);
        }
        while let Some((nonce, _)) = self.open.first_key_value().filter(|(nonce, _)| **nonce <= decided) {
            let nonce = *nonce;
            self.open.remove(&nonce);
            shared.persist(Record::DispatchOver { nonce });
        }
    }

    pub fn on_ack(&mut self, from: &Node, notice: &Notice) {
        if let Some(dispatch) = self.open.get_mut(&notice.nonce) {
            let transaction = &dispatch.transaction;
            if transaction.hash == notice.hash && transaction.intent().sender == *from {
                dispatch.notify_at = None;
            }
        }
    }

    /// The ledger is told again after a pause, instead of when a transaction has been open for long.
    pub fn on_not_submitted(&mut self, now: Duration, shared: &Shared, nonce: u64) {
        if let Some(dispatch) = self.open.get_mut(&nonce) {
            dispatch.submit_at = dispatch.submit_at.min(now + shared.options().retry);
        }
    }

    /// Tells the sender again, which has delegated it once more.
    pub fn remind(&mut self, now: Duration, intent: &IntentId) {
        for dispatch in self.open.values_mut().filter(|it| it.transaction.intent() == intent) {
            dispatch.notify_at = Some(now);
        }
    }

    pub fn step(&mut self, now: Duration, shared: &mut Shared) {
        let (submit_again, notify_again) = again_at(now, shared);
        for Dispatch { transaction, submit_at, notify_at } in self.open.values_mut() {
            if *submit_at <= now {
                *submit_at = submit_again;
                shared.effect(Effect::SubmitToLedger(transaction.clone()));
            }
            if let Some(at) = notify_at.as_mut().filter(|at| **at <= now) {
                *at = notify_again;
                notify(shared, transaction);
            }
        }
    }

    pub fn deadline(&self) -> Option<Duration> {
        self.open.values().flat_map(|it| [Some(it.submit_at), it.notify_at]).flatten().min()
    }
}

/// Returns when the ledger, and the sender, are told again.
fn again_at(now: Duration, shared: &Shared) -> (Duration, Duration) {
    let options = shared.options();
    (now + options.state_timeout, now + options.request_timeout)
}

fn notify(shared: &mut Shared, transaction: &Transaction) {
    let Transaction { hash, epoch, nonce, .. } = *transaction;
    let intent = transaction.intent().clone();
    let sender = intent.sender.clone();
    shared.send(&sender, Message::Dispatched(Notice { intent, epoch, hash, nonce }));
}
