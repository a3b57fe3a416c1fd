//! Many replicas in simulation: the promises, and the proof that broken ones are noticed.

mod mutations;
mod outside;
mod plan;
mod seeds;
mod stories;
mod world;
