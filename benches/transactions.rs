//! Transactions in the core alone, no IO: the cost of data beside that of a lock.
//!
//! One datacenter, 1 000 keys and locks it owns; the journal is durable after every 64 calls, as with group
//! commit. The baseline in the same run is an acquire and release of an owned lock. Printed: operations per
//! second and the ratio of their time to the baseline's. Then the same unlocked commit while 1 000 000 other
//! keys exist, while an old snapshot is open, and on a set of 10 000 elements: the cost of a commit depends
//! on none of them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use geolock::base::time::{Instant, Now, Wall};
use geolock::causal_log::{Action, Change, Wants};
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::replica::call::store::{AtLeast, Begin, Durability, NextStep, Read, Step, Then, TxnState};
use geolock::replica::call::{Acquire, Call, CallId, LockRequest, Reply, Target, Wait};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Position, Replica, ReplicaConfig};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, Secret};
use geolock_api::value::{Op, SetOp, Update};

const WORKING_SET: usize = 1_000;
const CALLS: u64 = 300_000;
const BATCH: u64 = 64;

struct Bench {
    replica: Replica,
    now: u64,
    position: Position,
    lease: LeaseId,
    key: u64,
    calls: u64,
    last: Option<Reply>,
    wants: Vec<Wants>,
    keys: Vec<Key>,
}

fn key(name: &str) -> Key {
    Key::new(b"bench", name.as_bytes()).expect("a valid key")
}

impl Bench {
    fn new() -> Bench {
        let dc = DcId::new(0).expect("0 is an id");
        let agreed = AgreedConfig::new(ClusterId::of("bench"), DcSet::only(dc));
        let local = LocalConfig { hash_seed: 0x5eed, ..LocalConfig::default() };
        let now = Now { mono: Instant::ZERO, wall: Wall(1_700_000_000_000) };
        let config = ReplicaConfig::new(dc, agreed, local);
        let replica = Replica::recover(config, now, None, []).expect("an empty start");
        let lock = |i| LockName::try_from(&*format!("tenant/{i}/order")).expect("a valid name");
        let wants = |i| Wants::all(vec![(lock(i), Mode::Exclusive)]).expect("one lock");
        let mut bench = Bench {
            replica,
            now: 0,
            position: Position::default(),
            lease: LeaseId::from_raw(0),
            key: 0,
            calls: 0,
            last: None,
            wants: (0..WORKING_SET).map(wants).collect(),
            keys: (0..WORKING_SET).map(|i| key(&format!("tenant/{i}/total"))).collect(),
        };
        let (secret, ttl) = (Secret::new([1; 16]), Duration::from_secs(60));
        bench.call(Call::OpenLease { secret, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep });
        bench.sync();
        match bench.last.take() {
            Some(Reply::LeaseOpened { lease, .. }) => bench.lease = lease,
            other => panic!("no lease but {other:?}"),
        }
        bench
    }

    fn clock(&self) -> Now {
        Now { mono: Instant::from_nanos(self.now), wall: Wall(1_700_000_000_000 + self.now / 1_000_000) }
    }

    fn call(&mut self, request: Call) {
        self.now += 500;
        self.calls += 1;
        let call = CallId { session: SessionId(1), tag: self.calls };
        self.replica.handle(self.clock(), Event::Client { call, client: ClientId(1), request });
        self.perform();
        if self.calls.is_multiple_of(BATCH) {
            self.sync();
        }
    }

    fn sync(&mut self) {
        if self.position > Position::default() {
            let position = std::mem::take(&mut self.position);
            self.replica.handle(self.clock(), Event::Durable { position });
            self.perform();
        }
    }

    fn perform(&mut self) {
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Persist { position, .. } => self.position = position,
                Effect::Reply { reply, .. } => self.last = Some(reply),
                _ => {}
            }
        }
    }

    fn begin(&mut self, lock: Option<usize>, step: Step) {
        self.key += 1;
        let locks = lock.map(|i| LockRequest {
            wants: self.wants[i % WORKING_SET].clone(),
            wait: Wait::Forever,
            label: Arc::from(""),
        });
        let (lease, proof, at_least) = (self.lease, Proof::Attached, AtLeast::default());
        let acknowledged_through = self.key.saturating_sub(2 * BATCH);
        self.call(Call::Begin(Begin {
            lease,
            proof,
            key: self.key,
            locks,
            at_least,
            acknowledged_through,
            step,
            under: Vec::new(),
        }));
    }

    fn change(&self, i: usize, op: Op) -> Vec<Change> {
        vec![Change { key: self.keys[i % WORKING_SET].clone(), action: Action::Update(Update::of(op)) }]
    }

    fn pair(&mut self, i: usize) {
        self.key += 1;
        let (lease, proof, wants) = (self.lease, Proof::Attached, self.wants[i % WORKING_SET].clone());
        let (key, wait, label) = (Some(self.key), Wait::Forever, Arc::from(""));
        self.call(Call::Acquire(Acquire { lease, proof, key, request: LockRequest { wants, wait, label } }));
        self.call(Call::Release { lease, proof, target: Target::Key(self.key) });
    }

    fn update(&mut self, i: usize) {
        let changes = self.change(i, Op::Counter(1));
        self.begin(None, Step { changes, reads: vec![], then: Then::Commit, durability: Durability::Local });
    }

    fn read(&mut self, i: usize) {
        let reads = vec![self.keys[i % WORKING_SET].clone()];
        self.call(Call::Read(Read { reads, at_least: AtLeast::default() }));
    }

    fn locked_once(&mut self, i: usize) {
        let (changes, reads) = (self.change(i, Op::Counter(1)), vec![self.keys[i % WORKING_SET].clone()]);
        self.begin(Some(i), Step { changes, reads, then: Then::Commit, durability: Durability::Local });
    }

    fn locked_in_steps(&mut self, i: usize) {
        let reads = vec![self.keys[i % WORKING_SET].clone()];
        self.begin(
            Some(i),
            Step { changes: vec![], reads, then: Then::Continue, durability: Durability::Local },
        );
        // The lock may protect a commit that is not durable yet.
        self.sync();
        let changes = self.change(i, Op::Counter(1));
        let step = Step { changes, reads: vec![], then: Then::Commit, durability: Durability::Local };
        self.call(Call::Step(NextStep {
            lease: self.lease,
            proof: Proof::Attached,
            key: self.key,
            after: 0,
            step,
        }));
    }

    fn add_to_set(&mut self, i: usize) {
        let element = format!("{}", i % 10_000).into();
        let op = Op::AddWinsSet(SetOp::Add(vec![element]));
        let changes = vec![Change { key: key("set"), action: Action::Update(Update::of(op)) }];
        self.begin(None, Step { changes, reads: vec![], then: Then::Commit, durability: Durability::Local });
    }

    /// Returns nanoseconds per operation.
    fn run(&mut self, what: fn(&mut Bench, usize)) -> f64 {
        for i in 0..20_000 {
            what(self, i);
        }
        let start = std::time::Instant::now();
        for i in 0..CALLS as usize {
            what(self, i);
        }
        self.sync();
        black_box(&self.last);
        start.elapsed().as_nanos() as f64 / CALLS as f64
    }

    fn assert_committed(&mut self) {
        self.sync();
        match self.last.take() {
            Some(Reply::Stepped(stepped)) if matches!(stepped.state, TxnState::Committed(_)) => {}
            other => panic!("the last transaction is not committed but {other:?}"),
        }
    }
}

fn main() {
    let mut bench = Bench::new();
    let pair = bench.run(Bench::pair);
    let print = |what: &str, nanos: f64| {
        println!("{what:<52} {:>10.0}/s  {:>6.2}x", 1e9 / nanos, nanos / pair);
    };
    print("acquire + release of an owned lock (baseline)", pair);
    print("read", bench.run(Bench::read));
    let update = bench.run(Bench::update);
    bench.assert_committed();
    print("commit of one change, no lock", update);
    print("lock, read, change, commit in one call", bench.run(Bench::locked_once));
    bench.assert_committed();
    print("the same in two calls, a sync between them", bench.run(Bench::locked_in_steps));

    for n in 0..1_000_000 / 1_000 {
        let change = |m| Change {
            key: key(&format!("other/{n}/{m}")),
            action: Action::Update(Update::of(Op::Counter(1))),
        };
        let changes = (0..1_000).map(change).collect();
        bench.begin(None, Step { changes, reads: vec![], then: Then::Commit, durability: Durability::Local });
    }
    print("commit while 1 000 000 other keys exist", bench.run(Bench::update));
    bench.begin(
        None,
        Step { changes: vec![], reads: vec![], then: Then::Continue, durability: Durability::Local },
    );
    print("commit while an old snapshot is open", bench.run(Bench::update));
    print("read while an old snapshot is open", bench.run(Bench::read));
    bench.assert_open();
    print("commit of an element to a set of 10 000", bench.run(Bench::add_to_set));
}

impl Bench {
    fn assert_open(&self) {
        assert_eq!(self.replica.inspect().counts().transactions, 1, "the old snapshot is open still");
    }
}
