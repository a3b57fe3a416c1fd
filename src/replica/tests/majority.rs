//! Stories about commits that are durable at a majority.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc};
use super::store_cluster::{add, counted, key, put, step};
use crate::base::bugs::Bug;
use crate::leases::Proof;
use crate::replica::call::store::{AtLeast, Begin, Durability, Durable, Step, Then};
use crate::replica::call::{Call, Limit, Refusal};
use crate::replica::{BucketPattern, Message};
use geolock_api::names::{DcId, DcSet};

fn at_majority(wait_ms: u64) -> Step {
    let durability = Durability::Majority { wait: Duration::from_millis(wait_ms) };
    Step { durability, ..step(vec![add("n", 1)], &["n"], Then::Commit) }
}

fn dcs(ids: &[u8]) -> DcSet {
    ids.iter().copied().map(dc).collect()
}

impl Cluster {
    fn durable(&self, id: u8, tag: u64) -> Durable {
        self.stepped(id, tag).durable
    }

    /// Delivers all messages between two datacenters, without a sync.
    fn deliver_all(&mut self, from: u8, to: u8) {
        while self.deliver(from, to) {}
    }

    fn messages(&self, from: u8, to: u8, is_one: impl Fn(&Message) -> bool) -> usize {
        self.wires[&(dc(from), dc(to))].iter().filter(|message| is_one(message)).count()
    }
}

fn is_wish(message: &Message) -> bool {
    matches!(message, Message::AckWanted { .. })
}

fn is_ack(message: &Message) -> bool {
    matches!(message, Message::Acknowledged { .. })
}

#[test]
fn it_is_answered_when_the_nearest_other_has_it_on_disk() {
    let mut c = Cluster::new(3, 0, 0);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.sync(0);
    assert!(!c.is_answered(0, tag), "it is on one disk");
    c.deliver_all(0, 1);
    c.deliver_all(1, 0);
    assert!(!c.is_answered(0, tag), "dc1 has applied it, and it is not on its disk");
    c.sync(1);
    c.deliver_all(1, 0);
    assert_eq!(c.durable(0, tag), Durable::AtMajority, "after one round trip, while time stands still");
    assert_eq!(c.stepped(0, tag).readings(), [counted(1)]);
    assert_eq!(c.inspect(0).status().majority_waits.count(), 1);
}

#[test]
fn a_stream_of_commits_costs_a_wish_and_an_acknowledgement_for_each_sync() {
    let mut c = Cluster::new(3, 0, 0);
    let first: Vec<u64> = (1..=50).map(|key| c.begin(0, key, None, at_majority(10_000))).collect();
    c.sync(0);
    assert_eq!(c.messages(0, 1, is_wish), 1);
    c.deliver_all(0, 1);
    let second: Vec<u64> = (51..=100).map(|key| c.begin(0, key, None, at_majority(10_000))).collect();
    c.sync(0);
    // The second wish arrives while the first is not fulfilled; both are by one sync.
    c.deliver_all(0, 1);
    c.sync(1);
    assert_eq!(c.messages(1, 0, is_ack), 1);
    c.deliver_all(1, 0);
    assert!(first.iter().chain(&second).all(|tag| c.durable(0, *tag) == Durable::AtMajority));
    c.run();
    c.begin(0, 101, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.sync(0);
    c.deliver_all(0, 1);
    c.sync(1);
    assert_eq!(c.messages(1, 0, is_ack), 0, "nobody asked for this one");
}

#[test]
fn locks_are_free_at_once_and_the_next_holder_waits_for_the_same_majority() {
    let mut c = Cluster::new(3, 0, 0);
    c.late = is_ack;
    let first = c.begin(0, 1, Some("x"), at_majority(60_000));
    let second = c.begin(0, 2, Some("x"), at_majority(60_000));
    c.run();
    assert!(!c.is_answered(0, first) && !c.is_answered(0, second));
    assert_eq!(c.reads(0, "n"), counted(2), "both are made");
    c.late = |_| false;
    c.run();
    assert_eq!((c.durable(0, first), c.durable(0, second)), (Durable::AtMajority, Durable::AtMajority));
}

#[test]
fn a_majority_that_is_away_is_named_and_asking_again_waits_again() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(0);
    let tag = c.begin(0, 1, None, at_majority(1_000));
    c.pass(990);
    assert!(!c.is_answered(0, tag));
    c.pass(20);
    assert_eq!(c.durable(0, tag), Durable::NotAtMajority { missing: dcs(&[1, 2]) });
    let commit = c.committed(0, tag);
    assert_eq!(c.reads(0, "n"), counted(1), "it has happened");
    let again = c.begin(0, 1, None, at_majority(60_000));
    c.pass(5_000);
    assert!(!c.is_answered(0, again));
    let counts = c.inspect(0).counts();
    assert_eq!((counts.waiting_for_majority, counts.commits_not_at_majority), (1, 1));
    // The call before it gets an answer, too, and no call waits twice.
    let once_more = c.begin(0, 1, None, at_majority(60_000));
    assert_eq!(c.durable(0, again), Durable::NotAtMajority { missing: dcs(&[1, 2]) });
    c.link_again(0);
    assert_eq!(c.durable(0, once_more), Durable::AtMajority);
    assert_eq!(c.committed(0, once_more), commit);
    let at_once = c.begin(0, 1, None, at_majority(60_000));
    assert_eq!(c.durable(0, at_once), Durable::AtMajority);
    assert_eq!(c.reads(1, "n"), counted(1), "and only once");
    assert_eq!(c.inspect(0).counts().waiting_for_majority, 0);
}

#[test]
fn a_restarted_server_learns_from_heartbeats_that_a_majority_has_it() {
    for from_checkpoint in [false, true] {
        let mut c = Cluster::new(3, 0, 0);
        c.late = is_ack;
        let tag = c.begin(0, 1, None, at_majority(10_000));
        c.run();
        assert!(!c.is_answered(0, tag));
        if from_checkpoint {
            c.handle(0, crate::replica::Event::Checkpoint);
            c.run();
            let checkpoint = c.nodes[0].checkpoint.take().expect("it was asked for");
            c.restart_from(0, checkpoint);
        } else {
            c.restart(0);
        }
        let (lease, secret) = (c.lease(0), SECRET);
        c.call(0, Call::AttachLease { lease, secret });
        let alone = c.begin(0, 1, None, at_majority(60_000));
        c.pass(2_000);
        assert!(!c.is_answered(0, alone), "it does not know who has it");
        c.link_again(0);
        assert_eq!(c.durable(0, alone), Durable::AtMajority);
        assert_eq!(c.reads(1, "n"), counted(1));
    }
}

#[test]
fn an_ended_lease_still_gets_its_outcome_when_a_majority_has_it() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(0);
    c.begin(0, 1, None, at_majority(0));
    c.sync(0);
    let (lease, proof) = (c.lease(0), Proof::Attached);
    c.call(0, Call::CloseLease { lease, proof });
    let ask = Begin {
        lease,
        proof: Proof::Secret(SECRET),
        key: 1,
        locks: None,
        at_least: AtLeast::default(),
        acknowledged_through: 0,
        step: at_majority(60_000),
        under: Vec::new(),
    };
    let tag = c.call(0, Call::Begin(ask));
    c.run();
    assert!(!c.is_answered(0, tag));
    c.link_again(0);
    assert_eq!(c.durable(0, tag), Durable::AtMajority);
}

#[test]
fn one_of_two_is_no_majority_and_one_of_one_is() {
    let mut c = Cluster::new(1, 0, 0);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    assert!(!c.is_answered(0, tag));
    c.sync(0);
    assert_eq!(c.durable(0, tag), Durable::AtMajority);
    let mut c = Cluster::new(2, 0, 0);
    c.isolate(0);
    let tag = c.begin(0, 1, None, at_majority(500));
    c.pass(600);
    assert_eq!(c.durable(0, tag), Durable::NotAtMajority { missing: dcs(&[1]) });
}

#[test]
fn members_without_a_link_count_by_what_others_tell_of_them() {
    let mut c = Cluster::new(5, 0, 0);
    (2..5).for_each(|far| c.cut(0, far));
    c.pass(1_000);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.run();
    assert!(!c.is_answered(0, tag), "dc0 and dc1 are two of five");
    c.pass(2_000);
    assert_eq!(c.durable(0, tag), Durable::AtMajority);
}

#[test]
fn a_peer_that_does_not_know_these_messages_acknowledges_with_its_heartbeats() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(0);
    c.version = 2;
    c.link_again(0);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.sync(0);
    assert_eq!(c.messages(0, 1, is_wish), 0);
    c.run();
    assert!(!c.is_answered(0, tag));
    c.pass(510);
    assert_eq!(c.durable(0, tag), Durable::AtMajority);
}

#[test]
fn a_wish_that_overtakes_its_entry_is_fulfilled_with_it() {
    let mut c = Cluster::new(3, 0, 0);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.late = |message| matches!(message, Message::Entries(_));
    c.run();
    assert_eq!(c.messages(1, 0, is_ack), 0, "nothing is acknowledged that is not there");
    c.late = |_| false;
    c.run();
    assert_eq!(c.durable(0, tag), Durable::AtMajority);
}

#[test]
fn an_acknowledgement_counts_only_after_a_heartbeat_on_its_link() {
    let mut c = Cluster::new(2, 0, 0);
    c.isolate(0);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.sync(0);
    c.link(0, 1);
    let durable = [(dc(0), 1)].into_iter().collect();
    let message = Message::Acknowledged { durable, heads: Vec::new() };
    c.handle(0, crate::replica::Event::Received { peer: dc(1), message });
    assert!(!c.is_answered(0, tag));
    let durable = [(DcId::new(7).expect("a small id"), 1)].into_iter().collect();
    let message = Message::Acknowledged { durable, heads: Vec::new() };
    c.handle(0, crate::replica::Event::Received { peer: dc(1), message });
    assert_eq!(c.nodes[0].violations.len(), 1, "it names a datacenter that is no member");
}

#[test]
fn a_transaction_without_changes_has_nothing_to_wait_for() {
    let mut c = Cluster::new(3, 0, 0);
    c.begin(0, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.isolate(0);
    let tag =
        c.begin(0, 2, None, Step { durability: Durability::MAJORITY, ..step(vec![], &["n"], Then::Commit) });
    assert_eq!(c.durable(0, tag), Durable::AtMajority);
}

#[test]
fn a_bucket_can_ask_for_it() {
    let mut c = Cluster::new(3, 0, 0);
    let bucket = key("n").bucket().to_vec();
    for pattern in [BucketPattern::Named(bucket.clone()), BucketPattern::Prefix(Vec::new())] {
        assert!(pattern.has(&bucket));
        c.majority_buckets = vec![pattern];
        c.restart(0);
        c.link_again(0);
        c.pass(600);
        c.open_lease(0, Duration::from_secs(60));
        c.isolate(0);
        let commit = || step(vec![add("n", 1)], &[], Then::Commit);
        let tag = c.begin(0, 1, None, commit());
        c.pass(1_000);
        assert!(!c.is_answered(0, tag));
        c.pass(9_100);
        assert_eq!(c.durable(0, tag), Durable::NotAtMajority { missing: dcs(&[1, 2]) });
        // Its outcome remembers it.
        let again = c.begin(0, 1, None, commit());
        c.pass(1_000);
        assert!(!c.is_answered(0, again));
        c.link_again(0);
        assert_eq!(c.durable(0, again), Durable::AtMajority);
    }
    let other = BucketPattern::Named(b"other".to_vec());
    assert!(!other.has(&bucket));
}

#[test]
fn a_wait_that_is_over_before_the_commit_is_on_disk_is_answered_then() {
    for (size, durable) in [(1, Durable::AtMajority), (2, Durable::NotAtMajority { missing: dcs(&[1]) })] {
        let mut c = Cluster::new(size, 0, 0);
        c.nodes[0].disk_is_stuck = true;
        let tag = c.begin(0, 1, None, at_majority(0));
        c.pass(5);
        assert!(!c.is_answered(0, tag));
        c.nodes[0].disk_is_stuck = false;
        c.sync(0);
        assert_eq!(c.durable(0, tag), durable);
    }
}

#[test]
fn answers_that_wait_count_as_transactions_in_number_and_bytes() {
    let mut c = Cluster::new(2, 0, 0);
    c.begin(0, 1, None, step(vec![put("large", &"x".repeat(1_000_000))], &[], Then::Commit));
    c.run();
    c.isolate(0);
    let mut waiting = 0;
    let refused = loop {
        let commit =
            Step { durability: Durability::MAJORITY, ..step(vec![add("n", 1)], &["large"; 4], Then::Commit) };
        let tag = c.begin(0, 2 + waiting, None, commit);
        c.sync(0);
        if c.is_answered(0, tag) {
            break c.refused(0, tag);
        }
        waiting += 1;
    };
    assert!(
        matches!(refused, Refusal::ResourceExhausted { limit: Limit::TransactionBytes, .. }),
        "{refused:?}"
    );
    assert!((60..70).contains(&waiting), "256 MiB hold {waiting} answers of 4 MB");
    assert_eq!(c.reads(0, "n"), counted(waiting as i64), "what was refused is not made");
    c.link_again(0);
    assert_eq!(c.inspect(0).counts().waiting_for_majority, 0);
}

#[test]
fn no_step_answers_more_than_a_step_may() {
    let mut c = Cluster::new(2, 0, 0);
    c.late = is_ack;
    let tags: Vec<u64> = (1..=2_000).map(|key| c.begin(0, key, None, at_majority(60_000))).collect();
    c.run();
    c.late = |_| false;
    while !c.is_answered(0, tags[0]) {
        assert!(c.deliver(1, 0), "an acknowledgement is on its way");
    }
    let answered = tags.iter().filter(|tag| c.is_answered(0, **tag)).count();
    assert!((1..=512).contains(&answered), "{answered} in one step");
    c.run();
    while !c.is_answered(0, tags[1_999]) {
        c.handle(0, crate::replica::Event::Tick);
    }
}

/// A commit that a majority has is left after any minority of the disks is lost.
#[test]
fn a_majority_that_lost_a_minority_of_its_disks_still_has_it() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(2);
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.run();
    assert_eq!(c.durable(0, tag), Durable::AtMajority, "dc0 and dc1 have it");
    c.crash(0, 0);
    c.isolate(1);
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        c.link(a, b);
    }
    c.pass(70_000);
    for id in 0..3 {
        assert_eq!(c.reads(id, "n"), counted(1), "dc{id}");
    }
}

/// The answer of a cluster with this bug when nobody but dc0 has the commit on disk.
fn told_too_early(bug: Bug) -> bool {
    let mut c = Cluster::new(3, 0, 0);
    c.bug = Some(bug);
    for id in 0..3 {
        c.restart(id);
    }
    for id in 0..2 {
        c.link_again(id);
    }
    c.pass(600);
    c.open_lease(0, Duration::from_secs(10));
    let tag = c.begin(0, 1, None, at_majority(10_000));
    c.sync(0);
    for other in 1..3 {
        c.deliver_all(0, other);
        c.deliver_all(other, 0);
    }
    c.is_answered(0, tag)
}

#[test]
fn three_wrong_ways_to_count_are_told_apart_from_the_right_one() {
    for bug in [Bug::MemberCountsTwice, Bug::SentCountsAsDurable, Bug::AckFromMemory] {
        assert!(told_too_early(bug), "{bug:?}");
    }
    assert!(!told_too_early(Bug::CancelForgotten), "a bug of something else");
}
