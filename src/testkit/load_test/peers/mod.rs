//! The same load on other systems, for comparison. Only with the feature `peers`.
//!
//! A comparison is valid only if the distances between the servers of both systems are equal. So the round
//! trips that each system itself measures between its servers are compared first, and a run is refused if
//! they differ.

mod etcd;
mod metrics;

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::options::{Options, Workload};
use super::phase::Stage;
use super::report::Report;
use super::servers::figures;
use super::{Happening, LoadTestError, prefix};
use etcd::{Etcd, Site};
use geolock_client::Client;

/// Round trips that differ by at most this part count as equal.
const SAME_PART: f64 = 0.2;
/// QUIC may delay an acknowledgement by that long and counts it in, so geolock's round trips may seem longer
/// by as much.
const ACKNOWLEDGED: Duration = Duration::from_millis(25);
/// Differences up to this may come from the load of the machine.
const NEAR: Duration = Duration::from_millis(20);

/// A system that is already running: one server for each datacenter, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub endpoints: Vec<String>,
}

/// The text does not name another system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another system is etcd=HOST:PORT,.. with a server for each datacenter")]
pub struct NoPeer;

impl FromStr for Peer {
    type Err = NoPeer;

    fn from_str(text: &str) -> Result<Peer, NoPeer> {
        let endpoints = text.strip_prefix("etcd=").ok_or(NoPeer)?;
        let is_endpoint = |text: &str| {
            let parts = text.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match endpoints.split(',').all(is_endpoint) {
            true => Ok(Peer { endpoints: endpoints.split(',').map(String::from).collect() }),
            false => Err(NoPeer),
        }
    }
}

/// The reason why another system was not measured.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("etcd has no {0}: choose another workload to compare with it")]
    Workload(&'static str),
    #[error("{found} servers of etcd for {wanted} datacenters: name one for each")]
    Count { found: usize, wanted: usize },
    #[error("etcd at {endpoint}: {why}")]
    Unreachable { endpoint: String, why: String },
    #[error(
        "the round trips between servers are not the same, so neither would be the figures: {which} {ours:?} between \
         those of geolock, {theirs:?} between those of etcd. The WAN of a playground delays geolock alone: put servers of \
         both into a network that delays both"
    )]
    OtherDistances { which: &'static str, ours: Duration, theirs: Duration },
}

/// Another system that can be compared.
pub struct Ready {
    sites: Vec<Site>,
    /// As it measures them itself; none if it has not yet.
    round_trip_ms: Option<f64>,
}

impl Ready {
    /// Refuses an invalid comparison before anything is measured. `clients` are those of geolock. `is_near`
    /// if its datacenters are known to have no distance; then a round trip depends on the load of the machine
    /// only.
    pub async fn new(
        options: &Options,
        peer: &Peer,
        clients: &[Client],
        is_near: bool,
    ) -> Result<Ready, LoadTestError> {
        check(options, peer, clients.len())?;
        let mut sites = Vec::new();
        for endpoint in &peer.endpoints {
            sites.push(Site::connect(endpoint).await?);
        }
        let mut theirs = Vec::new();
        for site in &sites {
            theirs.extend(site.round_trip_ms().await?);
        }
        let mut ours = Vec::new();
        for client in clients {
            let figures = figures(client).await?;
            // 0 is one that was not measured yet.
            let known = figures.rtts.iter().filter(|(_, micros)| *micros > 0);
            ours.extend(known.map(|(_, micros)| *micros as f64 / 1_000.0));
        }
        let ours = if is_near { Some(Spread::even(0.0)) } else { Spread::of(&ours) };
        let theirs = Spread::of(&theirs);
        if let (Some(ours), Some(theirs)) = (&ours, &theirs) {
            same_distances(ours, theirs)?;
        }
        Ok(Ready { sites, round_trip_ms: theirs.map(|theirs| theirs.mean) })
    }

    /// Runs the test that `report` has for geolock, and adds the result to it.
    pub async fn run(
        &self,
        options: &Options,
        report: &mut Report,
        mut tell: impl FnMut(Happening),
    ) -> Result<(), LoadTestError> {
        let options = Arc::new(options.clone());
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stage = Stage::new(&options, self.clients(&options).await?, &prefix(at));
        stage.warm_up(&mut tell).await?;
        self.end(&stage.targets).await?;
        let stage = Stage::new(&options, self.clients(&options).await?, &prefix(at));
        let measured = stage.measure(&mut tell).await?;
        self.end(&stage.targets).await?;
        let names: Vec<String> = report.systems[0].dcs.iter().map(|dc| dc.name.clone()).collect();
        let mut system = stage.report(("etcd", self.sites[0].version.clone()), &names, &measured);
        system.round_trip_ms = self.round_trip_ms;
        report.systems.push(system);
        Ok(())
    }

    async fn clients(&self, options: &Options) -> Result<Vec<Vec<Arc<Etcd>>>, PeerError> {
        let mut all = Vec::new();
        for site in &self.sites {
            let mut clients = Vec::new();
            for _ in 0..options.clients {
                clients.push(Arc::new(site.client(options.warm_up + options.duration).await?));
            }
            all.push(clients);
        }
        Ok(all)
    }

    /// Ends all leases, and with them the locks of clients that had given up.
    async fn end(&self, clients: &[Vec<Arc<Etcd>>]) -> Result<(), PeerError> {
        for (site, clients) in self.sites.iter().zip(clients) {
            for client in clients {
                site.end(client).await?;
            }
        }
        Ok(())
    }
}

fn check(options: &Options, peer: &Peer, wanted: usize) -> Result<(), PeerError> {
    match options.workload {
        Workload::Readers => return Err(PeerError::Workload("shared locks")),
        Workload::Txn => return Err(PeerError::Workload("transactions under its locks")),
        _ => {}
    }
    let found = peer.endpoints.len();
    if found == wanted { Ok(()) } else { Err(PeerError::Count { found, wanted }) }
}

/// Round trips between the servers of a system, in ms. The mapping between the servers of two systems is not
/// known.
struct Spread {
    shortest: f64,
    mean: f64,
    longest: f64,
}

impl Spread {
    fn even(ms: f64) -> Spread {
        Spread { shortest: ms, mean: ms, longest: ms }
    }

    /// Returns `None` without times.
    fn of(times: &[f64]) -> Option<Spread> {
        let shortest = times.iter().copied().reduce(f64::min)?;
        let longest = times.iter().copied().reduce(f64::max)?;
        Some(Spread { shortest, mean: times.iter().sum::<f64>() / times.len() as f64, longest })
    }
}

fn same_distances(ours: &Spread, theirs: &Spread) -> Result<(), PeerError> {
    let all = [
        ("on average", ours.mean, theirs.mean),
        ("at least", ours.shortest, theirs.shortest),
        ("at most", ours.longest, theirs.longest),
    ];
    for (which, ours, theirs) in all {
        let span = |ms: f64| Duration::from_secs_f64(ms / 1_000.0);
        let differ = span((ours - theirs).abs());
        let is_near = differ <= if ours > theirs { ACKNOWLEDGED } else { NEAR };
        if !is_near && differ > span(ours.max(theirs)).mul_f64(SAME_PART) {
            return Err(PeerError::OtherDistances { which, ours: span(ours), theirs: span(theirs) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_distance_is_compared() {
        let compared = |ours: &[f64], theirs: &[f64]| {
            let spread = |times| Spread::of(times).expect("there are some");
            same_distances(&spread(ours), &spread(theirs))
        };
        assert!(compared(&[0.3], &[0.1]).is_ok() && compared(&[200.0], &[230.0]).is_ok());
        assert!(compared(&[25.0], &[0.1]).is_ok(), "acknowledgements wait");
        assert!(compared(&[0.0], &[40.0]).is_err(), "only they are delayed");
        let world = [80.0, 150.0, 220.0];
        assert!(compared(&world, &[221.0, 79.0, 152.0]).is_ok(), "in any order");
        let error = compared(&world, &[150.0; 3]).expect_err("only on average the same").to_string();
        assert!(error.contains("at least 80ms"), "{error}");
        let error = compared(&[150.0], &[0.2]).expect_err("one of them is delayed").to_string();
        assert!(error.contains("on average 150ms") && error.contains("delays geolock alone"), "{error}");
    }

    #[test]
    fn a_peer_has_a_kind_and_endpoints() {
        let peer: Peer = "etcd=a:1,[::1]:2".parse().expect("two of them");
        assert_eq!(peer.endpoints, ["a:1", "[::1]:2"]);
        for wrong in ["etcd", "etcd=", "etcd=a", "consul=a:1", "etcd=a:1,", "etcd=:1"] {
            assert_eq!(wrong.parse::<Peer>(), Err(NoPeer), "{wrong}");
        }
    }
}
