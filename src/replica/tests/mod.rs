//! Stories between datacenters, on a cluster whose network and disks obey the test.

mod cluster;
mod joining;
mod store_cluster;
mod stories;
mod transactions;
