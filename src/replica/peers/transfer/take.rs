//! The taker of a state transfer.

use super::stream::{Head, Incoming, StateFault, StatePiece};
use super::{PATIENCE, WINDOW};
use crate::base::bugs::Bug;
use crate::base::capacity::DiskSpace;
use crate::base::time::Instant;
use crate::causal_log::{Entry, Log, Op, Violation};
use crate::crdt::{Ownership, VersionVector};
use crate::lock_state::Foreign;
use crate::membership::Epoch;
use crate::replica::Replica;
use crate::replica::effect::Report;
use crate::replica::lend::lend;
use crate::replica::lifecycle::fork_in_hashes;
use crate::replica::members::{Members, MembersState};
use crate::replica::message::Message;
use crate::replica::outputs::output_commit::Output;
use crate::replica::peers::transfer::StateTransfer;
use crate::replica::record::Record;
use crate::store_state::Store;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, Position};

/// A state that is being received.
pub(super) struct Intake {
    /// `None` while the journal is replayed.
    pub(super) from: Option<DcId>,
    /// The state is needed for entries up to these, which the giver has truncated.
    truncated: VersionVector,
    incoming: Incoming,
    /// The transfer is given up then, unless another piece comes.
    until: Instant,
}

impl StateTransfer<'_> {
    /// `peer` has truncated the entries up to `truncated`: asks for its state, if this datacenter lacks any
    /// of them.
    pub(in crate::replica) fn on_too_far_behind(&mut self, peer: DcId, truncated: &VersionVector) {
        let has_it = self.log.applied().covers(truncated) && !self.members.needs_state();
        if has_it
            || self.members.decided.is_over()
            || self.lifecycle.state.is_forked()
            || self.copies.transfers.is_taking()
            || self.log.taken().is_some()
            || self.lifecycle.stalls.disk() != DiskSpace::Enough
        {
            return;
        }
        self.out.report(Report::StateWanted { peer });
        self.begin_taking(Some(peer), truncated.clone());
        self.out.send(self.log, peer, Message::AskState { anew: true, more: WINDOW });
    }

    fn begin_taking(&mut self, from: Option<DcId>, truncated: VersionVector) {
        let is_free = !self.copies.transfers.is_taking() || from.is_none();
        assert!(is_free, "the state of {from:?} is taken beside another one");
        let seed = self.config.local.hash_seed;
        let store = Store::new(self.config.dc, seed).with_bugs(self.config.bugs);
        let members = (!self.members.decided.names_members()).then(|| self.members.entered.all());
        let incoming = Incoming::new(members, store, Ownership::new(seed));
        let until = self.now.mono + PATIENCE;
        self.copies.transfers.intake = Some(Intake { from, truncated, incoming, until });
    }

    /// A piece is durable: asks for one more.
    pub(in crate::replica) fn ask_for_more(&mut self, peer: DcId) {
        let is_taking = self.copies.transfers.intake.as_ref().is_some_and(|intake| intake.from == Some(peer));
        if is_taking && self.log.peer(peer).is_linked() {
            self.out.send(self.log, peer, Message::AskState { anew: false, more: 1 });
        }
    }

    /// Returns the reason why a state cannot be installed now, if there is one.
    fn is_of_no_use(&self, intake: &Intake, head: &Head) -> Option<&'static str> {
        let members = intake.incoming.members_state.as_ref();
        let latest = self.ids.clock.physical_millis() + self.config.agreed.max_clock_skew.as_millis() as u64;
        let decided = &self.members.decided;
        let least = self.members.entered.epoch().max(decided.list().compacted().config().epoch());
        let is_other = |state: &MembersState| {
            let (compacted, known) = (&state.compacted, decided.config());
            compacted.index() > known.index() && !compacted.follows(known, self.config.agreed.cluster)
        };
        if decided.is_over_in(members) && !self.config.bugs.has(Bug::StateAfterEnd) {
            Some("it is decided that this server is no member any more")
        } else if members.map_or(Epoch(0), |state| state.entered) < least {
            Some("it is of an epoch before ours")
        } else if members.is_some_and(is_other) {
            Some("its decisions about the members do not follow ours")
        } else if !self.members.decided.is_admitted_in(members)
            && !self.config.bugs.has(Bug::StateBeforeEpoch)
        {
            Some("it is of an epoch before the admission of this server")
        } else if self.members.has_beyond(&head.vector, self.log.applied(), self.config.bugs) {
            Some("it has entries of a datacenter that is evicted, which do not count")
        } else if self.log.applied().covers(&intake.truncated)
            && !self.members.needs_state()
            && !self.config.bugs.has(Bug::StateUnneeded)
        {
            // Installing it would end open transactions.
            Some("what was lacking has come by itself meanwhile")
        } else if head.stamps.iter().any(|(_, stamp)| stamp.millis() > latest) {
            Some("it is stamped too far ahead of our clock: check the clocks")
        } else if self.log.truncated().first_beyond(&head.vector).is_some() {
            Some("it lacks entries that are no longer kept here: another datacenter has to help both")
        } else {
            None
        }
    }

    /// Replays a piece from the journal.
    pub(in crate::replica) fn replay_piece(&mut self, piece: &StatePiece) -> Result<(), StateFault> {
        if piece.number == 0 {
            self.begin_taking(None, VersionVector::default());
        }
        match &mut self.copies.transfers.intake {
            Some(intake) => intake.incoming.push(piece),
            None => Err(StateFault::Order { found: piece.number, wanted: 0 }),
        }
    }

    /// Ends all transfers: no state of another history is installed, and no state of this one is sent.
    pub(in crate::replica) fn stop_transfers(&mut self) {
        self.copies.transfers.intake = None;
        self.members.peers().iter().for_each(|peer| self.stop_giving(peer));
    }

    /// Gives up transfers whose other side is silent.
    pub(in crate::replica) fn expire_transfers(&mut self) {
        self.expire_giving();
        let now = self.now.mono;
        let _given_up = self.copies.transfers.intake.take_if(|intake| intake.until <= now);
    }
}

impl Replica {
    pub(in crate::replica) fn on_state(&mut self, peer: DcId, piece: StatePiece) -> Result<(), Violation> {
        let until = self.now.mono + PATIENCE;
        // A late piece of a transfer that was given up is ignored.
        let Some(intake) = self.copies.transfers.intake.as_mut().filter(|intake| intake.from == Some(peer))
        else {
            return Ok(());
        };
        intake.until = until;
        if self.lifecycle.stalls.disk() == DiskSpace::Full {
            // The pieces cannot be journaled; the whole state is asked for again when there is room.
            self.copies.transfers.stop_taking_from(peer);
            return Ok(());
        }
        if let Err(fault) = intake.incoming.push(&piece) {
            return Err(refusal(&fault));
        }
        let is_whole = piece.last;
        assert_eq!(intake.incoming.is_whole(), is_whole, "a state is whole with its last piece");
        let position = self.out.persist(Record::StatePiece(piece));
        if is_whole {
            return self.finish_taking(peer);
        }
        // So no more pieces are in flight than the journal keeps up with.
        match self.out.output_commit.may_emit(position) {
            true => lend!(StateTransfer, self).ask_for_more(peer),
            false => self.out.output_commit.queue(position, Output::AskState(peer)),
        }
        Ok(())
    }

    /// All pieces are here: installs the state if it is valid and of use now.
    fn finish_taking(&mut self, peer: DcId) -> Result<(), Violation> {
        let intake = self.copies.transfers.intake.take().expect("its last piece has just come");
        assert_eq!(intake.from, Some(peer), "the last piece comes from who sent the others");
        assert!(intake.incoming.is_whole(), "a state is whole with its last piece");
        let head = intake.incoming.head.as_ref().expect("a whole state has a head");
        if let Some(why) = lend!(StateTransfer, self).is_of_no_use(&intake, head) {
            self.out.report(Report::StateOfNoUse { peer, why });
            return Ok(());
        }
        let mut incoming = intake.incoming;
        let foreign = foreign(&mut incoming, &self.log, &self.members);
        if let Err(fault) = self.locks.inspect().validate_foreign(&foreign, self.log.applied()) {
            return Err(refusal(&fault));
        }
        let contested = self.locks.inspect().contested(&foreign, self.log.applied());
        let vector = foreign.vector.clone();
        let fork = fork_in_hashes(&self.config, &self.log, (peer, &vector), &incoming.hashes);
        lend!(Peering, self).note_fork(fork);
        if self.lifecycle.state.is_forked() {
            return Ok(());
        }
        // Locks that this disk did not know it had given away.
        contested.iter().for_each(|lock| lend!(Requests, self).take_from_holders(lock));
        let position = self.out.persist(Record::StateTaken { vector: vector.clone() });
        lend!(Requests, self).end_open_transactions();
        let is_new = self.members.decided.awaits_state();
        self.install_state(incoming, foreign, position);
        if is_new && !self.lifecycle.own_log.has_joined() {
            // Nobody has a log of its generation. In any other directory leases may live that it has lost.
            lend!(LogRecovery, self).join();
            // The leases of an earlier server with this id have lower numbers, also if its clock was ahead.
            self.clients.deferred.begin_at(self.ids.next_n);
        }
        self.out.counts.state_transfers_received += 1;
        self.out.report(Report::StateTaken { peer, vector });
        // Entries that waited for entries of the state can be applied.
        self.drain_inbox();
        Ok(())
    }

    /// Installs the state, and applies the entries of our own log that it lacks on top.
    fn install_state(&mut self, incoming: Incoming, foreign: Foreign, position: Position) {
        let head = incoming.head.as_ref().expect("a whole state has a head");
        head.stamps.iter().for_each(|(_, stamp)| self.ids.clock.observe(*stamp));
        let before = self.log.applied().clone();
        if head.vector.get(self.config.dc) > before.get(self.config.dc) {
            self.out.regained = position;
        }
        if let Some(state) = &incoming.members_state {
            lend!(Decisions, self).install_members(state, &head.vector);
            self.ids.fence = self.members.fence();
        }
        self.locks.log_operations().install_state(foreign, &before, position, self.now.mono);
        let beyond = membership_beyond(head, &self.log);
        lend!(Writer, self).take_in_beyond(&beyond, position);
        let Head { vector, stamps } = head;
        let position =
            if self.config.bugs.has(Bug::StateToldBeforeDurable) { Position::default() } else { position };
        self.log.install_state(vector, stamps, &incoming.hashes, position);
        let applied = self.log.applied();
        assert!(applied.covers(&before), "a state takes nothing back: {applied} after {before}");
        self.ids.raise_lead(incoming.lead_ms, position);
        if self.config.bugs.has(Bug::StateToldBeforeDurable) {
            self.log.note_durable(self.out.output_commit.durable(), self.now.mono);
        }
        let (mut store, mut expiring) = (incoming.store, incoming.expiring);
        store.end_restore(vector);
        store.note_durable(self.out.output_commit.durable());
        let restores_own = !self.config.bugs.has(Bug::StateWithoutOwn);
        for entry in
            self.log.entries().iter().filter(|entry| restores_own && entry.seq > vector.get(entry.dc))
        {
            apply_commits(&mut store, entry, position, &mut expiring);
        }
        self.data.store = store;
        self.data.store.note_stable(self.peers.stability.stable());
        lend!(KeyExpiry, self).count_anew(expiring);
        lend!(WatchCalls, self).end_watches();
        self.copies.transfers.giving.clear();
        if self.copies.checkpoint_builder.take().is_some() {
            self.on_checkpoint_wanted();
        }
        self.out.pump = true;
    }

    /// Replays the installation of a state from the journal. Everything in the journal is durable.
    pub(in crate::replica) fn replay_taken(&mut self, taken: &VersionVector) -> Result<(), String> {
        let intake = self.copies.transfers.intake.take().filter(|intake| intake.incoming.is_whole());
        let mut incoming = intake.ok_or("the state that it takes over is not there")?.incoming;
        let head = incoming.head.as_ref().expect("a whole state has a head");
        if head.vector != *taken {
            return Err(format!("it takes over {taken}, the state is that at {}", head.vector));
        }
        let foreign = foreign(&mut incoming, &self.log, &self.members);
        let checked = self.locks.inspect().validate_foreign(&foreign, self.log.applied());
        checked.map_err(|fault| fault.to_string())?;
        self.install_state(incoming, foreign, Position::default());
        self.log.note_durable(Position::default(), self.now.mono);
        Ok(())
    }
}

/// Takes the view of the locks out of a whole state.
fn foreign(incoming: &mut Incoming, log: &Log, members: &Members) -> Foreign {
    let vector = &incoming.head.as_ref().expect("a whole state has a head").vector;
    let beyond = log.entries().iter().filter(|entry| entry.seq > vector.get(entry.dc));
    let beyond = beyond.map(|entry| (&**entry, members.homes_as_of(entry)));
    Foreign {
        known: incoming.members_state.as_ref().map(MembersState::known),
        is_first: members.decided.awaits_state(),
        requests: std::mem::take(&mut incoming.requests),
        ..Foreign::new(vector.clone(), std::mem::take(&mut incoming.ownership), beyond)
    }
}

/// Returns what entries that a state lacks say of the members, each with the maker and the number.
fn membership_beyond(head: &Head, log: &Log) -> Vec<(DcId, u64, Op)> {
    let beyond = log.entries().iter().filter(|entry| entry.seq > head.vector.get(entry.dc));
    let ops = beyond.flat_map(|entry| entry.ops.iter().map(|op| (entry.dc, entry.seq, op)));
    let is_wanted = |op: &Op| matches!(op, Op::Done { .. } | Op::Enter { .. } | Op::Freed { .. } | Op::Leave);
    ops.filter(|(_, _, op)| is_wanted(op)).map(|(dc, seq, op)| (dc, seq, op.clone())).collect()
}

/// `expiring` receives all keys that may expire or be done.
fn apply_commits(
    store: &mut Store,
    entry: &std::sync::Arc<Entry>,
    position: Position,
    expiring: &mut Vec<Key>,
) {
    let commits = entry.ops.iter().enumerate().filter(|(_, op)| op.as_commit().is_some());
    commits.for_each(|(index, _)| store.apply(entry, index, position, |key, _| expiring.push(key.clone())));
}

fn refusal(fault: &dyn std::error::Error) -> Violation {
    Violation::State { why: fault.to_string() }
}
