//! Loss of durable data: a disk is found empty or in an older state, with or without an operator's mark.
//!
//! Such a disk has lost data that was promised durable, so the oracle has to know which losses are allowed:
//!
//! - **Entries that no other disk has** are lost, and their maker writes other ones under their numbers
//!   ([`World::forget_lost_entries`]). Entries that any other disk has must come back.
//! - **Leases that the disk has lost** are over; their clients may hear so early. While a client that still
//!   counts on one could know of it, its locks must not be granted: a lost disk and a restored copy wait. An
//!   unmarked older disk waits if a peer tells it that it lacks something. If none does, it cannot know, and
//!   holds under such leases do not count from when it serves ([`World::on_serving`]).
//! - **Entries of others that grants saw**, except commits under their locks, may be lost, because the disk
//!   may have lost the record that they were applied ([`World::forget_unseen`]).
//! - **Outcomes** of commits that come back only within a state are lost: a client that asks again commits
//!   again ([`World::forget_outcome`]).
//! - **Tokens** stay above earlier ones if no clock was wrong, or a peer that heard of those has not stopped.
//! - A datacenter is **blind** while it serves from an older disk, does not know that, and another datacenter
//!   has more of its log ([`World::is_blind`]). Its grants may then conflict with what it gave away, so they
//!   do not count.
//! - If it writes an entry then, the log **has two histories**, and nothing is compared with the model any
//!   more ([`World::is_judged`]). But in the end every datacenter must have stopped, and none may have used
//!   both. Then people choose one ([`World::keep_one_history`]), and with that the cluster has to serve
//!   without conflicting holders and to become equal.
//! - If it lacks only entries of others that it once announced, and writes an entry, removed keys may come
//!   back and values may be lost, depending on the tombstones of a replica: readings are not compared.

use std::time::Duration;

use crdts::CvRDT;

use crate::causal_log::{Entry, Op};
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use crate::replica::call::Phase as ReplicaPhase;
use crate::sim::client::State;
use crate::sim::disk::Disk;
use crate::sim::failure::{FailureKind, FaultKind};
use crate::sim::oracle::{Holder, HolderId, TxnKey};
use crate::sim::world::{Node, World};
use geolock_api::names::{DcId, FencingToken};

/// Percentage of the samples at which a disk is copied.
const COPY_PERCENT: u64 = 20;

/// The consequences that a disk's loss has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum History {
    /// There is one history, and all checks are made.
    #[default]
    Whole,
    /// An entry was written that has not seen entries which its maker had once announced to have seen.
    Unseen,
    /// A log has two histories.
    Forked,
    /// People have chosen one of two.
    Chosen,
}

/// The damage of a node's disk.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    kind: FaultKind,
    /// The vector that it had applied durably before.
    had: VersionVector,
    /// Number of times that the disk that was found had been doubted.
    doubted: u64,
    /// It is known to be an older one: the node waits.
    pub doubts: bool,
    /// It installed a state since, so it does not know which commits are in that.
    pub took_state: bool,
    /// Peers that had heard of it, each with its number of starts.
    witnesses: Vec<(DcId, u64)>,
    /// It has served since.
    served: bool,
    /// The part of its grants' snapshots that is left, while the node is down and grants are on their way.
    left: Option<VersionVector>,
}

impl Node {
    /// Returns the vector that it has applied, or will have when it starts.
    fn has_applied(&self) -> &VersionVector {
        self.inspect().map_or(&self.disk.facts.applied, |replica| replica.applied())
    }

    pub(super) fn is_forked(&self) -> bool {
        self.inspect().is_some_and(|replica| matches!(replica.phase(), ReplicaPhase::Forked { .. }))
    }

    /// Returns true while it does not use its own state yet, because it asks for entries that it lacks.
    fn asks(&self) -> bool {
        let phase = self.inspect().map(|replica| replica.phase());
        self.losses > 0 && matches!(phase, Some(ReplicaPhase::Starting | ReplicaPhase::ReadOnly))
    }
}

impl World {
    /// Crashes a node whose disk then has lost something. Returns true if there was something to lose.
    pub(super) fn damage_some_disk(&mut self, kind: FaultKind) -> bool {
        let dc = self.random_dc();
        // One at a time, or no node is left that knows the log.
        let is_whole = |node: &Node| {
            node.replica.is_some() && !node.is_paused() && !node.asks() && !self.is_blind(node.dc)
        };
        let can = kind == FaultKind::DiskLost || self.node(dc).copy.is_some();
        if !can || !self.nodes.iter().all(is_whole) {
            return false;
        }
        let life = self.node(dc).life;
        let knows = |node: &&Node| {
            let hears = || node.inspect().is_some_and(|replica| !replica.unreachable().contains(dc));
            node.dc != dc && node.heard.get(&dc) == Some(&life) && hears()
        };
        let witnesses = self.nodes.iter().filter(knows).map(|node| (node.dc, node.life)).collect();
        self.crash(dc);
        if self.chance.fault.percent(self.plan.disk.away_percent) {
            let lasts = 2 * self.plan.peer_timeout + self.chance.fault.around(self.plan.cut);
            for peer in self.members().iter().filter(|peer| *peer != dc) {
                self.cut_for(dc, peer, lasts);
                self.cut_for(peer, dc, lasts);
            }
        }
        self.damage_disk(dc, kind, witnesses);
        let down = self.chance.fault.around(self.plan.down);
        self.restart_later(dc, down);
        true
    }

    fn damage_disk(&mut self, dc: DcId, kind: FaultKind, witnesses: Vec<(DcId, u64)>) {
        let node = &mut self.nodes[dc.index()];
        let lost = kind == FaultKind::DiskLost;
        if lost {
            node.copy = None;
        }
        let found = node.copy.as_deref().cloned().unwrap_or_else(Disk::new);
        let before = std::mem::replace(&mut node.disk, found);
        node.disk.room = before.room;
        node.losses += 1;
        let (had, doubted) = (before.facts.applied.clone(), node.disk.facts.doubted);
        node.lost.merge(had.clone());
        // A state that it installed before may be on the disk that it finds.
        let took_state = node.damage.as_ref().is_some_and(|damage| damage.took_state);
        let damage =
            Damage { kind, had, doubted, doubts: lost, took_state, witnesses, served: false, left: None };
        node.damage = Some(damage);
        if !self.plan.clock.is_right() {
            node.promises.forget_clocks();
        }
        let (records, applied) = (node.disk.appended().0, node.disk.facts.applied.clone());
        let leases = node.disk.facts.leases.clone();
        self.trace.line(self.now, dc, || format!("{kind:?}: found are {records} records and {applied}"));
        let left = self.left_of(dc);
        self.requests.on_crash(dc, &left);
        self.forget_lost_entries();
        self.forget_unseen(dc, left);
        for client in self.clients.iter_mut().filter(|client| client.dc == dc) {
            // Includes leases whose clients hear of them only now.
            let lost = before.facts.opened.iter().filter(|lease| !leases.contains_key(lease));
            client.lost_leases.extend(lost);
            client.old_leases.extend(before.facts.opened.iter());
            if kind == FaultKind::DiskRolledBack {
                client.rolled_back = client.lease();
            }
        }
    }

    /// The grants of a datacenter saw everything that it had applied, and it need not have announced that.
    /// With its disk it may lose the record that it has entries of others. Commits under a lock are not lost
    /// by this: own commits come back, and those of others stand before the transfer that brought the lock
    /// here; either that comes back, too, or the lock is not here. So later grants must cover the part of
    /// such a snapshot that the log of this datacenter depends on, and in any case all commits.
    fn forget_unseen(&mut self, dc: DcId, mut left: VersionVector) {
        if !self.has_one_history() {
            return;
        }
        let last = Dot { dc, seq: left.get(dc) };
        if let Some(entry) = self.txns.entry(last) {
            left.merge(entry.deps.clone());
        }
        self.holders.forget_unseen(dc, &left);
        if let Some(damage) = &mut self.nodes[dc.index()].damage {
            damage.left = Some(left);
        }
    }

    /// A grant from before its disk was damaged has reached its client only now.
    fn forget_unseen_of_late(&mut self, dc: DcId) {
        let Some(left) = self.node(dc).damage.as_ref().and_then(|damage| damage.left.clone()) else { return };
        self.holders.forget_unseen(dc, &left);
        self.forget_lost_entries();
    }

    /// Returns the vector that a crash of `dc` leaves, with the entries of its own log that it can get back.
    pub(super) fn left_of(&self, dc: DcId) -> VersionVector {
        let mut left = self.node(dc).disk.facts.applied.clone();
        if self.node(dc).losses > 0 {
            left.raise(dc, self.highest(dc, Some(dc)));
        }
        // The others have the entries of an earlier server with the slot, up to its cut.
        self.control.config.slots().last_past(dc).into_iter().for_each(|past| left.raise(dc, past.cut));
        left
    }

    /// Returns the last entry of a log that any node has, except one.
    fn highest(&self, of: DcId, except: Option<DcId>) -> u64 {
        let nodes = self.nodes.iter().filter(|node| Some(node.dc) != except);
        nodes.map(|node| node.has_applied().get(of)).max().unwrap_or(0)
    }

    /// Removes entries that no node has any more, unless they are on their way to a node.
    pub(super) fn forget_lost_entries(&mut self) {
        if !self.has_one_history() || self.nodes.iter().all(|node| node.losses == 0) {
            return;
        }
        for dc in self.members().iter() {
            self.lose_after(dc, self.highest(dc, None));
        }
    }

    /// Copies disks now and then, so that they can be found in this state later.
    pub(super) fn copy_disks(&mut self) {
        if !self.plan.disk.is_copied {
            return;
        }
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            if !node.asks() && !self.is_blind(node.dc) && self.chance.disk.percent(COPY_PERCENT) {
                let copy = Box::new(node.disk.copy());
                self.nodes[index].copy = Some(copy);
            }
        }
    }

    /// Marks an older disk at the start of its node, if an operator or the disk itself knows that it is one.
    pub(super) fn mark_if_restored(&mut self, dc: DcId) {
        let node = &mut self.nodes[dc.index()];
        let (Some(replica), Some(damage)) = (&mut node.replica, &mut node.damage) else { return };
        let is_known = node.disk.facts.doubted > damage.doubted;
        damage.left = None;
        damage.doubts = is_known || damage.kind != FaultKind::DiskRolledBack;
        if damage.kind == FaultKind::DiskRestored && !is_known {
            replica.begin_restored();
        }
    }

    /// Returns true if it serves an older disk as if it were the newest, and others have more of its log.
    pub(super) fn is_blind(&self, dc: DcId) -> bool {
        let node = self.node(dc);
        let is_unmarked = node.damage.as_ref().is_some_and(|damage| !damage.doubts);
        is_unmarked && node.has_applied().get(dc) < self.highest(dc, Some(dc))
    }

    /// Returns true if it was blind before the present step, so that it decided its answers blindly.
    pub(super) fn acts_blindly(&self, dc: DcId) -> bool {
        self.node(dc).was_blind || self.is_blind(dc)
    }

    /// Returns true if its view of ownership is not used, or cannot be right.
    pub(super) fn is_out_of_date(&self, dc: DcId) -> bool {
        self.node(dc).asks() || self.is_blind(dc) || self.control.evicted.contains(dc)
    }

    /// A node serves, for the first time since its disk was found damaged.
    pub(super) fn on_serving(&mut self, dc: DcId) {
        let lives: Vec<u64> = self.nodes.iter().map(|node| node.life).collect();
        let Some(damage) = &mut self.nodes[dc.index()].damage else { return };
        if std::mem::replace(&mut damage.served, true) {
            return;
        }
        let doubts = damage.doubts;
        let is_told = damage.witnesses.iter().any(|(peer, life)| lives[peer.index()] == *life);
        if !doubts {
            let of_lost = |client: &&crate::sim::client::Client| {
                client.dc == dc && client.lease().is_some_and(|lease| client.lost_leases.contains(&lease))
            };
            for client in self.clients.iter().filter(of_lost) {
                let held = client.requests().iter().filter(|(_, r)| matches!(r.state, State::Held { .. }));
                for key in held.map(|(key, _)| *key).chain(client.txns().keys().copied()) {
                    self.holders.end(self.now, HolderId { client: client.number, key });
                }
            }
        }
        if !(self.plan.clock.is_right() || doubts && is_told) {
            self.nodes[dc.index()].promises.forget_tokens();
            self.holders.forget_tokens();
        }
    }

    /// A client begins to hold. A grant of a blind datacenter, or of a forked log, is only counted.
    pub(super) fn begin_to_hold(&mut self, holder: &Holder) {
        match self.blind_grants.contains(&holder.grant.request) {
            true => self.holders.grants += 1,
            false if self.history == History::Forked => self.holders.grants += 1,
            false => {
                let begun = self.holders.begin(self.now, holder);
                self.blame(begun);
                self.forget_unseen_of_late(holder.dc);
            }
        }
    }

    /// Returns true if a server that says that a transaction is not committed can know that. It cannot know
    /// it of a transaction from before its disk's loss, if it has the commits of that time only within a
    /// state, nor while it does not know what it lacks.
    pub(super) fn knows_outcome(&self, client: usize, (lease, _): TxnKey) -> bool {
        let client = &self.clients[client];
        let damage = self.node(client.dc).damage.as_ref();
        let took_state = damage.is_some_and(|damage| damage.took_state);
        self.has_one_history()
            && !self.acts_blindly(client.dc)
            && !(took_state && client.old_leases.contains(&lease))
    }

    /// Records that the outcome of a commit is lost, if a disk has lost the commit and got it back within a
    /// state only: it is made again if a client asks for it again under the same key.
    pub(super) fn forget_outcome(&mut self, dc: DcId, entry: &Entry) {
        let node = self.node(dc);
        if entry.dc != dc || node.losses == 0 || self.txns.is_made(entry) {
            return;
        }
        let Some(txn) = entry.ops.iter().find_map(Op::as_commit).and_then(|commit| commit.client) else {
            return;
        };
        if self.txns.made_as(txn).is_some_and(|first| first.dc == dc && node.disk.is_in_state(first)) {
            self.txns.forget_outcome(txn);
        }
    }

    /// Compares a node's new entry with the one that others have, or had.
    pub(super) fn compare_entry(&mut self, dc: DcId, entry: &std::sync::Arc<Entry>) {
        if !self.plan.disk.is_copied {
            return;
        }
        let (of, seq, hash) = (entry.dc, entry.seq, entry.hash());
        let node = self.node(dc);
        let before = node.disk.hash_of(of, entry.predecessor());
        if node.was_forked {
            let what = format!("{dc} knows of two histories and goes on with {of}:{seq}");
            self.fail(FailureKind::ForkMerged, what);
        } else if entry.prev != 0 && before.is_some_and(|before| before != entry.prev) {
            let what = format!("{dc} goes on with {of}:{seq} of another history than it has");
            self.fail(FailureKind::ForkMerged, what);
        }
        let has_another = |node: &&Node| node.disk.hash_of(of, seq).is_some_and(|other| other != hash);
        if let Some(other) = self.nodes.iter().find(has_another).map(|node| node.dc) {
            self.split(History::Forked, || format!("{dc} has another entry {of}:{seq} than {other}"));
        } else if of == dc && self.has_not_seen(dc) {
            self.split(History::Unseen, || format!("{dc} writes {of}:{seq} and lacks what it had seen"));
        }
        self.nodes[dc.index()].disk.note_hash(of, seq, hash);
        if !self.has_one_history() || self.node(of).losses == 0 {
            return;
        }
        let made = self.txns.entry(Dot { dc: of, seq }).map(|made| made == entry);
        if made.is_none() && self.txns.revive(entry) {
            self.requests.on_applied(of, entry, self.tally.steps);
        } else if made == Some(false) && of == dc {
            match self.highest(of, Some(of)) >= seq {
                // Another node has the other entry within a state.
                true => self.split(History::Forked, || format!("{dc} writes another entry {of}:{seq}")),
                false => self.lose_after(of, entry.predecessor()),
            }
        }
    }

    /// Returns true if it lacks entries of others that it once had and announced, and no peer has told it.
    fn has_not_seen(&self, dc: DcId) -> bool {
        let node = self.node(dc);
        let Some(damage) = node.damage.as_ref().filter(|damage| !damage.doubts) else { return false };
        let others = damage.had.iter().filter(|(of, _)| *of != dc);
        let mut there = others.map(|(of, seq)| (of, seq.min(self.highest(of, None))));
        there.any(|(of, seq)| node.has_applied().get(of) < seq)
    }

    fn split(&mut self, history: History, what: impl FnOnce() -> String) {
        let goes_on = match self.history {
            History::Whole => true,
            History::Unseen => history == History::Forked,
            History::Forked | History::Chosen => false,
        };
        if goes_on {
            self.history = history;
            self.tally.forks += u64::from(history == History::Forked);
            self.trace.line(self.now, "**", what);
        }
    }

    /// Returns true if such a failure counts, given the losses of the disks.
    pub(super) fn is_judged(&self, kind: FailureKind) -> bool {
        let of_forks = matches!(
            kind,
            FailureKind::ForkMerged
                | FailureKind::ForkUnseen
                | FailureKind::Forgotten
                | FailureKind::TooMuchWork
        );
        let of_contents = matches!(
            kind,
            FailureKind::Diverged
                | FailureKind::WrongReading
                | FailureKind::TornCommit
                | FailureKind::Resurrected
                | FailureKind::WithoutEffect
                | FailureKind::ExpiredEarly
        );
        match self.history {
            History::Whole => true,
            History::Unseen => !of_contents,
            History::Forked => of_forks,
            History::Chosen => {
                of_forks || matches!(kind, FailureKind::ConflictingHolders | FailureKind::Diverged)
            }
        }
    }

    /// Returns true if there is one history that everything can be compared with.
    pub fn has_one_history(&self) -> bool {
        matches!(self.history, History::Whole | History::Unseen)
    }

    /// Checks a grant that is answered: a datacenter that knows of two histories makes none.
    pub(super) fn check_forked_grant(&mut self, dc: DcId, token: FencingToken) {
        let node = self.node(dc);
        let (Some(since), Some(replica)) = (node.forked_since_ms, &node.replica) else { return };
        let granted = replica.inspect().stamp_of(token).millis();
        // Tokens are readings of clocks with a lead, and these clocks are right.
        if self.plan.clock.is_right() && granted > since + 1 {
            let what =
                format!("{dc} knows of two histories since {since} and granted {token:?} at {granted}");
            self.fail(FailureKind::ForkMerged, what);
        }
    }

    pub(super) fn note_phase(&mut self, dc: DcId, phase: ReplicaPhase) {
        match phase {
            ReplicaPhase::Serving => self.on_serving(dc),
            ReplicaPhase::Forked { .. } => {
                let node = &mut self.nodes[dc.index()];
                node.forked_since_ms = Some(node.clock.now(self.now).wall.0);
            }
            _ => {}
        }
    }

    /// Returns how long a cluster may take to stop, or to serve again, when everything works.
    pub fn stops_or_serves_within(&self) -> Duration {
        let plan = &self.plan;
        Duration::from_secs(5) + 2 * plan.peer_timeout + plan.doubts_for() + 2 * plan.clock.restart_ahead
    }
}
