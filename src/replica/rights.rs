//! Rights of bounded counters move to where they are wanted.
//!
//! A datacenter that may not take away as much as a client asked for refuses, and asks the one that has most of the
//! rights for some of them, outside the log; what comes is a commit that moves them, in the log. The client tries again.

use super::Replica;
use super::message::Message;
use crate::causal_log::{Action, Change, Commit, Op};
use crate::crdt::value::{self, OpError, Update};
use crate::keys::Key;
use crate::names::DcId;
use crate::store_state::ChangeError;

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
        if let Some((peer, _)) = most {
            self.send(peer, Message::AskRights { key: refused.key.clone(), amount: asked - rights });
        }
    }

    /// A peer wants rights: it gets what it asks for or half of what is here, whichever is more, if there is that much.
    pub(super) fn on_ask_rights(&mut self, peer: DcId, key: Key, amount: u64) {
        let me = self.config.dc;
        let rights = self.store.rights(&key).into_iter().find(|(dc, _)| *dc == me);
        let amount = rights.map_or(0, |(_, rights)| amount.max(rights / 2).min(rights));
        if amount == 0 || self.can_commit().is_err() {
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
