//! All leases of a datacenter.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::finished::FinishedKeys;
use super::lease::{ClientId, Grace, Lease, LeaseIndex, LeaseRecord, OnDisconnect, Proof, SessionId};
use super::names_of_clients::NamesOfClients;
use super::reader::Reader;
use super::requests::{Keys, Requests};
use crate::base::deadlines::Deadlines;
use crate::base::tables::{Index, RowIndex as _, Rows, short_hash};
use crate::base::time::Instant;
use crate::base::work;
use geolock_api::names::{DcId, LeaseId};

/// Maximum time until a lease is reclaimed, counted from the restart, in times to live.
const GRACES: u32 = 2;

/// All leases of a datacenter.
pub(crate) struct Leases {
    dc: DcId,
    hash_seed: u64,
    pub(super) rows: Rows<Lease, LeaseIndex>,
    by_id: Index,
    pub(super) clients: NamesOfClients,
    pub(super) by_session: BTreeMap<SessionId, BTreeSet<LeaseIndex>>,
    pub(super) expiries: Deadlines<LeaseIndex>,
    pub(super) graces: Deadlines<LeaseIndex>,
    pub(super) reader: Option<Reader>,
}

/// A reason for which a lease cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseError {
    Unknown(LeaseId),
    Foreign { lease: LeaseId, dc: DcId },
    WrongSecret(LeaseId),
    NotAttached(LeaseId),
}

impl Leases {
    /// Returns an empty table. `hash_seed` keeps clients from choosing keys that collide.
    pub fn new(dc: DcId, hash_seed: u64) -> Leases {
        Leases {
            dc,
            hash_seed,
            rows: Rows::new(),
            by_id: Index::default(),
            clients: NamesOfClients::new(hash_seed),
            by_session: BTreeMap::new(),
            expiries: Deadlines::default(),
            graces: Deadlines::default(),
            reader: None,
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn get(&self, lease: LeaseIndex) -> &Lease {
        &self.rows[lease]
    }

    pub fn get_mut(&mut self, lease: LeaseIndex) -> &mut Lease {
        &mut self.rows[lease]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.rows.iter().map(|(_, lease)| lease)
    }

    pub fn find(&self, id: LeaseId) -> Option<LeaseIndex> {
        self.by_id.find(hash_of(id), |row| self.rows[LeaseIndex(row)].id == id).map(LeaseIndex)
    }

    /// Returns the session of a lease, if the lease exists and is attached.
    pub fn session_of(&self, id: LeaseId) -> Option<SessionId> {
        self.find(id).and_then(|index| self.get(index).session)
    }

    /// Inserts a new lease of a client, or one read from the journal, whose client is unknown.
    pub fn open(&mut self, record: LeaseRecord, client: ClientId, now: Instant) -> LeaseIndex {
        let LeaseRecord { lease: id, secret, ttl, on_disconnect } = record;
        let expires = now + ttl;
        let lease = Lease {
            id,
            secret,
            ttl,
            on_disconnect,
            session: None,
            client: self.clients.join(client, 0),
            expires,
            scheduled: expires,
            grace: None,
            unaccounted: false,
            is_told: true,
            requests: Requests::default(),
            waiting: 0,
            names: 0,
            keys: Keys::new(self.hash_seed),
            finished: FinishedKeys::default(),
        };
        assert!(self.find(id).is_none(), "lease {id} is opened twice");
        let index = self.rows.insert(lease);
        self.by_id.insert(hash_of(id), index.0);
        self.expiries.insert(expires, index);
        index
    }

    /// Returns the lease of a call, if the client may use it. A lease whose time is over is unknown, although
    /// it may not be ended yet: one step ends only a bounded number of leases.
    #[inline]
    pub fn authorise(
        &self,
        id: LeaseId,
        proof: Proof,
        session: SessionId,
        now: Instant,
    ) -> Result<LeaseIndex, LeaseError> {
        let Some(index) = self.find(id) else { return Err(self.unknown(id)) };
        let lease = self.get(index);
        match proof {
            _ if lease.expires <= now => Err(self.unknown(id)),
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

    /// Attaches the lease to this session, and to no other.
    pub fn attach(&mut self, index: LeaseIndex, session: SessionId) {
        self.detach(index);
        self.get_mut(index).session = Some(session);
        let is_new = self.by_session.entry(session).or_default().insert(index);
        assert!(is_new, "an attached lease is listed under its session once");
    }

    /// A client shows that a lease is its own: from now on a lease of an earlier run counts as this client's.
    /// Any other remains its client's, or two clients could pass the names of one to the other.
    pub fn adopt(&mut self, index: LeaseIndex, client: ClientId) {
        let lease = &mut self.rows[index];
        if self.clients.get(lease.client).client == ClientId::UNKNOWN && client != ClientId::UNKNOWN {
            let joined = self.clients.join(client, lease.names);
            self.clients.leave(std::mem::replace(&mut lease.client, joined), lease.names);
        }
    }

    /// A request of a lease begins, whose names take this many bytes.
    #[inline]
    pub fn add_names(&mut self, index: LeaseIndex, names: u32) {
        let lease = &mut self.rows[index];
        lease.names += names as usize;
        self.clients.add(lease.client, names as usize);
    }

    /// A request ends whose names were added.
    #[inline]
    pub fn sub_names(&mut self, index: LeaseIndex, names: u32) {
        let lease = &mut self.rows[index];
        lease.names -= names as usize;
        self.clients.sub(lease.client, names as usize);
    }

    /// Returns the bytes of the names in the requests of a lease, and of all leases of its client.
    #[inline]
    pub fn names(&self, index: LeaseIndex) -> (usize, usize) {
        let lease = self.get(index);
        (lease.names, self.clients.get(lease.client).names)
    }

    fn detach(&mut self, index: LeaseIndex) {
        let Some(session) = self.get_mut(index).session.take() else { return };
        let leases = self.by_session.get_mut(&session).expect("the session of a lease lists it");
        assert!(leases.remove(&index), "an attached lease is listed under its session");
        if leases.is_empty() {
            self.by_session.remove(&session);
        }
    }

    /// Closes a session. Returns the leases that end with it.
    pub fn close_session(&mut self, session: SessionId) -> Vec<LeaseIndex> {
        let leases = self.by_session.remove(&session).unwrap_or_default();
        for index in &leases {
            let before = self.get_mut(*index).session.take();
            assert_eq!(before, Some(session), "a session lists the leases that are attached to it");
        }
        leases.into_iter().filter(|index| self.get(*index).on_disconnect == OnDisconnect::Release).collect()
    }

    /// Renews a lease. Its client counts on another time to live, so the grace period waits for the lease for
    /// as long. But a client that renews and never reclaims, although reclaims `can_be_judged`, does not
    /// block others beyond the bound of [`Leases::start_grace`]. Returns the time for which the lease is
    /// valid now: less than its time to live if that bound is earlier.
    ///
    /// `most`: no lease is renewed for longer.
    pub fn renew(
        &mut self,
        index: LeaseIndex,
        can_be_judged: bool,
        most: Duration,
        now: Instant,
    ) -> Duration {
        let lease = &mut self.rows[index];
        lease.is_told = true;
        let mut expires = now + lease.ttl.min(most);
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

    /// Removes a lease that has no requests any more.
    pub fn end(&mut self, index: LeaseIndex) {
        self.detach(index);
        let lease = self.rows.remove(index);
        assert!(lease.requests.is_empty(), "lease {} ends after its requests", lease.id);
        assert_eq!((lease.waiting, lease.names), (0, 0), "lease {} has no request to count", lease.id);
        assert!(lease.keys.is_empty(), "lease {} has no request to name", lease.id);
        let was_found = self.by_id.remove(hash_of(lease.id), index.0);
        assert!(was_found, "lease {} is found by its id until it ends", lease.id);
        if let Some(reader) = &mut self.reader {
            reader.note_end(index, lease.record());
        }
        self.clients.leave(lease.client, 0);
        self.expiries.remove(lease.scheduled, index);
        if let Some(grace) = lease.grace {
            self.graces.remove(grace.ends, index);
        }
    }

    /// Returns the next lease whose time to live is over. Examines at most `looks` leases and subtracts the
    /// number examined: many may have been renewed since they were scheduled.
    pub fn next_expired(&mut self, now: Instant, looks: &mut usize) -> Option<LeaseIndex> {
        while *looks > 0
            && let Some(index) = self.expiries.pop_expired(now)
        {
            *looks -= 1;
            work::count(1);
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

    /// Starts the grace period after a restart: no lock is granted and no part leaves until every lease has
    /// reclaimed or ended. Each lease has its full time to live for that, from now and from each renewal; in
    /// all at most `most` and at most [`GRACES`] times to live from now, but at least one. A renewal while
    /// reclaims cannot be judged extends that bound to a full time to live after it.
    pub fn start_grace(&mut self, most: Duration, now: Instant) {
        for index in (0..self.rows.end()).map(LeaseIndex::from_row) {
            let Some(lease) = self.rows.get_mut(index) else { continue };
            let ends = now + lease.ttl;
            let latest = now + (lease.ttl * GRACES).min(most).max(lease.ttl);
            assert!(ends <= latest, "the grace period ends at its latest end, or before");
            assert!(lease.grace.is_none(), "a restart begins one grace period");
            lease.grace = Some(Grace { ends, latest });
            lease.unaccounted = true;
            lease.is_told = false;
            self.graces.insert(ends, index);
        }
    }

    /// Returns the time at which the grace period ends if no further lease is renewed.
    pub fn last_grace(&self) -> Option<Instant> {
        self.graces.last()
    }

    /// Returns the number of leases that the grace period waits for.
    pub fn in_grace(&self) -> usize {
        self.graces.len()
    }

    /// Ends the wait of the grace period for a lease. Returns true if it waited.
    pub fn end_grace(&mut self, index: LeaseIndex) -> bool {
        match self.get_mut(index).grace.take() {
            Some(grace) => {
                self.graces.remove(grace.ends, index);
                true
            }
            None => false,
        }
    }

    /// Returns true if the grace period waits for this lease.
    pub fn is_in_grace(&self, index: LeaseIndex) -> bool {
        self.get(index).grace.is_some()
    }
}

/// Returns the hash of an id for the index. The server chooses the ids, so they need no seed.
fn hash_of(id: LeaseId) -> u32 {
    short_hash(FixedState::default().hash_one(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::Secret;

    #[test]
    fn leases_that_were_entered_for_one_instant_and_renewed_are_looked_at_some_at_a_time() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let dc = DcId::new(0).expect("0 is an id");
        let mut leases = Leases::new(dc, 0);
        for n in 1..=1_000 {
            let (id, ttl) = (LeaseId::new(dc, n), Duration::from_secs(10));
            let (secret, on_disconnect) = (Secret::new([7; 16]), OnDisconnect::Keep);
            let record = LeaseRecord { lease: id, secret, ttl, on_disconnect };
            let index = leases.open(record, ClientId(1), at(0));
            if n < 1_000 {
                leases.renew(index, true, ttl, at(5));
            }
        }
        let (mut looks, mut steps) = (300, 1);
        while leases.next_expired(at(10), &mut looks).is_none() {
            assert_eq!(looks, 0, "there is more to look at");
            (looks, steps) = (300, steps + 1);
        }
        assert_eq!((looks, steps), (200, 4));
    }
}
