//! The snapshot that the actor publishes, and the decision if the server is alive and ready.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Semaphore;

use crate::access;
use crate::base::capacity::DiskSpace;
use crate::base::histogram::Histogram;
use crate::journal;
use crate::replica::call::{Phase, Status};
use crate::telemetry::reasons;
use geolock_api::names::{DcId, EntryNumber};

/// An actor that published nothing for this long hangs: 100 of its periods.
const STALE: Duration = Duration::from_secs(10);

/// All figures of a server at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub status: Status,
    pub journal: journal::Figures,
    /// How long a write and a sync of the journal took.
    pub sync_times: Histogram,
    /// How long inputs waited until the server handled them; a sample, about ten a second.
    pub mailbox_delays: Histogram,
    /// About how many bytes waiting calls take, besides the first 32 KiB of each session.
    pub mailbox_bytes: u64,
    pub links: Vec<LinkFigures>,
    /// No link can work any more until a restart.
    pub links_failed: bool,
}

/// The link to one peer since the start of the process, over all its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkFigures {
    pub peer: DcId,
    pub messages_sent: u64,
    pub messages_received: u64,
    /// In UDP datagrams, including overhead.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Messages that wait in its queues now.
    pub queued: u64,
    /// How often it came up.
    pub connects: u64,
    /// Round-trip time as QUIC measures it; `None` while the link is down.
    pub rtt: Option<Duration>,
}

/// A certificate that the server presents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFigures {
    /// The option that names its folder.
    pub name: &'static str,
    pub expires: SystemTime,
    /// It is time to renew it.
    pub expires_soon: bool,
    /// The reason why the present content of the folder is not used.
    pub failure: Option<String>,
}

impl CertificateFigures {
    /// Returns how long it is still valid; 0 after that.
    pub fn left(&self) -> Duration {
        self.expires.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// Holds the latest snapshot, and figures that do not come from the actor. Publishing and reading hold one
/// lock for the time of a pointer swap.
#[derive(Debug, Default)]
pub struct Board {
    latest: Mutex<Option<(Instant, Arc<Snapshot>)>>,
    certificates: Mutex<Arc<[CertificateFigures]>>,
    access: OnceLock<Arc<access::Figures>>,
    places: Mutex<Vec<Places>>,
    evictions: Evictions,
}

/// The number of evictions of other members that this process has learned of, by cause.
#[derive(Debug, Default)]
struct Evictions {
    silence: AtomicU64,
    operator: AtomicU64,
}

/// The reason why a member was evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionCause {
    /// The other members had not heard it for the time of the policy.
    Silence,
    /// An operator said that it is lost, or started another server in its place.
    Operator,
}

/// A resource of which a server has a limited number.
#[derive(Clone, Debug)]
pub struct Places {
    /// The name of the metric; its limit has the suffix `_limit`.
    pub name: &'static str,
    pub help: &'static str,
    pub free: Arc<Semaphore>,
    pub most: usize,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<Snapshot>)>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, snapshot: Snapshot) {
        *self.lock() = Some((Instant::now(), Arc::new(snapshot)));
    }

    /// Replaces the figures of certificates.
    pub fn publish_certificates(&self, figures: Vec<CertificateFigures>) {
        *self.certificates.lock().unwrap_or_else(PoisonError::into_inner) = figures.into();
    }

    /// Returns the figures of certificates; none before the first check.
    pub fn certificates(&self) -> Arc<[CertificateFigures]> {
        Arc::clone(&self.certificates.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Includes these counters from now on. Only the first call has an effect.
    pub fn show_access(&self, figures: Arc<access::Figures>) {
        // A server has one.
        let _ = self.access.set(figures);
    }

    /// Includes the number of these that are in use from now on.
    pub fn show_places(&self, places: Places) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).push(places);
    }

    pub(super) fn places(&self) -> Vec<Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts the eviction of another member.
    pub fn count_eviction(&self, cause: EvictionCause) {
        let count = match cause {
            EvictionCause::Silence => &self.evictions.silence,
            EvictionCause::Operator => &self.evictions.operator,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of evictions, with the name of each cause.
    pub(super) fn evictions(&self) -> [(&'static str, u64); 2] {
        let Evictions { silence, operator } = &self.evictions;
        [("silence", silence.load(Ordering::Relaxed)), ("operator", operator.load(Ordering::Relaxed))]
    }

    pub(super) fn access(&self) -> Option<&access::Figures> {
        self.access.get().map(|figures| &**figures)
    }

    /// Returns the latest snapshot; `None` until the first one.
    pub fn latest(&self) -> Option<Arc<Snapshot>> {
        self.lock().as_ref().map(|(_, snapshot)| Arc::clone(snapshot))
    }

    /// Returns an error if the server hangs. A server that recovers its journal has published nothing yet and
    /// is alive.
    pub fn alive(&self, now: Instant) -> Result<(), String> {
        match &*self.lock() {
            Some((at, _)) if now.saturating_duration_since(*at) > STALE => {
                let silent = now.saturating_duration_since(*at).as_secs();
                Err(format!("the lock server has done nothing for {silent} s"))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error with the reason if clients should not be sent here.
    pub(super) fn ready(&self) -> Result<(), String> {
        match self.latest() {
            None => Err("starting: recovering the journal".into()),
            Some(snapshot) => snapshot.ready(),
        }
    }
}

impl Snapshot {
    pub(super) fn ready(&self) -> Result<(), String> {
        match self.status.phase {
            _ if self.status.draining => Err("draining: shutting down".into()),
            _ if self.links_failed => Err("the UDP socket failed: no links to other datacenters until a restart".into()),
            Phase::Starting => {
                let heard = self.status.peers.iter().filter(|peer| peer.reachable);
                let ahead: Vec<i64> = heard.map(|peer| peer.clock_ahead_ms).collect();
                Err(format!("starting: {}", reasons::starting(&ahead)))
            }
            Phase::ReadOnly => {
                let unheard = self.status.peers.iter().filter(|peer| !peer.reachable);
                let unheard: Vec<String> = unheard.map(|peer| peer.dc.to_string()).collect();
                Err(format!("read only: {}", reasons::read_only(&unheard, self.status.unknown_leases_ms)))
            }
            Phase::Forked { dc, seq } => Err(format!(
                "forked: entry {} of the log of {dc} is not the same everywhere; an operator has to decide which \
                 history is kept",
                EntryNumber(seq)
            )),
            Phase::Grace { leases } => {
                Err(format!("grace after a restart: {leases} leases have not reclaimed their locks"))
            }
            Phase::Serving => match self.status.disk_space {
                DiskSpace::Enough => Ok(()),
                DiskSpace::Low | DiskSpace::Full => {
                    Err("disk full (space, inodes or a quota): commits, leases and new locks are refused until there is space; reads continue".into())
                }
            },
        }
    }
}
