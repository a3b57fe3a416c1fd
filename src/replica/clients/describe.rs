//! Descriptions of locks: the owners, holders and waiters of a lock. Holders in other datacenters are asked
//! for outside the log, within a bounded time; a datacenter that does not reply is listed as unknown.
//! `timeouts.rs` asks ahead of time.

use std::collections::BTreeMap;

use super::force_release::Taken;
use super::timeouts::AskedAhead;
use super::top::Top;
use crate::base::deadlines::Deadlines;
use crate::base::time::{Instant, Now};
use crate::base::work;
use crate::causal_log::{Log, Violation};
use crate::lock_state::{Locks, WaiterRow};
use crate::replica::call::{CallId, HolderInfo, LockDescription, MAX_DESCRIBED, Reply, WaiterInfo};
use crate::replica::clients::Clients;
use crate::replica::config::ReplicaConfig;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use geolock_api::names::{DcId, DcSet, LockName};

/// Most locks of one query; the reply to a timeout describes this many of the locks in the way.
pub(in crate::replica) const MAX_EXPLAINED: usize = 8;
/// Most holders and waiters that a reply lists for a lock: thousands of waits may end at once.
pub(super) const EXPLAINED: usize = 10;
/// Most descriptions in progress; further ones are answered without asking other datacenters.
pub(in crate::replica) const MAX_PENDING: usize = 1024;

/// The call that a description is for.
pub(in crate::replica) enum Purpose {
    Describe,
    /// A force release.
    Force(Taken),
    Top(Top),
}

struct Pending {
    call: CallId,
    purpose: Purpose,
    locks: Vec<LockDescription>,
    asked: DcSet,
    deadline: Instant,
}

/// Descriptions that wait for other datacenters.
#[derive(Default)]
pub(in crate::replica) struct Descriptions {
    pending: BTreeMap<u64, Pending>,
    deadlines: Deadlines<u64>,
    /// Queries for requests whose wait ends soon.
    pub(in crate::replica) ahead: AskedAhead,
    last: u64,
}

impl Descriptions {
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.deadlines.next_or_never()
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    pub fn asked_ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Asserts that each description ends: by a reply of each peer that was asked, or by its deadline.
    pub fn check(&self, linked: DcSet) {
        assert_eq!(self.deadlines.len(), self.pending.len(), "each description has one deadline");
        assert!(self.pending.len() <= MAX_PENDING, "{} descriptions are pending", self.pending.len());
        for (query, Pending { asked, .. }) in &self.pending {
            assert!(*query <= self.last, "query {query} has a number up to {}", self.last);
            assert!(!asked.is_empty(), "description {query} waits for a reply");
            let lost = asked.difference(linked);
            assert!(lost.is_empty(), "description {query} waits for {lost:?} without a link");
        }
    }

    /// Returns the number of a new query.
    pub(in crate::replica) fn query(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl LockDescription {
    /// Returns the owners of its parts.
    pub(in crate::replica) fn owner_dcs(&self) -> DcSet {
        self.owners.iter().map(|(_, owner)| *owner).collect()
    }
}

/// Describes locks for clients and operators.
pub(in crate::replica) struct Describer<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a Peers,
    pub(in crate::replica) clients: &'a mut Clients,
}

impl Describer<'_> {
    pub(in crate::replica) fn on_describe(&mut self, call: CallId, lock: LockName) {
        // Other datacenters may be asked about it.
        if let Err(refusal) =
            self.lifecycle.versions.admit_homes(self.config, self.locks.owners().homes(), [&lock])
        {
            return self.out.refuse(call, refusal);
        }
        let description = self.describe(&lock, MAX_DESCRIBED);
        self.explain(call, Purpose::Describe, vec![description]);
    }

    /// Returns the description of a lock as it is known here, with at most `most` holders and waiters.
    pub(in crate::replica) fn describe(&self, lock: &LockName, most: usize) -> LockDescription {
        let owners: Vec<(DcId, DcId)> = self.locks.inspect().owners(lock).collect();
        let all: DcSet = owners.iter().map(|(_, owner)| *owner).collect();
        let unreachable = self.peers.reachability.unreachable().intersection(all);
        let unreachable =
            unreachable.iter().filter(|peer| !self.peers.is_starting(*peer, self.log)).collect();
        let (rows, waiting) = self.locks.inspect().waiters(lock, most);
        work::count(owners.len() + rows.len());
        LockDescription {
            lock: lock.clone(),
            prefix_home: self.locks.owners().sponsors().rules().home(lock),
            holders: self.local_holders(lock, most),
            unknown: DcSet::EMPTY,
            waiters: rows.iter().map(|row| self.waiter_info(row)).collect(),
            waiting,
            unreachable,
            not_serving: self.not_serving_of(all),
            owners,
        }
    }

    /// Returns the descriptions of locks that a request has waited for in vain, without what others told.
    pub(in crate::replica) fn describe_awaited<'l>(
        &self,
        locks: impl IntoIterator<Item = &'l LockName>,
    ) -> Vec<LockDescription> {
        let describe = |name: &LockName| {
            let lock = self.describe(name, EXPLAINED);
            LockDescription { unknown: lock.owner_dcs().intersection(self.members.peers()), ..lock }
        };
        locks.into_iter().map(describe).collect()
    }

    pub(in crate::replica) fn waiter_info(&self, row: &WaiterRow) -> WaiterInfo {
        WaiterInfo {
            request: row.id,
            at: row.at,
            mode: row.mode,
            label: self.locks.requests()[row.request].local().map(|local| local.label.clone()),
            parked: row.parked,
        }
    }

    pub(in crate::replica) fn local_holders(&self, lock: &LockName, most: usize) -> Vec<HolderInfo> {
        let holders = self.locks.inspect().holders(lock, most).into_iter();
        let info = |holder: crate::lock_state::Holder| {
            let row = &self.locks.requests()[holder.request];
            Some(HolderInfo {
                dc: self.config.dc,
                request: row.id,
                mode: holder.mode,
                token: holder.token?,
                label: row.local()?.label.clone(),
                held_for: self.now.mono.saturating_since(holder.since),
            })
        };
        holders.filter_map(info).collect()
    }

    /// Asks the other owners for their holders, then answers the call.
    pub(in crate::replica) fn explain(
        &mut self,
        call: CallId,
        purpose: Purpose,
        mut locks: Vec<LockDescription>,
    ) {
        for lock in &mut locks {
            lock.unknown = lock.owner_dcs().intersection(self.members.peers());
        }
        let elsewhere = locks.iter().fold(DcSet::EMPTY, |all, lock| all.union(lock.unknown));
        let asked = elsewhere.intersection(self.log.peers().linked());
        if asked.is_empty() || self.clients.descriptions.len() >= MAX_PENDING {
            return self.finish_description(call, purpose, locks);
        }
        // A peer refuses a longer query.
        assert!(locks.len() <= MAX_EXPLAINED, "{} locks are asked for", locks.len());
        let query = self.clients.descriptions.query();
        let names: Vec<LockName> = locks.iter().map(|lock| lock.lock.clone()).collect();
        for peer in asked.iter() {
            self.out.send(self.log, peer, Message::AskHolders { query, locks: names.clone() });
        }
        let deadline = self.now.mono + self.config.local.describe_timeout;
        self.clients.descriptions.deadlines.insert(deadline, query);
        self.clients.descriptions.pending.insert(query, Pending { call, purpose, locks, asked, deadline });
    }

    pub(in crate::replica) fn on_ask_holders(
        &mut self,
        peer: DcId,
        query: u64,
        locks: &[LockName],
    ) -> Result<(), Violation> {
        if locks.len() > MAX_EXPLAINED {
            return Err(Violation::QueryTooLarge { count: locks.len(), limit: MAX_EXPLAINED });
        }
        let holders = locks.iter().map(|lock| self.local_holders(lock, MAX_DESCRIBED)).collect();
        self.out.send(self.log, peer, Message::Holders { query, holders });
        Ok(())
    }

    pub(in crate::replica) fn on_holders(&mut self, peer: DcId, query: u64, holders: Vec<Vec<HolderInfo>>) {
        let Some(pending) = self.clients.descriptions.pending.get_mut(&query) else {
            return self.clients.descriptions.ahead.answer(query, peer, holders, self.now.mono);
        };
        if !pending.asked.contains(peer) {
            return;
        }
        pending.asked.remove(peer);
        for (lock, theirs) in pending.locks.iter_mut().zip(holders) {
            lock.unknown.remove(peer);
            let theirs = theirs.into_iter().filter(|holder| holder.dc == peer);
            lock.holders.extend(theirs.take(MAX_DESCRIBED));
        }
        if pending.asked.is_empty() {
            self.end_description(query);
        }
    }

    /// A peer that was asked will not reply any more.
    pub(in crate::replica) fn descriptions_without(&mut self, peer: DcId) {
        let mut answered = Vec::new();
        for (query, pending) in &mut self.clients.descriptions.pending {
            pending.asked.remove(peer);
            if pending.asked.is_empty() {
                answered.push(*query);
            }
        }
        answered.into_iter().for_each(|query| self.end_description(query));
    }

    pub(in crate::replica) fn expire_descriptions(&mut self) {
        while let Some(query) = self.clients.descriptions.deadlines.pop_expired(self.now.mono) {
            let is_pending = self.clients.descriptions.pending.contains_key(&query);
            assert!(is_pending, "description {query} is pending until its deadline");
            self.end_description(query);
        }
    }

    fn end_description(&mut self, query: u64) {
        if let Some(pending) = self.clients.descriptions.pending.remove(&query) {
            self.clients.descriptions.deadlines.remove(pending.deadline, query);
            self.finish_description(pending.call, pending.purpose, pending.locks);
        }
    }

    fn finish_description(&mut self, call: CallId, purpose: Purpose, mut locks: Vec<LockDescription>) {
        for lock in &mut locks {
            lock.holders.sort_by_key(|holder| (holder.dc, holder.request));
        }
        let (one, count) = ("a description is of one lock", locks.len());
        assert!(count == 1 || matches!(purpose, Purpose::Top(_)), "{one}, not of {count}");
        match purpose {
            Purpose::Describe => {
                let description = locks.pop().expect(one);
                self.out.reply(call, Reply::Described(Box::new(description)));
            }
            Purpose::Force(taken) => self.answer_force(call, taken, locks.pop().expect(one)),
            Purpose::Top(top) => self.answer_top(call, top, locks),
        }
    }
}
