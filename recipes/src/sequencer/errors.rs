//! The reasons why a node stops, and what it warns of.

use super::BUCKET;
use crate::sequencer_state::{CommitteeError, Contract, MAX_NAME, Node, StartError};

/// Something noteworthy. The node goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A key of the contract has something that is no message; it is passed over.
    #[error("the key {key} of the bucket {BUCKET} cannot be read: {why}")]
    Unreadable {
        /// The name of the key.
        key: String,
        /// The reason.
        why: String,
    },
    /// Messages did not arrive. They are asked for again.
    #[error("{envelopes} envelopes of {from} were missed")]
    Lost {
        /// The sender.
        from: Node,
        /// Their number.
        envelopes: u64,
    },
    /// A message is not sent: too much waits for a server that does not answer.
    #[error("a message to {to} is not sent: too much waits")]
    NotSent {
        /// The receiver; `*` for a heartbeat.
        to: Node,
    },
    /// The ledger has decided transactions of this node that its database does not know. The node goes on
    /// above their nonces. Intents that were only in the lost database are forgotten, and one that an older
    /// copy takes for open may have ended otherwise than it was told before.
    #[error(
        "the node's database is behind the ledger: it knows of transactions up to number {known}, the ledger has \
         decided number {decided}; the database is lost or an older copy, or another process uses the node's name"
    )]
    DatabaseBehind {
        /// The highest number that the database knows.
        known: u64,
        /// The highest number that the ledger has decided.
        decided: u64,
    },
    /// The ledger cannot be read or written now.
    #[error("the ledger: {0}")]
    Ledger(String),
    /// The ledger lacks blocks. The node waits for them: one of them may have confirmed an intent.
    #[error("the ledger has block {next} after block {after}; the node waits for those in between")]
    LedgerGap {
        /// The last height that was seen.
        after: u64,
        /// The height of the block that it has.
        next: u64,
    },
    /// A block has a height that was seen before. The node waits until the ledger is where it was.
    #[error("the ledger has gone back from {from} to {to}")]
    LedgerWentBack {
        /// The height that was seen.
        from: u64,
        /// The height of the block.
        to: u64,
    },
}

/// The reason why a node cannot take part, or has stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequencerError {
    /// A name cannot be used.
    #[error("a {what} has a name of 1 to {MAX_NAME} bytes without a slash, not {name:?}")]
    Name {
        /// `node` or `contract`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The committee cannot be.
    #[error(transparent)]
    Committee(#[from] CommitteeError),
    /// The options or the database cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The node's database failed. What was not written was not told to anybody.
    #[error("the node's database: {0}")]
    Store(String),
    /// The ledger could not be read at the start, or has panicked.
    #[error("the ledger: {0}")]
    Ledger(String),
    /// The server refuses a call that the node needs, for a permanent reason, or the client is closed.
    #[error("{0}")]
    Refused(String),
    /// This process takes part in the contract already.
    #[error("this node takes part in {0} already")]
    Running(Contract),
    /// The node was closed.
    #[error("the sequencer is closed")]
    Closed,
}

impl Warning {
    /// Returns the warning if the ledger has decided a transaction that the node does not know.
    pub(super) fn if_behind(known: u64, decided: u64) -> Option<Warning> {
        (decided > known).then_some(Warning::DatabaseBehind { known, decided })
    }
}

impl SequencerError {
    pub(super) fn store(error: impl std::fmt::Display) -> SequencerError {
        SequencerError::Store(error.to_string())
    }
}
