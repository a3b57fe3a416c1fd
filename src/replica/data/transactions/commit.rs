//! The commit of a transaction: one entry of the log (`docs/algorithm/log.md#23-the-commit`).

use std::sync::Arc;

use super::content::TxnContent;
use super::outcomes::Outcome;
use super::{CommitId, Open, Txn, TxnId};
use crate::causal_log::{Action, Commit, Entry, Op};
use crate::crdt::VersionVector;
use crate::replica::call::store::{Durability, Durable, Stepped, TxnRefusal, TxnState};
use crate::replica::call::{CallId, Phase, Refusal};
use crate::replica::data::transactions::TxnCalls;
use crate::replica::entries::Applier;
use crate::replica::lend::lend;
use crate::replica::lifecycle::{Lifecycle, UNDER};
use crate::replica::writer::Writer;
use geolock_api::names::{FencingToken, Position, RequestId, Secret};

impl TxnCalls<'_> {
    /// Commits changes that were just checked; [`can_commit`] was checked, too.
    pub(super) fn commit(&mut self, call: CallId, id: TxnId, stepped: Stepped, asked: Durability) {
        let Some(Txn::Open(mut open)) = self.data.transactions.rows.remove(&id) else {
            unreachable!("only open transactions commit, {id:?} is not");
        };
        let changes = std::mem::take(&mut open.changes);
        let needs_majority = self.config.local.needs_majority(&changes);
        let (position, seq, vector) = if changes.is_empty() {
            (Position::default(), 0, open.snapshot.clone())
        } else {
            let seen = (*open.snapshot).clone();
            let commit = Commit { seen, client: Some((id.lease, id.key)), changes };
            let ops = match self.token_of(&open) {
                Some(token) => vec![Op::Commit(commit), Op::Under { token }],
                None => vec![Op::Commit(commit)],
            };
            let position = lend!(Writer, self).make_entry(ops);
            self.note_guarded(&open.under, position);
            self.out.counts.commits += 1;
            let (mut vector, seq) = ((*open.snapshot).clone(), self.log.applied().get(self.config.dc));
            let seen = vector.get(self.config.dc);
            assert!(seq > seen, "commit {seq} of {id:?} is not in its snapshot, which ends with {seen}");
            vector.raise(self.config.dc, seq);
            (position, seq, Arc::new(vector))
        };
        let (commit, content) = (vector.clone(), open.content);
        let outcome = Outcome { commit, content, position, seq, needs_majority };
        self.note_outcome(id, outcome.clone());
        lend!(Requests, self).close(id, *open, position);
        let stepped = Stepped { state: TxnState::Committed(vector), ..stepped };
        self.tell_outcome(call, id, &outcome, stepped, asked);
    }

    /// Returns the highest token of the locks under which a transaction commits, if it does so under locks
    /// and all members can read that.
    fn token_of(&self, open: &Open) -> Option<FencingToken> {
        if !self.lifecycle.versions.all_speak(UNDER) {
            return None;
        }
        let requests = self.locks.requests();
        let of_guard = |request: &RequestId| requests[requests.find(*request)?].token();
        open.under.iter().filter_map(of_guard).chain(open.token).max()
    }

    /// Answers with an outcome when it is as durable as its call asks for, and as its buckets need.
    fn tell_outcome(
        &mut self,
        call: CallId,
        id: TxnId,
        outcome: &Outcome,
        stepped: Stepped,
        asked: Durability,
    ) {
        let durability = match asked {
            Durability::Local if outcome.needs_majority => Durability::MAJORITY,
            asked => asked,
        };
        let commit = CommitId { seq: outcome.seq, txn: id };
        lend!(MajorityCommits, self).answer_commit(call, (commit, outcome.position), stepped, durability);
    }

    fn note_outcome(&mut self, id: TxnId, outcome: Outcome) {
        let lease = self.clients.leases.find(id.lease).expect("a transaction ends before its lease");
        let last = self.out.position;
        assert!(outcome.position <= last, "{id:?} is recorded at {:?}, after {last:?}", outcome.position);
        let secret: Secret = self.clients.leases.get(lease).secret;
        self.data.transactions.outcomes.note(id.lease, secret, id.key, outcome);
    }

    /// Replies to a client once more that its transaction is committed.
    pub(super) fn tell_committed(&mut self, call: CallId, id: TxnId, outcome: &Outcome, asked: Durability) {
        let commit = outcome.commit.clone();
        let stepped = Stepped {
            snapshot: commit.clone(),
            token: None,
            values: Vec::new(),
            state: TxnState::Committed(commit),
            durable: Durable::Here,
        };
        self.tell_outcome(call, id, outcome, stepped, asked);
    }
}

impl Writer<'_> {
    /// Applies a commit: own or foreign, live or from the journal.
    pub(in crate::replica) fn take_in_commit(
        &mut self,
        entry: &Arc<Entry>,
        index: usize,
        commit: &Commit,
        position: Position,
    ) {
        let (is_live, is_own) = (position != Position::default(), entry.dc == self.config.dc);
        self.data.counter_escrow.note_commit(commit);
        let (expiry, now, own) = (&mut self.data.expiry, self.now.mono, is_own.then_some(entry.seq));
        self.data.store.apply(entry, index, position, |key, touched| {
            // From the journal: registered when all of it is read.
            if is_live {
                expiry.touch(key, touched, now, own);
            }
        });
        if is_live {
            let removals = commit.changes.iter().filter(|change| matches!(change.action, Action::Remove));
            self.out.counts.removals += removals.count() as u64;
        }
    }
}

impl Applier<'_> {
    /// Notes an own commit of an earlier run, from the journal or from a peer: its client may still ask for
    /// it. A commit of this run is noted when it is made.
    pub(in crate::replica) fn note_earlier_commit(
        &mut self,
        entry: &Entry,
        commit: &Commit,
        position: Position,
    ) {
        let Some((lease, key)) = commit.client else { return };
        let known = self.clients.leases.find(lease).map(|row| self.clients.leases.get(row).secret);
        let Some(secret) = known.or_else(|| self.data.transactions.outcomes.secret_of(lease)) else {
            return self.data.transactions.outcomes.note_lost(lease, key);
        };
        let mut vector: VersionVector = commit.seen.clone();
        vector.raise(entry.dc, entry.seq);
        let content = TxnContent::committed(&commit.changes);
        let needs_majority = self.config.local.needs_majority(&commit.changes);
        let (commit, seq) = (Arc::new(vector), entry.seq);
        let outcome = Outcome { commit, content, position, seq, needs_majority };
        self.data.transactions.outcomes.note(lease, secret, key, outcome);
    }
}

pub(in crate::replica) fn can_commit(lifecycle: &Lifecycle) -> Result<(), Refusal> {
    let why = match lifecycle.phase() {
        Phase::Starting if lifecycle.state.is_contradicted() => {
            "it has started with a clock that is too far ahead of most others: it waits until that is set right"
        }
        Phase::Starting => "it has just started; try again in half a second",
        Phase::ReadOnly => {
            "it does not know yet whether it has all of its own log: it has just started (try again in some seconds), \
             or its data is new or restored, or others know more of its log"
        }
        Phase::Forked { .. } => {
            "its log and that of another datacenter are two histories: an operator has to decide which one is kept"
        }
        _ if lifecycle.stalls.has_clock_skew() => {
            "its clock is too far ahead of the others: set it right and start it again"
        }
        _ if lifecycle.stalls.is_log_full() => {
            "its log is full of entries that most other datacenters lack: they have to be reached first"
        }
        Phase::Grace { .. } | Phase::Serving => return lifecycle.stalls.admit_write(),
    };
    Err(TxnRefusal::CannotCommit(why).into())
}
