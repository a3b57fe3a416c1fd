//! Stories about clients and datacenters, as tests.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use super::store_cluster::{add, step};
use crate::causal_log::{Entry, EntryFault, LockParts, Op, Violation};
use crate::leases::Proof;
use crate::replica::call::store::Then;
use crate::replica::call::{Call, Phase, Reclaim, Refusal, Reply, Target, Wait};
use crate::replica::{Event, Message, Notice};
use geolock_api::names::{ClusterId, FencingToken, Mode};

#[test]
fn a_lock_moves_once_and_is_then_granted_without_any_message() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    let sent = c.sent;
    for _ in 0..10 {
        c.use_lock(0, "a");
    }
    assert_eq!(c.sent, sent, "a lock used again where it is costs no message");
}

#[test]
fn who_waits_for_a_neighbour_asked_no_other_datacenter() {
    let mut c = Cluster::new(3, 0, 0);
    let first = c.lock(0, "a");
    c.run();
    let first = c.granted(0, first);
    let second = c.lock(0, "a");
    c.release(0, first.request);
    c.run();
    c.granted(0, second);
    let counts = c.inspect(0).counts();
    assert_eq!((counts.grants, counts.grants_local), (2, 1), "only the first needed parts from elsewhere");
}

#[test]
fn shared_everywhere_then_exclusive_then_shared_again() {
    let mut c = Cluster::new(3, 0, 0);
    let readers: Vec<u64> = (0..3).map(|id| c.share(id, "a")).collect();
    let sent = c.sent;
    let grants: Vec<_> = (0..3).map(|id| c.granted(id, readers[usize::from(id)])).collect();
    assert_eq!(c.sent, sent, "every datacenter has its own part at first");
    let writer = c.lock(1, "a");
    c.run();
    assert!(!c.is_answered(1, writer));
    for id in 0..3 {
        c.release(id, grants[usize::from(id)].request);
    }
    c.run();
    let written = c.granted(1, writer);
    assert!(
        grants.iter().all(|grant| grant.token < written.token),
        "a later conflicting grant has a higher token"
    );
    let readers: Vec<u64> = (0..3).map(|id| c.share(id, "a")).collect();
    c.run();
    assert!((0..3).all(|id| !c.is_answered(id, readers[usize::from(id)])));
    c.release(1, written.request);
    c.run();
    assert!((0..3).all(|id| c.granted(id, readers[usize::from(id)]).token > written.token));
}

#[test]
fn four_locks_at_once_go_round_the_datacenters() {
    let mut c = Cluster::new(3, 0, 0);
    let locks = ["a", "b", "c", "d"].map(|lock| (lock, Mode::Exclusive));
    let mut last = FencingToken(0);
    for id in [2, 0, 0, 1, 2, 1, 2, 0] {
        let tag = c.acquire(id, &locks, Wait::Forever);
        c.run();
        let grant = c.granted(id, tag);
        assert!(grant.token > last);
        last = grant.token;
        c.release(id, grant.request);
    }
}

#[test]
fn a_remote_writer_is_not_starved_by_overlapping_readers() {
    let mut c = Cluster::new(2, 250, 1_000);
    let first = c.share(0, "a");
    let mut held = c.granted(0, first).request;
    let writer = c.lock(1, "a");
    c.run();
    for _ in 0..30 {
        c.pass(50);
        let next = c.share(0, "a");
        c.run();
        c.release(0, held);
        c.run();
        let Some(Reply::Granted(grant)) = c.reply(0, next) else { break };
        held = grant.request;
    }
    c.run();
    assert!(c.is_answered(1, writer), "after max_keep no later reader goes first");
}

#[test]
fn a_lock_in_use_is_kept_for_a_while_and_an_idle_one_is_not() {
    let mut c = Cluster::new(2, 250, 1_000);
    c.use_lock(0, "a");
    let other = c.lock(1, "a");
    c.run();
    assert!(!c.is_answered(1, other), "it was used a moment ago");
    c.pass(250);
    assert!(c.is_answered(1, other));

    c.use_lock(0, "b");
    c.pass(300);
    let other = c.lock(1, "b");
    c.run();
    assert!(c.is_answered(1, other), "idle for min_keep: it leaves at once");
}

#[test]
fn an_answer_waits_for_the_arrival_of_its_parts_to_be_durable() {
    let mut c = Cluster::new(2, 0, 0);
    let tag = c.lock(0, "a");
    c.sync(0);
    while c.deliver(0, 1) {}
    c.sync(1);
    while c.deliver(1, 0) {}
    assert!(!c.is_answered(0, tag), "the transfer is applied but not on disk");
    c.sync(0);
    assert!(c.is_answered(0, tag));
}

#[test]
fn nothing_is_sent_before_it_is_durable() {
    let mut c = Cluster::new(2, 0, 0);
    let sent = c.sent;
    let _ = c.lock(0, "a");
    assert_eq!(c.sent, sent);
    c.sync(0);
    assert_eq!(c.sent, sent + 1);
}

#[test]
fn try_answers_at_once_and_sends_nothing() {
    let mut c = Cluster::new(2, 0, 0);
    let sent = c.sent;
    let tag = c.acquire(0, &[("a", Mode::Exclusive)], Wait::Try);
    c.run();
    assert_eq!(c.refused(0, tag), Refusal::NotFree);
    let tag = c.acquire(0, &[("a", Mode::Shared)], Wait::Try);
    c.granted(0, tag);
    assert_eq!(c.sent, sent);
}

#[test]
fn a_request_lost_with_its_link_is_sent_again() {
    let mut c = Cluster::new(2, 0, 0);
    let tag = c.lock(0, "a");
    c.sync(0);
    c.cut(0, 1);
    c.link(0, 1);
    c.run();
    c.granted(0, tag);
}

#[test]
fn entries_go_round_a_cut_link() {
    let mut c = Cluster::new(3, 0, 0);
    c.cut(0, 1);
    let tag = c.lock(0, "a");
    c.run();
    c.granted(0, tag);
}

#[test]
fn who_needs_a_dead_datacenter_waits_and_stops_nobody() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "mine");
    c.cut(0, 2);
    c.cut(1, 2);
    c.run();
    c.pass(3_100);
    let stuck = c.acquire(0, &[("mine", Mode::Exclusive), ("other", Mode::Exclusive)], Wait::Forever);
    c.run();
    assert!(!c.is_answered(0, stuck));
    c.use_lock(0, "mine");
    let elsewhere = c.lock(1, "mine");
    c.run();
    c.granted(1, elsewhere);
    let grant = c.granted(1, elsewhere);
    c.release(1, grant.request);
    c.link(0, 2);
    c.link(1, 2);
    c.pass(600);
    c.granted(0, stuck);
}

#[test]
fn a_due_request_of_a_datacenter_that_died_stops_no_local_grants() {
    let mut c = Cluster::new(2, 0, 0);
    c.use_lock(0, "a");
    let held = c.lock(0, "a");
    let held = c.granted(0, held);
    let _ = c.lock(1, "a");
    c.run();
    c.cut(0, 1);
    c.pass(3_100);
    c.release(0, held.request);
    c.use_lock(0, "a");
}

#[test]
fn a_timeout_says_who_holds_what() {
    let mut c = Cluster::new(2, 0, 0);
    let holder = c.lock(1, "a");
    c.run();
    let held = c.granted(1, holder);
    let tag = c.acquire(0, &[("a", Mode::Exclusive)], Wait::AtMost(Duration::from_millis(100)));
    c.run();
    c.pass(100);
    let Refusal::TimedOut(locks) = c.refused(0, tag) else { panic!("it timed out") };
    assert_eq!(locks[0].owners, [(dc(0), dc(1)), (dc(1), dc(1))]);
    assert_eq!(locks[0].holders.len(), 1);
    assert_eq!((locks[0].holders[0].dc, locks[0].holders[0].token), (dc(1), held.token));
    c.release(1, held.request);
    c.run();
    assert_eq!(c.inspect(1).counts().remote_requests, 0, "what timed out is withdrawn everywhere");
}

#[test]
fn a_timeout_names_the_locks_in_the_way_and_no_others() {
    let mut c = Cluster::new(2, 0, 0);
    let holder = c.lock(1, "z");
    c.run();
    c.granted(1, holder);
    let names: Vec<String> = (10..30).map(|n| n.to_string()).chain(["z".to_owned()]).collect();
    let wants: Vec<_> = names.iter().map(|name| (name.as_str(), Mode::Exclusive)).collect();
    let tag = c.acquire(0, &wants, Wait::AtMost(Duration::from_millis(100)));
    c.run();
    c.pass(100);
    let Refusal::TimedOut(locks) = c.refused(0, tag) else { panic!("it timed out") };
    assert_eq!(locks.iter().map(|lock| lock.lock.to_string()).collect::<Vec<_>>(), ["z"]);
}

#[test]
fn who_is_granted_after_all_leaves_no_question_behind() {
    let mut c = Cluster::new(2, 0, 0);
    let holder = c.lock(1, "a");
    c.run();
    let held = c.granted(1, holder);
    let tag = c.acquire(0, &[("a", Mode::Exclusive)], Wait::AtMost(Duration::from_millis(400)));
    c.run();
    c.pass(300);
    // The cluster checks after every step that a request with an early query still waits.
    c.release(1, held.request);
    c.run();
    c.granted(0, tag);
}

#[test]
fn a_lease_that_is_not_kept_alive_loses_its_locks() {
    let mut c = Cluster::new(2, 0, 0);
    let tag = c.lock(0, "a");
    c.run();
    c.granted(0, tag);
    let other = c.lock(1, "a");
    for _ in 0..3 {
        c.pass(5_000);
        let lease = c.lease(1);
        c.call(1, Call::KeepAlive { lease, proof: Proof::Attached });
    }
    assert_eq!(c.nodes[0].notices, [Notice::LeaseEnded { lease: c.lease(0) }]);
    c.granted(1, other);
}

#[test]
fn after_a_crash_nobody_gets_the_lock_until_its_holder_had_time_to_reclaim_it() {
    let mut c = Cluster::new(2, 0, 0);
    let tag = c.lock(0, "a");
    c.run();
    let grant = c.granted(0, tag);
    let waiting = c.lock(1, "a");
    c.run();
    c.restart(0);
    c.link(0, 1);
    c.pass(2_000);
    assert_eq!(c.inspect(0).phase(), Phase::Grace { leases: 1 });
    assert!(!c.is_answered(1, waiting));

    let lease = c.lease(0);
    let attach = c.call(0, Call::AttachLease { lease, secret: SECRET });
    assert!(matches!(c.reply(0, attach), Some(Reply::LeaseAttached { reclaim: true, .. })));
    let wants = crate::causal_log::Wants::all(vec![(name("a"), Mode::Exclusive)]).expect("one lock");
    let held =
        vec![Reclaim { request: grant.request, key: None, wants, token: grant.token, label: "me".into() }];
    let reclaim = c.call(0, Call::Reclaim { lease, proof: Proof::Attached, held });
    assert_eq!(c.reply(0, reclaim), Some(Reply::Reclaimed { kept: vec![grant.request], lost: vec![] }));
    c.pass(1_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    assert!(!c.is_answered(1, waiting));
    c.release(0, grant.request);
    c.run();
    assert!(c.granted(1, waiting).token > grant.token);
}

#[test]
fn a_datacenter_that_lost_its_disk_fetches_its_log_before_it_writes() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(1, "a");
    c.use_lock(0, "a");
    c.crash(0, 0);
    c.cut(1, 2);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly);
    c.link(0, 1);
    c.pass(2_000);
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "not all members can be asked");
    c.link(0, 2);
    c.pass(500);
    assert_eq!(c.inspect(0).owner_of(&name("a"), dc(1)), dc(0));
    assert_eq!(c.inspect(0).phase(), Phase::ReadOnly, "leases lost with the disk may live");
    c.pass(60_000);
    assert_eq!(c.inspect(0).phase(), Phase::Serving);
    (0..2).for_each(|id| c.open_lease(id, Duration::from_secs(10)));
    c.use_lock(0, "a");
    c.use_lock(1, "a");
}

#[test]
fn own_requests_of_before_a_crash_are_withdrawn() {
    let mut c = Cluster::new(2, 0, 0);
    let held = c.lock(1, "a");
    c.run();
    let held = c.granted(1, held);
    let _ = c.lock(0, "a");
    c.run();
    assert_eq!(c.inspect(1).counts().remote_requests, 1);
    c.restart(0);
    c.link(0, 1);
    c.pass(600);
    assert_eq!(c.inspect(1).counts().remote_requests, 0);
    c.release(1, held.request);
}

#[test]
fn a_transfer_by_somebody_who_is_not_the_owner_closes_the_link_and_changes_nothing() {
    let mut c = Cluster::new(3, 0, 0);
    let deps = c.inspect(0).status().applied;
    let parts = vec![LockParts { lock: name("a"), parts: vec![(dc(0), 1)] }];
    let entry = Entry {
        cluster: ClusterId::of("stories"),
        epoch: 0,
        prev: 0,
        lead_ms: 0,
        dc: dc(1),
        seq: deps.get(dc(1)) + 1,
        at: crate::base::time::Timestamp::from_millis(1_700_000_001_001),
        deps,
        ops: vec![Op::Transfer { to: dc(2), parts }],
    };
    let message = Message::Entries(vec![entry.clone().into()]);
    c.handle(0, Event::Received { peer: dc(1), message });
    let fault = EntryFault::NotTheOwner { lock: name("a"), part: dc(0), owner: dc(0) };
    assert_eq!(c.nodes[0].violations, [Violation::Entry { dc: dc(1), seq: entry.seq, fault }]);
    assert_eq!(c.inspect(0).owner_of(&name("a"), dc(0)), dc(0));
}

#[test]
fn an_entry_from_too_far_in_the_future_waits_and_is_then_applied() {
    let mut c = Cluster::new(2, 0, 0);
    let deps = c.inspect(0).status().applied;
    let entry = Entry {
        cluster: ClusterId::of("stories"),
        epoch: 0,
        prev: 0,
        lead_ms: 0,
        dc: dc(1),
        seq: deps.get(dc(1)) + 1,
        at: crate::base::time::Timestamp::from_millis(1_700_000_001_000 + 7_000),
        deps,
        ops: vec![],
    };
    c.handle(0, Event::Received { peer: dc(1), message: Message::Entries(vec![entry.clone().into()]) });
    let applied = |c: &Cluster| c.inspect(0).status().applied.get(dc(1));
    assert_eq!(applied(&c), entry.seq - 1);
    assert!(c.inspect(0).status().peers[0].paused_by_skew);
    c.pass(2_100);
    assert_eq!(applied(&c), entry.seq);
    assert!(!c.inspect(0).status().peers[0].paused_by_skew);
    assert!(c.nodes[0].violations.is_empty());
}

#[test]
fn ending_again_what_is_over_succeeds_and_ending_what_never_was_does_not() {
    let mut c = Cluster::new(2, 0, 0);
    let tag = c.share(0, "a");
    let grant = c.granted(0, tag);
    for _ in 0..2 {
        let tag = c.release(0, grant.request);
        assert_eq!(c.reply(0, tag), Some(Reply::Released));
    }
    let never = geolock_api::names::RequestId { n: grant.request.n + 1, ..grant.request };
    for n in [0, never.n, u64::MAX] {
        let tag = c.release(0, geolock_api::names::RequestId { n, ..never });
        assert_eq!(c.refused(0, tag), Refusal::NotHeld);
    }
    let waiting = c.lock(0, "a");
    let lease = c.lease(0);
    let tag = c.call(0, Call::Cancel { lease, proof: Proof::Attached, target: Target::Id(never) });
    assert_eq!(c.reply(0, tag), Some(Reply::Released));
    assert_eq!(c.refused(0, waiting), Refusal::Cancelled);
}

#[test]
fn a_retry_under_the_same_key_is_the_same_request() {
    let mut c = Cluster::new(2, 0, 0);
    let lock = [("a", Mode::Exclusive)];
    let lost = c.acquire_as(0, Some(5), &lock, Wait::Forever);
    let again = c.acquire_as(0, Some(5), &lock, Wait::Forever);
    c.run();
    assert!(!c.is_answered(0, lost), "only the last call is answered");
    let grant = c.granted(0, again);
    let once_more = c.acquire_as(0, Some(5), &lock, Wait::Forever);
    assert_eq!(c.granted(0, once_more), grant);

    let other = c.acquire_as(0, Some(5), &[("b", Mode::Exclusive)], Wait::Forever);
    assert_eq!(c.refused(0, other), Refusal::IdempotencyKeyReused(5));
    c.release(0, grant.request);
    let late = c.acquire_as(0, Some(5), &lock, Wait::Forever);
    assert_eq!(c.refused(0, late), Refusal::IdempotencyKeyFinished(5));
}

#[test]
fn a_lease_is_used_by_its_owner_only() {
    let mut c = Cluster::new(2, 0, 0);
    let lease = c.lease(0);
    let guess = geolock_api::names::Secret::new([8; 16]);
    let tag = c.call(0, Call::KeepAlive { lease, proof: Proof::Secret(guess) });
    assert_eq!(c.refused(0, tag), Refusal::WrongSecret(lease));
    let tag = c.call(1, Call::KeepAlive { lease, proof: Proof::Secret(SECRET) });
    assert_eq!(c.refused(1, tag), Refusal::ForeignLease { lease, dc: dc(0) });
    let never = geolock_api::names::LeaseId::new(dc(0), 1 << 40);
    let tag = c.call(0, Call::KeepAlive { lease: never, proof: Proof::Secret(SECRET) });
    assert_eq!(c.refused(0, tag), Refusal::UnknownLease(never));
}

#[test]
fn memory_returns_to_its_floor() {
    let mut c = Cluster::new(3, 250, 1_000);
    for i in 0..200 {
        c.use_lock(i % 3, &format!("lock {i}"));
    }
    c.pass(5_000);
    for node in &c.nodes {
        let counts = node.replica.inspect().counts();
        assert_eq!((counts.locks_active, counts.remote_requests, counts.log_entries), (0, 0, 0));
    }
}

/// The step that finds a lease expired may end the request that is next.
#[test]
fn locks_that_were_used_once_are_forgotten_as_fast_as_they_came() {
    let mut c = Cluster::new(2, 250, 1_000);
    for round in 0..5 {
        let names: Vec<String> = (0..2_000).map(|n| format!("{round}/{n}")).collect();
        let locks: Vec<_> = names.iter().map(|name| (&**name, Mode::Shared)).collect();
        let tag = c.acquire(0, &locks, Wait::Forever);
        let grant = c.granted(0, tag);
        c.release(0, grant.request);
    }
    assert_eq!(c.inspect(0).counts().locks_active, 10_000);
    c.pass(1_000);
    assert_eq!(c.inspect(0).counts().locks_active, 0);
}

#[test]
fn who_is_granted_and_cancels_in_one_step_leaves_nothing_behind() {
    let mut c = Cluster::new(1, 0, 0);
    let first = c.lock(0, "x");
    c.run();
    c.granted(0, first);
    c.open_lease(0, Duration::from_secs(60));
    let next = c.acquire_as(0, Some(1), &[("x", Mode::Exclusive)], Wait::Forever);
    c.now += 11_000;
    let (lease, proof, target) = (c.lease(0), Proof::Attached, Target::Key(1));
    let cancel = c.call(0, Call::Cancel { lease, proof, target });
    c.run();
    assert_eq!((c.refused(0, next), c.reply(0, cancel)), (Refusal::Cancelled, Some(Reply::Released)));
    let after = c.lock(0, "x");
    c.run();
    c.granted(0, after);
}

#[test]
fn a_datacenter_alone_keeps_no_log_for_others() {
    let mut c = Cluster::new(1, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.run();
    c.pass(600);
    assert_eq!(c.inspect(0).counts().log_entries, 0);
}
