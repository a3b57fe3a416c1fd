//! Values that are not maps: one enum over their types.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::crdt::VersionVector;
use crate::crdt::value::bounded_counter::BoundedCounter;
use crate::crdt::value::counter::Counter;
use crate::crdt::value::flag::Flag;
use crate::crdt::value::grow_only_set::GrowOnlySet;
use crate::crdt::value::lww_register::LwwRegister;
use crate::crdt::value::mv_register::MvRegister;
use crate::crdt::value::presence::{AddWins, RemoveWins};
use crate::crdt::value::resettable_counter::ResettableCounter;
use crate::crdt::value::set::Set;
use crate::crdt::value::versioned::Versioned;
use crate::crdt::value::{At, Dot};
use geolock_api::names::DcId;
use geolock_api::value::{Op, OpError, Reading, Type, VersionedReading};

/// The common interface of all types.
///
/// Laws, property-tested in `tests/`: replicas that applied the same commits, each in some causal order,
/// return the same results here, even if they compacted at different times.
pub(super) trait Value {
    /// Reads the value, as a reader in datacenter `me` sees it. Counts each element as work: no step of the
    /// machine has the time to read a large value, see [`SharedValue`](crate::crdt::value::SharedValue).
    fn read(&self, me: DcId) -> Reading;
    /// Returns the [weight](Reading::weight) of the reading. It is the same in every datacenter. Types with
    /// many elements keep it as a sum.
    fn weight(&self) -> usize {
        self.read(DcId::new(0).expect("0 is the number of a datacenter")).weight()
    }
    /// Returns true if readers anywhere see anything but the type's empty value.
    fn is_visible(&self) -> bool;
    /// Returns true if the value is equivalent to one that was never written. That is more than invisible: a
    /// remove may be left that hides future adds.
    fn is_empty(&self) -> bool {
        !self.is_visible()
    }
    /// Calls `each` with the bytes of each visible atom. Different atoms have different bytes, and equal
    /// atoms mean equal readings.
    fn atoms(&self, each: &mut dyn FnMut(&[u8]));
    /// Removes what that operation's transaction had seen. Types without a reset cannot be in a map that
    /// needs it ([`Type::is_resettable`]).
    fn reset(&mut self, _at: &At<'_>) {}
    /// See [`Slots::compact`](crate::crdt::value::Slots::compact).
    fn compact(&mut self, _stable: &VersionVector) {}
    /// See [`Slots::compact_some`](crate::crdt::value::Slots::compact_some). A value with few tombstones is
    /// compacted whole.
    fn compact_some(
        &mut self,
        stable: &VersionVector,
        _after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        self.compact(stable);
        *most = most.saturating_sub(1);
        None
    }
    /// Returns true if [`Value::compact`] may change anything, now or later. Values that return false are not
    /// examined for that.
    fn has_tombstones(&self) -> bool {
        false
    }
    /// See [`Slots::done_by`](crate::crdt::value::Slots::done_by).
    fn done_by(&self) -> Option<Dot> {
        None
    }
}

/// The state of a value. Written to checkpoints: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Leaf {
    Counter(Counter),
    ResettableCounter(ResettableCounter),
    BoundedCounter(BoundedCounter),
    LwwRegister(LwwRegister),
    MvRegister(MvRegister),
    Versioned(Versioned),
    AddWinsSet(Set<AddWins>),
    RemoveWinsSet(Set<RemoveWins>),
    GrowOnlySet(GrowOnlySet),
    EnableWinsFlag(Flag<AddWins>),
    DisableWinsFlag(Flag<RemoveWins>),
}

impl Leaf {
    /// Returns the empty value that this operation is for, or `None` if that is a map.
    pub fn for_op(op: &Op) -> Option<Leaf> {
        Some(match op {
            Op::Counter(_) => Leaf::Counter(Counter::default()),
            Op::ResettableCounter(_) => Leaf::ResettableCounter(ResettableCounter::default()),
            Op::BoundedCounter(_) | Op::TransferRights { .. } => {
                Leaf::BoundedCounter(BoundedCounter::default())
            }
            Op::LwwRegister(_) => Leaf::LwwRegister(LwwRegister::default()),
            Op::MvRegister(_) => Leaf::MvRegister(MvRegister::default()),
            Op::Versioned { .. } => Leaf::Versioned(Versioned::default()),
            Op::AddWinsSet(_) => Leaf::AddWinsSet(Set::default()),
            Op::RemoveWinsSet(_) => Leaf::RemoveWinsSet(Set::default()),
            Op::GrowOnlySet(_) => Leaf::GrowOnlySet(GrowOnlySet::default()),
            Op::EnableWinsFlag(_) => Leaf::EnableWinsFlag(Flag::default()),
            Op::DisableWinsFlag(_) => Leaf::DisableWinsFlag(Flag::default()),
            Op::ResettableMap(_) => return None,
        })
    }

    pub fn value_type(&self) -> Type {
        match self {
            Leaf::Counter(_) => Type::Counter,
            Leaf::ResettableCounter(_) => Type::ResettableCounter,
            Leaf::BoundedCounter(_) => Type::BoundedCounter,
            Leaf::LwwRegister(_) => Type::LwwRegister,
            Leaf::MvRegister(_) => Type::MvRegister,
            Leaf::Versioned(_) => Type::Versioned,
            Leaf::AddWinsSet(_) => Type::AddWinsSet,
            Leaf::RemoveWinsSet(_) => Type::RemoveWinsSet,
            Leaf::GrowOnlySet(_) => Type::GrowOnlySet,
            Leaf::EnableWinsFlag(_) => Type::EnableWinsFlag,
            Leaf::DisableWinsFlag(_) => Type::DisableWinsFlag,
        }
    }

    pub fn value(&self) -> &dyn Value {
        match self {
            Leaf::Counter(value) => value,
            Leaf::ResettableCounter(value) => value,
            Leaf::BoundedCounter(value) => value,
            Leaf::LwwRegister(value) => value,
            Leaf::MvRegister(value) => value,
            Leaf::Versioned(value) => value,
            Leaf::AddWinsSet(value) => value,
            Leaf::RemoveWinsSet(value) => value,
            Leaf::GrowOnlySet(value) => value,
            Leaf::EnableWinsFlag(value) => value,
            Leaf::DisableWinsFlag(value) => value,
        }
    }

    pub fn value_mut(&mut self) -> &mut dyn Value {
        match self {
            Leaf::Counter(value) => value,
            Leaf::ResettableCounter(value) => value,
            Leaf::BoundedCounter(value) => value,
            Leaf::LwwRegister(value) => value,
            Leaf::MvRegister(value) => value,
            Leaf::Versioned(value) => value,
            Leaf::AddWinsSet(value) => value,
            Leaf::RemoveWinsSet(value) => value,
            Leaf::GrowOnlySet(value) => value,
            Leaf::EnableWinsFlag(value) => value,
            Leaf::DisableWinsFlag(value) => value,
        }
    }

    pub fn apply(&mut self, op: &Op, at: &At<'_>) {
        match (self, op) {
            (Leaf::Counter(counter), Op::Counter(amount)) => counter.add(*amount),
            (Leaf::ResettableCounter(counter), Op::ResettableCounter(op)) => counter.apply(op, at),
            (Leaf::BoundedCounter(counter), Op::BoundedCounter(amount)) => counter.add(*amount, at),
            (Leaf::BoundedCounter(counter), Op::TransferRights { to, amount }) => {
                counter.transfer_rights(*to, *amount, at);
            }
            (Leaf::LwwRegister(register), Op::LwwRegister(value)) => register.assign(value, at),
            (Leaf::MvRegister(register), Op::MvRegister(op)) => register.apply(op, at),
            (Leaf::Versioned(value), Op::Versioned { version, value: bytes, done }) => {
                let written = VersionedReading { version: *version, value: bytes.clone(), done: *done };
                value.write(written, at.dot);
            }
            (Leaf::AddWinsSet(set), Op::AddWinsSet(op)) => set.apply(op, at),
            (Leaf::RemoveWinsSet(set), Op::RemoveWinsSet(op)) => set.apply(op, at),
            (Leaf::GrowOnlySet(set), Op::GrowOnlySet(items)) => set.add(items),
            (Leaf::EnableWinsFlag(flag), Op::EnableWinsFlag(op)) => flag.apply(op, at),
            (Leaf::DisableWinsFlag(flag), Op::DisableWinsFlag(op)) => flag.apply(op, at),
            (leaf, op) => unreachable!("{op:?} is given to the slot of its type, not to {leaf:?}"),
        }
    }

    /// Checks that a client of datacenter `me` may apply this to the present value.
    pub fn check(&self, op: &Op, me: DcId) -> Result<(), OpError> {
        match (self, op) {
            (Leaf::Counter(counter), Op::Counter(amount)) => counter.check(*amount),
            (Leaf::ResettableCounter(counter), Op::ResettableCounter(op)) => counter.check(op),
            (Leaf::BoundedCounter(counter), Op::BoundedCounter(amount)) => counter.check_add(*amount, me),
            (Leaf::BoundedCounter(counter), Op::TransferRights { amount, .. }) => {
                counter.check_rights(*amount, me)
            }
            (Leaf::Versioned(value), Op::Versioned { version, .. }) => value.check(*version),
            _ => Ok(()),
        }
    }

    /// Calls `each` with those of [`Value::atoms`] that this operation may change.
    pub fn atoms_near(&self, op: &Op, each: &mut dyn FnMut(&[u8])) {
        match (self, op) {
            (Leaf::AddWinsSet(set), Op::AddWinsSet(op)) => set.atoms_near(op, each),
            (Leaf::RemoveWinsSet(set), Op::RemoveWinsSet(op)) => set.atoms_near(op, each),
            (Leaf::GrowOnlySet(set), Op::GrowOnlySet(items)) => set.atoms_near(items, each),
            _ => self.value().atoms(each),
        }
    }
}
