//! geolock: a geo-replicated lock server.
//!
//! One server runs in each datacenter. Every decision about locks, leases and data is made by one
//! deterministic state machine, [`replica::Replica`]: events with the time go in, effects come out. Around it
//! are edges that do IO and decide nothing. The simulator puts other edges around the same machine.
//!
//! ```text
//!  server ----> lock_server ----> replica ----> lock_state, leases, store_state
//!  (clients)    (threads)         (decisions)        |
//!               |                                    v
//!               +---> journal (disk)            causal_log ---> crdt ---> base
//!               +---> interdc (other datacenters)
//! ```
//! Pure modules, from the bottom up:
//!
//! - [`base`]: time, clocks, deadlines, histograms, tables, the codec.
//! - [`crdt`]: data types that merge: version vectors, the owners of parts, values.
//! - [`causal_log`]: the log of each datacenter, and the entries of it that each peer has.
//! - [`lock_state`]: holders, waiters, and the decision when parts leave.
//! - [`leases`]: leases of clients, and the grace period after a restart.
//! - [`store_state`]: keys and values at every open snapshot.
//! - [`membership`]: the members and policies of the cluster, as a list of decisions.
//! - [`replica`]: one datacenter, made of the modules above.
//! - [`sim`]: a world of replicas, faults and clients, and the checks of every promise.
//!
//! Edges:
//!
//! - [`runtime`]: small additions to the runtime and the operating system.
//! - [`pki`]: certificates. [`access`]: authorization. [`telemetry`]: logs, metrics and health.
//! - [`journal`]: the disk. [`interdc`]: links to other datacenters.
//! - [`control`]: the list of decisions on which the datacenters agree by majority.
//! - [`lock_server`]: the threads around the state machine.
//! - [`server`]: everything that makes one server of these: configuration, API, start and stop.
//! - [`cli`]: the command line. [`testkit`]: load test, faults on purpose, fuzzing.
//!
//! The terms are those of the glossary in `docs/algorithm/model.md#1-terms`. ARCHITECTURE.md follows one
//! acquire from client to client; CONTRIBUTING.md says in which order to read.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "edges read clocks and start threads; pure rooms deny it again"
)]

pub mod access;
pub mod base;
pub mod causal_log;
pub mod cli;
pub mod control;
pub mod crdt;
pub mod interdc;
pub mod journal;
pub mod leases;
pub mod lock_server;
pub mod lock_state;
pub mod membership;
pub mod pki;
pub mod replica;
pub mod runtime;
pub mod server;
pub mod sim;
pub mod store_state;
pub mod telemetry;
pub mod testkit;

/// The Rust client.
pub use geolock_client as client;
