//! The time of a restart after 1 000 000 commits that no checkpoint covers, and with a checkpoint of the same
//! state; beside reading the same files and adding up their bytes, in the same run: the cost of the disk
//! alone.
//!
//! `cargo bench --bench recovery [-- DIRECTORY]`. The directory selects the disk; the default is the current
//! directory. The journal was written just before, so the files are in the page cache: the measured time is
//! the server's own work.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod rounds;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, fs};

use geolock::base::time::{self, Now, Wall};
use geolock::base::wire;
use geolock::causal_log::{Action, Change};
use geolock::journal::{Journal, JournalEvent, JournalOptions};
use geolock::leases::{ClientId, OnDisconnect, Proof, SessionId};
use geolock::lock_server::recover;
use geolock::replica::call::store::{AtLeast, Begin, Durability, Step, Then};
use geolock::replica::call::{Call, CallId, Reply};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Replica, ReplicaConfig};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, Position, Secret};
use geolock_api::value::{Op, Update};
use rounds::{AnyError, median};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COMMITS: u64 = 1_000_000;
const KEYS: u64 = 100_000;
const ROUNDS: usize = 3;

fn main() -> Result<(), AnyError> {
    // Cargo passes `--bench`; the first other argument is the directory.
    let base = env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let dir = base.unwrap_or_else(|| ".".into()).join(format!("recovery-bench-{}", std::process::id()));
    let measured = measure(&dir);
    fs::remove_dir_all(&dir)?;
    measured
}

fn measure(dir: &Path) -> Result<(), AnyError> {
    let (mut journal, events) = open(dir)?;
    let (replica, last) = write(&mut journal, &events)?;
    println!("{COMMITS} commits on {KEYS} keys, {} MB", bytes_below(dir)? >> 20);
    print_restart("from the journal", dir, journal)?;

    let (mut journal, events) = open(dir)?;
    let body = replica.inspect().checkpoint().encode()?;
    journal.checkpoint(last.0, body);
    while !matches!(events.recv()?, JournalEvent::CheckpointDone { .. }) {}
    print_restart("from a checkpoint", dir, journal)
}

/// Closes the journal, and recovers from it repeatedly.
fn print_restart(what: &str, dir: &Path, journal: Journal) -> Result<(), AnyError> {
    journal.close()?;
    let (mut restarts, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let (journal, recovered) = Journal::open(options(dir), |_| {})?;
        let checkpoint = recovered.checkpoint.as_ref().map(|(_, body)| &body[..]);
        let records = recovered.records.map(|record| record.map(|(at, bytes)| (Position(at), bytes)));
        let (replica, _) = recover(config(), checkpoint, records)?;
        restarts.push(start.elapsed());
        assert_eq!(replica.inspect().checkpoint().contents.len() as u64, KEYS, "every key is there");
        journal.close()?;

        let start = Instant::now();
        bytes_below(dir)?;
        reads.push(start.elapsed());
    }
    let (restart, read) = (median(restarts), median(reads));
    println!("{what:>18}: {restart:.2?}, reading the files {read:.2?}, ratio {:.1}", ratio(restart, read));
    Ok(())
}

/// Commits at a datacenter without others, and journals everything.
fn write(journal: &mut Journal, events: &Receiver<JournalEvent>) -> Result<(Replica, Position), AnyError> {
    let replica = Replica::recover(config(), now(0), None, [])?;
    let mut bench = Writer { replica, last: Position(0), durable: Position(0), step: 0 };
    let session = SessionId(1);
    bench.handle(journal, Event::Tick)?;
    let open = Call::OpenLease {
        secret: Secret::new([7; 16]),
        ttl: Some(Duration::from_secs(60)),
        on_disconnect: OnDisconnect::Keep,
    };
    let call = CallId { session, tag: 0 };
    bench.handle(journal, Event::Client { call, client: ClientId(1), request: open })?;
    let Some(Reply::LeaseOpened { lease, .. }) = bench.sync(journal, events)? else {
        return Err("no lease was opened".into());
    };
    for n in 1..=COMMITS {
        let request = Call::Begin(commit(lease, n));
        bench.handle(
            journal,
            Event::Client { call: CallId { session, tag: n }, client: ClientId(1), request },
        )?;
        if n % 1_000 == 0 {
            bench.sync(journal, events)?;
        }
    }
    bench.sync(journal, events)?;
    Ok((bench.replica, bench.last))
}

fn commit(lease: LeaseId, n: u64) -> Begin {
    let key = Key::new(b"bench", format!("account/{}", n % KEYS).as_bytes()).expect("a valid key");
    let changes = vec![Change { key, action: Action::Update(Update::of(Op::Counter(1))) }];
    let step = Step { changes, reads: Vec::new(), then: Then::Commit, durability: Durability::Local };
    let at_least = AtLeast::default();
    Begin {
        lease,
        proof: Proof::Attached,
        key: n,
        locks: None,
        under: Vec::new(),
        at_least,
        acknowledged_through: n - 1,
        step,
    }
}

struct Writer {
    replica: Replica,
    last: Position,
    durable: Position,
    step: u64,
}

impl Writer {
    fn handle(&mut self, journal: &mut Journal, event: Event) -> Result<Option<Reply>, AnyError> {
        self.step += 1;
        self.replica.handle(now(self.step), event);
        let mut reply = None;
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Persist { position, record } => {
                    self.last = position;
                    journal.append(position.0, &wire::encode("record", &record)?);
                }
                Effect::Reply { reply: given, .. } => reply = Some(given),
                _ => {}
            }
        }
        Ok(reply)
    }

    /// Waits until all records are durable. Returns the last reply that this released.
    fn sync(
        &mut self,
        journal: &mut Journal,
        events: &Receiver<JournalEvent>,
    ) -> Result<Option<Reply>, AnyError> {
        while self.durable < self.last {
            match events.recv()? {
                JournalEvent::Durable(position) => self.durable = Position(position),
                other => return Err(format!("{other:?}").into()),
            }
        }
        self.handle(journal, Event::Durable { position: self.durable })
    }
}

fn open(dir: &Path) -> Result<(Journal, Receiver<JournalEvent>), AnyError> {
    let (sender, events) = channel();
    let sink = move |event| {
        // The bench may have dropped the receiver.
        sender.send(event).ok();
    };
    Ok((Journal::open(options(dir), sink)?.0, events))
}

fn options(dir: &Path) -> JournalOptions {
    JournalOptions::new(dir.to_owned(), ClusterId::of("bench"), dc())
}

fn config() -> ReplicaConfig {
    let agreed = AgreedConfig::new(ClusterId::of("bench"), DcSet::only(dc()));
    ReplicaConfig::new(dc(), agreed, LocalConfig { hash_seed: 0x5eed, ..LocalConfig::default() })
}

fn dc() -> DcId {
    DcId::new(0).expect("0 is an id")
}

fn now(step: u64) -> Now {
    let mono = time::Instant::ZERO + Duration::from_micros(step);
    Now { mono, wall: Wall(1_700_000_000_000 + step / 1_000) }
}

/// Reads all files and adds up their bytes, so that every byte is read.
fn bytes_below(dir: &Path) -> Result<u64, AnyError> {
    let mut total = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            total += bytes_below(&path)?;
        } else {
            let bytes = fs::read(&path)?;
            std::hint::black_box(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            total += bytes.len() as u64;
        }
    }
    Ok(total)
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
