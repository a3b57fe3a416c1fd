//! Datacenters in one thread, the core alone: no clock, no disk, no sockets. Messages wait in a queue until
//! the bench delivers them; journaled records are durable as soon as the bench says so.
#![allow(dead_code, reason = "each bench uses a part of it")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use geolock::base::time::{Instant, Now, Wall};
use geolock::base::wire::PROTOCOL_VERSION;
use geolock::causal_log::{Action, Change, Wants};
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::replica::call::store::{AtLeast, Begin, Durability, Step, Then};
use geolock::replica::call::{Acquire, Call, CallId, LockRequest, Reply, Target, Wait};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Message, Replica, ReplicaConfig, Report};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, Position, Secret};
use geolock_api::value::{Op, Update};

/// Longer than any bench lasts in its own time.
const TTL: Duration = Duration::from_secs(3_600);

/// Datacenters without IO. The first one has a client with a lease.
pub struct Replicas {
    pub all: Vec<Replica>,
    /// The time passed, on the bench's own clock.
    pub time: Duration,
    pub last: Option<Reply>,
    /// Duration and kind of each step, if requested.
    pub steps: Option<Vec<(Duration, &'static str)>>,
    /// The datacenter of each of these steps.
    pub measured_by: Vec<usize>,
    /// Messages in transit, by receiver, with the sender.
    pub said: Vec<VecDeque<(usize, Message)>>,
    /// The number of states that a datacenter took from another one.
    pub states_taken: u64,
    positions: Vec<Position>,
    lease: LeaseId,
    calls: u64,
}

impl Replicas {
    /// Creates that many datacenters without links.
    pub fn new(members: u8, local: &LocalConfig) -> Replicas {
        let set: DcSet = (0..members).map(dc).collect();
        // Heartbeats only when a bench lets that much time pass.
        let heartbeat = Duration::from_secs(10);
        let agreed = AgreedConfig { heartbeat, ..AgreedConfig::new(ClusterId::of("bench"), set) };
        let local = LocalConfig { max_lease_ttl: TTL, ..local.clone() };
        let start = |id| {
            let config = ReplicaConfig::new(dc(id), agreed.clone(), local.clone());
            Replica::recover(config, now(Duration::ZERO), None, []).expect("an empty start")
        };
        Replicas {
            all: (0..members).map(start).collect(),
            time: Duration::ZERO,
            last: None,
            steps: None,
            measured_by: Vec::new(),
            said: (0..members).map(|_| VecDeque::new()).collect(),
            states_taken: 0,
            positions: vec![Position(0); members.into()],
            lease: LeaseId::from_raw(0),
            calls: 0,
        }
    }

    /// Measures every step from here on.
    pub fn measure(&mut self) {
        (self.steps, self.measured_by) = (Some(Vec::new()), Vec::new());
    }

    pub fn link(&mut self, a: usize, b: usize) {
        self.handle(a, Event::LinkUp { peer: dc(b as u8), version: PROTOCOL_VERSION });
        self.handle(b, Event::LinkUp { peer: dc(a as u8), version: PROTOCOL_VERSION });
        self.deliver(|_| {});
    }

    /// Cuts all links of one datacenter, and drops messages in transit.
    pub fn cut_off(&mut self, away: usize) {
        for other in (0..self.all.len()).filter(|other| *other != away) {
            self.handle(away, Event::LinkDown { peer: dc(other as u8) });
            self.handle(other, Event::LinkDown { peer: dc(away as u8) });
        }
        self.said[away].clear();
    }

    pub fn handle(&mut self, id: usize, event: Event) {
        let replica = &mut self.all[id];
        match &mut self.steps {
            Some(steps) => {
                let about = about(&event);
                let start = std::time::Instant::now();
                replica.handle(now(self.time), event);
                steps.push((start.elapsed(), about));
                self.measured_by.push(id);
            }
            None => replica.handle(now(self.time), event),
        }
        while let Some(effect) = replica.poll_effect() {
            match effect {
                Effect::Persist { position, .. } => self.positions[id] = position,
                Effect::Send { peer, message } => self.said[peer.index()].push_back((id, message)),
                Effect::Reply { reply, .. } => self.last = Some(reply),
                Effect::Report(Report::StateTaken { .. }) => self.states_taken += 1,
                Effect::Notify { .. } | Effect::Report(_) | Effect::Checkpoint(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Makes all journaled records durable.
    pub fn sync(&mut self) {
        for id in 0..self.all.len() {
            let position = self.positions[id];
            self.handle(id, Event::Durable { position });
        }
    }

    /// Delivers messages until no more are sent.
    pub fn deliver(&mut self, mut look: impl FnMut(&Message)) {
        loop {
            self.sync();
            let mut is_quiet = true;
            for id in 0..self.all.len() {
                while let Some((from, message)) = self.said[id].pop_front() {
                    is_quiet = false;
                    look(&message);
                    let batches = usize::from(matches!(message, Message::Entries(_)));
                    self.handle(from, Event::Flushed { peer: dc(id as u8), messages: 1, batches });
                    self.handle(id, Event::Received { peer: dc(from as u8), message });
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Lets heartbeats pass, so that no entries are kept any more for members that have them.
    pub fn rest(&mut self) {
        for _ in 0..3 {
            self.time += Duration::from_secs(10);
            (0..self.all.len()).for_each(|id| self.handle(id, Event::Tick));
            self.deliver(|_| {});
        }
    }

    pub fn open_lease(&mut self) {
        let secret = Secret::new([7; 16]);
        self.call(Call::OpenLease { secret, ttl: Some(TTL), on_disconnect: OnDisconnect::Keep });
        self.deliver(|_| {});
        let Some(Reply::LeaseOpened { lease, .. }) = self.last.take() else { panic!("no lease was opened") };
        self.lease = lease;
    }

    pub fn call(&mut self, request: Call) {
        self.calls += 1;
        let call = CallId { session: SessionId(1), tag: self.calls };
        self.handle(0, Event::Client { call, client: ClientId(1), request });
    }

    /// Acquires a lock at the first datacenter, also from the others, and releases it.
    pub fn pair(&mut self, lock: &LockName) {
        let wants = Wants::all(vec![(lock.clone(), Mode::Exclusive)]).expect("one lock");
        self.last = None;
        let (lease, key, label) = (self.lease, Some(self.calls), Arc::from(""));
        let request = LockRequest { wants, wait: Wait::Forever, label };
        self.call(Call::Acquire(Acquire { lease, proof: Proof::Attached, key, request }));
        if self.last.is_none() {
            self.deliver(|_| {});
        }
        let Some(Reply::Granted(grant)) = self.last.take() else { panic!("{lock} is not granted") };
        let target = Target::Id(grant.request);
        self.call(Call::Release { lease, proof: Proof::Attached, target });
    }

    /// Commits a change of each of these accounts at the first datacenter.
    pub fn commit(&mut self, accounts: impl Iterator<Item = u64>) {
        let change = |n: u64| Change {
            key: Key::new(b"bench", format!("account/{n}").as_bytes()).expect("a valid key"),
            action: Action::Update(Update::of(Op::Counter(1))),
        };
        let step = Step {
            changes: accounts.map(change).collect(),
            reads: Vec::new(),
            then: Then::Commit,
            durability: Durability::Local,
        };
        let (lease, key) = (self.lease, self.calls);
        let begin = Begin {
            lease,
            proof: Proof::Attached,
            key,
            locks: None,
            at_least: AtLeast::default(),
            acknowledged_through: key - 1,
            step,
            under: Vec::new(),
        };
        self.call(Call::Begin(begin));
    }
}

/// Returns the kind of a step's event in one word.
fn about(event: &Event) -> &'static str {
    match event {
        Event::Tick => "tick",
        Event::Durable { .. } => "durable",
        Event::LinkUp { .. } | Event::LinkDown { .. } => "link",
        Event::Received { message, .. } => match message {
            Message::Entries(_) => "entries",
            Message::Heartbeat(_) => "heartbeat",
            _ => "message",
        },
        Event::Flushed { .. } => "flushed",
        Event::Client { request: Call::Begin(_), .. } => "begin",
        Event::Client { request: Call::Acquire(_), .. } => "acquire",
        Event::Client { .. } => "call",
        Event::Checkpoint => "checkpoint",
        _ => "other",
    }
}

pub fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn now(passed: Duration) -> Now {
    Now { mono: Instant::ZERO + passed, wall: Wall(1_700_000_000_000 + passed.as_millis() as u64) }
}
