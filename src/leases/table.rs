//! All leases of a datacenter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use slab::Slab;

use super::finished::FinishedKeys;
use super::lease::{Grace, Lease, LeaseIndex, OnDisconnect, Proof, SessionId};
use super::requests::{Keys, Requests};
use crate::deadlines::Deadlines;
use crate::names::{DcId, LeaseId, Secret};
use crate::time::Instant;

/// Times to live that a lease has at most until it is reclaimed, counted from the restart.
const GRACES: u32 = 2;

/// See the module.
pub(crate) struct Leases {
    dc: DcId,
    hash_seed: u64,
    rows: Slab<Lease>,
    by_id: HashMap<LeaseId, LeaseIndex, FxBuildHasher>,
    by_session: BTreeMap<SessionId, BTreeSet<LeaseIndex>>,
    expiries: Deadlines<LeaseIndex>,
    graces: Deadlines<LeaseIndex>,
}

/// Why a lease cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseError {
    Unknown(LeaseId),
    Foreign { lease: LeaseId, dc: DcId },
    WrongSecret(LeaseId),
    NotAttached(LeaseId),
}

impl Leases {
    /// None; `hash_seed` keeps clients from choosing keys that collide.
    pub fn new(dc: DcId, hash_seed: u64) -> Leases {
        Leases {
            dc,
            hash_seed,
            rows: Slab::new(),
            by_id: HashMap::default(),
            by_session: BTreeMap::new(),
            expiries: Deadlines::default(),
            graces: Deadlines::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn get(&self, lease: LeaseIndex) -> &Lease {
        &self.rows[lease.0 as usize]
    }

    pub fn get_mut(&mut self, lease: LeaseIndex) -> &mut Lease {
        &mut self.rows[lease.0 as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.rows.iter().map(|(_, lease)| lease)
    }

    pub fn find(&self, id: LeaseId) -> Option<LeaseIndex> {
        self.by_id.get(&id).copied()
    }

    /// The session that it goes with, if it is there and has one.
    pub fn session_of(&self, id: LeaseId) -> Option<SessionId> {
        self.find(id).and_then(|index| self.get(index).session)
    }

    /// A new lease, or one read from the journal.
    pub fn open(
        &mut self,
        id: LeaseId,
        secret: Secret,
        ttl: Duration,
        on_disconnect: OnDisconnect,
        now: Instant,
    ) -> LeaseIndex {
        let expires = now + ttl;
        let lease = Lease {
            id,
            secret,
            ttl,
            on_disconnect,
            session: None,
            expires,
            scheduled: expires,
            grace: None,
            unaccounted: false,
            requests: Requests::default(),
            waiting: 0,
            names: 0,
            keys: Keys::new(self.hash_seed),
            finished: FinishedKeys::default(),
        };
        let index = LeaseIndex(self.rows.insert(lease) as u32);
        let before = self.by_id.insert(id, index);
        assert!(before.is_none(), "lease {id} is opened twice");
        self.expiries.insert(expires, index);
        index
    }

    /// The lease of a call, if the client may use it.
    #[inline]
    pub fn authorise(&self, id: LeaseId, proof: Proof, session: SessionId) -> Result<LeaseIndex, LeaseError> {
        let Some(index) = self.find(id) else { return Err(self.unknown(id)) };
        let lease = self.get(index);
        match proof {
            Proof::Attached if lease.session == Some(session) => Ok(index),
            Proof::Attached => Err(LeaseError::NotAttached(id)),
            Proof::Secret(secret) if lease.secret.matches(&secret) => Ok(index),
            Proof::Secret(_) => Err(LeaseError::WrongSecret(id)),
        }
    }

    #[cold]
    fn unknown(&self, id: LeaseId) -> LeaseError {
        match id.dc() {
            Some(dc) if dc != self.dc && id.n() > 0 => LeaseError::Foreign { lease: id, dc },
            _ => LeaseError::Unknown(id),
        }
    }

    /// From now on the lease goes with this session.
    pub fn attach(&mut self, index: LeaseIndex, session: SessionId) {
        self.detach(index);
        self.get_mut(index).session = Some(session);
        self.by_session.entry(session).or_default().insert(index);
    }

    fn detach(&mut self, index: LeaseIndex) {
        let Some(session) = self.get_mut(index).session.take() else { return };
        if let Some(leases) = self.by_session.get_mut(&session) {
            leases.remove(&index);
            if leases.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// A session is closed; answers the leases that end with it.
    pub fn close_session(&mut self, session: SessionId) -> Vec<LeaseIndex> {
        let leases = self.by_session.remove(&session).unwrap_or_default();
        for index in &leases {
            self.get_mut(*index).session = None;
        }
        leases.into_iter().filter(|index| self.get(*index).on_disconnect == OnDisconnect::Release).collect()
    }

    /// Its client counts on it for another time to live, so the grace period waits for it as long; but a client that renews
    /// and never reclaims, although that `can_be_judged`, does not stop others for longer than [`Leases::start_grace`] says.
    /// Answers for how long the lease is good now: less than its time to live when that bound comes first.
    pub fn renew(&mut self, index: LeaseIndex, can_be_judged: bool, now: Instant) -> Duration {
        let lease = &mut self.rows[index.0 as usize];
        let mut expires = now + lease.ttl;
        if let Some(grace) = &mut lease.grace {
            if !can_be_judged {
                grace.latest = grace.latest.max(expires);
            }
            expires = expires.min(grace.latest);
            self.graces.remove(grace.ends, index);
            grace.ends = expires;
            self.graces.insert(expires, index);
        }
        lease.expires = expires;
        expires.saturating_since(now)
    }

    /// Forgets a lease that has nothing any more.
    pub fn end(&mut self, index: LeaseIndex) {
        self.detach(index);
        let lease = self.rows.remove(index.0 as usize);
        assert!(lease.requests.is_empty(), "lease {} ends after its requests", lease.id);
        self.by_id.remove(&lease.id);
        self.expiries.remove(lease.scheduled, index);
        if let Some(grace) = lease.grace {
            self.graces.remove(grace.ends, index);
        }
    }

    /// The next lease whose time to live is over.
    pub fn next_expired(&mut self, now: Instant) -> Option<LeaseIndex> {
        while let Some(index) = self.expiries.pop_expired(now) {
            let lease = self.get_mut(index);
            lease.scheduled = lease.expires;
            let (expires, expired) = (lease.expires, lease.expires <= now);
            self.expiries.insert(expires, index);
            if expired {
                return Some(index);
            }
        }
        None
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.expiries.next_or_never()
    }

    /// When the grace period has waited long enough for the next lease.
    pub fn next_grace(&self) -> Option<Instant> {
        self.graces.next()
    }

    /// After a restart: no lock is granted and no part leaves until every lease has said what it holds or had its full
    /// time to live to do so, from now and from when it was renewed last; in all for no longer than `most`, nor than
    /// [`GRACES`] times to live.
    pub fn start_grace(&mut self, most: Duration, now: Instant) {
        for (index, lease) in &mut self.rows {
            let ends = now + lease.ttl;
            let latest = now + (lease.ttl * GRACES).min(most).max(lease.ttl);
            lease.grace = Some(Grace { ends, latest });
            lease.unaccounted = true;
            self.graces.insert(ends, LeaseIndex(index as u32));
        }
    }

    /// When it has waited for all that it waits for now.
    pub fn last_grace(&self) -> Option<Instant> {
        self.graces.last()
    }

    /// How many leases the grace period waits for.
    pub fn in_grace(&self) -> usize {
        self.graces.len()
    }

    /// Ends a lease's part of the grace period. Answers whether it had one.
    pub fn end_grace(&mut self, index: LeaseIndex) -> bool {
        match self.get_mut(index).grace.take() {
            Some(grace) => {
                self.graces.remove(grace.ends, index);
                true
            }
            None => false,
        }
    }

    /// Whether the grace period waits for this lease.
    pub fn is_in_grace(&self, index: LeaseIndex) -> bool {
        self.get(index).grace.is_some()
    }

    /// Gives up waiting for those that had their time.
    pub fn expire_graces(&mut self, now: Instant) {
        while let Some(index) = self.graces.pop_expired(now) {
            self.get_mut(index).grace = None;
        }
    }
}
