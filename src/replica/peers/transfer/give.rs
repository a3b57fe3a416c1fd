//! The giver of a state transfer.

use std::sync::Arc;

use super::stream::{Head, Packer, StateItem};
use super::{PATIENCE, WINDOW};
use crate::base::time::Instant;
use crate::base::wire::WireError;
use crate::crdt::{Ownership, ReaderId, VersionVector};
use crate::lock_state::Piece;
use crate::replica::effect::Report;
use crate::replica::lifecycle::CHAINED;
use crate::replica::members::ListState;
use crate::replica::message::Message;
use crate::replica::peers::transfer::{StateTransfer, Transfers};
use crate::replica::record::recover::last_stamps;
use geolock_api::names::{DcId, Position};

/// Most keys, requests or items of locks that one step packs.
const ITEMS_PER_STEP: usize = 256;
/// Locks in one item.
const LOCKS_PER_ITEM: usize = 64;

/// A state that is being sent to a peer.
pub(super) struct Giving {
    at: Position,
    /// The vector of the state. Once the peer announced that it has it, the vector that the peer announced.
    /// Entries after it are kept.
    vector: Arc<VersionVector>,
    /// Set once the peer has the state: entries are kept for it until it has this vector, too. More may have
    /// been written meanwhile than is kept for others, and the peer would need another state.
    goal: Option<Arc<VersionVector>>,
    /// `None` when all locks and requests are packed.
    reader: Option<ReaderId>,
    next: Next,
    packer: Packer,
    /// Pieces that the peer asked for and that are not sent yet.
    credit: u32,
    /// The transfer is given up then, unless the peer asks for more or has all.
    until: Instant,
}

/// The next thing to pack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Row(usize),
    /// All is packed.
    End,
    /// All is sent; the snapshot is closed.
    Over,
}

impl Giving {
    pub fn has_work(&self, durable: Position) -> bool {
        self.credit > 0 && self.next != Next::Over && self.at <= durable
    }

    /// Asserts that what is asked for is bounded, and a state that is sent is read no more.
    pub fn check(&self, peer: DcId) {
        assert!(self.credit <= WINDOW, "{peer} asks for {} pieces at once", self.credit);
        let is_over = self.next == Next::Over;
        assert!(!is_over || self.reader.is_none(), "the locks for {peer} are read after the last piece");
        assert!(is_over || self.goal.is_none(), "{peer} has the state that is still read for it");
    }

    pub fn is_reading(&self) -> bool {
        self.reader.is_some()
    }
}

impl Transfers {
    /// Returns the vector up to which no taker needs entries; `None` if there is no taker.
    pub fn given(&self) -> Option<VersionVector> {
        let mut given = self.giving.values().map(|giving| &*giving.vector);
        let first = given.next()?.clone();
        Some(given.fold(first, |all, other| all.meet(other)))
    }

    pub fn stop_taking_from(&mut self, peer: DcId) {
        let _gone = self.intake.take_if(|intake| intake.from == Some(peer));
    }

    /// The journal was read to its end: an incomplete state in it will never be complete.
    pub fn forget_unfinished_state(&mut self) {
        self.intake = None;
    }
}

impl StateTransfer<'_> {
    /// A peer lacks entries that are truncated here: offers it the state.
    pub(in crate::replica) fn offer_state(&mut self, peer: DcId) {
        if self.can_give() && !self.copies.transfers.giving.contains_key(&peer) {
            let truncated = self.log.truncated().vector().clone();
            self.out.send(self.log, peer, Message::TooFarBehind { truncated });
        }
    }

    /// Returns true if a state can be sent: not right after a start, when a peer that asks would wait for it.
    fn can_give(&self) -> bool {
        let lifecycle = &self.lifecycle.state;
        !lifecycle.is_starting() && !lifecycle.is_forked() && !self.members.needs_state()
    }

    pub(in crate::replica) fn on_ask_state(&mut self, peer: DcId, anew: bool, more: u32) {
        if anew {
            self.stop_giving(peer);
            if !self.can_give() {
                return;
            }
            let giving = self.begin_giving(peer);
            let before = self.copies.transfers.giving.insert(peer, giving);
            assert!(before.is_none(), "{peer} gets one state at a time");
        }
        let until = self.now.mono + PATIENCE;
        if let Some(giving) = self.copies.transfers.giving.get_mut(&peer) {
            giving.credit = giving.credit.saturating_add(more).min(WINDOW);
            giving.until = until;
        }
    }

    fn begin_giving(&mut self, peer: DcId) -> Giving {
        let (at, vector) = (self.out.position, Arc::new(self.log.applied().clone()));
        self.data.store.open_snapshot_at(at, &vector);
        let mut packer = Packer::default();
        let stamps = last_stamps(self.log);
        let head = StateItem::Head(Head { vector: (*vector).clone(), stamps });
        packer.push(&head).expect("a vector is small");
        if self.lifecycle.versions.speaks(peer, CHAINED) {
            let (hashes, lead_ms) = (self.log.last_hashes(), self.ids.lead.millis);
            packer.push(&StateItem::Chain { hashes, lead_ms }).expect("some thousand hashes are small");
        }
        if let Some(mut state) = self.members.state(self.locks.owners().sponsors()) {
            state.silent.clear();
            state.recovery = None;
            state.losses.clear();
            if *state.compacted != ListState::default() {
                let compacted = std::mem::take(&mut state.compacted);
                packer.push(&StateItem::Compacted(compacted)).expect("a config is small");
            }
            packer.push(&StateItem::Members(state)).expect("those that are kept are small");
        }
        Giving {
            at,
            vector,
            goal: None,
            reader: Some(self.locks.reading().open(self.log.applied())),
            next: Next::Row(0),
            packer,
            credit: 0,
            until: self.now.mono + PATIENCE,
        }
    }

    /// Makes some of the pieces that peers asked for.
    pub(in crate::replica) fn give_some(&mut self) {
        let durable = self.out.output_commit.durable();
        let wanting = self.copies.transfers.giving.iter().find(|(_, giving)| giving.has_work(durable));
        let Some(peer) = wanting.map(|(peer, _)| *peer) else { return };
        let mut giving = self.copies.transfers.giving.remove(&peer).expect("it is there");
        let mut packed = 0;
        while giving.credit > 0 && giving.next != Next::Over && packed < ITEMS_PER_STEP {
            if !giving.packer.is_full() && giving.next != Next::End {
                match self.pack_some(&mut giving) {
                    Ok(items) => packed += items,
                    Err(error) => {
                        // A client cannot write an item that large.
                        self.out.report(Report::StateNotGiven { peer, why: error.to_string() });
                        return self.end_reading(&mut giving);
                    }
                }
            }
            if let Some(piece) = giving.packer.piece(giving.next == Next::End) {
                giving.credit -= 1;
                assert!(giving.at <= durable, "a state of {:?} leaves at {durable:?}", giving.at);
                if piece.last {
                    assert!(giving.reader.is_none(), "the last piece for {peer} follows all locks");
                    self.end_reading(&mut giving);
                    self.out.counts.state_transfers_sent += 1;
                }
                self.out.send(self.log, peer, Message::State(piece));
            }
        }
        self.copies.transfers.giving.insert(peer, giving);
    }

    /// All pieces are sent, or the peer has the state from another member: closes the readers.
    fn end_reading(&mut self, giving: &mut Giving) {
        if giving.next != Next::Over {
            giving.next = Next::Over;
            self.data.store.close_snapshot(giving.at);
        }
        giving.reader.take().into_iter().for_each(|reader| self.locks.reading().close(reader));
    }

    /// Packs some locks in one item, or some requests, or one key. Returns the number of items.
    fn pack_some(&mut self, giving: &mut Giving) -> Result<usize, WireError> {
        if let Some(reader) = giving.reader {
            return match self.locks.reading().read(reader, LOCKS_PER_ITEM) {
                Piece::Owned(rows) => {
                    let mut locks = Ownership::default();
                    locks.extend(rows);
                    giving.packer.push(&StateItem::Locks(locks)).map(|()| 1)
                }
                Piece::Requests { rows, looked_at } => {
                    let mut items = rows.into_iter().map(StateItem::Request);
                    items.try_for_each(|item| giving.packer.push(&item)).map(|()| looked_at)
                }
                Piece::End => {
                    self.locks.reading().close(reader);
                    giving.reader = None;
                    Ok(1)
                }
            };
        }
        match giving.next {
            Next::Row(row) => {
                let (contents, next) = self.data.store.export(giving.at, row, 1);
                giving.next = next.map_or(Next::End, Next::Row);
                let mut items = contents.into_iter().map(|(key, content)| StateItem::Key(key, content));
                items.try_for_each(|item| giving.packer.push(&item)).map(|()| 1)
            }
            Next::End | Next::Over => Ok(1),
        }
    }

    /// A peer announced its durable vector: it may have installed the state, and may have caught up.
    pub(in crate::replica) fn note_taken(&mut self, peer: DcId, durable: &VersionVector) {
        let is_had = |giving: &Giving| durable.covers(&giving.vector);
        if !self.copies.transfers.giving.get(&peer).is_some_and(is_had) {
            return;
        }
        let Some(mut giving) = self.copies.transfers.giving.remove(&peer) else { return };
        // It has the state, perhaps from another member.
        self.end_reading(&mut giving);
        let here = self.log.durable();
        if durable.covers(giving.goal.get_or_insert_with(|| here.clone())) {
            return;
        }
        if *giving.vector != *durable {
            giving.vector = Arc::new(durable.clone());
            giving.until = self.now.mono + PATIENCE;
        }
        self.copies.transfers.giving.insert(peer, giving);
    }

    pub(in crate::replica) fn stop_giving(&mut self, peer: DcId) {
        if let Some(mut giving) = self.copies.transfers.giving.remove(&peer) {
            self.end_reading(&mut giving);
        }
    }

    /// Gives up the transfers that no peer asks for any more.
    pub(super) fn expire_giving(&mut self) {
        let is_over = |giving: &Giving| giving.until <= self.now.mono;
        let over = self.copies.transfers.giving.iter().filter(|(_, giving)| is_over(giving));
        let over: Vec<DcId> = over.map(|(peer, _)| *peer).collect();
        over.into_iter().for_each(|peer| self.stop_giving(peer));
    }
}
