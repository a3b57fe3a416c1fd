//! Rights of bounded counters move to where they are wanted.
//!
//! A datacenter that may not take away as much as a client asked for refuses, and asks the one that has most of the
//! rights for some of them, outside the log; what comes is a commit that moves them, in the log. The client tries again.

use std::collections::BTreeMap;

use super::Replica;
use super::message::Message;
use crate::causal_log::{Action, Change, Commit, Op};
use crate::crdt::value::{self, OpError, Update};
use crate::keys::Key;
use crate::names::DcId;
use crate::store_state::ChangeError;
use crate::time::Instant;

/// Keys for which it is remembered that rights are on their way, at most; beyond, all are asked for anew.
const MOST_ASKED: usize = 1_024;

/// Rights that were asked for and have not come.
#[derive(Default)]
pub(super) struct Rights {
    asked: BTreeMap<Key, Asked>,
}

struct Asked {
    peer: DcId,
    amount: u64,
    /// From then on they are asked for again.
    until: Instant,
}

impl Rights {
    /// Clients that want the same at once ask as one, as long as none of them wants more.
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
            // Whoever they go to, there are other rights now.
            if let Action::Update(update) = &change.action
                && matches!(update.op, value::Op::MoveRights { .. })
            {
                self.asked.remove(&change.key);
            }
        }
    }

    /// What was asked on a link that is gone may never have arrived.
    pub fn link_down(&mut self, peer: DcId) {
        self.asked.retain(|_, asked| asked.peer != peer);
    }
}

impl Replica {
    /// A change was refused; if it was for want of rights, some are asked for.
    pub(super) fn ask_for_rights(&mut self, refused: &ChangeError) {
        let OpError::NoRights { asked, rights } = refused.error else { return };
        let linked = self.log.linked();
        let most = self
            .store
            .rights(&refused.key)
            .into_iter()
            .filter(|(dc, _)| linked.contains(*dc))
            .max_by_key(|(_, rights)| *rights);
        let Some((peer, _)) = most else { return };
        let (amount, now) = (asked - rights, self.now.mono);
        if !self.rights.is_under_way(&refused.key, peer, amount, now) {
            let until = now + self.config.agreed.heartbeat;
            self.rights.note_asked(&refused.key, Asked { peer, amount, until });
            self.send(peer, Message::AskRights { key: refused.key.clone(), amount });
        }
    }

    /// A peer wants rights: it gets what it asks for or half of what is here, whichever is more, if there is that much.
    pub(super) fn on_ask_rights(&mut self, peer: DcId, key: Key, amount: u64) {
        let me = self.config.dc;
        let rights = self.store.rights(&key).into_iter().find(|(dc, _)| *dc == me);
        let amount = rights.map_or(0, |(_, rights)| amount.max(rights / 2).min(rights));
        // While something is regained the commit would have seen less than what others rely on.
        if amount == 0 || self.can_commit().is_err() || self.is_regaining() {
            return;
        }
        let action = Action::Update(Update::of(value::Op::MoveRights { to: peer, amount }));
        let seen = (**self.log.durable()).clone();
        self.make_entry(vec![Op::Commit(Commit {
            seen,
            client: None,
            changes: vec![Change { key, action }],
        })]);
        self.counts.rights_moved += 1;
    }
}
