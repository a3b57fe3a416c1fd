//! Received entries: the checks before one is applied, and its effects on the state.

use crate::base::bugs::Bug;
use std::sync::Arc;

use super::Replica;
use super::clients::Clients;
use super::config::ReplicaConfig;
use super::data::Data;
use super::effect::{Effect, Report};
use super::ids::Ids;
use super::lend::lend;
use super::lifecycle::{CHAINED, Lifecycle, fork_in_entry};
use super::members::{Fate, Members};
use super::message::Message;
use super::outputs::Outputs;
use super::record::Record;
use super::watches::Watches;
use super::writer::Writer;
use crate::base::capacity::DiskSpace;
use crate::base::entry_number::follows;
use crate::base::time::Now;
use crate::base::work;
use crate::causal_log::{Change, CommitFault, Entry, EntryFault, Log, Op, Overflow, Violation};
use crate::crdt::AsOf;
use crate::lock_state::{Locks, MAX_REQUEST_DELAY, Published};
use crate::membership::{Epoch, Generation};
use crate::replica::clients::grants::Requests;
use crate::replica::ids::id_reservation::NUMBERS_PER_RESERVATION;
use crate::replica::peers::clock_skew::Clocks;
use geolock_api::names::{DcId, MAX_NUMBER, Position};

/// The work that one lock of an entry counts as, in rows: its consequences are part of the step, too.
const LOCK_WORK: usize = 16;

/// Maximum number of locks, parts and keys of the entries that one step applies of those that were held back:
/// as many as a few messages have. The last entry may exceed it.
const HELD_BACK_PER_STEP: usize = 256;

/// The verdict on a received entry.
enum Admission {
    Apply,
    Duplicate,
    /// It does not count: its maker was evicted, and it is beyond the cut.
    BeyondCut,
    /// It depends on an entry that has not arrived.
    Missing,
    /// Its stamp is this many milliseconds too far ahead of our clock.
    TooFarAhead {
        by_ms: u64,
    },
    Violation(EntryFault),
}

impl Replica {
    pub(super) fn on_entries(&mut self, peer: DcId, entries: Vec<Arc<Entry>>) -> Result<(), Violation> {
        if self.lifecycle.state.is_forked() {
            return Ok(());
        }
        for entry in &entries {
            self.log.peer_mut(peer).note_sent(entry);
        }
        // A member that has not heard of the end of an earlier server with this slot takes this one for that.
        // And what cannot be entered before a state comes would fill the inbox.
        if self.members.needs_state() {
            self.peers.links.note_dropped(peer);
            return Ok(());
        }
        // It is requested again when there is room.
        if self.lifecycle.stalls.disk() == DiskSpace::Full {
            return Ok(());
        }
        let waits = self.peers.awaits_heads(peer, &self.lifecycle);
        if (waits || self.peers.links.is_paused(peer)) && !self.peers.inbox.has_room_while_paused(peer) {
            self.peers.links.note_dropped(peer);
            return Ok(());
        }
        assert!(self.log.peer(peer).is_linked(), "entries come from {peer}, which has a link");
        let mut entries = entries.into_iter();
        // Fast path: nothing is held back, and all entries can be applied one after the other.
        while let Some(entry) =
            entries.as_slice().first().filter(|_| !waits && !self.peers.inbox.holds_of(peer))
        {
            let fork = fork_in_entry(&self.config, &self.log, peer, entry);
            lend!(Peering, self).note_fork(fork);
            if self.lifecycle.state.is_forked() {
                return Ok(());
            }
            match lend!(Applier, self).admit(entry) {
                Admission::Apply => lend!(Applier, self).apply(entry),
                Admission::Duplicate => lend!(Applier, self).note_duplicate(entry),
                Admission::BeyondCut => {}
                Admission::Missing | Admission::TooFarAhead { .. } | Admission::Violation(_) => break,
            }
            entries.next();
        }
        if let Err(Overflow { entries, bytes }) = self.peers.inbox.push(peer, entries) {
            return Err(Violation::TooManyHeldBack { entries, bytes });
        }
        self.drain_inbox();
        Ok(())
    }

    /// Applies the held-back entries of all links until none can be applied any more, or as many as a step
    /// may: the next step goes on.
    pub(super) fn drain_inbox(&mut self) {
        self.peers.links.clear_retry();
        if self.lifecycle.stalls.disk() == DiskSpace::Full || self.lifecycle.state.is_forked() {
            return;
        }
        let mut budget = HELD_BACK_PER_STEP;
        if self.config.bugs.has(Bug::HeldBackAtOnce) {
            budget = usize::MAX;
        }
        let missing = loop {
            let before = self.out.counts.entries_applied;
            let mut missing = Vec::new();
            for peer in self.members.peers().iter() {
                match self.drain_link(peer, &mut budget) {
                    Ok(entry) => missing.extend(entry.map(|entry| (peer, entry))),
                    Err(violation) => self.close_link(peer, violation),
                }
            }
            if budget == 0 {
                return self.peers.links.retry_at_most(self.now.mono);
            }
            if self.out.counts.entries_applied == before {
                break missing;
            }
        };
        // A link that is paused is looked at again.
        let (retry_at, now) = (self.peers.links.retry_at(), self.now.mono);
        assert!(retry_at.is_none_or(|at| at > now), "entries are looked at once more at {retry_at:?}");
        for (peer, entry) in missing {
            if self.peers.links.note_held_back(peer, entry) {
                let durable = (**self.log.durable()).clone();
                self.out.send(&mut self.log, peer, Message::HeldBack { durable });
            }
        }
    }

    /// Applies the held-back entries of one link, as far as possible and as the budget of rows lasts. Returns
    /// the first entry that depends on one that has not arrived.
    fn drain_link(&mut self, peer: DcId, budget: &mut usize) -> Result<Option<(DcId, u64)>, Violation> {
        if self.peers.awaits_heads(peer, &self.lifecycle) {
            return Ok(None);
        }
        let (mut missing, mut looked_at) = (None, None);
        while let Some(entry) = self.peers.inbox.next(peer, looked_at).cloned() {
            if *budget == 0 {
                return Ok(None);
            }
            let fork = fork_in_entry(&self.config, &self.log, peer, &entry);
            lend!(Peering, self).note_fork(fork);
            if self.lifecycle.state.is_forked() {
                return Ok(None);
            }
            match lend!(Applier, self).admit(&entry) {
                Admission::Apply => lend!(Applier, self).apply(&entry),
                Admission::Duplicate => lend!(Applier, self).note_duplicate(&entry),
                Admission::BeyondCut => {}
                Admission::Missing => {
                    missing = missing.or(Some((entry.dc, entry.seq)));
                    looked_at = Some(entry.dc);
                    continue;
                }
                Admission::TooFarAhead { by_ms } => {
                    lend!(Clocks, self).pause(peer, &entry, by_ms);
                    return Ok(None);
                }
                Admission::Violation(fault) => {
                    return Err(Violation::Entry { dc: entry.dc, seq: entry.seq, fault });
                }
            }
            self.peers.inbox.remove(peer, &entry);
            *budget = budget.saturating_sub(entry.rows().max(1));
        }
        if self.peers.links.clear_paused(peer) {
            let durable = (**self.log.durable()).clone();
            self.out.send(&mut self.log, peer, Message::HeldBack { durable });
        }
        Ok(missing)
    }

    /// A peer broke the protocol: closes its link and ignores the rest.
    pub(super) fn close_link(&mut self, peer: DcId, violation: Violation) {
        assert!(!self.peers.links.is_closing(peer), "the link to {peer} is closed once");
        assert!(self.log.peer(peer).is_linked(), "{peer} broke the protocol on a link that is up");
        self.out.counts.violations += 1;
        self.peers.inbox.clear(peer);
        self.log.peers_mut().link_down(peer);
        lend!(StateTransfer, self).stop_giving(peer);
        self.copies.transfers.stop_taking_from(peer);
        self.peers.links.close(peer);
        lend!(Describer, self).descriptions_without(peer);
        self.out.effects.push_back(Effect::CloseLink { peer, violation });
    }
}

impl Clocks<'_> {
    /// Pauses the link before an entry that is stamped too far ahead: it is neither applied nor dropped
    /// (`docs/algorithm/grants.md#23-clock-skew`).
    fn pause(&mut self, peer: DcId, entry: &Entry, by_ms: u64) {
        // Our clock needs about that long. At most one heartbeat, in case the clock is slewed.
        let wait = std::time::Duration::from_millis(by_ms.max(1)).min(self.config.agreed.heartbeat);
        self.peers.links.retry_at_most(self.now.mono + wait);
        if self.peers.links.note_paused(peer, (entry.dc, entry.seq)) {
            self.out.counts.skew_pauses += 1;
            let ahead_ms = entry.at.millis().saturating_sub(self.ids.clock.physical_millis());
            self.out.report(Report::EntryTooFarAhead { peer, dc: entry.dc, seq: entry.seq, ahead_ms });
        }
    }
}

/// Checks and applies entries of the log, from links and from the journal.
pub(super) struct Applier<'a> {
    pub(super) config: &'a ReplicaConfig,
    pub(super) now: Now,
    pub(super) out: &'a mut Outputs,
    pub(super) ids: &'a mut Ids,
    pub(super) log: &'a mut Log,
    pub(super) locks: &'a mut Locks,
    pub(super) lifecycle: &'a mut Lifecycle,
    pub(super) members: &'a mut Members,
    pub(super) clients: &'a mut Clients,
    pub(super) data: &'a mut Data,
    pub(super) watches: &'a mut Watches,
}

impl Applier<'_> {
    /// A duplicate of an applied entry arrived.
    fn note_duplicate(&mut self, entry: &Arc<Entry>) {
        self.out.counts.duplicates += 1;
        if self.config.bugs.has(Bug::AppliedTwice) {
            self.take_in_ops(entry, self.out.position);
        }
    }

    fn admit(&self, entry: &Entry) -> Admission {
        let agreed = &self.config.agreed;
        if entry.cluster != agreed.cluster {
            return Admission::Violation(EntryFault::Cluster(entry.cluster));
        }
        let is_entered = self.members.admit_entry(entry);
        if is_entered.is_none() {
            return Admission::Missing;
        }
        let known = self.members.of(entry);
        if !known.members.contains(entry.dc) {
            return Admission::Violation(EntryFault::UnknownDc);
        }
        let applied = self.log.applied();
        if entry.seq <= applied.get(entry.dc) {
            return Admission::Duplicate;
        }
        match self.members.fate(entry.dc, entry.seq, self.config.bugs) {
            Fate::Counts => {}
            Fate::Waits => return Admission::Missing,
            Fate::BeyondCut => return Admission::BeyondCut,
        }
        if let Some((dc, _)) = entry.deps.iter().find(|(dc, _)| !known.ever().contains(*dc)) {
            return Admission::Violation(EntryFault::UnknownDependency { dc });
        }
        if !follows(entry.seq, entry.deps.get(entry.dc)) {
            return Admission::Violation(EntryFault::Gap { deps_on_self: entry.deps.get(entry.dc) });
        }
        if !applied.covers(&entry.deps) {
            return Admission::Missing;
        }
        // Only the next entry of its maker can be judged: those that are missing may enter epochs.
        if let Some(Err(fault)) = is_entered {
            return Admission::Violation(fault);
        }
        let latest = self.ids.clock.physical_millis() + agreed.max_clock_skew.as_millis() as u64;
        if entry.at.millis() > latest {
            return Admission::TooFarAhead { by_ms: entry.at.millis() - latest };
        }
        match self.find_fault(entry) {
            Some(fault) => Admission::Violation(fault),
            None => Admission::Apply,
        }
    }

    fn find_fault(&self, entry: &Entry) -> Option<EntryFault> {
        let before = self.log.last_stamp(entry.dc);
        if entry.at <= before {
            return Some(EntryFault::StampNotIncreasing { at: entry.at, before });
        }
        let latest = entry.at.plus(MAX_REQUEST_DELAY);
        let from_the_future = entry.ops.iter().find_map(|op| match op {
            Op::Request { id, at, .. } if *at > latest => {
                Some(EntryFault::RequestFromTheFuture { id: *id, at: *at })
            }
            _ => None,
        });
        from_the_future.or_else(|| self.validate(entry).err())
    }

    /// Checks the operations of an entry, which is the next of its datacenter
    /// (`docs/algorithm/log.md#16-validation`).
    pub(super) fn validate(&self, entry: &Entry) -> Result<(), EntryFault> {
        let known = self.members.of(entry);
        self.locks.inspect().validate(entry.dc, known, &entry.ops)?;
        let commits = || entry.ops.iter().filter_map(Op::as_commit);
        if commits().count() > 1 {
            return Err(CommitFault::Second.into());
        }
        if entry.ops.iter().filter_map(Op::as_under).count() > commits().count() {
            return Err(EntryFault::UnderNothing);
        }
        let seen = commits().flat_map(|commit| commit.seen.iter()).map(|(dc, _)| dc);
        let named = commits().flat_map(|commit| commit.changes.iter().filter_map(Change::names_dc));
        if let Some(dc) = seen.chain(named).find(|dc| !known.ever().contains(*dc)) {
            return Err(EntryFault::UnknownDependency { dc });
        }
        Ok(commits().try_for_each(|commit| commit.validate(&entry.deps))?)
    }

    fn apply(&mut self, entry: &Arc<Entry>) {
        let (dc, seq, last) = (entry.dc, entry.seq, self.log.applied().get(entry.dc));
        // Once it is recorded, it cannot be taken back.
        assert!(follows(seq, last), "entry {seq} of {dc} follows {last}");
        debug_assert!(self.log.applied().covers(&entry.deps), "{dc}:{seq} depends on what is applied");
        assert!(!self.lifecycle.state.is_forked(), "nothing is applied to one of two histories");
        assert!(self.lifecycle.stalls.disk() != DiskSpace::Full, "{dc}:{seq} finds room on the disk");
        if entry.dc == self.config.dc {
            // The entry may arrive before its sender announced how many there are.
            lend!(LogRecovery, self).note_own_log_behind(entry.seq);
            self.pass_own_numbers(entry);
            lend!(Requests, self).make_way_for(entry);
        }
        let position = self.out.persist(Record::Entry(entry.clone()));
        if entry.dc == self.config.dc {
            self.out.regained = position;
        }
        self.take_in(entry, position);
        self.out.counts.entries_applied += 1;
    }

    /// A lost own entry comes back: the numbers in it were used, and some after them that are in no entry.
    /// The reservation covers them before the entry is in the journal.
    fn pass_own_numbers(&mut self, entry: &Entry) {
        let numbers = entry.ops.iter().filter_map(|op| match op {
            Op::Request { id, .. } => Some(id.n),
            // Leases share the series.
            Op::Commit(commit) => commit.client.map(|(lease, _)| lease.n()),
            _ => None,
        });
        if let Some(n) = numbers.filter(|n| *n <= MAX_NUMBER).max() {
            self.ids.advance_number_past(self.out, (n + NUMBERS_PER_RESERVATION).min(MAX_NUMBER));
        }
    }

    /// Applies an entry to the state, from a link or from the journal.
    pub(super) fn take_in(&mut self, entry: &Arc<Entry>, position: Position) {
        let (is_replayed, last) = (position == Position::default(), self.out.position);
        assert!(is_replayed || position == last, "the entry is record {position:?}, {last:?} was the last");
        self.take_in_ops(entry, position);
        // Its maker knew that all members know version 2.
        if entry.prev != 0 {
            self.lifecycle.versions.note_all(CHAINED);
        }
        self.log.apply(entry.clone(), position, self.now.mono);
    }

    fn take_in_ops(&mut self, entry: &Arc<Entry>, position: Position) {
        self.ids.clock.observe(entry.at);
        self.ids.raise_lead(entry.lead_ms, position);
        let knew = self.members.homes_as_of(entry);
        let is_wrong = self.config.bugs.has(Bug::RuleJudgedHere);
        let as_of = if is_wrong { AsOf::here(knew.no_homes) } else { knew };
        for (index, op) in entry.ops.iter().enumerate() {
            let weight = if op.as_commit().is_some() { 1 } else { LOCK_WORK };
            work::count(weight * op.rows());
            match op {
                Op::Commit(commit) => {
                    lend!(Writer, self).take_in_commit(entry, index, commit, position);
                    if entry.dc == self.config.dc {
                        self.note_earlier_commit(entry, commit, position);
                    }
                }
                Op::Request { id, at, wants } => {
                    debug_assert_eq!(id.dc, entry.dc, "request {id} is published by its own datacenter");
                    if id.dc == self.config.dc {
                        self.ids.next_n = self.ids.next_n.max(id.n + 1);
                    }
                    let published = Published { id: *id, at: *at, wants, seq: entry.seq };
                    self.locks.log_operations().apply_request(&published);
                }
                Op::Withdraw { id } => self.locks.log_operations().apply_withdraw(*id, self.now.mono),
                Op::Enter { .. }
                | Op::Split { .. }
                | Op::Done { .. }
                | Op::Freed { .. }
                | Op::Rehome { .. }
                | Op::Leave => lend!(Writer, self).take_in_membership((entry.dc, entry.seq), op, position),
                Op::Transfer { to, parts } => {
                    let between = (entry.dc, *to);
                    let mut log = self.locks.log_operations();
                    parts.iter().for_each(|lock| log.apply_transfer(between, lock, as_of, position));
                }
                Op::Keep { parts } => {
                    let mut log = self.locks.log_operations();
                    parts.iter().for_each(|lock| log.apply_keep(entry.dc, lock));
                }
                Op::Under { .. } => {}
            }
        }
    }
}

impl Requests<'_> {
    /// An own entry that transferred parts comes back. When it was made, nobody here held their locks. If
    /// this disk did not know that it was old, it may have granted them since, or accepted reclaims of
    /// earlier holders; those holders lose them now. One of them may hold a lock that came back here later,
    /// but that cannot be known before all entries are here
    /// (`docs/algorithm/recovery.md#5-regained-entries`).
    fn make_way_for(&mut self, entry: &Entry) {
        let moved = entry.ops.iter().filter_map(|op| match op {
            Op::Transfer { parts, .. } => Some(parts),
            _ => None,
        });
        for moved in moved.flatten() {
            if moved.parts.iter().any(|(part, _)| self.locks.inspect().is_held_by(&moved.lock, *part)) {
                self.take_from_holders(&moved.lock);
            }
        }
        for op in &entry.ops {
            if let Op::Rehome { epoch } = op {
                let held = self.locks.inspect().held_by_default(*epoch);
                held.iter().for_each(|lock| self.take_from_holders(lock));
            }
        }
    }
}

impl Writer<'_> {
    /// Applies an operation on the members, of the entry with this maker and number.
    pub(super) fn take_in_membership(&mut self, (dc, seq): (DcId, u64), op: &Op, position: Position) {
        match op {
            Op::Rehome { epoch } => {
                self.locks.member_changes().give(dc, *epoch, seq, position);
                // The own walk goes on when others have given.
                if dc == self.config.dc {
                    self.follow_rules();
                }
            }
            Op::Enter { epoch } => self.take_in_enter(dc, Epoch(*epoch)),
            Op::Leave => self.take_in_leave(dc, position),
            Op::Split { part } => self.take_in_split(*part),
            Op::Done { part } => self.take_in_done((dc, seq), *part),
            Op::Freed { slot, generation } => self.members.note_freed(dc, *slot, Generation(*generation)),
            Op::Request { .. }
            | Op::Withdraw { .. }
            | Op::Transfer { .. }
            | Op::Keep { .. }
            | Op::Commit(_)
            | Op::Under { .. } => {}
        }
    }
}
