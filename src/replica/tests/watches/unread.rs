//! Stories about clients that follow locks and read late: their unread events are bounded, and in the end
//! they know the holders.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::cluster::{Cluster, name};
use super::locks;
use crate::replica::Event;
use crate::replica::call::watch::{LockEvent, Pattern};
use crate::replica::call::{Call, Wait};
use geolock_api::names::{LockName, Mode, RequestId};

/// The holders that a client of a watch of locks knows, and the bytes that it has read and not acknowledged.
#[derive(Default)]
struct Follower {
    held: BTreeSet<(RequestId, LockName)>,
    is_current: bool,
    unsaid: usize,
    begun: usize,
}

impl Follower {
    fn reads(&mut self, events: Vec<LockEvent>) {
        for event in events {
            self.unsaid += event.weight();
            match event {
                LockEvent::HoldersReset => {
                    (self.held, self.is_current) = (BTreeSet::new(), false);
                    self.begun += 1;
                }
                LockEvent::HoldersSynced => self.is_current = true,
                LockEvent::Granted(holding) => {
                    self.held.extend(holding.locks.into_iter().map(|(lock, _)| (holding.request, lock)));
                }
                LockEvent::Released(holding) => {
                    holding.locks.iter().for_each(|(lock, _)| {
                        self.held.remove(&(holding.request, lock.clone()));
                    });
                }
                LockEvent::Moved { .. } => {}
            }
        }
    }
}

/// A holder that takes the place of a removed one is sent, too.
#[test]
fn holders_that_come_and_go_while_they_are_told_are_told() {
    let mut c = Cluster::new(1, 0, 0);
    let lock = name(&"x".repeat(1_000));
    let share = |c: &mut Cluster| {
        let tag = c.acquire(0, &[(&"x".repeat(1_000), Mode::Shared)], Wait::Try);
        c.granted(0, tag).request
    };
    let mut held: Vec<RequestId> = (0..400).map(|_| share(&mut c)).collect();
    let watches = [Pattern::lock(&lock), locks("x")].map(|pattern| c.watch_locks(0, vec![pattern], None));
    let mut followers = [Follower::default(), Follower::default()];
    for step in 0.. {
        for (watch, follower) in watches.into_iter().zip(&mut followers) {
            reads(&mut c, watch, follower);
        }
        if followers.iter().all(|follower| follower.is_current) {
            assert!(step > 2, "it takes some time");
            break;
        }
        for place in [0, held.len() / 2, held.len() - 1, held.len() / 4] {
            let request = held.swap_remove(place % held.len());
            c.release(0, request);
        }
        held.push(share(&mut c));
    }
    let expected: BTreeSet<_> = held.into_iter().map(|request| (request, lock.clone())).collect();
    assert_eq!(
        followers.map(|follower| (follower.begun, follower.held)),
        [1, 1].map(|begun| (begun, expected.clone()))
    );
}

/// Locks are granted and released, and their followers read at random times. None is sent more than it may
/// leave unread, and in the end each knows all holders.
#[test]
fn who_does_not_keep_up_begins_anew_and_stops_nobody() {
    let mut c = Cluster::new(1, 0, 0);
    c.open_lease(0, Duration::from_secs(60));
    let mut held: Vec<(RequestId, LockName)> = Vec::new();
    let mut random = 0x5eed_u64;
    let mut dice = |sides: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % sides
    };
    let patterns = [vec![locks("")], vec![locks("x/"), Pattern::lock(&name("shared"))], vec![locks("x/1")]];
    let watches = patterns.map(|patterns| c.watch_locks(0, patterns, None));
    let mut followers = [Follower::default(), Follower::default(), Follower::default()];
    let long = "x".repeat(500);
    for _ in 0..4_000 {
        match dice(10) {
            0..=4 if held.len() < 300 => {
                let lock = if dice(2) == 0 { "shared".to_owned() } else { format!("x/{}/{long}", dice(300)) };
                let tag = c.acquire(0, &[(&lock, Mode::Shared)], Wait::Try);
                held.push((c.granted(0, tag).request, name(&lock)));
            }
            0..=7 if !held.is_empty() => {
                let (request, _) = held.swap_remove(dice(held.len() as u64) as usize);
                c.release(0, request);
            }
            _ => c.handle(0, Event::Tick),
        }
        // The more a client follows, the less often it reads.
        let reader = dice(3) as usize;
        if dice(1_000) < [2, 10, 200][reader] {
            reads(&mut c, watches[reader], &mut followers[reader]);
        }
    }
    let begun = [0, 1, 2].map(|i| followers[i].begun);
    assert!(
        begun[0] > 1 && begun[2] == 1,
        "who reads too little loses something, who reads does not: {begun:?}"
    );
    assert!(c.inspect(0).counts().watch_events_dropped > 500);
    while !followers.iter().all(|follower| follower.is_current) || !c.nodes[0].notices.is_empty() {
        for (watch, follower) in watches.into_iter().zip(&mut followers) {
            reads(&mut c, watch, follower);
        }
        c.handle(0, Event::Tick);
    }
    for (i, follower) in followers.into_iter().enumerate() {
        let follows = |lock: &LockName| match i {
            0 => true,
            1 => lock.as_bytes().starts_with(b"x/") || *lock == name("shared"),
            _ => lock.as_bytes().starts_with(b"x/1"),
        };
        let expected: BTreeSet<_> = held.iter().filter(|(_, lock)| follows(lock)).cloned().collect();
        assert_eq!(follower.held, expected);
        assert!(expected.len() > 10, "enough is held to be wrong about");
    }
}

/// Reads all events, and acknowledges as the server's edge does: in portions, and not the last bytes.
fn reads(c: &mut Cluster, watch: u64, follower: &mut Follower) {
    let events = c.take_events(0, watch);
    assert!(events.iter().map(LockEvent::weight).sum::<usize>() <= (256 << 10) + 2_000, "that is bounded");
    follower.reads(events);
    if follower.unsaid >= crate::replica::SAY_TAKEN_AT {
        let weight = std::mem::take(&mut follower.unsaid);
        c.call(0, Call::WatchTaken { watch, weight });
    }
}
