//! Disks: what was acknowledged survives crashes, full and damaged disks, old copies, and long absences.
//! Guarantees: docs/guarantees.md#locks and docs/guarantees.md#transactions-and-data.
//!
//! Limits of file sizes and mounts apply to server processes and their namespaces, not to the process of the
//! tests, so they share a binary and run in parallel.

#[path = "../fixture/mod.rs"]
mod fixture;

mod damage;
mod full_disk;
mod histories;
mod largest;
mod left_behind;
mod limits;
mod lock_limits;
mod majority;
mod previous_version;
mod raw;
mod restored;
