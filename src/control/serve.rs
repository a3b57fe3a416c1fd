//! The receiving side: answers requests of other members.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use geolock_api::names::DcId;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::RaftError;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest};
use tokio::sync::watch;

use super::error::Refusal;
use super::fold::Fold;
use super::founding::{Founding, note};
use super::frame::MAX_PAYLOAD;
use super::group::Core;
use super::machine::snapshot_of;
use super::member::MemberId;
use super::message::{Answer, Appended, Candidacy, Envelope, Identity, LeaderRequest, Request};
use super::pieces::{Piece, Taken};
use super::store::MAX_STATE;
use super::types::{Types, Vote};
use super::wire::{WireEntry, WireLogId, WireSnapshot, WireVote, entries, log_id};
use crate::base::wire;

/// The last leader that was heard of, and when.
pub(super) type Contact = watch::Sender<Option<(MemberId, Instant)>>;

/// Returns the time since `leader` was heard of.
pub(super) fn elapsed(contact: &Contact, leader: MemberId) -> Option<Duration> {
    contact.borrow().filter(|(heard, _)| *heard == leader).map(|(_, at)| at.elapsed())
}

type Answered = Result<Answer, Refusal>;

/// The core of openraft ended here.
fn stopped<E>(_: RaftError<Types, E>) -> Refusal {
    Refusal::Stopped
}

impl<F: Fold> Core<F> {
    pub(super) async fn handle_request(&self, from: DcId, request: &[u8]) -> Bytes {
        let answer = self.answer(from, request).await.unwrap_or_else(Answer::Refused);
        let bytes = wire::encode("control answer", &answer);
        bytes.expect("an answer is small: it has no entries and no state").into()
    }

    async fn answer(&self, from: DcId, request: &[u8]) -> Answered {
        if request.len() > MAX_PAYLOAD {
            return Err(Refusal::Malformed);
        }
        let envelope: Envelope = wire::decode("control request", request).map_err(|_| Refusal::Malformed)?;
        self.check_addresses(from, &envelope)?;
        let limit = match envelope.request {
            Request::Lead(_) => &self.for_leader,
            _ => &self.for_raft,
        };
        let _handled = limit.try_acquire().map_err(|_| Refusal::Busy)?;
        let sender = envelope.from;
        match envelope.request {
            Request::Append { vote, prev, entries, committed } => {
                self.append(sender, vote, prev, entries, committed).await
            }
            Request::Vote(candidacy) => self.vote(sender, candidacy, false).await,
            Request::PreVote(candidacy) => self.vote(sender, candidacy, true).await,
            Request::Snapshot { vote, snapshot } => self.install(sender, vote, snapshot).await,
            Request::SnapshotPiece { vote, piece } => self.take_piece(sender, vote, piece).await,
            Request::TransferLeader { vote, last } => self.transfer(vote, last).await,
            Request::Identify { .. } => Ok(Answer::Identity(self.identity(sender))),
            Request::Lead(request) => {
                let led = tokio::time::timeout(self.timing().request(), self.lead(request)).await;
                led.unwrap_or(Err(Refusal::Uncertain)).map(Answer::Decided)
            }
        }
    }

    /// Checks that both sides are the members, and have the directories, that they are taken for.
    fn check_addresses(&self, from: DcId, envelope: &Envelope) -> Result<(), Refusal> {
        let (me, server) = (self.caller.me, self.caller.server);
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Refusal::Stopped);
        }
        if envelope.from.dc != from || envelope.from == me {
            return Err(Refusal::Malformed);
        }
        if envelope.to != me {
            return Err(Refusal::WrongMember(me));
        }
        match envelope.to_server {
            Some(expected) if expected != server => {
                if !self.is_in_group() {
                    note(self, Founding::OtherDirectory { known: expected });
                }
                return Err(Refusal::WrongServer { member: me, server });
            }
            None if !matches!(envelope.request, Request::Identify { .. } | Request::Lead(_)) => {
                return Err(Refusal::Malformed);
            }
            _ => {}
        }
        // A decision is valid or not, whoever proposes it.
        let from_any_directory = matches!(
            envelope.request,
            Request::Identify { .. } | Request::Lead(LeaderRequest::Propose(_) | LeaderRequest::ReadIndex)
        );
        match self.server_of(envelope.from) {
            Some(known) if known != envelope.from_server && !from_any_directory => {
                Err(Refusal::UnknownServer(envelope.from))
            }
            _ => Ok(()),
        }
    }

    /// Returns the directory of a member, as the group knows it.
    pub(super) fn server_of(&self, member: MemberId) -> Option<super::member::ServerId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&member).copied()
    }

    fn identity(&self, asked_by: MemberId) -> Identity {
        Identity {
            server: self.caller.server,
            founders: self.founders.clone(),
            in_group: self.is_in_group(),
            knows_you_as: self.server_of(asked_by),
        }
    }

    /// Returns true if this member has, or had, a list of members.
    pub(super) fn is_in_group(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().nodes().next().is_some()
    }

    async fn append(
        &self,
        from: MemberId,
        vote: WireVote,
        prev: Option<WireLogId>,
        sent: Vec<WireEntry>,
        committed: Option<WireLogId>,
    ) -> Answered {
        let vote = leaders_vote(from, vote)?;
        let request = AppendEntriesRequest::<Types> {
            prev_log_id: log_id(prev)?,
            entries: entries(prev, sent, vote.leader_id().term)?,
            leader_commit: log_id(committed)?,
            vote,
        };
        let appended = self.raft.append_entries(request).await.map_err(stopped)?;
        let appended = match appended {
            AppendEntriesResponse::Success => Appended::All,
            AppendEntriesResponse::PartialSuccess(upto) => Appended::UpTo(upto.as_ref().map(Into::into)),
            AppendEntriesResponse::Conflict => Appended::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Appended::HigherVote((&vote).into()),
        };
        if !matches!(appended, Appended::HigherVote(_)) {
            self.heard_of_leader(from);
        }
        Ok(Answer::Appended(appended))
    }

    /// Returns when this member last heard a leader, or promised its vote to another member.
    pub(super) fn last_sign(&self) -> Option<Instant> {
        let heard = self.contact.borrow().map(|(_, at)| at);
        heard.max(*self.voted.borrow())
    }

    fn heard_of_leader(&self, leader: MemberId) {
        self.contact.send_replace(Some((leader, Instant::now())));
    }

    async fn vote(&self, from: MemberId, candidacy: Candidacy, pre_vote: bool) -> Answered {
        let Candidacy { vote, last, transfer } = candidacy;
        if vote.committed || vote.leader != from {
            return Err(Refusal::Malformed);
        }
        let mut request = VoteRequest::<Types>::new(vote.try_into()?, log_id(last)?);
        if pre_vote {
            return self.would_vote(&candidacy).await;
        }
        if !transfer && self.hears_leader() {
            return self.no_vote().await;
        }
        // openraft's lease is too long for near members. The line above is ours.
        request.leadership_transfer = true;
        let answer = self.raft.vote(request).await.map_err(stopped)?;
        if answer.vote_granted {
            self.voted.send_replace(Some(Instant::now()));
        }
        Ok(Answer::Vote {
            vote: (&answer.vote).into(),
            granted: answer.vote_granted,
            last: answer.last_log_id.as_ref().map(Into::into),
        })
    }

    async fn install(&self, from: MemberId, vote: WireVote, snapshot: WireSnapshot) -> Answered {
        let vote = leaders_vote(from, vote)?;
        let readable = wire::decode::<F>("state of the list", &snapshot.state).is_ok();
        if snapshot.state.len() > MAX_STATE || !readable || snapshot.members.voters.is_empty() {
            return Err(Refusal::Malformed);
        }
        let snapshot = snapshot_of(snapshot).map_err(|_| Refusal::Malformed)?;
        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
        let vote = installed.map_err(|_| Refusal::Stopped)?.vote;
        self.heard_of_leader(from);
        Ok(Answer::Installed { vote: (&vote).into() })
    }

    /// Takes a piece of a snapshot, and installs the snapshot once it is complete.
    async fn take_piece(&self, from: MemberId, vote: WireVote, piece: Piece) -> Answered {
        leaders_vote(from, vote)?;
        let taken =
            self.assembly.lock().expect("nothing panics while it holds a snapshot").take(from, piece)?;
        match taken {
            Taken::Has(bytes) => Ok(Answer::SnapshotHas(bytes)),
            Taken::Whole(snapshot) => self.install(from, vote, *snapshot).await,
        }
    }

    async fn transfer(&self, vote: WireVote, last: Option<WireLogId>) -> Answered {
        let request = TransferLeaderRequest::new(vote.try_into()?, self.caller.me, log_id(last)?);
        let begun = self.raft.handle_transfer_leader(request).await.map_err(|_| Refusal::Stopped)?;
        Ok(Answer::Transferred(begun.is_ok()))
    }
}

/// Returns the vote of a leader, which speaks for itself only.
fn leaders_vote(from: MemberId, vote: WireVote) -> Result<Vote, Refusal> {
    if !vote.committed || vote.leader != from {
        return Err(Refusal::Malformed);
    }
    vote.try_into()
}
