//! One request with 10 000 locks. The core of three datacenters, no IO: how long the machine of the client's
//! datacenter is busy with the request from the acquire to the release, that of the busiest other one, and
//! the longest step.
//!
//! Each load runs three times, and of each step the shortest time counts. Printed are the number of steps,
//! the sums in milliseconds, the longest step in microseconds with its kind, and how many steps took more
//! than 1 ms. Aim: 100 ms in all, in steps below 1 ms; those in which the request begins, is published,
//! granted and ended handle all of its locks (`docs/algorithm/model.md#6-not-promised`).
//!
//! `cargo bench --bench many_locks [-- cold half ...]` measures those loads only.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod replicas;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use geolock::causal_log::Wants;
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::replica::call::{Acquire, AcquireEnough, AnyOf, Call, CallId, LockRequest, Reply, Target, Wait};
use geolock::replica::{Event, LocalConfig};
use geolock_api::names::{LeaseId, LockName, Mode, RequestId, Secret};
use replicas::Replicas;

const LOCKS: u64 = 10_000;
const RUNS: usize = 3;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bench {
    all: Replicas,
    lease: LeaseId,
    tag: u64,
}

impl Bench {
    fn new() -> Bench {
        let mut all = Replicas::new(3, &LocalConfig { max_held: 2_000_000, ..LocalConfig::default() });
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            all.link(a, b);
        }
        let mut bench = Bench { all, lease: LeaseId::from_raw(0), tag: 0 };
        bench.open_lease();
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

    fn open_lease(&mut self) {
        let (secret, ttl) = (Secret::new([7; 16]), Duration::from_secs(3_600));
        match self.call(Call::OpenLease { secret, ttl: Some(ttl), on_disconnect: OnDisconnect::Keep }) {
            Some(Reply::LeaseOpened { lease, .. }) => self.lease = lease,
            other => panic!("no lease but {other:?}"),
        }
    }

    /// Delivers messages and lets each datacenter do the work that it has spread over steps.
    fn run(&mut self) -> Option<Reply> {
        loop {
            self.all.deliver(|_| {});
            let now = self.all.time.as_nanos() as u64;
            let is_due = |id: &usize| self.all.all[*id].next_deadline().as_nanos() <= now;
            let due: Vec<usize> = (0..self.all.all.len()).filter(is_due).collect();
            if due.is_empty() {
                return self.all.last.take();
            }
            due.into_iter().for_each(|id| self.all.handle(id, Event::Tick));
        }
    }

    fn enough(&mut self, amount: u64) -> Option<Reply> {
        let of = AnyOf::new(amount, 0, (0..LOCKS).map(|n| (name(n), 1)).collect()).expect("they are enough");
        let (lease, label, key) = (self.lease, Arc::from(""), Some(self.tag));
        let (proof, wait, revision) = (Proof::Attached, Wait::Forever, 0);
        let acquire = AcquireEnough { lease, proof, key, of: Arc::new(of), revision, wait, label };
        let reply = self.call(Call::AcquireEnough(Box::new(acquire)));
        reply.or_else(|| self.run())
    }

    fn all_of(&mut self, locks: impl Iterator<Item = u64>) -> Option<Reply> {
        let wants = Wants::all(locks.map(|n| (name(n), Mode::Exclusive)).collect()).expect("some locks");
        let (lease, label, key) = (self.lease, Arc::from(""), Some(self.tag));
        let request = LockRequest { wants, wait: Wait::Forever, label };
        let reply = self.call(Call::Acquire(Acquire { lease, proof: Proof::Attached, key, request }));
        reply.or_else(|| self.run())
    }

    fn release(&mut self, lease: LeaseId, request: RequestId) -> Option<Reply> {
        let reply = self.call(Call::Release { lease, proof: Proof::Attached, target: Target::Id(request) });
        self.run().or(reply)
    }

    /// A client holds each of the locks by a request of its own. Returns its lease and the requests.
    fn hold_each(&mut self) -> (LeaseId, Vec<RequestId>) {
        let held = (0..LOCKS).map(|n| granted(self.all_of(n..n + 1))).collect();
        let lease = self.lease;
        self.open_lease();
        (lease, held)
    }
}

fn name(n: u64) -> LockName {
    LockName::try_from(&*format!("pool/permit/{n}")).expect("a valid name")
}

fn granted(reply: Option<Reply>) -> RequestId {
    match reply {
        Some(Reply::Granted(grant)) => grant.request,
        Some(Reply::Chosen(chosen)) => chosen.grant.request,
        other => panic!("it is granted, not {other:?}"),
    }
}

/// Enough means all; their parts are in three datacenters.
fn cold(bench: &mut Bench) {
    bench.all.measure();
    let request = granted(bench.enough(LOCKS));
    bench.release(bench.lease, request);
}

/// The same, with half of them, and others asked for beside.
fn half(bench: &mut Bench) {
    bench.all.measure();
    let request = granted(bench.enough(LOCKS / 2));
    bench.release(bench.lease, request);
}

/// A request for all of them.
fn ordinary(bench: &mut Bench) {
    bench.all.measure();
    let request = granted(bench.all_of(0..LOCKS));
    bench.release(bench.lease, request);
}

/// They are held, and released one after the other: half of them are enough.
fn released(bench: &mut Bench) {
    let (lease, held) = bench.hold_each();
    bench.all.measure();
    assert!(bench.enough(LOCKS / 2).is_none(), "it waits");
    let mut reply = None;
    // The last ones of the client's order first: they take the places of others.
    for request in held.into_iter().rev() {
        let told = bench.release(lease, request);
        reply = reply.or(told.filter(|told| matches!(told, Reply::Chosen(_))));
    }
    let request = granted(reply);
    bench.release(bench.lease, request);
}

/// They are held, and the lease of the request ends while it waits.
fn ended(bench: &mut Bench) {
    bench.hold_each();
    bench.all.measure();
    assert!(bench.enough(LOCKS).is_none(), "it waits");
    bench.call(Call::CloseLease { lease: bench.lease, proof: Proof::Attached });
    bench.run();
}

fn main() {
    let asked: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    type Load = fn(&mut Bench);
    let loads: [(&str, Load); 5] =
        [("cold", cold), ("half", half), ("ordinary", ordinary), ("released", released), ("ended", ended)];
    println!("load          steps  here ms  other ms   longest  >1 ms  the longest");
    for (load, run) in
        loads.into_iter().filter(|(name, _)| asked.is_empty() || asked.iter().any(|a| a == name))
    {
        let mut steps: Vec<(usize, Duration, &'static str)> = Vec::new();
        for n in 0..RUNS {
            let mut bench = Bench::new();
            run(&mut bench);
            let by = bench.all.measured_by.clone();
            let measured = bench.all.steps.take().expect("it was measured");
            assert!(n == 0 || steps.len() == measured.len(), "every run has the same steps");
            for (i, (took, about)) in measured.into_iter().enumerate() {
                match steps.get_mut(i) {
                    Some(step) => step.1 = step.1.min(took),
                    None => steps.push((by[i], took, about)),
                }
            }
        }
        print(load, &steps);
    }
}

fn print(load: &str, steps: &[(usize, Duration, &'static str)]) {
    let sum = |id| steps.iter().filter(|step| step.0 == id).map(|step| step.1).sum::<Duration>();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let (number, longest) =
        steps.iter().enumerate().max_by_key(|(_, step)| step.1).expect("there are some steps");
    let long = steps.iter().filter(|step| step.1 > Duration::from_millis(1)).count();
    println!(
        "{load:<10} {:>8} {:>8.1} {:>9.1} {:>9.1} {long:>6}  {} of dc{}, number {number}",
        steps.len(),
        millis(sum(0)),
        millis(sum(1).max(sum(2))),
        longest.1.as_secs_f64() * 1e6,
        longest.2,
        longest.0,
    );
}
