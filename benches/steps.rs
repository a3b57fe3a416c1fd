//! The time of the longest step. One datacenter's core, no IO, under loads that once made a single step walk
//! all waiters, all of a large value, or all of a log; such work is now spread over steps or shared, so each
//! step is short.
//!
//! Each load runs three times, and of each step the shortest time counts: the steps are the same every time,
//! so differences come from the machine. Printed are the number of steps, quantiles and the longest in
//! microseconds, how many took more than 1 ms, and the kind and number of the longest. Aim: none above 1 ms.
//!
//! `cargo bench --bench steps [-- waits readers ...]` measures those loads only.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod replicas;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use geolock::base::time::TimeToLive;
use geolock::causal_log::{Action, Change, Wants};
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::lock_state::{HoldRule, MAX_AWAY_LOCKS};
use geolock::replica::call::store::{AtLeast, Begin, Durability, Step, Then};
use geolock::replica::call::watch::{Pattern, Subject, Watch};
use geolock::replica::call::{Acquire, Call, CallId, LockRequest, Reply, Target, Wait};
use geolock::replica::{Event, LocalConfig};
use geolock_api::keys::Key;
use geolock_api::names::{LeaseId, LockName, Mode, RequestId, Secret};
use geolock_api::value::{MapType, Op, PathStep, RegisterOp, ResettableCounterOp, SetOp, Update};
use replicas::Replicas;

const LOCKS: u64 = 1_000_000;
const WAITERS: u64 = 100_000;
const PER_LEASE: u64 = 10_000;
const ELEMENTS: u64 = 50_000;
const RUNS: usize = 3;
const SECOND: Duration = Duration::from_secs(1);

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bench {
    all: Replicas,
    lease: LeaseId,
    tag: u64,
}

impl Bench {
    fn new(members: u8, max_away_locks: usize, max_log: usize) -> Bench {
        let hold = vec![HoldRule { idle_return_after: 60 * SECOND, ..HoldRule::default() }];
        let usual = LocalConfig::default();
        let local = LocalConfig { hold, max_away_locks, max_held: 2_000_000, max_log, ..usual };
        let mut all = Replicas::new(members, &local);
        for (a, b) in (0..usize::from(members)).flat_map(|a| (0..a).map(move |b| (b, a))) {
            all.link(a, b);
        }
        let mut bench = Bench { all, lease: LeaseId::from_raw(0), tag: 0 };
        bench.open_lease(Duration::from_secs(3_600));
        bench
    }

    fn call(&mut self, request: Call) -> Option<Reply> {
        self.tag += 1;
        self.all.last = None;
        let call = CallId { session: SessionId(9), tag: self.tag };
        self.all.handle(0, Event::Client { call, client: ClientId(1), request });
        self.all.sync();
        self.all.last.take()
    }

    fn open_lease(&mut self, ttl: Duration) {
        let secret = Secret::new([7; 16]);
        match self.call(Call::OpenLease { secret, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep }) {
            Some(Reply::LeaseOpened { lease, .. }) => self.lease = lease,
            other => panic!("no lease but {other:?}"),
        }
    }

    /// Makes a request. Returns its id if it is granted at once; otherwise it waits.
    fn acquire(&mut self, name: &str, mode: Mode, wait: Wait) -> Option<RequestId> {
        let name = LockName::try_from(name).expect("a valid name");
        let wants = Wants::all(vec![(name, mode)]).expect("one lock");
        let (lease, label) = (self.lease, Arc::from(""));
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

    /// Makes that many requests, each lease with as many as it may have.
    fn crowd(&mut self, many: u64, name: impl Fn(u64) -> String, mode: Mode, wait: Wait) {
        for n in 0..many {
            if n % PER_LEASE == 0 {
                self.open_lease(Duration::from_secs(3_600));
            }
            self.acquire(&name(n), mode, wait);
        }
    }

    fn commit(&mut self, changes: Vec<Change>, reads: &[&str]) {
        self.commit_after(changes, reads, self.tag.saturating_sub(1));
    }

    /// Commits without any word about the outcomes of earlier transactions.
    fn commit_unacknowledged(&mut self, changes: Vec<Change>) {
        self.commit_after(changes, &[], 0);
    }

    fn commit_after(&mut self, changes: Vec<Change>, reads: &[&str], acknowledged_through: u64) {
        let step = Step {
            changes,
            reads: reads.iter().map(|name| key(name)).collect(),
            then: Then::Commit,
            durability: Durability::Local,
        };
        let (lease, key) = (self.lease, self.tag);
        let (proof, at_least) = (Proof::Attached, AtLeast::default());
        self.tag += 1;
        let call = CallId { session: SessionId(9), tag: self.tag };
        let request = Call::Begin(Begin {
            lease,
            proof,
            key,
            locks: None,
            at_least,
            acknowledged_through,
            step,
            under: Vec::new(),
        });
        self.all.handle(0, Event::Client { call, client: ClientId(1), request });
    }

    /// Lets that much of the bench's time pass, and runs until nothing is left to do.
    fn advance(&mut self, passed: Duration) {
        self.all.time += passed;
        for _ in 0..1_000_000 {
            for id in 0..self.all.all.len() {
                self.all.handle(id, Event::Tick);
            }
            self.all.deliver(|_| {});
            let due = |replica: &geolock::replica::Replica| {
                replica.next_deadline().as_nanos() <= self.all.time.as_nanos() as u64
            };
            if !self.all.all.iter().any(due) {
                return;
            }
        }
        panic!("it never ends");
    }

    /// Measures every step from here on.
    fn measure(&mut self) {
        self.all.measure();
    }

    fn checkpoint(&mut self) {
        self.all.handle(0, Event::Checkpoint);
        self.advance(Duration::ZERO);
    }

    fn steps(&mut self) -> Vec<(Duration, &'static str)> {
        self.all.steps.take().expect("it was measured")
    }
}

fn print(load: &str, steps: Vec<(Duration, &'static str)>) {
    let mut steps: Vec<_> = (0_u64..).zip(steps).map(|(n, (took, about))| (took, n, about)).collect();
    steps.sort_unstable();
    let at = |part: f64| steps[((steps.len() - 1) as f64 * part) as usize].0.as_secs_f64() * 1e6;
    let (_, number, about) = steps[steps.len() - 1];
    let long = steps.iter().filter(|(took, ..)| *took > Duration::from_millis(1)).count();
    println!(
        "{load:<10} {:>8} {:>7.1} {:>7.1} {:>8.1} {:>9.1} {long:>6}  {about}, number {number}",
        steps.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
}

fn key(name: &str) -> Key {
    Key::new(b"bench", name.as_bytes()).expect("a valid key")
}

fn update(name: &str, op: Op) -> Change {
    Change { key: key(name), action: Action::Update(Update::of(op)) }
}

fn set(of: SetOp) -> Change {
    update("set", Op::AddWinsSet(of))
}

fn field(n: u64) -> Change {
    let path = vec![PathStep { map: MapType::Resettable, field: format!("{n:06}").into() }];
    let op = Op::MvRegister(RegisterOp::Assign("value".into()));
    Change { key: key("map"), action: Action::Update(Update { path, op }) }
}

/// Acquires that many locks, writes them to a checkpoint, releases them, and lets them be forgotten.
fn locks(bench: &mut Bench) {
    bench.measure();
    let mut held = Vec::new();
    for n in 0..LOCKS {
        if n % PER_LEASE == 0 {
            bench.open_lease(Duration::from_secs(3_600));
        }
        let request = bench.acquire(&format!("tenant/{n}/order"), Mode::Exclusive, Wait::Forever);
        held.push((bench.lease, request.expect("it is free")));
    }
    bench.checkpoint();
    for (lease, request) in held {
        bench.call(Call::Release { lease, proof: Proof::Attached, target: Target::Id(request) });
    }
    bench.advance(60 * SECOND);
}

/// That many locks arrive from the other datacenter, are written to a checkpoint, and return home: by age, or
/// by number while others arrive.
fn away(bench: &mut Bench) {
    bench.measure();
    let mut before = Vec::new();
    for from in (0..LOCKS).step_by(1_000) {
        bench.open_lease(Duration::from_secs(3_600));
        for n in from..from + 1_000 {
            bench.acquire(&format!("tenant/{n}/order"), Mode::Exclusive, Wait::Forever);
        }
        bench.all.deliver(|_| {});
        // Beside a few held locks, others have been released.
        before.push(bench.lease);
        if before.len() > 10 {
            let lease = before.remove(0);
            bench.call(Call::CloseLease { lease, proof: Proof::Attached });
        }
        bench.all.time += Duration::from_millis(100);
        bench.advance(Duration::ZERO);
    }
    bench.checkpoint();
    for lease in before {
        bench.call(Call::CloseLease { lease, proof: Proof::Attached });
    }
    for _ in 0..2_500 {
        bench.advance(10 * SECOND);
    }
}

/// Waits that end together.
fn waits(bench: &mut Bench) {
    for n in 0..100 {
        bench.acquire(&format!("x{n}"), Mode::Exclusive, Wait::Forever).expect("it is free");
    }
    bench.crowd(WAITERS, |n| format!("x{}", n % 100), Mode::Exclusive, Wait::AtMost(SECOND));
    bench.measure();
    bench.checkpoint();
    bench.advance(2 * SECOND);
}

/// Writers that come and go beside blocked readers; then all readers are granted.
fn readers(bench: &mut Bench) {
    let holder = bench.acquire("x", Mode::Exclusive, Wait::Forever).expect("it is free");
    let lease = bench.lease;
    bench.crowd(WAITERS, |_| "x".into(), Mode::Shared, Wait::Forever);
    bench.open_lease(Duration::from_secs(3_600));
    bench.measure();
    for _ in 0..100 {
        bench.acquire("x", Mode::Exclusive, Wait::Forever);
        let target = Target::Key(bench.tag - 1);
        bench.call(Call::Cancel { lease: bench.lease, proof: Proof::Attached, target });
    }
    bench.call(Call::Release { lease, proof: Proof::Attached, target: Target::Id(holder) });
    bench.advance(Duration::ZERO);
}

/// The only peer goes away and comes back, beside waiters for that many locks.
fn peer(bench: &mut Bench) {
    bench.all.cut_off(1);
    bench.advance(60 * SECOND);
    bench.crowd(WAITERS, |n| format!("x{n}"), Mode::Exclusive, Wait::Forever);
    bench.measure();
    bench.all.link(0, 1);
    bench.advance(SECOND);
    bench.all.cut_off(1);
    bench.advance(60 * SECOND);
}

/// Leases that end together, with ten locks each.
fn leases(bench: &mut Bench) {
    for lease in 0..WAITERS / 10 {
        bench.open_lease(10 * SECOND);
        for n in 0..10 {
            bench.acquire(&format!("x{lease}-{n}"), Mode::Exclusive, Wait::Forever);
        }
    }
    bench.measure();
    bench.advance(20 * SECOND);
}

/// Watches that begin now, with a full history.
fn watches(bench: &mut Bench) {
    for _ in 0..40_000 {
        bench.commit(vec![update("n", Op::Counter(1))], &[]);
        bench.all.sync();
    }
    bench.measure();
    for _ in 0..100 {
        let patterns = vec![Pattern::BeginsWith([][..].into())];
        bench.call(Call::Watch(Watch { subject: Subject::Keys, patterns, from: None }));
    }
}

/// Writes as many keys as there are locks in other loads, twenty by each commit; one in four of them expires.
fn keys(bench: &mut Bench) {
    let name = |n: u64| format!("tenant/{n}/order");
    let hour = Action::Expire(TimeToLive::from_millis(3_600_000_u32).expect("an hour"));
    bench.measure();
    for n in (0..LOCKS).step_by(20) {
        let counted = (n..n + 20).map(|n| update(&name(n), Op::Counter(1)));
        let expiring = (n..n + 20).step_by(4).map(|n| Change { key: key(&name(n)), action: hour.clone() });
        bench.commit(counted.chain(expiring).collect(), &[]);
        if n.is_multiple_of(1_000) {
            bench.all.deliver(|_| {});
        }
    }
    bench.all.rest();
}

/// Writes a set and a map of that many elements.
fn large_values(bench: &mut Bench) {
    for from in (0..ELEMENTS).step_by(1_000) {
        let mut changes: Vec<Change> = (from..from + 1_000).map(field).collect();
        changes.push(set(SetOp::Add((from..from + 1_000).map(|n| format!("{n:06}").into()).collect())));
        bench.commit(changes, &[]);
        bench.all.deliver(|_| {});
    }
    bench.all.rest();
}

/// Single changes of a large set and a large map while the previous one is not durable; then all that
/// follows.
fn values(bench: &mut Bench) {
    large_values(bench);
    bench.measure();
    for n in 0..500 {
        let item = |n: u64| vec![format!("{n:06}").into()];
        bench.commit(vec![set(SetOp::Add(item(n))), set(SetOp::Remove(item(n + 9))), field(n)], &[]);
        if n % 5 == 0 {
            bench.all.deliver(|_| {});
        }
    }
    bench.all.rest();
}

/// Transactions that read a large set or a large map, each beside a change that is not durable.
fn reads(bench: &mut Bench) {
    large_values(bench);
    bench.measure();
    for n in 0..100 {
        let change = vec![set(SetOp::Add(vec![format!("{n:06}+").into()])), field(n)];
        bench.commit(change, &[if n % 2 == 0 { "set" } else { "map" }]);
        if n % 5 == 0 {
            bench.all.deliver(|_| {});
        }
    }
    bench.all.rest();
}

/// A datacenter that was away until its entries were no longer kept takes the state of another one, with a
/// row for each of that many locks on both sides.
fn state(bench: &mut Bench) {
    for from in (0..LOCKS).step_by(1_000) {
        bench.open_lease(Duration::from_secs(3_600));
        for n in from..from + 1_000 {
            bench.acquire(&format!("tenant/{n}/order"), Mode::Exclusive, Wait::Forever);
        }
        bench.all.deliver(|_| {});
        bench.call(Call::CloseLease { lease: bench.lease, proof: Proof::Attached });
        bench.all.time += Duration::from_millis(100);
        bench.advance(Duration::ZERO);
    }
    bench.all.rest();
    bench.all.cut_off(2);
    bench.advance(60 * SECOND);
    bench.open_lease(Duration::from_secs(3_600));
    for n in 0..40_000 {
        let value = Op::MvRegister(RegisterOp::Assign(vec![b'.'; 1_000].into()));
        bench.commit(vec![update(&format!("key {n}"), value)], &[]);
        bench.all.sync();
    }
    (0..4).for_each(|_| bench.advance(10 * SECOND));
    bench.all.states_taken = 0;
    bench.measure();
    bench.all.link(0, 2);
    bench.all.link(1, 2);
    (0..10).for_each(|_| bench.advance(10 * SECOND));
    assert!(bench.all.states_taken > 0, "it took a state");
}

/// A checkpoint of that many leases, of as many commits whose clients have not acknowledged them, and of as
/// many entries that a member lacks.
fn checkpoint(bench: &mut Bench) {
    bench.all.cut_off(1);
    bench.advance(60 * SECOND);
    for n in 0..WAITERS {
        if n % PER_LEASE == 0 {
            bench.open_lease(Duration::from_secs(3_600));
        }
        bench.commit_unacknowledged(vec![update(&format!("key {}", n % 100), Op::Counter(1))]);
        bench.all.sync();
    }
    (0..WAITERS).for_each(|_| bench.open_lease(Duration::from_secs(3_600)));
    bench.measure();
    bench.checkpoint();
}

/// Additions to a counter that can be reset, while a member that may reset it is away.
fn counter(bench: &mut Bench) {
    bench.all.cut_off(2);
    bench.advance(60 * SECOND);
    let add = || vec![update("n", Op::ResettableCounter(ResettableCounterOp::Add(1)))];
    for _ in 0..ELEMENTS {
        bench.commit(add(), &[]);
        bench.all.sync();
    }
    bench.measure();
    for n in 0..500 {
        bench.commit(add(), &["n"]);
        if n % 5 == 0 {
            bench.all.deliver(|_| {});
        }
    }
}

/// Digests of that many buckets are compared under load, with that many entries kept for a member that is
/// away.
fn compare(bench: &mut Bench) {
    bench.all.cut_off(2);
    bench.advance(60 * SECOND);
    for n in 0..WAITERS {
        let key = Key::new(format!("bucket {n}").as_bytes(), b"k").expect("a valid key");
        bench.commit(vec![Change { key, action: Action::Update(Update::of(Op::Counter(1))) }], &[]);
        if n % 64 == 0 {
            bench.all.deliver(|_| {});
        }
    }
    bench.all.deliver(|_| {});
    bench.measure();
    for _ in 0..100 {
        bench.commit(vec![update("n", Op::Counter(1))], &[]);
        bench.advance(5 * SECOND);
    }
}

fn main() {
    let asked: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    type Load = fn(&mut Bench);
    let loads: [(&str, u8, Load); 15] = [
        ("locks", 1, locks),
        ("away", 2, away),
        ("surplus", 2, away),
        ("waits", 1, waits),
        ("readers", 1, readers),
        ("peer", 2, peer),
        ("leases", 1, leases),
        ("watches", 1, watches),
        ("keys", 2, keys),
        ("values", 2, values),
        ("reads", 2, reads),
        ("state", 3, state),
        ("checkpoint", 2, checkpoint),
        ("counter", 3, counter),
        ("compare", 3, compare),
    ];
    println!("load          steps  p50 us  p99 us p99.9 us   longest  >1 ms  the longest");
    for (name, members, load) in
        loads.into_iter().filter(|(name, ..)| asked.is_empty() || asked.iter().any(|a| a == name))
    {
        let run = || {
            let max_away_locks = if name == "surplus" { 1 } else { MAX_AWAY_LOCKS };
            let max_log = if name == "state" { 16 << 20 } else { 1 << 30 };
            let mut bench = Bench::new(members, max_away_locks, max_log);
            load(&mut bench);
            bench.steps()
        };
        let mut steps = run();
        for _ in 1..RUNS {
            let again = run();
            assert_eq!(steps.len(), again.len(), "every run has the same steps");
            steps.iter_mut().zip(again).for_each(|(step, again)| *step = (*step).min(again));
        }
        print(name, steps);
    }
}
