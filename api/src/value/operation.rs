//! Operations on values, as they travel: flat, so that no bytes from outside make a decoder recurse.
//!
//! They are parts of messages between datacenters and of the journal: enum variants are encoded by position,
//! so they are append-only. The server tests their bytes.

use std::fmt;

use bytes::Bytes;

use crate::names::DcId;

/// Maximum nesting depth of maps.
pub const MAX_DEPTH: usize = 8;
/// Most bytes of the [reading](super::Reading::weight) of a set or a map, which a change may reach. A step
/// reads twice as much: datacenters may add to a value at the same moment, and it can be read and made
/// smaller after that.
pub const MAX_VALUE_BYTES: usize = 2 << 20;

/// The type of a value. A key that was never written is every type's empty value. [The module](super) defines
/// the result of concurrent operations on each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Type {
    /// A sum of positive and negative amounts.
    Counter,
    /// A sum that can be set back to 0.
    ResettableCounter,
    /// A sum that is never below 0: each datacenter has rights to decrement, and moves them to others.
    BoundedCounter,
    /// Bytes of which the last write counts.
    LwwRegister,
    /// Bytes of which readers see all concurrent writes.
    MvRegister,
    /// Bytes with a version that the writer chooses and that only grows.
    Versioned,
    /// A set in which an add survives a concurrent remove.
    AddWinsSet,
    /// A set in which a remove wins over a concurrent add.
    RemoveWinsSet,
    /// A set from which nothing is removed.
    GrowOnlySet,
    /// A flag that stays enabled when it is disabled concurrently.
    EnableWinsFlag,
    /// A flag that is disabled when it is enabled concurrently.
    DisableWinsFlag,
    /// Values by field; fields stay.
    GrowOnlyMap,
    /// Values by field; fields can be removed, so they hold only types that can be reset.
    ResettableMap,
}

/// One change: an operation on a value, or on a value somewhere within maps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Update {
    /// From the outermost map inwards; empty for the key's own value. At most [`MAX_DEPTH`] steps.
    pub path: Vec<PathStep>,
    /// The operation on the value to which the path leads.
    pub op: Op,
}

/// A step into a field of a map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathStep {
    /// The type of the map that has the field.
    pub map: MapType,
    /// The name of the field: arbitrary bytes.
    pub field: Bytes,
}

/// The types that have fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MapType {
    /// [`Type::GrowOnlyMap`].
    GrowOnly,
    /// [`Type::ResettableMap`].
    Resettable,
}

/// An operation on a value of the type it is named after.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Op {
    /// Adds this amount, which may be negative.
    Counter(i64),
    /// Adds or resets.
    ResettableCounter(ResettableCounterOp),
    /// Adds this amount. A negative amount needs rights, which additions create.
    BoundedCounter(i64),
    /// Moves rights to decrement from this datacenter to another one; readers see no change.
    TransferRights {
        /// The datacenter that gets the rights.
        to: DcId,
        /// The amount by which it may decrement from then on.
        amount: u64,
    },
    /// Assigns these bytes.
    LwwRegister(Bytes),
    /// Assigns or resets.
    MvRegister(RegisterOp),
    /// Writes a value with a version.
    Versioned {
        /// Above the version that the transaction sees.
        version: u64,
        /// The bytes of that version.
        value: Bytes,
        /// Nothing will follow: the key expires once every datacenter knows.
        done: bool,
    },
    /// Adds, removes or resets.
    AddWinsSet(SetOp),
    /// Adds, removes or resets.
    RemoveWinsSet(SetOp),
    /// Adds these elements.
    GrowOnlySet(Vec<Bytes>),
    /// Enables, disables or resets.
    EnableWinsFlag(FlagOp),
    /// Enables, disables or resets.
    DisableWinsFlag(FlagOp),
    /// Removes fields or resets.
    ResettableMap(MapOp),
}

/// An operation on a resettable counter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ResettableCounterOp {
    /// Adds this amount, which may be negative.
    Add(i64),
    /// Removes the additions that the transaction sees.
    Reset,
}

/// An operation on a multi-value register.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RegisterOp {
    /// Replaces the values that the transaction sees with these bytes.
    Assign(Bytes),
    /// Removes the values that the transaction sees.
    Reset,
}

/// An operation on a set from which elements can be removed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SetOp {
    /// Adds these elements.
    Add(Vec<Bytes>),
    /// Removes these elements, as the transaction sees them.
    Remove(Vec<Bytes>),
    /// Undoes all operations that the transaction sees.
    Reset,
}

/// An operation on a flag.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FlagOp {
    /// Sets the flag.
    Enable,
    /// Clears the flag.
    Disable,
    /// Undoes all operations that the transaction sees.
    Reset,
}

/// An operation on the map as a whole; its fields are changed through a [`PathStep`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MapOp {
    /// Removes these fields, with all of their content that the transaction sees.
    Remove(Vec<Bytes>),
    /// Removes all fields, with all of their content that the transaction sees.
    Reset,
}

/// A reason to refuse an operation where it is requested. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// The value has another type than the operation is for.
    #[error("the value is a {is}, the operation is one on a {wanted}")]
    WrongType {
        /// The type of the value.
        is: Type,
        /// The type that the operation is for.
        wanted: Type,
    },
    /// The path has this many steps, more than [`MAX_DEPTH`].
    #[error("maps nest at most {MAX_DEPTH} deep, this path has {0} steps")]
    TooDeep(usize),
    /// A resettable map cannot have a value of this type in a field.
    #[error("a {0} cannot be a field of a resettable map: it cannot be reset")]
    NotResettable(Type),
    /// The path leads to a bounded counter within a map.
    #[error("a bounded counter stands on its own, not in a map")]
    BoundedInMap,
    /// The sum would not fit.
    #[error("the counter would leave the range of 64 bits")]
    Overflow,
    /// The datacenter has not enough rights to decrement, or to move.
    #[error(
        "the bounded counter may go down by {rights} in this datacenter, not by {asked}: others have the rest of the \
         rights"
    )]
    InsufficientRights {
        /// The amount that the operation needs.
        asked: u64,
        /// The amount for which this datacenter has rights.
        rights: u64,
    },
    /// The version to be written is not above the one that is there.
    #[error("the value has version {is}, version {written} is stale")]
    Stale {
        /// The version of the value.
        is: u64,
        /// The version of the operation.
        written: u64,
    },
    /// The value was written for the last time.
    #[error(
        "the value is done at version {is}: nothing follows it; the key is free again once every datacenter knows"
    )]
    Done {
        /// The version of the value.
        is: u64,
    },
    /// A client could hardly read the value any more.
    #[error(
        "the value would have about {bytes} bytes when it is read, at most {MAX_VALUE_BYTES} are allowed: remove elements, or \
         spread them over several keys"
    )]
    TooLarge {
        /// A bound of the bytes of its reading, with the change.
        bytes: usize,
    },
    /// The key ended after the snapshot of the transaction.
    #[error(
        "the key was removed or expired after this transaction began, so the change would have no effect: begin another \
         transaction"
    )]
    KeyEnded,
}

impl MapType {
    /// Returns the type of the map.
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

    /// Returns the number of elements or fields that it names.
    pub fn elements(&self) -> usize {
        match self {
            Op::AddWinsSet(SetOp::Add(items) | SetOp::Remove(items))
            | Op::RemoveWinsSet(SetOp::Add(items) | SetOp::Remove(items))
            | Op::GrowOnlySet(items)
            | Op::ResettableMap(MapOp::Remove(items)) => items.len(),
            _ => 0,
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

    /// Checks the rules that do not depend on the present value: those of [`validate_nesting`].
    pub fn validate(&self) -> Result<(), OpError> {
        validate_nesting(self.path.iter().map(|step| step.map), self.op.value_type())
    }
}

/// Checks that a value of type `leaf` may be within these maps, from the outermost inwards: that there are at
/// most [`MAX_DEPTH`], and that each may have the next one in a field.
pub fn validate_nesting(
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
