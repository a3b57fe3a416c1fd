//! Acquire and release of owned locks while others wait: does the cost of a step depend on what waits elsewhere?
//!
//! One datacenter's core, no IO: a working set of 1 000 locks it owns, while 1, 1 000 and 100 000 other requests
//! wait for other locks. Baseline in the same run: the least that any lock table does, a hash map from name to
//! holder. Aim: above 1 000 000 pairs/s on one core, flat within 1.5x.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use geolock::causal_log::Wants;
use geolock::leases::{OnDisconnect, Proof, SessionId};
use geolock::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, Secret};
use geolock::replica::call::{Acquire, Call, CallId, Reply, Target, Wait};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Position, Replica, ReplicaConfig};
use geolock::time::{Instant, Now, Wall};

const WORKING_SET: usize = 1_000;
const PAIRS: usize = 1_000_000;

struct Bench {
    replica: Replica,
    now: u64,
    position: Position,
    lease: LeaseId,
    wants: Vec<Wants>,
}

fn exclusive(name: &str) -> Wants {
    let name = LockName::try_from(name).expect("a valid name");
    Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock")
}

impl Bench {
    fn new(waiting: usize) -> Bench {
        let dc = DcId::new(0).expect("0 is an id");
        let agreed = AgreedConfig::new(ClusterId::of("bench"), DcSet::only(dc));
        let local = LocalConfig { hash_seed: 0x5eed, ..LocalConfig::default() };
        let config = ReplicaConfig::new(dc, agreed, local);
        let now = Now { mono: Instant::ZERO, wall: Wall(1_700_000_000_000) };
        let replica = Replica::recover(config, now, None, []).expect("an empty start");
        let mut bench = Bench {
            replica,
            now: 0,
            position: Position::default(),
            lease: LeaseId::from_raw(0),
            wants: (0..WORKING_SET).map(|i| exclusive(&format!("tenant/{i}/order"))).collect(),
        };
        for i in 0..waiting {
            if i % 1_000 == 0 {
                bench.open_lease();
            }
            // Every hundredth holds; the others wait behind it.
            bench.acquire(i as u64, &exclusive(&format!("busy/{}", i / 100)), Wait::Forever);
        }
        bench.open_lease();
        bench
    }

    /// The lease of what comes next: clients have one each.
    fn open_lease(&mut self) {
        let open = Call::OpenLease {
            secret: Secret::new([1; 16]),
            ttl: Duration::from_secs(60),
            on_disconnect: OnDisconnect::Keep,
        };
        self.client(0, open);
        match self.last_reply() {
            Some(Reply::LeaseOpened { lease, .. }) => self.lease = lease,
            other => panic!("no lease but {other:?}"),
        }
    }

    fn client(&mut self, tag: u64, request: Call) {
        self.now += 500;
        let now =
            Now { mono: Instant::from_nanos(self.now), wall: Wall(1_700_000_000_000 + self.now / 1_000_000) };
        let call = CallId { session: SessionId(1), tag };
        self.replica.handle(now, Event::Client { call, request });
    }

    /// Performs the effects: syncs at once, and answers the last reply.
    fn last_reply(&mut self) -> Option<Reply> {
        let mut last = None;
        loop {
            while let Some(effect) = self.replica.poll_effect() {
                match effect {
                    Effect::Persist { position, .. } => self.position = position,
                    Effect::Reply { reply, .. } => last = Some(reply),
                    _ => {}
                }
            }
            if self.position == Position::default() {
                return last;
            }
            let position = std::mem::take(&mut self.position);
            let now = Now {
                mono: Instant::from_nanos(self.now),
                wall: Wall(1_700_000_000_000 + self.now / 1_000_000),
            };
            self.replica.handle(now, Event::Durable { position });
        }
    }

    fn acquire(&mut self, tag: u64, wants: &Wants, wait: Wait) -> Option<Reply> {
        let acquire = Acquire {
            lease: self.lease,
            proof: Proof::Attached,
            key: Some(tag + 1),
            wants: wants.clone(),
            wait,
            label: Arc::from(""),
        };
        self.client(tag, Call::Acquire(acquire));
        self.last_reply()
    }

    fn pair(&mut self, i: usize) {
        let wants = self.wants[i % WORKING_SET].clone();
        let tag = 10_000_000 + i as u64;
        let Some(Reply::Granted(grant)) = self.acquire(tag, &wants, Wait::Forever) else {
            panic!("an owned free lock is granted at once")
        };
        let target = Target::Id(grant.request);
        self.client(tag, Call::Release { lease: self.lease, proof: Proof::Attached, target });
        black_box(self.last_reply());
    }

    /// Pairs per second.
    fn run(&mut self) -> f64 {
        for i in 0..PAIRS / 10 {
            self.pair(i);
        }
        let start = std::time::Instant::now();
        for i in PAIRS / 10..PAIRS / 10 + PAIRS {
            self.pair(i);
        }
        PAIRS as f64 / start.elapsed().as_secs_f64()
    }
}

/// The least that a lock table does.
fn baseline() -> f64 {
    let names: Vec<String> = (0..WORKING_SET).map(|i| format!("tenant/{i}/order")).collect();
    let mut holders: HashMap<Box<[u8]>, u64> = HashMap::new();
    let start = std::time::Instant::now();
    for i in 0..PAIRS {
        let name = names[i % WORKING_SET].as_bytes();
        assert!(holders.insert(black_box(name).into(), i as u64).is_none());
        assert_eq!(holders.remove(black_box(name)), Some(i as u64));
    }
    PAIRS as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let baseline = baseline();
    println!("hash map of holders      {baseline:>12.0} pairs/s   1.00");
    let mut first = None;
    for waiting in [1, 1_000, 100_000] {
        let rate = Bench::new(waiting).run();
        let flat = *first.get_or_insert(rate) / rate;
        println!(
            "{waiting:>7} others waiting   {rate:>12.0} pairs/s   {:.2} of the hash map, {flat:.2}x the time of the first",
            rate / baseline
        );
    }
}
