//! What is at a key, or in a field of a map.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::crdt::VersionVector;
use crate::crdt::value::digest::{Place, Shown};
use crate::crdt::value::leaf::Leaf;
use crate::crdt::value::state::State;
use crate::crdt::value::{At, Dot, Op, OpError, PathStep, ReadBudget, Reading, Type, Update};
use crate::names::DcId;

/// A value, or none. Only when datacenters first wrote it as different types at the same time are there several; then
/// readers see the one whose type comes first in [`Type`], and the others stay out of sight until it is empty again.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Slots(
    /// By type, each once; none is empty, though one may be out of sight.
    pub(super) SmallVec<[State; 1]>,
);

impl Slots {
    /// The type that readers see; `None` while there is nothing.
    pub fn value_type(&self) -> Option<Type> {
        self.visible().map(State::value_type)
    }

    /// Applies one operation of a commit. Total: whatever passed [`Update::validate`] can be applied, whether or not
    /// [`Slots::check`] would have let it through here.
    pub fn apply(&mut self, update: &Update, at: &At<'_>) {
        debug_assert_eq!(update.validate(), Ok(()), "{update:?} was validated when it came in");
        self.apply_within(&update.path, &update.op, at);
    }

    /// Whether a client of datacenter `me` may do this to the value as it is here now.
    pub fn check(&self, update: &Update, me: DcId) -> Result<(), OpError> {
        update.validate()?;
        self.check_within(&update.path, &update.op, me)
    }

    /// What a reader in datacenter `me` sees; `None` if there is nothing: then it is the empty value of every type.
    pub fn read(&self, me: DcId) -> Option<Reading> {
        self.read_within(me, &mut ReadBudget::new(usize::MAX))
    }

    /// The same; only the beginning of it if it takes more than the budget, which is overdrawn then.
    pub fn read_within(&self, me: DcId, budget: &mut ReadBudget) -> Option<Reading> {
        self.visible().map(|state| state.read(me, budget))
    }

    /// If readers see a bounded counter: the rights of each datacenter that has some.
    pub fn rights(&self) -> Vec<(DcId, u64)> {
        match self.visible() {
            Some(State::Leaf(Leaf::BoundedCounter(counter))) => counter.all_rights(),
            _ => Vec::new(),
        }
    }

    /// Whether nothing is left: as if it had never been written. Readers may see nothing before that, while marks are
    /// left that concurrent operations need ([`Slots::settle`]).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether readers see anything.
    pub fn is_visible(&self) -> bool {
        self.visible().is_some()
    }

    /// Forgets what only operations that have not seen `stable` could ask for: there will be none any more. Readers
    /// see no change.
    pub fn settle(&mut self, stable: &VersionVector) {
        if self.has_marks() {
            self.0.retain(|state| {
                state.settle(stable);
                !state.is_empty()
            });
        }
    }

    /// The same for at most so many marked elements or fields, those after `after`; each counts, and a value that has none counts
    /// as one. Names the last of them if there are more.
    pub fn settle_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        let [state] = &mut self.0[..] else {
            *most = most.saturating_sub(1);
            self.settle(stable);
            return None;
        };
        let next = if state.has_marks() { state.settle_some(stable, after, most) } else { None };
        if state.is_empty() {
            self.0.clear();
        }
        next
    }

    /// Whether there is anything to settle.
    pub(super) fn has_marks(&self) -> bool {
        self.0.iter().any(State::has_marks)
    }

    /// The commit that wrote the value for the last time, if its type says that nothing follows: then the key may go once
    /// every datacenter knows. Not while values of other types are out of sight that somebody may want.
    pub fn done_by(&self) -> Option<Dot> {
        let mut values = self.0.iter().filter(|state| state.is_visible());
        let first = values.next()?.done_by()?;
        values.try_fold(first, |last, state| Some(last.max(state.done_by()?)))
    }

    /// A digest of what readers see, so that equal readings have equal digests: a sum over what is visible, seeded by
    /// the key. `seed` mixes the key in.
    pub fn digest(&self, seed: u128) -> Shown {
        self.digest_at(Place(seed))
    }

    /// The part of [`Slots::digest`] that this operation may change: `digest` changes by as much as this does. Its cost
    /// depends on what the operation names, not on how large the value is (a reset names all; so does everything while
    /// the value has several types).
    pub fn digest_near(&self, seed: u128, update: &Update) -> Shown {
        self.digest_near_within(Place(seed), &update.path, &update.op)
    }

    fn visible(&self) -> Option<&State> {
        self.0.iter().find(|state| state.is_visible())
    }

    fn find(&self, of: Type) -> Result<usize, usize> {
        // Nearly always one.
        self.0.binary_search_by_key(&of, State::value_type)
    }

    /// `path` is what is left of an update's path.
    pub(super) fn apply_within(&mut self, path: &[PathStep], op: &Op, at: &At<'_>) {
        let slot = match self.find(type_of(path, op)) {
            Ok(slot) => slot,
            Err(slot) => {
                self.0.insert(slot, State::for_op(path, op));
                slot
            }
        };
        self.0[slot].apply(path, op, at);
        if self.0[slot].is_empty() {
            self.0.remove(slot);
        }
    }

    pub(super) fn check_within(&self, path: &[PathStep], op: &Op, me: DcId) -> Result<(), OpError> {
        let wanted = type_of(path, op);
        match self.value_type() {
            Some(is) if is != wanted => return Err(OpError::WrongType { is, wanted }),
            _ => {}
        }
        match self.find(wanted) {
            Ok(slot) => self.0[slot].check(path, op, me),
            Err(_) => State::for_op(path, op).check(path, op, me),
        }
    }

    /// Takes away what that operation's transaction had seen, of every type.
    pub(super) fn reset(&mut self, at: &At<'_>) {
        self.0.retain(|state| {
            state.reset(at);
            !state.is_empty()
        });
    }

    pub(super) fn digest_at(&self, place: Place) -> Shown {
        self.visible().map_or_else(Shown::default, |state| state.digest(place))
    }

    pub(super) fn digest_near_within(&self, place: Place, path: &[PathStep], op: &Op) -> Shown {
        let wanted = type_of(path, op);
        if self.0.iter().any(|state| state.is_visible() && state.value_type() != wanted) {
            // The operation may change which slot readers see, and with that everything.
            return self.digest_at(place);
        }
        let slot = self.find(wanted);
        slot.map_or_else(|_| Shown::default(), |slot| self.0[slot].digest_near(place, path, op))
    }
}

/// The type of value that an operation is for, with that much of its path left.
fn type_of(path: &[PathStep], op: &Op) -> Type {
    path.first().map_or_else(|| op.value_type(), |step| step.map.value_type())
}
