//! Loads far above those of normal operation: the memory of the server, and the effect on other clients. One
//! real server, its clients in this process.
//!
//! Leases, locks and waiters by the hundred thousand; a client that never reads; requests from many more
//! tasks than keep the server busy; and ten times as many requests as it can serve, for a minute (with the
//! argument `crowd` only that). After each load, the memory that remains.
#![allow(clippy::disallowed_methods, reason = "benches are edges")]

mod overload;
mod rounds;

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::time::{Duration, Instant};

use fixture::{Cluster, lock, servers};
use geolock::client::{AcquireError, AcquireRequest, Client, ClientTls, Mode};
use geolock_api::names::LockName;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::{self, ClientMessage, OpenLeaseRequest, acquire_request};
use rounds::{AnyError, Round, round};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const LEASES: usize = 100_000;
const LOCKS: usize = 1_000_000;
const LOCKS_PER_REQUEST: usize = 1_000;
const WAITERS: usize = 10_000;
const ROUND: Duration = Duration::from_secs(5);
/// A number of tasks that keeps the server busy, and many times as many.
const TASKS: [usize; 2] = [64, 4_096];

fn main() -> Result<(), AnyError> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let (mut cluster, mut clients) = servers(1).serving().await;
        let client = clients.swap_remove(0);
        if std::env::args().any(|argument| argument == "crowd") {
            return overload::overload(&client, &mut cluster).await;
        }
        let mut memory = Memory { client: client.clone(), before: 0 };
        memory.show("at the beginning").await?;
        leases(&cluster).await?;
        memory.show("100 000 leases").await?;
        locks(&client).await?;
        memory.show("1 000 000 distinct locks, each used once").await?;
        waiters(&client, &mut memory).await?;
        memory.show("10 000 waiters, each served").await?;
        busy(&client, &cluster, &mut memory).await?;
        overload::overload(&client, &mut cluster).await
    })
}

/// The memory of the server.
struct Memory {
    client: Client,
    before: u64,
}

impl Memory {
    async fn show(&mut self, after: &str) -> Result<(), AnyError> {
        let now = self.client.status().await?.resident_bytes;
        let more = now as f64 / 1e6 - self.before as f64 / 1e6;
        println!("{after:<55} {:>8.1} MB ({more:+.1})", now as f64 / 1e6);
        self.before = now;
        Ok(())
    }
}

async fn channel(cluster: &Cluster) -> Result<LocksClient<Channel>, AnyError> {
    let tls = ClientTls::from_dir(cluster.tls())?;
    let shown = tls.certificate.ok_or("the playground makes a certificate")?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(tls.ca_pem))
        .identity(Identity::from_pem(shown.cert_pem, shown.key_pem));
    let endpoint = Endpoint::from_shared(format!("https://{}", cluster.endpoint(0)))?.tls_config(tls)?;
    Ok(LocksClient::new(endpoint.connect().await?))
}

async fn leases(cluster: &Cluster) -> Result<(), AnyError> {
    const TASKS: usize = 64;
    let (client, start) = (channel(cluster).await?, Instant::now());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mut client = client.clone();
        tasks.spawn(async move {
            for _ in (task..LEASES).step_by(TASKS) {
                client.open_lease(OpenLeaseRequest { ttl_ms: 60_000, on_disconnect: 0 }).await?;
            }
            Ok::<_, tonic::Status>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    println!("{LEASES} leases opened in {:.1?}", start.elapsed());
    Ok(())
}

async fn locks(client: &Client) -> Result<(), AnyError> {
    let start = Instant::now();
    for batch in 0..LOCKS / LOCKS_PER_REQUEST {
        let name = |i: usize| lock(&format!("many/{batch}/{i}"));
        let first = AcquireRequest::exclusive(name(0));
        let request = (1..LOCKS_PER_REQUEST).fold(first, |all, i| all.and(name(i), Mode::Exclusive));
        client.acquire(request).await?.release().await?;
    }
    println!("{LOCKS} locks taken and released in {:.1?}", start.elapsed());
    Ok(())
}

async fn waiters(client: &Client, memory: &mut Memory) -> Result<(), AnyError> {
    let name = || lock("crowded");
    let guard = client.acquire(AcquireRequest::exclusive(name())).await?;
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let client = client.clone();
        waiters.spawn(async move {
            client.acquire(AcquireRequest::exclusive(name())).await?.release().await?;
            Ok::<_, AnyError>(())
        });
    }
    while client.status().await?.counts.get("waiting").copied().unwrap_or(0) < WAITERS as u64 {}
    memory.show("10 000 waiters for one lock").await?;
    let start = Instant::now();
    guard.release().await?;
    while let Some(served) = waiters.join_next().await {
        served??;
    }
    println!("{WAITERS} waiters served one after the other in {:.1?}", start.elapsed());
    Ok(())
}

/// A client that sends requests and never reads, until its stream ends.
async fn deaf(cluster: &Cluster, ready: oneshot::Sender<()>) -> Result<(), AnyError> {
    let mut client = channel(cluster).await?;
    let lease = client.open_lease(OpenLeaseRequest { ttl_ms: 60_000, on_disconnect: 0 }).await?.into_inner();
    let (calls, stream) = mpsc::channel(64);
    let answers = client.session(ReceiverStream::new(stream)).await?;
    let _ = ready.send(());
    for tag in 1.. {
        let wanted = proto::LockMode {
            name: format!("deaf/{tag}").into(),
            mode: proto::Mode::Exclusive.into(),
            home: None,
        };
        let acquire = proto::AcquireRequest {
            lease: lease.lease,
            secret: lease.secret.clone(),
            locks: vec![wanted],
            wait: Some(acquire_request::Wait::TryOnce(proto::TryOnce {})),
            ..Default::default()
        };
        if calls.send(ClientMessage { tag, call: Some(Call::Acquire(acquire)) }).await.is_err() {
            break;
        }
    }
    drop(answers);
    Ok(())
}

async fn busy(client: &Client, cluster: &Cluster, memory: &mut Memory) -> Result<(), AnyError> {
    let names: Vec<LockName> = (0..TASKS[1]).map(|task| lock(&format!("own/{task}"))).collect();
    let pair = move |client: Client| {
        let names = names.clone();
        move |task: usize| {
            let (client, name) = (client.clone(), names[task].clone());
            async move {
                let start = Instant::now();
                match client.acquire(AcquireRequest::exclusive(name)).await {
                    Ok(guard) => guard.release().await?,
                    Err(AcquireError::Exhausted { retry_after, .. }) => tokio::time::sleep(retry_after).await,
                    Err(error) => return Err(error.into()),
                }
                Ok(start.elapsed())
            }
        }
    };
    for tasks in TASKS {
        show("at once", tasks, &round(tasks, ROUND, pair(client.clone())).await?);
        memory.show("after it").await?;
    }
    let (ready, is_ready) = oneshot::channel();
    let beside = async {
        is_ready.await?;
        round(TASKS[0], ROUND, pair(client.clone())).await
    };
    let (ended, beside) = tokio::join!(tokio::time::timeout(2 * ROUND, deaf(cluster, ready)), beside);
    show("beside a client that never reads", TASKS[0], &beside?);
    println!("       that one was {}", if ended.is_ok() { "cut off" } else { "slowed down" });
    memory.show("after it").await?;
    show("afterwards", TASKS[0], &round(TASKS[0], ROUND, pair(client.clone())).await?);
    memory.show("in the end").await
}

fn show(when: &str, tasks: usize, Round { per_second, p50, p99 }: &Round) {
    println!("{tasks:>6} tasks {when}: {per_second:.0} pairs/s, p50 {p50:.0} us, p99 {p99:.0} us");
}
