//! Transactions of the load, and the events that the oracle gets from them.
//!
//! Keys come in pairs that are always changed together and in the same way: a reader that sees one of them
//! without the other saw a part of a commit.

use std::sync::Arc;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change};
use crate::crdt::VersionVector;
use crate::replica::call::store::{AtLeast, Durability, Read, Stepped, Then, TxnState};
use crate::replica::call::{Call, CallId, Grant, IdempotencyKey, SessionId};
use crate::sim::client::{Timer, TxnOrder, TxnStep, usable};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Asked, Guard, Holder, HolderId, TxnKey};
use crate::sim::plan::LARGE;
use crate::sim::world::{Action as Happens, World, wide};
use geolock_api::keys::Key;
use geolock_api::names::{DcId, FencingToken, RequestId};
use geolock_api::value::{Op, SetOp, Update};

/// Number of types of values that the load writes.
const TYPES: usize = 6;
/// Maximum number of steps of a transaction.
const MAX_STEPS: u64 = 3;

impl World {
    pub(super) fn act_in_transaction(&mut self, number: usize) {
        let waiting = self.clients[number].txns().keys().next().copied();
        if let Some(key) = waiting.filter(|_| self.chance.txns.percent(2)) {
            self.with_client(number, |client, _, out| client.repeat_begin(key, out));
        }
        if self.clients[number].txns().len() >= self.plan.load.concurrent {
            return;
        }
        let at_least = self.random_at_least(number);
        if self.chance.txns.percent(self.plan.txns.look_percent) {
            let read = Read { reads: self.random_reads(), at_least };
            return self.with_client(number, |client, _, out| client.read(read, out));
        }
        let order = self.random_transaction(number, at_least);
        let begun = self.with_client(number, |client, now, out| client.begin(now, order, out));
        if let Some(key) = begun.filter(|_| self.chance.txns.percent(self.plan.txns.give_up_percent)) {
            let at = self.now + self.chance.txns.around(Duration::from_millis(100));
            self.queue.push(at, Happens::Client { client: number, timer: Timer::GiveUp(key) });
        }
    }

    /// Returns an empty vector, the client's own last commit, or one that a client elsewhere passed on.
    fn random_at_least(&mut self, number: usize) -> AtLeast {
        let (plan, rng) = (&self.plan.txns, &mut self.chance.txns);
        let snapshot = match rng.percent(plan.at_least_percent) {
            false => VersionVector::default(),
            true if rng.percent(50) => self.clients[number].last_commit.clone(),
            true => rng.pick(&self.passed_on).clone(),
        };
        AtLeast { snapshot, patience: rng.around(plan.patience) }
    }

    fn random_transaction(&mut self, number: usize, at_least: AtLeast) -> TxnOrder {
        let dc = self.clients[number].dc;
        let locked = self.chance.txns.percent(self.plan.txns.locked_percent);
        let locks = locked.then(|| self.random_order(dc)).map(|order| (order.wants, order.wait));
        let (plan, rng) = (&self.plan.txns, &mut self.chance.txns);
        let count = if rng.percent(plan.interactive_percent) { rng.between(2, MAX_STEPS) } else { 1 };
        let read_only = rng.percent(plan.read_only_percent);
        let overflows = rng.percent(plan.overflow_percent);
        let end = if rng.percent(plan.abort_percent) { Then::Abort } else { Then::Commit };
        let long = rng.percent(plan.long_think_percent);
        let think = if long { self.plan.load.ttl.1 * 3 / 2 } else { rng.around(plan.think) };
        let durability = match self.chance.durability.percent(plan.majority_percent) {
            true => Durability::Majority { wait: self.chance.durability.around(plan.majority_wait) },
            false => Durability::Local,
        };
        // A member that joined or returned may be the only one in reach that has some entries, within its
        // state.
        let has_joiners = self.plan.founders < self.plan.dcs;
        let may_return =
            self.plan.returns && self.node(dc).inspect().is_none_or(|replica| replica.has_state());
        let may_be_replaced =
            self.plan.max_log < LARGE || self.plan.disk.is_copied || has_joiners || may_return;
        let max_open = plan.max_transaction;
        let mut steps: Vec<TxnStep> = (0..count)
            .map(|_| {
                let changes = if read_only { Vec::new() } else { self.random_changes() };
                TxnStep { changes, reads: self.random_reads() }
            })
            .collect();
        if overflows {
            // Twice: the first one alone is no overflow while the counter is below zero.
            let too_much = || change(&key(0, 0), Action::Update(Update::of(Op::Counter(i64::MAX))));
            steps = vec![TxnStep { changes: vec![too_much(), too_much()], reads: Vec::new() }];
        }
        if !overflows && self.chance.wide.percent(self.plan.txns.wide_percent) {
            let (plan, rng) = (&self.plan.txns, &mut self.chance.wide);
            wide::add_to(&mut steps, read_only, plan, rng);
        }
        let under = self.random_guards(number, locks.is_some());
        TxnOrder {
            locks,
            under,
            at_least,
            steps,
            end,
            durability,
            think,
            overflows,
            max_open,
            may_be_replaced,
        }
    }

    /// Returns some of the requests that the client holds.
    fn random_guards(&mut self, number: usize, has_locks: bool) -> Vec<Guard> {
        // A transaction that also waits for locks might wait for its own guard.
        if has_locks || !self.chance.guards.percent(self.plan.txns.under_percent) {
            return Vec::new();
        }
        let mut held = self.clients[number].held();
        let most = self.chance.guards.between(1, 2) as usize;
        while held.len() > most {
            held.swap_remove(self.chance.guards.index(held.len()));
        }
        held
    }

    fn random_reads(&mut self) -> Vec<Key> {
        let rng = &mut self.chance.txns;
        let pairs: Vec<usize> = (0..rng.below(3)).map(|_| rng.index(self.plan.txns.pairs)).collect();
        pairs.into_iter().flat_map(|pair| [key(pair, 0), key(pair, 1)]).collect()
    }

    /// Changes one or two pairs.
    fn random_changes(&mut self) -> Vec<Change> {
        let (plan, rng) = (&self.plan.txns, &mut self.chance.txns);
        let mut changes = Vec::new();
        for _ in 0..rng.between(1, 2) {
            let pair = rng.index(plan.pairs);
            self.values += 1;
            let action = match rng.percent(plan.remove_percent) {
                true => Action::Remove,
                false => Action::Update(Update::of(random_op(rng, pair, self.values, self.plan.founders))),
            };
            changes.extend([0, 1].map(|side| change(&key(pair, side), action.clone())));
            if rng.percent(plan.expire_percent) {
                let after = rng.around(plan.expire_after).as_millis().max(1) as u64;
                let expire = Action::Expire(
                    TimeToLive::from_millis(after).expect("the load waits for seconds at most"),
                );
                changes.extend([0, 1].map(|side| change(&key(pair, side), expire.clone())));
            }
        }
        changes
    }

    /// Checks that the guards of a transaction are held as it commits.
    pub(super) fn check_guards(&mut self, dc: DcId, txn: TxnKey) {
        let promises = &self.nodes[dc.index()].promises;
        let is_lost = |request: &RequestId| !promises.holds(*request) && !self.blind_grants.contains(request);
        let lost = self.txns.guards_of(txn).find(is_lost);
        if let Some(request) = lost {
            let what = format!("{dc} committed {txn:?} under {request}, which is not held any more");
            self.fail(FailureKind::GuardLost, what);
        }
    }

    /// A begin arrives at a server: notes the intent of its client.
    pub(super) fn note_begin(&mut self, session: SessionId, call: &Call) {
        let Call::Begin(begin) = call else { return };
        let Some(known) = self.sessions.get(&session) else { return };
        let txn = (begin.lease, begin.key);
        if let Some(intent) = self.clients[known.client].intent_of(txn) {
            self.txns.on_begin(txn, intent);
        }
    }

    /// Checks a server's answer to a step.
    pub(super) fn judge_step(&mut self, dc: DcId, call: CallId, client: usize, stepped: &Stepped) {
        let Some(asked) = self.clients[client].asked_step(call.tag) else { return };
        if self.control.evicted.contains(dc) {
            return;
        }
        if self.acts_blindly(dc) {
            if let Some(token) = stepped.token {
                self.blind_grants.insert(RequestId { dc, n: token.0 });
                self.clients[client].blind_grants.insert(token.0);
            }
            return;
        }
        let durable = &self.nodes[dc.index()].disk.facts.applied;
        let judged = self.txns.on_stepped(dc, durable, &asked, stepped);
        self.blame(judged);
        if let Some(txn) = asked.txn {
            self.judge_durability(dc, txn, stepped.durable);
        }
        let (Some((lease, key)), Some(token)) = (asked.txn, stepped.token) else { return };
        let Some(txn) = self.clients[client].txns().get(&key) else { return };
        let Some(wants) = txn.intent().wants else { return };
        let until = txn.issued + usable(txn.order.max_open);
        let members = self.members_on_disks();
        let node = &mut self.nodes[dc.index()];
        let judged = match stepped.state {
            TxnState::Open => {
                let asked = Asked { lease, key, wants: wants.locks() };
                node.forced.on_txn_open((lease, key), token);
                node.promises.on_txn_open(&node.disk, asked, token, until, members)
            }
            // Its locks may be elsewhere by now.
            TxnState::Committed(_) | TxnState::Aborted => {
                node.promises.on_token(&format_args!("transaction {key} of {lease}"), token)
            }
        };
        self.blame(judged);
    }

    /// A datacenter installs a state: the snapshots of its transactions are gone, so they are aborted and
    /// their locks are released. Their clients hear of it with their next calls, and cannot commit; a
    /// transaction holds its locks for its commit only.
    pub(super) fn end_txn_holds_at(&mut self, dc: DcId) {
        for number in 0..self.clients.len() {
            if self.clients[number].dc == dc {
                self.with_client(number, |client, _, out| client.end_txn_holds(out));
            }
        }
    }

    /// A client knows that its transaction holds its locks.
    pub(super) fn on_holds_in_txn(
        &mut self,
        client: usize,
        key: IdempotencyKey,
        token: FencingToken,
        snapshot: Arc<VersionVector>,
    ) {
        let known = &self.clients[client];
        let node = &self.nodes[known.dc.index()];
        let is_open = known.lease().is_none_or(|lease| node.promises.is_open((lease, key)));
        if !is_open || node.forced.is_final(token) {
            return;
        }
        let Some(wants) = known.txns().get(&key).and_then(|txn| txn.intent().wants) else { return };
        // Clients do not learn the request id of a transaction; its token is as unique.
        let request = RequestId { dc: known.dc, n: token.0 };
        let grant = Grant { request, token, snapshot };
        let wants = wants.locks().to_vec();
        let holder = Holder { id: HolderId { client, key }, dc: known.dc, wants, grant };
        self.begin_to_hold(&holder);
    }
}

/// Returns an operation on the type of a pair: one case for each type. `value` is unique.
fn random_op(rng: &mut Rng, pair: usize, value: u64, dcs: u8) -> Op {
    match pair % TYPES {
        0 => Op::Counter(rng.signed(9)),
        1 => Op::LwwRegister(value.to_string().into()),
        2 => Op::AddWinsSet(random_set_op(rng)),
        3 => Op::RemoveWinsSet(random_set_op(rng)),
        4 => {
            let done = rng.percent(20);
            Op::Versioned { version: value, value: value.to_string().into(), done }
        }
        _ if rng.percent(20) => {
            let to = DcId::new(rng.index(usize::from(dcs)) as u8).expect("a member");
            Op::TransferRights { to, amount: rng.between(1, 3) }
        }
        _ => Op::BoundedCounter(rng.between(0, 8) as i64 - 3),
    }
}

fn random_set_op(rng: &mut Rng) -> SetOp {
    let elements = (0..rng.between(1, 2)).map(|_| format!("e{}", rng.below(4)).into()).collect();
    if rng.percent(50) { SetOp::Add(elements) } else { SetOp::Remove(elements) }
}

/// Returns one key of a pair; the type follows from the pair.
fn key(pair: usize, side: usize) -> Key {
    Key::new(b"pairs", format!("{pair}{}", ["a", "b"][side]).as_bytes()).expect("a short name is a key")
}

fn change(key: &Key, action: Action) -> Change {
    Change { key: key.clone(), action }
}
