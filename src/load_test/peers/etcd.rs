//! etcd: its lock service, with a lease for each client.
//!
//! A lease of etcd has one place in the queue of a lock, so clients that shared one would hold the lock together. They
//! share a connection, as ours do. Their leases outlive the test, so that etcd need not renew them.

use std::time::Duration;

use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};

use super::PeerError;
use super::metrics;
use crate::load_test::target::{Failure, Target};
use crate::load_test::workload::{Ask, Locks};
use api::etcdserverpb::lease_client::LeaseClient;
use api::etcdserverpb::maintenance_client::MaintenanceClient;
use api::etcdserverpb::{self as lease_api};
use api::v3lockpb::lock_client::LockClient;
use api::v3lockpb::{self as lock_api};

#[allow(clippy::all, clippy::pedantic, rustdoc::all, missing_docs, reason = "generated")]
mod api {
    // They find each other by their names.
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    pub mod v3lockpb {
        tonic::include_proto!("v3lockpb");
    }
}

/// How much longer than the test leases live.
const LEASE_BEYOND: Duration = Duration::from_secs(120);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// etcd measures by HTTP calls to its other servers, every second of which opens a connection, which takes one round trip
/// more (more than one where they talk over TLS). Seen: 118, 217, 317 ms where the way was 80, 150, 220.
const TRIPS_OF_A_PROBE: f64 = 1.5;

/// One server.
pub(super) struct Site {
    endpoint: String,
    channel: Channel,
    pub version: String,
}

/// One client of it.
pub(super) struct Etcd {
    locks: LockClient<Channel>,
    lease: i64,
}

/// What a client holds: the keys, in the order in which they were taken.
pub(super) struct Held {
    locks: LockClient<Channel>,
    keys: Vec<Bytes>,
    revision: i64,
}

impl Site {
    pub(super) async fn connect(endpoint: &str) -> Result<Site, PeerError> {
        let unreachable = |why: String| PeerError::Unreachable { endpoint: endpoint.into(), why };
        let dialled = Endpoint::from_shared(format!("http://{endpoint}"))
            .map_err(|error| unreachable(error.to_string()))?;
        let dialled = dialled.connect_timeout(CONNECT_WITHIN).tcp_nodelay(true);
        let channel = dialled.connect().await.map_err(|error| unreachable(error.to_string()))?;
        let status = MaintenanceClient::new(channel.clone()).status(lease_api::StatusRequest {}).await;
        let version = status.map_err(|status| unreachable(status.message().into()))?.into_inner().version;
        Ok(Site { endpoint: endpoint.into(), channel, version })
    }

    /// For a test of that length.
    pub(super) async fn client(&self, lasts: Duration) -> Result<Etcd, PeerError> {
        let ttl = (lasts + LEASE_BEYOND).as_secs() as i64;
        let request = lease_api::LeaseGrantRequest { ttl, id: 0 };
        let granted = LeaseClient::new(self.channel.clone()).lease_grant(request).await;
        let granted = granted.map_err(|status| PeerError::Unreachable {
            endpoint: self.endpoint.clone(),
            why: status.message().into(),
        })?;
        Ok(Etcd { locks: LockClient::new(self.channel.clone()), lease: granted.into_inner().id })
    }

    /// Ends a client's lease: nothing of it stays held.
    pub(super) async fn end(&self, client: &Etcd) -> Result<(), PeerError> {
        let request = lease_api::LeaseRevokeRequest { id: client.lease };
        let revoked = LeaseClient::new(self.channel.clone()).lease_revoke(request).await;
        revoked.map(drop).map_err(|status| PeerError::Unreachable {
            endpoint: self.endpoint.clone(),
            why: status.message().into(),
        })
    }

    /// To each of the other servers, from what it measures itself.
    pub(super) async fn round_trip_ms(&self) -> Result<Vec<f64>, PeerError> {
        let page = metrics::fetch(&self.endpoint).await;
        let page = page.map_err(|why| PeerError::Unreachable { endpoint: self.endpoint.clone(), why })?;
        Ok(metrics::means(&page, "etcd_network_peer_round_trip_time_seconds")
            .map(|seconds| 1_000.0 * seconds / TRIPS_OF_A_PROBE)
            .collect())
    }
}

impl Target for Etcd {
    type Held = Held;

    /// Many locks one after the other in one order, since etcd takes them one by one.
    async fn acquire(&self, ask: &Ask, locks: &Locks) -> Result<Held, Failure> {
        let mut wanted: Vec<u64> = ask.locks.iter().map(|(key, _)| *key).collect();
        wanted.sort_unstable();
        let mut held =
            Held { locks: self.locks.clone(), keys: Vec::with_capacity(wanted.len()), revision: 0 };
        for key in wanted {
            let name = Bytes::copy_from_slice(locks.name(key).as_bytes());
            let request = lock_api::LockRequest { name, lease: self.lease };
            let answer = match held.locks.lock(request).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => {
                    // Nobody else may wait for what this one has.
                    let _ = self.release(held).await;
                    return Err(failure(status));
                }
            };
            held.keys.push(answer.key);
            held.revision = answer.header.map_or(0, |header| header.revision);
        }
        Ok(held)
    }

    fn token(&self, held: &Held) -> u64 {
        held.revision as u64
    }

    async fn work(&self, _: &mut Held) -> Result<(), Failure> {
        Ok(())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let Held { mut locks, keys, .. } = held;
        let mut first = Ok(());
        for key in keys.into_iter().rev() {
            let unlocked = locks.unlock(lock_api::UnlockRequest { key }).await;
            first = first.and(unlocked.map(drop).map_err(failure));
        }
        first
    }
}

fn failure(status: tonic::Status) -> Failure {
    Failure::Other(format!("etcd: {}", status.message()))
}
