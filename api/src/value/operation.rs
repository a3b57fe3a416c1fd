//! Operations on values, as they travel: flat, so that no bytes from outside make a decoder recurse.
//!
//! Wire and disk types: enum variants are encoded by position (append only), golden bytes in `wire.rs`.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::names::DcId;

/// Maximum nesting depth of maps.
pub const MAX_DEPTH: usize = 8;

/// The type of a value. A key that was never written is every type's empty value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Type {
    Counter,
    ResettableCounter,
    BoundedCounter,
    LwwRegister,
    MvRegister,
    Versioned,
    AddWinsSet,
    RemoveWinsSet,
    GrowOnlySet,
    EnableWinsFlag,
    DisableWinsFlag,
    GrowOnlyMap,
    ResettableMap,
}

/// One change: an operation on a value, or on a value somewhere within maps.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Update {
    /// From the outermost map inwards; empty for the key's own value. At most [`MAX_DEPTH`] steps.
    pub path: Vec<PathStep>,
    pub op: Op,
}

/// A step into a field of a map.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PathStep {
    pub map: MapType,
    pub field: Bytes,
}

/// The types that have fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum MapType {
    GrowOnly,
    Resettable,
}

/// An operation on a value of the type it is named after.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Adds this amount, which may be negative.
    Counter(i64),
    ResettableCounter(ResettableCounterOp),
    /// Adds this amount. A negative amount needs rights, which additions create.
    BoundedCounter(i64),
    /// Moves rights to decrement from this datacenter to another one; readers see no change.
    TransferRights {
        to: DcId,
        amount: u64,
    },
    LwwRegister(Bytes),
    MvRegister(RegisterOp),
    /// Writes a value with a version. `done`: nothing will follow; the key expires once every datacenter
    /// knows.
    Versioned {
        version: u64,
        value: Bytes,
        done: bool,
    },
    AddWinsSet(SetOp),
    RemoveWinsSet(SetOp),
    GrowOnlySet(Vec<Bytes>),
    EnableWinsFlag(FlagOp),
    DisableWinsFlag(FlagOp),
    ResettableMap(MapOp),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ResettableCounterOp {
    Add(i64),
    Reset,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RegisterOp {
    Assign(Bytes),
    Reset,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SetOp {
    Add(Vec<Bytes>),
    Remove(Vec<Bytes>),
    Reset,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FlagOp {
    Enable,
    Disable,
    Reset,
}

/// An operation on the map as a whole; its fields are changed through a [`PathStep`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum MapOp {
    Remove(Vec<Bytes>),
    Reset,
}

/// A reason to refuse an operation where it is requested. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    #[error("the value is a {is}, the operation is one on a {wanted}")]
    WrongType { is: Type, wanted: Type },
    #[error("maps nest at most {MAX_DEPTH} deep, this path has {0} steps")]
    TooDeep(usize),
    #[error("a {0} cannot be a field of a resettable map: it cannot be reset")]
    NotResettable(Type),
    #[error("a bounded counter stands on its own, not in a map")]
    BoundedInMap,
    #[error("the counter would leave the range of 64 bits")]
    Overflow,
    #[error(
        "the bounded counter may go down by {rights} in this datacenter, not by {asked}: others have the rest of the \
         rights"
    )]
    InsufficientRights { asked: u64, rights: u64 },
    #[error("the value has version {is}, version {written} is stale")]
    Stale { is: u64, written: u64 },
    #[error(
        "the value is done at version {is}: nothing follows it; the key is free again once every datacenter knows"
    )]
    Done { is: u64 },
    #[error(
        "the key was removed or expired after this transaction began, so the change would have no effect: begin another \
         transaction"
    )]
    KeyEnded,
}

impl MapType {
    pub fn value_type(self) -> Type {
        match self {
            MapType::GrowOnly => Type::GrowOnlyMap,
            MapType::Resettable => Type::ResettableMap,
        }
    }
}

impl Op {
    /// Returns the type of value that the operation is for.
    pub fn value_type(&self) -> Type {
        match self {
            Op::Counter(_) => Type::Counter,
            Op::ResettableCounter(_) => Type::ResettableCounter,
            Op::BoundedCounter(_) | Op::TransferRights { .. } => Type::BoundedCounter,
            Op::LwwRegister(_) => Type::LwwRegister,
            Op::MvRegister(_) => Type::MvRegister,
            Op::Versioned { .. } => Type::Versioned,
            Op::AddWinsSet(_) => Type::AddWinsSet,
            Op::RemoveWinsSet(_) => Type::RemoveWinsSet,
            Op::GrowOnlySet(_) => Type::GrowOnlySet,
            Op::EnableWinsFlag(_) => Type::EnableWinsFlag,
            Op::DisableWinsFlag(_) => Type::DisableWinsFlag,
            Op::ResettableMap(_) => Type::ResettableMap,
        }
    }

    /// Returns the approximate number of bytes.
    pub fn weight(&self) -> usize {
        let all = |items: &[Bytes]| items.iter().map(|item| 2 + item.len()).sum::<usize>();
        8 + match self {
            Op::LwwRegister(value)
            | Op::MvRegister(RegisterOp::Assign(value))
            | Op::Versioned { value, .. } => value.len(),
            Op::AddWinsSet(SetOp::Add(items) | SetOp::Remove(items))
            | Op::RemoveWinsSet(SetOp::Add(items) | SetOp::Remove(items))
            | Op::GrowOnlySet(items)
            | Op::ResettableMap(MapOp::Remove(items)) => all(items),
            _ => 8,
        }
    }
}

impl Update {
    /// Returns an update of the key's own value.
    pub fn of(op: Op) -> Update {
        Update { path: Vec::new(), op }
    }

    /// Returns the type that the key's own value must have.
    pub fn root_type(&self) -> Type {
        self.path.first().map_or_else(|| self.op.value_type(), |step| step.map.value_type())
    }

    /// Returns the approximate number of bytes.
    pub fn weight(&self) -> usize {
        self.op.weight() + self.path.iter().map(|step| 3 + step.field.len()).sum::<usize>()
    }

    /// Returns true if the present value, not only its type, decides if this is allowed.
    pub fn depends_on_state(&self) -> bool {
        let leaf = self.op.value_type();
        !self.path.is_empty()
            || matches!(
                leaf,
                Type::Counter | Type::ResettableCounter | Type::BoundedCounter | Type::Versioned
            )
    }

    /// Returns true if this leaves tombstones that [`Slots::compact`](super::Slots::compact) can drop.
    pub fn leaves_tombstones(&self) -> bool {
        let plain = matches!(
            self.root_type(),
            Type::Counter | Type::BoundedCounter | Type::LwwRegister | Type::Versioned | Type::GrowOnlySet
        );
        !plain
    }

    /// Returns true if [`Slots::done_by`](super::Slots::done_by) may return a commit after this.
    pub fn may_be_the_last(&self) -> bool {
        self.path.is_empty() && matches!(self.op, Op::Versioned { done: true, .. })
    }

    /// Checks the rules that do not depend on the present value.
    pub fn validate(&self) -> Result<(), OpError> {
        validate_nesting(self.path.iter().map(|step| step.map), self.op.value_type())
    }
}

/// Checks that a value of type `leaf` may be within these maps, from the outermost inwards.
pub(super) fn validate_nesting(
    maps: impl ExactSizeIterator<Item = MapType> + Clone,
    leaf: Type,
) -> Result<(), OpError> {
    if maps.len() > MAX_DEPTH {
        return Err(OpError::TooDeep(maps.len()));
    }
    if leaf == Type::BoundedCounter && maps.len() > 0 {
        return Err(OpError::BoundedInMap);
    }
    let inner = maps.clone().skip(1).map(MapType::value_type).chain([leaf]);
    match maps.zip(inner).find(|(map, inner)| *map == MapType::Resettable && !inner.is_resettable()) {
        Some((_, inner)) => Err(OpError::NotResettable(inner)),
        None => Ok(()),
    }
}

impl Type {
    /// Returns true if a reset can remove what was seen of such a value and leave the rest.
    pub fn is_resettable(self) -> bool {
        !matches!(
            self,
            Type::Counter
                | Type::BoundedCounter
                | Type::LwwRegister
                | Type::Versioned
                | Type::GrowOnlySet
                | Type::GrowOnlyMap
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Counter => "counter",
            Type::ResettableCounter => "resettable counter",
            Type::BoundedCounter => "bounded counter",
            Type::LwwRegister => "last-writer-wins register",
            Type::MvRegister => "multi-value register",
            Type::Versioned => "versioned value",
            Type::AddWinsSet => "add-wins set",
            Type::RemoveWinsSet => "remove-wins set",
            Type::GrowOnlySet => "grow-only set",
            Type::EnableWinsFlag => "enable-wins flag",
            Type::DisableWinsFlag => "disable-wins flag",
            Type::GrowOnlyMap => "grow-only map",
            Type::ResettableMap => "resettable map",
        })
    }
}
