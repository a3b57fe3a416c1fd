//! Stories about a restart: the locks that clients of before may still hold, and the calls that they repeat.

use crate::replica::clients::deferral::knows_earlier_runs;
use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use super::store_cluster::{change, key, step};
use crate::base::time::Timestamp;
use crate::causal_log::{Action, Change, Wants};
use crate::leases::Proof;
use crate::replica::Event;
use crate::replica::call::store::{Then, TxnRefusal};
use crate::replica::call::{Call, Grant, Reclaim, Refusal, Reply, Target, Wait};
use geolock_api::names::{FencingToken, Mode, Position, RequestId};
use geolock_api::value::Op;

/// Both copies of a commit are deferred. The first one is refused, and the reason for that is gone when the
/// second one has its turn.
#[test]
fn of_two_copies_that_wait_together_only_one_is_judged() {
    let mut c = Cluster::new(2, 0, 0);
    let version = |version| {
        let op = Op::Versioned { version, value: "v".to_owned().into(), done: false };
        step(vec![change("x", op)], &[], Then::Commit)
    };
    let newer = c.begin(0, 1, None, version(5));
    c.run();
    c.committed(0, newer);
    c.restart(0);
    c.pass(600);
    c.call(0, Call::AttachLease { lease: c.lease(0), secret: SECRET });
    let first = c.begin(0, 2, None, version(3));
    let remove = Change { key: key("x"), action: Action::Remove };
    let removal = c.begin(0, 3, None, step(vec![remove], &[], Then::Commit));
    let second = c.begin(0, 2, None, version(3));
    assert!([first, removal, second].iter().all(|tag| !c.is_answered(0, *tag)), "they wait");
    c.link(0, 1);
    c.pass(1_000);
    c.committed(0, removal);
    assert!(matches!(c.txn_refused(0, first), TxnRefusal::Change(_)));
    assert_eq!(c.txn_refused(0, second), TxnRefusal::Unknown(2), "it did not commit and will not");
    assert_eq!(c.reads(0, "x"), None);
}

/// All members had the entries before the restart, and none is heard yet after it.
#[test]
fn what_was_forgotten_of_the_log_is_not_kept_again() {
    let mut c = Cluster::new(2, 0, 0);
    let many = 1_000;
    for key in 1..=many {
        c.begin(0, key, None, step(vec![change("n", Op::Counter(1))], &[], Then::Commit));
        c.run();
    }
    c.pass(3_000);
    assert!(c.nodes[0].replica.log.entries().len() < 10, "both have all of it");
    c.cut(0, 1);
    for id in [0, 1] {
        c.restart(id);
        let kept = c.nodes[usize::from(id)].replica.log.entries().len();
        assert!(kept < 400, "dc{id} keeps {kept} entries");
        c.nodes[usize::from(id)].replica.check();
    }
    c.link(0, 1);
    c.pass(20_000);
    assert_eq!(c.reads(0, "n"), c.reads(1, "n"));
    c.open_lease(0, Duration::from_secs(60));
    let tag = c.begin(0, many + 1, None, step(vec![change("n", Op::Counter(1))], &[], Then::Commit));
    c.run();
    c.committed(0, tag);
}

/// The lease of before the restart may have held the lock. If its end were lost although the grant was
/// answered, its client could reclaim the lock.
#[test]
fn a_grant_waits_for_the_end_of_a_lease_that_never_said_what_it_held() {
    for ends_by_itself in [true, false] {
        let mut c = Cluster::new(1, 0, 0);
        let (old, held) = (c.lease(0), c.lock(0, "x"));
        c.granted(0, held);
        c.restart(0);
        c.pass(1_000);
        c.open_lease(0, Duration::from_secs(60));
        let waits = c.lock(0, "x");
        c.pass(8_900);
        assert!(!c.is_answered(0, waits), "the old lease may come back");
        c.sync(0);
        match ends_by_itself {
            true => {
                c.now += 200;
                c.handle(0, Event::Tick);
            }
            false => {
                let proof = Proof::Secret(SECRET);
                c.call(0, Call::CloseLease { lease: old, proof });
            }
        }
        assert!(!c.is_answered(0, waits), "the end of the old lease is not durable");
        c.sync(0);
        c.granted(0, waits);
        let attach = c.call(0, Call::AttachLease { lease: old, secret: SECRET });
        assert_eq!(c.refused(0, attach), Refusal::UnknownLease(old));
    }
}

/// So much waits for the clock that it takes several steps to judge it. Meanwhile another call comes.
#[test]
fn calls_that_wait_for_the_clock_are_judged_in_their_order_and_some_per_step() {
    let mut c = Cluster::new(1, 0, 0);
    c.restart(0);
    c.open_lease(0, Duration::from_secs(60));
    let acquire = |c: &mut Cluster, key: u64| {
        let names: Vec<_> = (0..100).map(|n| format!("{key}-{n:0>200}")).collect();
        let locks: Vec<_> = names.iter().map(|name| (name.as_str(), Mode::Exclusive)).collect();
        c.acquire_as(0, Some(key), &locks, Wait::Forever)
    };
    let mut waiting: Vec<u64> = (1..=40).map(|key| acquire(&mut c, key)).collect();
    c.most_work = 0;
    c.now += 600;
    c.handle(0, Event::Tick);
    assert!(c.inspect(0).counts().waiting < 40, "the rest is not judged yet");
    waiting.push(acquire(&mut c, 41));
    c.pass(100);
    assert!(c.most_work < 40 * 100, "{} in one step", c.most_work);
    // Until then the lease of before may be back.
    c.pass(12_000);
    let granted: Vec<RequestId> = waiting.into_iter().map(|tag| c.granted(0, tag).request).collect();
    assert!(granted.is_sorted_by_key(|request| request.n), "{granted:?}");
}

/// So much is reclaimed at one instant that it takes several steps. Meanwhile a client reconnects on another
/// stream, and releases.
#[test]
fn what_is_released_after_a_second_reclaim_is_not_held_because_of_the_first() {
    let mut c = Cluster::new(1, 0, 0);
    let proof = Proof::Secret(SECRET);
    let others: Vec<_> = (0..12)
        .map(|_| {
            c.open_lease(0, Duration::from_secs(60));
            c.lease(0)
        })
        .collect();
    c.open_lease(0, Duration::from_secs(60));
    let (lease, grant) = (c.lease(0), c.acquired(0, "x", Mode::Exclusive));
    c.restart(0);
    let reclaim = |request, token| Reclaim {
        request,
        key: None,
        wants: Wants::all(vec![(name("x"), Mode::Exclusive)]).expect("one lock"),
        token,
        label: "a story".into(),
    };
    let never_held = reclaim(RequestId { dc: dc(0), n: 1 }, FencingToken(1));
    for other in others {
        c.call(0, Call::Reclaim { lease: other, proof, held: vec![never_held.clone(); 600] });
    }
    let held = vec![reclaim(grant.request, grant.token)];
    let first = c.call(0, Call::Reclaim { lease, proof, held: held.clone() });
    c.now += 501;
    c.handle(0, Event::Tick);
    let replica = &c.nodes[0].replica;
    let is_known = knows_earlier_runs(&replica.lifecycle, &replica.log);
    assert!(is_known && !c.is_answered(0, first), "others come first");
    let second = c.call(0, Call::Reclaim { lease, proof, held });
    assert_eq!(c.refused(0, first), Refusal::NoReclaimExpected(lease));
    assert_eq!(c.reply(0, second), Some(Reply::Reclaimed { kept: vec![grant.request], lost: vec![] }));
    let release = c.call(0, Call::Release { lease, proof, target: Target::Id(grant.request) });
    assert_eq!(c.reply(0, release), Some(Reply::Released));
    c.open_lease(0, Duration::from_secs(60));
    let next = c.lock(0, "x");
    c.pass(12_000);
    c.granted(0, next);
}

/// Returns a grant of a free lock at dc0, whose disk is stuck: it is answered when all is on disk.
fn granted_once_on_disk(c: &mut Cluster) -> Grant {
    let asked = c.lock(0, "a");
    c.run();
    assert!(!c.is_answered(0, asked), "something is not on disk");
    c.nodes[0].disk_is_stuck = false;
    c.sync(0);
    c.run();
    c.granted(0, asked)
}

/// A token above the durable reservation could be given out once more: a run that starts with a clock that is
/// behind begins above the reservation, not above the token.
#[test]
fn a_grant_is_answered_when_its_token_is_reserved_on_disk() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.nodes[0].disk_is_stuck = true;
    let soon = c.lock(0, "a");
    c.run();
    let first = c.granted(0, soon);
    c.release(0, first.request);
    // Longer than a reservation lasts.
    c.pass(2_000);
    assert!(granted_once_on_disk(&mut c).token > first.token);
}

/// The same for the lead of its tokens, which an entry of another datacenter has raised.
#[test]
fn a_grant_is_answered_when_the_lead_of_its_token_is_on_disk() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(1, "b");
    c.nodes[1].replica.ids.raise_lead(5_000, Position::default());
    c.nodes[0].disk_is_stuck = true;
    // Its entry says how far ahead the tokens are there.
    let moved = c.lock(2, "b");
    c.run();
    c.granted(2, moved);
    granted_once_on_disk(&mut c);
}

/// Tokens of later grants would be below it.
#[test]
fn a_reclaim_names_no_token_above_what_is_reserved() {
    let mut c = Cluster::new(3, 0, 0);
    let grant = c.acquired(0, "a", Mode::Exclusive);
    let hour = Timestamp::from_millis(3_600_000).raw();
    let above = Grant { token: FencingToken(grant.token.0 + hour), ..grant.clone() };
    for (claimed, is_kept) in [(&above, false), (&grant, true)] {
        c.restart(0);
        c.link_again(0);
        let reclaim = c.reclaims_early(0, &[("a", Mode::Exclusive, claimed)]);
        c.pass(1_000);
        match c.reply(0, reclaim) {
            Some(Reply::Reclaimed { kept, lost }) => {
                assert_eq!((kept.len(), lost.len()), (usize::from(is_kept), usize::from(!is_kept)));
            }
            other => panic!("{other:?}"),
        }
    }
}
