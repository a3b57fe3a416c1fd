//! A cluster in one thread: effects are performed when the story says so.

use super::terms::is_difference;
use crate::base::bugs::{Bug, Bugs};
use crate::base::capacity::DiskSpace;
use crate::base::time::{Instant, Now, Wall};
use crate::base::wire::PROTOCOL_VERSION;
use crate::base::work;
use crate::causal_log::{Op, Violation, Wants};
use crate::leases::{ClientId, OnDisconnect, Proof, SessionId};
use crate::lock_state::{HoldPolicy, HoldRule};
use crate::membership::{Address, AgreedOptions, Founder, Founding, MemberName, Policy, Proposal, ServerId};
use crate::replica::call::{Acquire, Call, CallId, Grant, LockRequest, Refusal, Reply, Target, Wait};
use crate::replica::{
    AgreedConfig, BucketPattern, Checkpoint, Effect, Event, Inspect, LocalConfig, Message, Notice, Position,
    Record, Replica, ReplicaConfig, Report,
};
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, RequestId, Secret};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

/// Returns the decision that founds the cluster of a story with so many members, which all vote.
pub fn founding(size: u8) -> Founding {
    let founder = |dc: DcId| Founder {
        dc,
        server: server(dc),
        name: MemberName::new(&dc.to_string()).expect("a short name"),
        address: Address::new(&format!("{dc}:1")).expect("a host and a port"),
        votes: true,
    };
    Founding {
        cluster: ClusterId::of("stories"),
        founders: (0..size).map(dc).map(founder).collect(),
        policy: Policy::default(),
        options: AgreedOptions::default(),
        version: PROTOCOL_VERSION,
    }
}

/// Returns the server id of a datacenter in stories.
fn server(dc: DcId) -> ServerId {
    ServerId([dc.get() + 1; 16])
}

/// Returns the lock that a story calls so: `a`, or `a@1` with the home dc1.
pub fn name(lock: &str) -> LockName {
    let (bytes, home) = match lock.split_once('@') {
        Some((bytes, home)) => (bytes, Some(dc(home.parse().expect("a number")))),
        None => (lock, None),
    };
    LockName::with_home(home, bytes.as_bytes()).expect("a valid name")
}

/// Returns a message as the link between these two has it, which speaks the lower version of both.
fn in_version(old: &BTreeMap<u8, u16>, ends: [DcId; 2], message: Message) -> Message {
    let Some(version) = ends.iter().filter_map(|end| old.get(&end.get())).min() else { return message };
    let locks = match &message {
        Message::AskHolders { locks, .. } => locks.clone(),
        Message::Entries(entries) => {
            let ops = entries.iter().flat_map(|entry| &entry.ops);
            ops.flat_map(|op| match op {
                Op::Request { wants, .. } => wants.locks().iter().map(|(lock, _)| lock.clone()).collect(),
                Op::Transfer { parts, .. } | Op::Keep { parts } => {
                    parts.iter().map(|moved| moved.lock.clone()).collect()
                }
                _ => Vec::new(),
            })
            .collect()
        }
        _ => Vec::new(),
    };
    assert!(locks.iter().all(|lock| lock.home().is_none()), "version {version} cannot read {locks:?}");
    message.for_version(*version).unwrap_or(message)
}

pub struct Node {
    pub replica: Replica,
    pub records: Vec<(Position, Record)>,
    pub replies: BTreeMap<u64, Reply>,
    pub notices: Vec<Notice>,
    pub violations: Vec<Violation>,
    pub lease: Option<LeaseId>,
    /// The last one that the story asked for.
    pub checkpoint: Option<Checkpoint>,
    /// Its disk makes nothing durable.
    pub disk_is_stuck: bool,
}

/// The cluster of a story. Time stands still unless the story advances it.
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub now: u64,
    /// How far wall clocks are ahead, or behind (negative), in milliseconds.
    pub ahead: BTreeMap<u8, i64>,
    /// Messages in flight, per link in order.
    pub wires: BTreeMap<(DcId, DcId), VecDeque<Message>>,
    pub sent: usize,
    /// Messages that stay in flight while all others arrive.
    pub late: fn(&Message) -> bool,
    pub reports: Vec<Report>,
    /// The proposals of the datacenters to the control group.
    pub proposed: Vec<Proposal>,
    /// The deliberate bug of datacenters that start from now on.
    pub bug: Option<Bug>,
    /// The most work that a step of any datacenter did.
    pub most_work: u64,
    /// The story checks the invariants itself: its state is so large that it takes minutes after each event.
    pub checks_itself: bool,
    /// The protocol version of links that come up from now on.
    pub version: u16,
    /// Of datacenters that start from now on.
    pub majority_buckets: Vec<BucketPattern>,
    /// Datacenters that speak an older version of the protocol.
    pub old: BTreeMap<u8, u16>,
    /// The client of all calls from now on.
    pub client: ClientId,
    tag: u64,
    /// Datacenters that start from now on take part in a control group.
    pub has_control_group: bool,
    /// The options of datacenters that start from now on.
    pub local: LocalConfig,
}

pub const SECRET: Secret = Secret::new([7; 16]);

impl Cluster {
    /// Returns read access to the state of a node.
    pub fn inspect(&self, node: usize) -> Inspect<'_> {
        self.nodes[node].replica.inspect()
    }

    /// Returns a cluster whose datacenters are all started, linked and serving; each has a client with a
    /// lease.
    pub fn new(size: u8, min_keep_ms: u64, max_keep_ms: u64) -> Cluster {
        Cluster::with_log(size, (min_keep_ms, max_keep_ms), 256 << 20)
    }

    /// The same; members are given up when entries of `max_log` bytes are kept for them.
    pub fn with_log(size: u8, hold_ms: (u64, u64), max_log: usize) -> Cluster {
        Cluster::build(size, hold_ms, max_log, (BTreeMap::new(), None))
    }

    /// The same with datacenters that speak an older version, and a deliberate bug of all.
    pub fn with_old(size: u8, old: BTreeMap<u8, u16>, bug: Option<Bug>) -> Cluster {
        Cluster::build(size, (0, 0), 256 << 20, (old, bug))
    }

    /// All of this.
    pub fn build(
        size: u8,
        (min_keep_ms, max_keep_ms): (u64, u64),
        max_log: usize,
        (old, bug): (BTreeMap<u8, u16>, Option<Bug>),
    ) -> Cluster {
        let policy = HoldPolicy::Fixed {
            min_keep: Duration::from_millis(min_keep_ms),
            max_keep: Duration::from_millis(max_keep_ms),
        };
        let hold = vec![HoldRule { policy, ..HoldRule::default() }];
        Cluster::built(size, LocalConfig { hold, max_log, ..LocalConfig::default() }, (old, bug))
    }

    /// The same with these options.
    pub fn with_options(size: u8, local: LocalConfig) -> Cluster {
        Cluster::built(size, local, (BTreeMap::new(), None))
    }

    fn built(size: u8, local: LocalConfig, (old, bug): (BTreeMap<u8, u16>, Option<Bug>)) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            now: 1_000,
            ahead: BTreeMap::new(),
            wires: BTreeMap::new(),
            sent: 0,
            late: |_| false,
            reports: Vec::new(),
            proposed: Vec::new(),
            bug,
            most_work: 0,
            checks_itself: false,
            version: PROTOCOL_VERSION,
            majority_buckets: Vec::new(),
            old,
            client: ClientId(1),
            tag: 0,
            has_control_group: false,
            local,
        };
        let members: DcSet = (0..size).map(dc).collect();
        for id in 0..size {
            let replica = cluster.start(dc(id), members, None, Vec::new());
            cluster.nodes.push(Node {
                replica,
                records: Vec::new(),
                replies: BTreeMap::new(),
                notices: Vec::new(),
                violations: Vec::new(),
                lease: None,
                checkpoint: None,
                disk_is_stuck: false,
            });
        }
        for a in 0..size {
            for b in a + 1..size {
                cluster.link(a, b);
            }
        }
        cluster.run();
        for id in 0..size {
            cluster.open_lease(id, Duration::from_secs(10));
        }
        cluster
    }

    fn start(
        &self,
        me: DcId,
        members: DcSet,
        checkpoint: Option<Checkpoint>,
        records: Vec<(Position, Record)>,
    ) -> Replica {
        let agreed = AgreedConfig::new(ClusterId::of("stories"), members);
        let local = LocalConfig { majority_buckets: self.majority_buckets.clone(), ..self.local.clone() };
        let mut config = ReplicaConfig::new(me, agreed, local);
        config.server = server(me);
        config.has_control_group = self.has_control_group;
        config.bugs = self.bug.map(Bugs::one).unwrap_or_default();
        Replica::recover(config, self.clock(me.get()), checkpoint, records).expect("its own records are fine")
    }

    pub fn clock(&self, id: u8) -> Now {
        Now {
            mono: Instant::ZERO + Duration::from_millis(self.now),
            wall: Wall(
                (1_700_000_000_000 + self.now)
                    .saturating_add_signed(self.ahead.get(&id).copied().unwrap_or(0)),
            ),
        }
    }

    /// Applies an event and performs the effects; the disk is not synced yet.
    pub fn handle(&mut self, id: u8, event: Event) {
        let now = self.clock(id);
        let node = &mut self.nodes[usize::from(id)];
        work::take();
        node.replica.handle(now, event);
        let looked_at = work::take();
        assert!(looked_at <= work::MAX_PER_STEP, "dc{id} looked at {looked_at} things in one step");
        self.most_work = self.most_work.max(looked_at);
        while let Some(effect) = node.replica.poll_effect() {
            match effect {
                Effect::Persist { position, record } => {
                    assert_eq!(position.0, node.records.len() as u64 + 1, "positions have no gaps");
                    node.records.push((position, record));
                }
                Effect::Send { peer, message } => {
                    let message = in_version(&self.old, [dc(id), peer], message);
                    self.sent += usize::from(!matches!(message, Message::Heartbeat(_)));
                    let wire = self.wires.get_mut(&(dc(id), peer)).expect("sends go to links that are up");
                    wire.push_back(message);
                }
                Effect::Reply { call, reply } => {
                    let before = node.replies.insert(call.tag, reply);
                    assert_eq!(before, None, "a call is answered once");
                }
                Effect::Notify { notice, .. } => node.notices.push(notice),
                Effect::CloseLink { peer, violation } => {
                    node.violations.push(violation);
                    self.wires.remove(&(dc(id), peer));
                }
                Effect::Checkpoint(checkpoint) => node.checkpoint = Some(*checkpoint),
                Effect::Report(report) => self.reports.extend(Some(report).filter(is_difference)),
                Effect::Propose(proposal) => self.proposed.push(*proposal),
            }
        }
        if !self.checks_itself {
            node.replica.check();
        }
    }

    pub fn sync(&mut self, id: u8) {
        let node = &self.nodes[usize::from(id)];
        if !node.disk_is_stuck {
            let position = Position(node.records.len() as u64);
            self.handle(id, Event::Durable { position });
            // Durable records are processed in portions.
            while self.nodes[usize::from(id)].replica.out.has_more_durable() {
                self.handle(id, Event::Tick);
            }
        }
    }

    pub fn room(&mut self, id: u8, room: DiskSpace) {
        self.handle(id, Event::Disk { room });
    }

    pub fn link(&mut self, a: u8, b: u8) {
        for (from, to) in [(a, b), (b, a)] {
            self.wires.insert((dc(from), dc(to)), VecDeque::new());
        }
        self.handle(a, Event::LinkUp { peer: dc(b), version: self.version });
        self.handle(b, Event::LinkUp { peer: dc(a), version: self.version });
    }

    pub fn cut(&mut self, a: u8, b: u8) {
        for (from, to) in [(a, b), (b, a)] {
            self.wires.remove(&(dc(from), dc(to)));
            self.handle(from, Event::LinkDown { peer: dc(to) });
        }
    }

    /// Delivers one message, if there is one. Returns true if it did.
    pub fn deliver(&mut self, from: u8, to: u8) -> bool {
        let late = self.late;
        let may_arrive = |message: &Message| !late(message);
        let Some(wire) = self.wires.get_mut(&(dc(from), dc(to))) else { return false };
        let Some(message) = wire.iter().position(may_arrive).and_then(|next| wire.remove(next)) else {
            return false;
        };
        let batches = usize::from(matches!(message, Message::Entries(_)));
        self.handle(from, Event::Flushed { peer: dc(to), messages: 1, batches });
        self.handle(to, Event::Received { peer: dc(from), message });
        true
    }

    /// Syncs and delivers everything, and all that follows from it, while time stands still.
    pub fn run(&mut self) {
        loop {
            for id in 0..self.nodes.len() as u8 {
                self.sync(id);
            }
            let is_node = |link: &(DcId, DcId)| link.1.index() < self.nodes.len();
            let links: Vec<_> = self.wires.keys().copied().filter(is_node).collect();
            let mut delivered = false;
            for (from, to) in links {
                while self.deliver(from.get(), to.get()) {
                    delivered = true;
                }
            }
            if !delivered {
                return;
            }
        }
    }

    /// Advances time; fires deadlines on the way and delivers everything.
    pub fn pass(&mut self, millis: u64) {
        let until = self.now + millis;
        while self.now < until {
            let deadlines = self.nodes.iter().map(|node| node.replica.next_deadline());
            let next = deadlines.map(|at| at.as_nanos().div_ceil(1_000_000)).min().unwrap_or(until);
            self.now = next.clamp(self.now + 1, until);
            for id in 0..self.nodes.len() as u8 {
                self.handle(id, Event::Tick);
            }
            self.run();
        }
    }

    /// Cuts all links of a datacenter.
    pub fn isolate(&mut self, id: u8) {
        (0..self.nodes.len() as u8).filter(|other| *other != id).for_each(|other| self.cut(id, other));
        self.run();
    }

    /// Links a datacenter to all others that it has no link to.
    pub fn link_again(&mut self, id: u8) {
        let is_linked = |other: &u8| self.wires.contains_key(&(dc(id), dc(*other)));
        let others = (0..self.nodes.len() as u8).filter(|other| *other != id && !is_linked(other));
        others.collect::<Vec<_>>().into_iter().for_each(|other| self.link(id, other));
        self.run();
    }

    /// Kills a datacenter, which keeps the first `keep` of its records, and starts it again.
    pub fn crash(&mut self, id: u8, keep: usize) {
        self.nodes[usize::from(id)].records.truncate(keep);
        self.start_again(id, None);
    }

    /// The same, but it keeps all records.
    pub fn restart(&mut self, id: u8) {
        self.start_again(id, None);
    }

    /// The same, from a checkpoint and the records after it.
    pub fn restart_from(&mut self, id: u8, checkpoint: Checkpoint) {
        self.start_again(id, Some(checkpoint));
        self.nodes[usize::from(id)].replica.check();
    }

    fn start_again(&mut self, id: u8, checkpoint: Option<Checkpoint>) {
        for other in 0..self.nodes.len() as u8 {
            if self.wires.remove(&(dc(id), dc(other))).is_some() {
                self.wires.remove(&(dc(other), dc(id)));
                self.handle(other, Event::LinkDown { peer: dc(id) });
            }
        }
        let members: DcSet = (0..self.nodes.len() as u8).map(dc).collect();
        let from = checkpoint.as_ref().map_or(Position(0), |checkpoint| checkpoint.position);
        let records = self.nodes[usize::from(id)].records.iter();
        let after = records.filter(|(position, _)| *position > from).cloned().collect();
        let replica = self.start(dc(id), members, checkpoint, after);
        let node = &mut self.nodes[usize::from(id)];
        node.replica = replica;
        node.replies.clear();
    }

    pub fn call(&mut self, id: u8, request: Call) -> u64 {
        self.tag += 1;
        let call = CallId { session: SessionId(u64::from(id)), tag: self.tag };
        self.handle(id, Event::Client { call, client: self.client, request });
        self.tag
    }

    pub fn open_lease(&mut self, id: u8, ttl: Duration) {
        let tag = self
            .call(id, Call::OpenLease { secret: SECRET, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep });
        self.sync(id);
        let Some(Reply::LeaseOpened { lease, .. }) = self.reply(id, tag) else {
            panic!("no lease at dc{id}")
        };
        self.nodes[usize::from(id)].lease = Some(lease);
    }

    pub fn lease(&self, id: u8) -> LeaseId {
        self.nodes[usize::from(id)].lease.expect("a lease was opened")
    }

    pub fn acquire(&mut self, id: u8, locks: &[(&str, Mode)], wait: Wait) -> u64 {
        self.acquire_as(id, None, locks, wait)
    }

    /// Acquires locks under an idempotency key.
    pub fn acquire_as(&mut self, id: u8, key: Option<u64>, locks: &[(&str, Mode)], wait: Wait) -> u64 {
        let wants = Wants::all(locks.iter().map(|(lock, mode)| (name(lock), *mode)).collect());
        let acquire = Acquire {
            lease: self.lease(id),
            proof: Proof::Attached,
            key,
            request: LockRequest {
                wants: wants.expect("a story asks for valid locks"),
                wait,
                label: Arc::from("a story"),
            },
        };
        self.call(id, Call::Acquire(acquire))
    }

    /// Acquires one exclusive lock, without a timeout.
    pub fn lock(&mut self, id: u8, lock: &str) -> u64 {
        self.acquire(id, &[(lock, Mode::Exclusive)], Wait::Forever)
    }

    /// Acquires one shared lock, without a timeout.
    pub fn share(&mut self, id: u8, lock: &str) -> u64 {
        self.acquire(id, &[(lock, Mode::Shared)], Wait::Forever)
    }

    pub fn release(&mut self, id: u8, request: RequestId) -> u64 {
        let lease = self.lease(id);
        self.call(id, Call::Release { lease, proof: Proof::Attached, target: Target::Id(request) })
    }

    /// Acquires a lock, receives the grant while time stands still, and releases it.
    pub fn use_lock(&mut self, id: u8, lock: &str) {
        let tag = self.lock(id, lock);
        self.run();
        let grant = self.granted(id, tag);
        self.release(id, grant.request);
    }

    pub fn reply(&self, id: u8, tag: u64) -> Option<Reply> {
        self.nodes[usize::from(id)].replies.get(&tag).cloned()
    }

    pub fn is_answered(&self, id: u8, tag: u64) -> bool {
        self.reply(id, tag).is_some()
    }

    pub fn granted(&self, id: u8, tag: u64) -> Grant {
        match self.reply(id, tag) {
            Some(Reply::Granted(grant)) => grant,
            other => panic!("call {tag} at dc{id} is not granted but {other:?}"),
        }
    }

    pub fn refused(&self, id: u8, tag: u64) -> Refusal {
        match self.reply(id, tag) {
            Some(Reply::Refused(refusal)) => refusal,
            other => panic!("call {tag} at dc{id} is not refused but {other:?}"),
        }
    }
}
