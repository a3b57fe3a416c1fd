//! Calls of the API over gRPC, without the client library, which refuses some requests itself.

use std::fs;

use bytes::Bytes;
use prost::Message as _;
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::fixture::{Cluster, within};
use geolock::client::{Key, Reason, Snapshot, Update};
use geolock_api::proto::change::Action;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::{self, ERROR_METADATA, Then};
use geolock_api::value::messages;

/// Returns a gRPC channel to that datacenter.
pub async fn channel(cluster: &Cluster, dc: u8) -> Channel {
    let read = |name: &str| fs::read(cluster.tls().join(name)).expect("it was issued");
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.pem")))
        .identity(Identity::from_pem(read("cert.pem"), read("key.pem")));
    let endpoint = Endpoint::from_shared(format!("https://{}", cluster.endpoint(dc))).expect("an address");
    endpoint.tls_config(tls).expect("good files").connect().await.expect("it listens")
}

/// A lease, and the calls under it.
pub struct Raw {
    pub api: LocksClient<Channel>,
    pub lease: u64,
    pub secret: Bytes,
    /// The last idempotency key.
    number: u64,
}

impl Raw {
    pub async fn open(cluster: &Cluster, dc: u8) -> Raw {
        let mut api = LocksClient::new(channel(cluster, dc).await);
        let open = proto::OpenLeaseRequest { ttl_ms: 60_000, ..Default::default() };
        let opened = within(api.open_lease(open)).await.expect("it serves").into_inner();
        Raw { api, lease: opened.lease, secret: opened.secret, number: 0 }
    }

    /// Ends the lease: a server that restarts waits for those that live.
    pub async fn close(mut self) {
        let close = proto::CloseLeaseRequest { lease: self.lease, secret: self.secret.clone() };
        within(self.api.close_lease(close)).await.expect("it serves");
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Returns a transaction of one step that commits.
    pub fn begin(&mut self, changes: Vec<proto::Change>) -> proto::BeginRequest {
        let step = proto::Step { changes, then: Then::Commit.into(), ..Default::default() };
        proto::BeginRequest {
            lease: self.lease,
            secret: self.secret.clone(),
            idempotency_key: self.next_number(),
            step: Some(step),
            ..Default::default()
        }
    }

    pub async fn transact(&mut self, begin: proto::BeginRequest) -> Result<Snapshot, Refused> {
        let done = within(self.api.transact(begin)).await?.into_inner();
        Ok(done.commit.expect("it is committed"))
    }

    pub async fn commit(&mut self, changes: Vec<proto::Change>) -> Result<Snapshot, Refused> {
        let begin = self.begin(changes);
        self.transact(begin).await
    }

    /// Returns a request for these locks.
    pub fn acquire(&mut self, locks: Vec<proto::LockMode>) -> proto::AcquireRequest {
        proto::AcquireRequest {
            lease: self.lease,
            secret: self.secret.clone(),
            locks,
            wait: Some(proto::acquire_request::Wait::WaitMs(60_000)),
            idempotency_key: self.next_number(),
            ..Default::default()
        }
    }
}

/// A refusal: its reason and its message.
#[derive(Debug)]
pub struct Refused(pub Reason, pub String);

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        let bytes = status.metadata().get_bin(ERROR_METADATA).and_then(|value| value.to_bytes().ok());
        let error = bytes.and_then(|bytes| proto::Error::decode(bytes).ok());
        let error = error.unwrap_or_else(|| panic!("the server says why: {status}"));
        Refused(error.reason(), error.message)
    }
}

/// Checks that a call was refused for this reason, with a message that names the limit.
pub fn is_refused<T>(refused: Result<T, Refused>, reason: Reason, limit: &str) {
    match refused {
        Ok(_) => panic!("a refusal was expected: {reason:?}, {limit}"),
        Err(Refused(found, message)) => {
            assert!(found == reason && message.contains(limit), "{found:?}, not {reason:?}: {message}");
        }
    }
}

pub fn named(bucket: impl Into<Bytes>, name: impl Into<Bytes>) -> proto::Key {
    proto::Key { bucket: bucket.into(), name: name.into() }
}

pub fn key_of(key: &Key) -> proto::Key {
    named(key.bucket().to_vec(), key.name().to_vec())
}

pub fn change(key: proto::Key, update: Update) -> proto::Change {
    proto::Change { key: Some(key), action: Some(Action::Update(messages::show(update))) }
}

pub fn exclusive(name: impl Into<Bytes>) -> proto::LockMode {
    proto::LockMode { name: name.into(), mode: proto::Mode::Exclusive.into(), home: None }
}
