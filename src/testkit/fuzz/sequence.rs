//! Arbitrary events, in arbitrary order, in a cluster of three datacenters; one of them receives forged
//! messages in the name of the two others.
//!
//! All three datacenters are real; their disks, links, clients and clocks are simulated here. Messages are
//! delivered, lost with their link, repeated, damaged, or forged. Forged messages go to datacenter 0 only;
//! the messages that it sends as a result go to the others. Disks lose unsynced records, never synced ones.
//! So nothing is asserted about the ownership of locks, which forged messages can change at will. The
//! assertions are: every step returns with a bounded number of effects; the invariants of each datacenter
//! alone hold; all written data can be read again; and all datacenters become quiet in the end.

use crate::base::bugs::{Bug, Bugs};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::choices::Choices;
use super::forge::Known;
use super::forge_calls::{Client, SECRET, by_client};
use super::happened::Happened;
use crate::base::capacity::DiskSpace;
use crate::base::time::{Instant, Now, Wall};
use crate::base::wire::{self, PROTOCOL_VERSION};
use crate::leases::{OnDisconnect, SessionId};
use crate::replica::call::{Call, CallId, Reply, Status};
use crate::replica::{
    AgreedConfig, Checkpoint, Effect, Event, LocalConfig, Message, Record, Replica, ReplicaConfig,
};
use geolock_api::names::{ClusterId, DcId, DcSet, Position};

const MEMBERS: u8 = 3;
/// Most steps of one run.
const MAX_STEPS: u64 = 2_000;
/// Most effects of one step: far above what so few locks, keys and clients can cause.
const MAX_EFFECTS: usize = 5_000;
/// Most messages in transit on a link; further ones are treated as lost with the link.
const MAX_UNDER_WAY: usize = 2_000;
/// Most ticks at one point in time until nothing is left to do.
const MAX_TICKS: usize = 1_000;

/// The data written and sent in runs without forged messages.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Harvest {
    pub messages: Vec<Message>,
    pub records: Vec<Record>,
    pub checkpoints: Vec<Checkpoint>,
}

#[cfg(test)]
pub(super) fn harvest() -> Harvest {
    let mut harvest = Harvest::default();
    for round in 0..200_u64 {
        let bytes: Vec<u8> = (0..400)
            .map(|at| (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 57)) as u8 ^ at as u8)
            .collect();
        let mut world = World::new(Choices::new(&bytes));
        while !world.choices.is_over() {
            world.call();
            world.call();
            world.run_until_quiet();
            world.millis += 100;
            (0..MEMBERS).for_each(|id| world.tick(id));
        }
        (0..MEMBERS).for_each(|id| world.handle(id, Event::Checkpoint));
        harvest.messages.append(&mut world.seen);
        for node in world.nodes {
            harvest.records.extend(node.records.into_iter().map(|(_, record)| record));
            harvest.checkpoints.extend(node.checkpoint);
        }
    }
    harvest
}

struct Node {
    replica: Replica,
    records: Vec<(Position, Record)>,
    durable: usize,
    checkpoint: Option<Checkpoint>,
    client: Client,
    status: Option<Box<Status>>,
}

struct World<'a> {
    choices: Choices<'a>,
    /// Datacenters compare hashes.
    compares: bool,
    nodes: Vec<Node>,
    links: BTreeMap<(u8, u8), VecDeque<Message>>,
    /// Some sent messages, to be repeated or damaged.
    seen: Vec<Message>,
    millis: u64,
    wall_ahead: u64,
    tag: u64,
    happened: Happened,
}

/// Runs the events that these bytes choose.
///
/// # Panics
/// If an assertion fails.
pub fn sequence(data: &[u8]) -> Happened {
    let mut world = World::new(Choices::new(data));
    while !world.choices.is_over() && world.happened.steps < MAX_STEPS {
        world.happen();
    }
    world.calm_down();
    for node in 0..MEMBERS {
        let status = world.status(node);
        world.happened.applied += status.counts.entries_applied;
        world.happened.state_transfers_received += status.counts.state_transfers_received;
        world.happened.commits += status.counts.commits;
    }
    world.happened
}

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

/// Starts a datacenter. Unless it `compares`, forged entries are not detected by their hashes: with two
/// histories nothing else would happen.
fn start(
    id: u8,
    now: Now,
    checkpoint: Option<Checkpoint>,
    records: Vec<(Position, Record)>,
    compares: bool,
) -> Replica {
    let members: DcSet = (0..MEMBERS).map(dc).collect();
    let agreed = AgreedConfig::new(ClusterId::of("fuzz"), members);
    // The log limit is so small that members that are away are given up.
    let local = LocalConfig {
        max_log: 4_000,
        kept_decisions: 2,
        link_window: 8,
        max_leases: 16,
        max_held: 64,
        max_names_per_client: 1_500,
        ..LocalConfig::default()
    };
    let bugs = if compares { Bugs::default() } else { Bugs::one(Bug::ForksNotCompared) };
    let config = ReplicaConfig { bugs, ..ReplicaConfig::new(dc(id), agreed, local) };
    Replica::recover(config, now, checkpoint, records).expect("what was written can be read again")
}

impl<'a> World<'a> {
    fn new(mut choices: Choices<'a>) -> World<'a> {
        let compares = choices.one_in(4);
        let mut world = World {
            choices,
            compares,
            nodes: Vec::new(),
            links: BTreeMap::new(),
            seen: Vec::new(),
            millis: 1_000,
            wall_ahead: 0,
            tag: 0,
            happened: Happened::default(),
        };
        for id in 0..MEMBERS {
            world.nodes.push(Node {
                replica: start(id, world.now(), None, Vec::new(), compares),
                records: Vec::new(),
                durable: 0,
                checkpoint: None,
                client: Client::default(),
                status: None,
            });
        }
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            world.link(a, b);
        }
        world.run_until_quiet();
        for id in 0..MEMBERS {
            for session in 0..2 {
                world.open_lease(id, SessionId(session));
            }
        }
        world.run_until_quiet();
        world
    }

    fn open_lease(&mut self, id: u8, session: SessionId) {
        let (ttl, on_disconnect) = (Duration::from_secs(30), OnDisconnect::Keep);
        self.tag += 1;
        let call = CallId { session, tag: self.tag };
        self.handle(id, by_client(call, Call::OpenLease { secret: SECRET, ttl: Some(ttl), on_disconnect }));
    }

    fn now(&self) -> Now {
        let mono = Instant::ZERO + Duration::from_millis(self.millis);
        Now { mono, wall: Wall(1_700_000_000_000 + self.millis + self.wall_ahead) }
    }

    fn node(&mut self) -> u8 {
        // Most events happen at the target of forged messages.
        if self.choices.one_in(2) { 0 } else { self.choices.below(MEMBERS.into()) as u8 }
    }

    fn pair(&mut self) -> (u8, u8) {
        self.choices.pick(&[(1, 0), (2, 0), (0, 1), (0, 2), (1, 2), (2, 1)])
    }

    /// Makes one event, or a few.
    fn happen(&mut self) {
        self.happened.steps += 1;
        match self.choices.below(32) {
            0..=6 => {
                let (from, to) = self.pair();
                self.deliver(from, to);
            }
            7 => {
                self.run_until_quiet();
            }
            8 | 9 => {
                let node = self.node();
                self.sync(node);
            }
            10 => self.pass(),
            11..=17 => self.call(),
            18..=22 => self.forge(),
            23 | 24 => self.send_again(),
            25 if self.choices.one_in(2) => {
                let (a, b) = self.pair();
                if self.links.contains_key(&(a, b)) { self.cut(a, b) } else { self.link(a, b) }
            }
            26 if self.choices.one_in(3) => self.restart(),
            27 => {
                let node = self.node();
                self.handle(node, Event::Checkpoint);
            }
            28 => {
                use DiskSpace::{Enough, Full, Low};
                let room = self.choices.pick(&[Enough, Enough, Enough, Low, Full]);
                let node = self.node();
                self.handle(node, Event::Disk { room });
            }
            29 => {
                let (node, session) = (self.node(), SessionId(self.choices.below(2) as u64));
                self.handle(node, Event::SessionClosed { session });
            }
            30 if self.choices.one_in(16) => {
                let node = self.node();
                self.handle(node, Event::Drain);
            }
            _ => {
                let (from, to) = self.pair();
                if self.links.contains_key(&(from, to)) {
                    let messages = self.choices.number(1) as usize;
                    self.handle(from, Event::Flushed { peer: dc(to), messages, batches: messages / 2 });
                }
            }
        }
    }

    fn handle(&mut self, id: u8, event: Event) {
        let now = self.now();
        self.nodes[usize::from(id)].replica.handle(now, event);
        let (mut effects, mut closed) = (0, Vec::new());
        while let Some(effect) = self.nodes[usize::from(id)].replica.poll_effect() {
            effects += 1;
            assert!(effects <= MAX_EFFECTS, "one event has more than {MAX_EFFECTS} effects");
            if let Effect::CloseLink { peer, .. } = &effect {
                closed.push(peer.get());
            }
            self.perform(id, effect);
        }
        self.nodes[usize::from(id)].replica.check();
        closed.into_iter().for_each(|peer| self.cut(id, peer));
    }

    fn perform(&mut self, id: u8, effect: Effect) {
        let node = &mut self.nodes[usize::from(id)];
        match effect {
            Effect::Persist { position, record } => {
                let bytes = wire::encode("record", &record).expect("every record fits a frame");
                let again: Record = wire::decode("record", &bytes).expect("its own bytes");
                assert_eq!(again, record, "a record is read as it was written");
                node.records.push((position, record));
            }
            Effect::Send { peer, message } => {
                // The machine may send on a link that is down until it is told so.
                let Some(link) = self.links.get_mut(&(id, peer.get())) else { return };
                if self.seen.len() < 64 {
                    self.seen.push(message.clone());
                }
                if link.len() < MAX_UNDER_WAY {
                    link.push_back(message);
                }
            }
            Effect::Reply { call, reply } => self.note_reply(id, call, reply),
            Effect::Notify { .. } | Effect::Report(_) | Effect::Propose(_) => {}
            Effect::CloseLink { .. } => self.happened.refused += 1,
            Effect::Checkpoint(checkpoint) => {
                let bytes = checkpoint.encode().expect("it is small");
                let again = Checkpoint::decode(&bytes).expect("its own bytes");
                assert_eq!(again, *checkpoint, "a checkpoint is read as it was written");
                self.happened.checkpoints += 1;
                node.checkpoint = Some(*checkpoint);
            }
        }
    }

    fn note_reply(&mut self, id: u8, _: CallId, reply: Reply) {
        let node = &mut self.nodes[usize::from(id)];
        match reply {
            Reply::LeaseOpened { lease, .. } => node.client.leases.push(lease),
            Reply::Granted(grant) => {
                self.happened.grants += 1;
                node.client.granted.push((grant.request, grant.token));
            }
            Reply::ForceReleased(outcome) => self.happened.forced += outcome.taken.len() as u64,
            Reply::Status(status) => node.status = Some(status),
            _ => {}
        }
    }

    fn call(&mut self) {
        let id = self.node();
        let session = SessionId(self.choices.below(2) as u64);
        self.tag += 1;
        let client = &self.nodes[usize::from(id)].client;
        let request = client.call(MEMBERS, self.tag, &mut self.choices);
        self.handle(id, by_client(CallId { session, tag: self.tag }, request));
    }

    fn status(&mut self, id: u8) -> Box<Status> {
        let call = CallId { session: SessionId(99), tag: 0 };
        self.handle(id, by_client(call, Call::Status));
        let node = &mut self.nodes[usize::from(id)];
        let status = node.status.take().expect("a status is answered at once");
        node.client.applied = status.applied.clone();
        status
    }

    /// Sends a forged message to datacenter 0 in the name of another one.
    fn forge(&mut self) {
        let from = 1 + self.choices.below(2) as u8;
        if !self.links.contains_key(&(from, 0)) {
            return self.link(from, 0);
        }
        let status = self.status(0);
        let known = Known {
            cluster: ClusterId::of("fuzz"),
            members: MEMBERS,
            applied: status.applied,
            millis: self.now().wall.0,
            n: self.tag,
        };
        let message = known.message(dc(from), &mut self.choices);
        let bytes = wire::encode("message", &message).expect("it is small");
        // A message that does not decode never reaches a datacenter.
        if let Ok(message) = wire::decode("message", &bytes) {
            self.happened.forged += 1;
            self.handle(0, Event::Received { peer: dc(from), message });
        }
    }

    /// Sends an earlier message again, possibly damaged, on any link.
    fn send_again(&mut self) {
        let (from, to) = self.pair();
        if self.seen.is_empty() || !self.links.contains_key(&(from, to)) {
            return;
        }
        let index = self.choices.below(self.seen.len());
        let mut bytes = wire::encode("message", &self.seen[index]).expect("it was sent");
        for _ in 0..self.choices.below(4) {
            let place = self.choices.below(bytes.len().min(1 << 16));
            bytes[place] = self.choices.byte();
        }
        if let Ok(message) = wire::decode("message", &bytes) {
            self.happened.damaged += 1;
            self.handle(to, Event::Received { peer: dc(from), message });
        }
    }

    fn deliver(&mut self, from: u8, to: u8) -> bool {
        let message = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        let Some(message) = message else { return false };
        self.happened.delivered += 1;
        let batches = usize::from(matches!(message, Message::Entries(_)));
        self.handle(from, Event::Flushed { peer: dc(to), messages: 1, batches });
        self.handle(to, Event::Received { peer: dc(from), message });
        true
    }

    fn sync(&mut self, id: u8) {
        let node = &mut self.nodes[usize::from(id)];
        node.durable = node.records.len();
        if let Some(position) = node.records.last().map(|(position, _)| *position) {
            self.handle(id, Event::Durable { position });
        }
    }

    fn link(&mut self, a: u8, b: u8) {
        self.links.insert((a, b), VecDeque::new());
        self.links.insert((b, a), VecDeque::new());
        self.handle(a, Event::LinkUp { peer: dc(b), version: PROTOCOL_VERSION });
        // The first side may have refused the link already.
        if self.links.contains_key(&(b, a)) {
            self.handle(b, Event::LinkUp { peer: dc(a), version: PROTOCOL_VERSION });
        }
    }

    fn cut(&mut self, a: u8, b: u8) {
        for (from, to) in [(a, b), (b, a)] {
            if self.links.remove(&(from, to)).is_some() {
                self.handle(from, Event::LinkDown { peer: dc(to) });
            }
        }
    }

    /// Syncs and delivers, including follow-up messages, for a bounded number of rounds: two datacenters that
    /// received forged messages may have much to send. Returns true if nothing is left to deliver.
    fn run_until_quiet(&mut self) -> bool {
        for _ in 0..8 {
            (0..MEMBERS).for_each(|id| self.sync(id));
            let links: Vec<(u8, u8)> = self.links.keys().copied().collect();
            let mut delivered = false;
            for (from, to) in links {
                let under_way = self.links.get(&(from, to)).map_or(0, VecDeque::len);
                delivered |= (0..under_way).any(|_| self.deliver(from, to));
            }
            if !delivered {
                return true;
            }
        }
        false
    }

    fn pass(&mut self) {
        let (millis, jump) = (self.choices.pick(&[1, 50, 300, 1_100, 4_000, 40_000]), self.choices.byte());
        self.millis += millis;
        if jump > 250 {
            self.wall_ahead += 1_000 * u64::from(jump);
        }
        (0..MEMBERS).for_each(|id| self.tick(id));
    }

    /// Ticks until nothing is left to do at this time.
    fn tick(&mut self, id: u8) {
        for _ in 0..MAX_TICKS {
            self.handle(id, Event::Tick);
            let now = self.now().mono;
            if self.nodes[usize::from(id)].replica.next_deadline() > now {
                return;
            }
        }
        panic!("dc{id} has something to do at the same time for ever");
    }

    /// Kills one datacenter, which keeps its synced records and possibly more.
    fn restart(&mut self) {
        let id = self.node();
        for other in (0..MEMBERS).filter(|other| *other != id) {
            self.links.remove(&(id, other));
            if self.links.remove(&(other, id)).is_some() {
                self.handle(other, Event::LinkDown { peer: dc(id) });
            }
        }
        let keep_all = self.choices.one_in(2);
        let now = self.now();
        let node = &mut self.nodes[usize::from(id)];
        if !keep_all {
            node.records.truncate(node.durable);
        }
        let last = node.records.last().map_or(Position(0), |(position, _)| *position);
        let checkpoint = node.checkpoint.take_if(|checkpoint| checkpoint.position > last);
        // A checkpoint that covers lost records was never durable.
        drop(checkpoint);
        node.durable = node.records.len();
        let checkpoint = node.checkpoint.clone();
        let from = checkpoint.as_ref().map_or(Position(0), |checkpoint| checkpoint.position);
        let after = node.records.iter().filter(|(position, _)| *position > from).cloned().collect();
        node.replica = start(id, now, checkpoint, after, self.compares);
        // An operator chooses this directory, if forged entries have made two histories.
        let _lacks_decisions = node.replica.resolve_fork();
        self.happened.restarts += 1;
        self.tick(id);
    }

    /// Ends all input: each datacenter has less and less to do, until only timers are left.
    fn calm_down(&mut self) {
        let mut quiet = false;
        for _ in 0..20 {
            self.millis += 400;
            (0..MEMBERS).for_each(|id| self.tick(id));
            quiet = self.run_until_quiet();
        }
        assert!(quiet, "they never stop talking");
    }
}
