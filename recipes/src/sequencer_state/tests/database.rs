//! A node's own database: its rows outlive the process.

use std::collections::BTreeMap;

use super::super::events::{End, Grant, Record, Restored};
use super::super::words::{Intent, IntentId, Node, Notice, Transaction};

#[derive(Default)]
pub struct Database {
    pub intents: Vec<Intent>,
    pub grants: Vec<Grant>,
    pub notices: Vec<(Node, Notice)>,
    pub dispatches: BTreeMap<u64, Transaction>,
    pub last_nonce: u64,
    pub ended: BTreeMap<IntentId, End>,
}

impl Database {
    pub fn write(&mut self, record: Record) {
        match record {
            Record::Owner(_) => {}
            Record::Intent(intent) => self.intents.push(intent),
            Record::Grant(grant) => self.grants.push(grant),
            Record::Dispatch(transaction) => {
                self.last_nonce = self.last_nonce.max(transaction.nonce);
                self.dispatches.insert(transaction.nonce, transaction);
            }
            Record::DispatchOver { nonce } => {
                self.dispatches.remove(&nonce);
            }
            Record::Notice { signer, notice } => self.notices.push((signer, notice)),
            Record::Ended { intent, end } => {
                self.intents.retain(|it| it.id != intent);
                self.grants.retain(|it| it.intent != intent);
                self.notices.retain(|(_, it)| it.intent != intent);
                self.ended.insert(intent, end);
            }
        }
    }

    pub fn restore(&self) -> Restored {
        Restored {
            owner: None,
            intents: self.intents.clone(),
            grants: self.grants.clone(),
            notices: self.notices.clone(),
            dispatches: self.dispatches.values().cloned().collect(),
            last_nonce: self.last_nonce,
        }
    }
}
