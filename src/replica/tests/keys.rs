//! Stories about idempotency keys: a key names one request with one content, and nothing begins under a key
//! that is over.

use std::sync::Arc;

use super::cluster::{Cluster, SECRET, name};
use super::store_cluster::{add, counted, step};
use crate::causal_log::Wants;
use crate::leases::{ClientId, Proof};
use crate::replica::Event;
use crate::replica::call::store::{AtLeast, Begin, Step, Then, TxnRefusal};
use crate::replica::call::{Call, CallId, Grant, Reclaim, Refusal, Reply, SessionId, Target, Wait};
use crate::replica::clients::force_release::ForceRelease;
use geolock_api::names::{ForceReason, Mode};

impl Cluster {
    fn cancels(&mut self, id: u8, key: u64) -> u64 {
        let (lease, proof) = (self.lease(id), Proof::Secret(SECRET));
        self.call(id, Call::Cancel { lease, proof, target: Target::Key(key) })
    }

    fn releases(&mut self, id: u8, key: u64) -> u64 {
        let (lease, proof) = (self.lease(id), Proof::Secret(SECRET));
        self.call(id, Call::Release { lease, proof, target: Target::Key(key) })
    }

    fn locks_as(&mut self, id: u8, key: u64, lock: &str) -> u64 {
        self.acquire_as(id, Some(key), &[(lock, Mode::Exclusive)], Wait::Forever)
    }

    fn attaches(&mut self, id: u8) {
        let (lease, secret) = (self.lease(id), SECRET);
        self.call(id, Call::AttachLease { lease, secret });
    }

    fn gives_back(&mut self, id: u8, key: u64, lock: &str, grant: &Grant) -> u64 {
        let wants = Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock");
        let (request, token, label) = (grant.request, grant.token, Arc::from("a story"));
        let held = vec![Reclaim { request, key: Some(key), wants, token, label }];
        let (lease, proof) = (self.lease(id), Proof::Secret(SECRET));
        self.call(id, Call::Reclaim { lease, proof, held })
    }
}

/// Possible for calls without a stream. The bug was: the acquire came after the cancel, and was granted to a
/// client that had given it up.
#[test]
fn a_cancel_that_overtakes_its_acquire_ends_it() {
    let mut c = Cluster::new(1, 0, 0);
    let cancel = c.cancels(0, 5);
    assert_eq!(c.reply(0, cancel), Some(Reply::Released));
    let late = c.locks_as(0, 5, "a");
    assert_eq!(c.refused(0, late), Refusal::IdempotencyKeyFinished(5));
    // It ends no other key, below or above.
    let others = [4, 6].map(|key| c.locks_as(0, key, &format!("b{key}")));
    others.into_iter().for_each(|tag| drop(c.granted(0, tag)));
    let again = c.cancels(0, 5);
    assert_eq!(c.reply(0, again), Some(Reply::Released));
    c.use_lock(0, "a");
    // The same for a transaction.
    c.cancels(0, 9);
    let late = c.begin(0, 9, None, step(vec![add("n", 1)], &[], Then::Commit));
    assert_eq!(c.txn_refused(0, late), TxnRefusal::Unknown(9));
}

/// A client that reconnects repeats the acquires that it still wants and cancels those that it gave up
/// meanwhile. Until a restarted server may read its clock the acquires wait. The bug was: many cancels of
/// higher keys ended the keys of these acquires.
#[test]
fn what_waits_for_the_start_outlives_many_cancels() {
    let mut c = Cluster::new(1, 0, 0);
    c.use_lock(0, "a");
    c.restart(0);
    c.attaches(0);
    let (lease, proof) = (c.lease(0), Proof::Secret(SECRET));
    c.call(0, Call::Reclaim { lease, proof, held: vec![] });
    let txn = c.begin(0, 1_001, None, step(vec![add("n", 1)], &[], Then::Commit));
    let waits = c.locks_as(0, 1_002, "a");
    let given_up = c.locks_as(0, 1_003, "b");
    for key in 1_003..=1_300 {
        let cancel = c.cancels(0, key);
        assert_eq!(c.reply(0, cancel), Some(Reply::Released));
    }
    c.pass(1_000);
    c.committed(0, txn);
    c.granted(0, waits);
    assert_eq!(c.refused(0, given_up), Refusal::Cancelled);
    // It waits no longer: its key is over like the others.
    let late = c.locks_as(0, 1_000, "b");
    assert_eq!(c.refused(0, late), Refusal::IdempotencyKeyFinished(1_000));
}

/// The session is lost before the server may read its clock, and the client repeats the call on another
/// session.
#[test]
fn what_waited_for_the_start_may_be_asked_for_again() {
    let mut c = Cluster::new(1, 0, 0);
    c.use_lock(0, "a");
    c.restart(0);
    let (lease, proof) = (c.lease(0), Proof::Secret(SECRET));
    c.attaches(0);
    c.call(0, Call::Reclaim { lease, proof, held: vec![] });
    c.locks_as(0, 1_002, "a");
    for key in 1_003..=1_300 {
        c.cancels(0, key);
    }
    c.handle(0, Event::SessionClosed { session: SessionId(0) });
    c.attaches(0);
    c.call(0, Call::Reclaim { lease, proof, held: vec![] });
    let again = c.locks_as(0, 1_002, "a");
    c.pass(1_000);
    c.granted(0, again);
}

/// The client repeats the call over a new connection before the server knows that the old one is gone.
#[test]
fn a_transaction_that_waits_on_two_sessions_keeps_its_turn_when_one_of_them_is_gone() {
    let mut c = Cluster::new(3, 0, 0);
    let copy = c.nodes[0].records.len();
    c.crash(0, copy);
    c.pass(1_000);
    let (lease, proof) = (c.lease(0), Proof::Secret(SECRET));
    let begin = |key| {
        let (step, at_least) = (step(vec![add("n", 1)], &[], Then::Commit), AtLeast::default());
        Call::Begin(Begin {
            lease,
            proof,
            key,
            locks: None,
            at_least,
            acknowledged_through: 0,
            step,
            under: Vec::new(),
        })
    };
    let session = SessionId(77);
    c.handle(
        0,
        Event::Client { call: CallId { session, tag: 1_000_000 }, client: ClientId(1), request: begin(5) },
    );
    let second = c.call(0, begin(5));
    assert!(!c.is_answered(0, second), "it may be a commit of before");
    c.handle(0, Event::SessionClosed { session });
    c.link_again(0);
    c.pass(3_000);
    c.committed(0, second);
}

/// A restarted server does not know which keys were used.
#[test]
fn what_was_reclaimed_and_released_by_its_key_stays_over() {
    let mut c = Cluster::new(1, 0, 0);
    let held = c.locks_as(0, 7, "a");
    let grant = c.granted(0, held);
    c.restart(0);
    c.pass(1_000);
    c.attaches(0);
    let reclaim = c.gives_back(0, 7, "a", &grant);
    assert_eq!(c.reply(0, reclaim), Some(Reply::Reclaimed { kept: vec![grant.request], lost: vec![] }));
    for _ in 0..2 {
        let release = c.releases(0, 7);
        assert_eq!(c.reply(0, release), Some(Reply::Released));
    }
    let late = c.locks_as(0, 7, "a");
    assert_eq!(c.refused(0, late), Refusal::IdempotencyKeyFinished(7));
    let waits = c.locks_as(0, 3, "a");
    c.granted(0, waits);
}

/// The release comes after the restart, before the reclaim, or while the reclaim cannot be judged yet.
#[test]
fn what_is_released_by_its_key_before_the_reclaim_is_not_taken_back() {
    for judged_late in [false, true] {
        let mut c = Cluster::new(2, 0, 0);
        let held = c.locks_as(0, 7, "a");
        c.run();
        let grant = c.granted(0, held);
        c.restart(0);
        if !judged_late {
            c.link(0, 1);
            c.pass(1_000);
        }
        c.attaches(0);
        let early = judged_late.then(|| c.gives_back(0, 7, "a", &grant));
        let release = c.releases(0, 7);
        assert_eq!(c.reply(0, release), Some(Reply::Released));
        if judged_late {
            c.link(0, 1);
            c.pass(1_000);
        }
        let reclaim = early.unwrap_or_else(|| c.gives_back(0, 7, "a", &grant));
        let Some(Reply::Reclaimed { kept, .. }) = c.reply(0, reclaim) else { panic!("it is judged") };
        assert_eq!(kept, []);
        let late = c.locks_as(0, 7, "a");
        assert_eq!(c.refused(0, late), Refusal::IdempotencyKeyFinished(7));
        c.run();
        c.use_lock(1, "a");
    }
}

/// The bug was: the begin was answered as committed.
#[test]
fn a_begin_with_other_content_under_a_used_key_is_refused() {
    for restart in [None, Some("records"), Some("checkpoint"), Some("two checkpoints")] {
        let mut c = Cluster::new(1, 0, 0);
        let one = |amount| step(vec![add("n", amount)], &[], Then::Commit);
        let first = c.begin(0, 1, None, one(1));
        c.run();
        c.committed(0, first);
        match restart {
            Some("records") => c.restart(0),
            Some(_) => c.restart_from_checkpoint(0),
            None => {}
        }
        if restart == Some("two checkpoints") {
            c.restart_from_checkpoint(0);
        }
        if restart.is_some() {
            c.pass(1_000);
            c.attaches(0);
        }
        let same = c.begin(0, 1, None, one(1));
        c.committed(0, same);
        let other = c.begin(0, 1, None, one(2));
        assert_eq!(c.refused(0, other), Refusal::IdempotencyKeyReused(1), "{restart:?}");
        assert_eq!(c.reads(0, "n"), counted(1));
    }
}

#[test]
fn an_open_transaction_goes_on_only_with_what_it_was_begun_with() {
    let mut c = Cluster::new(1, 0, 0);
    let first = |amount| -> Step { step(vec![add("n", amount)], &["n"], Then::Continue) };
    let begun = c.begin(0, 1, Some("a"), first(1));
    c.stepped(0, begun);
    for wrong in [first(2), step(vec![add("n", 1)], &[], Then::Commit)] {
        let tag = c.begin(0, 1, Some("a"), wrong);
        assert_eq!(c.refused(0, tag), Refusal::IdempotencyKeyReused(1));
    }
    let tag = c.begin(0, 1, Some("b"), first(1));
    assert_eq!(c.refused(0, tag), Refusal::IdempotencyKeyReused(1), "other locks");
    let again = c.begin(0, 1, Some("a"), first(1));
    assert_eq!(c.stepped(0, again).readings(), [counted(1)]);
    let commit = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    c.run();
    c.committed(0, commit);
}

/// The bug was: the release succeeded, although another client might have held the lock for long.
#[test]
fn a_release_of_what_was_taken_away_says_by_whom() {
    let mut c = Cluster::new(1, 0, 0);
    let held = c.locks_as(0, 3, "a");
    let grant = c.granted(0, held);
    let (reason, by) = (ForceReason::new("it hangs").expect("it says something"), Arc::from("client ann"));
    c.call(0, Call::ForceRelease(ForceRelease { lock: name("a"), operator: by, reason }));
    c.run();
    for tag in [c.releases(0, 3), c.release(0, grant.request)] {
        let Refusal::ForceReleased(forced) = c.refused(0, tag) else { panic!("{:?}", c.reply(0, tag)) };
        assert_eq!((&*forced.operator, forced.request), ("client ann", grant.request));
    }
    c.restart(0);
    c.pass(1_000);
    c.attaches(0);
    let tag = c.release(0, grant.request);
    assert!(matches!(c.refused(0, tag), Refusal::ForceReleased(_)), "also after a restart");
}
