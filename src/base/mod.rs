//! Ground, for every module: time as values, clocks, deadlines, histograms, tables that grow in small steps,
//! seeded random numbers, hash maps without iteration, and the codec.
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
