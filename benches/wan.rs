//! What a lock costs between continents: `geolock dev --wan world` (round trips of 80, 150 and 220 ms), its real
//! process, sockets, TLS and disks, and a client in each datacenter.
//!
//! `cargo bench --bench wan`. Baseline in the same run: the round trip to the farthest other datacenter as the
//! link itself measures it. An idle lock should cost one of those, a hundred locks at once the same, and a lock
//! used again where it is none at all.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod rounds;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use geolock::client::{AcquireRequest, Client, ClientConfig, ClientTls, Mode};
use geolock::names::LockName;
use rounds::AnyError;

const SAMPLES: usize = 15;

/// The playground, ended when dropped.
struct Playground(Child);

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Playground {
    fn start(data: &Path, base: u16) -> Result<Playground, AnyError> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_geolock"))
            .args(["dev", "--wan", "world", "--seconds", "300", "--base-port", &base.to_string(), "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("its output is piped")?;
        let playground = Playground(child);
        for line in BufReader::new(stdout).lines() {
            if line?.trim() == "ready" {
                return Ok(playground);
            }
        }
        Err("the playground ended before it was ready".into())
    }
}

fn main() -> Result<(), AnyError> {
    let data = tempfile::tempdir()?;
    let base = free_base()?;
    let _playground = Playground::start(data.path(), base)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(data.path(), base))
}

/// A port that is free, and probably the thirty after it, too.
fn free_base() -> Result<u16, AnyError> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().min(65_000))
}

async fn run(data: &Path, base: u16) -> Result<(), AnyError> {
    println!(
        "{:>4} {:>14} {:>18} {:>18} {:>18}",
        "from", "farthest link", "idle lock", "100 idle locks", "used again here"
    );
    for dc in 0..3 {
        let tls = ClientTls::from_dir(data.join("client"))?;
        let endpoint = format!("127.0.0.1:{}", base + 10 * dc);
        let client = Client::connect(ClientConfig::new([endpoint], tls)).await?;
        let status = client.status().await?;
        let farthest = status.peers.iter().map(|peer| peer.rtt_us).max().unwrap_or(0) as f64 / 1_000.0;
        let one = median(&client, |i| vec![format!("dc{dc}/idle/{i}")]).await?;
        let many = median(&client, |i| (0..100).map(|k| format!("dc{dc}/many/{i}/{k}")).collect()).await?;
        let again = median(&client, |_| vec![format!("dc{dc}/idle/0")]).await?;
        let ratio = |ms: f64| format!("{ms:.2} ms {:.3}x", ms / farthest);
        println!(
            "{:>4} {farthest:>11.2} ms {:>18} {:>18} {:>18}",
            format!("dc{dc}"),
            ratio(one),
            ratio(many),
            ratio(again)
        );
        client.close().await?;
    }
    Ok(())
}

/// Milliseconds of an exclusive acquire, the median of some.
async fn median(client: &Client, names: impl Fn(usize) -> Vec<String>) -> Result<f64, AnyError> {
    let mut times: Vec<Duration> = Vec::new();
    for i in 0..SAMPLES {
        let locks: Vec<LockName> =
            names(i).iter().map(|name| LockName::try_from(name.as_str())).collect::<Result<_, _>>()?;
        let mut locks = locks.into_iter();
        let first = AcquireRequest::exclusive(locks.next().ok_or("at least one lock")?);
        let request = locks.fold(first, |request, lock| request.and(lock, Mode::Exclusive));
        let start = Instant::now();
        let guard = client.acquire(request).await?;
        times.push(start.elapsed());
        guard.release().await?;
    }
    Ok(rounds::median(times).as_secs_f64() * 1_000.0)
}
