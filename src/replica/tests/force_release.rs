//! Stories about force releases.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc, name};
use super::store_cluster::{add, step};
use crate::base::capacity::DiskSpace;
use crate::causal_log::Wants;
use crate::leases::Proof;
use crate::replica::call::store::{Then, TxnRefusal};
use crate::replica::call::{Call, Grant, Phase, Reclaim, Refusal, Reply, Wait};
use crate::replica::clients::force_release::{
    ForceRelease, ForceReleaseOutcome, ForceReleased, MAX_AUDITED, MAX_VICTIMS,
};
use crate::replica::{Event, Notice, Record};
use geolock_api::names::{FencingToken, ForceReason, Mode, RequestId};

impl Cluster {
    fn force(&mut self, id: u8, lock: &str) -> u64 {
        let reason = ForceReason::new("it hangs").expect("it says something");
        self.call(
            id,
            Call::ForceRelease(ForceRelease { lock: name(lock), operator: Arc::from("client ann"), reason }),
        )
    }

    fn forced(&self, id: u8, tag: u64) -> ForceReleaseOutcome {
        match self.reply(id, tag) {
            Some(Reply::ForceReleased(outcome)) => *outcome,
            other => panic!("call {tag} at dc{id} took nothing away but is {other:?}"),
        }
    }

    /// Returns all force releases that a datacenter remembers.
    fn audit(&mut self, id: u8) -> Vec<Arc<ForceReleased>> {
        let tag = self.call(id, Call::Audit);
        self.run();
        match self.reply(id, tag) {
            Some(Reply::Audited(rows)) => rows,
            other => panic!("the audit of dc{id} is {other:?}"),
        }
    }

    /// Returns the requests whose clients were notified of a force release, in order.
    fn told_forced(&self, id: u8) -> Vec<RequestId> {
        let of = |notice: &Notice| match notice {
            Notice::ForceReleased(forced) => Some(forced.request),
            _ => None,
        };
        self.nodes[usize::from(id)].notices.iter().filter_map(of).collect()
    }

    /// Waits until the datacenter serves; returns the requests that the lease keeps, and those that it lost.
    fn reclaim(&mut self, id: u8, held: &[(&str, &Grant)]) -> (Vec<RequestId>, Vec<RequestId>) {
        let wants = |lock: &str| Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock");
        let held = held.iter().map(|(lock, grant)| Reclaim {
            request: grant.request,
            key: None,
            wants: wants(lock),
            token: grant.token,
            label: Arc::from("a story"),
        });
        let held = held.collect();
        let (lease, proof) = (self.lease(id), Proof::Secret(SECRET));
        let tag = self.call(id, Call::Reclaim { lease, proof, held });
        self.run();
        match self.reply(id, tag) {
            Some(Reply::Reclaimed { kept, lost }) => (kept, lost),
            other => panic!("the reclaim at dc{id} is {other:?}"),
        }
    }
}

fn both(a: &'static str, b: &'static str) -> [(&'static str, Mode); 2] {
    [(a, Mode::Exclusive), (b, Mode::Exclusive)]
}

#[test]
fn the_next_in_line_gets_the_lock_when_it_is_on_disk_who_took_it() {
    let mut c = Cluster::new(1, 0, 0);
    let held = c.acquire(0, &both("a", "b"), Wait::Forever);
    c.run();
    let victim = c.granted(0, held);
    let next = c.lock(0, "a");
    let force = c.force(0, "a");
    assert!(!c.is_answered(0, next) && !c.is_answered(0, force), "nothing of it is on disk");
    assert_eq!(c.told_forced(0), []);
    c.sync(0);
    let outcome = c.forced(0, force);
    let [taken] = &outcome.taken[..] else { panic!("one request held it, not {:?}", outcome.taken) };
    let expected = ForceReleased {
        number: 1,
        at_ms: 1_700_000_000_000 + c.now,
        operator: Arc::from("client ann"),
        reason: ForceReason::new("it hangs").expect("it says something"),
        lock: name("a"),
        mode: Mode::Exclusive,
        lease: c.lease(0),
        request: victim.request,
        token: victim.token,
        label: Arc::from("a story"),
        locks: 2,
    };
    assert_eq!(**taken, expected);
    assert_eq!(c.told_forced(0), [victim.request]);
    assert!(c.granted(0, next).token > victim.token, "tokens grow");
    let other = c.acquire(0, &[("b", Mode::Exclusive)], Wait::Try);
    assert!(c.granted(0, other).token > victim.token, "it lost all its locks, not only this one");
    let again = c.release(0, victim.request);
    assert_eq!(
        c.refused(0, again),
        Refusal::ForceReleased(taken.clone()),
        "it learns that it was not the last to hold it"
    );
    assert_eq!(c.inspect(0).counts().force_releases, 1);
    let audit = c.audit(0);
    assert_eq!(audit, outcome.taken);
}

#[test]
fn what_nobody_holds_stays_as_it_is() {
    let mut c = Cluster::new(1, 0, 0);
    let before = c.nodes[0].records.len();
    let force = c.force(0, "a");
    let outcome = c.forced(0, force);
    assert!(outcome.taken.is_empty() && outcome.lock.holders.is_empty());
    assert_eq!((c.nodes[0].records.len(), c.audit(0).len()), (before, 0));
}

#[test]
fn all_who_share_it_here_lose_it_and_those_elsewhere_are_named() {
    let mut c = Cluster::new(2, 0, 0);
    let here = [c.share(0, "a"), c.share(0, "a")].map(|tag| c.granted(0, tag).request);
    let there = c.share(1, "a");
    let there = c.granted(1, there);
    let force = c.force(0, "a");
    c.run();
    let outcome = c.forced(0, force);
    assert_eq!(outcome.taken.iter().map(|taken| taken.request).collect::<Vec<_>>(), here);
    let holders: Vec<_> = outcome.lock.holders.iter().map(|holder| (holder.dc, holder.request)).collect();
    assert_eq!(holders, [(dc(1), there.request)]);
    assert_eq!((c.told_forced(0).len(), c.told_forced(1).len()), (2, 0));
    let writer = c.lock(0, "a");
    c.run();
    assert!(!c.is_answered(0, writer), "it is held there still");
    let force = c.force(1, "a");
    c.run();
    assert_eq!(c.forced(1, force).taken.len(), 1);
    assert!(c.granted(0, writer).token > there.token, "also across datacenters");
}

#[test]
fn a_lock_held_elsewhere_is_not_touched() {
    let mut c = Cluster::new(2, 0, 0);
    let held = c.lock(1, "a");
    c.run();
    let held = c.granted(1, held);
    let force = c.force(0, "a");
    c.run();
    let outcome = c.forced(0, force);
    assert!(outcome.taken.is_empty());
    assert_eq!(outcome.lock.holders[0].request, held.request, "the operator is told where to go");
    assert_eq!((c.audit(0).len(), c.audit(1).len(), c.told_forced(1).len()), (0, 0, 0));
}

#[test]
fn a_transaction_that_lost_its_lock_cannot_commit() {
    let mut c = Cluster::new(1, 0, 0);
    let open = c.begin(0, 1, Some("a"), step(vec![add("n", 1)], &[], Then::Continue));
    c.run();
    let token = c.stepped(0, open).token;
    let force = c.force(0, "a");
    c.run();
    let taken = c.forced(0, force).taken;
    assert_eq!(taken[0].token, token.expect("it has a lock"));
    let commit = c.next_step(0, 1, step(vec![], &[], Then::Commit));
    let refusal = c.txn_refused(0, commit);
    assert_eq!(refusal, TxnRefusal::ForceReleased { key: 1, forced: taken[0].clone() });
    let said = refusal.to_string();
    assert!(said.contains("client ann") && said.contains("it hangs"), "{said}");
    assert_eq!(c.reads(0, "n"), None);
    let counts = c.inspect(0).counts();
    assert_eq!((counts.transactions, counts.snapshots, counts.held), (0, 0, 0));
}

#[test]
fn a_grant_that_nobody_heard_of_yet_can_be_taken_away_too() {
    let mut c = Cluster::new(1, 0, 0);
    let first = c.lock(0, "a");
    c.run();
    let first = c.granted(0, first);
    c.force(0, "a");
    // Granted now, and answered when the force release is on disk.
    let second = c.lock(0, "a");
    let txn = c.begin(0, 7, Some("b"), step(vec![], &[], Then::Continue));
    let force = c.force(0, "a");
    c.run();
    assert!(c.is_answered(0, txn));
    let taken = c.forced(0, force).taken;
    assert!(taken[0].token > first.token);
    assert_eq!(c.refused(0, second), Refusal::ForceReleased(taken[0].clone()));
}

#[test]
fn after_a_crash_the_victim_gets_nothing_back() {
    let mut c = Cluster::new(1, 0, 0);
    let (a, b) = (c.lock(0, "a"), c.lock(0, "b"));
    c.run();
    let (a, b) = (c.granted(0, a), c.granted(0, b));
    c.handle(0, Event::Checkpoint);
    let before = c.nodes[0].checkpoint.take().expect("it was made");
    c.force(0, "a");
    c.run();
    c.handle(0, Event::Checkpoint);
    let after = c.nodes[0].checkpoint.take().expect("it was made");
    assert_eq!((before.forced.len(), after.forced.len()), (0, 1));
    for checkpoint in [None, Some(before), Some(after)] {
        match checkpoint {
            None => c.restart(0),
            Some(checkpoint) => c.restart_from(0, checkpoint),
        }
        c.pass(600);
        let force = c.force(0, "a");
        assert_eq!(c.refused(0, force), Refusal::HoldersUnknown(1), "it may be reclaimed yet");
        let (kept, lost) = c.reclaim(0, &[("a", &a), ("b", &b)]);
        assert_eq!((kept, lost), (vec![b.request], vec![a.request]));
        assert_eq!(c.audit(0).len(), 1, "who took it is not forgotten");
        let (lease, secret) = (c.lease(0), SECRET);
        c.call(0, Call::AttachLease { lease, secret });
        let next = c.lock(0, "a");
        c.run();
        let next = c.granted(0, next);
        assert!(next.token > a.token);
        c.release(0, next.request);
    }
}

#[test]
fn a_force_that_a_crash_lost_never_was() {
    let mut c = Cluster::new(1, 0, 0);
    let a = c.lock(0, "a");
    c.run();
    let a = c.granted(0, a);
    let keep = c.nodes[0].records.len();
    let force = c.force(0, "a");
    assert!(!c.is_answered(0, force) && c.told_forced(0).is_empty());
    c.crash(0, keep);
    c.pass(600);
    assert_eq!(c.reclaim(0, &[("a", &a)]), (vec![a.request], vec![]));
    assert_eq!(c.audit(0), []);
}

#[test]
fn who_was_away_is_told_on_its_return() {
    let mut c = Cluster::new(1, 0, 0);
    let a = c.lock(0, "a");
    c.run();
    let a = c.granted(0, a).request;
    c.force(0, "a");
    c.run();
    c.nodes[0].notices.clear();
    let (lease, secret) = (c.lease(0), SECRET);
    c.call(0, Call::AttachLease { lease, secret });
    assert_eq!(c.told_forced(0), [a], "it lives on the stream of now");
    c.restart(0);
    c.nodes[0].notices.clear();
    c.call(0, Call::AttachLease { lease, secret });
    assert_eq!(c.told_forced(0), [a], "also after a restart");
    c.pass(600);
    c.call(0, Call::CloseLease { lease, proof: Proof::Attached });
    c.run();
    c.handle(0, Event::Checkpoint);
    assert_eq!(c.nodes[0].checkpoint.as_ref().map(|made| made.forced.len()), Some(1), "for people");
}

#[test]
fn before_the_clients_are_back_nothing_is_taken_and_on_a_full_disk_neither() {
    let mut c = Cluster::new(1, 0, 0);
    let a = c.lock(0, "a");
    c.run();
    let a = c.granted(0, a);
    c.room(0, DiskSpace::Low);
    let force = c.force(0, "a");
    assert_eq!(c.refused(0, force), Refusal::DiskFull);
    c.room(0, DiskSpace::Enough);
    c.restart(0);
    c.pass(600);
    assert_eq!(c.inspect(0).phase(), Phase::Grace { leases: 1 });
    assert_eq!(c.reclaim(0, &[("a", &a)]).0, [a.request]);
    let force = c.force(0, "a");
    c.run();
    assert_eq!(c.forced(0, force).taken[0].request, a.request);
}

#[test]
fn the_last_thousand_are_remembered_and_a_lease_that_lost_as_many_ends() {
    let mut c = Cluster::new(1, 0, 0);
    c.open_lease(0, Duration::from_secs(10));
    let shared: Vec<u64> = (0..MAX_VICTIMS as u64 + 1).map(|_| c.share(0, "a")).collect();
    c.run();
    let last = c.granted(0, *shared.last().expect("many")).request;
    let lease = c.lease(0);
    let force = c.force(0, "a");
    c.run();
    let outcome = c.forced(0, force);
    assert_eq!(outcome.taken.len(), MAX_VICTIMS);
    assert!(c.nodes[0].notices.contains(&Notice::LeaseEnded { lease }), "and with it goes {last}");
    assert!(matches!(c.nodes[0].records.last(), Some((_, Record::LeaseEnded { .. }))));
    c.open_lease(0, Duration::from_secs(10));
    let more = c.lock(0, "a");
    c.run();
    assert!(c.granted(0, more).token > FencingToken(0));
    c.force(0, "a");
    let audit = c.audit(0);
    let numbers = (audit[0].number, audit.last().expect("some").number, audit.len());
    assert_eq!(numbers, (2, MAX_VICTIMS as u64 + 1, MAX_AUDITED));
    c.restart(0);
    c.pass(600);
    assert_eq!(c.audit(0), audit);
}

#[test]
fn a_reason_is_a_line_of_text() {
    for wrong in ["", " \u{2003}", "two\nlines", "\u{1b}[2J", &"x".repeat(257)] {
        assert!(ForceReason::new(wrong).is_err(), "{wrong:?}");
    }
    assert!(ForceReason::new(&"x".repeat(256)).is_ok() && ForceReason::new("grün").is_ok());
}
