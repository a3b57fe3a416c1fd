//! The loop in simulation: many instances, one lock, one record, lost leases, crashes and pauses.

mod mutations;
mod own;
mod plan;
mod seeds;
mod world;
