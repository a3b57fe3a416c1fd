//! Ground, for every module: time as values, clocks, deadlines, histograms, tables that grow in small steps,
//! seeded random numbers, hash maps without iteration, and the codec.
//!
//! # Decisions
//!
//! - **Later versions of wire and disk are version 1 with more variants.** Entries and heartbeats of
//!   earlier versions are variants of their own of `Message` and `Record`, with the same content in memory.
//!   So a decoder needs no version, and the sender to an old peer chooses the variant
//!   (`lock_server/effects.rs`). The codec is bincode. Rejected: `postcard`, which would save no relevant
//!   space while two codecs would have to be kept for a release. The format versions allow that change
//!   later.
//! - **Each member announces one number, the highest version that all speak**
//!   (`replica/lifecycle/peer_versions.rs`). Rejected: features that are negotiated one by one; and a level
//!   that can fall, which would leave data in the logs that a member cannot read.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

pub mod access_digests;
pub mod bugs;
pub mod capacity;
pub mod deadlines;
pub mod entry_number;
pub mod histogram;
pub mod hybrid_clock;
pub mod keyed_map;
pub(crate) mod rng;
pub mod some_names;
pub mod tables;
pub mod time;
pub mod wire;
pub mod work;
