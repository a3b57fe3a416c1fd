//! Status and listings for operators.

use std::time::Duration;

use super::describe::Describer;
use crate::base::time::Now;
use crate::base::work;
use crate::causal_log::Log;
use crate::lock_state::{Locks, WaitingFor};
use crate::membership::Attempt;
use crate::replica::call::{
    AtStake, CallId, Counts, ListCursor, LockSummary, MembersStatus, PeerStatus, Reply, Status, WitnessStatus,
};
use crate::replica::clients::Clients;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::replica::peers::terms::Terms;
use crate::replica::watches::Watches;
use geolock_api::names::{DcId, DcSet};

/// Most locks in one page of a listing.
pub(in crate::replica) const MAX_PAGE: usize = 1000;

/// Shows the state of this datacenter to operators.
pub(in crate::replica) struct StatusView<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a Outputs,
    pub(in crate::replica) log: &'a Log,
    pub(in crate::replica) locks: &'a Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a Peers,
    pub(in crate::replica) clients: &'a Clients,
    pub(in crate::replica) data: &'a Data,
    pub(in crate::replica) watches: &'a Watches,
}

impl StatusView<'_> {
    /// Returns the state of this datacenter.
    pub(in crate::replica) fn status(&self) -> Status {
        let waiting = self.locks.inspect().waiting_for();
        Status {
            dc: self.config.dc,
            phase: self.lifecycle.phase(),
            draining: self.lifecycle.admission.is_draining(),
            clock_skew: self.lifecycle.stalls.has_clock_skew() || self.lifecycle.state.is_contradicted(),
            clock_behind_ms: self.lifecycle.stalls.clock_behind_ms().unwrap_or(0),
            backed_for_ms: self
                .lifecycle
                .member_lease
                .backed_for(self.now.mono)
                .map(|backed| backed.as_millis() as u64),
            unknown_leases_ms: self.lifecycle.own_log.unknown_leases_for(self.now.mono).as_millis() as u64,
            disk_space: self.lifecycle.stalls.disk(),
            load: self.lifecycle.admission.load(),
            applied: self.log.applied().clone(),
            durable: (**self.log.durable()).clone(),
            members: self.members_status(&waiting),
            peers: self.members.peers().iter().map(|peer| self.peer_status(peer, &waiting)).collect(),
            witnesses: self.witnesses(),
            counts: self.counts(),
            acquires: self.clients.acquires,
            majority_waits: self.data.majority_waits,
        }
    }

    fn witnesses(&self) -> Vec<WitnessStatus> {
        let heard = |dc| self.peers.witnesses.last_heard(dc);
        let ago = |at| self.now.mono.saturating_since(at).as_millis() as u64;
        let row = |dc| WitnessStatus { dc, heard_ms: heard(dc).map(ago) };
        self.members.decided.config().witnesses().dcs().iter().map(row).collect()
    }

    fn members_status(&self, waiting: &WaitingFor) -> MembersStatus {
        let config = self.members.decided.config();
        MembersStatus {
            decision: config.index().0,
            epoch: self.members.entered.epoch().0,
            evicting: config.attempt().map_or(DcSet::EMPTY, Attempt::evicting),
            only_here: self.log.peers().only_here(self.log.applied()),
            own: self.at_stake(self.config.dc, waiting),
            waiting_is_least: !waiting.is_complete,
        }
    }

    /// Returns the consequences if this datacenter or a peer died now.
    fn at_stake(&self, peer: DcId, waiting: &WaitingFor) -> AtStake {
        let heard = match peer {
            own if own == self.config.dc => Some(self.now.mono),
            _ => self.peers.reachability.last_heard(peer),
        };
        let config = self.members.decided.config();
        AtStake {
            away_locks: self.locks.owners().away_in(peer),
            waiting: waiting.of(peer),
            heard_ms: heard.map(|at| self.now.mono.saturating_since(at).as_millis() as u64),
            silent: config.silent_about(peer).filter_map(|by| config.witnesses().link_id(by)).collect(),
        }
    }

    /// Returns the options that should be equal and differ, as far as it was told.
    fn differing_options(&self, peer: DcId) -> Vec<&'static str> {
        let ours = Terms::of(self.members.configured(), &self.config.agreed);
        let theirs = self.peers.links.terms(peer);
        let terms = theirs.into_iter().flat_map(|theirs| ours.differing(&theirs));
        let terms = terms.map(|(option, ..)| option);
        terms.chain(self.peers.access_rules.differing(peer).map(|(option, ..)| option)).collect()
    }

    fn peer_status(&self, peer: DcId, waiting: &WaitingFor) -> PeerStatus {
        let acknowledged = self.log.peer(peer).acknowledged();
        let lag = acknowledged.lag(self.log.applied(), self.log.entries());
        let waited = lag.since.map_or(Duration::ZERO, |since| self.now.mono.saturating_since(since));
        PeerStatus {
            dc: peer,
            connected: self.log.peer(peer).is_linked(),
            reachable: self.peers.reachability.is_reachable(peer),
            acknowledged: acknowledged.vector().clone(),
            unacked_entries: lag.entries,
            lag_ms: waited.as_millis() as u64,
            missing_entries: acknowledged.missing_entries(self.log.applied()),
            // Right after a start no peer has announced its vector yet.
            too_far_behind: self.peers.reachability.was_heard(peer) && self.log.is_too_far_behind(peer),
            clock_ahead_ms: self.peers.links.clock_ahead_ms(peer).unwrap_or(0),
            paused_by_skew: self.peers.links.is_paused(peer),
            not_serving: self.peers.not_serving(peer, self.log, self.now.mono),
            at_stake: self.at_stake(peer, waiting),
            differing: self.differing_options(peer),
        }
    }

    /// Returns gauges and counters.
    pub(in crate::replica) fn counts(&self) -> Counts {
        let (requests, moves) = (self.locks.requests().counts(), self.locks.move_counts());
        let store = self.data.store.counts();
        Counts {
            leases: self.clients.leases.len() as u64,
            held: requests.held,
            waiting: requests.waiting,
            published: requests.published,
            remote_requests: requests.remote,
            parked: requests.parked,
            locks_active: self.locks.inspect().active() as u64,
            locks_moved: self.locks.owners().map().len() as u64,
            locks_away_here: self.locks.owners().away_here() as u64,
            log_entries: self.log.entries().len() as u64,
            held_back: self.peers.inbox.len() as u64,
            watches: self.watches.len() as u64,
            transactions: self.data.transactions.len() as u64,
            keys: store.keys,
            value_bytes: store.value_bytes,
            uncompacted_changes: store.effects,
            snapshots: store.snapshots,
            tombstones_pending: store.uncompacted,
            keys_expiring: self.data.expiry.len() as u64,
            waiting_for_majority: self.data.transactions.majority.len() as u64,
            part_transfers_sent: moves.part_transfers_sent,
            part_transfers_received: moves.part_transfers_received,
            hand_offs_sent: moves.hand_offs_sent,
            hand_offs_received: moves.hand_offs_received,
            idle_returns_age: moves.idle_returns.age,
            idle_returns_number: moves.idle_returns.number,
            idle_returns_shared: moves.idle_returns.shared,
            ..self.out.counts
        }
    }
}

impl Describer<'_> {
    pub(in crate::replica) fn on_list_decisions(&mut self, call: CallId) {
        let listed = self.members.decided.list().listed();
        work::count(listed.len());
        self.out.reply(call, Reply::Decisions(listed));
    }

    pub(in crate::replica) fn on_list(
        &mut self,
        call: CallId,
        prefix: &[u8],
        cursor: ListCursor,
        limit: usize,
    ) {
        let (rows, next) = self.locks.inspect().list(prefix, cursor.0, limit.clamp(1, MAX_PAGE));
        let summary = |row: crate::lock_state::LockRow| LockSummary {
            lock: row.name,
            owned_parts: row.parts,
            holders: row.holders,
            held: row.held,
            waiting: row.waiting,
        };
        let locks = rows.into_iter().map(summary).collect();
        self.out.reply(call, Reply::Listed { locks, next: next.map(ListCursor) });
    }
}
