//! Stories about locks with a home: `a@1` is the lock `a` whose home is dc1.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use super::store_cluster::{add, step};
use crate::base::bugs::Bug;
use crate::base::wire::PROTOCOL_VERSION;
use crate::causal_log::{Entry, EntryFault, LockParts, Op, Violation, Wants};
use crate::lock_state::HoldRule;
use crate::replica::call::store::Then;
use crate::replica::call::watch::{Pattern, Subject, Watch};
use crate::replica::call::{Call, LockDescription, Refusal, Reply, Wait};
use crate::replica::clients::force_release::ForceRelease;
use crate::replica::{Event, LocalConfig, Message, Record};
use geolock_api::names::{ClusterId, DcSet, ForceReason, Mode, RequestId};

impl Cluster {
    fn owners(&self, lock: &str) -> Vec<BTreeMap<u8, u8>> {
        let of = |replica: &crate::replica::Replica| {
            (0..3).map(|part| (part, replica.inspect().owner_of(&name(lock), dc(part)).get())).collect()
        };
        self.nodes.iter().map(|node| of(&node.replica)).collect()
    }

    /// Asserts that every datacenter believes that dc`owner` has the whole lock.
    fn assert_all_at(&self, owner: u8, lock: &str) {
        assert!(self.owners(lock).iter().all(|owners| owners.values().all(|dc| *dc == owner)), "{lock}");
    }

    fn described_lock(&mut self, id: u8, lock: &str) -> LockDescription {
        let tag = self.call(id, Call::Describe { lock: name(lock) });
        self.run();
        match self.reply(id, tag) {
            Some(Reply::Described(described)) => *described,
            other => panic!("{lock} is not described but {other:?}"),
        }
    }

    fn transfers_by(&self, id: u8, lock: &str) -> Vec<(u8, usize)> {
        let entries = self.nodes[usize::from(id)].records.iter().filter_map(|(_, record)| match record {
            Record::Entry(entry) if entry.dc == dc(id) => Some(entry),
            _ => None,
        });
        let moved = entries.flat_map(|entry| &entry.ops).filter_map(|op| match op {
            Op::Transfer { to, parts } => Some(parts.iter().map(move |moved| (to.get(), moved))),
            _ => None,
        });
        let of_lock = moved.flatten().filter(|(_, moved)| moved.lock == name(lock));
        of_lock.map(|(to, moved)| (to, moved.parts.len())).collect()
    }
}

#[test]
fn its_first_use_at_home_sends_nothing_and_waits_for_nothing() {
    let mut c = Cluster::new(3, 0, 0);
    let sent = c.sent;
    let records = c.nodes[1].records.len();
    for mode in [Mode::Exclusive, Mode::Shared] {
        let tag = c.acquire(1, &[("a@1", mode)], Wait::Try);
        let grant = c.granted(1, tag);
        c.release(1, grant.request);
    }
    assert_eq!((c.sent, c.nodes[1].records.len()), (sent, records));
    c.pass(70_000);
    assert!(
        c.nodes.iter().all(|node| node.replica.inspect().counts().locks_moved == 0),
        "it takes no memory"
    );
}

#[test]
fn its_home_uses_it_while_all_others_are_down() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(1);
    c.pass(5_000);
    let [homed, plain] = ["a@1", "a"].map(|lock| c.lock(1, lock));
    c.run();
    c.granted(1, homed);
    assert!(!c.is_answered(1, plain), "a lock without a home has parts that are out of reach");
}

#[test]
fn elsewhere_it_takes_one_round_trip_to_the_home_and_nobody_else() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(2);
    c.pass(5_000);
    let [homed, plain] = ["a@1", "a"].map(|lock| c.lock(0, lock));
    assert!(!c.is_answered(0, homed));
    c.sync(0);
    assert!(c.deliver(0, 1));
    c.sync(1);
    while c.deliver(1, 0) {}
    c.sync(0);
    let grant = c.granted(0, homed);
    assert!(!c.is_answered(0, plain));
    c.release(0, grant.request);
    c.link_again(2);
    c.run();
    c.assert_all_at(0, "a@1");
}

#[test]
fn the_same_bytes_with_another_home_are_another_lock() {
    let mut c = Cluster::new(3, 0, 0);
    let names = ["a", "a@0", "a@1", "a@2"];
    let tags = names.map(|lock| c.lock(0, lock));
    c.run();
    let grants = tags.map(|tag| c.granted(0, tag));
    let both = c.acquire(1, &[("a@0", Mode::Exclusive), ("a@1", Mode::Exclusive)], Wait::Forever);
    c.run();
    assert!(!c.is_answered(1, both));
    for of in [1, 2] {
        c.release(0, grants[of].request);
    }
    c.run();
    let grant = c.granted(1, both);
    assert!(grant.token > grants[1].token && grant.token > grants[2].token);
}

#[test]
fn shared_use_elsewhere_fetches_the_own_part_and_leaves_the_others() {
    let mut c = Cluster::new(3, 0, 0);
    let at_home = c.share(1, "a@1");
    let at_home = c.granted(1, at_home);
    let away = c.share(0, "a@1");
    assert!(!c.is_answered(0, away), "its part is at the home of the lock");
    c.run();
    let away = c.granted(0, away);
    assert_eq!(c.owners("a@1")[1], BTreeMap::from([(0, 0), (1, 1), (2, 1)]));
    let writer = c.lock(1, "a@1");
    c.run();
    assert!(!c.is_answered(1, writer));
    c.release(1, at_home.request);
    c.release(0, away.request);
    c.run();
    let writer = c.granted(1, writer);
    assert!(writer.token > away.token);
    c.assert_all_at(1, "a@1");
}

#[test]
fn unused_it_goes_home_in_one_transfer() {
    let minute = Duration::from_secs(60);
    let hold = vec![HoldRule { idle_return_after: minute, ..HoldRule::default() }];
    let mut c = Cluster::with_options(3, LocalConfig { hold, ..LocalConfig::default() });
    c.use_lock(0, "a@1");
    c.run();
    c.assert_all_at(0, "a@1");
    let reader = c.share(2, "b@1");
    c.run();
    let reader = c.granted(2, reader);
    c.release(2, reader.request);
    c.pass(90_000);
    c.assert_all_at(1, "a@1");
    c.assert_all_at(1, "b@1");
    assert_eq!(c.transfers_by(0, "a@1"), [(1, 3)], "its own part, too");
    assert_eq!(c.transfers_by(2, "b@1"), [(1, 1)]);
    assert!(c.nodes.iter().all(|node| node.replica.inspect().counts().locks_moved == 0));
}

#[test]
fn what_is_at_its_home_counts_as_not_moved_and_is_not_listed() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(1, "a@1");
    c.use_lock(0, "b@1");
    c.run();
    let (mut listed, mut next) = (Vec::new(), Some(Default::default()));
    while let Some(cursor) = next {
        let tag = c.call(1, Call::List { prefix: vec![], cursor, limit: 10 });
        let Some(Reply::Listed { locks, next: then }) = c.reply(1, tag) else { panic!("no list") };
        listed.extend(locks.into_iter().map(|lock| lock.lock));
        next = then;
    }
    assert_eq!(listed, [name("b@1")]);
    assert_eq!(c.inspect(1).counts().locks_moved, 1);
}

#[test]
fn a_description_and_a_timeout_name_the_home_alone() {
    let mut c = Cluster::new(3, 0, 0);
    c.isolate(1);
    c.pass(5_000);
    let described = c.described_lock(0, "a@1");
    assert_eq!(described.lock, name("a@1"));
    assert_eq!((described.unreachable, described.unknown), (DcSet::only(dc(1)), DcSet::only(dc(1))));
    assert!(described.owners.iter().all(|(_, owner)| *owner == dc(1)));
    let waits = c.acquire(0, &[("a@1", Mode::Exclusive)], Wait::AtMost(Duration::from_secs(1)));
    c.pass(2_000);
    let Refusal::TimedOut(locks) = c.refused(0, waits) else { panic!("its home is away") };
    assert_eq!((&locks[0].lock, locks[0].unreachable), (&name("a@1"), DcSet::only(dc(1))));
    let described = c.described_lock(0, "a@2");
    assert!(described.unreachable.is_empty(), "dc1 has no part of it");
}

#[test]
fn a_home_that_is_no_member_is_refused_and_changes_nothing() {
    let mut c = Cluster::new(3, 0, 0);
    let before = c.inspect(0).counts();
    let operator = std::sync::Arc::from("ann");
    let force =
        ForceRelease { lock: name("a@9"), operator, reason: ForceReason::new("it hangs").expect("a reason") };
    let patterns = vec![Pattern::lock(&name("a@9"))];
    let calls = [
        c.lock(0, "a@9"),
        c.acquire(0, &[("a@0", Mode::Shared), ("a@9", Mode::Shared)], Wait::Try),
        c.begin(0, 7, Some("a@9"), step(vec![add("n", 1)], &[], Then::Commit)),
        c.call(0, Call::Describe { lock: name("a@9") }),
        c.call(0, Call::ForceRelease(force)),
        c.call(0, Call::Watch(Watch { subject: Subject::Locks, patterns, from: None })),
    ];
    c.run();
    for tag in calls {
        assert!(matches!(c.refused(0, tag), Refusal::UnknownHome { home, .. } if home == dc(9)));
    }
    let after = c.inspect(0).counts();
    assert_eq!((after.held, after.waiting, after.watches), (before.held, before.waiting, before.watches));
    assert_eq!(after.locks_active, 0);
}

#[test]
fn an_entry_that_names_a_home_which_is_no_member_closes_the_link() {
    for transfers in [true, false] {
        let mut c = Cluster::new(3, 0, 0);
        let deps = c.inspect(0).status().applied;
        let (lock, id) = (name("a@9"), RequestId { dc: dc(1), n: 1 << 40 });
        let at = crate::base::time::Timestamp::from_millis(1_700_000_001_001);
        let op = if transfers {
            Op::Transfer { to: dc(2), parts: vec![LockParts { lock: lock.clone(), parts: vec![(dc(1), 1)] }] }
        } else {
            let wants = Wants::all(vec![(lock.clone(), Mode::Shared)]).expect("one lock");
            Op::Request { id, at, wants }
        };
        let seq = deps.get(dc(1)) + 1;
        let cluster = ClusterId::of("stories");
        let entry = Entry { cluster, epoch: 0, prev: 0, lead_ms: 0, dc: dc(1), seq, at, deps, ops: vec![op] };
        c.handle(0, Event::Received { peer: dc(1), message: Message::Entries(vec![entry.into()]) });
        let fault = EntryFault::UnknownHome { lock };
        assert_eq!(c.nodes[0].violations, [Violation::Entry { dc: dc(1), seq, fault }]);
    }
}

/// dc2 still runs the release before; its links speak version 2.
fn with_old() -> Cluster {
    Cluster::with_old(3, BTreeMap::from([(2, 2)]), None)
}

fn behind(refusal: &Refusal) -> DcSet {
    match refusal {
        Refusal::NotYet { behind, .. } => *behind,
        other => panic!("not refused for the version but {other:?}"),
    }
}

#[test]
fn before_all_members_understand_homes_they_are_refused() {
    let mut c = with_old();
    let force = ForceRelease {
        lock: name("a@1"),
        operator: std::sync::Arc::from("ann"),
        reason: ForceReason::new("it hangs").expect("a reason"),
    };
    let calls = [
        c.lock(1, "a@1"),
        c.begin(1, 7, Some("a@1"), step(vec![], &[], Then::Commit)),
        c.call(1, Call::Describe { lock: name("a@1") }),
        c.call(1, Call::ForceRelease(force)),
    ];
    c.run();
    for tag in calls {
        assert_eq!(behind(&c.refused(1, tag)), DcSet::only(dc(2)));
    }
    c.use_lock(2, "a");
    c.use_lock(1, "a");
    // dc2 is upgraded, and dc0 hears of it through dc1 only.
    c.old.clear();
    c.restart(2);
    c.link(1, 2);
    c.pass(2_000);
    for id in 0..3 {
        if id == 2 {
            c.pass(12_000);
        }
        c.open_lease(id, Duration::from_secs(10));
        let tag = c.lock(id, &format!("x@{id}"));
        c.run();
        c.granted(id, tag);
    }
}

#[test]
fn that_all_understand_homes_is_known_after_a_restart() {
    for checkpoint in [false, true] {
        let mut c = Cluster::new(3, 0, 0);
        c.isolate(1);
        if checkpoint {
            let checkpoint = c.inspect(1).checkpoint();
            c.restart_from(1, checkpoint);
        } else {
            c.restart(1);
        }
        c.pass(20_000);
        c.open_lease(1, Duration::from_secs(10));
        let tag = c.lock(1, "a@1");
        c.run();
        c.granted(1, tag);
    }
}

#[test]
fn a_grant_waits_until_its_reclaim_would_be_understood() {
    let mut c = with_old();
    c.old.clear();
    c.restart(2);
    c.link(0, 2);
    c.link(1, 2);
    c.nodes[1].disk_is_stuck = true;
    c.pass(1_000);
    let tag = c.lock(1, "a@1");
    c.run();
    assert!(!c.is_answered(1, tag), "the record that all understand homes is not durable");
    c.nodes[1].disk_is_stuck = false;
    c.run();
    c.granted(1, tag);
}

#[test]
fn a_member_that_goes_back_to_version_2_is_not_let_in() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    c.link(0, 1);
    c.handle(0, Event::Received { peer: dc(1), message: Message::HeartbeatV2(Box::default()) });
    assert_eq!(c.nodes[0].violations, [Violation::OldVersion { speaks: 2, all: PROTOCOL_VERSION }]);
}

/// A deliberate bug: the refusal is missing.
#[test]
#[should_panic(expected = "version 2 cannot read")]
fn without_the_refusal_an_older_member_gets_names_that_it_cannot_read() {
    let mut c = Cluster::with_old(3, BTreeMap::from([(2, 2)]), Some(Bug::HomedTooEarly));
    c.lock(0, "a@1");
    c.run();
}
