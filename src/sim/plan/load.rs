//! The load of clients.

use std::time::Duration;

use super::MS;
use crate::base::rng::Rng;

/// The load of clients.
#[derive(Clone, Debug)]
pub(in crate::sim) struct LoadPlan {
    /// By datacenter.
    pub clients: Vec<usize>,
    pub hot_locks: usize,
    pub cold_locks: usize,
    pub hot_percent: u64,
    /// Percentage of the cold locks that are wanted in one datacenter mostly.
    pub home_percent: u64,
    /// Percentage of all locks whose name has a home.
    pub homed_percent: u64,
    pub max_locks: usize,
    /// By datacenter.
    pub shared_percent: Vec<u64>,
    pub think: Duration,
    pub hold: Duration,
    pub ttl: (Duration, Duration),
    /// Maximum number of concurrent requests of a client.
    pub concurrent: usize,
    pub try_percent: u64,
    pub at_most_percent: u64,
    pub at_most: Duration,
    pub cancel_percent: u64,
    /// Percentage of leases that end with their session.
    pub release_on_disconnect_percent: u64,
    /// One way between a client and its server.
    pub distance: Duration,
}

pub(super) fn general_load(rng: &mut Rng, dcs: u8) -> LoadPlan {
    LoadPlan {
        clients: vec![rng.between(1, 4) as usize; usize::from(dcs)],
        hot_locks: rng.between(1, 5) as usize,
        cold_locks: *rng.pick(&[0, 20]),
        hot_percent: *rng.pick(&[100, 90, 60]),
        home_percent: 0,
        homed_percent: 0,
        max_locks: *rng.pick(&[1, 2, 4]),
        shared_percent: (0..dcs).map(|_| *rng.pick(&[0, 30, 50, 90])).collect(),
        think: *rng.pick(&[5 * MS, 50 * MS, 400 * MS]),
        hold: *rng.pick(&[MS, 30 * MS, 300 * MS, 1_500 * MS]),
        ttl: (1_000 * MS, *rng.pick(&[1_500 * MS, 4_000 * MS])),
        concurrent: *rng.pick(&[1, 1, 3]),
        try_percent: *rng.pick(&[0, 20]),
        at_most_percent: *rng.pick(&[0, 40]),
        at_most: *rng.pick(&[20 * MS, 1_000 * MS]),
        cancel_percent: *rng.pick(&[0, 20]),
        release_on_disconnect_percent: *rng.pick(&[0, 50]),
        distance: *rng.pick(&[Duration::ZERO, MS, 20 * MS]),
    }
}
