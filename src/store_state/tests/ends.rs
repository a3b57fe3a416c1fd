//! Removals, expiries and lifetimes: the content of a key, in whatever causal order its changes arrive.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::base::time::{TimeToLive, Timestamp};
use crate::base::wire;
use crate::causal_log::Action;
use crate::crdt::VersionVector;
use crate::crdt::histories::{self, DCS, play, reorder, run, stable_before, steps};
use crate::crdt::value::{At, Dot};
use crate::store_state::{Content, Lifetime};
use geolock_api::names::DcId;
use geolock_api::value::{Op, Reading, Type, Update};

type Commit = histories::Commit<Action>;

/// The action of a transaction on the key.
#[derive(Clone, Debug)]
enum What {
    Write,
    Expire(u64),
    Remove,
    Expired,
}

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn wanted() -> impl Strategy<Value = Vec<What>> {
    let what = prop_oneof![
        5 => Just(What::Write),
        3 => (1..50_u64).prop_map(What::Expire),
        1 => Just(What::Remove),
        2 => Just(What::Expired),
    ];
    vec(what, 1..4)
}

/// Every written element is unique.
fn action(dot: Dot, index: usize, what: What) -> Action {
    match what {
        What::Write => write(&format!("{}:{}:{index}", dot.dc, dot.seq)),
        What::Expire(ms) => Action::Expire(TimeToLive::from_millis(ms).expect("it is short")),
        What::Remove => Action::Remove,
        What::Expired => Action::Expired,
    }
}

/// One change, as the rules see it.
struct Change<'a> {
    commit: &'a Commit,
    index: usize,
}

impl Change<'_> {
    fn action(&self) -> &Action {
        &self.commit.changes[self.index]
    }

    fn has_seen(&self, other: &Change<'_>) -> bool {
        match self.commit.dot == other.commit.dot {
            true => other.index < self.index,
            false => other.commit.dot.is_in(&self.commit.seen),
        }
    }

    fn ends(&self) -> bool {
        matches!(self.action(), Action::Remove | Action::Expired)
    }
}

/// Returns the result by the rules alone: the written elements that are left, and the lifetimes.
fn expected(commits: &[Commit]) -> (BTreeSet<String>, BTreeMap<DcId, (u64, Dot)>) {
    let indexed = |commit| {
        let Commit { changes, .. }: &Commit = commit;
        (0..changes.len()).map(move |index| Change { commit, index })
    };
    let changes: Vec<Change<'_>> = commits.iter().flat_map(indexed).collect();
    // In causal order: the number of ends, one after the other, that each change comes after; an end counts
    // itself.
    let mut generations: Vec<u64> = Vec::new();
    for (place, change) in changes.iter().enumerate() {
        let seen = changes[..place]
            .iter()
            .zip(&generations)
            .filter(|(other, _)| other.ends() && change.has_seen(other));
        let before = seen.map(|(_, generation)| *generation).max().unwrap_or(0);
        generations.push(before + u64::from(change.ends()));
    }
    let newest =
        generations.iter().zip(&changes).filter(|(_, c)| c.ends()).map(|(g, _)| *g).max().unwrap_or(0);
    let removals: Vec<&Change<'_>> = changes.iter().filter(|c| *c.action() == Action::Remove).collect();
    let (mut written, mut lifetimes) = (BTreeSet::new(), BTreeMap::<DcId, (u64, Dot)>::new());
    for (change, generation) in changes.iter().zip(&generations) {
        if *generation != newest || !removals.iter().all(|removal| change.has_seen(removal)) {
            continue;
        }
        let Commit { dot, stamp, .. } = change.commit;
        match change.action() {
            Action::Update(Update { op: Op::GrowOnlySet(elements), .. }) => {
                written.extend(elements.iter().map(|e| String::from_utf8_lossy(e).into_owned()));
            }
            Action::Expire(ttl) => {
                let new = (stamp.millis() + ttl.millis(), *dot);
                lifetimes.entry(dot.dc).and_modify(|before| *before = new.max(*before)).or_insert(new);
            }
            _ => {}
        }
    }
    (written, lifetimes)
}

fn shown(content: &Content) -> (BTreeSet<String>, BTreeMap<DcId, (u64, Dot)>) {
    let written = match content.slots().read(dc(0)) {
        None => BTreeSet::new(),
        Some(Reading::Set(Type::GrowOnlySet, all)) => {
            all.iter().map(|element| String::from_utf8_lossy(element).into_owned()).collect()
        }
        other => panic!("only a set was written, not {other:?}"),
    };
    let row = |lifetime: &Lifetime| (lifetime.dot.dc, (lifetime.ends_at(), lifetime.dot));
    (written, content.lifetimes().iter().map(row).collect())
}

fn apply(content: &mut Content, commit: &Commit) {
    for (index, action) in commit.changes.iter().enumerate() {
        content.apply(action, &commit.at(index));
    }
}

/// Counts of the cases that the histories must contain, or their laws mean nothing.
#[derive(Default, Debug)]
struct Found {
    several_lifetimes: usize,
    concurrent_lapses: usize,
    outlived_a_lapse: usize,
    compacted: usize,
    empty: usize,
}

#[test]
fn what_is_left_of_a_key_follows_from_what_was_seen_in_every_order() {
    let found = RefCell::new(Found::default());
    let orders = vec((vec(any::<Index>(), 1..40), vec(0..4_u8, 1..30)), 3);
    run(500, &(vec(steps(wanted(), 39), 2..24), orders), |(steps, orders)| {
        let mut found = found.borrow_mut();
        let commits = play(steps, action);
        count(&commits, &mut found);
        for (order, whims) in &orders {
            let order = reorder(&commits, order);
            let (mut content, mut vector) = (Content::default(), VersionVector::default());
            for (done, (commit, whim)) in order.iter().zip(whims.iter().cycle()).enumerate() {
                apply(&mut content, commit);
                vector.raise(commit.dot.dc, commit.dot.seq);
                let rest = &order[done + 1..];
                match whim {
                    1 => {
                        let before = content.clone();
                        content.compact(&stable_before(rest, &vector));
                        found.compacted += usize::from(before != content);
                    }
                    2 => {
                        let bytes = wire::encode("content", &content).expect("it is small");
                        let again: Content = wire::decode("content", &bytes).expect("its own bytes");
                        prop_assert_eq!(&again, &content);
                    }
                    _ => {}
                }
                let expected = expected(&order[..=done]);
                found.several_lifetimes += usize::from(expected.1.len() > 1);
                prop_assert_eq!(shown(&content), expected, "{:?}", content);
            }
            content.compact(&vector);
            prop_assert!(!content.has_ends(), "{:?}", content);
            let (written, lifetimes) = shown(&content);
            prop_assert_eq!(content.is_empty(), written.is_empty() && lifetimes.is_empty(), "{:?}", content);
            found.empty += usize::from(content.is_empty());
        }
        Ok(())
    });
    let found = found.into_inner();
    assert!(found.several_lifetimes > 150 && found.concurrent_lapses > 150, "{found:?}");
    assert!(found.outlived_a_lapse > 50 && found.compacted > 150 && found.empty > 50, "{found:?}");
}

fn count(commits: &[Commit], found: &mut Found) {
    let lapses = |commit: &&Commit| commit.changes.contains(&Action::Expired);
    let all: Vec<&Commit> = commits.iter().filter(lapses).collect();
    for (place, one) in all.iter().enumerate() {
        let unseen = |other: &&&Commit| one.is_concurrent_with(other);
        found.concurrent_lapses += all[place + 1..].iter().filter(unseen).count();
    }
    let (written, _) = expected(commits);
    // Written by a commit that has not seen some expiry.
    let outlives = |commit: &&Commit| {
        let is_left =
            written.iter().any(|w| w.starts_with(&format!("{}:{}:", commit.dot.dc, commit.dot.seq)));
        is_left && all.iter().any(|lapse| lapse.dot != commit.dot && !lapse.dot.is_in(&commit.seen))
    };
    found.outlived_a_lapse += commits.iter().filter(outlives).count();
}

/// A change by a datacenter that has seen these commits.
type Made<'a> = (u8, &'a [(u8, u64)], Action);

/// Returns the content of a key after these changes.
fn after(changes: &[Made<'_>]) -> Content {
    let mut content = Content::default();
    let mut seqs = [0_u64; DCS as usize];
    for (id, seen, action) in changes {
        seqs[usize::from(*id)] += 1;
        let dot = Dot { dc: dc(*id), seq: seqs[usize::from(*id)] };
        let seen = seen.iter().map(|(id, seq)| (dc(*id), *seq)).collect();
        let stamp = Timestamp::from_millis(seqs.iter().sum());
        content.apply(action, &At { dot, index: 0, stamp, seen: &seen });
    }
    content
}

fn write(element: &str) -> Action {
    Action::Update(Update::of(Op::GrowOnlySet(vec![element.to_owned().into()])))
}

fn left(content: &Content) -> Vec<String> {
    shown(content).0.into_iter().collect()
}

#[test]
fn who_made_a_key_anew_keeps_it_when_another_lapse_of_the_same_arrives() {
    let first = (0, &[][..], write("old"));
    let lapse_here = (0, &[(0, 1)][..], Action::Expired);
    let lapse_there = (1, &[(0, 1)][..], Action::Expired);
    let anew = (1, &[(0, 1), (1, 1)][..], write("new"));
    let there_first = [first.clone(), lapse_there.clone(), anew.clone(), lapse_here.clone()];
    assert_eq!(left(&after(&there_first)), ["new"]);
    let here_first = [first.clone(), lapse_here.clone(), lapse_there, anew.clone()];
    assert_eq!(left(&after(&here_first)), ["new"]);
    // A client's removal takes it away.
    let removal = (0, &[(0, 1)][..], Action::Remove);
    assert!(left(&after(&[first, (1, &[(0, 1)], Action::Expired), anew, removal])).is_empty());
}

#[test]
fn a_lapse_takes_away_what_had_not_seen_it() {
    let history = |last| [(0, &[][..], write("old")), (0, &[(0, 1)][..], Action::Expired), last];
    assert!(left(&after(&history((1, &[(0, 1)], write("late"))))).is_empty());
    assert_eq!(left(&after(&history((1, &[(0, 2)], write("new"))))), ["new"]);
    let ttl = TimeToLive::from_millis(5).expect("it is short");
    assert!(after(&history((1, &[(0, 1)], Action::Expire(ttl)))).lifetimes().is_empty());
}

#[test]
fn bytes_that_are_no_marks_are_refused() {
    let content = after(&[(0, &[], Action::Remove), (1, &[], Action::Expired), (2, &[], Action::Expired)]);
    let bytes = wire::encode("content", &content).expect("it is small");
    assert_eq!(wire::decode::<Content>("content", &bytes).expect("its own bytes"), content);
    // No value; tombstones: base generation 0; three ends, of dc0, dc1 and dc2; then the removal by dc0.
    assert_eq!(bytes, [0, 1, 0, 3, 0, 1, 1, 1, 1, 1, 2, 1, 1, 1, 0, 1, 0]);
    for (place, wrong) in [(2, 1), (4, 3), (6, 0)] {
        let mut bytes = bytes.clone();
        bytes[place] = wrong;
        assert!(wire::decode::<Content>("content", &bytes).is_err(), "{place}");
    }
}
