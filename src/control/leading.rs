//! Requests to the leader, wherever it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::ReadPolicy;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{CallError, ProposeError, Refusal};
use super::fold::Fold;
use super::founding::Founding;
use super::group::{Core, MAX_MEMBERS, MAX_VOTERS};
use super::member::{MemberId, ServerId};
use super::message::{Answer, LeaderRequest, MemberStep, Request};
use super::types::{EncodedCommand, Types};
use crate::base::wire;

/// A change of Raft's members, and if those that stop voting stay learners.
type Planned = (ChangeMembers<MemberId, ServerId>, bool);

impl<F: Fold> Core<F> {
    /// Has the leader carry out a request, and waits for a leader if there is none.
    pub(super) async fn at_leader(&self, request: LeaderRequest) -> Result<u64, ProposeError> {
        let deadline = Instant::now() + self.timing().request();
        // True once a leader may have carried it out.
        let mut uncertain = false;
        let mut attempt = 0;
        loop {
            let leader = self.leader();
            let asked = leader.or_else(|| self.guide(attempt));
            attempt += 1;
            let tried = match asked {
                Some(leader) if leader == self.caller.me => {
                    let led = timeout_at(deadline, self.lead(request.clone())).await;
                    led.map_err(|_| CallError::TimedOut).and_then(|led| led.map_err(CallError::from))
                }
                Some(other) => {
                    let patience = Instant::now() + self.timing().answer();
                    let limit = if leader.is_some() { deadline } else { deadline.min(patience) };
                    self.lead_elsewhere(other, request.clone(), limit).await
                }
                None => Err(Refusal::NotLeader.into()),
            };
            match tried {
                Ok(index) => return Ok(index),
                Err(CallError::Refused(Refusal::NotLeader | Refusal::Busy)) => {}
                Err(CallError::Refused(Refusal::Uncertain) | CallError::TimedOut) => uncertain = true,
                Err(CallError::Refused(Refusal::Stopped)) if leader == Some(self.caller.me) => {
                    return Err(ProposeError::ShuttingDown);
                }
                // The leader is going; the next one is asked.
                Err(CallError::Refused(Refusal::Stopped)) => {}
                Err(CallError::Refused(refusal)) => return Err(refusal.into()),
                // A link that ends may have carried the request.
                Err(CallError::Unreachable(_) | CallError::Malformed) => uncertain |= asked.is_some(),
            }
            if self.stopping.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(ProposeError::ShuttingDown);
            }
            if Instant::now() + self.timing().heartbeat() >= deadline {
                return Err(match leader {
                    _ if uncertain => ProposeError::Timeout,
                    Some(leader) => ProposeError::Unreachable { leader },
                    None => ProposeError::NoLeader,
                });
            }
            self.until_something_changes().await;
        }
    }

    /// Returns a founder that may lead, another one in each attempt: a member whose directory was lost hears
    /// no leader, and still has to say what it has done with the decisions.
    fn guide(&self, attempt: usize) -> Option<MemberId> {
        let founders = self.founders.as_ref()?;
        let is_lost = matches!(*self.founding.borrow(), Founding::OtherDirectory { .. });
        let others: Vec<MemberId> = founders.iter().copied().filter(|it| *it != self.caller.me).collect();
        others.get(attempt % others.len().max(1)).copied().filter(|_| is_lost)
    }

    async fn lead_elsewhere(
        &self,
        leader: MemberId,
        request: LeaderRequest,
        deadline: Instant,
    ) -> Result<u64, CallError> {
        let limit = deadline.saturating_duration_since(Instant::now());
        match self.caller.ask(leader, None, Request::Lead(request), limit).await? {
            Answer::Decided(index) => Ok(index),
            _ => Err(CallError::Malformed),
        }
    }

    /// Waits for news of the leader, but not for long: its silence is no event.
    async fn until_something_changes(&self) {
        let mut metrics = self.raft.metrics();
        let (before, pause): (_, Duration) =
            (metrics.borrow_watched().current_leader, self.timing().heartbeat());
        let changed = async {
            while metrics.borrow_watched().current_leader == before {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = sleep(pause) => {}
        }
    }

    /// Hands the leadership over to the voter among these that has the most of the log. Returns it; `None`
    /// if this member does not lead, or none of these votes. Until the other one leads, nothing is decided;
    /// if it never does, the voters elect one of themselves after their timeout.
    pub(super) async fn hand_over(&self, to: &BTreeSet<MemberId>) -> Option<MemberId> {
        let successor = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let followers = metrics.replication.as_ref()?.iter();
            let votes = |member| metrics.membership_config.membership().voter_ids().any(|id| id == member);
            let others = followers.filter(|(id, _)| to.contains(id) && **id != self.caller.me && votes(**id));
            others.max_by_key(|(_, matched)| **matched).map(|(id, _)| *id)?
        };
        self.raft.trigger().transfer_leader(successor).await.ok()?;
        Some(successor)
    }

    /// Waits until this member does not lead.
    pub(super) async fn led_elsewhere(&self) {
        let mut metrics = self.raft.metrics();
        while metrics.borrow_watched().current_leader == Some(self.caller.me) {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// Carries out a request as the leader.
    pub(super) async fn lead(&self, request: LeaderRequest) -> Result<u64, Refusal> {
        match request {
            LeaderRequest::Propose(command) => {
                // Every member must be able to read the entries that it applies.
                wire::decode::<F::Command>("command", &command).map_err(|_| Refusal::Malformed)?;
                let written = self.raft.client_write(EncodedCommand(command)).await;
                written.map(|written| written.data).map_err(refusal)
            }
            LeaderRequest::ReadIndex => self.read_index().await,
            LeaderRequest::Change(step) => self.change(step).await,
        }
    }

    /// Returns the number of the last decision, once this leader has applied all that were made.
    ///
    /// A leader that restarts within its term continues without a new entry, and knows only noted entries as
    /// committed. So its last entries may be decisions that it told before, and openraft alone does not wait
    /// for them.
    async fn read_index(&self) -> Result<u64, Refusal> {
        let last = self.raft.with_raft_state(|state| state.log_ids.last().map(|last| last.index)).await;
        let last = last.map_err(|_| Refusal::Stopped)?;
        let read = self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
        read.map_err(|error| match error {
            RaftError::APIError(_) => Refusal::NotLeader,
            RaftError::Fatal(_) => Refusal::Stopped,
        })?;
        let applied = self.raft.wait(Some(self.timing().request()));
        let applied = applied.applied_index_at_least(last, "what may be decided").await;
        applied.map_err(|_| Refusal::Uncertain)?;
        Ok(self.list.lock().decided)
    }

    async fn change(&self, step: MemberStep) -> Result<u64, Refusal> {
        let Some((change, retain)) = self.planned(step)? else {
            return Ok(*self.decided.borrow());
        };
        let changed = self.raft.change_membership(change, retain).await.map_err(refusal)?;
        Ok(changed.data)
    }

    /// Returns the change that a step needs; nothing if it is done.
    fn planned(&self, step: MemberStep) -> Result<Option<Planned>, Refusal> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        let server = |member| members.get_node(&member).copied();
        // A change that was interrupted between its two steps is ended first, by repeating it.
        let changing = members.get_joint_config().len() > 1;
        let voters = members.get_joint_config().last().cloned().unwrap_or_default();
        let only = |member| BTreeSet::from([member]);
        let change = match step {
            MemberStep::AddLearner { member, server: new } => match server(member) {
                Some(known) if known != new => return Err(Refusal::OtherServer(member)),
                Some(_) => return Ok(None),
                None if members.nodes().count() >= MAX_MEMBERS => return Err(Refusal::TooManyVoters),
                None => ChangeMembers::AddNodes(BTreeMap::from([(member, new)])),
            },
            MemberStep::Promote(member) if voters.contains(&member) && !changing => return Ok(None),
            MemberStep::Promote(member) if server(member).is_none() => {
                return Err(Refusal::NotALearner(member));
            }
            MemberStep::Promote(member) => {
                let matched =
                    metrics.replication.as_ref().and_then(|all| all.get(&member).copied()).flatten();
                let behind = matched.is_none_or(|matched| Some(matched) < metrics.local_committed);
                if !voters.contains(&member) && behind {
                    return Err(Refusal::NotALearner(member));
                }
                if voters.len() >= MAX_VOTERS && !voters.contains(&member) {
                    return Err(Refusal::TooManyVoters);
                }
                ChangeMembers::AddVoterIds(only(member))
            }
            MemberStep::Demote(member) | MemberStep::Remove(member)
                if voters.contains(&member) && voters.len() == 1 =>
            {
                return Err(Refusal::LastVoter);
            }
            MemberStep::Demote(member) if !voters.contains(&member) && !changing => return Ok(None),
            MemberStep::Demote(member) => ChangeMembers::RemoveVoters(only(member)),
            MemberStep::Remove(member) if server(member).is_none() => return Ok(None),
            MemberStep::Remove(member) if voters.contains(&member) || changing => {
                ChangeMembers::RemoveVoters(only(member))
            }
            MemberStep::Remove(member) => ChangeMembers::RemoveNodes(only(member)),
        };
        Ok(Some((change, !matches!(step, MemberStep::Remove(_)))))
    }
}

/// Returns the reason why the leader did not write.
fn refusal(error: RaftError<Types, ClientWriteError<Types>>) -> Refusal {
    match error {
        RaftError::Fatal(_) => Refusal::Stopped,
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Refusal::NotLeader,
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => Refusal::Uncertain,
        RaftError::APIError(ClientWriteError::PreconditionFailed(_)) => Refusal::ChangeInProgress,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
            ChangeMembershipError::LearnerNotFound(it) => Refusal::NotALearner(it.node_id),
            ChangeMembershipError::EmptyMembership(_) => Refusal::LastVoter,
            // A new leader takes no change before it has committed an entry of its own.
            _ => Refusal::ChangeInProgress,
        },
    }
}
