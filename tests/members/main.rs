//! The members of a running cluster: the list of decisions begins by itself, servers join and leave while
//! locks are in use. Guarantees: docs/guarantees.md#locks; operation: docs/membership.md#add-a-datacenter.
//!
//! Each test has servers of its own, and waits for what it expects however long that takes.

#[path = "../fixture/mod.rs"]
mod fixture;

mod evicting;
mod explained;
mod founding;
mod homes;
mod joining;
mod larger;
mod leaving;
mod many_decisions;
mod orphans;
mod playground;
mod policies_while_down;
mod recovering;
mod refusals;
mod returning;
mod second_holders;
mod soak;
mod through_all;
mod timed;
mod together;
mod witnesses;

use fixture::growth;
