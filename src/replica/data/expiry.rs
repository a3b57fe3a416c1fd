//! Expiring keys: a key ends when its time is over or its value is done (`docs/algorithm/log.md#33-expiry`).
//!
//! No key expires by a clock alone: clocks differ, so replicas would differ. One datacenter logs an entry
//! that ends the key, and that entry ends it everywhere, in causal order:
//!
//! - Each datacenter counts a key's time by its monotonic clock, from when it applied the commit that asked
//!   for it (the longest time, if several did). When the time is over there, the datacenter whose
//!   [`Lifetime`] stands logs the end. Only that one: it knows if a client prolonged the key a moment ago. If
//!   it is unreachable, the lowest reachable member logs the end `peer_timeout` later.
//! - A value is done when its type says so. The datacenter that wrote it last logs the end once that write is
//!   stable: then every datacenter knows it, and none writes to the value any more.
//!
//! Two datacenters that cannot talk may log the same end ([`crate::causal_log::Action::Expired`]), which is
//! harmless. An end that has not seen a prolongation is harmful, because the end wins. So a datacenter that
//! restarted, or hears from a peer again, catches up before it ends keys.
//!
//! After a restart times are counted anew. A datacenter knows by its own clock when it made its own wishes;
//! the time of the wishes of others begins again. So a key lives longer than asked rather than shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::transactions::can_commit;
use crate::base::deadlines::Deadlines;
use crate::base::tables::{Keyed, KeyedRows, row_index};
use crate::base::time::{Instant, Now};
use crate::causal_log::MAX_CHANGES;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::ids::Ids;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::peers::Peers;
use crate::store_state::{Lifetime, Touched};
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, Position};

/// Most keys that one commit ends and that one step examines.
const KEYS_PER_STEP: usize = 1_000;

const _: () = assert!(KEYS_PER_STEP <= MAX_CHANGES, "the keys of a step end in one commit");

/// The expiring keys and their times.
pub(in crate::replica) struct Expiry {
    rows: KeyedRows<Row, KeyIndex>,
    /// Keys whose time is running.
    due: Deadlines<KeyIndex>,
    /// Keys whose time is over, by the datacenter that is to end them and the time at which it was over.
    left_to: BTreeMap<DcId, Deadlines<KeyIndex>>,
    /// Keys whose done value was written here last, with the seq of that entry.
    done: BTreeSet<(u64, Key)>,
    /// After a restart: the time from which a peer that was not heard counts as away.
    reachability_known_at: Instant,
    /// No keys are ended before this time.
    retry_at: Instant,
}

/// One key.
struct Row {
    key: Key,
    /// The time at which it expires, as counted here.
    at: Instant,
    /// After it expired: the datacenter that is to end it.
    left_to: Option<DcId>,
}

/// Index of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct KeyIndex(u32);

row_index!(KeyIndex);

impl Keyed for Row {
    type Key = Key;

    fn key(&self) -> &Key {
        &self.key
    }
}

/// The facts that decide which keys this datacenter ends.
#[derive(Clone, Copy)]
pub(in crate::replica) struct Keepers<'a> {
    pub config: &'a ReplicaConfig,
    pub members: &'a Members,
    pub peers: &'a Peers,
}

impl Keepers<'_> {
    /// Returns the number of the last own entry that is stable.
    fn stable(self) -> u64 {
        self.peers.stability.stable().get(self.config.dc)
    }

    /// Returns the datacenters that are unreachable, or have left, whose keys this datacenter ends, if it is
    /// the lowest reachable member.
    fn ended_here(self) -> DcSet {
        let away = self.peers.reachability.unreachable().union(self.members.entered.ended());
        let here = self.members.entered.all().difference(away).iter().next();
        if here == Some(self.config.dc) { away } else { DcSet::EMPTY }
    }
}

impl Expiry {
    pub fn new(hash_seed: u64) -> Expiry {
        Expiry {
            rows: KeyedRows::with_seed(hash_seed),
            due: Deadlines::default(),
            left_to: BTreeMap::new(),
            done: BTreeSet::new(),
            reachability_known_at: Instant::ZERO,
            retry_at: Instant::ZERO,
        }
    }

    /// Returns true if no key is to end.
    #[inline]
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.done.is_empty()
    }

    /// Returns when this datacenter has to end the next key.
    #[inline]
    pub fn next_deadline(&self, keepers: Keepers<'_>) -> Option<Instant> {
        if self.is_empty() { None } else { self.next_of_some(keepers) }
    }

    fn next_of_some(&self, keepers: Keepers<'_>) -> Option<Instant> {
        let stable = keepers.stable();
        let done = self.done.first().filter(|(seq, _)| *seq <= stable).map(|_| Instant::ZERO);
        let patience = keepers.config.agreed.peer_timeout;
        let left = self.left_to_us(keepers).filter_map(|dc| self.left_to.get(&dc)?.next()).min();
        let next = [self.due.next(), left.map(|at| at + patience), done].into_iter().flatten().min()?;
        Some(next.max(self.retry_at))
    }

    /// Returns the unreachable datacenters with keys to end that this datacenter ends.
    fn left_to_us(&self, keepers: Keepers<'_>) -> impl Iterator<Item = DcId> {
        let ended_here = keepers.ended_here();
        self.left_to.keys().copied().filter(move |dc| ended_here.contains(*dc))
    }

    /// Returns true if there are keys that this datacenter has to end because it wrote their done values.
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Number of keys that expire or are done.
    pub fn len(&self) -> usize {
        self.rows.len() + self.done.len()
    }

    /// The key lives until `until` at least.
    fn live(&mut self, key: &Key, until: Instant) {
        let until = match self.forget(key) {
            Some(before) => before.max(until),
            None => until,
        };
        let row = self.rows.insert(Row { key: key.clone(), at: until, left_to: None });
        self.due.insert(until, row);
    }

    /// The key has expired, and another datacenter is to end it.
    fn leave(&mut self, key: Key, at: Instant, to: DcId) {
        debug_assert!(self.rows.find(&key).is_none(), "{key} expires once");
        let row = self.rows.insert(Row { key, at, left_to: Some(to) });
        self.left_to.entry(to).or_default().insert(at, row);
    }

    /// Removes the key. Returns the time at which it was to expire.
    fn forget(&mut self, key: &Key) -> Option<Instant> {
        let index = self.rows.find(key)?;
        let row = self.rows.remove(index);
        match row.left_to {
            None => self.due.remove(row.at, index),
            Some(dc) => self.left(dc, |keys| keys.remove(row.at, index)),
        }
        Some(row.at)
    }

    fn left<T: Default>(&mut self, to: DcId, change: impl FnOnce(&mut Deadlines<KeyIndex>) -> T) -> T {
        let Some(keys) = self.left_to.get_mut(&to) else { return T::default() };
        let changed = change(keys);
        if keys.is_empty() {
            self.left_to.remove(&to);
        }
        changed
    }

    /// Removes and returns a key that had expired by `now`.
    fn pop_due(&mut self, now: Instant) -> Option<(Key, Instant)> {
        let row = self.due.pop_expired(now)?;
        let Row { key, left_to, .. } = &self.rows[row];
        assert!(left_to.is_none(), "the time of {key} is running, and it is left to {left_to:?}");
        Some(self.popped(row))
    }

    /// Removes and returns a key that `dc` was to end and that had expired by `before`.
    fn pop_left(&mut self, dc: DcId, before: Instant) -> Option<(Key, Instant)> {
        let row = self.left(dc, |keys| keys.pop_expired(before))?;
        let Row { key, left_to, .. } = &self.rows[row];
        assert_eq!(*left_to, Some(dc), "{key} is listed under who is to end it");
        Some(self.popped(row))
    }

    fn popped(&mut self, row: KeyIndex) -> (Key, Instant) {
        let Row { key, at, .. } = self.rows.remove(row);
        (key, at)
    }

    /// Applies the effect of a commit on the lifetime of a key. `own`: the seq of the entry, if it is one of
    /// this datacenter.
    pub fn touch(&mut self, key: &Key, touched: Touched, now: Instant, own: Option<u64>) {
        match touched {
            Touched::Lives(ttl) => self.live(key, now + ttl.duration()),
            Touched::Ended => drop(self.forget(key)),
            Touched::MayBeDone => self.done.extend(own.map(|seq| (seq, key.clone()))),
        }
    }

    fn forget_all(&mut self) {
        self.rows.clear();
        self.due = Deadlines::default();
        self.left_to.clear();
        self.done.clear();
    }

    /// Asserts that each key is listed once, under its time or under who is to end it.
    pub fn check_lists(&self) {
        let left: usize = self.left_to.values().map(Deadlines::len).sum();
        assert_eq!(self.due.len() + left, self.rows.len(), "each key that expires is listed once");
        assert!(!self.left_to.values().any(Deadlines::is_empty), "a listed datacenter has keys to end");
    }

    /// Asserts that an expiring key is registered.
    pub fn check(&self, key: &Key) {
        assert!(self.rows.find(key).is_some(), "{key} lives only for some time, and nobody counts it");
    }
}

/// Finds the keys that this datacenter has to end.
pub(in crate::replica) struct KeyExpiry<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) ids: &'a Ids,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a Peers,
    pub(in crate::replica) data: &'a mut Data,
}

impl KeyExpiry<'_> {
    /// Everything was read from disk: registers all expiring keys, and starts their times.
    pub(in crate::replica) fn restart_expiry(&mut self, position: Position) {
        if position > Position::default() {
            self.data.expiry.reachability_known_at = self.now.mono + self.config.agreed.peer_timeout;
        }
        let mut keys: Vec<Key> = self.data.store.expiring_keys().map(|(key, _)| key.clone()).collect();
        keys.extend(self.data.store.done_keys().cloned());
        self.count_anew(keys);
    }

    /// The contents of the store did not come from commits that were applied here one by one, so all times
    /// begin anew. `keys` contains all keys that expire or are done.
    pub(in crate::replica) fn count_anew(&mut self, keys: Vec<Key>) {
        self.data.expiry.forget_all();
        let (me, now, clock_ms) = (self.config.dc, self.now.mono, self.ids.clock.physical_millis());
        for key in keys {
            let lifetimes = self.data.store.lifetimes(&key).iter();
            if let Some(left) = lifetimes.map(|lifetime| time_left(lifetime, me, clock_ms)).max() {
                self.data.expiry.live(&key, now + left);
            }
            if let Some(dot) = self.data.store.done_by(&key).filter(|dot| dot.dc == me) {
                self.data.expiry.done.insert((dot.seq, key));
            }
        }
    }

    /// Returns true if this datacenter may end keys: it has caught up with all members that live, and has
    /// waited for the rest.
    fn may_end_keys(&self) -> bool {
        let all_heard = self.peers.reachability.unreachable().is_empty()
            || self.now.mono >= self.data.expiry.reachability_known_at;
        can_commit(self.lifecycle).is_ok() && all_heard && !self.peers.reachability.is_catching_up()
    }

    fn keepers(&self) -> Keepers<'_> {
        Keepers { config: self.config, members: self.members, peers: self.peers }
    }

    /// Takes out the keys that this datacenter has to end now.
    pub(in crate::replica) fn take_due(&mut self) -> Vec<Key> {
        let now = self.now.mono;
        if self.data.expiry.next_deadline(self.keepers()).is_none_or(|at| at > now) {
            return Vec::new();
        }
        if !self.may_end_keys() {
            self.data.expiry.retry_at = now + self.config.agreed.heartbeat;
            return Vec::new();
        }
        let mut keys = self.take_done();
        let mut looked_at = keys.len();
        while looked_at < KEYS_PER_STEP
            && let Some((key, at)) = self.data.expiry.pop_due(now)
        {
            looked_at += 1;
            self.see_to(key, at, None, &mut keys);
        }
        let away: Vec<DcId> = self.data.expiry.left_to_us(self.keepers()).collect();
        for dc in away {
            let before = now - self.config.agreed.peer_timeout;
            while looked_at < KEYS_PER_STEP
                && let Some((key, at)) = self.data.expiry.pop_left(dc, before)
            {
                looked_at += 1;
                self.see_to(key, at, Some(dc), &mut keys);
            }
        }
        assert!(keys.len() <= KEYS_PER_STEP, "one step ends {} keys", keys.len());
        keys
    }

    /// A key has expired: adds it to `keys`, or leaves it to the datacenter whose lifetime stands, unless
    /// that is `instead_of`.
    fn see_to(&mut self, key: Key, at: Instant, instead_of: Option<DcId>, keys: &mut Vec<Key>) {
        debug_assert!(at <= self.now.mono, "{key} expires at {at:?}");
        let Some(keeper) = self.data.store.standing_lifetime(&key).map(|lifetime| lifetime.dot.dc) else {
            return;
        };
        if keeper == self.config.dc || Some(keeper) == instead_of {
            keys.push(key);
        } else {
            self.data.expiry.leave(key, at, keeper);
        }
    }

    /// Takes the done keys whose last write was made here and is stable.
    fn take_done(&mut self) -> Vec<Key> {
        let stable = self.keepers().stable();
        let mut keys = Vec::new();
        for _ in 0..KEYS_PER_STEP {
            let Some((seq, key)) = self.data.expiry.done.pop_first() else { break };
            if seq > stable {
                self.data.expiry.done.insert((seq, key));
                break;
            }
            // A greater value may have been written meanwhile. If that is done, too, it has an item of its
            // own.
            if self.data.store.done_by(&key).is_some_and(|dot| dot.dc == self.config.dc && dot.seq == seq) {
                keys.push(key);
            }
        }
        keys
    }
}

/// Returns the time that is left of a wish that was read from disk or received in a state.
fn time_left(lifetime: &Lifetime, me: DcId, clock_ms: u64) -> Duration {
    match lifetime.dot.dc == me {
        true => {
            Duration::from_millis(lifetime.ends_at().saturating_sub(clock_ms)).min(lifetime.ttl.duration())
        }
        false => lifetime.ttl.duration(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_deadline_however_often_it_is_prolonged() {
        let mut expiry = Expiry::new(7);
        let key = Key::new(b"b", b"k").expect("it is a key");
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        for ms in 0..100_000 {
            expiry.live(&key, at(ms));
        }
        expiry.live(&key, at(5));
        assert_eq!((expiry.rows.len(), expiry.due.len()), (1, 1));
        assert_eq!(expiry.pop_due(at(99_998)), None);
        assert_eq!(expiry.pop_due(at(99_999)), Some((key, at(99_999))));
        assert_eq!((expiry.len(), expiry.due.len()), (0, 0));
    }

    #[test]
    fn what_is_left_to_somebody_is_forgotten_with_the_rest() {
        let mut expiry = Expiry::new(7);
        let (key, dc) = (Key::new(b"b", b"k").expect("it is a key"), DcId::new(1).expect("a small id"));
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        expiry.leave(key.clone(), at(5), dc);
        assert_eq!((expiry.due.len(), expiry.len()), (0, 1));
        assert_eq!(expiry.pop_left(dc, at(4)), None);
        // Another commit asks for the key to live.
        expiry.live(&key, at(2));
        assert!(expiry.left_to.is_empty());
        assert_eq!(
            expiry.pop_due(at(5)),
            Some((key.clone(), at(5))),
            "not sooner than it was to be over before"
        );
        expiry.leave(key.clone(), at(5), dc);
        assert_eq!(expiry.forget(&key), Some(at(5)));
        assert!(expiry.left_to.is_empty());
        assert_eq!(expiry.len(), 0);
    }
}
