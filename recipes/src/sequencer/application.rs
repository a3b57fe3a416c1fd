//! The application's side of a sequencer: its domain, its ledger, and its node's database.

use std::fmt::Display;

use crate::sequencer_state::{
    Assembly, End, Intent, IntentId, LedgerView, Node, NotAssembled, Outcome, Record, Restored, Speculation,
    Threshold, Transaction,
};

/// The rules of a contract, as one of its nodes applies them.
pub trait Domain: Send + Sync + 'static {
    /// Returns the members of the contract, in any order, this node among them. All members return the same.
    fn committee(&self) -> Vec<Node>;

    /// Returns how many members have to endorse an assembly. All members return the same. Default: all.
    fn threshold(&self) -> Threshold {
        Threshold::All
    }

    /// Makes an intent of this node concrete, on top of the states that this node knows as confirmed and of
    /// the effects of `speculation`. The names of its states have up to 256 bytes, 1 536 together, and its
    /// payload has up to 64 KiB. Called again when the assembly cannot be used.
    ///
    /// The future is dropped when the sequencer is closed.
    fn assemble(
        &self,
        intent: &Intent,
        speculation: &Speculation,
    ) -> impl Future<Output = Result<Assembly, NotAssembled>> + Send;

    /// Decides if this node endorses an assembly, of any member. An error is the reason why it does not. May
    /// be called again for the same one.
    fn endorse(&self, assembly: &Assembly) -> impl Future<Output = Result<(), String>> + Send;
}

/// A block of the ledger: the transactions of one contract in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub height: u64,
    /// In their order. Empty if the block has none of the contract.
    pub outcomes: Vec<Outcome>,
}

/// This node's view of the ledger, for one contract. Other nodes may be at other heights.
///
/// The contract on the ledger confirms a transaction only if its intent was not confirmed before, and if its
/// epoch is not below the highest that was confirmed, except [`Epoch::SOLO`](super::Epoch::SOLO).
pub trait Ledger: Send + Sync + 'static {
    /// An error that passes: the call is made again.
    type Error: Display + Send;

    /// Returns the view at its present height: which of these intents are confirmed, the highest confirmed
    /// epoch, and the highest decided nonce of each signer.
    fn view(&self, intents: Vec<IntentId>) -> impl Future<Output = Result<LedgerView, Self::Error>> + Send;

    /// Hands in a transaction; returns before it is decided. Transactions of a signer are decided in the
    /// order of their nonces. One that is there, or was decided before, changes nothing.
    fn submit(&self, transaction: &Transaction) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns blocks above a height, without gaps and in order: at least one, and a bounded number. Waits
    /// until there is one. Dropping the future loses none.
    fn blocks(&self, above: u64) -> impl Future<Output = Result<Vec<Block>, Self::Error>> + Send;
}

/// The database of a node for a contract. Nobody else writes to it while the node runs.
pub trait NodeStore: Send + 'static {
    /// An error after which the node stops: it cannot keep its promises without its database.
    type Error: Display + Send;

    /// Reads everything that is open.
    fn load(&mut self) -> impl Future<Output = Result<Restored, Self::Error>> + Send;

    /// Writes these, in order. When it returns they are durable.
    fn write(&mut self, records: Vec<Record>) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns an intent that was ever written, and its end if it has ended.
    fn find(
        &mut self,
        intent: &IntentId,
    ) -> impl Future<Output = Result<Option<(Intent, Option<End>)>, Self::Error>> + Send;
}
