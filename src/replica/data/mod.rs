//! The data of the store: contents, transactions, keys that expire, and commits that wait for a majority.
//!
//! # Decisions
//!
//! - **A commit that is to be durable at a majority is made first** (`majority.rs`,
//!   `docs/algorithm/log.md#25-durable-at-a-majority`). Only its answer waits, so nothing has to be undone,
//!   and locks are not held for a round trip. Rejected: an acknowledgement for every entry, which costs as
//!   much for commits without a waiting client.
//! - **A transaction is named by its lease and idempotency key**, as an acquire is. It has no other id: a
//!   client that lost an answer asks again under the same name.
//! - **A key expires by an entry, not by each clock** (`docs/algorithm/log.md#33-expiry`), and the end is
//!   weaker than a removal: while datacenters cannot communicate, several may log the end of one key.

pub(super) mod counter_escrow;
pub(super) mod expiry;
pub(super) mod majority;
pub(super) mod transactions;

use super::config::ReplicaConfig;
use crate::base::histogram::Histogram;
use crate::replica::data::counter_escrow::CounterEscrow;
use crate::replica::data::expiry::Expiry;
use crate::replica::data::majority::Acknowledgements;
use crate::replica::data::transactions::Transactions;
use crate::store_state::Store;

/// The store and what works on it.
pub(super) struct Data {
    pub store: Store,
    pub transactions: Transactions,
    pub expiry: Expiry,
    pub counter_escrow: CounterEscrow,
    pub acknowledgements: Acknowledgements,
    /// How long answers waited for a majority that has their commits now.
    pub majority_waits: Histogram,
    /// The store has more to fold or to compact than one step does.
    pub store_backlog: bool,
}

impl Data {
    pub fn new(config: &ReplicaConfig) -> Data {
        let hash_seed = config.local.hash_seed;
        Data {
            store: Store::new(config.dc, hash_seed).with_bugs(config.bugs),
            transactions: Transactions::default(),
            expiry: Expiry::new(hash_seed),
            counter_escrow: CounterEscrow::default(),
            acknowledgements: Acknowledgements::new(),
            majority_waits: Histogram::default(),
            store_backlog: false,
        }
    }
}
