//! The sequencer in simulation: nodes, a network, a lock and a ledger at the mercy of a seed.

mod batch;
mod checker;
mod database;
mod handover;
mod inputs;
mod ledger;
mod lock;
mod mutations;
mod plan;
mod resume;
mod reverts;
mod revoke;
mod seeds;
mod sender;
mod stories;
mod world;
