//! Stories between datacenters, on a cluster whose network and disks obey the test.

mod cluster;
mod store_cluster;
mod stories;
mod transactions;
mod watches;
