//! The value of a key, or of a field of a map.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::base::work;
use crate::crdt::VersionVector;
use crate::crdt::value::digest::{Place, Shown};
use crate::crdt::value::leaf::Leaf;
use crate::crdt::value::state::State;
use crate::crdt::value::{At, Dot, element, rules};
use geolock_api::names::DcId;
use geolock_api::value::{Op, OpError, PathStep, READING_OVERHEAD, Reading, Type, Update};

/// A value, or none. There are several only if datacenters concurrently wrote it first as different types.
/// Then readers see the one whose type comes first in [`Type`], and the others are hidden until that one is
/// empty again.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Slots(
    /// Ordered by type, each type once; none is empty, though one may be invisible.
    pub(super) SmallVec<[State; 1]>,
);

impl Slots {
    /// Returns the type that readers see, or `None` if there is no visible value.
    pub fn value_type(&self) -> Option<Type> {
        self.visible().map(State::value_type)
    }

    /// Applies one operation of a commit. Total: every operation that passed [`Update::validate`] can be
    /// applied, even if [`Slots::check`] would refuse it here.
    pub fn apply(&mut self, update: &Update, at: &At<'_>) {
        debug_assert_eq!(update.validate(), Ok(()), "{update:?} was validated when it came in");
        work::count(1 + update.op.elements());
        self.apply_within(&update.path, &update.op, at);
    }

    /// Checks that a client of datacenter `me` may apply this to the value as it is here now.
    pub fn check(&self, update: &Update, me: DcId) -> Result<(), OpError> {
        update.validate()?;
        self.check_within(&update.path, &update.op, me)
    }

    /// Returns the reading of a reader in datacenter `me`; `None` if there is no value: then it is the empty
    /// value of every type.
    pub fn read(&self, me: DcId) -> Option<Reading> {
        self.visible().map(|state| state.read(me))
    }

    /// Returns the [weight](Reading::weight) of the reading, which is not built for that. The cost does not
    /// depend on the number of elements.
    pub fn weight(&self) -> Option<usize> {
        self.visible().map(State::weight)
    }

    /// Returns a bound of the bytes by which an update makes the reading larger, without the cost of applying
    /// it to a copy: that depends on the elements that the update names.
    pub fn growth(&self, update: &Update) -> usize {
        if rules::adds_elements(update) { self.growth_within(&update.path, &update.op) } else { 0 }
    }

    /// If readers see a bounded counter, returns the rights of each datacenter that has some.
    pub fn rights(&self) -> Vec<(DcId, u64)> {
        match self.visible() {
            Some(State::Leaf(Leaf::BoundedCounter(counter))) => counter.all_rights(),
            _ => Vec::new(),
        }
    }

    /// Returns true if nothing is left, as if the value had never been written. Readers may see nothing
    /// before that, while tombstones are left that concurrent operations need ([`Slots::compact`]).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if readers see anything.
    pub fn is_visible(&self) -> bool {
        self.visible().is_some()
    }

    /// Drops everything that only operations could need that have not seen `stable`: there will be none any
    /// more. Readers see no change.
    pub fn compact(&mut self, stable: &VersionVector) {
        if self.has_tombstones() {
            self.0.retain(|state| {
                state.compact(stable);
                !state.is_empty()
            });
        }
    }

    /// The same for at most `most` marked elements or fields, those after `after`. Each is subtracted from
    /// `most`; a value without marked elements counts as one. Returns the last of them if there are more.
    pub fn compact_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        let [state] = &mut self.0[..] else {
            *most = most.saturating_sub(1);
            self.compact(stable);
            return None;
        };
        let next = if state.has_tombstones() { state.compact_some(stable, after, most) } else { None };
        if state.is_empty() {
            self.0.clear();
        }
        next
    }

    /// Returns true if there is anything to compact.
    pub(super) fn has_tombstones(&self) -> bool {
        self.0.iter().any(State::has_tombstones)
    }

    /// Returns the commit that wrote the value as done, if its type has that: then the key may end once every
    /// datacenter knows. Returns `None` while another visible value of the key is not done.
    pub fn done_by(&self) -> Option<Dot> {
        let mut values = self.0.iter().filter(|state| state.is_visible());
        let first = values.next()?.done_by()?;
        values.try_fold(first, |last, state| Some(last.max(state.done_by()?)))
    }

    /// Returns a digest of what readers see: equal readings have equal digests. It is a sum over the visible
    /// atoms, seeded with the key by `seed`.
    pub fn digest(&self, seed: u128) -> Shown {
        self.digest_at(Place(seed))
    }

    /// Returns the part of [`Slots::digest`] that this operation may change: `digest` changes by the same
    /// difference. The cost depends on the elements that the operation names, not on the size of the value (a
    /// reset names all elements; so does every operation while the value has several types).
    pub fn digest_near(&self, seed: u128, update: &Update) -> Shown {
        self.digest_near_within(Place(seed), &update.path, &update.op)
    }

    pub(super) fn visible(&self) -> Option<&State> {
        self.0.iter().find(|state| state.is_visible())
    }

    fn find(&self, of: Type) -> Result<usize, usize> {
        // Nearly always there is one.
        self.0.binary_search_by_key(&of, State::value_type)
    }

    /// `path` is the rest of an update's path.
    pub(super) fn apply_within(&mut self, path: &[PathStep], op: &Op, at: &At<'_>) {
        let slot = match self.find(type_of(path, op)) {
            Ok(slot) => slot,
            Err(slot) => {
                self.0.insert(slot, State::for_op(path, op));
                slot
            }
        };
        debug_assert!(
            self.0.is_sorted_by(|a, b| a.value_type() < b.value_type()),
            "a key has one state of each type, in order"
        );
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

    /// Removes what that operation's transaction had seen, of every type.
    pub(super) fn reset(&mut self, at: &At<'_>) {
        self.0.retain(|state| {
            state.reset(at);
            !state.is_empty()
        });
    }

    pub(super) fn digest_at(&self, place: Place) -> Shown {
        self.visible().map_or_else(Shown::default, |state| state.digest(place))
    }

    pub(super) fn growth_within(&self, path: &[PathStep], op: &Op) -> usize {
        match self.find(type_of(path, op)) {
            Ok(slot) => self.0[slot].growth(path, op),
            Err(_) => weight_of_new(path, op),
        }
    }

    pub(super) fn digest_near_within(&self, place: Place, path: &[PathStep], op: &Op) -> Shown {
        let wanted = type_of(path, op);
        if self.0.iter().any(|state| state.is_visible() && state.value_type() != wanted) {
            // The operation may change which slot is visible, and with that the whole digest.
            return self.digest_at(place);
        }
        let slot = self.find(wanted);
        slot.map_or_else(|_| Shown::default(), |slot| self.0[slot].digest_near(place, path, op))
    }
}

/// Returns a bound of the weight of a value that an operation makes.
pub(super) fn weight_of_new(path: &[PathStep], op: &Op) -> usize {
    let fields = path.iter().map(|step| READING_OVERHEAD + element::weight(&step.field)).sum::<usize>();
    fields + READING_OVERHEAD + op.weight()
}

/// Returns the type of value that an operation is for, with this rest of its path.
fn type_of(path: &[PathStep], op: &Op) -> Type {
    path.first().map_or_else(|| op.value_type(), |step| step.map.value_type())
}
