//! What is told to who follows keys and locks.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use super::store_cluster::{add, key, put, step};
use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::leases::Proof;
use crate::names::{LockName, Mode, RequestId};
use crate::replica::call::{Call, Grant, Limit, Reclaim, Refusal, Reply, Wait};
use crate::replica::store_call::{Then, TxnRefusal};
use crate::replica::watch_call::{LockEvent, LockMove, Pattern, Subject, Watch, WatchRefusal};
use crate::replica::{Event, Notice};

fn keys(prefix: &str) -> Pattern {
    Pattern::keys(b"b", prefix.as_bytes()).expect("a story follows what there can be")
}

fn locks(prefix: &str) -> Pattern {
    Pattern::locks(prefix.as_bytes()).expect("a story follows what there can be")
}

fn vector(seqs: &[(u8, u64)]) -> VersionVector {
    seqs.iter().map(|(id, seq)| (dc(*id), *seq)).collect()
}

impl Cluster {
    fn watch(&mut self, id: u8, pattern: Pattern, from: Option<VersionVector>) -> u64 {
        self.call(id, Call::Watch(Watch { subject: Subject::Keys, patterns: vec![pattern], from }))
    }

    fn watch_locks(&mut self, id: u8, patterns: Vec<Pattern>, from: Option<VersionVector>) -> u64 {
        self.call(id, Call::Watch(Watch { subject: Subject::Locks, patterns, from }))
    }

    /// Where a watch began.
    fn begun(&self, id: u8, tag: u64) -> VersionVector {
        match self.reply(id, tag) {
            Some(Reply::Watching { from }) => from,
            other => panic!("call {tag} at dc{id} is no watch but {other:?}"),
        }
    }

    fn watch_refused(&self, id: u8, tag: u64) -> WatchRefusal {
        match self.refused(id, tag) {
            Refusal::Watch(refusal) => refusal,
            other => panic!("call {tag} at dc{id} is not refused as a watch but {other:?}"),
        }
    }

    /// The keys in what a watch was told, commit by commit.
    fn told(&self, id: u8, tag: u64) -> Vec<Vec<String>> {
        let of = |notice: &Notice| match notice {
            Notice::Changed(changed) if changed.watch == tag => {
                Some(changed.changes.iter().map(|change| change.key.to_string()).collect())
            }
            _ => None,
        };
        self.nodes[usize::from(id)].notices.iter().filter_map(of).collect()
    }

    /// How far a watch was told to be complete, each time.
    fn reached(&self, id: u8, tag: u64) -> Vec<VersionVector> {
        let of = |notice: &Notice| match notice {
            Notice::Reached { watch, vector } if *watch == tag => Some(vector.clone()),
            _ => None,
        };
        self.nodes[usize::from(id)].notices.iter().filter_map(of).collect()
    }

    /// What a watch of locks was told since the last time, as it reads.
    fn heard(&mut self, id: u8, tag: u64) -> Vec<String> {
        self.take_events(id, tag).iter().map(said).collect()
    }

    fn take_events(&mut self, id: u8, tag: u64) -> Vec<LockEvent> {
        let mut events = Vec::new();
        self.nodes[usize::from(id)].notices.retain(|notice| match notice {
            Notice::Lock(news) if news.watch == tag => {
                events.push(news.event.clone());
                false
            }
            _ => true,
        });
        events
    }

    fn commits(&mut self, id: u8, key: u64, names: &[&str]) -> u64 {
        let changes = names.iter().map(|name| add(name, 1)).collect();
        self.begin(id, key, None, step(changes, &[], Then::Commit))
    }

    /// A client comes back with a lock that it held exclusively.
    fn reclaims(&mut self, id: u8, grant: &Grant, lock: &str) {
        let (lease, secret) = (self.lease(id), SECRET);
        self.call(id, Call::AttachLease { lease, secret });
        let wants = Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock");
        let (request, token) = (grant.request, grant.token);
        let held = vec![Reclaim { request, key: None, wants, token, label: "me".into() }];
        let tag = self.call(id, Call::Reclaim { lease, proof: Proof::Attached, held });
        let kept = vec![grant.request];
        assert_eq!(self.reply(id, tag), Some(Reply::Reclaimed { kept, lost: vec![] }));
    }

    fn restarts(&mut self, id: u8) {
        let keep = self.nodes[usize::from(id)].records.len();
        self.crash(id, keep);
        self.pass(600);
    }
}

fn said(event: &LockEvent) -> String {
    let held = |locks: &[(LockName, Mode)]| {
        let lock = |(name, mode): &(LockName, Mode)| match mode {
            Mode::Shared => format!("{name} shared"),
            Mode::Exclusive => name.to_string(),
        };
        locks.iter().map(lock).collect::<Vec<_>>().join(", ")
    };
    match event {
        LockEvent::Moved { dc, moves, .. } => {
            let one = |LockMove { lock, parts, to }: &LockMove| format!("{lock} {parts:?} to {to}");
            format!("{dc} moved {}", moves.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        LockEvent::Anew => "anew".into(),
        LockEvent::Current => "current".into(),
        LockEvent::Granted(holding) => format!("granted {}", held(&holding.locks)),
        LockEvent::Released(holding) => format!("released {}", held(&holding.locks)),
    }
}

#[test]
fn a_watch_is_told_of_every_commit_once_and_can_be_gone_on_with() {
    let mut c = Cluster::new(2, 0, 0);
    let first = c.watch(0, keys("n"), None);
    let from = c.begun(0, first);
    c.commits(0, 1, &["n1", "x"]);
    assert!(c.told(0, first).is_empty(), "it is not durable");
    c.run();
    c.commits(1, 1, &["x"]);
    let last = c.commits(1, 2, &["n2", "x", "n1"]);
    c.run();
    assert_eq!(c.told(0, first), [vec!["b/n1"], vec!["b/n2", "b/n1"]]);
    // Elsewhere, from where the first one began: the same, in an order that is causal.
    let elsewhere = c.watch(1, keys("n"), Some(from));
    assert_eq!(c.told(1, elsewhere), c.told(0, first));
    let known = c.committed(1, last);
    let ended = c.watch(1, keys("n2"), Some(known));
    c.call(1, Call::Unwatch { watch: ended });
    c.commits(0, 3, &["n2"]);
    c.run();
    assert!(c.told(1, ended).is_empty(), "the ended watch is told nothing");
    assert_eq!(c.told(1, elsewhere).len(), 3);
}

#[test]
fn a_watch_of_a_key_is_none_of_what_begins_like_it_and_names_followed_twice_are_told_once() {
    let mut c = Cluster::new(1, 0, 0);
    let one = c.watch(0, Pattern::key(&key("n")), None);
    let patterns = vec![keys("n"), Pattern::key(&key("n")), keys(""), keys("nn")];
    let all = c.call(0, Call::Watch(Watch { subject: Subject::Keys, patterns, from: None }));
    c.commits(0, 1, &["nn", "n", "m"]);
    c.commits(0, 2, &["nn"]);
    c.run();
    assert_eq!(c.told(0, one), [["b/n"]]);
    assert_eq!(c.told(0, all), [vec!["b/nn", "b/n", "b/m"], vec!["b/nn"]]);
}

#[test]
fn a_watch_knows_what_it_has_seen_elsewhere_before_it_comes_here() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    let before = c.commits(1, 1, &["n1"]);
    c.run();
    let known = c.committed(1, before);
    let watch = c.watch(0, keys(""), Some(known.clone()));
    assert_eq!(c.begun(0, watch), known);
    c.commits(1, 2, &["n2"]);
    c.run();
    c.link(0, 1);
    c.pass(600);
    assert_eq!(c.told(0, watch), [["b/n2"]], "the first one came here too, and is no news");
    c.pass(5_000);
    let (reached, durable) = (c.reached(0, watch), c.nodes[0].replica.status().durable);
    assert_eq!(reached, [durable]);
}

#[test]
fn a_quiet_watch_is_told_how_far_it_is_complete() {
    let mut c = Cluster::new(2, 0, 0);
    let quiet = c.watch(0, keys("quiet"), None);
    c.pass(6_000);
    assert!(c.reached(0, quiet).is_empty(), "nothing happened that it could fall behind");
    c.commits(0, 1, &["n"]);
    c.commits(1, 1, &["n"]);
    c.use_lock(0, "x");
    c.run();
    assert!(c.reached(0, quiet).is_empty(), "a commit is nothing to a watch that does not follow it");
    c.pass(600);
    assert_eq!(c.reached(0, quiet), [c.nodes[0].replica.status().durable]);
    c.pass(20_000);
    assert_eq!(c.reached(0, quiet).len(), 1, "once is enough");
    c.open_lease(0, Duration::from_secs(10));

    // Under load it does not wait for the time to pass, so that what follows is remembered.
    let large = "x".repeat(300_000);
    for key in 2..10 {
        c.begin(0, key, None, step(vec![put("large", &large)], &[], Then::Commit));
        c.run();
    }
    let reached = c.reached(0, quiet);
    assert_eq!(reached.len(), 3, "every MiB or so");
    let again = c.watch(0, keys("quiet"), reached.last().cloned());
    c.begun(0, again);
}

#[test]
fn those_who_are_told_at_once_are_told_bit_by_bit() {
    let mut c = Cluster::new(1, 0, 0);
    let some: Vec<u64> = (0..1_000).map(|_| c.watch(0, keys("quiet"), None)).collect();
    let more = Call::Watch(Watch { subject: Subject::Keys, patterns: vec![keys("q")], from: None });
    let refused = c.call(0, more);
    assert_eq!(c.watch_refused(0, refused), WatchRefusal::TooMany(1_000));
    c.commits(0, 1, &["n"]);
    c.pass(600);
    assert!(c.reached(0, some[999]).is_empty(), "it has just begun");
    c.pass(5_000);
    assert!(some.iter().all(|tag| c.reached(0, *tag).len() == 1));
}

#[test]
fn a_watch_goes_on_after_a_restart() {
    let mut c = Cluster::new(2, 0, 0);
    let from = c.nodes[0].replica.status().durable;
    c.commits(0, 1, &["n1"]);
    c.use_lock(1, "x");
    c.commits(1, 1, &["n2"]);
    c.run();
    c.restarts(0);
    let watch = c.watch(0, keys("n"), Some(from));
    assert_eq!(c.told(0, watch), [["b/n1"], ["b/n2"]]);
}

#[test]
fn a_watch_goes_on_after_a_restart_from_a_checkpoint() {
    let mut c = Cluster::new(2, 0, 0);
    let from = c.nodes[0].replica.status().durable;
    c.commits(0, 1, &["n1"]);
    c.commits(1, 1, &["n2"]);
    // Everybody has all of it, so nobody's log keeps any of it.
    c.pass(1_500);
    assert_eq!(c.nodes[0].replica.counts().log_entries, 0);
    c.cut(0, 1);
    c.commits(0, 2, &["n3"]);
    c.handle(0, Event::Checkpoint);
    while c.nodes[0].checkpoint.is_none() {
        c.handle(0, Event::Tick);
    }
    c.run();
    c.commits(0, 3, &["n4"]);
    c.run();
    let checkpoint = c.nodes[0].checkpoint.take().expect("it is there");
    assert_eq!((checkpoint.past.entries.len(), checkpoint.log.len()), (2, 1));
    c.restart_from(0, checkpoint);
    let watch = c.watch(0, keys("n"), Some(from));
    assert_eq!(c.told(0, watch), [["b/n1"], ["b/n2"], ["b/n3"], ["b/n4"]]);
}

#[test]
fn a_watch_cannot_go_on_from_what_is_forgotten() {
    let mut c = Cluster::new(1, 0, 0);
    let large = "x".repeat(900_000);
    for key in 1..6 {
        c.begin(0, key, None, step(vec![put("n", &large)], &[], Then::Commit));
    }
    c.run();
    let too_old = WatchRefusal::TooOld { begins: vector(&[(0, 1)]) };
    let watch = c.watch(0, keys("n"), Some(VersionVector::default()));
    assert_eq!(c.watch_refused(0, watch), too_old);
    let watch = c.watch(0, keys("n"), Some(vector(&[(0, 1)])));
    assert_eq!(c.told(0, watch).len(), 4);
    c.restarts(0);
    let watch = c.watch(0, keys("n"), Some(VersionVector::default()));
    assert_eq!(c.watch_refused(0, watch), too_old, "that is as it was");
    let watch = c.watch(0, keys("n"), Some(vector(&[(0, 2)])));
    c.begun(0, watch);
}

#[test]
fn a_watch_that_cannot_be_is_refused() {
    let mut c = Cluster::new(2, 0, 0);
    for from in [vector(&[(0, 100)]), vector(&[(3, 1)])] {
        let watch = c.watch(0, keys(""), Some(from.clone()));
        let Refusal::Transaction(refusal) = c.refused(0, watch) else {
            panic!("{from} is no vector of here")
        };
        let is_expected =
            matches!(refusal, TxnRefusal::FromTheFuture { seq: 100, .. } | TxnRefusal::UnknownDc(_));
        assert!(is_expected, "{refusal:?}");
    }
    for patterns in [vec![], vec![locks("x"); 101]] {
        let count = patterns.len();
        let watch = c.watch_locks(0, patterns, None);
        assert_eq!(c.watch_refused(0, watch), WatchRefusal::Patterns(count));
    }
    assert_eq!(c.nodes[0].replica.counts().watches, 0);
    // What all of them follow is bounded.
    let long = "x".repeat(1_000);
    let mut many = Vec::new();
    let refusal = loop {
        let watch = c.watch_locks(0, vec![locks(&long); 100], None);
        match c.reply(0, watch) {
            Some(Reply::Refused(refusal)) => break refusal,
            _ => many.push(watch),
        }
    };
    assert!(matches!(refusal, Refusal::ResourceExhausted { limit: Limit::Watches, .. }), "{refusal:?}");
    assert_eq!(many.len(), 592, "64 MiB of something over 100 KiB each");
    c.call(0, Call::Unwatch { watch: many[0] });
    let watch = c.watch_locks(0, vec![locks(&long); 100], None);
    c.begun(0, watch);
}

#[test]
fn moves_of_a_lock_are_told_once_everywhere_and_can_be_gone_on_with() {
    let mut c = Cluster::new(3, 0, 0);
    let here = c.watch_locks(0, vec![locks("a")], None);
    let from = c.begun(0, here);
    c.use_lock(1, "a1");
    c.use_lock(1, "b");
    c.run();
    c.use_lock(2, "a1");
    c.run();
    let moved =
        ["dc0 moved a1 {dc0} to dc1", "dc2 moved a1 {dc2} to dc1", "dc1 moved a1 {dc0, dc1, dc2} to dc2"];
    assert_eq!(c.heard(0, here)[2..], moved);
    let elsewhere = c.watch_locks(2, vec![Pattern::lock(&name("a1"))], Some(from.clone()));
    let mut heard = c.heard(2, elsewhere);
    heard.retain(|event| event.contains("moved"));
    heard.sort();
    assert_eq!(heard, [moved[0], moved[2], moved[1]], "in an order that is causal");
    c.restarts(0);
    let again = c.watch_locks(0, vec![locks("a")], Some(from));
    assert_eq!(c.heard(0, again)[..3], moved);
    let durable = c.nodes[0].replica.status().durable;
    let later = c.watch_locks(0, vec![locks("a")], Some(durable));
    assert_eq!(c.heard(0, later), ["anew", "current"]);
}

#[test]
fn a_watch_of_locks_begins_with_who_holds_them() {
    let mut c = Cluster::new(1, 0, 0);
    let shared = c.share(0, "a");
    c.share(0, "a");
    let both = c.acquire(0, &[("b", Mode::Exclusive), ("ab", Mode::Shared)], Wait::Forever);
    c.lock(0, "c");
    c.run();
    let watch = c.watch_locks(0, vec![locks("a"), Pattern::lock(&name("b"))], None);
    assert_eq!(
        c.heard(0, watch),
        ["anew", "granted a shared", "granted a shared", "granted ab shared", "granted b", "current"]
    );
    let waits = c.lock(0, "a");
    let shared = c.granted(0, shared).request;
    c.release(0, shared);
    c.release(0, shared);
    let both = c.granted(0, both).request;
    c.release(0, both);
    assert_eq!(c.heard(0, watch), ["released a shared", "released ab shared, b"]);
    // The lease ends, and with it all that holds: the waiter and the rest.
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    assert_eq!(c.refused(0, waits), Refusal::LeaseEnded);
    assert_eq!(c.heard(0, watch), ["released a shared"]);
}

#[test]
fn a_grant_is_told_when_its_holder_may_know_of_it() {
    let mut c = Cluster::new(1, 0, 0);
    c.begin(0, 1, Some("a"), step(vec![add("n", 1)], &[], Then::Commit));
    let tag = c.lock(0, "a");
    let watch = c.watch_locks(0, vec![locks("")], None);
    assert!(!c.is_answered(0, tag), "the commit before it is not on disk");
    assert_eq!(c.heard(0, watch), ["anew", "current"]);
    c.sync(0);
    let request = c.granted(0, tag).request;
    assert_eq!(c.heard(0, watch), ["granted a"]);
    // One that nobody was told of was never there; a transaction of one step comes and goes.
    c.release(0, request);
    c.begin(0, 2, Some("a"), step(vec![add("n", 1)], &[], Then::Commit));
    let never = c.lock(0, "a");
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    assert_eq!(c.refused(0, never), Refusal::LeaseEnded);
    c.run();
    assert_eq!(c.heard(0, watch), ["released a", "granted a", "released a"]);
}

#[test]
fn a_retried_acquire_is_no_news_and_a_reclaimed_lock_is() {
    let mut c = Cluster::new(1, 0, 0);
    let watch = c.watch_locks(0, vec![locks("")], None);
    let first = c.acquire_as(0, Some(1), &[("a", Mode::Exclusive)], Wait::Forever);
    let again = c.acquire_as(0, Some(1), &[("a", Mode::Exclusive)], Wait::Forever);
    let grant = c.granted(0, first);
    assert_eq!(c.granted(0, again), grant);
    assert_eq!(c.heard(0, watch), ["anew", "current", "granted a"]);
    c.restarts(0);
    let watch = c.watch_locks(0, vec![locks("")], None);
    assert_eq!(c.heard(0, watch), ["anew", "current"], "nobody has come back");
    c.reclaims(0, &grant, "a");
    assert_eq!(c.heard(0, watch), ["granted a"]);
}

/// What a client of a watch of locks knows, and what it has read without saying so.
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
                LockEvent::Anew => {
                    (self.held, self.is_current) = (BTreeSet::new(), false);
                    self.begun += 1;
                }
                LockEvent::Current => self.is_current = true,
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

/// Who takes the place of one that leaves is told all the same.
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

/// Locks come and go, and some who follow them read when it pleases them: none is told more than it may leave unread,
/// and each knows in the end who holds what.
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
        // The more it follows the less it reads.
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
    assert!(c.nodes[0].replica.counts().watch_news_lost > 500);
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

/// Reads all there is, and says so as a server's edge does: in pieces, and not of the last bit.
fn reads(c: &mut Cluster, watch: u64, follower: &mut Follower) {
    let events = c.take_events(0, watch);
    assert!(events.iter().map(LockEvent::weight).sum::<usize>() <= (256 << 10) + 2_000, "that is bounded");
    follower.reads(events);
    if follower.unsaid >= crate::replica::SAY_TAKEN_AT {
        let weight = std::mem::take(&mut follower.unsaid);
        c.call(0, Call::WatchTaken { watch, weight });
    }
}
