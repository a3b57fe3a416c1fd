//! `geolock bench` as a user runs it. It loads the machine as much as it can, so its tests have a binary of
//! their own: no test of a promise runs beside them.
#![allow(clippy::disallowed_methods, reason = "tests are edges")]

#[path = "../fixture/mod.rs"]
mod fixture;

mod command;
#[cfg(feature = "peers")]
mod peers;
