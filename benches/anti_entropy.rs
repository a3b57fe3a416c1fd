//! What a round of anti-entropy costs two datacenters, in the core alone: when both show the same, and when one lacks an
//! entry that was lost on the way. The baseline in the same run is a store of 1 000 keys; with 1 000 000 it has to
//! cost the same, since digests are kept up to date commit by commit.
//!
//! `cargo bench --bench anti_entropy`. A round is everything that both do until nothing more is said: microseconds, and bytes
//! as they go on the link.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod rounds;

use std::collections::VecDeque;
use std::time::Duration;

use geolock::causal_log::{Action, Change};
use geolock::crdt::value::{Op, Update};
use geolock::keys::Key;
use geolock::leases::{OnDisconnect, Proof, SessionId};
use geolock::names::{ClusterId, DcId, DcSet, LeaseId, Position, Secret};
use geolock::replica::call::{Call, CallId, Reply};
use geolock::replica::store_call::{AtLeast, Begin, Step, Then};
use geolock::replica::{AgreedConfig, Effect, Event, LocalConfig, Message, Replica, ReplicaConfig};
use geolock::time::{Instant, Now, Wall};
use geolock::wire;
use rounds::median;

const ROUNDS: usize = 501;
/// Keys of one commit while the store is filled.
const BATCH: u64 = 100;
/// So short that the lease outlives all rounds.
const ANTI_ENTROPY: Duration = Duration::from_millis(100);

fn main() {
    println!("{:>10} {:>12} {:>9} {:>14} {:>9}", "keys", "equal us", "bytes", "one lacks us", "bytes");
    let mut baseline: Option<[f64; 2]> = None;
    for keys in [1_000, 1_000_000] {
        let mut pair = Pair::new();
        pair.fill(keys);
        let equal = median((0..ROUNDS).map(|_| pair.round(None)).collect());
        let lacking = |_| {
            let lost = pair.lose_a_commit();
            pair.round(Some(lost))
        };
        let lacking = median((0..ROUNDS).map(lacking).collect());
        println!("{keys:>10} {:>12.2} {:>9} {:>14.2} {:>9}", equal.0, equal.1, lacking.0, lacking.1);
        match baseline {
            None => baseline = Some([equal.0, lacking.0]),
            Some(few) => {
                println!("{:>10} {:>12.2} {:>9} {:>14.2}", "ratio", equal.0 / few[0], "", lacking.0 / few[1])
            }
        }
    }
}

/// Two datacenters; messages between them go where the bench says.
struct Pair {
    replicas: [Replica; 2],
    positions: [Position; 2],
    /// By receiver.
    wires: [VecDeque<Message>; 2],
    now: Duration,
    lease: LeaseId,
    commits: u64,
    last: Option<Reply>,
    bytes: usize,
}

impl Pair {
    fn new() -> Pair {
        let members: DcSet = [dc(0), dc(1)].into_iter().collect();
        let agreed = AgreedConfig { heartbeat: Duration::from_secs(10), ..agreed(members) };
        let local = LocalConfig {
            anti_entropy: ANTI_ENTROPY,
            max_lease_ttl: Duration::from_secs(3_600),
            ..LocalConfig::default()
        };
        let start = |id| {
            let config = ReplicaConfig::new(dc(id), agreed.clone(), local.clone());
            Replica::recover(config, now(Duration::ZERO), None, []).expect("an empty start")
        };
        let mut pair = Pair {
            replicas: [start(0), start(1)],
            positions: [Position(0); 2],
            wires: Default::default(),
            now: Duration::ZERO,
            lease: LeaseId::from_raw(0),
            commits: 0,
            last: None,
            bytes: 0,
        };
        pair.handle(0, Event::LinkUp { peer: dc(1) });
        pair.handle(1, Event::LinkUp { peer: dc(0) });
        pair.deliver();
        let open = Call::OpenLease {
            secret: Secret::new([7; 16]),
            ttl: Duration::from_secs(3_600),
            on_disconnect: OnDisconnect::Keep,
        };
        pair.call(open);
        pair.deliver();
        let Some(Reply::LeaseOpened { lease, .. }) = pair.last.take() else { panic!("no lease was opened") };
        pair.lease = lease;
        pair
    }

    fn handle(&mut self, id: usize, event: Event) {
        let replica = &mut self.replicas[id];
        replica.handle(now(self.now), event);
        while let Some(effect) = replica.poll_effect() {
            match effect {
                Effect::Persist { position, .. } => self.positions[id] = position,
                Effect::Send { message, .. } => self.wires[1 - id].push_back(message),
                Effect::Reply { reply, .. } => self.last = Some(reply),
                Effect::Notify { .. } | Effect::Report(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn sync(&mut self) {
        for id in 0..2 {
            let position = self.positions[id];
            self.handle(id, Event::Durable { position });
        }
    }

    /// Delivers all that is said until nothing more is.
    fn deliver(&mut self) {
        loop {
            self.sync();
            let mut said = false;
            for id in 0..2 {
                while let Some(message) = self.wires[id].pop_front() {
                    said = true;
                    self.bytes += wire::encode("message", &message).expect("it fits a frame").len();
                    self.handle(1 - id, Event::Flushed { peer: dc(id as u8), messages: 1 });
                    self.handle(id, Event::Received { peer: dc(1 - id as u8), message });
                }
            }
            if !said {
                return;
            }
        }
    }

    fn call(&mut self, request: Call) {
        self.commits += 1;
        let call = CallId { session: SessionId(1), tag: self.commits };
        self.handle(0, Event::Client { call, request });
    }

    fn commit(&mut self, keys: std::ops::Range<u64>) {
        let change = |n: u64| Change {
            key: Key::new(b"bench", format!("account/{n}").as_bytes()).expect("a valid key"),
            action: Action::Update(Update::of(Op::Counter(1))),
        };
        let step = Step { changes: keys.map(change).collect(), reads: Vec::new(), then: Then::Commit };
        let (lease, key) = (self.lease, self.commits);
        let begin = Begin {
            lease,
            proof: Proof::Attached,
            key,
            locks: None,
            at_least: AtLeast::default(),
            settled: key - 1,
            step,
        };
        self.call(Call::Begin(begin));
    }

    fn fill(&mut self, keys: u64) {
        for first in (0..keys).step_by(BATCH as usize) {
            self.commit(first..first + BATCH);
            self.deliver();
        }
        // Heartbeats say that all have all: nothing is kept for anybody any more.
        for _ in 0..3 {
            self.now += Duration::from_secs(10);
            (0..2).for_each(|id| self.handle(id, Event::Tick));
            self.deliver();
        }
        assert_eq!(self.replicas.each_ref().map(|replica| replica.counts().keys), [keys; 2]);
        assert_eq!(self.replicas[0].counts().log_entries, 0);
    }

    /// A commit of the first datacenter, and the message with it, which does not arrive.
    fn lose_a_commit(&mut self) -> u64 {
        self.commit(0..1);
        self.sync();
        let lost = self.wires[1].pop_front();
        assert!(matches!(lost, Some(Message::Entries(_))), "{lost:?}, {:?}", self.last);
        self.handle(0, Event::Flushed { peer: dc(1), messages: 1 });
        self.replicas[0].counts().entries_made
    }

    /// A round that the second datacenter begins, until all is said. Its time is that of both replicas.
    fn round(&mut self, lost: Option<u64>) -> (f64, usize) {
        self.now += ANTI_ENTROPY;
        self.bytes = 0;
        let start = std::time::Instant::now();
        self.handle(1, Event::Tick);
        self.deliver();
        let micros = start.elapsed().as_secs_f64() * 1e6;
        if let Some(lost) = lost {
            assert_eq!(self.replicas[1].counts().entries_applied, lost, "it has what was lost");
        }
        (micros, self.bytes)
    }
}

fn agreed(members: DcSet) -> AgreedConfig {
    AgreedConfig::new(ClusterId::of("bench"), members)
}

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn now(passed: Duration) -> Now {
    Now { mono: Instant::ZERO + passed, wall: Wall(1_700_000_000_000 + passed.as_millis() as u64) }
}
