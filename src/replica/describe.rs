//! Explains a wait: who owns, holds and waits for a lock. Holders elsewhere are asked outside the log, within
//! a bounded time; whoever does not answer is shown as unknown.

use std::collections::BTreeMap;

use super::Replica;
use super::call::{CallId, HolderInfo, LockDescription, MAX_DESCRIBED, Refusal, Reply, WaiterInfo};
use super::forced::Taken;
use super::message::Message;
use super::top::Top;
use crate::causal_log::Violation;
use crate::deadlines::Deadlines;
use crate::lock_state::WaiterRow;
use crate::names::{DcId, DcSet, LockName};
use crate::time::Instant;
use crate::work;

/// Most locks that one question asks about; a timeout explains that many of the locks that were in the way.
pub(super) const MAX_EXPLAINED: usize = 8;
/// Holders and waiters that such an answer shows of each, at most: thousands may be due at once.
const EXPLAINED: usize = 10;
/// Waits that one step ends, at most: each is explained. The rest follow with the next steps.
const WAITS_PER_STEP: usize = 64;
/// Descriptions under way; beyond that, others are answered without asking elsewhere.
const MAX_PENDING: usize = 1024;

/// What a description is for.
pub(super) enum Purpose {
    Describe,
    /// The acquire has timed out.
    Timeout,
    /// A lock was taken away.
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

/// Descriptions that wait for others.
#[derive(Default)]
pub(super) struct Descriptions {
    pending: BTreeMap<u64, Pending>,
    deadlines: Deadlines<u64>,
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
}

impl Replica {
    pub(super) fn on_describe(&mut self, call: CallId, lock: LockName) {
        let description = self.describe(&lock, MAX_DESCRIBED);
        self.explain(call, Purpose::Describe, vec![description]);
    }

    pub(super) fn expire_waits(&mut self) {
        #[cfg(test)]
        let most =
            if self.mutated(crate::sim::Mutation::AllWaitsAtOnce) { usize::MAX } else { WAITS_PER_STEP };
        #[cfg(not(test))]
        let most = WAITS_PER_STEP;
        for _ in 0..most {
            let Some(request) = self.waits.pop_expired(self.now.mono) else { break };
            self.tickets.get_mut(request).wait_until = None;
            let names = self.locks.in_the_way(request, MAX_EXPLAINED);
            let locks = names.iter().map(|name| self.describe(name, EXPLAINED)).collect();
            self.counts.timeouts += 1;
            if let Some(call) = self.end_waiting_silently(request) {
                self.explain(call, Purpose::Timeout, locks);
            }
        }
    }

    /// A lock as it is known here, with so many holders and waiters at most.
    pub(super) fn describe(&self, lock: &LockName, most: usize) -> LockDescription {
        let owners: Vec<(DcId, DcId)> = self.locks.owners(lock).collect();
        let (all, unreachable) = (owners.iter().map(|(_, owner)| *owner).collect(), self.reach.unreachable());
        let (rows, waiting) = self.locks.waiters(lock, most);
        work::count(owners.len() + rows.len());
        LockDescription {
            lock: lock.clone(),
            holders: self.holders_here(lock, most),
            unknown: DcSet::EMPTY,
            waiters: rows.iter().map(|row| self.waiter_info(row)).collect(),
            waiting,
            unreachable: unreachable.intersection(all),
            not_serving: self.not_serving_of(all),
            owners,
        }
    }

    pub(super) fn waiter_info(&self, row: &WaiterRow) -> WaiterInfo {
        WaiterInfo {
            request: row.id,
            at: row.at,
            mode: row.mode,
            label: self.locks.get(row.request).local().map(|local| local.label.clone()),
            parked: row.parked,
        }
    }

    pub(super) fn holders_here(&self, lock: &LockName, most: usize) -> Vec<HolderInfo> {
        let holders = self.locks.holders(lock, most).into_iter();
        let info = |holder: crate::lock_state::Holder| {
            let row = self.locks.get(holder.request);
            Some(HolderInfo {
                dc: self.config.dc,
                request: row.id,
                mode: holder.mode,
                token: holder.token,
                label: row.local()?.label.clone(),
                held_for: self.now.mono.saturating_since(holder.since),
            })
        };
        holders.filter_map(info).collect()
    }

    /// Asks the other owners for their holders, then answers.
    pub(super) fn explain(&mut self, call: CallId, purpose: Purpose, mut locks: Vec<LockDescription>) {
        let owners = |lock: &LockDescription| lock.owners.iter().map(|(_, owner)| *owner).collect::<DcSet>();
        for lock in &mut locks {
            lock.unknown = owners(lock).intersection(self.peers());
        }
        let elsewhere = locks.iter().fold(DcSet::EMPTY, |all, lock| all.union(lock.unknown));
        let asked = elsewhere.intersection(self.log.linked());
        if asked.is_empty() || self.descriptions.len() >= MAX_PENDING {
            return self.finish_description(call, purpose, locks);
        }
        self.descriptions.last += 1;
        let query = self.descriptions.last;
        let names: Vec<LockName> = locks.iter().map(|lock| lock.lock.clone()).collect();
        for peer in asked.iter() {
            self.send(peer, Message::AskHolders { query, locks: names.clone() });
        }
        let deadline = self.now.mono + self.config.local.describe_timeout;
        self.descriptions.deadlines.insert(deadline, query);
        self.descriptions.pending.insert(query, Pending { call, purpose, locks, asked, deadline });
    }

    pub(super) fn on_ask_holders(&mut self, peer: DcId, query: u64, locks: &[LockName]) {
        if locks.len() > MAX_EXPLAINED {
            return self
                .close_link(peer, Violation::QueryTooLarge { count: locks.len(), limit: MAX_EXPLAINED });
        }
        let holders = locks.iter().map(|lock| self.holders_here(lock, MAX_DESCRIBED)).collect();
        self.send(peer, Message::Holders { query, holders });
    }

    pub(super) fn on_holders(&mut self, peer: DcId, query: u64, holders: Vec<Vec<HolderInfo>>) {
        let Some(pending) = self.descriptions.pending.get_mut(&query) else { return };
        if !pending.asked.contains(peer) {
            return;
        }
        pending.asked.remove(peer);
        let most = if matches!(pending.purpose, Purpose::Timeout) { EXPLAINED } else { MAX_DESCRIBED };
        for (lock, theirs) in pending.locks.iter_mut().zip(holders) {
            lock.unknown.remove(peer);
            let theirs = theirs.into_iter().filter(|holder| holder.dc == peer);
            lock.holders.extend(theirs.take(most));
        }
        if pending.asked.is_empty() {
            self.end_description(query);
        }
    }

    /// A peer that was asked will not answer any more.
    pub(super) fn descriptions_without(&mut self, peer: DcId) {
        let mut answered = Vec::new();
        for (query, pending) in &mut self.descriptions.pending {
            pending.asked.remove(peer);
            if pending.asked.is_empty() {
                answered.push(*query);
            }
        }
        answered.into_iter().for_each(|query| self.end_description(query));
    }

    pub(super) fn expire_descriptions(&mut self) {
        while let Some(query) = self.descriptions.deadlines.pop_expired(self.now.mono) {
            self.end_description(query);
        }
    }

    fn end_description(&mut self, query: u64) {
        if let Some(pending) = self.descriptions.pending.remove(&query) {
            self.descriptions.deadlines.remove(pending.deadline, query);
            self.finish_description(pending.call, pending.purpose, pending.locks);
        }
    }

    fn finish_description(&mut self, call: CallId, purpose: Purpose, mut locks: Vec<LockDescription>) {
        for lock in &mut locks {
            lock.holders.sort_by_key(|holder| (holder.dc, holder.request));
        }
        let one = "a description is of one lock";
        match purpose {
            Purpose::Timeout => self.refuse(call, Refusal::TimedOut(locks)),
            Purpose::Describe => {
                let description = locks.pop().expect(one);
                self.reply(call, Reply::Described(Box::new(description)));
            }
            Purpose::Force(taken) => self.answer_force(call, taken, locks.pop().expect(one)),
            Purpose::Top(top) => self.answer_top(call, top, locks),
        }
    }
}
