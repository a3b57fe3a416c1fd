//! Ten times more requests than the server can serve, from many connections, sent on schedule whether or not
//! earlier ones were answered.
//!
//! The generator shares two cores with the server, so each request is cheap to create and expensive for the
//! server: it names many locks, whose names are created once. The locks are shared, so that no request waits
//! for another; only the server's work is measured. A grant is released at once; a refused request is not
//! repeated.

mod crowd;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crowd::{Pace, Sets, Tally, crowd, sets};
use geolock::client::{AcquireError, AcquireRequest, Client, ClientConfig};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::sleep;

use crate::fixture::{Cluster, lock};
use crate::rounds::AnyError;

/// How long the capacity of the server is measured.
const MEASURE: Duration = Duration::from_secs(10);
const TIMES: f64 = 10.0;
const OVERLOAD: Duration = Duration::from_secs(60);
/// How often an ordinary client acquires a lock beside the crowd.
const BESIDE: Duration = Duration::from_millis(50);

/// Measures the capacity of the server, then offers ten times that.
pub async fn overload(client: &Client, cluster: &mut Cluster) -> Result<(), AnyError> {
    let server = Process(cluster.server(0).id());
    let sets = sets();
    let can = crowd(cluster, &sets, Pace::Closed, MEASURE).await?;
    let served = can.granted as f64 / can.time.as_secs_f64();
    println!("{} served: {served:.0} pairs/s, {}; {} refused", crowd::WHO, can.latency(), can.refused);

    let (before, busy) = (server.resident(), (server.cpu(), this().cpu()));
    let (over, is_over) = oneshot::channel();
    let config = cluster.client_config(0);
    let beside = thread::spawn(move || usual(config, is_over));
    let (crowd, peak) = offer(cluster, &sets, TIMES * served).await?;
    drop(over);
    let first = until_granted(client).await?;
    let second = until_granted(client).await?;
    let (after, of) = (server.resident(), |count: u64| count as f64 / crowd.time.as_secs_f64());
    let Tally { granted, refused, unsent, .. } = crowd;
    println!(
        "{TIMES} times as many for {OVERLOAD:?}: {:.0}/s accepted, {:.0}/s refused, {:.0}/s not sent within {:?}",
        of(granted),
        of(refused),
        of(unsent),
        crowd::PATIENCE
    );
    println!("       accepted: {}", crowd.latency());
    let (beside, lost) = beside.join().map_err(|_| "it panicked")??;
    let (granted, refused) = (beside.granted, beside.refused);
    println!(
        "       beside it, one after the other: {granted} accepted, {refused} refused, {lost} lost; {}",
        beside.latency()
    );
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "       memory: {:.1} MB before, {:.1} MB at most, {:.1} MB after",
        mb(before),
        mb(peak),
        mb(after)
    );
    let cpu = (server.cpu() - busy.0, this().cpu() - busy.1);
    println!("       processor time: {:.1} s of the server, {:.1} s of the crowd", cpu.0, cpu.1);
    println!("       afterwards the first pair took {first:.1?}, the next one {second:.1?}");
    Ok(())
}

/// Offers that many requests. Returns also the highest memory of the server.
async fn offer(cluster: &mut Cluster, sets: &Sets, per_second: f64) -> Result<(Tally, u64), AnyError> {
    let server = Process(cluster.server(0).id());
    let mut peak = server.resident();
    let look = async {
        loop {
            sleep(Duration::from_millis(100)).await;
            peak = server.resident().max(peak);
        }
    };
    let done = tokio::select! {
        done = crowd(cluster, sets, Pace::Open { per_second }, OVERLOAD) => done?,
        () = look => unreachable!("it has no end"),
    };
    Ok((done, peak))
}

/// Measures an ordinary client. Returns its outcomes, and how often it lost its lease. Runs on its own
/// thread, so that it waits for the server and not for the crowd.
fn usual(config: ClientConfig, mut is_over: oneshot::Receiver<()>) -> Result<(Tally, u64), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(config).await?;
        let (mut seen, mut lost) = (Tally::default(), 0);
        while let Err(TryRecvError::Empty) = is_over.try_recv() {
            sleep(BESIDE).await;
            let start = Instant::now();
            match client.acquire(AcquireRequest::exclusive(lock("usual"))).await {
                Ok(guard) => {
                    seen.grant(start.elapsed());
                    lost += u64::from(guard.release().await.is_err());
                }
                Err(AcquireError::Exhausted { .. }) => seen.refused += 1,
                Err(AcquireError::LeaseLost(_)) => lost += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((seen, lost))
    })
}

/// Returns the time to acquire and release a lock, including all refusals before that.
async fn until_granted(client: &Client) -> Result<Duration, AnyError> {
    let start = Instant::now();
    loop {
        match client.acquire(AcquireRequest::exclusive(lock("after"))).await {
            Ok(guard) => break guard.release().await?,
            Err(AcquireError::Exhausted { retry_after, .. }) => sleep(retry_after).await,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(start.elapsed())
}

/// A process of this machine.
struct Process(u32);

fn this() -> Process {
    Process(std::process::id())
}

impl Process {
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
    }

    /// Returns seconds of processor time used in user mode and in the kernel, to a hundredth.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        (ticks(11) + ticks(12)) as f64 / 100.0
    }
}
