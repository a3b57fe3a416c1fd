//! Counter escrow: rights of bounded counters move to the datacenter that needs them
//! (`docs/algorithm.md#76-the-store`).
//!
//! A datacenter whose rights do not cover a decrement refuses it, and asks the linked member with most rights
//! for some, outside the log. They come as a commit in the log. The client tries again.

use std::collections::BTreeMap;

use super::message::Message;
use super::transactions::{TxnCalls, can_commit};
use super::writer::Writer;
use crate::base::time::Instant;
use crate::causal_log::{Action, Change, Commit, Op};
use crate::store_state::ChangeError;
use geolock_api::keys::Key;
use geolock_api::names::DcId;
use geolock_api::value::{self, OpError, Update};

/// Most keys with remembered queries; beyond that, all are forgotten and asked for again.
const MOST_ASKED: usize = 1_024;

/// Rights that were asked for and have not come.
#[derive(Default)]
pub(super) struct CounterEscrow {
    asked: BTreeMap<Key, Asked>,
}

struct Asked {
    peer: DcId,
    amount: u64,
    /// From then on they are asked for again.
    until: Instant,
}

impl CounterEscrow {
    /// Returns true if a query for at least this amount is in progress, so that clients that need rights at
    /// once cause one query.
    fn is_under_way(&self, key: &Key, peer: DcId, amount: u64, now: Instant) -> bool {
        let asked = self.asked.get(key);
        asked.is_some_and(|asked| asked.peer == peer && asked.amount >= amount && now < asked.until)
    }

    fn note_asked(&mut self, key: &Key, asked: Asked) {
        if self.asked.len() >= MOST_ASKED {
            self.asked.clear();
        }
        self.asked.insert(key.clone(), asked);
    }

    /// A commit of another datacenter is applied.
    #[inline]
    pub fn note_commit(&mut self, commit: &Commit) {
        if self.asked.is_empty() {
            return;
        }
        for change in &commit.changes {
            // The rights have changed, wherever they went.
            if let Action::Update(update) = &change.action
                && matches!(update.op, value::Op::TransferRights { .. })
            {
                self.asked.remove(&change.key);
            }
        }
    }

    /// Queries on a lost link may never have arrived.
    pub fn link_down(&mut self, peer: DcId) {
        self.asked.retain(|_, asked| asked.peer != peer);
    }
}

impl TxnCalls<'_> {
    /// A change was refused; if it lacked rights, some are asked for.
    pub(super) fn ask_for_rights(&mut self, refused: &ChangeError) {
        let OpError::InsufficientRights { asked, rights } = refused.error else { return };
        let linked = self.log.linked();
        let most = self
            .data
            .store
            .rights(&refused.key)
            .into_iter()
            .filter(|(dc, _)| linked.contains(*dc))
            .max_by_key(|(_, rights)| *rights);
        let Some((peer, _)) = most else { return };
        let (amount, now) = (asked - rights, self.now.mono);
        if !self.data.counter_escrow.is_under_way(&refused.key, peer, amount, now) {
            let until = now + self.config.agreed.heartbeat;
            self.data.counter_escrow.note_asked(&refused.key, Asked { peer, amount, until });
            self.out.send(self.log, peer, Message::AskRights { key: refused.key.clone(), amount });
        }
    }
}

impl Writer<'_> {
    /// A peer wants rights: it gets the amount or half of the rights here, whichever is more, but at most
    /// all.
    pub(super) fn on_ask_rights(&mut self, peer: DcId, key: Key, amount: u64) {
        let me = self.config.dc;
        let rights = self.data.store.rights(&key).into_iter().find(|(dc, _)| *dc == me);
        let amount = rights.map_or(0, |(_, rights)| amount.max(rights / 2).min(rights));
        // While entries are being regained, the commit would have seen less than other members rely on.
        if amount == 0 || can_commit(self.lifecycle).is_err() || self.out.is_regaining() {
            return;
        }
        let action = Action::Update(Update::of(value::Op::TransferRights { to: peer, amount }));
        let seen = (**self.log.durable()).clone();
        self.make_entry(vec![Op::Commit(Commit {
            seen,
            client: None,
            changes: vec![Change { key, action }],
        })]);
        self.out.counts.rights_transferred += 1;
    }
}
