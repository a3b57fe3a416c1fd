//! The service `geolock.v1.Locks`: its unary calls. Each parses, calls and answers.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Response, Status, Streaming};

use super::authorize;
use super::convert::{ProofBy, inspect, lease, lock, members, session, status, txn, watch};
use super::error::BorderError;
use super::reclaim::{GatherBudget, Gathered};
use super::server_info::ServerInfo;
use super::shares::{Received, Shares};
use super::stream::{ClientStream, GrpcStream};
use super::watch::Watching;
use crate::access::{Access, Authorizer};
use crate::lock_server::LockServerHandle;
use crate::replica::call::{Call, Reply};
use crate::server::members::{MembersApi, ProposalError};
use geolock_api::proto::locks_server::Locks;
use geolock_api::proto::{self, ClientMessage};

/// The service.
pub(super) struct LocksService {
    pub server: LockServerHandle,
    pub access: Arc<Access>,
    pub info: Arc<ServerInfo>,
    /// For reclaims in several messages.
    pub gather_budget: Arc<GatherBudget>,
    pub shares: Arc<Shares>,
}

impl LocksService {
    /// Returns the caller's authorization and the message.
    fn enter<T>(&self, mut request: Request<T>) -> Result<(Authorizer, T), BorderError> {
        let authorizer = request.extensions_mut().remove().ok_or(BorderError::NoPeer)?;
        Ok((authorizer, request.into_inner()))
    }

    /// The same for an operator's call about the members of the cluster.
    fn enter_for_members<T>(
        &self,
        call: &'static str,
        request: Request<T>,
    ) -> Result<(&MembersApi, Authorizer, T), BorderError> {
        let (mut authorizer, message) = self.enter(request)?;
        authorize::operator(&mut authorizer, call)?;
        let members = self.info.members.as_ref().ok_or(BorderError::NoControlGroup)?;
        Ok((members, authorizer, message))
    }

    /// Begins a session of the caller.
    pub(super) async fn open_stream(&self, authorizer: Authorizer) -> Result<ClientStream, BorderError> {
        let share = self.shares.of(&authorizer);
        let place = share.session()?;
        let session = self.server.open_session_within(&share.mailbox, Arc::clone(&share.bytes)).await?;
        tracing::debug!(who = %authorizer.principal(), session = session.id().0, "session opened");
        let gathered = Gathered::new(Arc::clone(&self.gather_budget));
        Ok(ClientStream::new(
            session,
            (authorizer, place, Received::new(share)),
            Arc::clone(&self.info),
            gathered,
        ))
    }

    async fn call(&self, mut authorizer: Authorizer, call: Call) -> Result<Reply, Status> {
        self.ask(&mut authorizer, call).await
    }

    async fn ask(&self, authorizer: &mut Authorizer, call: Call) -> Result<Reply, Status> {
        authorize::call(authorizer, &call).map_err(BorderError::from)?;
        let share = self.shares.of(authorizer);
        let called = self.server.call_within(&share.unary, call).await;
        called.map_err(|stopped| BorderError::from(stopped).into())
    }
}

/// Returns the answer of a unary call if the reply fits, otherwise its status.
macro_rules! answer {
    ($reply:expr, $($fits:pat => $message:expr),+) => {
        match $reply {
            $($fits => Ok(Response::new($message)),)+
            reply => Err(session::no_answer(&reply)),
        }
    };
}

#[tonic::async_trait]
impl Locks for LocksService {
    type SessionStream = GrpcStream;
    type WatchStream = Watching<proto::WatchResponse>;
    type WatchLocksStream = Watching<proto::WatchLocksResponse>;

    async fn session(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Response<GrpcStream>, Status> {
        let (authorizer, calls) = self.enter(request)?;
        let stream = self.open_stream(authorizer).await?;
        Ok(Response::new(GrpcStream { stream, calls }))
    }

    async fn open_lease(
        &self,
        request: Request<proto::OpenLeaseRequest>,
    ) -> Result<Response<proto::OpenLeaseResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let (call, secret) = lease::open_lease(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::LeaseOpened { lease, ttl } => {
            lease::lease_opened(&self.info, lease, ttl, &secret)
        })
    }

    async fn keep_alive(
        &self,
        request: Request<proto::KeepAliveRequest>,
    ) -> Result<Response<proto::KeepAliveResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lease::keep_alive(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::Renewed { ttl } => lease::kept_alive(&self.info, ttl))
    }

    async fn close_lease(
        &self,
        request: Request<proto::CloseLeaseRequest>,
    ) -> Result<Response<proto::CloseLeaseResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lease::close_lease(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::LeaseClosed => proto::CloseLeaseResponse {})
    }

    async fn acquire(
        &self,
        request: Request<proto::AcquireRequest>,
    ) -> Result<Response<proto::AcquireResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lock::acquire(message, ProofBy::Secret)?;
        match self.call(authorizer, call).await? {
            Reply::Chosen(chosen) => Ok(Response::new(lock::chosen(*chosen))),
            reply => answer!(reply, Reply::Granted(grant) => lock::granted(&grant)),
        }
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::ReleaseResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lock::release(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::Released => proto::ReleaseResponse {})
    }

    async fn downgrade(
        &self,
        request: Request<proto::DowngradeRequest>,
    ) -> Result<Response<proto::DowngradeResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lock::downgrade(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::Downgraded => proto::DowngradeResponse {})
    }

    async fn amend(
        &self,
        request: Request<proto::AmendRequest>,
    ) -> Result<Response<proto::AmendResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lock::amend(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::Amended => proto::AmendResponse {})
    }

    async fn cancel(
        &self,
        request: Request<proto::CancelRequest>,
    ) -> Result<Response<proto::CancelResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = lock::cancel(&message, ProofBy::Secret)?;
        answer!(self.call(authorizer, call).await?, Reply::Released => proto::CancelResponse {})
    }

    async fn reclaim(
        &self,
        request: Request<proto::ReclaimRequest>,
    ) -> Result<Response<proto::ReclaimResponse>, Status> {
        let (mut authorizer, message) = self.enter(request)?;
        let lock::ReclaimPiece { lease, proof, mut held, .. } = lock::reclaim(&message, ProofBy::Secret)?;
        let denied = authorize::reclaim(&mut authorizer, &mut held).map_err(BorderError::from)?;
        let reply = self.call(authorizer, Call::Reclaim { lease, proof, held }).await?;
        answer!(reply, Reply::Reclaimed { kept, lost } => lock::reclaimed(kept, lost, denied))
    }

    async fn transact(
        &self,
        request: Request<proto::BeginRequest>,
    ) -> Result<Response<proto::StepResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = txn::transact(message)?;
        answer!(self.call(authorizer, call).await?, Reply::Stepped(stepped) => txn::stepped(*stepped))
    }

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<proto::StepResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = txn::read(message)?;
        answer!(self.call(authorizer, call).await?, Reply::Stepped(read) => txn::read_answer(*read))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let watch = watch::keys(message)?;
        let share = self.shares.of(&authorizer);
        Watching::begin(&self.server, (authorizer, share), watch).await.map(Response::new)
    }

    async fn watch_locks(
        &self,
        request: Request<proto::WatchLocksRequest>,
    ) -> Result<Response<Self::WatchLocksStream>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let watch = watch::locks(message)?;
        let share = self.shares.of(&authorizer);
        Watching::begin(&self.server, (authorizer, share), watch).await.map(Response::new)
    }

    async fn status(
        &self,
        request: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusResponse>, Status> {
        let (authorizer, proto::StatusRequest {}) = self.enter(request)?;
        let (snapshot, certificates) = (self.server.board().latest(), self.server.board().certificates());
        answer!(self.call(authorizer, Call::Status).await?, Reply::Status(status) => {
            status::status(&self.info, &status, snapshot.as_deref(), &certificates)
        })
    }

    async fn list_locks(
        &self,
        request: Request<proto::ListLocksRequest>,
    ) -> Result<Response<proto::ListLocksResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = inspect::list(message)?;
        answer!(self.call(authorizer, call).await?, Reply::Listed { locks, next } => proto::ListLocksResponse {
            locks: locks.iter().map(inspect::summary).collect(),
            next_page_token: inspect::page_token(next),
        })
    }

    async fn list_keys(
        &self,
        request: Request<proto::ListKeysRequest>,
    ) -> Result<Response<proto::ListKeysResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = inspect::list_keys(message)?;
        answer!(self.call(authorizer, call).await?, Reply::KeysListed { keys, next } => proto::ListKeysResponse {
            names: keys.iter().map(|key| Bytes::copy_from_slice(key.name())).collect(),
            next_page_token: inspect::page_token(next),
        })
    }

    async fn describe_lock(
        &self,
        request: Request<proto::DescribeLockRequest>,
    ) -> Result<Response<proto::DescribeLockResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = inspect::describe(&message)?;
        answer!(self.call(authorizer, call).await?, Reply::Described(lock) => proto::DescribeLockResponse {
            lock: Some(inspect::description(&lock)),
        })
    }

    async fn top_locks(
        &self,
        request: Request<proto::TopLocksRequest>,
    ) -> Result<Response<proto::TopLocksResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        answer!(self.call(authorizer, inspect::top(message)).await?, Reply::Top(locks) => proto::TopLocksResponse {
            locks: locks.iter().map(inspect::hot_lock).collect(),
        })
    }

    async fn force_release(
        &self,
        request: Request<proto::ForceReleaseRequest>,
    ) -> Result<Response<proto::ForceReleaseResponse>, Status> {
        let (authorizer, message) = self.enter(request)?;
        let call = inspect::force_release(&message, authorizer.principal())?;
        answer!(self.call(authorizer, call).await?, Reply::ForceReleased(outcome) => {
            inspect::force_release_outcome(&self.info, &outcome)
        })
    }

    async fn audit(
        &self,
        request: Request<proto::AuditRequest>,
    ) -> Result<Response<proto::AuditResponse>, Status> {
        let (mut authorizer, proto::AuditRequest {}) = self.enter(request)?;
        let decisions = match self.ask(&mut authorizer, Call::Decisions).await? {
            Reply::Decisions(rows) => rows.into_iter().map(members::decision).collect(),
            reply => return Err(session::no_answer(&reply)),
        };
        let reply = self.call(authorizer, Call::Audit).await?;
        let (refusals, refusals_dropped) = self.access.refused_operators();
        answer!(reply, Reply::Audited(rows) => proto::AuditResponse {
            records: rows.iter().map(|row| inspect::audit_record(row)).collect(),
            refusals: refusals.into_iter().map(inspect::refusal_record).collect(),
            refusals_dropped,
            decisions,
            losses: self.info.members.iter().flat_map(|members| members.losses()).map(members::loss).collect(),
            fallen: self.info.members.iter().flat_map(|members| members.fallen()).map(members::fallen).collect(),
        })
    }

    async fn list_members(
        &self,
        request: Request<proto::ListMembersRequest>,
    ) -> Result<Response<proto::ListMembersResponse>, Status> {
        let (members, authorizer, proto::ListMembersRequest {}) =
            self.enter_for_members(authorize::LIST_MEMBERS, request)?;
        answer!(self.call(authorizer, Call::Status).await?, Reply::Status(status) => members::list(members, &status))
    }

    async fn add_member(
        &self,
        request: Request<proto::AddMemberRequest>,
    ) -> Result<Response<proto::AddMemberResponse>, Status> {
        let (members, authorizer, message) = self.enter_for_members(authorize::ADD_MEMBER, request)?;
        let (name, sponsor) = members::invitation(&message)?;
        let decision = if message.cancel {
            tracing::info!(who = %authorizer.principal(), %name, "an invitation is taken back");
            members.cancel_invitation(name).await
        } else {
            tracing::info!(who = %authorizer.principal(), %name, "a server is invited to join");
            members.invite(name, sponsor).await
        };
        let decision = decision.map_err(BorderError::from)?;
        Ok(Response::new(proto::AddMemberResponse { decision }))
    }

    async fn remove_member(
        &self,
        request: Request<proto::RemoveMemberRequest>,
    ) -> Result<Response<proto::RemoveMemberResponse>, Status> {
        let (members, authorizer, message) = self.enter_for_members(authorize::REMOVE_MEMBER, request)?;
        let dc = members::dc(message.dc)?;
        let decision = if message.cancel {
            tracing::info!(who = %authorizer.principal(), %dc, "a datacenter is not to leave any more");
            members.cancel_removal(dc).await
        } else {
            tracing::info!(who = %authorizer.principal(), %dc, "a datacenter is to leave");
            members.remove(dc).await
        };
        let decision = decision.map_err(BorderError::from)?;
        Ok(Response::new(proto::RemoveMemberResponse { decision }))
    }

    async fn evict_members(
        &self,
        request: Request<proto::EvictMembersRequest>,
    ) -> Result<Response<proto::EvictMembersResponse>, Status> {
        let (members, authorizer, message) = self.enter_for_members(authorize::EVICT_MEMBERS, request)?;
        let lost = members::lost(&message)?;
        if message.check_only {
            let (max_lease_ttl, lost) = members.check_eviction(&lost).await.map_err(BorderError::from)?;
            return Ok(Response::new(members::checked(max_lease_ttl, &lost)));
        }
        let dcs: Vec<_> = lost.iter().map(|lost| lost.dc).collect();
        tracing::info!(who = %authorizer.principal(), ?dcs, "datacenters are to be evicted");
        let decision = members.evict(&lost).await.map_err(BorderError::from)?;
        Ok(Response::new(proto::EvictMembersResponse { decision, ..Default::default() }))
    }

    async fn recover(
        &self,
        request: Request<proto::RecoverRequest>,
    ) -> Result<Response<proto::RecoverResponse>, Status> {
        let (members, authorizer, message) = self.enter_for_members(authorize::RECOVER, request)?;
        let (survivors, lost) = (members::dcs(&message.survivors)?, members::dcs(&message.lost)?);
        if message.check_only {
            let max_lease_ttl = members.check_recovery(&survivors, &lost).map_err(BorderError::from)?;
            let max_lease_ttl_ms = max_lease_ttl.as_millis() as u64;
            return Ok(Response::new(proto::RecoverResponse { max_lease_ttl_ms, ..Default::default() }));
        }
        tracing::warn!(who = %authorizer.principal(), ?survivors, ?lost, "the cluster is to be recovered by force");
        let response = match members.recover(&survivors, &lost).await {
            Ok(report) => {
                proto::RecoverResponse { report: Some(members::loss(report)), ..Default::default() }
            }
            Err(ProposalError::Unfinished(waits)) => proto::RecoverResponse { waits, ..Default::default() },
            Err(error) => return Err(BorderError::from(error).into()),
        };
        Ok(Response::new(response))
    }

    async fn set_policy(
        &self,
        request: Request<proto::SetPolicyRequest>,
    ) -> Result<Response<proto::SetPolicyResponse>, Status> {
        let (members, authorizer, message) = self.enter_for_members(authorize::SET_POLICY, request)?;
        let change = members::policy_change(&message.policy.unwrap_or_default())?;
        tracing::info!(who = %authorizer.principal(), ?change, "the policy is to be changed");
        let decision = members.change_policy(change).await.map_err(BorderError::from)?;
        Ok(Response::new(proto::SetPolicyResponse { decision }))
    }

    async fn set_home(
        &self,
        request: Request<proto::SetHomeRequest>,
    ) -> Result<Response<proto::SetHomeResponse>, Status> {
        let (members, authorizer, message) = self.enter_for_members(authorize::SET_HOME, request)?;
        let (prefix, home) = members::prefix_home(&message)?;
        tracing::info!(who = %authorizer.principal(), %prefix, ?home, "the home of a prefix is to be set");
        let decision = members.set_home(prefix, home).await.map_err(BorderError::from)?;
        Ok(Response::new(proto::SetHomeResponse { decision }))
    }
}
