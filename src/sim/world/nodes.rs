//! Nodes: their disks, crashes and restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::bugs::Bugs;
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::membership::ServerId;
use crate::replica::call::{LockDescription, SessionId, Status};
use crate::replica::{
    AgreedConfig, Checkpoint, Event, Inspect, LocalConfig, MembersState, Past, Replica, ReplicaConfig,
};
use crate::sim::clock::NodeClock;
use crate::sim::disk::Disk;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{ForceReleases, Promises};
use crate::sim::plan::Plan;
use crate::sim::queue::Moment;
use crate::sim::world::disks::Damage;
use crate::sim::world::{Action, Phase, World, checks};
use geolock_api::names::{ClusterId, DcId, DcSet};

/// The session of the world's own calls.
pub(super) const OPERATOR: SessionId = SessionId(u64::MAX);

/// One datacenter's machine.
pub(crate) struct Node {
    pub dc: DcId,
    config: ReplicaConfig,
    /// `None` while it is down.
    pub replica: Option<Box<Replica>>,
    pub clock: NodeClock,
    /// It is kept behind all others by so many milliseconds.
    pub behind_ms: Option<i64>,
    pub disk: Disk,
    /// The disk as it was some time before.
    pub copy: Option<Box<Disk>>,
    /// Number of times that its disk has lost durable data; `damage` is the last one.
    pub losses: u64,
    /// All that was durable on disks of it that are lost.
    pub lost: VersionVector,
    pub damage: Option<Damage>,
    /// It was blind before its last step: in one step it may grant and write an entry that others have, too.
    pub was_blind: bool,
    /// It knew of two histories before its last step, and the time since when, by its wall clock.
    pub was_forked: bool,
    pub forked_since_ms: Option<u64>,
    /// People have chosen its history: it hears so at its next start.
    pub keeps_history: bool,
    pub promises: Promises,
    pub forced: ForceReleases,
    /// It has left the cluster, and its server was stopped.
    pub is_gone: bool,
    /// The peers of which heartbeats arrived in this run, each with its number of starts then.
    pub heard: BTreeMap<DcId, u64>,
    /// Number of starts.
    pub life: u64,
    /// Time of the last start.
    pub started: Moment,
    /// Number of inputs.
    pub steps: u64,
    /// The actions that wait while its process is stopped.
    pub stalled: Option<Vec<Action>>,
    /// The members that were away for it before its last step.
    pub away_before: DcSet,
    /// The same: requests were being examined again.
    pub was_examining: bool,
    /// The members of the epoch that it had entered before its present step: it may enter the next one and
    /// answer in the same step.
    pub members_before: DcSet,
    /// Time of its next deadline.
    pub tick: Option<Moment>,
    /// The last answers to the operator.
    pub status: Option<Box<Status>>,
    pub description: Option<LockDescription>,
    /// Time at which the operator asked for a description that was not answered yet.
    pub described_at: Option<Moment>,
    /// Time since which it has been in grace, as seen by the samples.
    pub grace_since: Option<Moment>,
    /// A checkpoint is requested when its next timer is due: the effects of that timer come first.
    pub checkpoint_before_timer: bool,
}

impl Node {
    pub fn new(plan: &Plan, dc: DcId, members: DcSet, seed: u64, bugs: Bugs) -> Node {
        let mut agreed = AgreedConfig::new(ClusterId::of("simulated"), members);
        agreed.heartbeat = plan.heartbeat;
        agreed.peer_timeout = plan.peer_timeout;
        let usual = LocalConfig::default();
        let local = LocalConfig {
            max_waiting: plan.habits.most.unwrap_or(usual.max_waiting),
            max_transactions: plan.habits.most.unwrap_or(usual.max_transactions),
            hold: plan.hold.clone(),
            max_away_locks: plan.max_away_locks,
            hash_seed: seed,
            max_transaction: plan.txns.max_transaction,
            max_log: plan.max_log,
            kept_decisions: plan.kept_decisions,
            max_lease_ttl: plan.longest_lease(dc),
            ..usual
        };
        let server = World::server_of(dc);
        let config = ReplicaConfig {
            bugs,
            server,
            has_control_group: plan.absences,
            ..ReplicaConfig::new(dc, agreed, local)
        };
        Node {
            dc,
            config,
            replica: None,
            clock: NodeClock::new(Instant::ZERO, Moment::START, 0, 0),
            behind_ms: None,
            disk: Disk::new(),
            copy: None,
            losses: 0,
            lost: VersionVector::default(),
            damage: None,
            was_blind: false,
            was_forked: false,
            forked_since_ms: None,
            keeps_history: false,
            promises: Promises::new(dc),
            forced: ForceReleases::new(dc),
            is_gone: false,
            heard: BTreeMap::new(),
            life: 0,
            started: Moment::START,
            steps: 0,
            stalled: None,
            away_before: DcSet::EMPTY,
            was_examining: false,
            members_before: DcSet::EMPTY,
            tick: None,
            status: None,
            description: None,
            described_at: None,
            grace_since: None,
            checkpoint_before_timer: false,
        }
    }
}

impl Node {
    /// A server that is to join the cluster.
    pub fn joining(plan: &Plan, dc: DcId, seed: u64, bugs: Bugs) -> Node {
        let mut node = Node::new(plan, dc, DcSet::only(dc), seed, bugs);
        node.config.joins = true;
        node
    }

    /// A server with an empty disk that is to join with the slot of `before`, which has ended.
    pub fn returning(plan: &Plan, server: ServerId, before: &Node) -> Node {
        let (seed, bugs) = (before.config.local.hash_seed, before.config.bugs);
        let mut node = Node::joining(plan, before.dc, seed, bugs);
        (node.config.server, node.config.speaks) = (server, before.config.speaks);
        // Actions that are still to happen to the earlier server do not happen to this one.
        (node.life, node.losses, node.clock) = (before.life, before.losses, before.clock.clone());
        node
    }

    /// Returns the highest version of the protocol that it speaks, or will from its next start on.
    pub fn speaks(&self) -> u16 {
        self.config.speaks
    }

    /// From its next start on, it speaks this version.
    pub fn will_speak(&mut self, version: u16) {
        self.config.speaks = version;
    }

    /// Returns the id of its server.
    pub fn server(&self) -> ServerId {
        self.config.server
    }

    /// Returns read access to its state; `None` while it is down.
    pub fn inspect(&self) -> Option<Inspect<'_>> {
        self.replica.as_ref().map(|replica| replica.inspect())
    }

    /// Returns true while its process is stopped.
    pub fn is_paused(&self) -> bool {
        self.stalled.is_some()
    }

    /// Returns how late its next timer fires, up to two milliseconds: events that come meanwhile are handled
    /// before.
    pub fn lateness(&self) -> Duration {
        let mixed = (self.steps ^ self.config.local.hash_seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        // A quarter of the timers is on time.
        Duration::from_micros(2 * mixed.saturating_sub(256))
    }
}

impl World {
    pub fn node(&self, dc: DcId) -> &Node {
        &self.nodes[dc.index()]
    }

    /// Returns the running replicas, in the order of their datacenters.
    #[cfg(test)]
    pub fn replicas(&self) -> impl Iterator<Item = Inspect<'_>> {
        self.nodes.iter().filter_map(Node::inspect)
    }

    pub fn is_running(&self, dc: DcId) -> bool {
        match self.witness(dc) {
            Some(_) => self.witness_runs(dc),
            None => self.node(dc).replica.is_some(),
        }
    }

    /// Starts a node from the content of its disk.
    pub(super) fn start_node(&mut self, dc: DcId) {
        let clock = self.new_clock(dc);
        let node = &mut self.nodes[dc.index()];
        node.clock = clock;
        node.life += 1;
        node.heard.clear();
        node.started = self.now;
        let life = node.life;
        let now = node.clock.now(self.now);
        let (checkpoint, records) = node.disk.recover();
        let recovered = match Replica::recover(node.config.clone(), now, checkpoint, records) {
            Ok(replica) => replica,
            Err(error) => return self.fail(FailureKind::Forgotten, format!("{dc} cannot recover: {error}")),
        };
        node.replica = Some(Box::new(recovered));
        self.trace.line(self.now, dc, || format!("started for the {life}. time"));
        self.check_recovery(dc);
        self.mark_if_restored(dc);
        let node = &mut self.nodes[dc.index()];
        node.forked_since_ms = None;
        if let Some(replica) = node.replica.as_mut().filter(|_| std::mem::take(&mut node.keeps_history)) {
            let _lacks_decisions = replica.resolve_fork();
        }
        self.set_room(dc, self.node(dc).disk.room);
        for peer in self.linkable().iter().filter(|peer| *peer != dc) {
            if self.is_running(peer) {
                self.connect_soon(dc, peer);
            }
        }
        if let Some(every) = self.plan.disk.checkpoint_every.filter(|_| life == 1) {
            let at = self.now + self.chance.disk.around(every);
            self.queue.push(at, Action::TakeCheckpoint { node: dc });
        }
    }

    fn new_clock(&mut self, dc: DcId) -> NodeClock {
        let (plan, rng) = (&self.plan.clock, &mut self.chance.clock);
        let first = self.nodes[dc.index()].life == 0;
        let drift = if first { rng.signed(plan.drift_ppm) } else { self.nodes[dc.index()].clock.drift_ppm() };
        let origin = Instant::from_nanos(rng.between(0, 1 << 50));
        let off = match self.phase {
            _ if self.nodes[dc.index()].behind_ms.is_some() => -self.nodes[dc.index()].behind_ms.unwrap_or(0),
            Phase::Healing | Phase::Calm => 0,
            Phase::Trouble if first => rng.signed(plan.skew.as_millis() as i64),
            Phase::Trouble => {
                let ahead = rng.between(0, plan.restart_ahead.as_millis() as u64) as i64;
                let behind = rng.between(0, plan.restart_behind.as_millis() as u64) as i64;
                if ahead > 0 && rng.percent(50) { ahead } else { -behind }
            }
        };
        NodeClock::new(origin, self.now, drift, off)
    }

    /// Checks that everything announced before the crash is there after it, and that both ways of recovery
    /// give the same state.
    fn check_recovery(&mut self, dc: DcId) {
        let node = &self.nodes[dc.index()];
        let Some(replica) = node.inspect() else { return };
        let state = replica.checkpoint();
        let facts = &node.disk.facts;
        if !state.applied.covers(&facts.applied) {
            let (has, had) = (&state.applied, &facts.applied);
            return self.fail(FailureKind::Forgotten, format!("{dc} recovered {has}; durable were {had}"));
        }
        let leases: Vec<_> = state.leases.iter().map(|lease| lease.lease).collect();
        if !leases.iter().eq(facts.leases.keys()) {
            let what =
                format!("{dc} recovered the leases {leases:?}; durable were {:?}", facts.leases.keys());
            return self.fail(FailureKind::Forgotten, what);
        }
        let Some((checkpoint, records)) = node.disk.recover_longer() else { return };
        let now = node.clock.now(self.now);
        match Replica::recover(node.config.clone(), now, checkpoint, records) {
            Ok(longer) => self.compare_recoveries(dc, &state, &longer.inspect().checkpoint()),
            Err(error) => self.fail(FailureKind::Contract, format!("{dc} cannot recover: {error}")),
        }
    }

    /// Returns true if every replica with one vector shows the same readings, whichever tombstones it has
    /// dropped.
    fn compares_readings(&self) -> bool {
        self.history == super::disks::History::Whole
    }

    fn compare_recoveries(&mut self, dc: DcId, short: &Checkpoint, longer: &Checkpoint) {
        // The longer way knows less of the peers' acknowledgements, so it keeps more of the log; less of
        // stability, so it keeps more marks of keys; less of what clients have acknowledged, so it keeps more
        // outcomes.
        let log_differs = !short.log.iter().all(|entry| longer.log.contains(entry));
        let rest = |c: &Checkpoint| Checkpoint {
            log: Vec::new(),
            contents: Vec::new(),
            outcomes: Vec::new(),
            // The journal has the changes of a commit, the server that made it had its begin.
            commit_contents: Vec::new(),
            past: Past::default(),
            // The longer way has more of them.
            hashes: c
                .hashes
                .iter()
                .map(|(dc, hashes)| (*dc, hashes.last().copied().into_iter().collect()))
                .collect(),
            all_speak: u16::MAX,
            // The longer way has compacted fewer decisions.
            members_state: c.members_state.clone().map(MembersState::with_all_compacted),
            ..c.clone()
        };
        // Watches can resume from the same events, wherever these are kept.
        let watched = short.past.forgotten == longer.past.forgotten
            && short.past.and(&short.log).eq(longer.past.and(&longer.log));
        let shown_differs =
            self.compares_readings() && checks::shown(&short.contents) != checks::shown(&longer.contents);
        if log_differs
            || !watched
            || shown_differs
            || rest(short) != rest(longer)
            || !self.knows_outcomes(short, longer)
        {
            let what = format!("{dc}: from the checkpoint {short:?}, from all records {longer:?}");
            self.fail(FailureKind::RecoveryDiffers, what);
        }
    }

    /// Returns true if the longer way of recovery has the same outcomes of clients' commits. Outcomes of
    /// commits that changed nothing are in checkpoints only.
    fn knows_outcomes(&self, short: &Checkpoint, longer: &Checkpoint) -> bool {
        short.outcomes.iter().all(|row| {
            let other = longer.outcomes.iter().find(|other| other.lease == row.lease);
            let told = |key| other.and_then(|other| other.commits.iter().find(|(k, _)| k == key));
            row.commits.iter().all(|(key, vector)| match told(key) {
                Some((_, other)) => other == vector,
                None => !self.txns.is_made_for((row.lease, *key)),
            })
        })
    }

    /// Stops a node at once. It stays down until it is started.
    pub fn crash(&mut self, dc: DcId) {
        let node = &mut self.nodes[dc.index()];
        if node.replica.take().is_none() {
            return;
        }
        node.tick = None;
        node.described_at = None;
        node.grace_since = None;
        node.stalled = None;
        let lost = node.disk.crash(&mut self.chance.disk);
        node.promises.on_crash();
        let durable = node.disk.durable();
        self.settle_forced(dc, durable);
        self.nodes[dc.index()].forced.on_crash();
        self.tally.records_lost += lost;
        self.trace.line(self.now, dc, || format!("crashed, {lost} records lost"));
        if self.has_one_history() {
            let left = self.left_of(dc);
            self.requests.on_crash(dc, &left);
            let judged = self.txns.on_crash(dc, left.get(dc));
            self.blame(judged);
            self.forget_lost_entries();
        }
        self.drop_links_of(dc);
        self.drop_sessions_of(dc);
        self.drop_watchers_of(dc);
    }

    pub fn restart_later(&mut self, dc: DcId, after: std::time::Duration) {
        let life = self.node(dc).life;
        self.queue.push(self.now + after, Action::Restart { node: dc, life });
    }

    pub(super) fn on_restart(&mut self, dc: DcId, life: u64) {
        if self.witness(dc).is_some() {
            return self.restart_witness(dc);
        }
        if !self.is_running(dc) && self.node(dc).life == life && !self.node(dc).is_gone {
            self.start_node(dc);
            self.learn_again(dc);
        }
    }

    pub(super) fn begin_sync(&mut self, dc: DcId) {
        let (plan, rng) = (&self.plan.disk, &mut self.chance.disk);
        let node = &mut self.nodes[dc.index()];
        if node.disk.begin_sync() {
            let slow = plan.slow_percent > 0 && rng.percent(plan.slow_percent);
            let takes = if slow { rng.duration(plan.sync, plan.slow.max(plan.sync)) } else { plan.sync };
            self.queue.push(self.now + takes, Action::Synced { node: dc, life: node.life });
        }
    }

    fn is_this_life(&self, dc: DcId, life: u64) -> bool {
        self.is_running(dc) && self.node(dc).life == life
    }

    pub(super) fn on_synced(&mut self, dc: DcId, life: u64) {
        if self.witness(dc).is_some() {
            return self.on_witness_synced(dc, life);
        }
        if self.is_this_life(dc, life) {
            let position = self.nodes[dc.index()].disk.end_sync();
            self.settle_forced(dc, position);
            self.step(dc, Event::Durable { position });
        }
    }

    pub(super) fn on_take_checkpoint(&mut self, dc: DcId) {
        let Some(every) = self.plan.disk.checkpoint_every else { return };
        let again = self.now + self.chance.disk.around(every);
        self.queue.push(again, Action::TakeCheckpoint { node: dc });
        if self.is_running(dc) {
            match self.plan.disk.checkpoint_before_timer {
                true => self.nodes[dc.index()].checkpoint_before_timer = true,
                false => self.step(dc, Event::Checkpoint),
            }
        }
    }

    pub(super) fn on_checkpoint(&mut self, dc: DcId, checkpoint: Checkpoint) {
        let node = &mut self.nodes[dc.index()];
        node.disk.begin_checkpoint(checkpoint);
        let takes = self.chance.disk.around(std::time::Duration::from_millis(20));
        self.queue.push(self.now + takes, Action::CheckpointWritten { node: dc, life: node.life });
    }

    pub(super) fn on_checkpoint_written(&mut self, dc: DcId, life: u64) {
        if self.is_this_life(dc, life) {
            let kept = self.nodes[dc.index()].disk.end_checkpoint();
            self.trace.line(self.now, dc, || format!("checkpoint written, kept: {kept}"));
        }
    }
}
