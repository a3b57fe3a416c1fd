//! geolock: a geo-replicated lock server.
// Edges read clocks and start threads; pure rooms deny it again.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod access;
pub mod api;
pub mod bugs;
pub mod capacity;
pub mod causal_log;
pub mod cli;
pub mod config;
pub mod crdt;
pub mod deadlines;
pub mod faults;
mod fine_timer;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod histogram;
pub mod hybrid_clock;
pub mod interdc;
pub mod journal;
pub mod leases;
pub mod load_test;
pub mod lock_server;
pub mod lock_state;
pub mod node;
pub mod open_files;
pub mod pki;
pub mod reload;
pub mod replica;
mod rng;
pub mod sim;
pub mod store_state;
pub mod tables;
mod tasks;
pub mod telemetry;
pub mod time;
pub mod wire;
pub mod work;

/// The Rust client.
pub use geolock_client as client;
