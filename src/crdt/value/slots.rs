//! What is at a key, or in a field of a map.

use smallvec::SmallVec;

use crate::crdt::VersionVector;
use crate::crdt::value::state::State;
use crate::crdt::value::{At, OpError, Reading, Type, Update};
use crate::names::DcId;

/// A value, or none. Only when datacenters first wrote it as different types at the same time are there several; then
/// readers see the one whose type comes first in [`Type`], and the others stay out of sight until it is reset.
#[derive(Clone, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Slots(SmallVec<[(Type, State); 1]>);

impl Slots {
    /// The type that readers see; `None` while there is nothing.
    pub fn value_type(&self) -> Option<Type> {
        self.0.iter().filter(|(_, state)| !state.is_empty()).map(|(of, _)| *of).min()
    }

    /// Applies one operation of a commit. Total: whatever passed [`Update::validate`] can be applied, whether or not
    /// [`Slots::check`] would have let it through here.
    pub fn apply(&mut self, update: &Update, at: &At<'_>) {
        let of = update.root_type();
        let slot = match self.0.iter().position(|(has, _)| *has == of) {
            Some(slot) => slot,
            None => {
                self.0.push((of, State::new(of)));
                self.0.len() - 1
            }
        };
        self.0[slot].1.apply(&update.op, at);
    }

    /// Whether a client of datacenter `me` may do this to the value as it is here now.
    pub fn check(&self, update: &Update, me: DcId) -> Result<(), OpError> {
        update.validate()?;
        let wanted = update.root_type();
        match self.value_type() {
            Some(is) if is != wanted => return Err(OpError::WrongType { is, wanted }),
            _ => {}
        }
        match self.0.iter().find(|(of, _)| *of == wanted) {
            Some((_, state)) => state.check(&update.op, me),
            None => State::new(wanted).check(&update.op, me),
        }
    }

    /// What a reader in datacenter `me` sees; `None` if there is nothing.
    pub fn read(&self, me: DcId) -> Option<Reading> {
        let of = self.value_type()?;
        self.0.iter().find(|(has, _)| *has == of).map(|(_, state)| state.read(me))
    }

    /// Whether nothing is left: as if it had never been written.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, state)| state.is_empty())
    }

    /// Forgets what only operations that have not seen `stable` could ask for: there will be none any more. Readers
    /// see no change.
    pub fn settle(&mut self, stable: &VersionVector) {
        self.0.iter_mut().for_each(|(_, state)| state.settle(stable));
    }

    /// A digest of what readers see, so that equal readings have equal digests: a sum over what is visible, seeded by
    /// the key. `seed` mixes the key in.
    pub fn digest(&self, _seed: u128) -> u128 {
        0
    }

    /// The part of [`Slots::digest`] that this operation may change: `digest` changes by as much as this does. Its cost
    /// depends on what the operation names, not on how large the value is (a reset names all).
    pub fn digest_near(&self, _seed: u128, _update: &Update) -> u128 {
        0
    }
}
