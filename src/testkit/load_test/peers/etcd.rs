//! etcd: its lock service, with a lease for each client.
//!
//! A lease of etcd has one place in the queue of a lock, so clients with one lease would hold the lock
//! together. They share a connection, like the clients of geolock. Their leases outlive the test, so that
//! etcd need not renew them.

use std::time::Duration;

use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};

use super::PeerError;
use super::metrics;
use crate::testkit::load_test::target::{Failure, Target};
use crate::testkit::load_test::workload::{Ask, Locks};
use api::etcdserverpb::lease_client::LeaseClient;
use api::etcdserverpb::maintenance_client::MaintenanceClient;
use api::etcdserverpb::{self as lease_api};
use api::v3lockpb::lock_client::LockClient;
use api::v3lockpb::{self as lock_api};

#[allow(clippy::all, clippy::pedantic, rustdoc::all, missing_docs, reason = "generated")]
mod api {
    // The modules refer to each other by their names.
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    pub mod v3lockpb {
        tonic::include_proto!("v3lockpb");
    }
}

/// Time that leases live beyond the test.
const LEASE_BEYOND: Duration = Duration::from_secs(120);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// etcd measures round trips by HTTP calls to its other servers. Every second call opens a connection, which
/// takes one round trip more (several with TLS). Observed: 118, 217, 317 ms for round trips of 80, 150, 220
/// ms.
const TRIPS_OF_A_PROBE: f64 = 1.5;

/// One server.
pub(super) struct Site {
    endpoint: String,
    channel: Channel,
    pub version: String,
}

/// A client of a server.
pub(super) struct Etcd {
    locks: LockClient<Channel>,
    lease: i64,
}

/// The keys that a client holds, in the order in which they were acquired.
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

    /// Creates a client for a test of that length.
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

    /// Ends a client's lease, and all that it holds.
    pub(super) async fn end(&self, client: &Etcd) -> Result<(), PeerError> {
        let request = lease_api::LeaseRevokeRequest { id: client.lease };
        let revoked = LeaseClient::new(self.channel.clone()).lease_revoke(request).await;
        revoked.map(drop).map_err(|status| PeerError::Unreachable {
            endpoint: self.endpoint.clone(),
            why: status.message().into(),
        })
    }

    /// Returns the round-trip time to each of the other servers, as this server measures it.
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

    /// Acquires many locks one after the other in a fixed order, since a request of etcd has one lock.
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
                    // Otherwise others would wait for the locks that it already holds.
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
