//! Reclaims: the client tells a restarted server which locks it holds
//! (`docs/algorithm/grants.md#15-restart-grace-and-reclaim`).

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;

use super::transactions::TxnStage;
use super::{Lease, Output, Session, Stage, Standing};
use crate::error::LostReason;
use crate::tag::Tag;
use geolock_api::names::RequestId;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, HeldLocks};
use geolock_api::time::Instant;

/// Approximate size of the largest message, in bytes: the server accepts 2 MiB, and a single grant may need
/// more than half of that.
const PIECE: usize = 512 << 10;

impl Session {
    /// Reclaims everything that is held, and nothing else: a request was taken out when its release was
    /// wanted. Waiting requests get fresh keys, as the comment of the parent module explains.
    pub(super) fn reclaim(&mut self) {
        for number in self.by_key(|stage| matches!(stage, Stage::Queued | Stage::Asked)) {
            let key = self.number();
            if let Some(request) = self.requests.get_mut(&number) {
                (request.key, request.asked) = (key, 0);
            }
        }
        // A transaction that the server may have committed keeps its key, by which the server knows it.
        for number in self.txns_that(|stage| *stage == TxnStage::Queued) {
            let key = self.number();
            if let Some(txn) = self.txns.get_mut(&number) {
                txn.key = key;
            }
        }
        let mut pieces = vec![Vec::new()];
        let mut room = PIECE;
        for number in self.by_key(|stage| matches!(stage, Stage::Held(_) | Stage::InDoubt(_))) {
            let Some(held) = self.held_locks(number) else { continue };
            let size = held.encoded_len();
            if size > room && pieces.last().is_some_and(|piece| !piece.is_empty()) {
                pieces.push(Vec::new());
                room = PIECE;
            }
            room = room.saturating_sub(size);
            if let Some(piece) = pieces.last_mut() {
                piece.push(held);
            }
        }
        self.send_pieces(pieces);
    }

    /// Returns a grant as a reclaim states it. It is no longer in doubt: the answer decides.
    fn held_locks(&mut self, number: u64) -> Option<HeldLocks> {
        let request = self.requests.get_mut(&number)?;
        let (Stage::Held(held) | Stage::InDoubt(held)) = request.stage else { return None };
        request.stage = Stage::Held(held);
        Some(HeldLocks {
            request: Some(to_proto(held.request)),
            idempotency_key: request.key,
            locks: request.locks.clone(),
            token: held.token.0,
            label: request.label.clone(),
        })
    }

    fn send_pieces(&mut self, pieces: Vec<Vec<HeldLocks>>) {
        let Lease::Open(lease) = &mut self.lease else { return };
        let (id, last) = (lease.id, pieces.len() - 1);
        lease.standing = Standing::Reclaiming { left: pieces.len() as u64, last: last as u64 };
        for (index, held) in pieces.into_iter().enumerate() {
            let secret = Bytes::new();
            let piece = proto::ReclaimRequest { lease: id, secret, held, more: index < last };
            self.send(Tag::Reclaim(index as u64), Call::Reclaim(piece));
        }
    }

    /// Processes an answer. Those to all pieces but the last are empty, and may come after that to the last:
    /// answers have no order.
    pub(super) fn on_reclaimed(&mut self, now: Instant, piece: u64, answer: &proto::ReclaimResponse) {
        let Some((left, last)) = self.reclaim_answers_left() else { return };
        if piece == last {
            self.keep_only(answer);
        }
        if left == 0 {
            self.resume(now);
        }
    }

    fn keep_only(&mut self, answer: &proto::ReclaimResponse) {
        let kept: BTreeSet<(u32, u64)> = answer.kept.iter().map(|id| (id.dc, id.n)).collect();
        for number in self.by_key(|stage| matches!(stage, Stage::Held(_))) {
            if let Some(Stage::Held(held)) = self.requests.get(&number).map(|request| &request.stage)
                && !kept.contains(&(held.request.dc.get().into(), held.request.n))
            {
                self.lose(number, LostReason::NotReclaimed);
            }
        }
    }

    /// The server refuses the reclaim: it may have received it on another stream already.
    pub(super) fn on_reclaim_refused(&mut self, now: Instant, piece: u64) {
        // The other pieces that were sent will be answered too; if one is refused, so is the last.
        let Some((left, last)) = self.reclaim_answers_left() else { return };
        if piece == last {
            self.doubt_held();
        }
        if left == 0 {
            self.resume(now);
        }
    }

    /// Counts one more answer. Returns how many are missing, and the last piece, `None` if none was expected.
    fn reclaim_answers_left(&mut self) -> Option<(u64, u64)> {
        let Lease::Open(lease) = &mut self.lease else { return None };
        let Standing::Reclaiming { left, last } = &mut lease.standing else { return None };
        *left = left.saturating_sub(1);
        Some((*left, *last))
    }

    pub(super) fn doubt_held(&mut self) {
        for request in self.requests.values_mut() {
            if let Stage::Held(held) = request.stage {
                request.stage = Stage::InDoubt(held);
            }
        }
    }

    /// Ends a held request as lost; the lease lives on.
    pub(super) fn lose(&mut self, number: u64, reason: LostReason) {
        if let Some(request) = self.requests.get_mut(&number) {
            request.stage = Stage::Lost(reason.clone());
            self.end_downgrades_of(number, &reason);
            self.outputs.push(Output::Lost { number, reason });
        }
    }
}

fn to_proto(id: RequestId) -> proto::RequestId {
    proto::RequestId { dc: id.dc.get().into(), n: id.n }
}
