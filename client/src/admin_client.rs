//! The calls of operators on the locks of a datacenter.

use std::time::Duration;

use bytes::Bytes;

use super::config::ClientConfig;
use super::error::ClientError;
use super::read_client::ReadClient;
use geolock_api::names::{ForceReason, LockName};
use geolock_api::proto::{
    AddMemberRequest, AuditRecord, AuditRequest, AuditResponse, EvictMembersRequest, Feature,
    ForceReleaseRequest, ForceReleaseResponse, LastHeard, ListMembersRequest, ListMembersResponse,
    LossReport, MemberPolicy, RecoverRequest, RecoverResponse, RemoveMemberRequest, SetHomeRequest,
    SetPolicyRequest,
};

/// Time for a decision about the members: the control group may have to elect a leader first. A server says
/// itself that there is none after 16 election timeouts, which are 10 round trips each and at least 0.5 s.
const DECISION_TIME: Duration = Duration::from_secs(60);

/// The answer of [`AdminClient::check_eviction`]. The default says nothing about the time at which the
/// operator vouched: then that of the eviction counts.
#[derive(Clone, Debug, Default)]
pub struct EvictionCheck {
    /// How long the leases of their clients may still last.
    pub max_lease_ttl: Duration,
    last_heard: Vec<LastHeard>,
}

/// Releases locks by force, and lists earlier force releases; lists and changes the members of the cluster.
/// If the server has access rules, they must allow these calls.
#[derive(Clone, Debug)]
pub struct AdminClient(ReadClient);

impl AdminClient {
    /// Connects like [`ReadClient::connect`].
    pub async fn connect(config: ClientConfig) -> Result<AdminClient, ClientError> {
        ReadClient::connect(config).await.map(AdminClient)
    }

    /// Returns a read client over the same connection.
    pub fn read_client(&self) -> &ReadClient {
        &self.0
    }

    /// Returns the client for calls that need a decision.
    fn decided(&self) -> ReadClient {
        self.0.waiting(DECISION_TIME)
    }

    /// Takes a lock from its holders in this datacenter; if they hold it shared, from 1 000 at a time. Each
    /// holder loses all locks of that request, and is informed of the operator and the reason.
    ///
    /// A holder may continue to work all the same, so the protected resource has to refuse tokens below the
    /// highest it has seen. The answer lists the holders that lost the lock, and the other datacenters where
    /// it is held. After [`ClientError::Unreachable`] the outcome is unknown; [`AdminClient::audit`] shows
    /// it.
    pub async fn force_release(
        &self,
        lock: &LockName,
        reason: &ForceReason,
    ) -> Result<ForceReleaseResponse, ClientError> {
        self.0.may_name(lock).await?;
        let request = ForceReleaseRequest {
            name: Bytes::copy_from_slice(lock.as_bytes()),
            home: lock.home_field(),
            reason: reason.as_str().to_owned(),
        };
        self.0.ask(async |mut locks| locks.force_release(request).await).await
    }

    /// Returns the last 1 000 requests of this datacenter that lost their locks to operators, the latest
    /// last.
    pub async fn audit(&self) -> Result<Vec<AuditRecord>, ClientError> {
        Ok(self.whole_audit().await?.records)
    }

    /// Returns the same, and the last 1 000 decisions about the members of the cluster, the latest last.
    pub async fn whole_audit(&self) -> Result<AuditResponse, ClientError> {
        self.0.ask(async |mut locks| locks.audit(AuditRequest {}).await).await
    }

    /// Returns the forced recoveries that this datacenter has gone through, the latest last, and the losses
    /// of each.
    pub async fn losses(&self) -> Result<Vec<LossReport>, ClientError> {
        let answer = self.0.ask(async |mut locks| locks.audit(AuditRequest {}).await).await?;
        Ok(answer.losses)
    }

    /// Returns the members of the cluster, as this datacenter knows them.
    pub async fn members(&self) -> Result<ListMembersResponse, ClientError> {
        self.0.ask(async |mut locks| locks.list_members(ListMembersRequest {}).await).await
    }

    /// Invites a server of this name to join the cluster, with this datacenter as its sponsor if one is
    /// named. Returns the number of the decision. After [`ClientError::Unreachable`] the outcome is unknown:
    /// repeat it.
    pub async fn add_member(&self, name: &str, sponsor: Option<u32>) -> Result<u64, ClientError> {
        let request = AddMemberRequest { name: name.to_owned(), sponsor, cancel: false };
        let answer = self.decided().ask(async |mut locks| locks.add_member(request).await).await?;
        Ok(answer.decision)
    }

    /// Takes the invitation of a server back: it may not join any more. Returns the number of the decision.
    /// Refused if it is not invited, or has joined. After [`ClientError::Unreachable`] the outcome is
    /// unknown: [`AdminClient::members`] lists the invitations.
    pub async fn cancel_invitation(&self, name: &str) -> Result<u64, ClientError> {
        // It would invite the server.
        self.0.require(Feature::Cancel).await?;
        let request = AddMemberRequest { name: name.to_owned(), sponsor: None, cancel: true };
        let answer = self.decided().ask(async |mut locks| locks.add_member(request).await).await?;
        Ok(answer.decision)
    }

    /// Lets a datacenter leave the cluster. Returns the number of the decision; it has left when
    /// [`AdminClient::members`] lists it no more. After [`ClientError::Unreachable`] the outcome is unknown:
    /// repeat it.
    pub async fn remove_member(&self, dc: u32) -> Result<u64, ClientError> {
        let request = RemoveMemberRequest { dc, cancel: false };
        let answer = self.decided().ask(async |mut locks| locks.remove_member(request).await).await?;
        Ok(answer.decision)
    }

    /// Takes the leave of the datacenter that this client asks back: it stays. Returns the number of the
    /// decision. Refused once its log says that it leaves, and elsewhere. After [`ClientError::Unreachable`]
    /// the outcome is unknown: repeat it.
    pub async fn cancel_removal(&self, dc: u32) -> Result<u64, ClientError> {
        // It would remove the datacenter.
        self.0.require(Feature::Cancel).await?;
        let request = RemoveMemberRequest { dc, cancel: true };
        let answer = self.decided().ask(async |mut locks| locks.remove_member(request).await).await?;
        Ok(answer.decision)
    }

    /// Checks whether these datacenters, which are lost, can be evicted now: an operator vouches that none of
    /// their servers runs.
    pub async fn check_eviction(&self, dcs: &[u32]) -> Result<EvictionCheck, ClientError> {
        let request = EvictMembersRequest { dcs: dcs.to_vec(), check_only: true, last_heard: Vec::new() };
        let answer = self.decided().ask(async |mut locks| locks.evict_members(request).await).await?;
        let max_lease_ttl = Duration::from_millis(answer.max_lease_ttl_ms);
        Ok(EvictionCheck { max_lease_ttl, last_heard: answer.last_heard })
    }

    /// Sets the policies of evictions and joins. A field that the policy does not set keeps its value.
    /// Returns the number of the decision. After [`ClientError::Unreachable`] the outcome is unknown: repeat
    /// it.
    pub async fn set_policy(&self, policy: MemberPolicy) -> Result<u64, ClientError> {
        let request = SetPolicyRequest { policy: Some(policy) };
        let answer = self.decided().ask(async |mut locks| locks.set_policy(request).await).await?;
        Ok(answer.decision)
    }

    /// Gives the locks whose names begin with this prefix a home, or none. Returns the number of the
    /// decision. After [`ClientError::Unreachable`] the outcome is unknown: repeat it.
    pub async fn set_home(&self, prefix: &[u8], home: Option<u32>) -> Result<u64, ClientError> {
        let request = SetHomeRequest { prefix: prefix.to_vec().into(), home };
        let answer = self.decided().ask(async |mut locks| locks.set_home(request).await).await?;
        Ok(answer.decision)
    }

    /// Lets the survivors continue without the lost datacenters, if a majority is gone for good: no server of
    /// these ever runs again with its data, and, unless this only checks, all leases of their clients have
    /// ended. To be repeated until there is a report; repeating it later is harmless.
    pub async fn recover(
        &self,
        survivors: &[u32],
        lost: &[u32],
        check_only: bool,
    ) -> Result<RecoverResponse, ClientError> {
        let request = RecoverRequest { survivors: survivors.to_vec(), lost: lost.to_vec(), check_only };
        self.decided().ask(async |mut locks| locks.recover(request).await).await
    }

    /// Begins to evict datacenters that are lost for good: no server of them runs, and all leases of their
    /// clients have ended. `check`: the check that was made when the operator vouched for that; refused if
    /// one of them was heard since. Returns the number of the decision; they are evicted when
    /// [`AdminClient::members`] lists them no more. After [`ClientError::Unreachable`] the outcome is
    /// unknown: repeat it.
    pub async fn evict_members(&self, dcs: &[u32], check: &EvictionCheck) -> Result<u64, ClientError> {
        let last_heard = check.last_heard.clone();
        let request = EvictMembersRequest { dcs: dcs.to_vec(), check_only: false, last_heard };
        let answer = self.decided().ask(async |mut locks| locks.evict_members(request).await).await?;
        Ok(answer.decision)
    }
}
