//! Calls that a client might make: only those that the API passes on.

use std::sync::Arc;
use std::time::Duration;

use super::choices::Choices;
use super::forge::{change, is_valid, key, lock, mode};
use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::leases::{ClientId, OnDisconnect, Proof};
use crate::replica::Event;
use crate::replica::call::store::{AtLeast, Begin, Durability, NextStep, Read, Step, Then};
use crate::replica::call::watch::{Pattern, Subject, Watch};
use crate::replica::call::{
    Acquire, AcquireEnough, Amend, AnyOf, Call, CallId, Downgrade, ListCursor, LockRequest, Reclaim, Target,
    Wait,
};
use crate::replica::force_release::ForceRelease;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, FencingToken, ForceReason, LeaseId, RequestId, Secret};

/// The secret of all leases here.
pub(super) const SECRET: Secret = Secret::new([7; 16]);

/// Returns the event of a call. Each session is one of another client.
pub(super) fn by_client(call: CallId, request: Call) -> Event {
    Event::Client { call, client: ClientId(1 + call.session.0), request }
}

/// The state of a client of a datacenter.
#[derive(Default)]
pub(super) struct Client {
    pub leases: Vec<LeaseId>,
    pub granted: Vec<(RequestId, FencingToken)>,
    pub applied: VersionVector,
}

impl Client {
    /// Returns a call. `tag` is above all before, so it is also a valid key.
    pub fn call(&self, members: u8, tag: u64, choices: &mut Choices<'_>) -> Call {
        let (lease, proof) = (self.lease(choices), proof(choices));
        match choices.below(22) {
            0 => {
                let on_disconnect = choices.pick(&[OnDisconnect::Keep, OnDisconnect::Release]);
                Call::OpenLease { secret: SECRET, ttl: Some(millis(choices, 5_000)), on_disconnect }
            }
            1 => Call::AttachLease { lease, secret: SECRET },
            2 => Call::KeepAlive { lease, proof },
            3 => Call::CloseLease { lease, proof },
            7 if choices.one_in(2) => enough(lease, proof, tag, choices),
            4..=7 => Call::Acquire(Acquire {
                lease,
                proof,
                key: choices.one_in(2).then(|| choices.number(tag)),
                request: LockRequest { wants: wants(choices), wait: wait(choices), label: Arc::from("fuzz") },
            }),
            10 if choices.one_in(2) => Call::Amend(Box::new(Amend {
                lease,
                proof,
                key: choices.number(tag),
                revision: choices.number(1),
                add: choices.many(3, |choices| (lock(choices), choices.number(3))),
                drop: choices.many(3, lock),
            })),
            9 if choices.one_in(3) => {
                Call::Downgrade(Downgrade { lease, proof, target: self.target(choices), lock: lock(choices) })
            }
            8 | 9 => Call::Release { lease, proof, target: self.target(choices) },
            10 => Call::Cancel { lease, proof, target: self.target(choices) },
            11 => Call::Reclaim { lease, proof, held: choices.many(3, |choices| self.reclaim(choices)) },
            12 => Call::Describe { lock: lock(choices) },
            13 => {
                let cursor = ListCursor(choices.number(0));
                Call::List {
                    prefix: choices.pick(&[&b""[..], b"a"]).to_vec(),
                    cursor,
                    limit: choices.below(4),
                }
            }
            17 if choices.one_in(4) => list_keys(choices),
            14 | 15 => Call::Begin(Begin {
                lease,
                proof,
                key: choices.number(tag),
                locks: choices.one_in(4).then(|| LockRequest {
                    wants: wants(choices),
                    wait: wait(choices),
                    label: Arc::from("fuzz"),
                }),
                at_least: self.at_least(choices),
                acknowledged_through: choices.number(1),
                step: step(members, choices),
                under: Vec::new(),
            }),
            16 => {
                let (key, after) = (choices.number(tag - 1), choices.number(1) as usize);
                Call::Step(NextStep { lease, proof, key, after, step: step(members, choices) })
            }
            17 => Call::Read(Read { reads: choices.many(3, key), at_least: self.at_least(choices) }),
            18 => Call::Watch(self.watch(choices)),
            19 => {
                let reason = ForceReason::new("it hangs").expect("a short reason");
                Call::ForceRelease(ForceRelease { lock: lock(choices), operator: Arc::from("fuzz"), reason })
            }
            20 if choices.one_in(2) => Call::Audit,
            20 => Call::Top { prefix: choices.pick(&[&b""[..], b"a"]).to_vec(), limit: choices.below(4) },
            _ if choices.one_in(2) => Call::Unwatch { watch: choices.number(1) },
            _ => Call::WatchTaken { watch: choices.number(1), weight: choices.number(100) as usize },
        }
    }

    fn lease(&self, choices: &mut Choices<'_>) -> LeaseId {
        match choices.below(8) {
            0 => LeaseId::from_raw(choices.number(1 << 8)),
            _ if self.leases.is_empty() => LeaseId::from_raw(1 << 8),
            _ => choices.pick(&self.leases),
        }
    }

    fn request(&self, choices: &mut Choices<'_>) -> (RequestId, FencingToken) {
        match choices.below(8) {
            0 => {
                let id = RequestId { dc: choices.dc(3), n: choices.number(2) };
                (id, FencingToken(choices.number(1)))
            }
            _ if self.granted.is_empty() => {
                let dc = DcId::new(0).expect("a small id");
                (RequestId { dc, n: 1 }, FencingToken(1))
            }
            _ => choices.pick(&self.granted),
        }
    }

    fn target(&self, choices: &mut Choices<'_>) -> Target {
        if choices.one_in(3) { Target::Key(choices.number(3)) } else { Target::Id(self.request(choices).0) }
    }

    fn reclaim(&self, choices: &mut Choices<'_>) -> Reclaim {
        let (request, token) = self.request(choices);
        let key = choices.one_in(2).then(|| choices.number(3));
        Reclaim { request, key, wants: wants(choices), token, label: Arc::from("fuzz") }
    }

    fn at_least(&self, choices: &mut Choices<'_>) -> AtLeast {
        if !choices.one_in(4) {
            return AtLeast::default();
        }
        AtLeast { snapshot: self.vector(choices), patience: millis(choices, 100) }
    }

    fn vector(&self, choices: &mut Choices<'_>) -> VersionVector {
        let known = (0..3).filter_map(DcId::new);
        known.map(|dc| (dc, choices.number(self.applied.get(dc)))).collect()
    }

    fn watch(&self, choices: &mut Choices<'_>) -> Watch {
        let subject = choices.pick(&[Subject::Keys, Subject::Locks]);
        let pattern = |choices: &mut Choices<'_>| match subject {
            Subject::Keys if choices.one_in(2) => Pattern::key(&key(choices)),
            Subject::Keys => Pattern::keys(b"b", b"").expect("a short bucket"),
            Subject::Locks if choices.one_in(2) => Pattern::lock(&lock(choices)),
            Subject::Locks => Pattern::locks(b"").expect("an empty prefix"),
        };
        let patterns = choices.many(3, pattern);
        Watch { subject, patterns, from: choices.one_in(2).then(|| self.vector(choices)) }
    }
}

fn proof(choices: &mut Choices<'_>) -> Proof {
    match choices.below(8) {
        0 => Proof::Attached,
        1 => Proof::Secret(Secret::new([8; 16])),
        _ => Proof::Secret(SECRET),
    }
}

fn millis(choices: &mut Choices<'_>, usual: u64) -> Duration {
    Duration::from_millis(choices.number(usual))
}

fn wait(choices: &mut Choices<'_>) -> Wait {
    match choices.below(3) {
        0 => Wait::Try,
        1 => Wait::AtMost(millis(choices, 200)),
        _ => Wait::Forever,
    }
}

fn wants(choices: &mut Choices<'_>) -> Wants {
    let mut locks = choices.many(2, |choices| (lock(choices), mode(choices)));
    locks.push((lock(choices), mode(choices)));
    Wants::all(locks).expect("one to three short names")
}

fn step(members: u8, choices: &mut Choices<'_>) -> Step {
    Step {
        // The API passes on no others.
        changes: choices.many(1, |choices| change(members, choices)).into_iter().filter(is_valid).collect(),
        reads: choices.many(3, key),
        then: choices.pick(&[Then::Commit, Then::Commit, Then::Continue, Then::Abort]),
        durability: match choices.one_in(3) {
            true => Durability::Majority { wait: millis(choices, 2_000) },
            false => Durability::Local,
        },
    }
}

/// A request for enough of some locks; if that cannot be, a renewal.
fn enough(lease: LeaseId, proof: Proof, tag: u64, choices: &mut Choices<'_>) -> Call {
    let key = choices.one_in(2).then(|| choices.number(tag));
    let candidates = choices.many(5, |choices| (lock(choices), choices.number(3)));
    match AnyOf::new(choices.number(6), choices.below(4) as u32, candidates) {
        Ok(of) => {
            let (of, wait, label) = (Arc::new(of), wait(choices), Arc::from("fuzz"));
            Call::AcquireEnough(Box::new(AcquireEnough {
                lease,
                proof,
                key,
                of,
                revision: choices.below(3) as u64,
                wait,
                label,
            }))
        }
        Err(_) => Call::KeepAlive { lease, proof },
    }
}

fn list_keys(choices: &mut Choices<'_>) -> Call {
    let prefix = Key::prefix_bytes(b"b", choices.pick(&[&b""[..], b"a"])).expect("short names");
    Call::ListKeys { prefix, cursor: ListCursor(choices.number(0)), limit: choices.below(4) }
}
