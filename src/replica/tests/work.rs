//! Stories about loads that exceed the work of one step. The cluster asserts the bound after every step;
//! these stories assert that all work is done in the end, and that some things cost nothing.

use std::time::Duration;

use super::cluster::{Cluster, dc};
use super::store_cluster::{add, change, put, step};
use crate::base::bugs::Bug;
use crate::causal_log::{Action, Change};
use crate::replica::call::store::Then;
use crate::replica::call::watch::{Pattern, Subject, Watch};
use crate::replica::call::{Call, Refusal, Wait};
use crate::replica::{Event, Message};
use geolock_api::names::Mode;
use geolock_api::value::{Op, PathStep, SetOp, Update};

const MANY: u64 = 3_000;

impl Cluster {
    /// Completes all work that is spread over several steps.
    fn do_the_rest(&mut self, id: u8) {
        for _ in 0..MANY {
            self.handle(id, Event::Tick);
            self.sync(id);
        }
    }

    fn fill(&mut self, names: impl Iterator<Item = (u64, Change)>) {
        for (key, change) in names {
            self.begin(0, key, None, step(vec![change], &[], Then::Commit));
        }
        self.run();
    }
}

fn items(from: u64, to: u64) -> Vec<bytes::Bytes> {
    (from..to).map(|n| format!("{n:06}").into()).collect()
}

#[test]
fn waits_that_end_together_end_some_at_a_time() {
    end_many_waits(Cluster::new(1, 0, 0));
}

#[test]
#[should_panic(expected = "things in one step")]
fn were_they_to_end_all_at_once_it_would_be_noticed() {
    let mut c = Cluster::new(1, 0, 0);
    c.bug = Some(Bug::AllWaitsAtOnce);
    c.restart(0);
    c.pass(15_000);
    c.open_lease(0, Duration::from_secs(10));
    end_many_waits(c);
}

fn end_many_waits(mut c: Cluster) {
    let holder = c.lock(0, "x");
    c.granted(0, holder);
    let wait = Wait::AtMost(Duration::from_secs(1));
    let tags: Vec<u64> = (0..MANY).map(|_| c.acquire(0, &[("x", Mode::Exclusive)], wait)).collect();
    c.pass(1_200);
    assert!(tags.iter().all(|tag| matches!(c.refused(0, *tag), Refusal::TimedOut(_))));
}

#[test]
fn waits_for_many_locks_end_a_few_at_a_time() {
    let mut c = Cluster::new(1, 0, 0);
    let holder = c.lock(0, "x");
    c.granted(0, holder);
    let wait = Wait::AtMost(Duration::from_secs(1));
    let tags: Vec<u64> = (0..12)
        .map(|request| {
            let names: Vec<String> = (0..1_000).map(|n| format!("a-{request}-{n}")).collect();
            let locks = names.iter().map(|name| (&name[..], Mode::Exclusive));
            c.acquire(0, &locks.chain([("x", Mode::Exclusive)]).collect::<Vec<_>>(), wait)
        })
        .collect();
    c.pass(1_200);
    for tag in tags {
        let Refusal::TimedOut(locks) = c.refused(0, tag) else { panic!("its time is over") };
        assert_eq!(locks.len(), 1, "what it had to wait for is found among all that it wants");
        assert_eq!(locks[0].lock.as_bytes(), b"x");
    }
}

#[test]
fn readers_behind_a_writer_that_gives_up_follow_some_at_a_time() {
    let mut c = Cluster::new(1, 0, 0);
    let reader = c.share(0, "x");
    c.granted(0, reader);
    let writer = c.acquire(0, &[("x", Mode::Exclusive)], Wait::AtMost(Duration::from_secs(1)));
    let readers: Vec<u64> = (0..MANY).map(|_| c.share(0, "x")).collect();
    assert!(!c.is_answered(0, readers[0]));
    c.pass(1_100);
    assert!(matches!(c.refused(0, writer), Refusal::TimedOut(_)));
    readers.iter().for_each(|reader| drop(c.granted(0, *reader)));
}

#[test]
fn a_writer_that_comes_and_goes_does_not_make_blocked_readers_be_looked_at() {
    let mut c = Cluster::new(1, 0, 0);
    c.checks_itself = true;
    let holder = c.lock(0, "x");
    let held = c.granted(0, holder);
    let readers: Vec<u64> = (0..MANY).map(|_| c.share(0, "x")).collect();
    c.most_work = 0;
    for _ in 0..3 {
        c.acquire(0, &[("x", Mode::Exclusive)], Wait::AtMost(Duration::from_millis(5)));
        c.pass(10);
    }
    assert!(c.most_work < 100, "a step looked at {}", c.most_work);
    c.release(0, held.request);
    c.do_the_rest(0);
    readers.iter().for_each(|reader| drop(c.granted(0, *reader)));
    c.nodes[0].replica.check();
}

#[test]
fn a_peer_that_comes_and_goes_parks_waiters_some_at_a_time() {
    let mut c = Cluster::new(2, 0, 0);
    c.checks_itself = true;
    c.open_lease(0, Duration::from_secs(60));
    c.cut(0, 1);
    let tags: Vec<u64> = (0..MANY).map(|n| c.lock(0, &format!("x{n}"))).collect();
    let parked = |c: &Cluster| c.inspect(0).counts().parked;
    c.pass(4_000);
    assert_eq!(parked(&c), MANY);
    c.nodes[0].replica.check();
    c.most_work = 0;
    c.link(0, 1);
    c.pass(3_000);
    // One message contains as much work as one step may do.
    assert!(c.most_work < 8_000, "a step looked at {}", c.most_work);
    assert_eq!(parked(&c), 0);
    tags.iter().for_each(|tag| drop(c.granted(0, *tag)));
    c.nodes[0].replica.check();
}

/// Many requests of dc1 arrive at dc0 before the entry of dc2 that the first of them depends on.
fn many_entries_are_held_back(bug: Option<Bug>) {
    let mut c = Cluster::with_old(3, Default::default(), bug);
    c.checks_itself = true;
    c.open_lease(1, Duration::from_secs(60));
    c.run();
    let of_dc2 = |message: &_| matches!(message, Message::Entries(entries) if entries[0].dc == dc(2));
    c.late = of_dc2;
    c.lock(2, "first");
    c.sync(2);
    c.late = |_| false;
    while c.deliver(2, 1) {}
    c.late = of_dc2;
    let tags: Vec<u64> = (0..MANY).map(|n| c.lock(1, &format!("x{n}"))).collect();
    c.run();
    assert!(c.nodes[0].replica.peers.inbox.len() > 1_000, "dc0 holds them back");
    c.late = |_| false;
    c.run();
    c.do_the_rest(0);
    c.run();
    tags.iter().for_each(|tag| drop(c.granted(1, *tag)));
    c.nodes[0].replica.check();
}

#[test]
fn entries_that_were_held_back_are_applied_some_at_a_time() {
    many_entries_are_held_back(None);
}

#[test]
#[should_panic(expected = "things in one step")]
fn entries_that_are_all_applied_at_once_are_noticed() {
    many_entries_are_held_back(Some(Bug::HeldBackAtOnce));
}

/// Tombstones are kept while a member is away that may add the elements, and compacted when it is back.
#[test]
fn removals_are_forgotten_some_at_a_time() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    let set = |of: SetOp| change("set", Op::RemoveWinsSet(of));
    for (key, from) in (1..).zip((0..25_000).step_by(1_000)) {
        let range = || items(from, from + 1_000);
        let changes = vec![set(SetOp::Add(range())), set(SetOp::Remove(range()))];
        c.begin(0, key, None, step(changes, &[], Then::Commit));
        c.run();
    }
    c.link(0, 1);
    c.pass(10_000);
    for id in [0, 1] {
        assert_eq!(c.inspect(id).counts().tombstones_pending, 0, "dc{id}");
        assert!(c.nodes[id].replica.data.store.counts().keys == 0, "nothing is left of the set in dc{id}");
    }
}

#[test]
fn a_watch_from_now_looks_at_nothing_that_was() {
    let mut c = Cluster::new(1, 0, 0);
    c.fill((1..MANY).map(|key| (key, add("n", 1))));
    c.do_the_rest(0);
    c.most_work = 0;
    let patterns = vec![Pattern::BeginsWith([][..].into())];
    c.call(0, Call::Watch(Watch { subject: Subject::Keys, patterns, from: None }));
    assert_eq!(c.most_work, 0);
}

#[test]
fn one_change_of_a_large_value_looks_at_little_of_it() {
    let mut c = Cluster::new(1, 0, 0);
    let set = |of: SetOp| change("set", Op::AddWinsSet(of));
    let many = 15_000;
    let field = |n: u64| {
        let path =
            vec![PathStep { map: geolock_api::value::MapType::Resettable, field: format!("{n:06}").into() }];
        let action = Action::Update(Update {
            path,
            op: Op::MvRegister(geolock_api::value::RegisterOp::Assign("v".into())),
        });
        Change { key: super::store_cluster::key("map"), action }
    };
    for (key, range) in (1..).zip((0..many).step_by(1_000)) {
        let mut changes: Vec<Change> = (range..range + 1_000).map(field).collect();
        changes.push(set(SetOp::Add(items(range, range + 1_000))));
        c.begin(0, key, None, step(changes, &[], Then::Commit));
        c.run();
    }
    c.pass(3_000);
    c.most_work = 0;
    let one =
        |n: u64| vec![set(SetOp::Add(items(n, n + 1))), set(SetOp::Remove(items(n + 1, n + 2))), field(n)];
    for key in 100..120_u64 {
        // The effect before it is not folded yet.
        c.begin(0, key, None, step(one(7 * key), &["set", "map"], Then::Commit));
        if key % 5 == 0 {
            c.run();
        }
    }
    c.begin(0, 200, None, step(vec![put("r", "v")], &[], Then::Commit));
    c.pass(3_000);
    assert!(c.most_work < 4_000, "a step looked at {}", c.most_work);
}
