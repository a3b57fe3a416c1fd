//! Messages that a peer might send, valid or not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::choices::Choices;
use crate::base::time::{TimeToLive, Timestamp};
use crate::causal_log::{Action, Change, Commit, Entry, LockParts, Op, Wants};
use crate::crdt::VersionVector;
use crate::replica::call::HolderInfo;
use crate::replica::{Floor, Heartbeat, Message, NotServing, StatePiece, SumAt, Terms};
use crate::store_state::{BucketDigest, Digest};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, DcSet, FencingToken, LeaseId, LockName, Mode, RequestId};
use geolock_api::value::{
    FlagOp, MapOp, MapType, Op as ValueOp, PathStep, RegisterOp, ResettableCounterOp, SetOp, Update,
};

/// State of the receiver, so that not every forged message is refused at once.
pub(super) struct Known {
    pub cluster: ClusterId,
    pub members: u8,
    pub applied: VersionVector,
    /// The approximate reading of the clock.
    pub millis: u64,
    /// The approximate number of the next request.
    pub n: u64,
}

impl Known {
    pub fn message(&self, from: DcId, choices: &mut Choices<'_>) -> Message {
        match choices.below(19) {
            0 => Message::Heartbeat(Box::new(self.heartbeat(choices))),
            1 => Message::HeldBack { durable: self.vector(choices) },
            2 => Message::AskHolders { query: choices.number(1), locks: choices.many(3, lock) },
            3 => {
                let holders = choices.many(2, |choices| choices.many(2, |choices| self.holder(choices)));
                Message::Holders { query: choices.number(1), holders }
            }
            4 => {
                let sum = choices.one_in(2).then(|| choices.number(7).into());
                Message::Compare { durable: self.vector(choices), sum }
            }
            5 => Message::Digests { durable: self.vector(choices), digest: digest(choices) },
            6 => Message::AskRights { key: key(choices), amount: choices.number(1) },
            7 => Message::TooFarBehind { truncated: self.vector(choices) },
            8 => Message::AskState { anew: choices.one_in(2), more: choices.number(16) as u32 },
            9 | 10 => Message::State(self.piece(choices)),
            11 => {
                let (of, run) = (choices.dc(self.members), choices.number(1));
                Message::AskLog { of, run, round: choices.number(1) }
            }
            12 => {
                let (of, by, run) = (choices.dc(self.members), choices.dc(self.members), choices.number(1));
                let seq = self.vector(choices).get(of);
                Message::KnowsLog { of, run, by, seq }
            }
            16 => {
                let (millis, durable) = (choices.number(self.millis), self.vector(choices));
                Message::WallClock { millis, durable, heads: self.heads(choices) }
            }
            13 => {
                let mut sums = || choices.many(3, |choices| sum_at(choices));
                Message::Sums { shown: sums(), owned: sums() }
            }
            17 => Message::AckWanted { seq: self.vector(choices).get(choices.dc(self.members)) },
            18 => Message::Acknowledged { durable: self.vector(choices), heads: self.heads(choices) },
            _ => Message::Entries(self.entries(from, choices)),
        }
    }

    fn heartbeat(&self, choices: &mut Choices<'_>) -> Heartbeat {
        Heartbeat {
            clock: self.stamp(choices),
            durable: self.vector(choices),
            linked: self.dcs(choices),
            heard: choices.many(3, |choices| {
                (choices.dc(self.members), self.stamp(choices), choices.number(100) as u32)
            }),
            floors: choices.many(2, |choices| {
                let dc = choices.dc(self.members);
                Floor { dc, after: choices.number(self.applied.get(dc)), floor: self.vector(choices) }
            }),
            not_serving: choices.many(2, |choices| {
                let for_ms = choices.number(100) as u32;
                (choices.dc(self.members), NotServing::Grace { for_ms })
            }),
            terms: Terms { members: (0..self.members).filter_map(DcId::new).collect(), ..Terms::default() },
            acknowledged: choices.many(2, |choices| (choices.dc(self.members), self.vector(choices))),
            heads: self.heads(choices),
            fork: choices.one_in(255).then(|| (choices.dc(self.members), choices.number(1))),
            speaks: self.dcs(choices).iter().map(|dc| (dc, choices.below(5) as u16)).collect(),
            lead_ms: choices.number(1),
            yours: choices.one_in(2).then(|| (self.stamp(choices), choices.number(9))),
        }
    }

    fn heads(&self, choices: &mut Choices<'_>) -> Vec<(DcId, u64)> {
        choices.many(1, |choices| {
            let known = if choices.one_in(64) { choices.number(1) } else { 0 };
            (choices.dc(self.members), known)
        })
    }

    fn dcs(&self, choices: &mut Choices<'_>) -> DcSet {
        choices.many(3, |choices| choices.dc(self.members)).into_iter().collect()
    }

    fn stamp(&self, choices: &mut Choices<'_>) -> Timestamp {
        match choices.below(8) {
            0 => Timestamp::from_raw(choices.number(1)),
            1 => Timestamp::MAX,
            _ => Timestamp::from_raw((self.millis << 16).wrapping_add(choices.below(1 << 16) as u64)),
        }
    }

    /// Returns approximately the receiver's applied vector. Rarely it contains more of the receiver's own log
    /// than exists: the receiver believes that, and does nothing else until it gets those entries.
    fn vector(&self, choices: &mut Choices<'_>) -> VersionVector {
        if choices.one_in(2) {
            return self.applied.clone();
        }
        let members = (0..self.members).filter_map(DcId::new);
        let anything = choices.one_in(32);
        let mut number = |dc: DcId| match self.applied.get(dc) {
            own if dc.get() == 0 && !anything => choices.number(own).min(own),
            usual => choices.number(usual),
        };
        let mut vector: VersionVector = members.map(|dc| (dc, number(dc))).collect();
        if choices.one_in(16) {
            vector.raise(choices.dc(self.members), choices.number(1));
        }
        vector
    }

    fn request(&self, choices: &mut Choices<'_>, dc: DcId) -> RequestId {
        let dc = if choices.one_in(8) { choices.dc(self.members) } else { dc };
        RequestId { dc, n: choices.number(self.n) }
    }

    fn holder(&self, choices: &mut Choices<'_>) -> HolderInfo {
        let dc = choices.dc(self.members);
        HolderInfo {
            dc,
            request: self.request(choices, dc),
            mode: mode(choices),
            token: FencingToken(choices.number(9)),
            label: Arc::from("forged"),
            held_for: Duration::from_millis(choices.number(3)),
        }
    }

    /// Returns consecutive entries that look like the next ones.
    fn entries(&self, from: DcId, choices: &mut Choices<'_>) -> Vec<Arc<Entry>> {
        let (mut deps, dc) =
            (self.applied.clone(), if choices.one_in(4) { choices.dc(self.members) } else { from });
        choices.many(3, |choices| {
            let usual = deps.get(dc);
            let seq = match choices.number(usual.saturating_add(1)) {
                // Rarely another entry under a used number: after that nothing else happens.
                seq if seq <= usual && !choices.one_in(32) => usual.saturating_add(1),
                seq => seq,
            };
            let told = if choices.one_in(8) { self.vector(choices) } else { deps.clone() };
            deps.raise(dc, seq);
            Arc::new(Entry {
                cluster: if choices.one_in(64) { ClusterId::from_raw(1) } else { self.cluster },
                epoch: u64::from(choices.one_in(64)),
                prev: if choices.one_in(64) { choices.number(1) } else { 0 },
                lead_ms: if choices.one_in(16) { choices.number(1) } else { 0 },
                dc,
                seq,
                at: Timestamp::from_raw((self.millis << 16).wrapping_add(choices.number(seq))),
                ops: choices.many(3, |choices| self.op(dc, &told, choices)),
                deps: told,
            })
        })
    }

    fn op(&self, dc: DcId, seen: &VersionVector, choices: &mut Choices<'_>) -> Op {
        match choices.below(4) {
            0 => {
                let (id, at) = (self.request(choices, dc), self.stamp(choices));
                Op::Request { id, at, wants: Wants::All(wants(choices)) }
            }
            1 => Op::Withdraw { id: self.request(choices, dc) },
            2 => {
                let to = choices.dc(self.members);
                let parts = choices.many(2, |choices| LockParts {
                    lock: lock(choices),
                    parts: choices.many(2, |choices| {
                        let part = if choices.one_in(3) { choices.dc(self.members) } else { dc };
                        (part, choices.number(1))
                    }),
                });
                Op::Transfer { to, parts }
            }
            _ => Op::Commit(Commit {
                seen: if choices.one_in(4) { self.vector(choices) } else { seen.clone() },
                client: choices
                    .one_in(2)
                    .then(|| (LeaseId::from_raw(choices.number(1 << 8)), choices.number(1))),
                changes: choices.many(4, |choices| change(self.members, choices)),
            }),
        }
    }

    fn piece(&self, choices: &mut Choices<'_>) -> StatePiece {
        let items = crate::replica::fuzz::StateBytes::new();
        let mut items = items.head(self.vector(choices), &[self.stamp(choices), self.stamp(choices)]);
        for _ in 0..choices.below(4) {
            items = match choices.below(4) {
                0 => {
                    let (lock, part) = (lock(choices), choices.dc(self.members));
                    items.part(lock, part, choices.dc(self.members), choices.number(1) & (u64::MAX >> 8))
                }
                1 => {
                    let dc = choices.dc(self.members);
                    let (id, at) = (self.request(choices, dc), self.stamp(choices));
                    items.request(id, at, wants(choices), choices.number(1))
                }
                2 => items.raw(choices.bytes(40)),
                _ => {
                    let (dc, seq) = (choices.dc(self.members), choices.number(1));
                    let seen = self.vector(choices);
                    let changes = choices.many(3, |choices| change(self.members, choices));
                    let changes: Vec<Action> =
                        changes.into_iter().filter(is_valid).map(|change| change.action).collect();
                    items.key(key(choices), (dc, seq), &seen, self.stamp(choices), &changes)
                }
            };
        }
        StatePiece { number: choices.number(0), bytes: items.finish(), last: !choices.one_in(4) }
    }
}

/// A plain or homed name; the home may be no member.
pub(super) fn lock(choices: &mut Choices<'_>) -> LockName {
    let dc = DcId::new;
    let (home, bytes) = choices.pick(&[
        (None, b"a"),
        (None, b"b"),
        (None, b"c"),
        (dc(0), b"a"),
        (dc(1), b"a"),
        (dc(2), b"b"),
        (dc(9), b"c"),
    ]);
    LockName::with_home(home, bytes).expect("a short name")
}

pub(super) fn key(choices: &mut Choices<'_>) -> Key {
    Key::new(b"b", choices.pick(&[b"k", b"l", b"m"])).expect("a short name")
}

pub(super) fn mode(choices: &mut Choices<'_>) -> Mode {
    choices.pick(&[Mode::Exclusive, Mode::Shared])
}

/// Sorted and distinct most of the time.
fn wants(choices: &mut Choices<'_>) -> Vec<(LockName, Mode)> {
    let mut wants = choices.many(3, |choices| (lock(choices), mode(choices)));
    if !choices.one_in(8) {
        wants.sort();
        wants.dedup_by(|a, b| a.0 == b.0);
    }
    wants
}

fn sum_at(choices: &mut Choices<'_>) -> SumAt {
    SumAt { vector: choices.number(1).into(), sum: choices.number(1).into() }
}

fn digest(choices: &mut Choices<'_>) -> Digest {
    let bucket = |choices: &mut Choices<'_>| BucketDigest {
        bucket: Arc::from(&choices.pick(&[b"b", b"c"])[..]),
        sum: choices.number(1).into(),
    };
    Digest(choices.many(3, bucket))
}

pub(super) fn change(members: u8, choices: &mut Choices<'_>) -> Change {
    let action = match choices.below(8) {
        0 => Action::Remove,
        1 => Action::Expired,
        2 => Action::Expire(
            TimeToLive::from_millis(choices.number(500).clamp(1, TimeToLive::MAX_MILLIS)).expect("in bounds"),
        ),
        _ => Action::Update(Update { path: choices.many(2, step), op: value_op(members, choices) }),
    };
    Change { key: key(choices), action }
}

/// Returns true if some value could be changed like that.
pub(super) fn is_valid(change: &Change) -> bool {
    match &change.action {
        Action::Update(update) => update.validate().is_ok(),
        _ => true,
    }
}

fn step(choices: &mut Choices<'_>) -> PathStep {
    let map = choices.pick(&[MapType::GrowOnly, MapType::Resettable]);
    PathStep { map, field: element(choices) }
}

fn element(choices: &mut Choices<'_>) -> Bytes {
    Bytes::from_static(choices.pick(&[b"x", b"y", b"z"]))
}

fn value_op(members: u8, choices: &mut Choices<'_>) -> ValueOp {
    let elements = |choices: &mut Choices<'_>| choices.many(3, element);
    let set = |choices: &mut Choices<'_>| match choices.below(3) {
        0 => SetOp::Add(elements(choices)),
        1 => SetOp::Remove(elements(choices)),
        _ => SetOp::Reset,
    };
    let flag = |choices: &mut Choices<'_>| match choices.below(3) {
        0 => FlagOp::Enable,
        1 => FlagOp::Disable,
        _ => FlagOp::Reset,
    };
    // Often of the same type, or clients would rarely be admitted.
    if choices.one_in(2) {
        return ValueOp::Counter(choices.number(1) as i64);
    }
    match choices.below(15) {
        0 => ValueOp::Counter(choices.number(1) as i64),
        1 => ValueOp::ResettableCounter(ResettableCounterOp::Add(choices.number(1) as i64)),
        2 => ValueOp::ResettableCounter(ResettableCounterOp::Reset),
        3 | 4 => ValueOp::BoundedCounter(choices.number(5) as i64),
        5 => ValueOp::TransferRights { to: choices.dc(members), amount: choices.number(1) },
        6 => ValueOp::LwwRegister(element(choices)),
        7 => ValueOp::MvRegister(RegisterOp::Assign(element(choices))),
        8 => ValueOp::MvRegister(RegisterOp::Reset),
        9 => ValueOp::Versioned {
            version: choices.number(1),
            value: element(choices),
            done: choices.one_in(3),
        },
        10 => ValueOp::AddWinsSet(set(choices)),
        11 => ValueOp::RemoveWinsSet(set(choices)),
        12 => ValueOp::GrowOnlySet(elements(choices)),
        13 if choices.one_in(2) => ValueOp::EnableWinsFlag(flag(choices)),
        13 => ValueOp::DisableWinsFlag(flag(choices)),
        _ if choices.one_in(2) => ValueOp::ResettableMap(MapOp::Remove(elements(choices))),
        _ => ValueOp::ResettableMap(MapOp::Reset),
    }
}
