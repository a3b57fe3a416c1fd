//! The cost of members, and of locks that have their homes there.
//!
//! | part | question |
//! |---|---|
//! | `pairs` | pairs/s of the state machine with 1 to 16 members, without IO; the fastest of some rounds |
//! | `idle` | the bytes on each link, and the memory of a server, while nothing happens |
//! | `homed` | locks used once each at their home: memory, and entries for the others |
//! | `join` | a server joins when many locks have moved: how long it takes, and how long others wait |
//!
//! `cargo bench --bench members [-- pairs idle homed join]` measures those parts only.
#![allow(clippy::disallowed_methods, reason = "benches are edges")]

mod replicas;
mod rounds;

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fixture::history::serving_at;
use fixture::said::run;
use fixture::{Cluster, Output, Running, key, lock, until};
use geolock::causal_log::Wants;
use geolock::client::{AcquireRequest, Batch, Client, TxnRequest, Update};
use geolock::leases::Proof;
use geolock::replica::LocalConfig;
use geolock::replica::call::{Acquire, Call, Reply, Target, Wait};
use geolock_api::names::{DcId, LockName, Mode};
use replicas::Replicas;
use rounds::AnyError;
use serde_json::Value;
use tokio::time::sleep;

/// Members of `pairs`.
const MEMBERS: [u8; 4] = [1, 3, 7, 16];
const ROUNDS: usize = 5;
const PAIRS: usize = 200_000;
const WORKING_SET: usize = 1_000;
/// Locks of `homed` and `join`.
const LOCKS: usize = 1_000_000;
const PER_REQUEST: usize = 10_000;
const KEYS: usize = 100_000;
const KEYS_PER_COMMIT: usize = 500;
/// The time over which bytes are counted.
const IDLE: Duration = Duration::from_secs(20);
const FOUNDER: &str = "[cluster]\njoin_policy = \"auto\"\n[limits]\nmax_held = 2000000\n\
    max_name_bytes_per_lease = 134217728\n";
const JOINER: &str = "[limits]\nmax_held = 2000000\nmax_name_bytes_per_lease = 134217728\n";

fn main() -> Result<(), AnyError> {
    let asked: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_asked = |part: &str| asked.is_empty() || asked.iter().any(|name| name == part);
    if is_asked("pairs") {
        pairs();
    }
    let runtime = tokio::runtime::Runtime::new()?;
    if is_asked("idle") {
        runtime.block_on(idle())?;
    }
    if is_asked("homed") {
        runtime.block_on(homed())?;
    }
    if is_asked("join") {
        runtime.block_on(join())?;
    }
    Ok(())
}

/// Pairs of acquire and release in the core, at a datacenter that has all parts of its locks.
fn pairs() {
    let mut all: Vec<(u8, Replicas, Vec<Wants>)> = MEMBERS.map(gathered).into();
    let mut best = [f64::MAX; MEMBERS.len()];
    for _ in 0..ROUNDS {
        for (place, (_, replicas, wants)) in all.iter_mut().enumerate() {
            let start = Instant::now();
            for pair in 0..PAIRS {
                use_once(replicas, &wants[pair % WORKING_SET]);
            }
            best[place] = best[place].min(start.elapsed().as_secs_f64());
        }
    }
    println!("pairs/s of the state machine, of locks that are there");
    for ((members, ..), seconds) in all.iter().zip(best) {
        let ratio = best[0] / seconds;
        println!("{members:>3} members {:>12.0} {ratio:>6.2} of one member", PAIRS as f64 / seconds);
    }
}

/// Returns that many datacenters. The first one has all parts of the locks.
fn gathered(members: u8) -> (u8, Replicas, Vec<Wants>) {
    let mut replicas = Replicas::new(members, &LocalConfig::default());
    let number = usize::from(members);
    for (a, b) in (0..number).flat_map(|a| (0..a).map(move |b| (b, a))) {
        replicas.link(a, b);
    }
    replicas.rest();
    replicas.open_lease();
    let name = |lock: usize| LockName::try_from(&*format!("tenant/{lock}/order")).expect("it is a name");
    let wants: Vec<Wants> = (0..WORKING_SET)
        .map(|lock| Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock"))
        .collect();
    for wants in &wants {
        use_once(&mut replicas, wants);
    }
    replicas.rest();
    (members, replicas, wants)
}

fn use_once(replicas: &mut Replicas, wants: &Wants) {
    let (lease, label) = (replicas.lease(), "".into());
    let acquire = Acquire {
        lease,
        proof: Proof::Attached,
        wants: wants.clone(),
        wait: Wait::Forever,
        key: None,
        label,
    };
    replicas.call(Call::Acquire(acquire));
    if replicas.last.is_none() {
        replicas.deliver(|_| {});
    }
    let Some(Reply::Granted(grant)) = replicas.last.take() else { panic!("the lock is not granted") };
    replicas.call(Call::Release { lease, proof: Proof::Attached, target: Target::Id(grant.request) });
}

/// Three servers that do nothing.
async fn idle() -> Result<(), AnyError> {
    let mut cluster = prepared();
    println!("while nothing happens");
    for members in 1..=3 {
        start(&mut cluster, members - 1);
        let _client = serving_at(&cluster, members - 1).await;
        settled(&cluster, members.into());
        let before = sent(&cluster);
        sleep(IDLE).await;
        let per_second = (sent(&cluster) - before) / IDLE.as_secs_f64();
        let links = f64::from(members - 1).max(1.0);
        println!(
            "{members} members: {:>7.0} bytes/s sent on each link, {:>5.1} MiB resident in the first",
            per_second / links,
            mib(&cluster)
        );
    }
    Ok(())
}

/// Locks used once each at their home, with two other members.
async fn homed() -> Result<(), AnyError> {
    let mut cluster = prepared();
    for dc in 0..3 {
        start(&mut cluster, dc);
        let _client = serving_at(&cluster, dc).await;
        settled(&cluster, (dc + 1).into());
    }
    let client = serving_at(&cluster, 0).await;
    let home = DcId::new(0).expect("it is an id");
    let (memory, entries, began) =
        (mib(&cluster), metric(&cluster, "geolock_entries_made_total"), Instant::now());
    use_all(&client, |lock| LockName::homed(home, format!("order/{lock}").as_bytes())).await?;
    let took = began.elapsed();
    println!(
        "{LOCKS} homed locks used once each at home, {PER_REQUEST} in a request: {:.1} s",
        took.as_secs_f64()
    );
    let made = metric(&cluster, "geolock_entries_made_total") - entries;
    println!("entries for the others: {made}");
    println!("memory: {memory:.0} MiB before, {:.0} MiB after", mib(&cluster));
    for seconds in [30, 60, 120] {
        sleep(Duration::from_secs(seconds)).await;
        println!("{seconds:>4} s later: {:.0} MiB", mib(&cluster));
    }
    Ok(())
}

/// A third server joins two that have much.
async fn join() -> Result<(), AnyError> {
    let mut cluster = prepared();
    for dc in 0..2 {
        start(&mut cluster, dc);
        let _client = serving_at(&cluster, dc).await;
        settled(&cluster, (dc + 1).into());
    }
    let (here, there) = (serving_at(&cluster, 0).await, serving_at(&cluster, 1).await);
    use_all(&there, |lock| LockName::new(format!("order/{lock}").as_bytes())).await?;
    for first in (0..KEYS).step_by(KEYS_PER_COMMIT) {
        let mut batch = Batch::new();
        for number in first..first + KEYS_PER_COMMIT {
            batch = batch.update(&key(&format!("row {number}")), Update::register(vec![0; 100]));
        }
        here.transact(TxnRequest::new(), batch).await?;
    }
    let (phase, times) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(vec![vec![]; 2])));
    let user = tokio::spawn(use_some(here, Arc::clone(&phase), Arc::clone(&times)));
    sleep(Duration::from_secs(5)).await;
    phase.store(1, Ordering::Relaxed);
    let began = Instant::now();
    start(&mut cluster, 2);
    let joined = serving_at(&cluster, 2).await;
    let served = began.elapsed();
    settled(&cluster, 3);
    let ended = began.elapsed();
    user.abort();
    drop(joined);
    println!("a server joins with {LOCKS} locks that have moved, and {KEYS} keys of 100 bytes");
    println!(
        "it serves after {:.1} s, and is settled everywhere after {:.1} s",
        served.as_secs_f64(),
        ended.as_secs_f64()
    );
    let mut times = times.lock().expect("nobody panics with it").clone();
    for (what, times) in ["before", "meanwhile"].iter().zip(&mut times) {
        times.sort_unstable();
        let at =
            |part: f64| times.get(((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1)));
        let ms = |part| at(part).map_or(0.0, |micros: &u64| *micros as f64 / 1_000.0);
        println!(
            "a grant at dc0, {what}: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms ({})",
            ms(0.5),
            ms(0.99),
            ms(1.0),
            times.len()
        );
    }
    Ok(())
}

/// Takes and releases all locks once, many in a request.
async fn use_all<E: std::error::Error + Send + Sync + 'static>(
    client: &Client,
    name: impl Fn(usize) -> Result<LockName, E>,
) -> Result<(), AnyError> {
    for first in (0..LOCKS).step_by(PER_REQUEST) {
        let mut request = AcquireRequest::exclusive(name(first)?);
        for number in first + 1..first + PER_REQUEST {
            request = request.and(name(number)?, Mode::Exclusive);
        }
        client.acquire(request).await?.release().await?;
    }
    Ok(())
}

/// Uses a few locks again and again, and notes how long each grant took.
async fn use_some(client: Client, phase: Arc<AtomicU64>, times: Arc<Mutex<Vec<Vec<u64>>>>) {
    for number in (0..100).cycle() {
        let (phase, start) = (phase.load(Ordering::Relaxed) as usize, Instant::now());
        let wanted = AcquireRequest::exclusive(lock(&format!("here {number}")));
        let guard = client.acquire(wanted).await.expect("it serves");
        let micros = u64::try_from(start.elapsed().as_micros()).expect("a short time");
        times.lock().expect("nobody panics with it")[phase].push(micros);
        guard.release().await.expect("it was held");
        sleep(Duration::from_millis(1)).await;
    }
}

fn prepared() -> Cluster {
    let cluster = Cluster::prepare(3);
    cluster.write_founders(0, 1, FOUNDER);
    cluster.write_joiner(1, cluster.quic_address(0), "city1", JOINER);
    cluster.write_joiner(2, cluster.quic_address(0), "city2", JOINER);
    cluster
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

/// Returns the bytes that the first server has sent on its links.
fn sent(cluster: &Cluster) -> f64 {
    metric(cluster, "geolock_link_sent_bytes_total")
}

/// Returns the sum of a metric of the first server over its series.
fn metric(cluster: &Cluster, name: &str) -> f64 {
    let page = cluster.page(0, "/metrics");
    let series =
        page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn mib(cluster: &Cluster) -> f64 {
    cluster.resident_bytes(0) as f64 / f64::from(1 << 20)
}
