//! Counter escrow: rights of bounded counters move to the datacenter that needs them
//! (`docs/algorithm/log.md#27-the-store`).
//!
//! A datacenter whose rights do not cover a decrement refuses it, and asks the linked member with most rights
//! for some, outside the log. They come as a commit in the log. The client tries again.

use std::collections::BTreeMap;
use std::slice;

use super::transactions::{TxnCalls, can_commit};
use crate::base::time::Instant;
use crate::causal_log::{Action, Change, Commit, Op};
use crate::replica::message::Message;
use crate::replica::writer::Writer;
use crate::store_state::ChangeError;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, Position};
use geolock_api::value::{self, OpError, Update};

/// Most keys with remembered queries; beyond that, all are forgotten and asked for again.
const MOST_ASKED: usize = 1_024;
/// Most keys that one step examines for rights that have to be handed over.
const EXAMINED_PER_STEP: usize = 512;

/// Rights that were asked for and have not come.
#[derive(Default)]
pub(in crate::replica) struct CounterEscrow {
    asked: BTreeMap<Key, Asked>,
    /// This datacenter leaves, and hands its rights over.
    handing: Option<Handing>,
}

/// A walk over all keys, by which rights are handed over.
#[derive(Clone, Copy)]
struct Handing {
    next: usize,
    /// Rights were found in this walk, so there is another one: keys may have changed their places.
    found: bool,
    /// The walk begins once the journal is durable up to here: the walk before could not hand over rights to
    /// counters of which this datacenter had less on disk than it had applied.
    begins_at: Position,
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
        assert!(self.asked.len() <= MOST_ASKED, "rights of {} keys were asked for", self.asked.len());
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

    /// Returns true if the next step continues to hand rights over. `durable`: the end of the journal on
    /// disk.
    #[inline]
    pub fn is_handing(&self, durable: Position) -> bool {
        self.handing.is_some_and(|handing| handing.begins_at <= durable)
    }

    /// The next walk begins anew.
    pub fn stop_handing(&mut self) {
        self.handing = None;
    }

    /// Queries on a lost link may never have arrived.
    pub fn link_down(&mut self, peer: DcId) {
        self.asked.retain(|_, asked| asked.peer != peer);
    }
}

impl TxnCalls<'_> {
    /// A change was refused; if it lacked rights, some are asked for.
    pub(in crate::replica) fn ask_for_rights(&mut self, refused: &ChangeError) {
        let OpError::InsufficientRights { asked, rights } = refused.error else { return };
        let linked = self.log.peers().linked();
        let most = self
            .data
            .store
            .rights(&refused.key)
            .into_iter()
            .filter(|(dc, _)| linked.contains(*dc))
            .max_by_key(|(_, rights)| *rights);
        let Some((peer, _)) = most else { return };
        assert!(asked > rights, "{rights} rights of {:?} cover {asked}", refused.key);
        assert!(peer != self.config.dc, "rights of {:?} are asked for elsewhere", refused.key);
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
    pub(in crate::replica) fn on_ask_rights(&mut self, peer: DcId, key: Key, amount: u64) {
        let me = self.config.dc;
        let rights = self.data.store.rights(&key).into_iter().find(|(dc, _)| *dc == me);
        let amount = rights.map_or(0, |(_, rights)| amount.max(rights / 2).min(rights));
        // While entries are being regained, the commit would have seen less than other members rely on.
        // A new member may not be known here yet: an entry must not name it.
        let may_have = self.members.entered.contains(peer) && !self.members.entered.is_parting(peer);
        if amount == 0 || !may_have || can_commit(self.lifecycle).is_err() || self.out.is_regaining() {
            return;
        }
        self.give_rights(peer, vec![(key, amount)]);
    }

    /// Gives rights to another member. The commit has seen what is on disk, so it changes no counter whose
    /// key was ended by an entry that is applied and not yet on disk: rights to that one stay here.
    fn give_rights(&mut self, to: DcId, rights: Vec<(Key, u64)>) {
        assert!(to != self.config.dc, "rights go to another datacenter");
        assert!(self.members.entered.contains(to), "rights go to {to}, which is a member");
        let seen = (**self.log.durable()).clone();
        let change = |(key, amount)| {
            let action = Action::Update(Update::of(value::Op::TransferRights { to, amount }));
            Change { key, action }
        };
        let mut changes: Vec<Change> = rights.into_iter().map(change).collect();
        changes.retain(|change| self.data.store.check(slice::from_ref(change), &seen).is_ok());
        if !changes.is_empty() {
            self.out.counts.rights_transferred += changes.len() as u64;
            self.make_entry(vec![Op::Commit(Commit { seen, client: None, changes })]);
        }
    }

    /// This datacenter leaves: hands its rights to another member, those of some keys in each step. Returns
    /// true if there are none left.
    pub(in crate::replica) fn hand_rights_over(&mut self) -> bool {
        let Some(heir) =
            self.members.entered.heir(self.config.dc).filter(|_| can_commit(self.lifecycle).is_ok())
        else {
            self.data.counter_escrow.stop_handing();
            return false;
        };
        let start = Handing { next: 0, found: false, begins_at: Position::default() };
        let walk = self.data.counter_escrow.handing.unwrap_or(start);
        if walk.begins_at > self.out.output_commit.durable() {
            return false;
        }
        let (rights, then) = self.data.store.rights_here(walk.next, EXAMINED_PER_STEP);
        let found = walk.found || !rights.is_empty();
        if !rights.is_empty() {
            self.give_rights(heir, rights);
        }
        let goes_on = then.map(|next| Handing { next, found, ..walk });
        let again = found.then_some(Handing { begins_at: self.out.position, ..start });
        self.data.counter_escrow.handing = goes_on.or(again);
        self.data.counter_escrow.handing.is_none()
    }
}
