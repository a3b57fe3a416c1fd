//! The world: nodes, links, disks, clocks and clients in one loop.
//!
//! Every event is an [`Action`] in one queue, or the deadline of a node. Handling one takes no virtual time.
//! A node's effects are performed at once and in order: records go to its disk, messages into the network,
//! replies to clients; each of these comes back later as an action. The first broken promise ends the run.

mod absences;
mod action;
mod behind;
mod checks;
mod clients;
mod disks;
mod downgrades;
mod durability;
mod effects;
mod enough;
mod faults;
mod histories;
mod links;
mod losses;
mod members;
mod nodes;
mod operators;
mod pauses;
mod recoveries;
mod returns;
mod rules;
mod show;
mod transactions;
mod upgrades;
mod watchers;
mod wide;
mod witnesses;

use crate::base::bugs::Bugs;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) use action::{Action, ToClient};
pub(super) use clients::Driver;
pub(super) use nodes::Node;

use crate::base::capacity::DiskSpace;
use crate::base::rng::Rng;
use crate::base::work;
use crate::causal_log::LockParts;
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use crate::replica::Event;
use crate::replica::call::{Call, CallId, ClientId, Phase as ReplicaPhase, SessionId};
use crate::sim::client::{Client, Out};
use crate::sim::failure::FailureKind;
use crate::sim::network::{Network, Weather};
use crate::sim::oracle::{Broken, HolderId, Holders, Requests, Transactions};
use crate::sim::outcome::Outcome;
use crate::sim::plan::Plan;
use crate::sim::queue::{Moment, Queue};
use crate::sim::trace::{Trace, TraceMode};
use geolock_api::names::{DcId, DcSet, LockName, RequestId};

/// Maximum number of events at one moment; more is an endless loop.
const MAX_AT_ONCE: u32 = 100_000;

/// A node's invariants are checked after this number of its steps: checks after each step would take most of
/// the time.
const CHECK_EVERY: u64 = 16;

/// A session as the world knows it.
#[derive(Debug)]
struct Session {
    client: usize,
    dc: DcId,
    /// Messages on their way to the server are lost.
    deaf: bool,
    /// The stream of the client that this session is beside: its answers count as long as that stream exists.
    main: SessionId,
    /// The session beside this one.
    beside: Option<SessionId>,
}

/// The events that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Clients want locks and faults happen.
    Trouble,
    /// Clients want locks and no faults happen.
    Calm,
    /// No faults happen, and no client wants anything new.
    Healing,
}

/// The random streams, independent of each other.
#[derive(Debug)]
struct Chance {
    net: Rng,
    disk: Rng,
    clock: Rng,
    load: Rng,
    fault: Rng,
    txns: Rng,
    /// Of operators, and of crowds.
    habits: Rng,
    /// Which commits wait for a majority.
    durability: Rng,
    /// Of changes of wide keys.
    wide: Rng,
    /// Which transactions run under requests that their clients hold.
    guards: Rng,
    /// Of clients' actions beyond those of the client library, of watchers and of overload.
    others: Rng,
    /// Of the control group, and of servers that join.
    members: Rng,
}

pub(super) struct World {
    pub plan: Plan,
    pub now: Moment,
    pub phase: Phase,
    queue: Queue<Action>,
    nodes: Vec<Node>,
    witnesses: Vec<witnesses::WitnessNode>,
    control: members::Control,
    network: Network,
    /// Links that are about to be connected.
    connecting: Vec<(DcId, DcId)>,
    clients: Vec<Client>,
    drivers: Vec<Driver>,
    sessions: BTreeMap<SessionId, Session>,
    /// Actions that wait for clients whose process is stopped.
    stopped_clients: BTreeMap<usize, Vec<Action>>,
    next_session: u64,
    watchers: Vec<watchers::Watcher>,
    next_watch: u64,
    locks: Locks,
    pub holders: Holders,
    pub txns: Transactions,
    requests: Requests,
    /// The parts that a node has moved in its present step.
    moves: Vec<(DcId, LockParts)>,
    /// The requests that it has applied in that step.
    came: Vec<RequestId>,
    /// The commits that were answered as durable at a majority of the members of that time.
    at_majority: BTreeMap<Dot, durability::Losses>,
    /// The consequences of lost durable data.
    history: disks::History,
    /// Grants by a datacenter that did not know what it had given away.
    blind_grants: BTreeSet<RequestId>,
    /// By datacenter: the last commit that a client there knows of, for others to require.
    passed_on: Vec<VersionVector>,
    /// Number of unique values so far.
    values: u64,
    /// Time since which a waiting reader has had everything that it needs, as seen by the samples.
    at_home_since: BTreeMap<HolderId, Moment>,
    chance: Chance,
    pub trace: Trace,
    pub tally: Outcome,
    /// The longest wait of a granted request.
    pub max_wait: Duration,
    /// The most rows that any step examined.
    pub most_work: u64,
    /// Messages between datacenters that carried entries.
    pub entry_messages: u64,
    broken: Option<Broken>,
    out: Vec<Out>,
}

/// The locks that clients want.
#[derive(Debug)]
struct Locks {
    hot: Vec<LockName>,
    cold: Vec<LockName>,
    /// By datacenter: the cold locks that are mostly wanted there.
    home: Vec<Vec<LockName>>,
}

/// Returns the name of the `i`-th lock of a kind. Two homed locks after each other have the same bytes.
fn lock_name(kind: &str, i: usize, (dcs, is_homed): (u8, bool)) -> LockName {
    let home = DcId::new((i % usize::from(dcs)) as u8).filter(|_| is_homed);
    let number = if is_homed { i / 2 } else { i };
    LockName::with_home(home, format!("{kind}{number}").as_bytes()).expect("a short name is a lock name")
}

impl World {
    pub fn new(seed: u64, plan: Plan, trace: TraceMode, bugs: Bugs) -> World {
        let (mut homes, homed) = (Rng::new(seed, 24), plan.load.homed_percent);
        let mut name = |kind: &str, i: usize| lock_name(kind, i, (plan.founders, homes.percent(homed)));
        let cold: Vec<LockName> = (0..plan.load.cold_locks).map(|i| name("cold", i)).collect();
        let dcs = usize::from(plan.dcs);
        let locks = Locks {
            hot: (0..plan.load.hot_locks).map(|i| name("hot", i)).collect(),
            home: (0..dcs).map(|dc| cold.iter().skip(dc).step_by(dcs).cloned().collect()).collect(),
            cold,
        };
        let mut world = World {
            now: Moment::START,
            phase: Phase::Trouble,
            queue: Queue::new(),
            nodes: Vec::new(),
            witnesses: Vec::new(),
            control: members::Control::default(),
            network: Network::new(plan.dcs + plan.witnesses, |a, b| plan.net.path(a, b)),
            connecting: Vec::new(),
            clients: Vec::new(),
            drivers: Vec::new(),
            sessions: BTreeMap::new(),
            next_session: 1,
            watchers: Vec::new(),
            next_watch: 0,
            locks,
            holders: Holders::default(),
            txns: Transactions::default(),
            requests: Requests::default(),
            moves: Vec::new(),
            came: Vec::new(),
            at_majority: BTreeMap::new(),
            history: disks::History::default(),
            blind_grants: BTreeSet::new(),
            stopped_clients: BTreeMap::new(),
            passed_on: vec![VersionVector::default(); usize::from(plan.dcs)],
            values: 0,
            at_home_since: BTreeMap::new(),
            chance: Chance {
                net: Rng::new(seed, 1),
                disk: Rng::new(seed, 2),
                clock: Rng::new(seed, 3),
                load: Rng::new(seed, 4),
                fault: Rng::new(seed, 5),
                txns: Rng::new(seed, 7),
                habits: Rng::new(seed, 20),
                durability: Rng::new(seed, 26),
                wide: Rng::new(seed, 28),
                guards: Rng::new(seed, 41),
                others: Rng::new(seed, 23),
                members: Rng::new(seed, 31),
            },
            trace: Trace::new(trace),
            tally: Outcome::default(),
            max_wait: Duration::ZERO,
            most_work: 0,
            entry_messages: 0,
            broken: None,
            out: Vec::new(),
            plan,
        };
        world.begin(seed, bugs);
        world
    }

    fn begin(&mut self, seed: u64, bugs: Bugs) {
        let all: DcSet = (0..self.plan.dcs).filter_map(DcId::new).collect();
        let members: DcSet = (0..self.plan.founders).filter_map(DcId::new).collect();
        for dc in members.iter() {
            let node = Node::new(&self.plan, dc, members, seed, bugs);
            self.nodes.push(node);
            self.start_node(dc);
        }
        for (dc, clients) in members.iter().zip(self.plan.load.clients.clone()) {
            for _ in 0..clients {
                self.spawn_client(dc, Driver::Random);
            }
        }
        self.plan_joins(all.difference(members), seed, bugs);
        self.plan_witnesses(bugs);
        self.plan_leaves(seed);
        self.plan_losses(seed);
        self.plan_absences();
        self.plan_rules(seed);
        self.plan_upgrades();
        self.plan_disaster(seed);
        self.plan_faults();
        self.plan_clocks();
        self.plan_operators();
        self.plan_watchers();
        self.queue.push(Moment::from_millis(250), Action::Sample);
    }

    pub fn members(&self) -> DcSet {
        self.nodes.iter().filter(|node| !node.is_gone).map(|node| node.dc).collect()
    }

    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    fn blame(&mut self, result: Result<(), Broken>) {
        if let Err(broken) = result
            && self.broken.is_none()
            && self.is_judged(broken.kind)
        {
            self.trace.line(self.now, "!!", || format!("{:?}: {}", broken.kind, broken.what));
            self.broken = Some(broken);
        }
    }

    pub fn fail(&mut self, kind: FailureKind, what: String) {
        self.blame(Err(Broken::new(kind, what)));
    }

    /// Handles all events up to `until`, or until a promise is broken.
    pub fn run_until(&mut self, until: Moment) {
        let mut at_once = 0;
        while self.broken.is_none() {
            let ticking = self.nodes.iter().filter(|node| !node.is_paused());
            let ticks = ticking.filter_map(|n| n.tick.map(|at| (at, n.dc)));
            let tick = ticks.chain(self.witnesses.iter().filter_map(|witness| witness.next_tick())).min();
            let queued = self.queue.next_at();
            let at = match (tick, queued) {
                (Some((tick, _)), Some(queued)) => tick.min(queued),
                (Some((at, _)), None) | (None, Some(at)) => at,
                (None, None) => break,
            };
            if at > until {
                break;
            }
            at_once = if at > self.now { 0 } else { at_once + 1 };
            if at_once > MAX_AT_ONCE {
                self.fail(FailureKind::Contract, format!("more than {MAX_AT_ONCE} things happen at {at}"));
            }
            self.now = self.now.max(at);
            match tick {
                Some((tick, dc)) if tick <= at && self.witness(dc).is_some() => self.step(dc, Event::Tick),
                Some((tick, dc)) if tick <= at => {
                    let early = std::mem::take(&mut self.nodes[dc.index()].checkpoint_before_timer);
                    self.step(dc, if early { Event::Checkpoint } else { Event::Tick });
                }
                _ => {
                    if let Some((_, action)) = self.queue.pop() {
                        self.act(action);
                    }
                }
            }
        }
        if self.broken.is_none() {
            self.now = self.now.max(until);
        }
    }

    fn act(&mut self, action: Action) {
        let Some(action) = self.stall(action) else { return };
        match action {
            Action::Arrive { from, to, conn, message } => self.on_arrive(from, to, conn, message),
            Action::Flush { node, peer, conn } => self.on_flush(node, peer, conn),
            Action::LinkUp { node, peer, conn } => self.on_link_up(node, peer, conn),
            Action::LinkDown { node, peer, conn } => self.on_link_down(node, peer, conn),
            Action::IdleTimeout { a, b, conn } => self.on_idle_timeout(a, b, conn),
            Action::Connect { a, b } => self.on_connect(a, b),
            Action::Uncut { from, to } => self.uncut(from, to),
            Action::Break { a, b } => self.break_link(a, b),
            Action::Unmute { from, to } => self.unmute(from, to),
            Action::Clear { a, b } => self.network.set_weather(a, b, Weather::default()),
            Action::PeersGiveUp { node, life } => self.on_peers_give_up(node, life),
            Action::Resume { node, life } => self.on_resume(node, life),
            Action::ResumeClient { client } => self.resume_client(client),
            Action::Synced { node, life } => self.on_synced(node, life),
            Action::TakeCheckpoint { node } => self.on_take_checkpoint(node),
            Action::CheckpointWritten { node, life } => self.on_checkpoint_written(node, life),
            Action::Restart { node, life } => self.on_restart(node, life),
            Action::MakeRoom { node } => self.set_room(node, DiskSpace::Enough),
            Action::ToServer { dc, session, tag, call } => self.on_to_server(dc, session, tag, call),
            Action::SessionClosed { dc, session } => self.on_session_closed(dc, session),
            Action::ToClient { client, session, said } => self.on_to_client(client, session, said),
            Action::SessionBroken { client, session } => self.on_session_broken(client, session),
            Action::Client { client, timer } => self.on_client_timer(client, timer),
            Action::Spawn { dc } => {
                if self.phase != Phase::Healing && !self.is_leaving(dc) {
                    self.spawn_client(dc, Driver::Random);
                }
            }
            Action::ChangePolicy { evict } => self.on_change_policy(evict),
            Action::GiveWord { node, until } => self.on_give_word(node, until),
            Action::PartAgain { node, other, lasts } => self.on_part_again(node, other, lasts),
            Action::EvictAbsent(word) => self.on_evict_absent(word),
            Action::StandStill { node, life, lasts } => self.on_stand_still(node, life, lasts),
            Action::Fault(kind) => self.on_fault(kind),
            Action::FallBehind => self.on_fall_behind(),
            Action::SetClock { node } => self.set_clock_right(node),
            Action::Watcher { number } => self.on_watcher(number),
            Action::Decide { proposal } => self.on_decide(*proposal),
            Action::AddWitness { node } => self.on_add_witness(node),
            Action::WitnessFault { node } => self.on_witness_fault(node),
            Action::Learn { node, index } => self.on_learn(node, index),
            Action::Join { node } => self.on_join(node),
            Action::Leave { node } => self.on_leave(node),
            Action::Upgrade { node } => self.on_upgrade(node),
            Action::CancelLeave { node } => self.on_cancel_leave(node),
            Action::Return { node } => self.on_return(node),
            Action::Lose { node } => self.on_lose(node),
            Action::Disaster { lost } => self.on_disaster(lost),
            Action::Recover { lost } => self.on_recover(lost),
            Action::Vote { node } => self.on_vote(node),
            Action::SetPolicy => self.on_set_policy(),
            Action::SetHome { prefix, wanted, attempts } => self.on_set_home(prefix, wanted, attempts),
            Action::Evict { node, generation } => self.on_evict(node, generation),
            Action::Force => self.on_force(),
            Action::Overload => self.on_overload(),
            Action::Relief { node } => self.on_relief(node),
            Action::Sample => self.on_sample(),
        }
    }

    /// Submits one input to one node, with everything that follows at once.
    fn step(&mut self, dc: DcId, event: Event) {
        if self.witness(dc).is_some() {
            return self.step_witness(dc, event);
        }
        let was_blind = self.is_blind(dc);
        let node = &mut self.nodes[dc.index()];
        let Some(replica) = &mut node.replica else { return };
        self.tally.steps += 1;
        node.was_blind = was_blind;
        node.away_before = replica.inspect().away();
        node.was_examining = replica.inspect().is_examining();
        node.members_before = replica.inspect().members();
        node.was_forked = matches!(replica.inspect().phase(), ReplicaPhase::Forked { .. });
        self.trace.mix(self.now.0 ^ u64::from(dc.get()) << 56);
        self.trace.line(self.now, dc, || format!("<- {}", show::event(&event)));
        work::take();
        replica.handle(node.clock.now(self.now), event);
        let looked_at = work::take();
        self.most_work = self.most_work.max(looked_at);
        if looked_at > work::MAX_PER_STEP {
            let most = work::MAX_PER_STEP;
            let what = format!("{dc} looked at {looked_at} things in one step, at most {most} are allowed");
            self.fail(FailureKind::TooMuchWork, what);
        }
        // Before the effects of the decision are seen.
        self.follow_recovery();
        self.settle(dc);
    }

    /// After every input: effects, invariants, the next deadline, the disk.
    fn settle(&mut self, dc: DcId) {
        self.perform_effects(dc);
        let now = self.now;
        let node = &mut self.nodes[dc.index()];
        let Some(replica) = &node.replica else { return };
        node.steps += 1;
        if node.steps.is_multiple_of(CHECK_EVERY) {
            replica.check();
        }
        let late = node.lateness();
        let at = node.clock.when(replica.next_deadline());
        // Work that is done in pieces continues at once; a timer may fire after another event that happens
        // meanwhile.
        node.tick = Some(if at <= now { now } else { at + late });
        self.begin_sync(dc);
    }

    /// A call of no client, such as an operator's; its reply is kept at the node.
    fn operator_call(&mut self, dc: DcId, tag: u64, call: Call) {
        let id = CallId { session: nodes::OPERATOR, tag };
        self.step(dc, Event::Client { call: id, client: ClientId::UNKNOWN, request: call });
    }
}
