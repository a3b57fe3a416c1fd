//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod damage;
mod full_disk;
mod histories;
mod left_behind;
mod previous_version;
mod restored;
