//! Calls to other members, and the network as openraft wants it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use tokio::sync::watch;

use super::config::Timing;
use super::error::{CallError, Refusal};
use super::frame::MAX_PAYLOAD;
use super::member::{MemberId, ServerId};
use super::message::{Answer, Appended, Candidacy, Envelope, Request};
use super::pieces::Pieces;
use super::transport::ControlTransport;
use super::types::{Types, Vote};
use super::wire::{WireEntry, WireLogId, WireSnapshot, WireVote, log_id};
use crate::base::wire;

/// Bytes of entries, or of a snapshot, in one message: the rest of the frame is for everything around them.
const MAX_CONTENT: usize = MAX_PAYLOAD - (4 << 10);

/// Makes requests in the name of this member.
pub(super) struct Caller {
    pub me: MemberId,
    pub server: ServerId,
    pub transport: Arc<dyn ControlTransport>,
    /// The times for the present round trips.
    pub timing: watch::Sender<Timing>,
    /// The last entry that each member acknowledged, and the term of the leader here that it did so for.
    acknowledged: Mutex<BTreeMap<MemberId, (u64, u64)>>,
}

impl Caller {
    pub(super) fn new(
        me: MemberId,
        server: ServerId,
        transport: Arc<dyn ControlTransport>,
        timing: Timing,
    ) -> Caller {
        let timing = watch::Sender::new(timing);
        Caller { me, server, transport, timing, acknowledged: Mutex::default() }
    }

    /// Asks a member for something. With `to_server`, it answers only with that directory.
    pub(super) async fn ask(
        &self,
        to: MemberId,
        to_server: Option<ServerId>,
        request: Request,
        limit: Duration,
    ) -> Result<Answer, CallError> {
        let envelope = Envelope { from: self.me, from_server: self.server, to, to_server, request };
        let bytes = wire::encode("control request", &envelope).map_err(|_| CallError::Malformed)?;
        let answer = tokio::time::timeout(limit, self.transport.call(to.dc, bytes.into())).await;
        let answer = answer.map_err(|_| CallError::TimedOut)??;
        if answer.len() > MAX_PAYLOAD {
            return Err(CallError::Malformed);
        }
        match wire::decode("control answer", &answer).map_err(|_| CallError::Malformed)? {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }

    /// Notes an acknowledged entry.
    fn acknowledged(&self, by: MemberId, term: u64, upto: Option<WireLogId>) {
        let Some(upto) = upto else { return };
        let mut acknowledged = self.acknowledged.lock().expect("nothing panics while it holds positions");
        let (known_term, index) = acknowledged.entry(by).or_default();
        *index = if *known_term == term { upto.index.max(*index) } else { upto.index };
        *known_term = term;
    }

    /// Returns true if the member lacks an entry that it acknowledged: its directory is an old copy.
    fn went_back(&self, by: MemberId, term: u64, lacks: Option<WireLogId>) -> bool {
        let acknowledged = self.acknowledged.lock().expect("nothing panics while it holds positions");
        let known = acknowledged.get(&by).filter(|(known_term, _)| *known_term == term);
        matches!((known, lacks), (Some((_, index)), Some(lacks)) if lacks.index <= *index)
    }
}

/// Makes [`Peer`]s.
pub(super) struct Peers(pub(super) Arc<Caller>);

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: MemberId, server: &ServerId) -> Peer {
        Peer { caller: self.0.clone(), member: target, server: *server }
    }
}

/// Another member, for openraft.
pub(super) struct Peer {
    caller: Arc<Caller>,
    member: MemberId,
    server: ServerId,
}

type Rpc<T> = Result<T, RPCError<Types>>;

impl Peer {
    async fn ask(&self, action: RPCTypes, request: Request, option: &RPCOption) -> Rpc<Answer> {
        let limit = self.caller.timing.borrow().answer().min(option.hard_ttl());
        let answer = self.caller.ask(self.member, Some(self.server), request, limit).await;
        answer.map_err(|error| match error {
            CallError::TimedOut => {
                let (id, target) = (self.caller.me, self.member);
                RPCError::Timeout(Timeout { action, id, target, timeout: limit })
            }
            CallError::Refused(refusal) if refusal != Refusal::Busy => {
                tracing::warn!(member = %self.member, %refusal, "a member of the control group refuses");
                RPCError::Unreachable(Unreachable::new(&refusal))
            }
            error => RPCError::Unreachable(Unreachable::new(&error)),
        })
    }
}

impl Peer {
    /// Sends a snapshot: at once if a frame takes it, which members of all releases read; else in pieces,
    /// from where the member has it already.
    async fn snapshot(
        &self,
        vote: WireVote,
        snapshot: WireSnapshot,
        option: &RPCOption,
    ) -> Rpc<SnapshotResponse<Types>> {
        let pieces = Pieces::of(&snapshot).map_err(|_| unreadable())?;
        if pieces.len() <= MAX_CONTENT as u64 {
            let whole = Request::Snapshot { vote, snapshot };
            return installed(self.ask(RPCTypes::InstallSnapshot, whole, option).await?);
        }
        let mut at = 0;
        loop {
            let piece = Request::SnapshotPiece { vote, piece: pieces.from(at) };
            match self.ask(RPCTypes::InstallSnapshot, piece, option).await? {
                Answer::SnapshotHas(has) if (at + 1..pieces.len()).contains(&has) => at = has,
                answer => return installed(answer),
            }
        }
    }
}

fn installed(answer: Answer) -> Rpc<SnapshotResponse<Types>> {
    match answer {
        Answer::Installed { vote } => Ok(SnapshotResponse::new(known(vote)?)),
        _ => Err(unreadable()),
    }
}

fn unreadable() -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(&CallError::Malformed))
}

/// Returns a vote in openraft's form.
fn known(vote: WireVote) -> Rpc<Vote> {
    vote.try_into().map_err(|_| unreadable())
}

fn known_id(id: Option<WireLogId>) -> Rpc<Option<super::types::LogId>> {
    log_id(id).map_err(|_| unreadable())
}

fn candidacy(request: &VoteRequest<Types>) -> Candidacy {
    Candidacy {
        vote: (&request.vote).into(),
        last: request.last_log_id.as_ref().map(Into::into),
        transfer: request.leadership_transfer,
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = WireSnapshot;

    /// Sends as many of the entries as a frame takes.
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<Types>> {
        let mut room = MAX_CONTENT;
        let mut entries: Vec<WireEntry> = Vec::new();
        for entry in &rpc.entries {
            let entry = WireEntry::from(entry);
            let size = wire::encode("entry", &entry).map_or(usize::MAX, |bytes| bytes.len());
            match room.checked_sub(size) {
                Some(left) => room = left,
                None => break,
            }
            entries.push(entry);
        }
        let prev = rpc.prev_log_id.as_ref().map(Into::into);
        let (sent, last) = (entries.len(), entries.last().map_or(prev, |entry| Some(entry.id)));
        let term = rpc.vote.leader_id().term;
        let committed = rpc.leader_commit.as_ref().map(Into::into);
        let request = Request::Append { vote: (&rpc.vote).into(), prev, entries, committed };
        let Answer::Appended(appended) = self.ask(RPCTypes::AppendEntries, request, &option).await? else {
            return Err(unreadable());
        };
        match appended {
            Appended::All => {
                self.caller.acknowledged(self.member, term, last);
                match sent == rpc.entries.len() {
                    true => Ok(AppendEntriesResponse::Success),
                    false => Ok(AppendEntriesResponse::PartialSuccess(known_id(last)?)),
                }
            }
            // It cannot have more of this message than was in it.
            Appended::UpTo(upto) if upto <= last => {
                self.caller.acknowledged(self.member, term, upto);
                Ok(AppendEntriesResponse::PartialSuccess(known_id(upto)?))
            }
            Appended::UpTo(_) => Err(unreadable()),
            Appended::Conflict if prev.is_none() => Err(unreadable()),
            Appended::Conflict if self.caller.went_back(self.member, term, prev) => {
                tracing::error!(
                    member = %self.member,
                    "lacks entries that it had acknowledged: its directory is an old copy, admit it again"
                );
                Err(unreadable())
            }
            Appended::Conflict => Ok(AppendEntriesResponse::Conflict),
            Appended::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(known(vote)?)),
        }
    }

    async fn vote(&mut self, rpc: VoteRequest<Types>, option: RPCOption) -> Rpc<VoteResponse<Types>> {
        let request = Request::Vote(candidacy(&rpc));
        let Answer::Vote { vote, granted, last } = self.ask(RPCTypes::Vote, request, &option).await? else {
            return Err(unreadable());
        };
        Ok(VoteResponse::new(known(vote)?, known_id(last)?, granted))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Types, WireSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            sent = self.snapshot((&vote).into(), snapshot.snapshot, &option) => Ok(sent?),
            closed = cancel => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Rpc<TransferLeaderResponse<Types>> {
        // openraft tells all members. The message names none: whoever gets it begins an election, which needs
        // no consent of those that still hear the leader.
        if *rpc.to_node_id() != self.member {
            return Ok(Ok(()));
        }
        let (vote, last) = (rpc.from_leader().into(), rpc.last_log_id().map(Into::into));
        let request = Request::TransferLeader { vote, last };
        match self.ask(RPCTypes::TransferLeader, request, &option).await? {
            // A refusal is of no use to a leader that goes: the others elect one after their timeout.
            Answer::Transferred(_) => Ok(Ok(())),
            _ => Err(unreadable()),
        }
    }
}
