//! Stories between datacenters, on a cluster whose network and disks obey the test.

mod cluster;
mod expiry;
mod store_cluster;
mod stories;
mod transactions;
