//! Stories between datacenters, on a cluster whose network and disks obey the test.

mod clocks;
mod cluster;
mod digests;
mod expiry;
mod force_release;
mod forked;
mod full_disk;
mod grace;
mod keys;
mod large_commits;
mod late_timers;
mod log_recovery;
mod not_serving;
mod overload;
mod regained;
mod restarts;
mod rolled_back;
mod state_transfer;
mod status;
mod store_cluster;
mod stories;
mod terms;
mod top;
mod transactions;
mod watches;
mod work;
