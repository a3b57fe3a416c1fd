//! The promises of a cluster, checked from outside (`docs/algorithm/model.md#4-invariants`).
//!
//! - [`holders`]: no two holders in conflict, tokens and snapshots in the order of the grants; online.
//! - [`history`]: the same, once more and independently, over the finished intervals of a run.
//! - [`transactions`]: commits and their readings; with [`commits`], a model of the expected readings.
//! - [`promises`]: everything that a node announces is durable before, and survives its crashes.
//! - [`forced`]: a client that lost a lock to an operator keeps nothing of it, and hears of it.
//! - [`watched`]: watches get every event once, in order.
//! - [`requests`]: parts go only to datacenters that want them.
//!
//! A client *holds* from the moment it receives a grant that it still wants, under a lease that is valid by
//! its own count, until it decides to release, hears that it lost the lock, or its lease runs out by its own
//! count ([`super::client`] keeps these rules). A client may rely on that, so these intervals must never
//! overlap.

mod commits;
mod forced;
mod history;
mod holders;
mod locked;
mod promises;
mod readings;
mod requests;
mod told;
mod transactions;
mod watched;

pub(super) use forced::ForceReleases;
pub(super) use history::{Interval, verify};
pub(super) use holders::{Holder, HolderId, Holders};
pub(super) use locked::Guard;
pub(super) use promises::{Asked, Promises};
pub(super) use requests::Requests;
pub(super) use transactions::{AskedStep, Intent, MadeAt, READER, Transactions, TxnKey};
pub(super) use watched::Watched;

use crate::sim::failure::FailureKind;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub kind: FailureKind,
    pub what: String,
    /// See [`Failure`](crate::sim::Failure).
    pub detail: String,
}

impl Broken {
    pub fn new(kind: FailureKind, what: String) -> Broken {
        Broken { kind, what, detail: String::new() }
    }

    pub fn with_detail(self, detail: String) -> Broken {
        Broken { detail, ..self }
    }
}
