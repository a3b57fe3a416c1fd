//! A value as a snapshot shows it, before it is read.

use super::Slots;
use super::state::State;
use geolock_api::names::DcId;
use geolock_api::value::Reading;

/// A value that a reader of a datacenter sees. It shares its elements and fields with the store, so it costs
/// little, however large the value is. Building the [`Reading`] takes time for each element; that is left to
/// who needs it, away from the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedValue {
    state: State,
    reader: DcId,
}

impl SharedValue {
    /// Returns what a reader in datacenter `reader` sees of a value, if that is anything.
    pub fn new(slots: &Slots, reader: DcId) -> Option<SharedValue> {
        slots.visible().map(|state| SharedValue { state: state.clone(), reader })
    }

    /// Builds the reading.
    pub fn reading(&self) -> Reading {
        self.state.read(self.reader)
    }

    /// Returns the [weight](Reading::weight) of the reading, which is not built for that.
    pub fn weight(&self) -> usize {
        self.state.weight()
    }
}
