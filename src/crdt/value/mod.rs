//! The values of the store: conflict-free replicated data types, each with its operations, its conflict rule and
//! what readers see.
//!
//! They are operation-based: the log delivers every commit everywhere exactly once, in causal order, and what it
//! applies there is the client's operation itself together with its [`At`]: which commit it belongs to and what its
//! transaction had seen. So "remove what I saw" needs no list of dots on the wire, only one vector per commit. Replicas
//! that applied the same commits show readers the same, in whatever causal order they applied them
//! (Shapiro, Preguiça, Baquero, Zawirski: *Conflict-free Replicated Data Types*, 2011; Almeida, Shoker, Baquero:
//! *Delta state replicated data types*, 2018, for what dots and causal contexts are).
//!
//! | type | two concurrent operations |
//! |---|---|
//! | [`Type::Counter`] | add up |
//! | [`Type::ResettableCounter`] | add up; a reset takes away the additions it saw, no others |
//! | [`Type::BoundedCounter`] | add up; each datacenter takes away only what it has rights to, so never below 0 |
//! | [`Type::LwwRegister`] | the later stamp wins, then the higher datacenter |
//! | [`Type::MvRegister`] | readers see both assignments (equal ones once); a reset takes away those it saw |
//! | [`Type::Versioned`] | the higher version wins, then the greater bytes, then the one that is done; done, it takes no write |
//! | [`Type::AddWinsSet`] | an add survives a remove or reset that did not see it |
//! | [`Type::RemoveWinsSet`] | a remove takes away an add that did not see it; a reset takes away only what it saw |
//! | [`Type::GrowOnlySet`] | both are there |
//! | [`Type::EnableWinsFlag`] | enabled; a disable or reset takes away the enables it saw |
//! | [`Type::DisableWinsFlag`] | disabled, until an enable that saw it; a reset takes away only what it saw |
//! | [`Type::GrowOnlyMap`] | field by field, as the fields' types say |
//! | [`Type::ResettableMap`] | the same; removing a field takes away what it saw in it, all the way down |
//! | different types | the one that comes first above is seen, until it is empty again: then the next |
//!
//! Concurrent are any two of which neither saw the other, also in one datacenter: it runs many transactions at once, on
//! snapshots of different age. Operations of one commit see each other in their order. A value that shows nothing (a
//! counter at 0, a flag that is off, a set without elements) is as if it had never been written, and may become one of
//! another type.
//!
//! A type may declare that a value is *done* ([`Slots::done_by`]): no write follows, and the key lapses by itself once
//! every datacenter knows. A versioned value can be written as done; a concurrent write of a higher version undoes that.
//!
//! From the outside in: [`Slots`] is what a key holds, `state` tells maps from the rest, `leaf` tells the rest apart,
//! `dots` has the idea that all that can be taken away is built on.

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
