//! The report of a load test: as data, which is the JSON; as a table; and as a page.

mod page;
mod plots;
mod svg;
mod table;

use serde::Serialize;

pub use page::page;
pub use table::table;

/// The whole report. Durations are in microseconds unless their names have another unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub made: Made,
    pub test: Test,
    /// Systems under the same test, one after the other; the first is geolock.
    pub systems: Vec<SystemReport>,
}

/// The origin of the report: time, program and machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Made {
    /// Of the load generator.
    pub version: String,
    /// Seconds since the Unix epoch.
    pub at: u64,
    pub cores: usize,
    /// As the kernel names it; empty if it does not.
    pub processor: String,
}

/// The test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Test {
    pub workload: String,
    pub about: String,
    pub clients_per_dc: usize,
    /// The connections that the clients of a datacenter share.
    pub connections_per_dc: usize,
    pub seconds: f64,
    pub warm_up_seconds: f64,
    pub keys: usize,
    pub zipf: f64,
    pub batch: usize,
    /// For mixed: percentage of acquisitions that want another datacenter's keys.
    pub foreign_percent: u8,
    /// For readers: percentage of acquisitions that are exclusive.
    pub writes_percent: u8,
    /// For follow-the-sun: time for which each datacenter is active.
    pub active_seconds: f64,
    pub hold_ms: f64,
    /// Per second and datacenter; none for a closed loop.
    pub rate: Option<f64>,
    pub seed: u64,
    /// The simulated distances of the datacenters, as text.
    pub wan: String,
    /// The command that repeats it; empty if there is none.
    pub command: String,
}

impl Test {
    /// Describes the clients of each datacenter.
    fn clients(&self) -> String {
        match self.connections_per_dc {
            1 => format!("{} clients", self.clients_per_dc),
            connections => format!("{} clients on {connections} connections", self.clients_per_dc),
        }
    }

    /// Describes their requests, and the length of their holds.
    fn what(&self) -> String {
        let batch =
            if self.batch > 1 { format!(", {} locks in a request", self.batch) } else { String::new() };
        let held = if self.hold_ms > 0.0 { format!(", held for {} ms", self.hold_ms) } else { String::new() };
        format!("{}{batch}{held}", self.about)
    }
}

/// The results of one system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SystemReport {
    pub name: String,
    pub version: String,
    pub dcs: Vec<DcReport>,
    /// Over all datacenters.
    pub total: Tally,
    pub wan: Option<WanReport>,
    /// Mean over all pairs of its servers, as the system itself measures it.
    pub round_trip_ms: Option<f64>,
    /// The holds of the hot lock, by datacenter; none for other workloads.
    pub hot: Option<HotReport>,
    /// The number of violations, and descriptions of the first ones.
    pub violations: u64,
    pub described: Vec<String>,
}

/// One datacenter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DcReport {
    pub name: String,
    pub tally: Tally,
    /// Acquisitions per second in each of the report's slices.
    pub throughput: Vec<f64>,
    /// Of the process of its server; a playground is one process.
    pub resident_bytes: u64,
}

/// Counts and latencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    pub acquisitions: u64,
    pub per_second: f64,
    /// More than acquisitions if requests want several.
    pub locks: u64,
    /// Percentage of grants without a round trip to another datacenter; none if the servers do not report it.
    pub local_percent: Option<f64>,
    /// The server was full.
    pub refused: u64,
    /// Locks that were lost while they were held.
    pub lost: u64,
    pub failed: u64,
    /// The first failure.
    pub failure: Option<String>,
    /// Due and not begun at the end (open loop).
    pub missed: u64,
    /// Still waiting at the end.
    pub unfinished: u64,
    /// The longest wait in µs, including those that were not complete.
    pub longest: f64,
    pub acquire: Latency,
    pub release: Latency,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// `(q, t)`: a part `q` of all took at most `t`. Dense near 1.
    pub curve: Vec<(f64, f64)>,
}

/// The traffic between the datacenters during the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WanReport {
    pub messages: u64,
    /// In datagrams.
    pub bytes: u64,
    pub messages_per_acquisition: f64,
    pub bytes_per_acquisition: f64,
    /// Of all links and both directions together.
    pub bytes_per_second: f64,
    pub links: Vec<LinkReport>,
}

/// A link as its first end sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    pub from: String,
    pub to: String,
    pub rtt_ms: f64,
}

/// The holds of the hot lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotReport {
    /// `(datacenter, from, until)` in ms since the beginning, in order. Consecutive holds of one datacenter
    /// are merged.
    pub turns: Vec<(usize, f64, f64)>,
    /// Moves from one datacenter to another, per second.
    pub hand_offs_per_second: f64,
    /// Time from a release in one datacenter to the grant in the next, in µs.
    pub hand_off: Latency,
    /// Percentage of the time in which it was held.
    pub held_percent: f64,
}

impl Report {
    /// Returns true if there were acquisitions and no violations.
    pub fn is_right(&self) -> bool {
        self.systems.iter().all(|system| system.violations == 0 && system.total.acquisitions > 0)
    }

    /// Returns the JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts are JSON")
    }
}

impl WanReport {
    /// Returns the mean over all links.
    pub fn round_trip_ms(&self) -> Option<f64> {
        let sum: f64 = self.links.iter().map(|link| link.rtt_ms).sum();
        (!self.links.is_empty()).then(|| sum / self.links.len() as f64)
    }
}

impl SystemReport {
    /// Returns how evenly acquisitions fall on the datacenters: 1 if all have the same number, 1/n if one has
    /// all (Jain, Chiu, Hawe 1984).
    pub fn fairness(&self) -> f64 {
        let shares = || self.dcs.iter().map(|dc| dc.tally.acquisitions as f64);
        let (sum, squares) = (shares().sum::<f64>(), shares().map(|share| share * share).sum::<f64>());
        if squares == 0.0 { 1.0 } else { sum * sum / (squares * self.dcs.len() as f64) }
    }
}

#[cfg(test)]
fn sample_test(workload: &str) -> Test {
    Test {
        workload: workload.into(),
        about: "one lock".into(),
        clients_per_dc: 1,
        connections_per_dc: 1,
        seconds: 10.0,
        warm_up_seconds: 2.0,
        keys: 1,
        zipf: 0.0,
        batch: 1,
        foreign_percent: 5,
        writes_percent: 1,
        active_seconds: 2.0,
        hold_ms: 0.0,
        rate: None,
        seed: 1,
        wan: "far".into(),
        command: "geolock bench --workload hot".into(),
    }
}

/// Returns a report of an invented run.
#[cfg(test)]
fn sample(workload: &str, dcs: &[&str]) -> Report {
    let latency = Latency {
        count: 1_000,
        mean: 600.0,
        min: 40.0,
        p50: 500.0,
        p90: 900.0,
        p99: 120_000.0,
        p999: 150_000.0,
        max: 200_000.0,
        curve: vec![(0.0, 40.0), (0.5, 500.0), (0.99, 120_000.0), (0.999, 150_000.0), (1.0, 200_000.0)],
    };
    let tally = Tally {
        acquisitions: 1_000,
        per_second: 100.0,
        locks: 1_000,
        local_percent: Some(50.0),
        refused: 0,
        lost: 0,
        failed: 0,
        failure: None,
        missed: 0,
        unfinished: 3,
        longest: 300_000.0,
        acquire: latency.clone(),
        release: latency.clone(),
    };
    let dc = |name: &&str| DcReport {
        name: (*name).into(),
        tally: tally.clone(),
        throughput: vec![90.0, 110.0, 0.0],
        resident_bytes: 1 << 20,
    };
    let link = LinkReport { from: dcs[0].into(), to: dcs[dcs.len() - 1].into(), rtt_ms: 80.0 };
    Report {
        made: Made { version: "0.1.0".into(), at: 0, cores: 2, processor: String::new() },
        test: sample_test(workload),
        systems: vec![SystemReport {
            name: "geolock".into(),
            version: "0.1.0".into(),
            dcs: dcs.iter().map(dc).collect(),
            total: tally.clone(),
            wan: Some(WanReport {
                messages: 10,
                bytes: 1_000,
                messages_per_acquisition: 0.01,
                bytes_per_acquisition: 1.0,
                bytes_per_second: 100.0,
                links: vec![link],
            }),
            round_trip_ms: Some(80.0),
            hot: Some(HotReport {
                turns: vec![(0, 0.0, 10.0), (dcs.len() - 1, 50.0, 60.0)],
                hand_offs_per_second: 12.5,
                hand_off: latency,
                held_percent: 20.0,
            }),
            violations: 1,
            described: vec!["lock 1 was held twice".into()],
        }],
    }
}
