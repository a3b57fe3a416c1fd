//! Counting under a lock, from three datacenters concurrently: no increment is lost, and each sees the one
//! before.
//!
//! Guarantee: docs/guarantees.md#isolation.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::HANGS;
use crate::fixture::history::{Commit, History, shown_by_all};
use crate::fixture::servers;
use geolock::client::{Batch, Client, CommitError, Key, TxnRequest, Update, Value};
use geolock_api::names::LockName;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const DCS: usize = 3;
/// Increments in each datacenter.
const TIMES: usize = 100;

/// Locks leave as soon as they are idle; by default they stay for a while.
const RESTLESS: &str = "[[hold]]\nmin_keep = \"10 ms\"\nmax_keep = \"100 ms\"\n";

/// The type of the number.
#[derive(Clone, Copy)]
enum Kind {
    /// Adds one.
    Counter,
    /// Writes the successor of the number that it read.
    Register,
}

/// A number that all clients increment.
#[derive(Clone, Copy)]
struct Number {
    name: &'static str,
    kind: Kind,
    /// The pause of each client between two increments. It is part of the load: with a pause the lock is idle
    /// in between and may leave; without one it is wanted again at once.
    pause: Duration,
}

const NUMBERS: [Number; 4] = [
    Number { name: "counter", kind: Kind::Counter, pause: Duration::ZERO },
    Number { name: "register", kind: Kind::Register, pause: Duration::ZERO },
    Number { name: "counter with pauses", kind: Kind::Counter, pause: Duration::from_millis(30) },
    Number { name: "register with pauses", kind: Kind::Register, pause: Duration::from_millis(30) },
];

impl Number {
    fn key(&self) -> Key {
        Key::new(b"numbers", self.name.as_bytes()).expect("it is a key")
    }

    fn lock(&self) -> LockName {
        LockName::try_from(self.name).expect("it is a name")
    }

    fn of(&self, value: &Value) -> usize {
        match self.kind {
            Kind::Counter => value.counter().expect("it is a counter") as usize,
            Kind::Register => value.register().expect("it is a register").map_or(0, |bytes| {
                std::str::from_utf8(bytes).expect("text was written").parse().expect("it is a number")
            }),
        }
    }

    fn after(&self, number: usize) -> Update {
        match self.kind {
            Kind::Counter => Update::counter(1),
            Kind::Register => Update::register((number + 1).to_string()),
        }
    }

    /// Reads under the lock, then writes and commits. Returns the number that it read, and the commit.
    async fn increment(&self, dc: u8, client: &Client) -> Result<(usize, Commit), CommitError> {
        let mut txn = client.begin(TxnRequest::exclusive(self.lock())).await?;
        let (token, saw) = (txn.token().expect("it has a lock"), txn.snapshot().clone());
        let read = self.of(&txn.read(&self.key()).await?);
        let commit = txn.commit_with(Batch::new().update(&self.key(), self.after(read))).await?.commit;
        Ok((read, Commit { dc, token, saw, commit }))
    }

    /// Waits for the other datacenters after each round.
    async fn count(
        self,
        dc: u8,
        client: Client,
        rounds: usize,
        meeting: Arc<Barrier>,
    ) -> Vec<(usize, Commit)> {
        let mut done = Vec::new();
        for time in 0..TIMES {
            if time % (TIMES / rounds) == 0 {
                meeting.wait().await;
            }
            done.push(self.increment(dc, &client).await.expect("nothing is broken"));
            if !self.pause.is_zero() {
                sleep(self.pause).await;
            }
        }
        done
    }
}

/// Increments all these numbers concurrently in each datacenter. Asserts that each lock moves at least that
/// often. In each round all datacenters need the lock, so it moves twice or more, however fast they are.
async fn count(numbers: &[Number], hold: &str, rounds: usize, min_hand_offs: u32) {
    let (_wan, clients) = servers(DCS as u8).quick().with(hold).relayed().serving().await;
    let mut counting = JoinSet::new();
    for (index, number) in numbers.iter().enumerate() {
        let meeting = Arc::new(Barrier::new(DCS));
        for (dc, client) in (0..).zip(&clients) {
            let counted = number.count(dc, client.clone(), rounds, Arc::clone(&meeting));
            counting.spawn(async move { (index, counted.await) });
        }
    }
    let mut read: Vec<Vec<usize>> = vec![Vec::new(); numbers.len()];
    let mut histories: Vec<History> = numbers.iter().map(|_| History::default()).collect();
    let all = async {
        while let Some(counted) = counting.join_next().await {
            let (index, done) = counted.expect("nobody fails");
            for (number, commit) in done {
                read[index].push(number);
                histories[index].note([numbers[index].lock()], &commit);
            }
        }
    };
    timeout(5 * HANGS, all).await.expect("everybody gets the lock");
    for ((number, mut read), mut history) in numbers.iter().zip(read).zip(histories) {
        let hand_offs = history.check();
        println!("{}: {hand_offs} hand-offs", number.name);
        assert!(hand_offs >= min_hand_offs, "{}: {hand_offs} hand-offs", number.name);
        read.sort_unstable();
        assert!(
            read.into_iter().eq(0..DCS * TIMES),
            "{}: each has read what the one before wrote",
            number.name
        );
        let shown = shown_by_all(&clients, &[number.key()], &history.all()).await;
        assert_eq!(number.of(&shown[0]), DCS * TIMES, "{}", number.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_counts_right() {
    count(&NUMBERS[..1], RESTLESS, 10, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_counts_right() {
    count(&NUMBERS[1..2], RESTLESS, 10, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_counts_right_with_pauses() {
    count(&NUMBERS[2..3], RESTLESS, 25, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_counts_right_with_pauses() {
    count(&NUMBERS[3..], RESTLESS, 25, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_and_registers_count_right_side_by_side() {
    count(&NUMBERS, "", 1, 2).await;
}
