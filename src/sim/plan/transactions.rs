//! The choices of one seed about transactions.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::sim::failure::FaultKind;
use crate::sim::outcome::Outcome;
use crate::sim::plan::{LARGE, MS, Plan};

/// The transactions that clients run, beside their lock requests.
#[derive(Clone, Debug)]
pub(in crate::sim) struct TxnPlan {
    /// Percentage of a client's actions that run a transaction. 0: no transactions.
    pub percent: u64,
    /// Percentage of a client's actions that (also) acquire locks outside of transactions.
    pub plain_percent: u64,
    /// Number of pairs of keys that are always written together.
    pub pairs: usize,
    pub locked_percent: u64,
    /// Transactions without locks of their own that run under requests that their clients hold.
    pub under_percent: u64,
    /// Transactions of more than one step.
    pub interactive_percent: u64,
    pub read_only_percent: u64,
    /// Reads without a transaction.
    pub look_percent: u64,
    pub abort_percent: u64,
    /// Transactions that are cancelled while their begin waits.
    pub give_up_percent: u64,
    /// Transactions with a change that would overflow a counter.
    pub overflow_percent: u64,
    /// Changes that remove their keys.
    pub remove_percent: u64,
    /// Changes that give their keys a time to live.
    pub expire_percent: u64,
    /// Average time to live.
    pub expire_after: Duration,
    /// Transactions that require a snapshot with the commits of the client, or of a client elsewhere.
    pub at_least_percent: u64,
    pub patience: Duration,
    /// Commits that are to be durable at a majority before they are answered.
    pub majority_percent: u64,
    pub majority_wait: Duration,
    /// Links speak a protocol version without requests for acknowledgements.
    pub old_links: bool,
    /// Pause between the steps.
    pub think: Duration,
    /// Pauses that are longer than the lease lives without renewal.
    pub long_think_percent: u64,
    pub max_transaction: Duration,
    /// Transactions that also change or read wide keys: sets, maps, registers and counters that may be large.
    pub wide_percent: u64,
    /// Changes of wide keys that name a thousand elements or fields or more, or have 64 KiB or more.
    pub large_percent: u64,
    /// With fewer commits a run proves nothing.
    pub least_commits: u64,
}

impl TxnPlan {
    pub const NONE: TxnPlan = TxnPlan {
        percent: 0,
        plain_percent: 100,
        pairs: 0,
        locked_percent: 0,
        under_percent: 0,
        interactive_percent: 0,
        read_only_percent: 0,
        look_percent: 0,
        abort_percent: 0,
        give_up_percent: 0,
        overflow_percent: 0,
        remove_percent: 0,
        expire_percent: 0,
        expire_after: Duration::ZERO,
        at_least_percent: 0,
        patience: Duration::ZERO,
        majority_percent: 0,
        majority_wait: Duration::ZERO,
        old_links: false,
        think: Duration::ZERO,
        long_think_percent: 0,
        max_transaction: Duration::from_secs(20),
        wide_percent: 0,
        large_percent: 0,
        least_commits: 0,
    };

    pub(super) fn some() -> TxnPlan {
        TxnPlan {
            percent: 80,
            plain_percent: 20,
            pairs: 6,
            locked_percent: 50,
            interactive_percent: 50,
            read_only_percent: 15,
            look_percent: 10,
            abort_percent: 10,
            give_up_percent: 5,
            overflow_percent: 3,
            remove_percent: 5,
            expire_percent: 10,
            expire_after: 400 * MS,
            at_least_percent: 40,
            patience: 1_000 * MS,
            think: 20 * MS,
            least_commits: 40,
            ..TxnPlan::NONE
        }
    }

    /// Returns a description of something that did not happen often enough to prove anything.
    pub fn too_little(&self, done: &Outcome) -> Option<String> {
        let Outcome {
            commits,
            locked_commits,
            guarded_commits,
            commit_hand_offs,
            removals,
            keys_expired,
            ..
        } = done;
        let least = |percent: u64, share: u64| if percent > 0 { self.least_commits / share } else { 0 };
        let least = [
            (*commits, self.least_commits, "commits"),
            (*locked_commits, least(self.locked_percent, 10), "commits under locks"),
            (*guarded_commits, least(self.under_percent, 20), "commits under guards"),
            (*commit_hand_offs, least(self.locked_percent, 20), "commits under locks from elsewhere"),
            (*removals, least(self.remove_percent, 20), "removals"),
            (*keys_expired, least(self.expire_percent, 20), "keys that lapsed"),
        ];
        let missing = least.iter().find(|(count, least, _)| count < least);
        missing.map(|(count, _, what)| format!("only {count} {what}"))
    }

    /// Returns the maximum time for which a transaction keeps its locks.
    pub fn longest(&self, ttl: Duration) -> Duration {
        if self.percent == 0 {
            return Duration::ZERO;
        }
        let think = if self.long_think_percent > 0 { 2 * ttl } else { self.think };
        (self.patience + 4 * think).min(self.patience + self.max_transaction) + self.majority_wait
    }
}

/// Transactions in every other seed.
pub(super) fn general(rng: &mut Rng, durability: &mut Rng) -> TxnPlan {
    if rng.percent(50) {
        return TxnPlan::NONE;
    }
    TxnPlan {
        percent: *rng.pick(&[20, 50, 80]),
        plain_percent: 100,
        pairs: *rng.pick(&[2, 5, 10]),
        locked_percent: *rng.pick(&[0, 40, 100]),
        interactive_percent: *rng.pick(&[0, 50, 100]),
        read_only_percent: *rng.pick(&[5, 30]),
        look_percent: *rng.pick(&[0, 20]),
        abort_percent: *rng.pick(&[0, 20]),
        give_up_percent: *rng.pick(&[0, 10]),
        overflow_percent: *rng.pick(&[0, 5]),
        remove_percent: *rng.pick(&[0, 5, 30]),
        expire_percent: *rng.pick(&[0, 10, 40]),
        expire_after: *rng.pick(&[20 * MS, 400 * MS, 3_000 * MS]),
        at_least_percent: *rng.pick(&[0, 50, 90]),
        patience: *rng.pick(&[20 * MS, 2_000 * MS]),
        majority_percent: *durability.pick(&[0, 0, 30]),
        majority_wait: *durability.pick(&[Duration::ZERO, 300 * MS, 5_000 * MS]),
        old_links: durability.percent(20),
        think: *rng.pick(&[MS, 50 * MS, 400 * MS]),
        long_think_percent: *rng.pick(&[0, 0, 5]),
        max_transaction: *rng.pick(&[1_000 * MS, 20_000 * MS]),
        least_commits: 3,
        ..TxnPlan::NONE
    }
}

impl TxnPlan {
    /// Adds wide keys to one seed of four that has transactions, from a random stream of its own, so that no
    /// other choice of a seed depends on them. Not to small logs: one large commit would be more than these
    /// may have.
    pub(super) fn or_wide(self, max_log: usize, rng: &mut Rng) -> TxnPlan {
        if self.percent == 0 || max_log < LARGE || !rng.percent(25) {
            return self;
        }
        TxnPlan { wide_percent: *rng.pick(&[5, 30]), large_percent: 5, ..self }
    }
}

impl Plan {
    pub(super) fn transactions(mut self) -> Plan {
        self.faults = vec![
            (FaultKind::Crash, 1_500 * MS),
            (FaultKind::LinkReset, 700 * MS),
            (FaultKind::ClientDies, 3_000 * MS),
            (FaultKind::ClientDisconnects, 700 * MS),
        ];
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay /= 8);
        self.net.reconnect = 30 * MS;
        self.down = 300 * MS;
        self.disk.sync = 5 * MS;
        self.disk.slow_percent = 20;
        self.disk.slow = 100 * MS;
        self.disk.checkpoint_every = Some(1_500 * MS);
        self.load.ttl = (1_000 * MS, 2_000 * MS);
        self.load.distance = 2 * MS;
        self.load.concurrent = 2;
        self.load.release_on_disconnect_percent = 20;
        self.txns = TxnPlan { locked_percent: 80, ..TxnPlan::some() };
        self
    }

    /// The same with requests that are held for longer, and most transactions under them.
    pub(super) fn guarded(self, rng: &mut Rng) -> Plan {
        let mut plan = self.transactions();
        plan.load.concurrent = 3;
        plan.load.hold = *rng.pick(&[300 * MS, 600 * MS, 2_000 * MS]);
        plan.load.release_on_disconnect_percent = 0;
        plan.load.clients.iter_mut().for_each(|clients| *clients = 2);
        (plan.load.hot_locks, plan.load.cold_locks, plan.load.hot_percent) = (3, 12, 50);
        plan.load.max_locks = 2;
        plan.txns = TxnPlan {
            percent: 60,
            plain_percent: 60,
            locked_percent: 15,
            under_percent: 90,
            think: *rng.pick(&[20 * MS, 150 * MS]),
            ..plan.txns
        };
        plan
    }

    /// The same with values of thousands of elements, and registers of 64 KiB and more.
    pub(super) fn values(self) -> Plan {
        let mut plan = self.transactions();
        plan.txns = TxnPlan { wide_percent: 60, large_percent: 8, ..plan.txns };
        plan
    }

    pub(super) fn removals(mut self) -> Plan {
        self.load.concurrent = 3;
        self.load.think = 60 * MS;
        self.txns = TxnPlan { locked_percent: 5, remove_percent: 20, think: 100 * MS, ..TxnPlan::some() };
        self
    }

    pub(super) fn left_behind(mut self) -> Plan {
        self.faults = vec![
            (FaultKind::Isolate, 4_000 * MS),
            (FaultKind::CutPair, 3_000 * MS),
            (FaultKind::Crash, 5_000 * MS),
            (FaultKind::CrashAll, 9_000 * MS),
            (FaultKind::LinkReset, 1_000 * MS),
        ];
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay /= 8);
        self.net.reconnect = 30 * MS;
        self.down = 2_500 * MS;
        self.cut = 2_500 * MS;
        self.heartbeat = 100 * MS;
        self.peer_timeout = 600 * MS;
        self.disk.sync = 2 * MS;
        self.disk.slow_percent = 30;
        self.disk.slow = 150 * MS;
        self.disk.checkpoint_every = Some(1_500 * MS);
        self.load.concurrent = 3;
        self.load.hot_locks = 6;
        self.load.cold_locks = 20;
        self.load.hot_percent = 70;
        // A datacenter that was away still has room to commit when it is back, so its own entries are newer
        // than the state that it installs.
        self.max_log = 6_000;
        self.txns = TxnPlan { locked_percent: 30, ..TxnPlan::some() };
        self
    }
}
