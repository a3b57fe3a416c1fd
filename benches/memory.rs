//! The memory of a datacenter's core for locks: bytes of a lock that is away from home, of one that is home
//! and idle again, and of a request that waits or holds; beside a hash map from name to a number in the same
//! run, the minimum of any table of locks.
//!
//! The allocator's figures are counted, so the spare capacity of tables is included.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

use std::alloc::System;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crdts::CmRDT;
use geolock::base::time::{Instant, Now, Wall};
use geolock::causal_log::Wants;
use geolock::crdt::{Ownership, PartMove};
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::replica::call::{Acquire, Call, CallId, LockRequest, Reply, Target, Wait};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Position, Replica, ReplicaConfig};
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, RequestId, Secret};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LOCKS: usize = 1_000_000;
const DATACENTERS: u8 = 3;
/// Requests of one lease.
const PER_LEASE: usize = 1_000;

/// Returns the allocated bytes.
fn bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn name(i: usize) -> LockName {
    LockName::try_from(format!("tenant/{i}/order").as_str()).expect("a valid name")
}

/// One datacenter without others.
struct Bench {
    replica: Replica,
    millis: u64,
    position: Position,
    lease: LeaseId,
    label: Arc<str>,
    tag: u64,
}

impl Bench {
    fn new() -> Bench {
        let agreed = AgreedConfig::new(ClusterId::of("bench"), DcSet::only(dc(0)));
        let config =
            ReplicaConfig::new(dc(0), agreed, LocalConfig { hash_seed: 0x5eed, ..LocalConfig::default() });
        let replica = Replica::recover(config, now(0), None, []).expect("an empty start");
        let (position, lease) = (Position::default(), LeaseId::from_raw(0));
        Bench { replica, millis: 0, position, lease, label: "".into(), tag: 0 }
    }

    fn call(&mut self, request: Call) -> Option<Reply> {
        self.tag += 1;
        let call = CallId { session: SessionId(1), tag: self.tag };
        self.handle(Event::Client { call, client: ClientId(1), request })
    }

    /// Handles an event, syncs at once, and returns the last reply.
    fn handle(&mut self, event: Event) -> Option<Reply> {
        self.replica.handle(now(self.millis), event);
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
            self.replica.handle(now(self.millis), Event::Durable { position });
        }
    }

    fn open_lease(&mut self) {
        let secret = Secret::new([1; 16]);
        let ttl = Duration::from_secs(60);
        match self.call(Call::OpenLease { secret, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep }) {
            Some(Reply::LeaseOpened { lease, .. }) => self.lease = lease,
            other => panic!("no lease but {other:?}"),
        }
    }

    /// Makes the `i`-th request, for a lock. Returns its id if it is granted.
    fn acquire(&mut self, i: usize, name: LockName, wait: Wait) -> Option<RequestId> {
        if i.is_multiple_of(PER_LEASE) {
            self.open_lease();
        }
        let wants = Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock");
        let (lease, label) = (self.lease, self.label.clone());
        let acquire = Acquire {
            lease,
            proof: Proof::Attached,
            key: Some(self.tag),
            request: LockRequest { wants, wait, label },
        };
        match self.call(Call::Acquire(acquire)) {
            Some(Reply::Granted(grant)) => Some(grant.request),
            None => None,
            other => panic!("it is granted or waits, not {other:?}"),
        }
    }

    /// Lets time pass until idle locks are forgotten.
    fn rest(&mut self) {
        for _ in 0..LOCKS {
            self.millis += 1;
            self.handle(Event::Tick);
            if self.status_locks() == 0 {
                return;
            }
        }
    }

    fn status_locks(&mut self) -> u64 {
        match self.call(Call::Status) {
            Some(Reply::Status(status)) => status.counts.locks_active,
            other => panic!("no status but {other:?}"),
        }
    }
}

fn now(millis: u64) -> Now {
    Now { mono: Instant::from_nanos(millis * 1_000_000), wall: Wall(1_700_000_000_000 + millis) }
}

/// Prints the memory of a million items, and of the same names in a hash map.
fn print(what: &str, bytes: usize, map: usize) {
    let each = bytes as f64 / LOCKS as f64;
    println!(
        "{what:<52} {each:>7.1} bytes each, {:>7.1} MB, {:.2} of the hash map",
        bytes as f64 / 1e6,
        bytes as f64 / map as f64
    );
}

/// Returns the memory of a hash map with all names.
fn baseline() -> usize {
    let before = bytes();
    let map: HashMap<String, u64> = (0..LOCKS).map(|i| (format!("tenant/{i}/order"), i as u64)).collect();
    let taken = bytes() - before;
    assert_eq!(map.len(), LOCKS);
    taken
}

/// Returns the memory of the ownership map for locks with all parts in another datacenter.
fn away() -> usize {
    let before = bytes();
    let mut map = Ownership::new(0x5eed);
    for lock in (0..LOCKS).map(name) {
        for part in (0..DATACENTERS).map(dc).filter(|part| *part != dc(2)) {
            map.apply(PartMove { lock: lock.clone(), part, owner: dc(2), version: 1 });
        }
    }
    let taken = bytes() - before;
    assert_eq!((map.len(), map.of(&name(7)).is_home()), (LOCKS, false));
    taken
}

fn main() {
    let map = baseline();
    print("hash map from name to number", map, map);
    print("lock away from home, in each of 3 datacenters", away(), map);

    let mut bench = Bench::new();
    let before = bytes();
    for i in 0..LOCKS {
        bench.acquire(i, name(i), Wait::Forever).expect("it is free");
    }
    print("held lock, each by a request of its own", bytes() - before, map);
    drop(bench);

    let mut bench = Bench::new();
    bench.acquire(0, name(0), Wait::Forever);
    let before = bytes();
    for i in 1..LOCKS {
        assert_eq!(bench.acquire(i, name(0), Wait::Forever), None, "it is held");
    }
    print("request that waits, all for one lock", bytes() - before, map);
    drop(bench);

    let mut bench = Bench::new();
    let before = bytes();
    for i in 0..2 * LOCKS {
        let granted = bench.acquire(i, name(i / 2), Wait::Forever).is_some();
        assert_eq!(granted, i % 2 == 0, "every second one waits");
    }
    print("lock that is held and waited for, two requests", bytes() - before, map);
    drop(bench);

    let mut bench = Bench::new();
    bench.open_lease();
    bench.rest();
    let before = bytes();
    for round in 0..10 {
        for i in 0..LOCKS / 10 {
            let request = bench.acquire(i, name(round * LOCKS / 10 + i), Wait::Forever).expect("it is free");
            let target = Target::Id(request);
            bench.call(Call::Release { lease: bench.lease, proof: Proof::Attached, target });
        }
        bench.rest();
    }
    print("lock that was used and is home and idle", bytes() - before, map);
}
