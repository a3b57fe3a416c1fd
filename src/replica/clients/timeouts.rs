//! Timeouts of waiting requests. The reply names the locks in the way and their holders. So that it comes in
//! time, the other owners are asked some time before; those that have not replied by then are listed as
//! unknown.

use crate::base::bugs::Bug;
use std::collections::BTreeMap;
use std::time::Duration;

use super::describe::{EXPLAINED, MAX_EXPLAINED, MAX_PENDING};
use super::grants::Requests;
use crate::base::time::{Instant, Now};
use crate::base::work;
use crate::causal_log::Log;
use crate::lock_state::{Locks, RequestIndex};
use crate::replica::call::{HolderInfo, LockDescription, Refusal};
use crate::replica::clients::{AcquireCalls, Clients};
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::replica::watches::Watches;
use geolock_api::names::{DcId, DcSet, LockName, RequestId};

/// Most waits that one step ends or asks for, because each is described. The rest follow in the next steps.
const WAITS_PER_STEP: usize = 64;
/// Approximate bound of the locks of these requests: one request always ends as a whole.
const WANTS_PER_STEP: usize = 2_048;

/// Queries for requests whose wait ends soon. At most [`MAX_PENDING`]; the replies to further requests
/// contain only what is known here.
#[derive(Default)]
pub(in crate::replica) struct AskedAhead {
    queries: BTreeMap<u64, Asked>,
    by_request: BTreeMap<RequestId, u64>,
}

struct Asked {
    locks: Vec<LockName>,
    /// The owners that have not replied.
    asked: DcSet,
    answers: Vec<Answer>,
}

struct Answer {
    peer: DcId,
    at: Instant,
    /// For each of the locks.
    holders: Vec<Vec<HolderInfo>>,
}

impl AskedAhead {
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    fn insert(&mut self, query: u64, request: RequestId, locks: Vec<LockName>, asked: DcSet) {
        let before = self.by_request.insert(request, query);
        assert!(
            before.is_none(),
            "the holders are asked once for request {request}, not {before:?} and {query}"
        );
        self.queries.insert(query, Asked { locks, asked, answers: Vec::new() });
    }

    /// A waiting request has another id.
    pub fn rename(&mut self, old: RequestId, new: RequestId) {
        if let Some(query) = self.by_request.remove(&old) {
            self.by_request.insert(new, query);
        }
    }

    /// A peer reports its holders; a reply that nobody waits for is ignored.
    pub fn answer(&mut self, query: u64, peer: DcId, mut holders: Vec<Vec<HolderInfo>>, now: Instant) {
        let Some(asked) = self.queries.get_mut(&query) else { return };
        if !asked.asked.contains(peer) {
            return;
        }
        asked.asked.remove(peer);
        holders.truncate(asked.locks.len());
        for of_lock in &mut holders {
            of_lock.retain(|holder| holder.dc == peer);
            of_lock.truncate(EXPLAINED);
        }
        asked.answers.push(Answer { peer, at: now, holders });
    }

    /// Asserts that each query is found by its request, which waits.
    pub fn check(&self, locks: &Locks) {
        assert_eq!(self.by_request.len(), self.queries.len(), "each query is for one request");
        assert!(self.queries.len() <= MAX_PENDING, "{} queries are asked ahead", self.queries.len());
        for (request, query) in &self.by_request {
            assert!(self.queries.contains_key(query), "query {query} for {request} is there");
            let waits = locks.requests().find(*request).is_some_and(|row| !locks.requests()[row].is_held());
            assert!(waits, "query {query} is for {request}, which waits");
        }
    }

    fn take(&mut self, request: RequestId) -> Option<Asked> {
        let query = self.by_request.remove(&request)?;
        let asked = self.queries.remove(&query);
        assert!(asked.is_some(), "query {query} for request {request} is there until its wait ends");
        asked
    }
}

impl Asked {
    /// Adds the holders that the owners of a lock have reported.
    fn add_to(&self, lock: &mut LockDescription, now: Instant) {
        let Some(place) = self.locks.iter().position(|name| *name == lock.lock) else { return };
        for Answer { peer, at, holders } in &self.answers {
            // Its parts may have moved since.
            if !lock.unknown.contains(*peer) {
                continue;
            }
            lock.unknown.remove(*peer);
            let since = now.saturating_since(*at);
            let theirs = holders.get(place).into_iter().flatten();
            let then =
                |holder: &HolderInfo| HolderInfo { held_for: holder.held_for + since, ..holder.clone() };
            lock.holders.extend(theirs.map(then));
        }
    }
}

impl AcquireCalls<'_> {
    /// Starts the wait of a request, until it is granted or cancelled. The other owners are asked
    /// `describe_timeout` before the end, or when half of the wait is left if that is later.
    pub(in crate::replica) fn begin_wait(&mut self, request: RequestIndex, wait: Duration) {
        let (until, peers) = (self.now.mono + wait, self.members.peers());
        let client = self.clients.client_requests.get_mut(request);
        debug_assert!(client.wait_until.is_none(), "a wait begins once, not at {:?}", client.wait_until);
        client.wait_until = Some(until);
        if !peers.is_empty() {
            let ahead = self.config.local.describe_timeout.min(wait / 2).as_millis();
            client.asks_ahead_ms = u32::try_from(ahead).unwrap_or(u32::MAX);
        }
        self.clients.waits.insert(until - client.asks_ahead(), request);
    }
}

impl Requests<'_> {
    /// Ends the wait of a request.
    #[inline]
    pub(in crate::replica) fn end_wait(&mut self, request: RequestIndex) {
        if self.clients.client_requests.get_mut(request).wait_until.is_some() {
            self.end_limited_wait(request);
        }
    }

    /// Not inline: most requests may wait for ever.
    #[inline(never)]
    fn end_limited_wait(&mut self, request: RequestIndex) {
        let client = self.clients.client_requests.get_mut(request);
        let Some(until) = client.wait_until.take() else { return };
        self.clients.waits.remove(until - client.asks_ahead(), request);
        if !self.clients.descriptions.ahead.by_request.is_empty() {
            self.clients.descriptions.ahead.take(self.locks.requests()[request].id);
        }
    }
}

/// Ends waits whose time is over.
pub(in crate::replica) struct Timeouts<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a Peers,
    pub(in crate::replica) clients: &'a mut Clients,
    pub(in crate::replica) data: &'a mut Data,
    pub(in crate::replica) watches: &'a mut Watches,
}

impl Timeouts<'_> {
    pub(in crate::replica) fn expire_waits(&mut self) {
        let (most, most_wants) = (WAITS_PER_STEP, WANTS_PER_STEP);
        let (most, most_wants) = match self.config.bugs.has(Bug::AllWaitsAtOnce) {
            true => (usize::MAX, usize::MAX),
            false => (most, most_wants),
        };
        let mut wants = 0;
        for _ in 0..most {
            if wants >= most_wants {
                break;
            }
            let Some(request) = self.clients.waits.pop_expired(self.now.mono) else { break };
            let looked_at = self.locks.inspect().locks_of(request);
            wants += looked_at;
            work::count(looked_at);
            let row = &self.locks.requests()[request];
            debug_assert!(!row.is_held(), "request {} does not wait any more", row.id);
            let client = self.clients.client_requests.get_mut(request);
            assert!(client.wait_until.is_some(), "the wait of request {} has an end", row.id);
            client.asks_ahead_ms = 0;
            match client.wait_until {
                Some(until) if until > self.now.mono => {
                    self.clients.waits.insert(until, request);
                    self.ask_ahead(request);
                }
                _ => self.time_out(request),
            }
        }
    }

    /// Asks the other owners for the holders of the locks in the way.
    fn ask_ahead(&mut self, request: RequestIndex) {
        if self.clients.descriptions.asked_ahead() >= MAX_PENDING {
            return;
        }
        let locks = self.locks.inspect().in_the_way(request, MAX_EXPLAINED);
        let owners = locks.iter().flat_map(|lock| self.locks.inspect().owners(lock));
        let owners: DcSet = owners.inspect(|_| work::count(1)).map(|(_, owner)| owner).collect();
        let asked = owners.intersection(self.members.peers()).intersection(self.log.peers().linked());
        if asked.is_empty() {
            return;
        }
        // A peer refuses a longer query.
        assert!(locks.len() <= MAX_EXPLAINED, "{} locks are asked for", locks.len());
        let query = self.clients.descriptions.query();
        for peer in asked.iter() {
            self.out.send(self.log, peer, Message::AskHolders { query, locks: locks.clone() });
        }
        self.clients.descriptions.ahead.insert(query, self.locks.requests()[request].id, locks, asked);
    }

    fn time_out(&mut self, request: RequestIndex) {
        self.clients.client_requests.get_mut(request).wait_until = None;
        self.out.counts.timeouts += 1;
        let names = self.locks.inspect().in_the_way(request, MAX_EXPLAINED);
        let mut locks = lend!(Describer, self).describe_awaited(&names);
        let asked = self.clients.descriptions.ahead.take(self.locks.requests()[request].id);
        for lock in &mut locks {
            if let Some(asked) = &asked {
                asked.add_to(lock, self.now.mono);
            }
            lock.holders.sort_by_key(|holder| (holder.dc, holder.request));
        }
        let refusal = match self.locks.local_requests().free_of(request, self.now.mono) {
            Some(free) => Refusal::NotEnoughInTime { locks, free },
            None => Refusal::TimedOut(locks),
        };
        lend!(Requests, self).end_waiting(request, refusal);
    }
}
