//! Looking: calls that change nothing, beside the stream.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status as GrpcStatus};

use super::error::{ClientError, LinkError, of_status};
use super::handle::Client;
use crate::names::LockName;
use crate::proto::locks_client::LocksClient;
use crate::proto::{
    self, DescribeLockRequest, ListLocksRequest, LockDescription, LockSummary, StatusRequest, StatusResponse,
};

/// What an answer may take beyond a connection: a description asks other datacenters for up to a second.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Which part of a listing; the default is its first 100 locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Most locks; 0 means 100, more than 1 000 means 1 000.
    pub size: u32,
    /// Where to go on: [`LockPage::next`] of the page before; empty at first.
    pub token: Bytes,
}

/// A part of a listing, in no order.
#[derive(Clone, Debug, PartialEq)]
pub struct LockPage {
    /// May be fewer than a page holds although more follow.
    pub locks: Vec<LockSummary>,
    /// Where to go on; `None` at the end.
    pub next: Option<Bytes>,
}

impl Client {
    /// How this datacenter is, and what it knows of the others.
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.ask(async |mut locks| locks.status(StatusRequest {}).await).await
    }

    /// The locks whose names start with `prefix`, that are held, waited for, or away from home.
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

    /// Who has a lock and why others wait. Asks other datacenters for their holders, so it may take a second.
    pub async fn describe_lock(&self, name: &LockName) -> Result<LockDescription, ClientError> {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let request = DescribeLockRequest { name: name.clone() };
        let answer = self.ask(async |mut locks| locks.describe_lock(request).await).await?;
        Ok(answer.lock.unwrap_or(proto::LockDescription { name, ..proto::LockDescription::default() }))
    }

    async fn ask<T>(
        &self,
        call: impl AsyncFnOnce(LocksClient<Channel>) -> Result<Response<T>, GrpcStatus>,
    ) -> Result<T, ClientError> {
        let (endpoint, locks) = self.handle.current.get().ok_or(ClientError::Closed)?;
        let time = self.handle.connect_timeout + ANSWER_TIME;
        match timeout(time, call(locks)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(of_status(&endpoint, status)),
            Err(_) => Err(ClientError::Unreachable { endpoint, source: LinkError::Silent(time) }),
        }
    }
}
