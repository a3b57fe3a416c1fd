//! Acquire and release of owned locks beside others: does the cost of a step depend on other locks?
//!
//! One datacenter's core, no IO: a working set of 1 000 locks it owns, beside 1 to 1 000 000 others that
//! wait, are held, or were used a moment ago. Baseline in the same run, in alternating rounds: the minimum
//! work of any lock table, a hash map from name to holder. The fastest of several rounds counts, because
//! other work of the machine slows the rest. Aim: 3 000 000 pairs/s on one core, flat within 1.3x, and no
//! allocation in the core.
//!
//! `cargo bench --bench lock_state [-- waiting-1000 ...]` measures those only. To build it like a release, as
//! users run it: `CARGO_PROFILE_BENCH_LTO=fat CARGO_PROFILE_BENCH_CODEGEN_UNITS=1`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

use std::alloc::System;
use std::collections::HashMap;
use std::env;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use geolock::base::time::{Instant, Now, Wall};
use geolock::causal_log::Wants;
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::replica::call::{Acquire, Call, CallId, LockRequest, Reply, Target, Wait};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Position, Replica, ReplicaConfig};
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, RequestId, Secret};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WORKING_SET: usize = 1_000;
const ROUNDS: usize = 5;
const PAIRS: usize = 200_000;
/// Pairs for which allocations are counted.
const COUNTED: usize = 10_000;
/// Waiters for one lock.
const WAITERS: usize = 99;
/// Time between calls, in nanoseconds: locks used at the beginning are not yet forgotten at the end.
const STEP: u64 = 100;
/// With this time, the other locks are forgotten during the run.
const LONG_STEP: u64 = 500;

/// The other locks.
#[derive(Clone, Copy, Debug)]
enum Others {
    Waiting,
    Held,
    Idle,
    /// Idle, and forgotten while the working set is used.
    Leaving,
}

/// The last answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    None,
    Lease(LeaseId),
    Granted(RequestId),
    Released,
}

struct Bench {
    replica: Replica,
    now: u64,
    step: u64,
    position: Position,
    lease: LeaseId,
    label: Arc<str>,
    wants: Vec<Wants>,
    pairs: usize,
    /// Allocations of the core since the last reading.
    allocations: usize,
    /// True while they are counted.
    counts: bool,
}

fn exclusive(name: &str) -> Wants {
    let name = LockName::try_from(name).expect("a valid name");
    Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock")
}

impl Bench {
    fn new(others: Others, count: usize) -> Bench {
        let dc = DcId::new(0).expect("0 is an id");
        let agreed = AgreedConfig::new(ClusterId::of("bench"), DcSet::only(dc));
        let local = LocalConfig { hash_seed: 0x5eed, max_waiting: 2_000_000, ..LocalConfig::default() };
        let config = ReplicaConfig::new(dc, agreed, local);
        let now = Now { mono: Instant::ZERO, wall: Wall(1_700_000_000_000) };
        let mut bench = Bench {
            replica: Replica::recover(config, now, None, []).expect("an empty start"),
            now: 0,
            step: 0,
            position: Position::default(),
            lease: LeaseId::from_raw(0),
            label: "".into(),
            wants: (0..WORKING_SET).map(|i| exclusive(&format!("tenant/{i}/order"))).collect(),
            pairs: 0,
            allocations: 0,
            counts: false,
        };
        for i in 0..count {
            if i % 1_000 == 0 {
                bench.open_lease();
            }
            bench.other(others, i);
        }
        bench.open_lease();
        bench.step = if let Others::Leaving = others { LONG_STEP } else { STEP };
        bench
    }

    fn other(&mut self, others: Others, i: usize) {
        let wants = exclusive(&match others {
            Others::Waiting => format!("busy/{}", i / WAITERS),
            _ => format!("busy/{i}"),
        });
        let tag = 2 * i as u64;
        let mut answer = self.acquire(tag, wants.clone());
        if let (Others::Waiting, Answer::Granted(_)) = (others, answer) {
            answer = self.acquire(tag + 1, wants);
        }
        match (others, answer) {
            (Others::Waiting, Answer::None) | (Others::Held, Answer::Granted(_)) => {}
            (Others::Idle | Others::Leaving, Answer::Granted(request)) => self.release(tag, request),
            (_, other) => panic!("{other:?} for {others:?}"),
        }
    }

    /// Opens the lease of the following calls: each client has one.
    fn open_lease(&mut self) {
        let open = Call::OpenLease {
            secret: Secret::new([1; 16]),
            ttl: Some(Duration::from_secs(60)),
            on_disconnect: OnDisconnect::Keep,
        };
        match self.call(0, open) {
            Answer::Lease(lease) => self.lease = lease,
            other => panic!("no lease but {other:?}"),
        }
    }

    fn now(&self) -> Now {
        Now { mono: Instant::from_nanos(self.now), wall: Wall(1_700_000_000_000 + self.now / 1_000_000) }
    }

    fn call(&mut self, tag: u64, request: Call) -> Answer {
        self.now += self.step;
        let call = CallId { session: SessionId(1), tag };
        if !self.counts {
            self.replica.handle(self.now(), Event::Client { call, client: ClientId(1), request });
            return self.answer();
        }
        let before = ALLOCATOR.stats();
        self.replica.handle(self.now(), Event::Client { call, client: ClientId(1), request });
        let answer = self.answer();
        let after = ALLOCATOR.stats();
        self.allocations +=
            after.allocations - before.allocations + after.reallocations - before.reallocations;
        answer
    }

    /// Performs the effects: syncs at once.
    fn answer(&mut self) -> Answer {
        let mut answer = Answer::None;
        loop {
            while let Some(effect) = self.replica.poll_effect() {
                match effect {
                    Effect::Persist { position, .. } => self.position = position,
                    Effect::Reply { reply: Reply::Granted(grant), .. } => {
                        answer = Answer::Granted(grant.request)
                    }
                    Effect::Reply { reply: Reply::Released, .. } => answer = Answer::Released,
                    Effect::Reply { reply: Reply::LeaseOpened { lease, .. }, .. } => {
                        answer = Answer::Lease(lease)
                    }
                    Effect::Reply { reply, .. } => panic!("not asked for: {reply:?}"),
                    _ => {}
                }
            }
            if self.position == Position::default() {
                return answer;
            }
            let position = std::mem::take(&mut self.position);
            self.replica.handle(self.now(), Event::Durable { position });
        }
    }

    fn acquire(&mut self, tag: u64, wants: Wants) -> Answer {
        let acquire = Acquire {
            lease: self.lease,
            proof: Proof::Attached,
            key: Some(tag + 1),
            request: LockRequest { wants, wait: Wait::Forever, label: self.label.clone() },
        };
        self.call(tag, Call::Acquire(acquire))
    }

    fn release(&mut self, tag: u64, request: RequestId) {
        let target = Target::Id(request);
        let answer = self.call(tag, Call::Release { lease: self.lease, proof: Proof::Attached, target });
        assert!(matches!(answer, Answer::Released));
    }

    fn pair(&mut self) {
        self.pairs += 1;
        let wants = self.wants[self.pairs % WORKING_SET].clone();
        let tag = 10_000_000 + self.pairs as u64;
        let Answer::Granted(request) = self.acquire(tag, wants) else {
            panic!("an owned free lock is granted at once")
        };
        self.release(tag, request);
    }

    /// Returns nanoseconds per pair.
    fn round(&mut self) -> f64 {
        let start = std::time::Instant::now();
        for _ in 0..PAIRS {
            self.pair();
        }
        start.elapsed().as_nanos() as f64 / PAIRS as f64
    }

    /// Returns allocations per pair.
    fn allocations(&mut self) -> f64 {
        (self.allocations, self.counts) = (0, true);
        for _ in 0..COUNTED {
            self.pair();
        }
        self.counts = false;
        self.allocations as f64 / COUNTED as f64
    }
}

/// The minimum work of a lock table.
struct Baseline {
    names: Vec<LockName>,
    holders: HashMap<LockName, u64>,
}

impl Baseline {
    fn new() -> Baseline {
        let name = |i| LockName::try_from(format!("tenant/{i}/order").as_str()).expect("a valid name");
        Baseline { names: (0..WORKING_SET).map(name).collect(), holders: HashMap::new() }
    }

    fn round(&mut self) -> f64 {
        let start = std::time::Instant::now();
        for i in 0..PAIRS {
            let name = &self.names[i % WORKING_SET];
            assert!(self.holders.insert(black_box(name).clone(), i as u64).is_none());
            assert_eq!(self.holders.remove(black_box(name)), Some(i as u64));
        }
        start.elapsed().as_nanos() as f64 / PAIRS as f64
    }
}

fn main() {
    // Cargo passes `--bench`.
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!(
        "beside                     pairs/s   slowest round   of a hash map   time of the first   allocations"
    );
    let mut first = None;
    for others in [Others::Waiting, Others::Held, Others::Idle, Others::Leaving] {
        for count in [1, 1_000, 100_000, 1_000_000] {
            let name = format!("{}-{count}", format!("{others:?}").to_lowercase());
            if !wanted.is_empty() && !wanted.contains(&name) {
                continue;
            }
            let (mut bench, mut baseline) = (Bench::new(others, count), Baseline::new());
            let allocations = bench.allocations();
            let (mut fastest, mut slowest, mut map) = (f64::INFINITY, 0.0, f64::INFINITY);
            for _ in 0..ROUNDS {
                map = baseline.round().min(map);
                let nanos = bench.round();
                (fastest, slowest) = (nanos.min(fastest), nanos.max(slowest));
            }
            let first = *first.get_or_insert(fastest);
            println!(
                "{name:<20} {:>13.0} {:>15.0} {:>15.2} {:>18.2}x {allocations:>13.2}",
                1e9 / fastest,
                1e9 / slowest,
                map / fastest,
                fastest / first
            );
        }
    }
}
