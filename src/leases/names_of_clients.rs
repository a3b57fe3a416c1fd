//! The lock names of each client's requests, over all its leases.

use super::lease::ClientId;
use crate::base::keyed_map::KeyedMap;
use crate::base::tables::{Rows, row_index};

/// Index of a client's row. It is reused after its last lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientIndex(u32);

row_index!(ClientIndex);

/// One client with at least one lease.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub client: ClientId,
    pub leases: usize,
    /// Sum of the lengths of the names that requests of these leases want, in bytes.
    pub names: usize,
}

/// A running sum for each client that has a lease. A lease keeps the row of its client, so a request costs
/// one addition, and nothing is kept of a client whose last lease ended.
pub(super) struct NamesOfClients {
    pub rows: Rows<Row, ClientIndex>,
    pub by_client: KeyedMap<ClientId, ClientIndex>,
}

impl NamesOfClients {
    /// Returns an empty table. `hash_seed` as in [`KeyedMap::with_seed`].
    pub fn new(hash_seed: u64) -> NamesOfClients {
        NamesOfClients { rows: Rows::new(), by_client: KeyedMap::with_seed(hash_seed) }
    }

    pub fn get(&self, index: ClientIndex) -> &Row {
        &self.rows[index]
    }

    /// Adds a lease of a client, with the names that it has.
    pub fn join(&mut self, client: ClientId, names: usize) -> ClientIndex {
        let index = match self.by_client.get(&client) {
            Some(index) => *index,
            None => {
                let index = self.rows.insert(Row { client, leases: 0, names: 0 });
                self.by_client.insert(client, index);
                index
            }
        };
        let row = &mut self.rows[index];
        row.leases += 1;
        row.names += names;
        index
    }

    /// Removes a lease of a client, with the names that it has.
    pub fn leave(&mut self, index: ClientIndex, names: usize) {
        self.sub(index, names);
        let row = &mut self.rows[index];
        row.leases -= 1;
        if row.leases == 0 {
            assert_eq!(row.names, 0, "{:?} has no lease that could have names", row.client);
            let found = self.by_client.remove(&row.client);
            assert_eq!(found, Some(index), "a client is found by its id");
            self.rows.remove(index);
        }
    }

    #[inline]
    pub fn add(&mut self, index: ClientIndex, names: usize) {
        self.rows[index].names += names;
    }

    #[inline]
    pub fn sub(&mut self, index: ClientIndex, names: usize) {
        let row = &mut self.rows[index];
        row.names = row.names.checked_sub(names).expect("what ends was counted when it began");
    }
}
