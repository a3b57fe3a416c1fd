//! Figures of the sequencer: `cargo bench -p geolock-recipes --features sqlite --bench sequencer [-- zero]`.
//!
//! Four nodes of one process, servers of `geolock dev`, with and without the distances of `world`. Each
//! figure has its baseline from the same run beside it.

#[path = "../examples/sequencer/coins.rs"]
mod coins;
#[path = "../examples/sequencer/playground.rs"]
#[expect(dead_code, reason = "the example does more with it")]
mod playground;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use geolock_client::{Batch, Client, Key, TxnRequest, Update, WatchRequest};
use geolock_recipes::sequencer::sqlite::{SimLedger, SimLedgerOptions, SimOutcome, SqliteStore};
use geolock_recipes::sequencer::{Ledger as _, Parts, Sequencer, SequencerNode, SequencerOptions, Threshold};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::Instant;

use coins::{Coins, MEMBERS};
use playground::{Playground, connect};

/// Round trips of the baseline.
const ROUNDS: u32 = 30;
/// Intents of each node, without distances and with those of `world`.
const INTENTS: [(&str, u32); 2] = [("zero", 250), ("world", 100)];
/// As many times more: enough for some boundaries.
const LONG: u32 = 4;
/// Coordinators that are killed, and the intents that are decided before.
const KILLS: usize = 5;
const BEFORE_A_KILL: usize = 20;
const BLOCK: Duration = Duration::from_millis(100);
/// Everything is committed and heard of so long after the last confirmation.
const QUIET: Duration = Duration::from_secs(1);
/// The coordinator has come to rest so long after that, and is watched for some heartbeats more.
const TO_REST: Duration = Duration::from_secs(3);
const AT_REST: Duration = Duration::from_secs(5);

/// The round trips between members in two datacenters, the lower one first.
type RoundTrips = BTreeMap<(u8, u8), Duration>;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for (wan, intents) in INTENTS.into_iter().filter(|(wan, _)| only.as_ref().is_none_or(|only| only == wan))
    {
        let folder = tempfile::tempdir()?;
        let playground = Playground::start(folder.path(), wan).await?;
        println!("{wan}, blocks of {} ms", BLOCK.as_millis());
        let round_trips = round_trips(&playground).await?;
        for ((one, other), round_trip) in &round_trips {
            let took = millis(*round_trip);
            println!("  a round trip of commits and watches, dc{one} to dc{other}: {took:.1} ms");
        }
        for (endorsers, threshold) in [("its own", Threshold::AtLeast(1)), ("3 of 4", Threshold::AtLeast(3))]
        {
            let run = Run {
                playground: &playground,
                folder: folder.path(),
                round_trips: &round_trips,
                threshold,
                intents,
            };
            let steady = run.measure(100_000, intents, &format!("{wan}-{endorsers}-steady")).await?;
            println!(
                "  endorsements: {endorsers}; one coordinator: {:.1} transactions/s, {:.1} commits for each; a \
                 round trip to the sender of each would take {:.1}/s",
                steady.rate, steady.commits, steady.limit
            );
            println!("  at rest: {} commits in {} s", steady.at_rest, AT_REST.as_secs());
            let short = run.measure(20, LONG * intents, &format!("{wan}-{endorsers}-short")).await?;
            println!(
                "  endorsements: {endorsers}; ranges of 20 blocks: {} switches of {:.0} ms (median), {:.0} ms between \
                 two dispatches otherwise",
                short.switches, short.switch_ms, short.gap_ms
            );
        }
        let run = Run {
            playground: &playground,
            folder: folder.path(),
            round_trips: &round_trips,
            threshold: Threshold::AtLeast(1),
            intents,
        };
        let mut waits = Vec::new();
        for number in 0..KILLS {
            waits.push(run.kill(&format!("{wan}-kill-{number}")).await?);
        }
        println!(
            "  a coordinator killed: first dispatch by the next one after {:.0} ms (median; {waits:?}); `grace` \
             beats and the lease are 3000 ms each",
            median(waits.clone())
        );
        playground.stop().await;
    }
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The coordinator asks the sender of each intent for an assembly, one at a time: no more than one intent
/// goes through in each of these.
async fn round_trips(playground: &Playground) -> Result<RoundTrips, Failed> {
    let mut round_trips = BTreeMap::new();
    for one in 0..3 {
        for other in one..3 {
            round_trips.insert((one, other), ping_pong(playground, [one, other]).await?);
        }
    }
    Ok(round_trips)
}

/// Two clients answer each other: each commits when it hears of the other one's commit.
async fn ping_pong(playground: &Playground, [of_one, of_other]: [u8; 2]) -> Result<Duration, Failed> {
    let one = connect(playground.base, &playground.tls(), of_one, "ping").await?;
    let other = connect(playground.base, &playground.tls(), of_other, "pong").await?;
    let key = |name| Key::new(b"bench", format!("{name}-{of_one}-{of_other}").as_bytes());
    let (ping, pong) = (key("ping")?, key("pong")?);
    let mut pings = other.read_client()?.watch(WatchRequest::of(&ping)).await?;
    let mut pongs = one.read_client()?.watch(WatchRequest::of(&pong)).await?;
    let answering = tokio::spawn(async move {
        while pings.next().await.is_ok() {
            if other.transact(TxnRequest::new(), put(&pong)).await.is_err() {
                return;
            }
        }
    });
    // The first one finds the way.
    let mut began = Instant::now();
    for round in 0..=ROUNDS {
        one.transact(TxnRequest::new(), put(&ping)).await?;
        pongs.next().await?;
        if round == 0 {
            began = Instant::now();
        }
    }
    answering.abort();
    Ok(began.elapsed() / ROUNDS)
}

fn put(key: &Key) -> Batch {
    Batch::new().update(key, Update::register("1"))
}

struct Run<'a> {
    playground: &'a Playground,
    folder: &'a Path,
    round_trips: &'a RoundTrips,
    threshold: Threshold,
    intents: u32,
}

struct Measured {
    rate: f64,
    /// The rate with nothing but a round trip to each sender.
    limit: f64,
    commits: f64,
    /// All commits in [`AT_REST`].
    at_rest: u32,
    switches: usize,
    switch_ms: f64,
    gap_ms: f64,
}

impl Run<'_> {
    async fn measure(&self, block_range: u64, intents: u32, contract: &str) -> Result<Measured, Failed> {
        let contract = contract.replace(' ', "-");
        let mut options = SimLedgerOptions::default();
        options.block = BLOCK;
        let ledger = SimLedger::open(self.folder.join(format!("{contract}.db")), options)?;
        let mut nodes = Vec::new();
        for (name, dc) in MEMBERS {
            let client = connect(self.playground.base, &self.playground.tls(), dc, name).await?;
            let sequencer = self.node(block_range).start(&client, name, &contract, &ledger).await?;
            nodes.push((client, Arc::new(sequencer)));
        }
        let counting = connect(self.playground.base, &self.playground.tls(), 0, "counts").await?;
        let request = WatchRequest::new("geolock.seq", format!("{contract}/"));
        let mut watch = counting.read_client()?.watch(request).await?;
        let commits = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&commits);
        let counts = tokio::spawn(async move {
            while watch.next().await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut ends = JoinSet::new();
        for (_, sequencer) in &nodes {
            for number in 0..intents {
                let sequencer = Arc::clone(sequencer);
                ends.spawn(async move {
                    let intent = sequencer.submit(&number.to_string(), "a coin").await?;
                    Ok::<_, Failed>(intent.ended().await?)
                });
            }
        }
        while let Some(ended) = ends.join_next().await {
            ended??;
        }
        let outcomes = ledger.outcomes(0).await?;
        tokio::time::sleep(QUIET).await;
        let of_work = commits.load(Ordering::Relaxed);
        tokio::time::sleep(TO_REST).await;
        let before = commits.load(Ordering::Relaxed);
        tokio::time::sleep(AT_REST).await;
        let at_rest = commits.load(Ordering::Relaxed) - before;
        counts.abort();
        for (client, sequencer) in nodes {
            Arc::into_inner(sequencer).ok_or("an intent has not ended")?.close().await?;
            client.close().await?;
        }
        counting.close().await?;
        Ok(measured(outcomes, [of_work, at_rest], self.round_trips))
    }

    fn node(&self, block_range: u64) -> NodeOfRun {
        NodeOfRun { folder: self.folder.to_owned(), threshold: self.threshold, block_range }
    }

    /// Kills the coordinator in the middle of its work. Returns the time until another one dispatches, in ms.
    async fn kill(&self, contract: &str) -> Result<f64, Failed> {
        let mut options = SimLedgerOptions::default();
        options.block = BLOCK;
        let ledger = SimLedger::open(self.folder.join(format!("{contract}.db")), options)?;
        let mut runtimes = BTreeMap::new();
        for (name, dc) in MEMBERS {
            // A node whose runtime is gone says nothing any more, and its lease ends by time.
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let (base, tls, node) = (self.playground.base, self.playground.tls(), self.node(100_000));
            let (ledger, contract, intents) = (ledger.clone(), contract.to_owned(), self.intents);
            runtime.spawn(async move {
                let client = connect(base, &tls, dc, name).await?;
                let sequencer = node.start(&client, name, &contract, &ledger).await?;
                for number in 0..intents {
                    sequencer.submit(&number.to_string(), "a coin").await?;
                }
                std::future::pending::<Result<(), Failed>>().await
            });
            runtimes.insert(name, runtime);
        }
        let mut height = 0;
        let (killed, killed_ms) = loop {
            height = ledger.blocks(height).await?.last().map_or(height, |block| block.height);
            let outcomes = ledger.outcomes(0).await?;
            if outcomes.len() >= BEFORE_A_KILL
                && let Some(last) = outcomes.iter().max_by_key(|outcome| outcome.submitted_ms)
                && let Some(runtime) = runtimes.remove(last.signer.as_str())
            {
                runtime.shutdown_background();
                break (last.signer.clone(), now_ms());
            }
        };
        let next_ms = loop {
            height = ledger.blocks(height).await?.last().map_or(height, |block| block.height);
            let outcomes = ledger.outcomes(0).await?;
            let others = outcomes.iter().filter(|outcome| outcome.signer != killed);
            let after = others.map(|outcome| outcome.submitted_ms).filter(|at| *at >= killed_ms);
            if let Some(first) = after.min() {
                break first;
            }
        };
        runtimes.into_values().for_each(|runtime| runtime.shutdown_background());
        Ok((next_ms - killed_ms) as f64)
    }
}

#[expect(clippy::disallowed_methods, reason = "the ledger notes the time of day")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}

/// The options of a node.
struct NodeOfRun {
    folder: PathBuf,
    threshold: Threshold,
    block_range: u64,
}

impl NodeOfRun {
    async fn start(
        &self,
        client: &Client,
        name: &str,
        contract: &str,
        ledger: &SimLedger,
    ) -> Result<Sequencer, Failed> {
        let store = SqliteStore::open(self.folder.join(format!("{contract}-{name}.db")))?;
        let domain = Coins { ledger: ledger.clone(), threshold: self.threshold };
        let mut options = SequencerOptions::default();
        options.block_range = self.block_range;
        let node = SequencerNode::new(client, name)?;
        let parts = Parts { domain, ledger: ledger.clone(), store };
        Ok(Sequencer::start(&node, contract, parts, options).await?)
    }
}

/// Returns the time of a question and its answer. A node needs no message for its own intents.
fn round_trip(outcome: &SimOutcome, round_trips: &RoundTrips) -> Duration {
    let of = |node: &str| MEMBERS.iter().find(|(name, _)| *name == node).map_or(0, |(_, dc)| *dc);
    let (signer, sender) = (&outcome.signer, &outcome.intent.sender);
    let [one, other] = [of(signer.as_str()), of(sender.as_str())];
    match signer == sender {
        true => Duration::ZERO,
        false => round_trips[&(one.min(other), one.max(other))],
    }
}

fn measured(
    mut outcomes: Vec<SimOutcome>,
    [commits, at_rest]: [u32; 2],
    round_trips: &RoundTrips,
) -> Measured {
    outcomes.sort_by_key(|outcome| outcome.submitted_ms);
    let (mut switches, mut gaps) = (Vec::new(), Vec::new());
    for pair in outcomes.windows(2) {
        let gap = (pair[1].submitted_ms - pair[0].submitted_ms) as f64;
        match pair[0].signer == pair[1].signer {
            true => gaps.push(gap),
            false => switches.push(gap),
        }
    }
    let took = outcomes
        .last()
        .zip(outcomes.first())
        .map_or(1, |(last, first)| last.submitted_ms - first.submitted_ms);
    let round_trips: Duration = outcomes.iter().map(|it| round_trip(it, round_trips)).sum();
    Measured {
        rate: outcomes.len() as f64 * 1_000.0 / took.max(1) as f64,
        limit: outcomes.len() as f64 / round_trips.as_secs_f64(),
        at_rest,
        commits: f64::from(commits) / outcomes.len().max(1) as f64,
        switches: switches.len(),
        switch_ms: median(switches),
        gap_ms: median(gaps),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
