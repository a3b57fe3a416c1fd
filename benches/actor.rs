//! The cost of a lock for a program that embeds the server: acquire + release pairs through sessions of
//! `lock_server`, without a socket; with the real machine and a real journal. Beside it, in the same run, the
//! cost of the messages alone: as many tasks that exchange pings with one task on its own thread, over a
//! tokio channel and a oneshot for each answer.
//!
//! `cargo bench --bench actor`. Two worker threads, one session for each task, each on its own lock. Rounds
//! alternate, so that a busy machine affects both alike; medians count.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;
mod rounds;

use std::thread;
use std::time::{Duration, Instant};

use fixture::in_process::Datacenter;
use geolock::causal_log::Wants;
use geolock::lock_server::{LockServerHandle, Output, Session};
use geolock::replica::call::{Acquire, Call, LockRequest, OnDisconnect, Proof, Reply, Target, Wait};
use geolock_api::names::{LeaseId, LockName, Mode, Secret};
use hdrhistogram::Histogram;
use rounds::{AnyError, Round, median_of};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
const TASKS: [usize; 4] = [1, 4, 16, 64];
/// Steps between two readings of the clock.
const STEPS: u32 = 16;

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let (pings, pinged) = mpsc::channel(4_096);
    let echo = thread::spawn(move || echo(pinged));
    println!("pairs of acquire and release, and of two pings, medians of {ROUNDS} rounds of {ROUND:?}");
    println!(
        "{:>6} {:>12} {:>10} {:>10} {:>14} {:>10} {:>7}",
        "tasks", "pairs/s", "p50 us", "p99 us", "ping pairs/s", "p50 us", "ratio"
    );
    for tasks in TASKS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut locks = JoinSet::new();
            for task in 0..tasks {
                let handle = datacenter.lock_server();
                locks.spawn(async move { Locker::open(&handle, task).await?.work().await });
            }
            ours.push(all(locks).await?);
            let mut echoes = JoinSet::new();
            for _ in 0..tasks {
                echoes.spawn(ping(pings.clone()));
            }
            theirs.push(all(echoes).await?);
        }
        let (pairs, echoes) = (median_of(&ours, |r| r.per_second), median_of(&theirs, |r| r.per_second));
        println!(
            "{tasks:>6} {pairs:>12.0} {:>10.2} {:>10.2} {echoes:>14.0} {:>10.2} {:>7.2}",
            median_of(&ours, |r| r.p50),
            median_of(&ours, |r| r.p99),
            median_of(&theirs, |r| r.p50),
            pairs / echoes,
        );
    }
    drop(pings);
    echo.join().expect("it does not panic");
    datacenter.stop().await?;
    Ok(())
}

/// Adds up all tasks of a round.
async fn all(mut tasks: JoinSet<Result<(u64, Histogram<u64>), AnyError>>) -> Result<Round, AnyError> {
    let (start, mut pairs, mut latencies) = (Instant::now(), 0, Histogram::new(3)?);
    while let Some(done) = tasks.join_next().await {
        let (count, of_one) = done??;
        pairs += count;
        latencies.add(of_one)?;
    }
    Ok(Round::new(pairs, start.elapsed(), &latencies))
}

/// A session with a lease, and a lock that no other task wants.
struct Locker {
    session: Session,
    lease: LeaseId,
    name: LockName,
    key: u64,
}

impl Locker {
    async fn open(handle: &LockServerHandle, task: usize) -> Result<Locker, AnyError> {
        let mut session = handle.open_session().await?;
        let (secret, ttl) = (Secret::new([7; 16]), Duration::from_secs(30));
        let lease = Call::OpenLease { secret, ttl: Some(ttl), on_disconnect: OnDisconnect::Release };
        session.call(1, lease).await?;
        let lease = match session.next().await? {
            Output::Reply { reply: Reply::LeaseOpened { lease, .. }, .. } => lease,
            other => return Err(format!("a lease was expected, this is {other:?}").into()),
        };
        let name = LockName::try_from(format!("accounts/{task}").as_str())?;
        Ok(Locker { session, lease, name, key: 0 })
    }

    async fn work(mut self) -> Result<(u64, Histogram<u64>), AnyError> {
        let (start, mut pairs, mut latencies) = (Instant::now(), 0, Histogram::new(3)?);
        while start.elapsed() < ROUND {
            let asked = Instant::now();
            self.acquire().await?;
            latencies.record(asked.elapsed().as_nanos() as u64)?;
            self.release().await?;
            for _ in 1..STEPS {
                self.acquire().await?;
                self.release().await?;
            }
            pairs += u64::from(STEPS);
            tokio::task::yield_now().await;
        }
        Ok((pairs, latencies))
    }

    async fn acquire(&mut self) -> Result<(), AnyError> {
        self.key += 1;
        let acquire = Call::Acquire(Acquire {
            lease: self.lease,
            proof: Proof::Attached,
            key: Some(self.key),
            request: LockRequest {
                wants: Wants::all(vec![(self.name.clone(), Mode::Exclusive)])?,
                wait: Wait::Forever,
                label: "".into(),
            },
        });
        self.session.call(2, acquire).await?;
        match self.session.next().await? {
            Output::Reply { reply: Reply::Granted(_), .. } => Ok(()),
            other => Err(format!("a grant was expected, this is {other:?}").into()),
        }
    }

    async fn release(&mut self) -> Result<(), AnyError> {
        let (lease, target) = (self.lease, Target::Key(self.key));
        self.session.call(3, Call::Release { lease, proof: Proof::Attached, target }).await?;
        match self.session.next().await? {
            Output::Reply { reply: Reply::Released, .. } => Ok(()),
            other => Err(format!("a release was expected, this is {other:?}").into()),
        }
    }
}

type Ping = (u64, oneshot::Sender<u64>);

/// Answers pings on its own thread, as an actor would.
fn echo(mut pings: mpsc::Receiver<Ping>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    runtime.block_on(async {
        let mut taken = Vec::new();
        while pings.recv_many(&mut taken, 256).await > 0 {
            for (number, reply) in taken.drain(..) {
                // The receiver is dropped when its round ends.
                let _ = reply.send(number);
            }
        }
    });
}

async fn ping(pings: mpsc::Sender<Ping>) -> Result<(u64, Histogram<u64>), AnyError> {
    let (start, mut pairs, mut latencies) = (Instant::now(), 0, Histogram::new(3)?);
    while start.elapsed() < ROUND {
        let asked = Instant::now();
        one(&pings).await?;
        latencies.record(asked.elapsed().as_nanos() as u64)?;
        one(&pings).await?;
        pairs += 1;
    }
    Ok((pairs, latencies))
}

async fn one(pings: &mpsc::Sender<Ping>) -> Result<(), AnyError> {
    let (reply, answer) = oneshot::channel();
    pings.send((1, reply)).await?;
    answer.await?;
    Ok(())
}
