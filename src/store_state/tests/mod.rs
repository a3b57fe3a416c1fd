//! The store against a model that keeps every version of everything.

mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::base::time::{TimeToLive, Timestamp};
use crate::causal_log::{Action, Change, Commit, Entry, Op};
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot, SharedValue};
use crate::store_state::store::Store;
use crate::store_state::{Content, Lifetime, Listing};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, Position};
use geolock_api::value::{self, Reading, SetOp, Update};

const ME: DcId = match DcId::new(0) {
    Some(dc) => dc,
    None => panic!("0 is an id"),
};
const KEYS: u8 = 4;

/// An event of a store.
#[derive(Clone, Debug)]
enum Move {
    /// Keys, with a number for each change.
    Commit(Vec<(u8, u8)>),
    /// The journal is durable up to everything that is applied.
    Sync,
    Open,
    /// Closes one of the open snapshots, if any.
    Close(usize),
    /// Folds at most this number of effects.
    Fold(usize),
    Settle,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let changes = proptest::collection::vec((0..KEYS, any::<u8>()), 1..4);
    let one = prop_oneof![
        8 => changes.prop_map(Move::Commit),
        3 => Just(Move::Sync),
        2 => Just(Move::Open),
        2 => any::<usize>().prop_map(Move::Close),
        2 => (0_usize..6).prop_map(Move::Fold),
        1 => Just(Move::Settle),
    ];
    proptest::collection::vec(one, 1..200)
}

fn key(n: u8) -> Key {
    Key::new(b"b", &[n + 1]).expect("a short key")
}

/// Even keys are counters, odd ones sets; any can be removed, expire, or have a time to live.
fn change(n: u8, number: u8) -> Change {
    let element = vec![vec![number % 10].into()];
    let op = match (n % 2, number % 3) {
        (0, _) => value::Op::Counter(number.into()),
        (_, 0) => value::Op::AddWinsSet(SetOp::Remove(element)),
        _ => value::Op::AddWinsSet(SetOp::Add(element)),
    };
    let action = match number {
        241.. => Action::Remove,
        226.. => Action::Expired,
        200.. => Action::Expire(TimeToLive::from_millis(number).expect("it is above 0")),
        _ => Action::Update(Update::of(op)),
    };
    Change { key: key(n), action }
}

/// The state of the model: all keys after every commit.
type Version = BTreeMap<u8, Content>;

struct Pair {
    store: Store,
    versions: Vec<Version>,
    durable: usize,
    open: Vec<usize>,
}

impl Pair {
    fn new() -> Pair {
        Pair { store: Store::new(ME, 7), versions: vec![Version::new()], durable: 0, open: vec![] }
    }

    fn commit(&mut self, changes: Vec<(u8, u8)>) {
        let seq = self.versions.len() as u64;
        let seen: VersionVector = [(ME, self.durable as u64)].into_iter().collect();
        let mut version = self.versions.last().expect("there is a first one").clone();
        for (index, (n, number)) in changes.iter().enumerate() {
            let dot = Dot { dc: ME, seq };
            let at = At { dot, index: index as u32, stamp: Timestamp::from_raw(seq), seen: &seen };
            version.entry(*n).or_default().apply(&change(*n, *number).action, &at);
        }
        self.versions.push(version);
        let changes = changes.into_iter().map(|(n, number)| change(n, number)).collect();
        let entry = Entry {
            cluster: ClusterId::of("test"),
            epoch: 0,
            prev: 0,
            lead_ms: 0,
            dc: ME,
            seq,
            at: Timestamp::from_raw(seq),
            deps: [(ME, seq - 1)].into_iter().collect(),
            ops: vec![Op::Commit(Commit { seen, client: None, changes })],
        };
        self.store.apply(&Arc::new(entry), 0, Position(seq), |_, _| {});
    }

    fn make(&mut self, one: Move) {
        match one {
            Move::Commit(changes) => self.commit(changes),
            Move::Sync => {
                self.durable = self.versions.len() - 1;
                self.store.note_durable(Position(self.durable as u64));
            }
            Move::Open => {
                let vector = Arc::new([(ME, self.durable as u64)].into_iter().collect());
                assert_eq!(self.store.open_snapshot(&vector), Position(self.durable as u64));
                self.open.push(self.durable);
            }
            Move::Close(_) if self.open.is_empty() => {}
            Move::Close(which) => {
                let at = self.open.swap_remove(which % self.open.len());
                self.store.close_snapshot(Position(at as u64));
            }
            Move::Fold(most) => {
                self.store.fold(most);
            }
            Move::Settle => {
                // With one datacenter, the stable vector is that of the oldest open snapshot.
                let oldest = self.open.iter().copied().chain([self.durable]).min().unwrap_or(0);
                self.store.note_stable(&[(ME, oldest as u64)].into_iter().collect());
                self.store.compact(usize::MAX);
            }
        }
    }

    fn compare(&mut self) {
        let readers: Vec<usize> = self.open.iter().copied().chain([self.durable]).collect();
        for at in readers {
            for n in 0..KEYS {
                let (at_position, seen) = (Position(at as u64), VersionVector::default());
                let shown = self.store.read(&key(n), at_position, &seen, [].iter());
                assert_eq!(shown.as_ref().map(SharedValue::reading), self.modelled(at, n), "key {n} at {at}");
            }
        }
        self.store.check_invariants();
        let position = Position(self.durable as u64);
        let (mut listed, mut from) = (BTreeSet::new(), Some(0));
        while let Some(place) = from {
            let listing = Listing { prefix: &[], at: position, limit: 2 };
            let (keys, next) = listing.page(&mut self.store, place);
            assert!(keys.len() <= 2 && keys.iter().all(|key| listed.insert(key.clone())), "each once");
            from = next;
        }
        let shown = (0..KEYS).filter(|n| self.modelled(self.durable, *n).is_some());
        assert_eq!(listed, shown.map(key).collect(), "the keys that have a value");
        let newest = self.versions.last().expect("there is a first one");
        let expiring = newest.iter().filter(|(_, content)| !content.lifetimes().is_empty());
        let modelled: BTreeMap<Key, &[Lifetime]> =
            expiring.map(|(n, content)| (key(*n), content.lifetimes())).collect();
        let kept: BTreeMap<Key, &[Lifetime]> =
            self.store.expiring_keys().map(|(key, all)| (key.clone(), all)).collect();
        assert_eq!(kept, modelled, "how long keys live");
    }

    fn modelled(&self, at: usize, n: u8) -> Option<Reading> {
        self.versions[at].get(&n).and_then(|content| content.slots().read(ME))
    }
}

#[test]
fn many_changes_of_one_value_that_are_stable_together_settle_it_once() {
    let mut pair = Pair::new();
    for number in 0..100 {
        pair.make(Move::Commit(vec![(1, number), (3, number)]));
    }
    for one in [Move::Sync, Move::Fold(usize::MAX), Move::Settle] {
        pair.make(one);
    }
    assert_eq!(pair.store.compacted, 2, "once for each key");
    pair.compare();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_open_snapshot_shows_what_it_did_when_it_was_opened(moves in moves()) {
        let mut pair = Pair::new();
        for one in moves {
            pair.make(one);
            pair.compare();
        }
        // Everything is closed, durable, folded and stable: no old version is left.
        pair.make(Move::Sync);
        while !pair.open.is_empty() {
            pair.make(Move::Close(0));
        }
        pair.make(Move::Fold(usize::MAX));
        pair.make(Move::Settle);
        pair.compare();
        let counts = pair.store.counts();
        prop_assert_eq!((counts.effects, counts.uncompacted, counts.snapshots), (0, 0, 0));
        let visible = (0..KEYS).filter(|n| pair.modelled(pair.durable, *n).is_some()).count();
        prop_assert!(counts.keys as usize >= visible);
    }
}
