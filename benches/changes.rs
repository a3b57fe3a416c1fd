//! The cost of changes of the members for those who use locks that have nothing to do with them: real servers
//! on loopback, one of which joins, leaves, is lost and evicted, and returns, while a client of another one
//! takes locks that are there.
//!
//! | phase | what happens in it |
//! |---|---|
//! | alone, before | nothing: the baseline |
//! | two join | each takes the state, and is settled |
//! | three, before | nothing |
//! | one leaves; it returns | until it has left; until it is settled again |
//! | one is killed; it is evicted | until nobody hears it; until its end is entered |
//! | it returns, evicted | until it is settled |
//! | three, after | nothing |
//!
//! With `-- large`, another one joins when 1 000 000 locks have moved and there are 100 000 keys.
#![allow(clippy::disallowed_methods, reason = "benches are edges")]

mod rounds;

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fixture::history::serving_at;
use fixture::said::run;
use fixture::{Cluster, Output, Running, key, lock, until};
use geolock::client::{AcquireRequest, Batch, Client, Mode, TxnRequest, Update};
use rounds::AnyError;
use serde_json::Value;
use tokio::time::sleep;

/// How long a phase in which nothing happens lasts.
const QUIET: Duration = Duration::from_secs(4);
/// The pause between two uses of a lock: the servers share the machine.
const PAUSE: Duration = Duration::from_millis(1);
/// Locks that are used again and again.
const LOCKS: usize = 500;
/// Locks that have a row everywhere: used once, in another datacenter.
const AWAY: usize = 2_000;
const AGREED: &str =
    "[cluster]\nheartbeat_interval = \"200 ms\"\npeer_timeout = \"1 s\"\njoin_policy = \"auto\"\n";
/// Locks that have moved before a large join, in requests of the most locks that are allowed; and keys, in
/// transactions.
const MOVED: usize = 1_000_000;
const PER_REQUEST: usize = 10_000;
const KEYS: usize = 100_000;
const PER_TXN: usize = 5_000;
const LARGE: [&str; 2] = ["two, before", "a third one joins"];
const PHASES: [&str; 9] = [
    "alone, before",
    "two join",
    "three, before",
    "one leaves",
    "it returns",
    "one is killed",
    "it is evicted",
    "it returns, evicted",
    "three, after",
];

/// The times of grants, by phase.
struct Times {
    phases: &'static [&'static str],
    phase: AtomicUsize,
    micros: Mutex<Vec<Vec<u64>>>,
}

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Runtime::new()?;
    match std::env::args().any(|arg| arg == "large") {
        true => runtime.block_on(large()),
        false => runtime.block_on(measure()),
    }
}

/// A datacenter joins a cluster in which there is much to tell.
async fn large() -> Result<(), AnyError> {
    let mut cluster = Cluster::prepare(3);
    cluster.write_founders(0, 1, AGREED);
    for (dc, name) in [(1, "city1"), (2, "city2")] {
        cluster.write_joiner(dc, cluster.quic_address(0), name, "");
    }
    start(&mut cluster, 0);
    let client = serving_at(&cluster, 0).await;
    start(&mut cluster, 1);
    settled(&cluster, 2);
    let other = serving_at(&cluster, 1).await;
    for from in (0..MOVED).step_by(PER_REQUEST) {
        let name = |number: usize| lock(&format!("moved {number}"));
        let first = AcquireRequest::exclusive(name(from));
        let all = (from + 1..from + PER_REQUEST).fold(first, |all, n| all.and(name(n), Mode::Exclusive));
        other.acquire(all).await?.release().await?;
    }
    for from in (0..KEYS).step_by(PER_TXN) {
        let update = |batch: Batch, n| batch.update(&key(&format!("key {n}")), Update::register("a value"));
        client.transact(TxnRequest::new(), (from..from + PER_TXN).fold(Batch::new(), update)).await?;
    }
    let times = Times::of(&LARGE);
    let user = tokio::spawn(use_locks(client, times.clone()));
    sleep(QUIET).await;
    times.next();
    let began = Instant::now();
    start(&mut cluster, 2);
    settled(&cluster, 3);
    let took = began.elapsed();
    user.abort();
    times.show();
    println!("{MOVED} moved locks, {KEYS} keys: settled {took:.1?} after its server was started");
    Ok(())
}

async fn measure() -> Result<(), AnyError> {
    let mut cluster = Cluster::prepare(3);
    cluster.write_founders(0, 1, AGREED);
    cluster.write_joiner(1, cluster.quic_address(0), "city1", "");
    cluster.write_joiner(2, cluster.quic_address(0), "city2", "");
    start(&mut cluster, 0);
    let times = Times::of(&PHASES);
    let client = serving_at(&cluster, 0).await;
    let user = tokio::spawn(use_locks(client, times.clone()));

    sleep(QUIET).await;
    times.next();
    for dc in 1..3 {
        start(&mut cluster, dc);
    }
    settled(&cluster, 3);
    let other = serving_at(&cluster, 1).await;
    for number in 0..AWAY {
        other.acquire(AcquireRequest::exclusive(lock(&format!("away {number}")))).await?.release().await?;
    }
    times.next();
    sleep(QUIET).await;
    times.next();
    command(&cluster, &["member", "remove", "2", "--wait"]);
    cluster.server(2).wait();
    empty(&cluster, 2);
    times.next();
    start(&mut cluster, 2);
    settled(&cluster, 3);
    times.next();
    cluster.kill(2);
    empty(&cluster, 2);
    sleep(QUIET / 2).await;
    times.next();
    until("it is evicted", || {
        let args = ["member", "evict", "2", "--confirm-dead", "--clients-are-dead"];
        (run(&mut cluster.command(0, args)).code == 0).then_some(())
    });
    settled(&cluster, 2);
    times.next();
    command(&cluster, &["member", "add", "city2"]);
    start(&mut cluster, 2);
    settled(&cluster, 3);
    times.next();
    sleep(QUIET).await;
    user.abort();
    times.show();
    Ok(())
}

impl Times {
    fn of(phases: &'static [&'static str]) -> Arc<Times> {
        Arc::new(Times { phases, phase: AtomicUsize::new(0), micros: Mutex::new(vec![vec![]; phases.len()]) })
    }

    fn next(&self) {
        self.phase.fetch_add(1, Ordering::Relaxed);
    }

    fn show(&self) {
        println!("time to a grant, in ms, at dc0, of locks that are there; one client, one after the other");
        println!("{:<22} {:>8} {:>8} {:>8} {:>8} {:>8}", "phase", "grants", "p50", "p99", "p99.9", "most");
        let mut micros = self.micros.lock().expect("nobody panics with it").clone();
        for (phase, times) in self.phases.iter().zip(&mut micros) {
            times.sort_unstable();
            let at = |part: f64| {
                let place = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
                times.get(place).copied().unwrap_or(0) as f64 / 1_000.0
            };
            let (p50, p99, p999, most) = (at(0.5), at(0.99), at(0.999), at(1.0));
            println!("{phase:<22} {:>8} {p50:>8.2} {p99:>8.2} {p999:>8.2} {most:>8.2}", times.len());
        }
    }
}

async fn use_locks(client: Client, times: Arc<Times>) {
    for number in (0..LOCKS).cycle() {
        let wanted = AcquireRequest::exclusive(lock(&format!("here {number}")));
        let (phase, start) = (times.phase.load(Ordering::Relaxed), Instant::now());
        let guard = client.acquire(wanted).await.expect("it serves");
        let micros = u64::try_from(start.elapsed().as_micros()).expect("a short time");
        times.micros.lock().expect("nobody panics with it")[phase].push(micros);
        guard.release().await.expect("it was held");
        sleep(PAUSE).await;
    }
}

fn start(cluster: &mut Cluster, dc: u8) {
    let running = Running::start(&mut cluster.server_command(dc), Output::Stderr);
    cluster.servers[usize::from(dc)] = Some(running);
    cluster.server(dc).line("listening");
}

/// Waits until the members are so many, all settled, and act by the last decision.
fn settled(cluster: &Cluster, members: usize) {
    until("all members are settled", || {
        let said = run(&mut cluster.command(0, ["member", "list", "--json"]));
        let list: Value = serde_json::from_str(&said.stdout).ok()?;
        let rows = list["members"].as_array()?;
        let is_settled = |row: &Value| row["phase"] == "member" && row["entered_epoch"] == list["epoch"];
        (rows.len() == members && rows.iter().all(is_settled)).then_some(())
    });
}

fn command(cluster: &Cluster, args: &[&str]) {
    let said = run(&mut cluster.command(0, args));
    assert_eq!(said.code, 0, "{args:?}: {said:?}");
}

fn empty(cluster: &Cluster, dc: u8) {
    std::fs::remove_dir_all(cluster.data_dir(dc)).expect("nobody uses it");
}
