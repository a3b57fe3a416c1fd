//! The values of the store: conflict-free replicated data types, each with its operations, its conflict rule
//! and its readings.
//!
//! They are operation-based: the log delivers every commit everywhere exactly once, in causal order. A
//! replica applies the client's operation itself together with its [`At`]: the commit that it belongs to, and
//! the vector that its transaction had seen. So "remove the elements that I saw" needs no list of dots on the
//! wire, only one vector per commit. Replicas that applied the same commits have equal readings, in whatever
//! causal order they applied them (Shapiro, Preguiça, Baquero, Zawirski: *Conflict-free Replicated Data
//! Types*, 2011; Almeida, Shoker, Baquero: *Delta state replicated data types*, 2018, for dots and causal
//! contexts).
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
//!
//! A type may declare that a value is *done* ([`Slots::done_by`]): no write follows, and the key expires once
//! every datacenter knows. A versioned value can be written as done; a concurrent write of a higher version
//! undoes that.
//!
//! From the outside in: [`Slots`] is the value of a key, `state` separates maps from other types, `leaf`
//! separates those from each other, and `dots` has the rule on which everything removable is built.

mod at;
mod bounded_counter;
mod chunks;
mod counter;
mod digest;
mod dots;
mod element;
mod flag;
mod flat;
mod grow_only_set;
mod leaf;
mod lww_register;
mod map;
mod mv_register;
mod operation;
mod presence;
mod reading;
mod resettable_counter;
mod set;
mod slots;
mod state;
#[cfg(test)]
mod tests;
mod versioned;

pub use at::{At, Dot};
pub use digest::Shown;
pub use operation::{
    FlagOp, MAX_DEPTH, MapOp, MapType, Op, OpError, PathStep, RegisterOp, ResettableCounterOp, SetOp, Type,
    Update,
};
pub use reading::{ReadBudget, Reading, VersionedReading};
pub use slots::Slots;
