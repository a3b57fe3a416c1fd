//! Helpers of stories about data: short constructors of changes, steps and readings.

use std::sync::Arc;

use super::cluster::{Cluster, SECRET, name};
use crate::causal_log::{Action, Change, Wants};
use crate::crdt::VersionVector;
use crate::leases::Proof;
use crate::replica::call::store::{
    AtLeast, Begin, Durability, NextStep, Read, Step, Stepped, Then, TxnRefusal, TxnState,
};
use crate::replica::call::{Call, LockRequest, Refusal, Reply, Wait};
use geolock_api::keys::Key;
use geolock_api::names::{LeaseId, Mode};
use geolock_api::value::{Op, Reading, Update};

pub fn key(name: &str) -> Key {
    Key::new(b"b", name.as_bytes()).expect("a story uses valid keys")
}

pub fn change(name: &str, op: Op) -> Change {
    Change { key: key(name), action: Action::Update(Update::of(op)) }
}

pub fn add(name: &str, amount: i64) -> Change {
    change(name, Op::Counter(amount))
}

pub fn put(name: &str, value: &str) -> Change {
    change(name, Op::LwwRegister(value.to_owned().into()))
}

pub fn step(changes: Vec<Change>, reads: &[&str], then: Then) -> Step {
    Step { changes, reads: reads.iter().map(|name| key(name)).collect(), then, durability: Durability::Local }
}

/// A begin without locks, by a client that proves its lease with the secret.
pub fn begin_elsewhere(lease: LeaseId, step: Step) -> Begin {
    Begin {
        lease,
        proof: Proof::Secret(SECRET),
        key: 1,
        locks: None,
        at_least: AtLeast::default(),
        acknowledged_through: 0,
        step,
        under: Vec::new(),
    }
}

impl Cluster {
    pub fn begin(&mut self, id: u8, key: u64, lock: Option<&str>, step: Step) -> u64 {
        self.begin_after(id, key, lock, AtLeast::default(), step)
    }

    pub fn begin_after(
        &mut self,
        id: u8,
        key: u64,
        lock: Option<&str>,
        at_least: AtLeast,
        step: Step,
    ) -> u64 {
        let wants = |lock| Wants::all(vec![(name(lock), Mode::Exclusive)]).expect("one lock is fine");
        let locks = lock.map(|lock| LockRequest {
            wants: wants(lock),
            wait: Wait::Forever,
            label: Arc::from("a story"),
        });
        let (lease, proof) = (self.lease(id), Proof::Attached);
        self.call(
            id,
            Call::Begin(Begin {
                lease,
                proof,
                key,
                locks,
                at_least,
                acknowledged_through: 0,
                step,
                under: Vec::new(),
            }),
        )
    }

    pub fn next_step(&mut self, id: u8, key: u64, step: Step) -> u64 {
        let (lease, proof) = (self.lease(id), Proof::Attached);
        self.call(id, Call::Step(NextStep { lease, proof, key, after: 0, step }))
    }

    pub fn read(&mut self, id: u8, names: &[&str], at_least: AtLeast) -> u64 {
        let reads = names.iter().map(|name| key(name)).collect();
        self.call(id, Call::Read(Read { reads, at_least }))
    }

    pub fn stepped(&self, id: u8, tag: u64) -> Stepped {
        match self.reply(id, tag) {
            Some(Reply::Stepped(stepped)) => *stepped,
            other => panic!("call {tag} at dc{id} is no step but {other:?}"),
        }
    }

    pub fn committed(&self, id: u8, tag: u64) -> VersionVector {
        match self.stepped(id, tag).state {
            TxnState::Committed(vector) => (*vector).clone(),
            other => panic!("call {tag} at dc{id} is not committed but {other:?}"),
        }
    }

    /// Returns the value of a key at the durable vector of a datacenter.
    pub fn reads(&mut self, id: u8, name: &str) -> Option<Reading> {
        let tag = self.read(id, &[name], AtLeast::default());
        self.stepped(id, tag).readings().remove(0)
    }

    pub fn txn_refused(&self, id: u8, tag: u64) -> TxnRefusal {
        match self.refused(id, tag) {
            Refusal::Transaction(refusal) => refusal,
            other => panic!("call {tag} at dc{id} is not refused as a transaction but {other:?}"),
        }
    }
}

pub fn counted(count: i64) -> Option<Reading> {
    Some(Reading::Counter(count))
}

pub fn written(value: &str) -> Option<Reading> {
    Some(Reading::LwwRegister(Some(value.to_owned().into())))
}
