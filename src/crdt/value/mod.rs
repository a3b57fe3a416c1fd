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
//! | [`Type::ResettableCounter`] | add up; a reset takes away what it saw |
//! | [`Type::BoundedCounter`] | add up; each datacenter takes away only what it has rights to |
//! | [`Type::LwwRegister`] | the later stamp wins, then the higher datacenter |
//! | [`Type::MvRegister`] | readers see both |
//! | [`Type::Versioned`] | the higher version wins, then the greater bytes |
//! | [`Type::AddWinsSet`] | an add survives a remove that did not see it |
//! | [`Type::RemoveWinsSet`] | a remove takes away an add that did not see it |
//! | [`Type::GrowOnlySet`] | both are there |
//! | [`Type::EnableWinsFlag`] | enabled |
//! | [`Type::DisableWinsFlag`] | disabled |
//! | [`Type::GrowOnlyMap`] | field by field, as the fields' types say |
//! | [`Type::ResettableMap`] | the same; removing a field takes away what it saw in it |

mod at;
mod bounded_counter;
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
pub use operation::{
    FlagOp, MAX_DEPTH, MapOp, MapType, Op, OpError, PathStep, RegisterOp, ResettableCounterOp, SetOp, Type,
    Update,
};
pub use reading::{Reading, VersionedReading};
pub use slots::Slots;
