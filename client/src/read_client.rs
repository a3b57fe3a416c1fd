//! Reads: calls that change nothing, outside the session's stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tonic::{Response, Status as GrpcStatus};

use super::changes;
use super::config::ClientConfig;
use super::connection::{Api, Dialled};
use super::error::{ClientError, LinkError, not_understood, of_status};
use super::handle::Client;
use super::txn_request::AtLeast;
use super::values::Value;
use geolock_api::keys::Key;
use geolock_api::names::LockName;
use geolock_api::proto::{
    self, DescribeLockRequest, Feature, HotLock, ListKeysRequest, ListLocksRequest, LockDescription,
    LockSummary, ReadRequest, Snapshot, StatusRequest, StatusResponse, TopLocksRequest,
};

/// Time for an answer beyond that for the connection: a description asks other datacenters for up to a
/// second.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The part of a listing to return; the default is its first 100 locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Largest number of locks; 0 means 100, more than 1 000 means 1 000.
    pub size: u32,
    /// Where to continue: [`LockPage::next`] or [`KeyPage::next`] of the page before; empty at first.
    pub token: Bytes,
}

/// A part of a listing, in no particular order.
#[derive(Clone, Debug, PartialEq)]
pub struct LockPage {
    /// May have fewer locks than the page size although more follow.
    pub locks: Vec<LockSummary>,
    /// Token of the next page; `None` at the end.
    pub next: Option<Bytes>,
}

/// A part of a listing of keys, in no particular order.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPage {
    /// The names of keys. May have fewer than the page size although more follow.
    pub names: Vec<Bytes>,
    /// Token of the next page; `None` at the end.
    pub next: Option<Bytes>,
}

/// The values of keys at one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadResult {
    /// The snapshot of the read. Another read at least at this snapshot sees everything that this one saw.
    pub snapshot: Snapshot,
    /// In the order of the requested keys.
    pub values: Vec<Value>,
}

/// Reads from a datacenter and changes nothing there. It needs no lease, so a server that is full or shutting
/// down answers too. Use it where no locks are needed.
#[derive(Clone, Debug)]
pub struct ReadClient {
    pub(super) endpoint: String,
    /// All endpoints, for watches.
    pub(super) endpoints: Arc<[Dialled]>,
    locks: Api,
    patience: Duration,
}

impl ReadClient {
    /// Connects to the first endpoint that answers. The settings for leases in the configuration are ignored.
    pub async fn connect(config: ClientConfig) -> Result<ReadClient, ClientError> {
        let mut last = ClientError::Closed;
        let endpoints: Arc<[Dialled]> = Dialled::all(&config)?.into();
        for dialled in endpoints.iter() {
            let endpoint = dialled.name.clone();
            match dialled.dial().await {
                Ok(locks) => {
                    let patience = patience(config.connect_timeout);
                    return Ok(ReadClient { endpoint, endpoints, locks, patience });
                }
                Err(source) => {
                    last = dialled.ask_why(ClientError::Unreachable { endpoint, source }).await;
                }
            }
        }
        Err(last)
    }

    /// Returns the state of this datacenter, and its knowledge of the others.
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.ask(async |mut locks| locks.status(StatusRequest {}).await).await
    }

    /// Returns the locks whose names start with `prefix` and that are held, waited for, or have a part away
    /// from home.
    pub async fn list_locks(&self, prefix: &[u8], page: Page) -> Result<LockPage, ClientError> {
        let request = ListLocksRequest {
            prefix: Bytes::copy_from_slice(prefix),
            page_size: page.size,
            page_token: page.token,
        };
        let answer = self.ask(async |mut locks| locks.list_locks(request).await).await?;
        let next = Some(answer.next_page_token).filter(|token| !token.is_empty());
        Ok(LockPage { locks: answer.locks, next })
    }

    /// Returns the keys of `bucket` whose names start with `prefix` and that have a value in this datacenter
    /// at present. A key that has one during the whole listing is listed once; each page shows the keys of
    /// its own moment. A server without this call refuses it ([`ClientError::Unsupported`]).
    pub async fn list_keys(&self, bucket: &[u8], prefix: &[u8], page: Page) -> Result<KeyPage, ClientError> {
        let request = ListKeysRequest {
            bucket: Bytes::copy_from_slice(bucket),
            prefix: Bytes::copy_from_slice(prefix),
            page_size: page.size,
            page_token: page.token,
        };
        let answer = self.ask(async |mut locks| locks.list_keys(request).await).await?;
        let next = Some(answer.next_page_token).filter(|token| !token.is_empty());
        Ok(KeyPage { names: answer.names, next })
    }

    /// Returns an error if the server would take this lock for the plain one of the same name.
    pub(super) async fn may_name(&self, lock: &LockName) -> Result<(), ClientError> {
        if lock.home_field().is_some() { self.require(Feature::Home).await } else { Ok(()) }
    }

    /// Returns an error if the server does not understand what it is to be sent.
    pub(super) async fn require(&self, feature: Feature) -> Result<(), ClientError> {
        if self.status().await?.understands.contains(&feature.into()) {
            return Ok(());
        }
        let refusal = not_understood(feature);
        Err(ClientError::Refused(refusal.reason(), refusal.message))
    }

    /// Returns the holders of a lock and the reasons why requests wait for it. Asks other datacenters for
    /// their holders, so it may take a second.
    pub async fn describe_lock(&self, name: &LockName) -> Result<LockDescription, ClientError> {
        self.may_name(name).await?;
        let (name, home) = (Bytes::copy_from_slice(name.as_bytes()), name.home_field());
        let request = DescribeLockRequest { name: name.clone(), home };
        let answer = self.ask(async |mut locks| locks.describe_lock(request).await).await?;
        Ok(answer.lock.unwrap_or(proto::LockDescription { name, home, ..proto::LockDescription::default() }))
    }

    /// Returns the locks with this prefix that are waited for most in this datacenter, the hottest first: at
    /// most `limit`; 0 means 20, more than 100 means 100. Asks other datacenters for holders, so it may take
    /// a second.
    pub async fn top_locks(&self, prefix: &[u8], limit: u32) -> Result<Vec<HotLock>, ClientError> {
        let request = TopLocksRequest { prefix: Bytes::copy_from_slice(prefix), limit };
        let answer = self.ask(async |mut locks| locks.top_locks(request).await).await?;
        Ok(answer.locks)
    }

    /// Reads at most 1 000 keys of the store, all at one snapshot that is at least `at_least`.
    pub async fn read(&self, keys: &[Key], at_least: &AtLeast) -> Result<ReadResult, ClientError> {
        let request =
            ReadRequest { keys: keys.iter().map(changes::key).collect(), at_least: at_least.to_proto() };
        let reader = self.waiting(self.patience.saturating_add(at_least.patience));
        let answer = reader.ask(async |mut locks| locks.read(request).await).await?;
        Ok(ReadResult {
            snapshot: answer.snapshot.unwrap_or_default(),
            values: answer.values.into_iter().map(Value::from).collect(),
        })
    }

    /// Returns a client that waits for so long for an answer.
    pub(super) fn waiting(&self, patience: Duration) -> ReadClient {
        ReadClient { patience, ..self.clone() }
    }

    pub(super) async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(Api) -> Result<Response<T>, GrpcStatus>,
    ) -> Result<T, ClientError> {
        match timeout(self.patience, call(self.locks.clone())).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.explain(of_status(&self.endpoint, status)).await),
            Err(_) => Err(ClientError::Unreachable {
                endpoint: self.endpoint.clone(),
                source: LinkError::Silent(self.patience),
            }),
        }
    }

    /// All endpoints have the same settings, so any of them can explain an error.
    async fn explain(&self, error: ClientError) -> ClientError {
        match self.endpoints.first() {
            Some(dialled) => dialled.ask_why(error).await,
            None => error,
        }
    }
}

fn patience(connect_timeout: Duration) -> Duration {
    connect_timeout.saturating_add(ANSWER_TIME)
}

impl Client {
    /// Returns a read client over the client's own connection.
    pub fn read_client(&self) -> Result<ReadClient, ClientError> {
        let (endpoint, locks) = self.handle.current.get().ok_or(ClientError::Closed)?;
        let endpoints = Arc::clone(&self.handle.endpoints);
        Ok(ReadClient { endpoint, endpoints, locks, patience: patience(self.handle.connect_timeout) })
    }

    /// As [`ReadClient::status`].
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.read_client()?.status().await
    }

    /// As [`ReadClient::list_locks`].
    pub async fn list_locks(&self, prefix: &[u8], page: Page) -> Result<LockPage, ClientError> {
        self.read_client()?.list_locks(prefix, page).await
    }

    /// As [`ReadClient::list_keys`].
    pub async fn list_keys(&self, bucket: &[u8], prefix: &[u8], page: Page) -> Result<KeyPage, ClientError> {
        self.read_client()?.list_keys(bucket, prefix, page).await
    }

    /// As [`ReadClient::top_locks`].
    pub async fn top_locks(&self, prefix: &[u8], limit: u32) -> Result<Vec<HotLock>, ClientError> {
        self.read_client()?.top_locks(prefix, limit).await
    }

    /// As [`ReadClient::describe_lock`].
    pub async fn describe_lock(&self, name: &LockName) -> Result<LockDescription, ClientError> {
        self.read_client()?.describe_lock(name).await
    }
}
