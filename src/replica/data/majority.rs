//! Commits that are durable at a majority (`docs/algorithm/log.md#25-durable-at-a-majority`).
//!
//! A transaction may ask for an answer only when more than half of the members, and more than half of the
//! voters, have its commit on disk, and the configuration may ask for it, by bucket. The commit is made
//! like any other, its locks are released at once, and only the answer waits. Heartbeats carry the durable
//! vectors of the members. They come twice a second, so this datacenter also asks its peers for an
//! acknowledgement at once:
//!
//! ```text
//!   here    commit, sync ── entry, AckWanted ──>  there
//!                                                 sync
//!           answer <──────────── Acknowledged ──
//! ```
//!
//! That is one round trip to the nearest majority, and two syncs. An `AckWanted` stands for all commits up to
//! its number, and an `Acknowledged` for all that one sync there made durable. So a stream of commits costs
//! each link at most one of them for each sync.
//!
//! An acknowledgement counts like a heartbeat: only after a heartbeat on the same link has shown that both
//! sides have one history, and with the heads of the logs.

use super::transactions::{CommitId, WaitingAnswer};
use crate::base::bugs::Bug;
use crate::base::time::Now;
use crate::base::work;
use crate::causal_log::{Log, Violation};
use crate::crdt::VersionVector;
use crate::replica::call::store::{Durability, Durable, MAX_MAJORITY_WAIT, Stepped};
use crate::replica::call::{CallId, Reply};
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::effect::Effect;
use crate::replica::lifecycle::heads_to_tell;
use crate::replica::members::Members;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::outputs::output_commit::Output;
use crate::replica::peers::peering::Peering;
use geolock_api::names::{DcId, MAX_DCS, Position};

/// The first protocol version with [`Message::AckWanted`] and [`Message::Acknowledged`].
const FIRST_VERSION: u16 = 3;
/// Most answers that one step lets go because a majority has their commits, and most whose wait is over.
const ANSWERS_PER_STEP: usize = 512;

/// The acknowledgements that this datacenter and its peers ask each other for.
pub(in crate::replica) struct Acknowledgements {
    rows: [Row; MAX_DCS],
    /// Durable vectors have changed, or more answers wait, since the last look.
    has_news: bool,
}

/// The state of one link.
#[derive(Clone, Copy, Default)]
struct Row {
    version: u16,
    /// The last own entry for which the peer was asked.
    asked: u64,
    /// The last entry of the peer's log for which the peer asks.
    wanted: u64,
    /// The last entry of the peer's log that was acknowledged, or was durable when the peer asked.
    told: u64,
}

impl Acknowledgements {
    pub fn new() -> Acknowledgements {
        Acknowledgements { rows: [Row::default(); MAX_DCS], has_news: false }
    }

    pub fn link_up(&mut self, peer: DcId, version: u16) {
        self.rows[peer.index()] = Row { version, ..Row::default() };
    }

    /// Durable vectors may have changed.
    pub fn note_news(&mut self) {
        self.has_news = true;
    }

    /// Returns true if the next step continues to answer.
    #[inline]
    pub fn have_news(&self) -> bool {
        self.has_news
    }

    /// Returns true if a peer understands the messages of this module. Commits reach a majority without them,
    /// with the next heartbeats.
    fn are_understood_by(&self, peer: DcId) -> bool {
        self.rows[peer.index()].version >= FIRST_VERSION
    }
}

/// Answers to commits that wait for a majority, and acknowledgements.
pub(in crate::replica) struct MajorityCommits<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) data: &'a mut Data,
}

impl MajorityCommits<'_> {
    /// Returns the number of the last own entry that a majority has.
    fn reached(&self) -> u64 {
        self.log.peers().durable_at_majority(self.log.durable(), self.members.voter_majorities())
    }

    /// Answers a commit with journal position `position`, own entry `seq`: at once when it is durable here,
    /// or when a majority has it.
    pub(in crate::replica) fn answer_commit(
        &mut self,
        call: CallId,
        (commit, position): (CommitId, Position),
        stepped: Stepped,
        durability: Durability,
    ) {
        let Durability::Majority { wait } = durability else {
            let stepped = Stepped { durable: Durable::Here, ..stepped };
            let effect = Effect::Reply { call, reply: Reply::Stepped(Box::new(stepped)) };
            return self.out.emit_when_durable(position, effect);
        };
        let (seq, made) = (commit.seq, self.log.applied().get(self.config.dc));
        assert!(seq <= made, "entry {seq} is waited for, {made} is the last own one");
        let since = self.now.mono;
        let until = since + wait.min(MAX_MAJORITY_WAIT);
        let answer = WaitingAnswer { call, position, stepped, since, until };
        if commit.seq <= self.reached() {
            return self.let_go(commit.seq, answer);
        }
        // Most memory is bounded where transactions begin; this bounds repeated calls for earlier commits.
        if self.data.transactions.majority.len() >= self.config.local.max_transactions {
            return self.let_go(commit.seq, answer);
        }
        // The client asks once more: its earlier call gets no better answer.
        if let Some(before) = self.data.transactions.majority.insert(commit, answer) {
            self.let_go(commit.seq, before);
        }
        self.data.acknowledgements.note_news();
    }

    /// Answers the commits that a majority has by now, and asks the peers for acknowledgements of others.
    pub(in crate::replica) fn update_majority(&mut self) {
        self.data.acknowledgements.has_news = false;
        self.acknowledge_wanted();
        if self.data.transactions.majority.is_empty() {
            return;
        }
        let reached = self.reached();
        for _ in 0..ANSWERS_PER_STEP {
            let Some((seq, answer)) = self.data.transactions.majority.next_reached(reached) else {
                return self.ask_for_acknowledgements();
            };
            work::count(1);
            self.let_go(seq, answer);
        }
        // The rest follows in the next step.
        self.data.acknowledgements.note_news();
    }

    /// Asks each peer that lacks the last durable entry with a waiting answer for an acknowledgement, once.
    fn ask_for_acknowledgements(&mut self) {
        let durable = self.log.durable().get(self.config.dc);
        let Some(seq) = self.data.transactions.majority.last_up_to(durable) else { return };
        for peer in self.log.peers().linked().iter() {
            let is_known = self.log.peer(peer).acknowledged().has(self.config.dc, seq);
            if !is_known
                && self.data.acknowledgements.rows[peer.index()].asked < seq
                && self.data.acknowledgements.are_understood_by(peer)
            {
                self.data.acknowledgements.rows[peer.index()].asked = seq;
                self.out.send(self.log, peer, Message::AckWanted { seq });
            }
        }
    }

    /// A peer wants to hear when its log up to `seq` is durable here.
    pub(in crate::replica) fn on_ack_wanted(&mut self, peer: DcId, seq: u64) {
        let durable = self.acknowledged_log_of(peer);
        let row = &mut self.data.acknowledgements.rows[peer.index()];
        row.wanted = row.wanted.max(seq);
        if durable < seq {
            // An acknowledgement of less is worth sending only when there is more than the peer knows of.
            row.told = row.told.max(durable);
        } else {
            self.data.acknowledgements.note_news();
        }
    }

    /// Sends acknowledgements to the peers that asked for some and whose logs have more durable entries here
    /// than they were told.
    fn acknowledge_wanted(&mut self) {
        for peer in self.log.peers().linked().iter() {
            let (row, durable) =
                (self.data.acknowledgements.rows[peer.index()], self.acknowledged_log_of(peer));
            if row.wanted <= row.told || durable <= row.told {
                continue;
            }
            self.data.acknowledgements.rows[peer.index()].told = durable;
            let vector = match self.config.bugs.has(Bug::AckFromMemory) {
                true => self.log.applied().clone(),
                false => (**self.log.durable()).clone(),
            };
            let heads = heads_to_tell(self.config, self.log);
            self.out.send(self.log, peer, Message::Acknowledged { durable: vector, heads });
        }
    }

    /// Returns the number of the last entry of a peer's log that may be acknowledged.
    fn acknowledged_log_of(&self, peer: DcId) -> u64 {
        match self.config.bugs.has(Bug::AckFromMemory) {
            true => self.log.applied().get(peer),
            false => self.log.durable().get(peer),
        }
    }

    /// Ends waits for a majority that lasted too long.
    pub(in crate::replica) fn expire_majority_waits(&mut self) {
        for _ in 0..ANSWERS_PER_STEP {
            let Some((seq, answer)) = self.data.transactions.majority.next_expired(self.now.mono) else {
                break;
            };
            work::count(1);
            self.let_go(seq, answer);
        }
    }

    /// Gives up waiting for a majority, and answers when the commit is durable here.
    fn let_go(&mut self, seq: u64, answer: WaitingAnswer) {
        if self.out.output_commit.may_emit(answer.position) {
            return self.answer_committed(seq, answer);
        }
        self.out.output_commit.queue(answer.position, Output::Committed(seq, Box::new(answer)));
    }

    /// Answers a commit, own entry `seq` or one before it, which is durable here. The majority counts at this
    /// moment, however the wait ended.
    pub(in crate::replica) fn answer_committed(&mut self, seq: u64, answer: WaitingAnswer) {
        let WaitingAnswer { call, position, stepped, since, .. } = answer;
        let (durable, own) = (self.out.output_commit.durable(), self.log.durable().get(self.config.dc));
        assert!(position <= durable, "the commit at {position:?} is answered, {durable:?} is durable");
        debug_assert!(seq <= own, "commit {seq} is answered, own entries up to {own} are durable");
        let durable = if seq <= self.reached() {
            self.data.majority_waits.record(self.now.mono.saturating_since(since));
            Durable::AtMajority
        } else {
            self.out.counts.commits_not_at_majority += 1;
            let missing =
                self.log.peers().not_known_to_have(seq, self.log.durable(), self.members.voter_majorities());
            Durable::NotAtMajority { missing }
        };
        self.out.reply(call, Reply::Stepped(Box::new(Stepped { durable, ..stepped })));
    }
}

impl Acknowledgements {
    /// Asserts that no more is asked for or acknowledged than there is.
    pub fn check(&self, me: DcId, log: &Log) {
        for peer in log.peers().linked().iter() {
            let (row, own) = (&self.rows[peer.index()], log.durable().get(me));
            assert!(row.asked <= own, "{peer} is asked for {}, {own} is durable", row.asked);
            let known = log.applied().get(peer);
            assert!(row.told <= known, "{peer} was told {}, {known} is applied", row.told);
        }
    }
}

impl Peering<'_> {
    /// A peer has these entries on disk.
    pub(in crate::replica) fn on_acknowledged(
        &mut self,
        peer: DcId,
        durable: &VersionVector,
        heads: &[(DcId, u64)],
    ) -> Result<(), Violation> {
        let mut named = durable.iter().map(|(dc, _)| dc).chain(heads.iter().map(|(dc, _)| *dc));
        let is_strange =
            |dc: &DcId| !self.members.entered.contains(*dc) && !self.members.decided.may_lack_members();
        if let Some(dc) = named.find(is_strange) {
            return Err(Violation::UnknownDc { dc });
        }
        if !self.log.peer(peer).has_announced() {
            // It did not announce itself on this link yet; its heartbeat will have the same vector.
            return Ok(());
        }
        self.compare_heads(peer, durable, heads);
        if !self.lifecycle.state.is_forked() {
            self.note_vector(peer, durable, self.log.peer(peer).links());
        }
        Ok(())
    }
}
