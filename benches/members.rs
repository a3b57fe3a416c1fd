//! The cost of members for one state machine: pairs of acquire and release, and memory, with 1, 3, 7 and 16
//! of them; and locks that live in one of three. The cost of their changes is in `changes.rs`.
//!
//! | section | baseline in the same run |
//! |---|---|
//! | `pairs` | one member alone, in alternating rounds |
//! | `memory` | one member alone |
//! | `homed` | plain locks that are here |
//!
//! `cargo bench --bench members [-- pairs memory homed]` measures those sections only.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod replicas;

use std::alloc::System;
use std::env;
use std::time::{Duration, Instant};

use geolock::replica::call::{Call, Reply};
use geolock::replica::{Event, LocalConfig};
use geolock_api::names::LockName;
use replicas::{Replicas, dc};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MEMBERS: [u8; 4] = [1, 3, 7, 16];
const WORKING_SET: usize = 1_000;
const PAIRS: usize = 100_000;
const ROUNDS: usize = 7;
/// Locks that are used once each, at home.
const HOMED: usize = 1_000_000;
/// Bytes above the floor that may remain, of some 300 for each of them.
const ROOM: usize = 4 * HOMED;

fn main() {
    let asked: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_asked = |section: &str| asked.is_empty() || asked.iter().any(|name| name == section);
    if is_asked("pairs") {
        pairs();
    }
    if is_asked("memory") {
        memory();
    }
    if is_asked("homed") {
        homed();
    }
}

/// Linked datacenters; the first one has all parts of the working set.
fn gathered(members: u8) -> Replicas {
    let mut all = Replicas::new(members, &LocalConfig::default());
    for (a, b) in (0..usize::from(members)).flat_map(|a| (0..a).map(move |b| (b, a))) {
        all.link(a, b);
    }
    all.open_lease();
    for number in 0..WORKING_SET {
        all.pair(&name(number));
    }
    all
}

fn name(number: usize) -> LockName {
    LockName::try_from(format!("tenant/{number}/order").as_str()).expect("a valid name")
}

fn pairs() {
    let mut beds: Vec<(u8, Replicas, Vec<f64>)> =
        MEMBERS.into_iter().map(|members| (members, gathered(members), Vec::new())).collect();
    let names: Vec<LockName> = (0..WORKING_SET).map(name).collect();
    for _ in 0..ROUNDS {
        for (_, all, figures) in &mut beds {
            let start = Instant::now();
            for name in names.iter().cycle().take(PAIRS) {
                all.pair(name);
            }
            figures.push(PAIRS as f64 / start.elapsed().as_secs_f64());
        }
    }
    println!("pairs of acquire and release of locks that are here; fastest of {ROUNDS} rounds");
    println!("{:>8} {:>12} {:>10}", "members", "pairs/s", "to alone");
    let best = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    let alone = best(&beds[0].2);
    for (members, _, figures) in &beds {
        println!("{members:>8} {:>12.0} {:>10.3}", best(figures), best(figures) / alone);
    }
}

fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn memory() {
    println!("bytes of one datacenter's core, idle, beside others");
    println!("{:>8} {:>12} {:>16}", "members", "bytes", "for each further");
    let mut alone = 0.0;
    for members in MEMBERS {
        let before = allocated();
        let mut all = Replicas::new(members, &LocalConfig::default());
        for (a, b) in (0..usize::from(members)).flat_map(|a| (0..a).map(move |b| (b, a))) {
            all.link(a, b);
        }
        let each = (allocated() - before) as f64 / f64::from(members);
        if members == 1 {
            alone = each;
        }
        let further = if members > 1 { (each - alone) / f64::from(members - 1) } else { 0.0 };
        println!("{members:>8} {each:>12.0} {further:>16.0}");
    }
}

/// Returns the number of locks with a row in the first datacenter.
fn active(all: &mut Replicas) -> u64 {
    all.call(Call::Status);
    match all.last.take() {
        Some(Reply::Status(status)) => status.counts.locks_active,
        other => panic!("no status but {other:?}"),
    }
}

/// Uses a million locks once each at their home, while one of the other two members is away.
fn homed() {
    let mut all = gathered(3);
    all.cut_off(2);
    let names: Vec<LockName> = (0..WORKING_SET).map(name).collect();
    let start = Instant::now();
    for name in names.iter().cycle().take(HOMED) {
        all.pair(name);
    }
    let plain = start.elapsed();
    all.rest();

    let floor = allocated();
    let (mut most, mut messages, mut used) = (floor, 0, Duration::ZERO);
    for round in 0..HOMED / WORKING_SET {
        let first = round * WORKING_SET;
        let named: Vec<LockName> = (first..first + WORKING_SET)
            .map(|n| LockName::homed(dc(0), format!("tenant/{n}/order").as_bytes()))
            .collect::<Result<_, _>>()
            .expect("valid names");
        let start = Instant::now();
        named.iter().for_each(|name| all.pair(name));
        used += start.elapsed();
        drop(named);
        most = most.max(allocated());
        all.deliver(|_| messages += 1);
    }
    // Their rows are forgotten bit by bit, and the tables then shrink bit by bit.
    let mut ticks = 0;
    while active(&mut all) > 0 || allocated() > floor + ROOM {
        all.time += Duration::from_millis(1);
        all.handle(0, Event::Tick);
        all.deliver(|_| {});
        ticks += 1;
        assert!(ticks < HOMED, "idle locks are forgotten");
    }
    let ratio = used.as_secs_f64() / plain.as_secs_f64();
    println!("{HOMED} locks used once each at home, one of three members away");
    println!("time of a first use to that of a plain lock that is here: {ratio:.2}; messages: {messages}");
    let above = |bytes: usize| bytes as i64 - floor as i64;
    println!(
        "bytes above the floor: at most {}, {} after {ticks} ticks of 1 ms",
        above(most),
        above(allocated())
    );
}
