//! Links to the other datacenters: heartbeats, and when each peer is sent which entries
//! (`docs/algorithm/log.md#12-causal-delivery`).

use crate::base::bugs::Bug;
use std::sync::Arc;
use std::time::Duration;

use super::clock_skew::Clocks;
use super::reachability::PeerReport;
use super::terms::Terms;
use super::transfer::StateTransfer;
use crate::base::capacity::DiskSpace;
use crate::base::time::{Instant, Now, Timestamp};
use crate::causal_log::{Entry, Log, Violation};
use crate::crdt::VersionVector;
use crate::lock_state::Locks;
use crate::replica::clients::Clients;
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::{Effect, Report};
use crate::replica::ids::Ids;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::message::{Heartbeat, Message};
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::replica::record::Record;
use crate::replica::record::checkpoint_builder::CheckpointBuilder;
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};

/// The state of each link.
pub(in crate::replica) struct Links {
    pub(in crate::replica) rows: Box<[Row]>,
    /// Peers that broke the protocol. Messages that still arrive from them are ignored until their link is
    /// down.
    closing: DcSet,
    /// When to retry entries that are stamped too far ahead.
    retry_at: Option<Instant>,
    /// Since when most linked peers have been ahead of our clock by more than the limit.
    pub(in crate::replica) behind_since: Option<Instant>,
    /// Clock reading in the first heartbeat of this run, to whomever it was sent.
    first_told: Option<Timestamp>,
}

#[derive(Clone, Default)]
pub(in crate::replica) struct Row {
    /// Position of the last record when the link came up. The peer gets the first heartbeat when that is
    /// durable: a peer that lost its log believes the first heartbeat about the length of its log.
    pub(in crate::replica) recorded: Position,
    /// Clock reading in the last heartbeat that was sent to the peer in this run.
    pub(in crate::replica) told: Timestamp,
    /// The entries before which the link last waited: `held_back` for another entry, `paused` for our clock.
    held_back: Option<(DcId, u64)>,
    paused: Option<(DcId, u64)>,
    dropped: bool,
    pub(in crate::replica) clock_ahead_ms: Option<i64>,
    /// That is the difference to its wall clock: it has just started, and stamps nothing.
    pub(in crate::replica) is_bare: bool,
    /// Wall clock of the peer when it was last heard, in milliseconds since the Unix epoch. Survives the
    /// link.
    pub(in crate::replica) wall_clock: Option<(i64, Instant)>,
    terms: Option<Terms>,
    /// The peer has announced on this link which entries it has, with their hashes.
    told_heads: bool,
    /// The highest clock reading heard from the peer, or told to it and perhaps taken over there, and
    /// (`reading_before`) the highest of before this link.
    reading: Option<(Timestamp, Instant)>,
    reading_before: Option<(Timestamp, Instant)>,
    /// The token lead that the peer announced, in milliseconds.
    lead_ms: u64,
    pub(in crate::replica) drift_reported: bool,
    /// Since when the peer lacks truncated entries; true if that was reported to the operator.
    behind: Option<(Instant, bool)>,
}

impl Row {
    fn raise_reading(&mut self, reading: Timestamp, now: Instant) {
        let highest = &mut self.reading;
        debug_assert!(highest.is_none_or(|(_, at)| at <= now), "a reading was noted before: {highest:?}");
        if highest.is_none_or(|(before, _)| before < reading) {
            *highest = Some((reading, now));
        }
    }
}

impl Links {
    pub fn new() -> Links {
        Links {
            rows: (0..MAX_DCS).map(|_| Row::default()).collect(),
            closing: DcSet::EMPTY,
            retry_at: None,
            behind_since: None,
            first_told: None,
        }
    }

    /// A heartbeat with this clock is sent to a peer. `taken_at`: now, if the peer may take the reading over.
    /// Then it may stamp by it, and lose its disk before a heartbeat of it arrives here.
    pub fn note_told(&mut self, peer: DcId, clock: Timestamp, taken_at: Option<Instant>) {
        let row = &mut self.rows[peer.index()];
        row.told = clock;
        if let Some(now) = taken_at {
            row.raise_reading(clock, now);
        }
        self.first_told = self.first_told.or(Some(clock));
    }

    /// Returns true if a peer may take this reading over: as far as is known here, it is ahead of the wall
    /// clock there by no more than twice the limit. The peer measures that together with the way.
    pub fn may_take(&self, peer: DcId, clock: Timestamp, now: Instant, limit: Duration) -> bool {
        let Some((wall, heard)) = self.rows[peer.index()].wall_clock else { return false };
        let there = wall.saturating_add(now.saturating_since(heard).as_millis() as i64);
        (clock.millis() as i64).saturating_sub(there) <= 2 * limit.as_millis() as i64
    }

    /// Returns true if a heartbeat of this server with this clock is one of this run.
    pub fn is_of_this_run(&self, clock: Timestamp) -> bool {
        self.first_told.is_some_and(|first| clock >= first)
    }

    /// The link to `peer` is up. `recorded`: the position of the last record.
    pub fn link_up(&mut self, peer: DcId, recorded: Position) {
        self.closing.remove(peer);
        let row = &mut self.rows[peer.index()];
        let before = row.recorded;
        assert!(
            recorded >= before,
            "{recorded:?} was the last record, {before:?} at the last link to {peer}"
        );
        (row.held_back, row.paused, row.behind, row.recorded) = (None, None, None, recorded);
        (row.clock_ahead_ms, row.terms, row.told_heads) = (None, None, false);
        row.reading_before = row.reading;
    }

    pub fn link_down(&mut self, peer: DcId) {
        self.closing.remove(peer);
        // When the link is up again, the peer sends all that is missing.
        self.rows[peer.index()].dropped = false;
    }

    /// Returns true if the peer broke the protocol and its link is not down yet.
    pub fn is_closing(&self, peer: DcId) -> bool {
        self.closing.contains(peer)
    }

    /// The peer lacks no truncated entries.
    pub fn note_caught_up(&mut self, peer: DcId) {
        self.rows[peer.index()].behind = None;
    }

    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub fn clear_retry(&mut self) {
        self.retry_at = None;
    }

    /// The link is no longer paused by skew. Returns true if entries were dropped meanwhile.
    pub fn clear_paused(&mut self, peer: DcId) -> bool {
        let row = &mut self.rows[peer.index()];
        row.paused = None;
        std::mem::take(&mut row.dropped)
    }

    /// Entries that arrived while the link was paused did not fit and have to be sent again.
    pub fn note_dropped(&mut self, peer: DcId) {
        self.rows[peer.index()].dropped = true;
    }

    pub fn retry_at_most(&mut self, at: Instant) {
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.min(at)));
    }

    /// Returns true if this entry was not noted already.
    pub fn note_held_back(&mut self, peer: DcId, entry: (DcId, u64)) -> bool {
        self.rows[peer.index()].held_back.replace(entry) != Some(entry)
    }

    /// Returns true if this entry was not noted already.
    pub fn note_paused(&mut self, peer: DcId, entry: (DcId, u64)) -> bool {
        self.rows[peer.index()].paused.replace(entry) != Some(entry)
    }

    pub fn is_paused(&self, peer: DcId) -> bool {
        self.rows[peer.index()].paused.is_some()
    }

    /// Returns the wall clock of a peer when it was last heard in this run, and when that was.
    pub fn wall_clock(&self, peer: DcId) -> Option<(i64, Instant)> {
        self.rows[peer.index()].wall_clock
    }

    pub fn note_heads(&mut self, peer: DcId) {
        self.rows[peer.index()].told_heads = true;
    }

    pub fn has_told_heads(&self, peer: DcId) -> bool {
        self.rows[peer.index()].told_heads
    }

    /// Returns the terms in the last heartbeat on the present link.
    pub fn terms(&self, peer: DcId) -> Option<Terms> {
        self.rows[peer.index()].terms
    }

    pub fn clock_ahead_ms(&self, peer: DcId) -> Option<i64> {
        self.rows[peer.index()].clock_ahead_ms
    }

    /// The same for the clock that the peer stamps with.
    pub fn stamps_ahead_ms(&self, peer: DcId) -> Option<i64> {
        let row = &self.rows[peer.index()];
        row.clock_ahead_ms.filter(|_| !row.is_bare)
    }

    /// Returns true if the peer has said last that it has just started.
    pub fn is_starting(&self, peer: DcId) -> bool {
        self.rows[peer.index()].is_bare
    }

    /// Our clock was set forward by so many milliseconds.
    pub fn note_clock_step(&mut self, by_ms: u64) {
        for ahead_ms in self.rows.iter_mut().filter_map(|row| row.clock_ahead_ms.as_mut()) {
            *ahead_ms = ahead_ms.saturating_sub_unsigned(by_ms);
        }
    }

    pub fn note_reading(&mut self, peer: DcId, reading: Timestamp, lead_ms: u64, now: Instant) {
        let row = &mut self.rows[peer.index()];
        row.lead_ms = row.lead_ms.max(lead_ms);
        row.raise_reading(reading, now);
    }

    /// Returns the highest reading heard from a peer before this link, or told to it, plus its lead.
    /// `lead_ms` is the lead of this datacenter: the peer may have taken it over from an entry and crashed
    /// before it announced it (`docs/algorithm/grants.md#25-token-lead`).
    pub fn reading_before(&self, peer: DcId, lead_ms: u64) -> Option<(Timestamp, Instant)> {
        let row = &self.rows[peer.index()];
        let lead = Duration::from_millis(row.lead_ms.max(lead_ms));
        row.reading_before.map(|(reading, when)| (reading.plus(lead), when))
    }

    pub fn close(&mut self, peer: DcId) {
        self.closing.insert(peer);
        // Nothing is asked for on a link that ends.
        self.rows[peer.index()].dropped = false;
    }
}

/// Sends heartbeats and entries to peers.
pub(in crate::replica) struct LinkHandler<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a mut Ids,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a mut Peers,
    pub(in crate::replica) clients: &'a Clients,
}

impl LinkHandler<'_> {
    /// Sends a heartbeat with the current links to all peers at once: they relay entries to members without a
    /// link.
    pub(in crate::replica) fn tell_links(&mut self) {
        let witnesses = self.peers.witnesses.voting(self.members.decided.config());
        for peer in self.log.peers().linked().union(witnesses).iter() {
            self.send_heartbeat(peer);
        }
    }

    pub(in crate::replica) fn on_flushed(&mut self, peer: DcId, messages: usize, batches: usize) {
        if self.peers.witnesses.linked().contains(peer) {
            return;
        }
        self.log.peer_mut(peer).note_flushed(messages, batches);
        self.out.pump = true;
    }

    /// Sends each peer the entries that it lacks, as far as its link has room.
    pub(in crate::replica) fn pump_links(&mut self) {
        if self.lifecycle.state.is_forked() {
            return;
        }
        let (patience, window) = (self.config.agreed.heartbeat, self.config.local.link_window);
        for peer in self.log.peers().linked().iter() {
            loop {
                let batch = self.log.next_batch(peer, self.now.mono, patience, window);
                if batch.is_empty() {
                    self.out.pump |= self.log.peer(peer).goes_on();
                    break;
                }
                let is_durable = |entry: &Arc<Entry>| self.log.durable().get(entry.dc) >= entry.seq;
                debug_assert!(batch.iter().all(is_durable), "entries leave when they are durable: {batch:?}");
                let relayed = batch.iter().filter(|entry| entry.dc != self.config.dc).count();
                self.out.counts.entries_relayed += relayed as u64;
                self.out.effects.push_back(Effect::Send { peer, message: Message::Entries(batch) });
            }
        }
    }

    /// Checks the rules that a heartbeat has to keep.
    pub(in crate::replica) fn check_heartbeat(
        &mut self,
        peer: DcId,
        heartbeat: &Heartbeat,
    ) -> Result<(), Violation> {
        let before = self.peers.links.rows[peer.index()].terms.replace(heartbeat.terms);
        self.compare_terms(peer, &heartbeat.terms, before)?;
        let members = self.members.entered.all();
        let named =
            heartbeat.durable.iter().map(|(dc, _)| dc).chain(heartbeat.heard.iter().map(|(dc, ..)| *dc));
        let named = named.chain(heartbeat.not_serving.iter().map(|(dc, _)| *dc));
        let floors = heartbeat.floors.iter();
        let named = named.chain(floors.flat_map(|f| f.floor.iter().map(|(dc, _)| dc).chain([f.dc])));
        let more = heartbeat.heads.iter().map(|(dc, _)| *dc).chain(heartbeat.fork.map(|(dc, _)| dc));
        let named = named.chain(more).chain(heartbeat.speaks.iter().map(|(dc, _)| *dc));
        let acknowledged = heartbeat.acknowledged.iter();
        let named = named.chain(acknowledged.flat_map(|(dc, had)| had.iter().map(|(dc, _)| dc).chain([*dc])));
        let knows_decisions = self.members.decided.may_lack_members() || heartbeat.terms.members.is_empty();
        let is_strange = |dc: &DcId| !members.contains(*dc) && !knows_decisions;
        match named.chain(heartbeat.linked.iter()).find(is_strange) {
            Some(dc) => Err(Violation::UnknownDc { dc }),
            None => Ok(()),
        }
    }

    /// `dc` was alive `age` ago. `heartbeat` is its own, or that of another member that reports it.
    pub(in crate::replica) fn note_alive(
        &mut self,
        dc: DcId,
        (by, heartbeat): (DcId, &Heartbeat),
        clock: Timestamp,
        age: Duration,
    ) {
        let told = heartbeat.not_serving.iter().find(|(other, _)| *other == dc);
        let report = PeerReport {
            clock: self.believed(clock),
            at: self.now.mono - age,
            durable: &heartbeat.durable,
            is_its_own: by == dc,
            not_serving: told.map(|(_, why)| *why),
        };
        self.peers.reachability.note_heard(dc, &report);
    }

    /// `dc` was alive once, too long ago to count.
    pub(in crate::replica) fn note_earlier(&mut self, dc: DcId, clock: Timestamp) {
        let clock = self.believed(clock);
        self.peers.reachability.note_earlier(dc, clock);
    }

    pub(in crate::replica) fn note_echo(&mut self, peer: DcId, clock: Timestamp, age: Duration) {
        if let Some(round_trip) = self.peers.round_trips.note_echo(peer, clock, age, self.now.mono) {
            self.locks.set_distance(peer, round_trip / 2);
        }
    }

    /// `peer` lacks truncated entries. Returns true if it may be offered a state: another member may be
    /// sending them at this moment, so only if that lasts for two heartbeats.
    pub(in crate::replica) fn is_long_behind(&mut self, peer: DcId) -> bool {
        let row = &mut self.peers.links.rows[peer.index()];
        let (since, is_known) = row.behind.get_or_insert((self.now.mono, false));
        if self.now.mono < *since + 2 * self.config.agreed.heartbeat {
            return false;
        }
        if !std::mem::replace(is_known, true) {
            self.out.report(Report::PeerTooFarBehind { peer });
        }
        self.members.may_give_to(peer) || self.config.bugs.has(Bug::StateBeforeEpoch)
    }
}

impl StateTransfer<'_> {
    /// Truncates entries that no member needs, and the oldest ones if too many are kept.
    pub(in crate::replica) fn truncate_log(&mut self) {
        let most = self.config.local.max_log;
        // Commits must not stop for one slow taker: above three times `max_log` it loses its state and may
        // take another.
        let needed = self.copies.transfers.given().filter(|_| self.log.entries().weight() / 3 <= most);
        // Those that a checkpoint is still to copy stay.
        let builder = self.copies.checkpoint_builder.as_ref();
        let before = builder.filter(|_| !self.config.bugs.has(Bug::EntriesNotKept));
        let before = before.map_or(u64::MAX, CheckpointBuilder::first_entry);
        self.out.truncates = self.log.truncate(most, needed.as_ref(), before);
        let kept = self.log.entries().numbers().start;
        assert!(kept <= before, "entries from {kept} on are kept, a checkpoint needs those from {before} on");
        // Otherwise a restart would keep all of them until every member was heard.
        if self.lifecycle.stalls.disk() != DiskSpace::Full
            && !self.lifecycle.state.is_forked()
            && let Some(entries) = self.log.truncated_mut().take_record()
        {
            self.out.persist(Record::Forgotten { entries });
        }
    }
}

impl Clocks<'_> {
    /// Updates reachability, and parks the requests that need unreachable members.
    pub(in crate::replica) fn update_reachability(&mut self) {
        if !self.peers.reachability.may_change(self.now.mono) {
            return;
        }
        let changed = self.peers.reachability.update(self.now.mono, self.log.applied());
        for peer in changed.iter() {
            let reachable = self.peers.reachability.is_reachable(peer);
            self.out.report(Report::PeerReachable { peer, reachable });
        }
        let serving_changed = self.peers.reachability.take_serving_changed();
        self.report_serving(serving_changed);
        self.park_what_needs_others();
    }

    /// Parks the requests that need a member that is away.
    pub(in crate::replica) fn park_what_needs_others(&mut self) {
        if self.config.bugs.has(Bug::NotServingBlocks) {
            return self.locks.set_unreachable(self.peers.reachability.unreachable());
        }
        self.locks.set_unreachable(self.peers.away(self.members, self.lifecycle, self.locks));
    }
}

/// Returns the durable vectors that members without a link to `peer` announced to this datacenter.
/// Without them `peer` would keep entries for these members that reached them by other paths
/// (`docs/algorithm/log.md#34-truncation`).
pub(in crate::replica) fn acknowledged_for(log: &Log, peer: DcId) -> Vec<(DcId, VersionVector)> {
    let linked = log.peers().linked().difference(log.peer(peer).links()).difference(DcSet::only(peer));
    linked.iter().map(|dc| (dc, log.peer(dc).acknowledged().vector().clone())).collect()
}
