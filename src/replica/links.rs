//! Links to the other datacenters: heartbeats, and when each peer is sent which entries
//! (`docs/algorithm.md#42-causal-delivery`).

use crate::base::bugs::Bug;
use std::time::Duration;

use super::Replica;
use super::effect::{Effect, Report};
use super::message::{Heartbeat, Message};
use super::reachability::PeerReport;
use super::record::Record;
use super::terms::Terms;
use crate::base::capacity::DiskSpace;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::Violation;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};

/// The state of each link.
pub(super) struct Links {
    pub(super) rows: [Row; MAX_DCS],
    /// Peers that broke the protocol. Messages that still arrive from them are ignored until their link is
    /// down.
    closing: DcSet,
    /// When to retry entries that are stamped too far ahead.
    retry_at: Option<Instant>,
    /// Since when most linked peers have been ahead of our clock by more than the limit.
    pub(super) behind_since: Option<Instant>,
}

#[derive(Clone, Default)]
pub(super) struct Row {
    /// Position of the last record when the link came up. The peer gets the first heartbeat when that is
    /// durable: a peer that lost its log believes the first heartbeat about the length of its log.
    pub(super) recorded: Position,
    /// Clock reading in the last heartbeat that was sent to the peer in this run.
    pub(super) told: Timestamp,
    /// The entries before which the link last waited: `held_back` for another entry, `paused` for our clock.
    held_back: Option<(DcId, u64)>,
    paused: Option<(DcId, u64)>,
    dropped: bool,
    pub(super) clock_ahead_ms: Option<i64>,
    /// That is the difference to its wall clock: it has just started, and stamps nothing.
    pub(super) is_bare: bool,
    /// Wall clock of the peer when it was last heard, in milliseconds since the Unix epoch. Survives the
    /// link.
    pub(super) wall_clock: Option<(i64, Instant)>,
    terms: Option<Terms>,
    /// The peer has announced on this link which entries it has, with their hashes.
    told_heads: bool,
    /// The highest clock reading heard from the peer, and (`reading_before`) the highest of before this link.
    reading: Option<(Timestamp, Instant)>,
    reading_before: Option<(Timestamp, Instant)>,
    /// The token lead that the peer announced, in milliseconds.
    lead_ms: u64,
    pub(super) drift_reported: bool,
    /// Since when the peer lacks truncated entries; true if that was reported to the operator.
    behind: Option<(Instant, bool)>,
}

impl Links {
    pub fn new() -> Links {
        Links {
            rows: std::array::from_fn(|_| Row::default()),
            closing: DcSet::EMPTY,
            retry_at: None,
            behind_since: None,
        }
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

    pub fn clock_ahead_ms(&self, peer: DcId) -> Option<i64> {
        self.rows[peer.index()].clock_ahead_ms
    }

    /// The same for the clock that the peer stamps with.
    pub fn stamps_ahead_ms(&self, peer: DcId) -> Option<i64> {
        let row = &self.rows[peer.index()];
        row.clock_ahead_ms.filter(|_| !row.is_bare)
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
        let highest = &mut row.reading;
        if highest.is_none_or(|(before, _)| before < reading) {
            *highest = Some((reading, now));
        }
    }

    /// Returns the highest reading heard from a peer before this link, plus its lead. `lead_ms` is the lead
    /// of this datacenter: the peer may have taken it over from an entry and crashed before it announced it
    /// (`docs/algorithm.md#105-token-lead`).
    pub fn reading_before(&self, peer: DcId, lead_ms: u64) -> Option<(Timestamp, Instant)> {
        let row = &self.rows[peer.index()];
        let lead = Duration::from_millis(row.lead_ms.max(lead_ms));
        row.reading_before.map(|(reading, when)| (reading.plus(lead), when))
    }

    pub fn close(&mut self, peer: DcId) {
        self.closing.insert(peer);
    }
}

impl Replica {
    pub(super) fn on_link_up(&mut self, peer: DcId, version: u16) {
        // The edge may know of a new member before the machine does.
        let is_known = self.may_link(peer) || self.knows_decisions();
        assert!(is_known, "a link to {peer}, which is no peer");
        self.links.closing.remove(peer);
        let row = &mut self.links.rows[peer.index()];
        (row.held_back, row.paused, row.behind, row.recorded) = (None, None, None, self.position);
        (row.clock_ahead_ms, row.terms, row.told_heads) = (None, None, false);
        row.reading_before = row.reading;
        self.acknowledgements.link_up(peer, version);
        self.log.link_up(peer);
        self.tell_wall_clock(peer);
        self.tell_decisions_to(peer);
        self.tell_links();
    }

    pub(super) fn on_link_down(&mut self, peer: DcId) {
        self.links.closing.remove(peer);
        self.log.link_down(peer);
        self.inbox.clear(peer);
        // When the link is up again, the peer sends all that is missing.
        self.links.rows[peer.index()].dropped = false;
        self.counter_escrow.link_down(peer);
        self.stop_giving(peer);
        self.stop_taking_from(peer);
        self.descriptions_without(peer);
        self.tell_links();
    }

    /// Sends a heartbeat with the current links to all peers at once: they relay entries to members without a
    /// link.
    pub(super) fn tell_links(&mut self) {
        for peer in self.log.linked().iter() {
            self.send_heartbeat(peer);
        }
    }

    pub(super) fn on_received(&mut self, peer: DcId, message: Message) {
        if self.links.closing.contains(peer) || !self.log.is_linked(peer) {
            return;
        }
        let has_waited = self.awaits_heads(peer);
        self.take_message(peer, message);
        if has_waited && !self.awaits_heads(peer) {
            self.drain_inbox();
        }
    }

    fn take_message(&mut self, peer: DcId, message: Message) {
        match message {
            Message::Heartbeat(heartbeat) => self.on_heartbeat_with_versions(peer, &heartbeat),
            Message::Entries(entries) => self.on_entries(peer, entries),
            Message::HeartbeatV2(_) if self.refuse_version(peer, 2) => {}
            Message::HeartbeatV2(heartbeat) => self.on_heartbeat_with_versions(peer, &heartbeat),
            Message::HeartbeatV1(_) | Message::EntriesV1(_) if self.refuse_version(peer, 1) => {}
            Message::HeartbeatV1(mut heartbeat) => {
                // Version 1 does not carry them.
                heartbeat.terms = Terms::of(self.members.configured(), &self.config.agreed);
                let _is_taken = self.on_heartbeat(peer, &heartbeat);
            }
            Message::EntriesV1(entries) => self.on_entries(peer, entries),
            Message::HeldBack { durable } => {
                self.log.note_missing(peer, &durable);
                self.pump = true;
            }
            Message::AskHolders { query, locks } => self.on_ask_holders(peer, query, &locks),
            Message::Holders { query, holders } => self.on_holders(peer, query, holders),
            Message::Compare { durable, sum } => self.on_compare(peer, &durable, sum),
            Message::Sums { shown, owned } => self.on_sums(peer, &shown, &owned),
            Message::AskRights { key, amount } => self.on_ask_rights(peer, key, amount),
            Message::Digests { durable, digest } => self.on_digests(peer, &durable, &digest),
            Message::TooFarBehind { truncated } => self.on_too_far_behind(peer, &truncated),
            Message::AskState { anew, more } => self.on_ask_state(peer, anew, more),
            Message::State(piece) => self.on_state(peer, piece),
            Message::AskLog { of, run, round } => self.on_ask_log(peer, of, run, round),
            Message::WallClock { millis, durable, heads } => {
                self.on_wall_clock(peer, millis, &durable, &heads)
            }
            Message::KnowsLog { of, run, by, seq } => self.on_knows_log(peer, of, run, by, seq),
            Message::AckWanted { seq } => self.on_ack_wanted(peer, seq),
            Message::Acknowledged { durable, heads } => self.on_acknowledged(peer, &durable, &heads),
            Message::KnowsDecisions { index } => self.on_knows_decisions(peer, index),
            Message::Decisions { after, proposals } => self.on_decisions(peer, after, proposals),
        }
    }

    pub(super) fn on_flushed(&mut self, peer: DcId, messages: usize, batches: usize) {
        self.log.note_flushed(peer, messages, batches);
        self.pump = true;
    }

    pub(super) fn send(&mut self, peer: DcId, message: Message) {
        self.log.note_message(peer);
        self.effects.push_back(Effect::Send { peer, message });
    }

    /// Sends each peer the entries that it lacks, as far as its link has room.
    pub(super) fn pump_links(&mut self) {
        if self.lifecycle.is_forked() {
            return;
        }
        let (patience, window) = (self.config.agreed.heartbeat, self.config.local.link_window);
        for peer in self.log.linked().iter() {
            loop {
                let batch = self.log.next_batch(peer, self.now.mono, patience, window);
                if batch.is_empty() {
                    self.pump |= self.log.goes_on(peer);
                    break;
                }
                let relayed = batch.iter().filter(|entry| entry.dc != self.config.dc).count();
                self.counts.entries_relayed += relayed as u64;
                self.effects.push_back(Effect::Send { peer, message: Message::Entries(batch) });
            }
        }
    }

    pub(super) fn on_heartbeat_due(&mut self) {
        if self.lifecycle.is_starting() {
            return;
        }
        self.update_stability();
        self.expire_transfers();
        self.truncate_log();
        self.record_versions();
        self.locks.begin_idle_return(self.now.mono);
        self.tell_links();
        self.propose_settled();
        self.ask_unlinked();
        // Entries of other members that had time to arrive by themselves are relayed.
        self.pump = true;
    }

    fn on_heartbeat_with_versions(&mut self, peer: DcId, heartbeat: &Heartbeat) {
        // Not of a refused peer: it has another member list, and `speaks` names those members.
        if self.on_heartbeat(peer, heartbeat) {
            self.note_versions(&heartbeat.speaks);
        }
    }

    /// Returns false if the heartbeat broke a rule; then the link is closed.
    fn on_heartbeat(&mut self, peer: DcId, heartbeat: &Heartbeat) -> bool {
        let before = self.links.rows[peer.index()].terms.replace(heartbeat.terms);
        if let Err(violation) = self.compare_terms(peer, &heartbeat.terms, before) {
            self.close_link(peer, violation);
            return false;
        }
        let members = self.members.all();
        let named =
            heartbeat.durable.iter().map(|(dc, _)| dc).chain(heartbeat.heard.iter().map(|(dc, ..)| *dc));
        let named = named.chain(heartbeat.not_serving.iter().map(|(dc, _)| *dc));
        let floors = heartbeat.floors.iter();
        let named = named.chain(floors.flat_map(|f| f.floor.iter().map(|(dc, _)| dc).chain([f.dc])));
        let more = heartbeat.heads.iter().map(|(dc, _)| *dc).chain(heartbeat.fork.map(|(dc, _)| dc));
        let named = named.chain(more).chain(heartbeat.speaks.iter().map(|(dc, _)| *dc));
        let acknowledged = heartbeat.acknowledged.iter();
        let named = named.chain(acknowledged.flat_map(|(dc, had)| had.iter().map(|(dc, _)| dc).chain([*dc])));
        let knows_decisions = self.knows_decisions() || heartbeat.terms.members.is_empty();
        let is_strange = |dc: &DcId| !members.contains(*dc) && !knows_decisions;
        if let Some(dc) = named.chain(heartbeat.linked.iter()).find(is_strange) {
            self.close_link(peer, Violation::UnknownDc { dc });
            return false;
        }
        self.note_lost_readings(heartbeat.yours);
        self.note_reading(peer, heartbeat);
        let is_one_history = self.compare_histories(peer, heartbeat);
        if is_one_history {
            self.note_floors(&heartbeat.floors);
        }
        for floor in heartbeat.floors.iter().filter(|floor| floor.dc != self.config.dc) {
            self.stability.note(floor.clone(), peer);
        }
        self.round_trips.note_heard(peer, heartbeat.clock, self.now.mono);
        self.note_clock(peer, heartbeat.clock, self.delay_ms(&heartbeat.heard));
        self.step_forward();
        if is_one_history {
            let others = self.peers().difference(DcSet::only(peer));
            for (dc, durable) in heartbeat.acknowledged.iter().filter(|(dc, _)| others.contains(*dc)) {
                self.log.note_relayed(*dc, durable);
            }
            self.note_vector(peer, &heartbeat.durable, heartbeat.linked);
        }
        self.note_alive(peer, (peer, heartbeat), heartbeat.clock, Duration::ZERO);
        for (dc, clock, age_ms) in &heartbeat.heard {
            let age = Duration::from_millis(u64::from(*age_ms));
            if *dc == self.config.dc {
                self.note_echo(peer, *clock, age);
            }
            if self.peers().contains(*dc) && *dc != peer {
                self.note_alive(*dc, (peer, heartbeat), *clock, age);
            }
        }
        self.note_skew();
        true
    }

    /// `dc` was alive `age` ago. `heartbeat` is its own, or that of another member that reports it.
    fn note_alive(&mut self, dc: DcId, (by, heartbeat): (DcId, &Heartbeat), clock: Timestamp, age: Duration) {
        let told = heartbeat.not_serving.iter().find(|(other, _)| *other == dc);
        let report = PeerReport {
            clock: self.believed(clock),
            at: self.now.mono - age,
            durable: &heartbeat.durable,
            is_its_own: by == dc,
            not_serving: told.map(|(_, why)| *why),
        };
        self.reachability.note_heard(dc, &report);
    }

    /// Returns the durable vectors that members without a link to `peer` announced to this datacenter.
    /// Without them `peer` would keep entries for these members that reached them by other paths
    /// (`docs/algorithm.md#84-truncation`).
    pub(super) fn acknowledged_for(&self, peer: DcId) -> Vec<(DcId, VersionVector)> {
        let linked = self.log.linked().difference(self.log.links_of(peer)).difference(DcSet::only(peer));
        linked.iter().map(|dc| (dc, self.log.acknowledged(dc).clone())).collect()
    }

    fn note_echo(&mut self, peer: DcId, clock: Timestamp, age: Duration) {
        if let Some(round_trip) = self.round_trips.note_echo(peer, clock, age, self.now.mono) {
            self.locks.set_distance(peer, round_trip / 2);
        }
    }

    pub(super) fn note_vector(&mut self, peer: DcId, durable: &VersionVector, linked: DcSet) {
        self.acknowledgements.note_news();
        self.note_own_log(peer, durable.get(self.config.dc));
        self.note_taken(peer, durable);
        let too_far_behind = self.log.note_told(peer, durable, linked);
        if too_far_behind {
            self.on_peer_behind(peer);
        } else {
            self.links.rows[peer.index()].behind = None;
        }
        self.truncate_log();
        self.pump = true;
    }

    /// `peer` lacks truncated entries. Another member may be sending them at this moment, so a state is
    /// offered only if that lasts for two heartbeats.
    fn on_peer_behind(&mut self, peer: DcId) {
        let row = &mut self.links.rows[peer.index()];
        let (since, is_known) = row.behind.get_or_insert((self.now.mono, false));
        if self.now.mono < *since + 2 * self.config.agreed.heartbeat {
            return;
        }
        if !std::mem::replace(is_known, true) {
            self.report(Report::PeerTooFarBehind { peer });
        }
        if self.members.may_give_to(peer) || self.faulty(Bug::StateBeforeEpoch) {
            self.offer_state(peer);
        }
    }

    /// Truncates entries that no member needs, and the oldest ones if too many are kept.
    pub(super) fn truncate_log(&mut self) {
        let most = self.config.local.max_log;
        // Commits must not stop for one slow taker: above three times `max_log` it loses its state and may
        // take another.
        let needed = self.given().filter(|_| self.log.weight() / 3 <= most);
        self.truncates = self.log.truncate(most, needed.as_ref());
        // Otherwise a restart would keep all of them until every member was heard.
        if self.lifecycle.disk_space() != DiskSpace::Full
            && !self.lifecycle.is_forked()
            && let Some(entries) = self.log.forgotten_to_record()
        {
            self.persist(Record::Forgotten { entries });
        }
    }

    /// Updates reachability, and parks the requests that need unreachable members.
    pub(super) fn update_reachability(&mut self) {
        let Some(changed) = self.reachability.update(self.now.mono, self.log.applied()) else { return };
        for peer in changed.iter() {
            let reachable = self.reachability.is_reachable(peer);
            self.report(Report::PeerReachable { peer, reachable });
        }
        let serving_changed = self.reachability.take_serving_changed();
        self.report_serving(serving_changed);
        self.park_what_needs_others();
    }

    /// Parks the requests that need a member that is away.
    pub(super) fn park_what_needs_others(&mut self) {
        if self.faulty(Bug::NotServingBlocks) {
            return self.locks.set_unreachable(self.reachability.unreachable());
        }
        self.locks.set_unreachable(self.away());
    }
}
