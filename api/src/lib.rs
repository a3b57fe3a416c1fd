//! The API of geolock, a geo-replicated lock server: the messages between a client and a server, and the
//! types in them. A program uses the client, `geolock-client`, which shows the parts of this crate that a
//! program needs.
//!
//! | module | content |
//! |---|---|
//! | [`names`] | names and ids: of locks, datacenters, leases, requests; fencing tokens |
//! | [`keys`] | the keys of the store |
//! | [`value`] | the types of values, the operations on them and their results |
//! | [`proto`] | the messages, generated from `proto/geolock/v1/geolock.proto` |
//! | [`native`] | the frames in which the messages travel beside gRPC |
//! | [`time`] | points in time and durations, as values |
//!
//! Nothing here reads a clock. Only [`native`] does IO, on sockets that it is given.
#![deny(missing_docs)]

#[cfg(feature = "serde")]
mod encoding;
pub mod keys;
pub mod names;
pub mod native;
pub mod proto;
pub mod time;
pub mod value;
