//! Listing the keys that have a value.

use super::{RecordIndex, Store};
use crate::base::tables::RowIndex as _;
use crate::base::work;
use crate::crdt::value::SharedValue;
use geolock_api::keys::Key;
use geolock_api::names::Position;

/// Places that a page examines at most.
const PLACES: usize = 1_024;

/// The keys that begin with `prefix` (of [`Key::as_bytes`]) and have a value at the open snapshot `at`.
pub(crate) struct Listing<'a> {
    pub prefix: &'a [u8],
    pub at: Position,
    /// Keys of a page at most.
    pub limit: usize,
}

impl Listing<'_> {
    /// Returns a page of keys, found from place `from` on, and the next place, unless all were examined.
    pub fn page(&self, store: &mut Store, from: usize) -> (Vec<Key>, Option<usize>) {
        let end = from.saturating_add(PLACES).min(store.records.end());
        let (mut found, mut place) = (Vec::new(), from);
        while place < end && found.len() < self.limit {
            let record = store.records.get_mut(RecordIndex::from_row(place));
            place += 1;
            let Some(record) = record.filter(|it| it.key.as_bytes().starts_with(self.prefix)) else {
                continue;
            };
            if SharedValue::new(record.read(self.at).slots(), store.me).is_some() {
                found.push(record.key.clone());
            }
        }
        work::count(place.saturating_sub(from));
        (found, (place < store.records.end()).then_some(place))
    }
}
