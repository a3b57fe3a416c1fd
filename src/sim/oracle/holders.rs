//! The holders in the whole cluster, checked online.

use std::collections::BTreeMap;
use std::time::Duration;

use crdts::CvRDT;

use crate::base::rng::Rng;
use crate::crdt::VersionVector;
use crate::replica::call::{Grant, IdempotencyKey};
use crate::replica::force_release::ForceReleased;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Broken, Interval};
use crate::sim::queue::Moment;
use geolock_api::names::{DcId, FencingToken, LockName, Mode, RequestId};

/// One request of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HolderId {
    pub client: usize,
    pub key: IdempotencyKey,
}

/// A client that begins to hold.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub id: HolderId,
    pub dc: DcId,
    pub wants: Vec<(LockName, Mode)>,
    pub grant: Grant,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    id: HolderId,
    dc: DcId,
    mode: Mode,
    request: RequestId,
    token: FencingToken,
    since: Moment,
}

/// One lock.
#[derive(Debug, Default)]
struct Lock {
    holdings: Vec<Holding>,
    last_dc: Option<DcId>,
    /// Times of the last grant and the last release, by datacenter, as clients see them.
    last_use: BTreeMap<DcId, (Moment, Moment)>,
    exclusive: Past,
    shared: Past,
}

/// The earlier grants of a mode, summed up.
#[derive(Debug, Default)]
struct Past {
    token: Option<FencingToken>,
    /// By the datacenter that granted.
    snapshots: BTreeMap<DcId, VersionVector>,
}

impl Past {
    fn add(&mut self, dc: DcId, grant: &Grant) {
        self.token = self.token.max(Some(grant.token));
        self.snapshots.entry(dc).or_default().merge(VersionVector::clone(&grant.snapshot));
    }

    fn allows(&self, lock: &LockName, grant: &Grant) -> Result<(), Broken> {
        if let Some(before) = self.token.filter(|before| *before >= grant.token) {
            let what =
                format!("{lock} was granted to {} with {:?} after {before:?}", grant.request, grant.token);
            return Err(Broken::new(FailureKind::TokenOrder, what));
        }
        // Commits under the lock are compared elsewhere; this is more than disks promise that lost nothing.
        if let Some((dc, before)) = self.snapshots.iter().find(|(_, before)| !grant.snapshot.covers(before)) {
            let what = format!(
                "{lock} was granted to {} with snapshot {}, before it by {dc} with {before}",
                grant.request, grant.snapshot
            );
            return Err(Broken::new(FailureKind::SnapshotOrder, what));
        }
        Ok(())
    }
}

/// All holders.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    locks: BTreeMap<LockName, Lock>,
    held: BTreeMap<HolderId, Vec<LockName>>,
    /// The owner of each request id.
    requests: BTreeMap<RequestId, HolderId>,
    /// Holds that are over, for [`super::verify`].
    finished: Vec<Interval>,
    pub grants: u64,
    pub hand_offs: u64,
    forgot_tokens: bool,
}

impl Holders {
    pub fn begin(&mut self, now: Moment, holder: &Holder) -> Result<(), Broken> {
        self.grants += 1;
        let request = holder.grant.request;
        let first = *self.requests.entry(request).or_insert(holder.id);
        if first != holder.id {
            let what = format!("{request} is a request of {first:?} and of {:?}", holder.id);
            return Err(Broken::new(FailureKind::HandedOutAgain, what));
        }
        self.held.insert(holder.id, holder.wants.iter().map(|(name, _)| name.clone()).collect());
        for (name, mode) in &holder.wants {
            if !self.locks.contains_key(name) {
                self.locks.insert(name.clone(), Lock::default());
            }
            let lock = self.locks.get_mut(name).expect("it was inserted above");
            self.hand_offs += u64::from(lock.last_dc.is_some_and(|last| last != holder.dc));
            lock.begin(now, name, *mode, holder)?;
        }
        Ok(())
    }

    /// The client does not hold it any more.
    pub fn end(&mut self, now: Moment, id: HolderId) {
        self.end_since(now, now, id);
    }

    /// A force release, appended at `since`, is durable now: the victim holds the lock no longer.
    pub fn force_out(&mut self, now: Moment, since: Moment, dc: DcId, forced: &ForceReleased) {
        let Some(lock) = self.locks.get_mut(&forced.lock) else { return };
        let past = if forced.mode == Mode::Exclusive { &mut lock.exclusive } else { &mut lock.shared };
        past.token = past.token.max(Some(forced.token));
        let victim = lock.holdings.iter().find(|h| h.dc == dc && h.token == forced.token).map(|h| h.id);
        if let Some(id) = victim {
            self.end_since(now, since, id);
        }
    }

    /// The client holds a lock shared from now on, no more exclusively: others may share it, and none may
    /// hold it exclusively before this hold ends.
    pub fn downgrade(&mut self, now: Moment, id: HolderId, name: &LockName) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        let Some(holding) = lock.holdings.iter_mut().find(|h| h.id == id) else { return };
        let Holding { mode, token, since, .. } = *holding;
        (holding.mode, holding.since) = (Mode::Shared, now);
        self.finished.push(Interval { lock: name.clone(), mode, token, from: since, until: now });
    }

    /// Returns a held lock, and the datacenter of a holder.
    pub fn some_held(&self, rng: &mut Rng) -> Option<(LockName, DcId)> {
        let held = self.locks.iter().filter_map(|(name, lock)| Some((name, lock.holdings.first()?.dc)));
        let held: Vec<(&LockName, DcId)> = held.collect();
        (!held.is_empty()).then(|| *rng.pick(&held)).map(|(name, dc)| (name.clone(), dc))
    }

    /// The same; its server counts the lock as unused from `unused` on.
    fn end_since(&mut self, now: Moment, unused: Moment, id: HolderId) {
        for name in self.held.remove(&id).unwrap_or_default() {
            let Some(lock) = self.locks.get_mut(&name) else { continue };
            if let Some(index) = lock.holdings.iter().position(|h| h.id == id) {
                let Holding { dc, mode, token, since, .. } = lock.holdings.swap_remove(index);
                let last = lock.last_use.entry(dc).or_insert((since, now));
                *last = (last.0.max(since), unused);
                self.finished.push(Interval { lock: name, mode, token, from: since, until: now });
            }
        }
    }

    /// Entries of `dc` after `seq` are lost: no later grant has to cover them.
    pub fn forget_entries(&mut self, dc: DcId, seq: u64) {
        let pasts = self.locks.values_mut().flat_map(|lock| [&mut lock.exclusive, &mut lock.shared]);
        let snapshots = pasts.flat_map(|past| past.snapshots.values_mut());
        snapshots.for_each(|snapshot| forget_after(snapshot, dc, seq));
    }

    /// A disk of `dc` knows of no more than `left`: later grants need not cover more than that of this
    /// datacenter's grants.
    pub fn forget_unseen(&mut self, dc: DcId, left: &VersionVector) {
        let pasts = self.locks.values_mut().flat_map(|lock| [&mut lock.exclusive, &mut lock.shared]);
        let snapshots = pasts.filter_map(|past| past.snapshots.get_mut(&dc));
        snapshots.for_each(|snapshot| *snapshot = snapshot.meet(left));
    }

    /// No node knows any more which tokens were handed out.
    pub fn forget_tokens(&mut self) {
        self.forgot_tokens = true;
        for lock in self.locks.values_mut() {
            (lock.exclusive.token, lock.shared.token) = (None, None);
        }
    }

    /// Returns for how long no client in `dc` has had the lock, as far as a server can know that runs since
    /// `started`.
    pub fn idle_for(&self, lock: &LockName, dc: DcId, started: Moment, now: Moment) -> Duration {
        let lock = self.locks.get(lock);
        if lock.is_some_and(|lock| lock.holdings.iter().any(|holding| holding.dc == dc)) {
            return Duration::ZERO;
        }
        match lock.and_then(|lock| lock.last_use.get(&dc)) {
            Some((granted, released)) if *granted >= started => now.since(*released),
            _ => now.since(started),
        }
    }

    /// Returns true if any client anywhere holds the lock in conflict with `mode`.
    pub fn conflicts(&self, lock: &LockName, mode: Mode) -> bool {
        self.locks.get(lock).is_some_and(|l| l.holdings.iter().any(|h| h.mode.conflicts_with(mode)))
    }

    /// Returns all holds; those that are not over end now. Empty if the tokens that were handed out are not
    /// known any more.
    pub fn into_history(mut self, now: Moment) -> Vec<Interval> {
        if self.forgot_tokens {
            return Vec::new();
        }
        let open: Vec<_> = self
            .locks
            .iter()
            .flat_map(|(lock, state)| {
                state.holdings.iter().map(move |h| Interval {
                    lock: lock.clone(),
                    mode: h.mode,
                    token: h.token,
                    from: h.since,
                    until: now,
                })
            })
            .collect();
        self.finished.extend(open);
        self.finished
    }
}

impl Lock {
    fn begin(&mut self, now: Moment, name: &LockName, mode: Mode, holder: &Holder) -> Result<(), Broken> {
        let Holder { id, dc, grant, .. } = holder;
        if let Some(other) = self.holdings.iter().find(|h| h.mode.conflicts_with(mode)) {
            let what = format!(
                "{name} is held {} by client {} as {} since {} with {:?}; {now}: granted {mode} to client {} of {dc} as {} with {:?}",
                other.mode,
                other.id.client,
                other.request,
                other.since,
                other.token,
                id.client,
                grant.request,
                grant.token
            );
            return Err(Broken::new(FailureKind::ConflictingHolders, what));
        }
        self.exclusive.allows(name, grant)?;
        if mode == Mode::Exclusive {
            self.shared.allows(name, grant)?;
        }
        match mode {
            Mode::Exclusive => self.exclusive.add(*dc, grant),
            Mode::Shared => self.shared.add(*dc, grant),
        }
        let Grant { request, token, .. } = *grant;
        self.holdings.push(Holding { id: *id, dc: *dc, mode, request, token, since: now });
        self.last_dc = Some(*dc);
        Ok(())
    }
}

/// Removes entries of `dc` after `seq` from a vector.
fn forget_after(vector: &mut VersionVector, dc: DcId, seq: u64) {
    if vector.get(dc) > seq {
        let kept = |(of, last): (DcId, u64)| (of, if of == dc { seq } else { last });
        *vector = vector.iter().map(kept).filter(|(_, last)| *last > 0).collect();
    }
}

/// Builds a grant, for tests of the oracle.
#[cfg(test)]
pub(super) fn test_grant(n: u64, token: u64, snapshot: &[(u8, u64)]) -> Grant {
    let dc = |id| DcId::new(id).expect("a small id");
    let snapshot: VersionVector = snapshot.iter().map(|&(id, seq)| (dc(id), seq)).collect();
    Grant {
        request: RequestId { dc: dc(0), n },
        token: FencingToken(token),
        snapshot: std::sync::Arc::new(snapshot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> LockName {
        LockName::try_from(name).expect("a test name is valid")
    }

    fn holder(client: usize, mode: Mode, grant: Grant) -> Holder {
        Holder {
            id: HolderId { client, key: 1 },
            dc: DcId::new(client as u8).expect("a small id"),
            wants: vec![(lock("a"), mode)],
            grant,
        }
    }

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn kind(result: Result<(), Broken>) -> Option<FailureKind> {
        result.err().map(|broken| broken.kind)
    }

    #[test]
    fn readers_share_and_a_writer_follows() {
        let mut holders = Holders::default();
        let first = holder(0, Mode::Shared, test_grant(1, 1, &[]));
        let second = holder(1, Mode::Shared, test_grant(2, 1, &[]));
        assert_eq!(holders.begin(at(0), &first), Ok(()));
        assert_eq!(holders.begin(at(1), &second), Ok(()));
        holders.end(at(2), first.id);
        holders.end(at(2), second.id);
        assert_eq!(holders.begin(at(3), &holder(2, Mode::Exclusive, test_grant(3, 2, &[]))), Ok(()));
        assert_eq!((holders.grants, holders.hand_offs), (3, 2));
        assert_eq!(holders.into_history(at(9)).len(), 3);
    }

    #[test]
    fn a_writer_beside_a_reader_is_caught() {
        let mut holders = Holders::default();
        holders.begin(at(0), &holder(0, Mode::Shared, test_grant(1, 1, &[]))).expect("nobody holds it");
        let second = holders.begin(at(1), &holder(1, Mode::Exclusive, test_grant(2, 2, &[])));
        assert_eq!(kind(second), Some(FailureKind::ConflictingHolders));
    }

    #[test]
    fn a_token_that_does_not_grow_is_caught() {
        let mut holders = Holders::default();
        let first = holder(0, Mode::Exclusive, test_grant(1, 5, &[]));
        holders.begin(at(0), &first).expect("nobody holds it");
        holders.end(at(1), first.id);
        let second = holders.begin(at(2), &holder(1, Mode::Shared, test_grant(2, 5, &[])));
        assert_eq!(kind(second), Some(FailureKind::TokenOrder));
    }

    #[test]
    fn a_snapshot_that_misses_an_earlier_one_is_caught() {
        let mut holders = Holders::default();
        let first = holder(0, Mode::Exclusive, test_grant(1, 5, &[(0, 3)]));
        holders.begin(at(0), &first).expect("nobody holds it");
        holders.end(at(1), first.id);
        let second = holders.begin(at(2), &holder(1, Mode::Exclusive, test_grant(2, 6, &[(1, 9)])));
        assert_eq!(kind(second), Some(FailureKind::SnapshotOrder));
    }

    #[test]
    fn a_request_number_of_two_clients_is_caught() {
        let mut holders = Holders::default();
        let first = holder(0, Mode::Shared, test_grant(1, 1, &[]));
        holders.begin(at(0), &first).expect("nobody holds it");
        let second = holders.begin(at(2), &holder(1, Mode::Shared, test_grant(1, 2, &[])));
        assert_eq!(kind(second), Some(FailureKind::HandedOutAgain));
    }
}
