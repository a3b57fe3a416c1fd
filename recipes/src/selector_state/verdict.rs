//! The outcomes of a selection.

use std::fmt;
use std::time::Duration;

use geolock_client::DcId;

use super::record::{Record, TxId};
use crate::selector_state::token::{Token, TokenId};

/// A token that a selection could not get, and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// The token; `None` if it is about all tokens of the pool.
    pub token: Option<TokenId>,
    /// The holder.
    pub by: Holder,
}

/// The reason why a token cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// A transaction has selected it. `tx` is the label of its lock.
    Locked {
        /// The transaction.
        tx: String,
    },
    /// A transaction has reserved it: it may be on the ledger.
    Reserved {
        /// The transaction.
        tx: String,
    },
    /// The selection of another transaction has waited for long, and goes first.
    Need {
        /// The transaction.
        tx: String,
    },
    /// Its lock is in a datacenter that cannot be reached.
    Unreachable {
        /// The datacenter.
        dc: DcId,
    },
    /// The key of its mark has something that no selector has written. Remove the key.
    UnreadableMark,
}

impl HeldBy {
    /// Returns true if that transaction itself has selected the token.
    pub(crate) fn is_of(&self, tx: &TxId) -> bool {
        matches!(&self.by, Holder::Locked { tx: holder } if *holder == tx.as_str())
    }
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.token {
            Some(token) => write!(f, "token {token}: ")?,
            None => f.write_str("the pool: ")?,
        }
        match &self.by {
            Holder::Locked { tx } => write!(f, "selected by {tx}"),
            Holder::Reserved { tx } => write!(f, "reserved by {tx}"),
            Holder::Need { tx } => write!(f, "{tx} has waited for long and goes first"),
            Holder::Unreachable { dc } => write!(f, "its lock is in {dc}, which cannot be reached"),
            Holder::UnreadableMark => f.write_str("its mark cannot be read: remove the key"),
        }
    }
}

/// A limit that a selection has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// [`SelectorOptions::max_inputs`](crate::selector::SelectorOptions::max_inputs).
    Inputs,
    /// [`SelectorOptions::max_examined`](crate::selector::SelectorOptions::max_examined).
    Examined,
    /// [`SelectorOptions::max_locked`](crate::selector::SelectorOptions::max_locked).
    Locked,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Inputs => "max_inputs",
            Limit::Examined => "max_examined",
            Limit::Locked => "max_locked",
        })
    }
}

/// The end of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds these tokens.
    Picked {
        tokens: Vec<Token>,
        fence: u64,
    },
    /// The transaction had selected before, at another replica.
    Adopted(Record),
    Insufficient {
        have: u128,
    },
    Locked {
        free: u128,
        by: Vec<HeldBy>,
        retry_after: Duration,
    },
    Timeout,
    SourceUnavailable,
    Limit {
        which: Limit,
        most: usize,
    },
}
