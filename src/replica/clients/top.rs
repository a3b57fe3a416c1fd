//! The locks with the most waiting, with their holders. If a lock is not held here and has parts elsewhere,
//! the other owners are asked for the holders, as for a description: for the hottest of these locks, in one
//! query per datacenter.

use std::time::Duration;

use super::describe::{Describer, MAX_EXPLAINED, Purpose};
use crate::lock_state::HotRow;
use crate::replica::call::{CallId, HotLock, LockDescription, MAX_HOT_HOLDERS, Reply};
use geolock_api::names::{DcId, DcSet};

/// Most locks in one reply.
const MAX_TOP: usize = 100;

/// A reply that waits for holders elsewhere.
pub(in crate::replica) struct Top {
    rows: Vec<HotLock>,
    /// Indices of the rows that other owners were asked about.
    asked: Vec<usize>,
}

impl Describer<'_> {
    pub(in crate::replica) fn on_top(&mut self, call: CallId, prefix: &[u8], limit: usize, millis: u64) {
        let rows = self.locks.inspect().hottest(prefix, limit.clamp(1, MAX_TOP), millis);
        let rows: Vec<HotLock> = rows.into_iter().map(|row| self.hot_lock(row, millis)).collect();
        let is_elsewhere = |row: &HotLock| row.local_holders == 0 && !row.lock.unknown.is_empty();
        let elsewhere = rows.iter().enumerate().filter(|(_, row)| is_elsewhere(row));
        let asked: Vec<usize> = elsewhere.map(|(place, _)| place).take(MAX_EXPLAINED).collect();
        let locks = asked.iter().map(|place| rows[*place].lock.clone()).collect();
        self.explain(call, Purpose::Top(Top { rows, asked }), locks);
    }

    fn hot_lock(&self, row: HotRow, millis: u64) -> HotLock {
        let HotRow { name, heat, holders, first, waiting } = row;
        let owners: Vec<(DcId, DcId)> = self.locks.inspect().owners(&name).collect();
        let all = owners.iter().map(|(_, owner)| *owner).collect::<DcSet>();
        let waits = first.as_ref().map_or(0, |first| millis.saturating_sub(first.at.millis()));
        HotLock {
            local_holders: holders,
            head_wait: Duration::from_millis(waits),
            tracked: self.now.mono.saturating_since(heat.since),
            heat,
            lock: LockDescription {
                holders: self.local_holders(&name, MAX_HOT_HOLDERS),
                prefix_home: self.locks.owners().sponsors().rules().home(&name),
                lock: name,
                unknown: all.intersection(self.members.peers()),
                waiters: first.iter().map(|row| self.waiter_info(row)).collect(),
                waiting,
                unreachable: all.intersection(self.peers.reachability.unreachable()),
                not_serving: self.not_serving_of(all),
                owners,
            },
        }
    }

    /// `locks`: the locks that other owners were asked about, with their replies.
    pub(in crate::replica) fn answer_top(&mut self, call: CallId, top: Top, locks: Vec<LockDescription>) {
        let Top { mut rows, asked } = top;
        assert_eq!(asked.len(), locks.len(), "each lock that was asked about has its reply");
        for (place, mut lock) in asked.into_iter().zip(locks) {
            lock.holders.truncate(MAX_HOT_HOLDERS);
            rows[place].lock = lock;
        }
        self.out.reply(call, Reply::Top(rows));
    }
}
