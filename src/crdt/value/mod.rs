//! The values of the store as they are kept and merged: conflict-free replicated data types.
//!
//! They are operation-based: the log delivers every commit everywhere exactly once, in causal order. A
//! replica applies the client's operation itself together with its [`At`]: the commit that it belongs to, and
//! the vector that its transaction had seen. So "remove the elements that I saw" needs no list of dots on the
//! wire, only one vector per commit. Replicas that applied the same commits have equal readings, in whatever
//! causal order they applied them (Shapiro, Preguiça, Baquero, Zawirski: *Conflict-free Replicated Data
//! Types*, 2011; Almeida, Shoker, Baquero: *Delta state replicated data types*, 2018, for dots and causal
//! contexts).
//!
//! The types and operations, and the result of two concurrent operations of each type, are those of
//! [`geolock_api::value`].
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
mod presence;
mod resettable_counter;
mod rules;
mod set;
mod shared;
mod slots;
mod state;
#[cfg(test)]
mod tests;
mod versioned;

pub use at::{At, Dot};
pub use digest::Shown;
pub use rules::{adds_elements, depends_on_state, leaves_tombstones, may_be_the_last};
pub use shared::SharedValue;
pub use slots::Slots;
