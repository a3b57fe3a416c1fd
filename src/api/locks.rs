//! The service `geolock.v1.Locks`: its unary calls. Each is parse, call, answer.

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};

use super::answer;
use super::connection::Peer;
use super::conversation::Conversation;
use super::error::BorderError;
use super::parse::{self, ProofBy};
use super::parse_store;
use super::parse_watch;
use super::server_info::ServerInfo;
use super::show;
use super::show_store;
use super::watch::Watching;
use crate::lock_server::LockServerHandle;
use crate::proto::locks_server::Locks;
use crate::proto::{self, ClientMessage};
use crate::replica::call::{Call, Reply};

/// The service.
pub(super) struct LocksService {
    pub server: LockServerHandle,
    pub info: Arc<ServerInfo>,
}

impl LocksService {
    async fn call(&self, call: Call) -> Result<Reply, Status> {
        self.server.call(call).await.map_err(|stopped| BorderError::from(stopped).into())
    }
}

/// Of a unary call's answer, the one that fits.
macro_rules! answer {
    ($reply:expr, $($fits:pat => $message:expr),+) => {
        match $reply {
            $($fits => Ok(Response::new($message)),)+
            reply => Err(answer::no_answer(&reply)),
        }
    };
}

#[tonic::async_trait]
impl Locks for LocksService {
    type SessionStream = Conversation;
    type WatchStream = Watching<proto::WatchResponse>;
    type WatchLocksStream = Watching<proto::WatchLocksResponse>;

    async fn session(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Response<Conversation>, Status> {
        let session = self.server.open_session().await.map_err(BorderError::from)?;
        if let Some(Peer { address, identity }) = request.extensions().get() {
            tracing::debug!(%address, %identity, session = session.id().0, "session opened");
        }
        let conversation = Conversation::new(request.into_inner(), session, Arc::clone(&self.info));
        Ok(Response::new(conversation))
    }

    async fn open_lease(
        &self,
        request: Request<proto::OpenLeaseRequest>,
    ) -> Result<Response<proto::OpenLeaseResponse>, Status> {
        let (call, secret) = parse::open_lease(request.get_ref(), ProofBy::Secret)?;
        answer!(self.call(call).await?, Reply::LeaseOpened { lease, ttl } => {
            answer::lease_opened(&self.info, lease, ttl, &secret)
        })
    }

    async fn keep_alive(
        &self,
        request: Request<proto::KeepAliveRequest>,
    ) -> Result<Response<proto::KeepAliveResponse>, Status> {
        let call = parse::keep_alive(request.get_ref(), ProofBy::Secret)?;
        answer!(self.call(call).await?, Reply::Renewed { ttl } => answer::kept_alive(&self.info, ttl))
    }

    async fn close_lease(
        &self,
        request: Request<proto::CloseLeaseRequest>,
    ) -> Result<Response<proto::CloseLeaseResponse>, Status> {
        let call = parse::close_lease(request.get_ref(), ProofBy::Secret)?;
        answer!(self.call(call).await?, Reply::LeaseClosed => proto::CloseLeaseResponse {})
    }

    async fn acquire(
        &self,
        request: Request<proto::AcquireRequest>,
    ) -> Result<Response<proto::AcquireResponse>, Status> {
        let call = parse::acquire(request.into_inner(), ProofBy::Secret)?;
        answer!(self.call(call).await?, Reply::Granted(grant) => answer::granted(&grant))
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::ReleaseResponse>, Status> {
        let call = parse::release(request.get_ref(), ProofBy::Secret)?;
        answer!(self.call(call).await?, Reply::Released => proto::ReleaseResponse {})
    }

    async fn cancel(
        &self,
        request: Request<proto::CancelRequest>,
    ) -> Result<Response<proto::CancelResponse>, Status> {
        let call = parse::cancel(request.get_ref(), ProofBy::Secret)?;
        answer!(self.call(call).await?, Reply::Released => proto::CancelResponse {})
    }

    async fn reclaim(
        &self,
        request: Request<proto::ReclaimRequest>,
    ) -> Result<Response<proto::ReclaimResponse>, Status> {
        let parse::ReclaimPiece { lease, proof, held, .. } =
            parse::reclaim(request.get_ref(), ProofBy::Secret)?;
        let reply = self.call(Call::Reclaim { lease, proof, held }).await?;
        answer!(reply, Reply::Reclaimed { kept, lost } => answer::reclaimed(kept, lost))
    }

    async fn transact(
        &self,
        request: Request<proto::BeginRequest>,
    ) -> Result<Response<proto::StepResponse>, Status> {
        let call = parse_store::transact(request.into_inner())?;
        answer!(self.call(call).await?, Reply::Stepped(stepped) => show_store::stepped(*stepped))
    }

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<proto::StepResponse>, Status> {
        let call = parse_store::look(request.into_inner())?;
        answer!(self.call(call).await?, Reply::Stepped(looked) => show_store::looked(*looked))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let watch = parse_watch::keys(request.into_inner())?;
        Watching::begin(&self.server, watch).await.map(Response::new)
    }

    async fn watch_locks(
        &self,
        request: Request<proto::WatchLocksRequest>,
    ) -> Result<Response<Self::WatchLocksStream>, Status> {
        let watch = parse_watch::locks(request.into_inner())?;
        Watching::begin(&self.server, watch).await.map(Response::new)
    }

    async fn status(
        &self,
        _request: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusResponse>, Status> {
        let snapshot = self.server.board().latest();
        answer!(self.call(Call::Status).await?, Reply::Status(status) => {
            show::status(&self.info, &status, snapshot.as_deref())
        })
    }

    async fn list_locks(
        &self,
        request: Request<proto::ListLocksRequest>,
    ) -> Result<Response<proto::ListLocksResponse>, Status> {
        let call = parse::list(request.into_inner())?;
        answer!(self.call(call).await?, Reply::Listed { locks, next } => proto::ListLocksResponse {
            locks: locks.iter().map(show::summary).collect(),
            next_page_token: parse::page_token(next),
        })
    }

    async fn describe_lock(
        &self,
        request: Request<proto::DescribeLockRequest>,
    ) -> Result<Response<proto::DescribeLockResponse>, Status> {
        let call = parse::describe(request.get_ref())?;
        answer!(self.call(call).await?, Reply::Described(lock) => proto::DescribeLockResponse {
            lock: Some(show::description(&lock)),
        })
    }
}
