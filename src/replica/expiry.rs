//! Expiring keys: a key ends when its time is over or its value is done (`docs/algorithm.md#83-expiry`).
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
//! Two datacenters that cannot talk may log the same end, which is harmless ([`Action::Expired`]). An end
//! that has not seen a prolongation is harmful, because the end wins. So a datacenter that restarted, or
//! hears from a peer again, catches up before it ends keys.
//!
//! After a restart times are counted anew. A datacenter knows by its own clock when it made its own wishes;
//! the time of the wishes of others begins again. So a key lives longer than asked rather than shorter.

use crate::base::bugs::Bug;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slab::Slab;

use super::Replica;
use crate::base::deadlines::Deadlines;
use crate::base::keyed_map::KeyedMap;
use crate::base::time::Instant;
use crate::causal_log::{Action, Change, Commit, Op};
use crate::store_state::{Lifetime, Touched};
use geolock_api::keys::Key;
use geolock_api::names::{DcId, Position};

/// Most keys that one commit ends and that one step examines.
const KEYS_PER_STEP: usize = 1_000;

/// The expiring keys and their times.
pub(super) struct Expiry {
    rows: Slab<Row>,
    by_key: KeyedMap<Key, u32>,
    /// Keys whose time is running.
    due: Deadlines<u32>,
    /// Keys whose time is over, by the datacenter that is to end them and the time at which it was over.
    left_to: BTreeMap<DcId, Deadlines<u32>>,
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

impl Expiry {
    pub fn new(hash_seed: u64) -> Expiry {
        Expiry {
            rows: Slab::new(),
            by_key: KeyedMap::with_seed(hash_seed),
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
        let row = self.insert(key.clone(), until, None);
        self.due.insert(until, row);
    }

    /// The key has expired, and another datacenter is to end it.
    fn leave(&mut self, key: Key, at: Instant, to: DcId) {
        let row = self.insert(key, at, Some(to));
        self.left_to.entry(to).or_default().insert(at, row);
    }

    fn insert(&mut self, key: Key, at: Instant, left_to: Option<DcId>) -> u32 {
        let row = self.rows.insert(Row { key: key.clone(), at, left_to }) as u32;
        let before = self.by_key.insert(key, row);
        assert_eq!(before, None, "a key is counted once");
        row
    }

    /// Removes the key. Returns the time at which it was to expire.
    fn forget(&mut self, key: &Key) -> Option<Instant> {
        let index = self.by_key.remove(key)?;
        let row = self.rows.remove(index as usize);
        match row.left_to {
            None => self.due.remove(row.at, index),
            Some(dc) => self.left(dc, |keys| keys.remove(row.at, index)),
        }
        Some(row.at)
    }

    fn left<T: Default>(&mut self, to: DcId, change: impl FnOnce(&mut Deadlines<u32>) -> T) -> T {
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
        Some(self.popped(row))
    }

    /// Removes and returns a key that `dc` was to end and that had expired by `before`.
    fn pop_left(&mut self, dc: DcId, before: Instant) -> Option<(Key, Instant)> {
        let row = self.left(dc, |keys| keys.pop_expired(before))?;
        Some(self.popped(row))
    }

    fn popped(&mut self, row: u32) -> (Key, Instant) {
        let Row { key, at, .. } = self.rows.remove(row as usize);
        self.by_key.remove(&key);
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
        self.by_key.clear();
        self.due = Deadlines::default();
        self.left_to.clear();
        self.done.clear();
    }

    /// Asserts that an expiring key is registered.
    pub fn check(&self, key: &Key) {
        assert!(self.by_key.contains_key(key), "{key} lives only for some time, and nobody counts it");
    }
}

impl Replica {
    /// Everything was read from disk: registers all expiring keys, and starts their times.
    pub(super) fn restart_expiry(&mut self) {
        if self.position > Position::default() {
            self.expiry.reachability_known_at = self.now.mono + self.config.agreed.peer_timeout;
        }
        let mut keys: Vec<Key> = self.store.expiring_keys().map(|(key, _)| key.clone()).collect();
        keys.extend(self.store.done_keys().cloned());
        self.count_anew(keys);
    }

    /// The contents of the store did not come from commits that were applied here one by one, so all times
    /// begin anew. `keys` contains all keys that expire or are done.
    pub(super) fn count_anew(&mut self, keys: Vec<Key>) {
        self.expiry.forget_all();
        let (me, now, clock_ms) = (self.config.dc, self.now.mono, self.clock.physical_millis());
        for key in keys {
            let lifetimes = self.store.lifetimes(&key).iter();
            if let Some(left) = lifetimes.map(|lifetime| time_left(lifetime, me, clock_ms)).max() {
                self.expiry.live(&key, now + left);
            }
            if let Some(dot) = self.store.done_by(&key).filter(|dot| dot.dc == me) {
                self.expiry.done.insert((dot.seq, key));
            }
        }
    }

    /// Returns when this datacenter has to end the next key.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        if self.expiry.is_empty() { None } else { self.next_of_some() }
    }

    fn next_of_some(&self) -> Option<Instant> {
        let stable = self.stability.stable().get(self.config.dc);
        let done = self.expiry.done.first().filter(|(seq, _)| *seq <= stable).map(|_| Instant::ZERO);
        let patience = self.config.agreed.peer_timeout;
        let left = self.left_to_us().filter_map(|dc| self.expiry.left_to.get(&dc)?.next()).min();
        let next =
            [self.expiry.due.next(), left.map(|at| at + patience), done].into_iter().flatten().min()?;
        Some(next.max(self.expiry.retry_at))
    }

    /// Returns the unreachable datacenters whose keys this datacenter ends: it is the lowest reachable
    /// member.
    fn left_to_us(&self) -> impl Iterator<Item = DcId> {
        let away = self.reachability.unreachable();
        let here = self.members.all().difference(away).iter().next();
        let keepers = (here == Some(self.config.dc)).then(|| self.expiry.left_to.keys().copied());
        keepers.into_iter().flatten().filter(move |dc| away.contains(*dc))
    }

    /// Returns true if this datacenter may end keys: it has caught up with all members that live, and has
    /// waited for the rest.
    fn may_end_keys(&self) -> bool {
        let all_heard =
            self.reachability.unreachable().is_empty() || self.now.mono >= self.expiry.reachability_known_at;
        self.can_commit().is_ok() && all_heard && !self.reachability.is_catching_up()
    }

    /// Ends the keys that are to end now.
    pub(super) fn expire_keys(&mut self) {
        let now = self.now.mono;
        if self.next_expiry().is_none_or(|at| at > now) {
            return;
        }
        if !self.may_end_keys() {
            self.expiry.retry_at = now + self.config.agreed.heartbeat;
            return;
        }
        let mut keys = self.take_done();
        let mut looked_at = keys.len();
        while looked_at < KEYS_PER_STEP
            && let Some((key, at)) = self.expiry.pop_due(now)
        {
            looked_at += 1;
            self.see_to(key, at, None, &mut keys);
        }
        let away: Vec<DcId> = self.left_to_us().collect();
        for dc in away {
            let before = now - self.config.agreed.peer_timeout;
            while looked_at < KEYS_PER_STEP
                && let Some((key, at)) = self.expiry.pop_left(dc, before)
            {
                looked_at += 1;
                self.see_to(key, at, Some(dc), &mut keys);
            }
        }
        self.end_keys(keys);
    }

    /// A key has expired: adds it to `keys`, or leaves it to the datacenter whose lifetime stands, unless
    /// that is `instead_of`.
    fn see_to(&mut self, key: Key, at: Instant, instead_of: Option<DcId>, keys: &mut Vec<Key>) {
        let Some(keeper) = self.store.standing_lifetime(&key).map(|lifetime| lifetime.dot.dc) else { return };
        if keeper == self.config.dc || Some(keeper) == instead_of {
            keys.push(key);
        } else {
            self.expiry.leave(key, at, keeper);
        }
    }

    /// Takes the done keys whose last write was made here and is stable.
    fn take_done(&mut self) -> Vec<Key> {
        let stable = self.stability.stable().get(self.config.dc);
        let mut keys = Vec::new();
        for _ in 0..KEYS_PER_STEP {
            let Some((seq, key)) = self.expiry.done.pop_first() else { break };
            if seq > stable {
                self.expiry.done.insert((seq, key));
                break;
            }
            // A greater value may have been written meanwhile. If that is done, too, it has an item of its
            // own.
            if self.store.done_by(&key).is_some_and(|dot| dot.dc == self.config.dc && dot.seq == seq) {
                keys.push(key);
            }
        }
        keys
    }

    fn end_keys(&mut self, mut keys: Vec<Key>) {
        // A key may be done and expired.
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return;
        }
        self.counts.keys_expired += keys.len() as u64;
        let seen = self.log.applied().clone();
        let action = Action::Expired;
        let action = if self.faulty(Bug::ExpiryByRemoval) { Action::Remove } else { action };
        let changes = keys.into_iter().map(|key| Change { key, action: action.clone() }).collect();
        self.make_entry(vec![Op::Commit(Commit { seen, client: None, changes })]);
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
        assert_eq!((expiry.rows.len(), expiry.by_key.len(), expiry.due.len()), (1, 1, 1));
        assert_eq!(expiry.pop_due(at(99_998)), None);
        assert_eq!(expiry.pop_due(at(99_999)), Some((key, at(99_999))));
        assert_eq!((expiry.len(), expiry.by_key.len(), expiry.due.len()), (0, 0, 0));
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
