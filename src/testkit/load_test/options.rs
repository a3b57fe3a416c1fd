//! The options of a load test.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A load test, without the addresses of the servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub workload: Workload,
    /// Clients in each datacenter.
    pub clients: usize,
    /// Connections that the clients of a datacenter share: one, like the parts of one application, up to one
    /// for each client.
    pub connections: usize,
    /// Duration of the measurement.
    pub duration: Duration,
    /// Duration of the same load before it, which is not counted.
    pub warm_up: Duration,
    /// Locks of each datacenter, or, in workloads without homes, of all together.
    pub keys: usize,
    /// Skew of the choice of locks (Zipf exponent): 0 for a uniform one, 0.99 as in YCSB (the first of a
    /// thousand gets an eighth of all acquisitions).
    pub zipf: f64,
    /// Locks in one request.
    pub batch: usize,
    /// For [`Workload::Mixed`]: percentage of acquisitions that want a lock of another datacenter.
    pub foreign_percent: u8,
    /// For [`Workload::Readers`]: percentage of acquisitions that are exclusive.
    pub writes_percent: u8,
    /// Time for which a lock is held.
    pub hold: Duration,
    /// Acquisitions that are due per second in each datacenter, even if earlier ones are not done; a latency
    /// counts from the due time. Without it, each client acquires as soon as it has released.
    pub rate: Option<f64>,
    /// For [`Workload::FollowTheSun`]: time for which each datacenter is active.
    pub active_for: Duration,
    /// The same seed makes every client want the same locks in the same order.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workload: Workload::Home,
            clients: 16,
            connections: 1,
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(2),
            keys: 1_000,
            zipf: 0.0,
            batch: 1,
            foreign_percent: 5,
            writes_percent: 1,
            hold: Duration::ZERO,
            rate: None,
            active_for: Duration::from_secs(2),
            seed: 1,
        }
    }
}

/// The workload: which clients want which locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every datacenter uses locks of its own.
    Home,
    /// One lock, wanted in every datacenter.
    Hot,
    /// As `Home`, but some acquisitions want a lock of another datacenter.
    Mixed,
    /// As `Home`, many locks in each request.
    Batch,
    /// All datacenters share all locks; only the first one also wants some exclusively.
    Readers,
    /// All want the same locks, one datacenter after the other.
    FollowTheSun,
    /// As `Home`, with a transaction under each lock: it reads a number in the store and writes the next one.
    Txn,
    /// Locks that were never used before: all their parts but one have to come from the other datacenters.
    First,
}

impl Workload {
    pub const ALL: [Workload; 8] = [
        Workload::Home,
        Workload::Hot,
        Workload::Mixed,
        Workload::Batch,
        Workload::Readers,
        Workload::FollowTheSun,
        Workload::Txn,
        Workload::First,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Workload::Home => "home",
            Workload::Hot => "hot",
            Workload::Mixed => "mixed",
            Workload::Batch => "batch",
            Workload::Readers => "readers",
            Workload::FollowTheSun => "follow-the-sun",
            Workload::Txn => "txn",
            Workload::First => "first",
        }
    }

    /// Returns a description in one line.
    pub fn about(self) -> &'static str {
        match self {
            Workload::Home => "every datacenter uses locks of its own",
            Workload::Hot => "one lock, wanted in every datacenter",
            Workload::Mixed => "own locks, and now and then one of another datacenter",
            Workload::Batch => "many own locks in each request",
            Workload::Readers => "all share all locks, the first datacenter also writes",
            Workload::FollowTheSun => "the same locks for all, one datacenter after the other",
            Workload::Txn => "read, change and commit under an own lock",
            Workload::First => "locks that nobody had before",
        }
    }

    /// Returns true if all datacenters want the same locks.
    pub(super) fn is_common(self) -> bool {
        matches!(self, Workload::Hot | Workload::Readers | Workload::FollowTheSun)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a workload is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload {0:?}; there are {names}", names = Workload::ALL.map(Workload::name).join(", "))]
pub struct UnknownWorkload(String);

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Workload, UnknownWorkload> {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == text);
        found.ok_or_else(|| UnknownWorkload(text.to_owned()))
    }
}

/// The reason why options are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    #[error("{what} has to be from {least} to {most}; {found} was asked for")]
    OutOfRange { what: &'static str, least: f64, most: f64, found: f64 },
    #[error("a request of {batch} locks needs as many, there are {keys}: raise the number of keys")]
    BatchOverKeys { batch: usize, keys: usize },
    #[error("the workload hot has one lock, so none of its requests wants {0}")]
    HotBatch(usize),
    #[error("datacenters that rest miss what is due meanwhile: the workload follow-the-sun has no rate")]
    RestingRate,
}

impl Options {
    /// Refuses options without a meaningful run.
    pub fn check(&self) -> Result<(), OptionError> {
        let within = |what, found: f64, least: f64, most: f64| match found >= least && found <= most {
            true => Ok(()),
            false => Err(OptionError::OutOfRange { what, least, most, found }),
        };
        within("the number of clients", self.clients as f64, 1.0, 100_000.0)?;
        within("the number of connections", self.connections as f64, 1.0, self.clients as f64)?;
        within("the seconds", self.duration.as_secs_f64(), 0.1, 86_400.0)?;
        within("the seconds of warming up", self.warm_up.as_secs_f64(), 0.0, 3_600.0)?;
        within("the number of keys", self.keys as f64, 1.0, 10_000_000.0)?;
        within("zipf", self.zipf, 0.0, 5.0)?;
        within("the batch", self.batch as f64, 1.0, 10_000.0)?;
        within("the percentage of foreign locks", f64::from(self.foreign_percent), 0.0, 100.0)?;
        within("the percentage of writes", f64::from(self.writes_percent), 0.0, 100.0)?;
        within("the seconds of holding", self.hold.as_secs_f64(), 0.0, 60.0)?;
        within("the seconds of following the sun", self.active_for.as_secs_f64(), 0.05, 3_600.0)?;
        if let Some(rate) = self.rate {
            within("the rate", rate, 0.001, 10_000_000.0)?;
        }
        if self.workload == Workload::Hot && self.batch > 1 {
            return Err(OptionError::HotBatch(self.batch));
        }
        if self.workload == Workload::FollowTheSun && self.rate.is_some() {
            return Err(OptionError::RestingRate);
        }
        let is_bounded = !matches!(self.workload, Workload::Hot | Workload::First);
        if is_bounded && self.batch > self.keys {
            return Err(OptionError::BatchOverKeys { batch: self.batch, keys: self.keys });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_found_by_name() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        let error = "warm".parse::<Workload>().expect_err("there is none").to_string();
        assert!(error.contains("\"warm\"") && error.contains("follow-the-sun"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(Options::default().check(), Ok(()));
        let none = Options { clients: 0, ..Options::default() };
        assert!(none.check().is_err_and(|error| error.to_string().contains("clients")));
        let idle = Options { clients: 2, connections: 3, ..Options::default() };
        assert!(
            idle.check().is_err_and(|error| error.to_string().contains("connections has to be from 1 to 2"))
        );
        let nan = Options { rate: Some(f64::NAN), ..Options::default() };
        assert!(nan.check().is_err());
        let batch = Options { workload: Workload::Batch, batch: 10, keys: 9, ..Options::default() };
        assert_eq!(batch.check(), Err(OptionError::BatchOverKeys { batch: 10, keys: 9 }));
        let hot = Options { workload: Workload::Hot, batch: 2, ..Options::default() };
        assert_eq!(hot.check(), Err(OptionError::HotBatch(2)));
        let sun = Options { workload: Workload::FollowTheSun, rate: Some(1.0), ..Options::default() };
        assert_eq!(sun.check(), Err(OptionError::RestingRate));
    }
}
