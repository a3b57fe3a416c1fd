//! The values of the store: their types, the operations on them, and how readers see them. All datacenters
//! can change a value without asking each other. The type of a value defines the result of two concurrent
//! operations:
//!
//! | type | two concurrent operations |
//! |---|---|
//! | [`Type::Counter`] | add up |
//! | [`Type::ResettableCounter`] | add up; a reset removes the additions it saw, no others |
//! | [`Type::BoundedCounter`] | add up; each datacenter decrements only as it has rights, so never below 0 |
//! | [`Type::LwwRegister`] | the later stamp wins, then the higher datacenter |
//! | [`Type::MvRegister`] | readers see both assignments (equal ones once); a reset removes those it saw |
//! | [`Type::Versioned`] | the higher version wins, then the greater bytes, then done; no write after done |
//! | [`Type::AddWinsSet`] | an add survives a remove or reset that did not see it |
//! | [`Type::RemoveWinsSet`] | a remove beats an add that did not see it; a reset removes only what it saw |
//! | [`Type::GrowOnlySet`] | readers see both |
//! | [`Type::EnableWinsFlag`] | enabled; a disable or reset removes the enables it saw |
//! | [`Type::DisableWinsFlag`] | disabled, until an enable that saw it; a reset removes only what it saw |
//! | [`Type::GrowOnlyMap`] | field by field, by the fields' types |
//! | [`Type::ResettableMap`] | the same; removing a field removes what it saw in it, at every depth |
//! | different types | the one that comes first above is visible, until it is empty again: then the next |
//!
//! Two operations are concurrent if neither saw the other, also in one datacenter: it runs many transactions
//! at once, on snapshots of different age. Operations of one commit see each other in their order. A value
//! that shows nothing (a counter at 0, a flag that is off, a set without elements) is as if it had never been
//! written, and may become one of another type.

pub mod messages;
mod operation;
mod reading;
mod update;

pub use operation::{
    FlagOp, MAX_DEPTH, MAX_VALUE_BYTES, MapOp, MapType, Op, OpError, PathStep, RegisterOp,
    ResettableCounterOp, SetOp, Type, Update, validate_nesting,
};
pub use reading::{ELEMENT_OVERHEAD, READING_OVERHEAD, Reading, VersionedReading};
