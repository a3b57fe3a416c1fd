//! Reclaims that come in several messages, because a lease may hold more than fits one.

use rustc_hash::FxHashMap;

use super::error::BorderError;
use super::options::MAX_GATHERED;
use super::parse::ReclaimPiece;
use crate::names::LeaseId;
use crate::replica::call::{Call, Reclaim};

/// The pieces that a stream has gathered, by lease. Bounded by [`MAX_GATHERED`].
#[derive(Default)]
pub(super) struct Gathered {
    held: FxHashMap<LeaseId, Vec<Reclaim>>,
    bytes: usize,
}

impl Gathered {
    /// The whole call after its last piece, `None` before. After an error what was gathered for the lease is
    /// gone: its client may start over.
    pub(super) fn add(&mut self, piece: ReclaimPiece) -> Result<Option<Call>, BorderError> {
        let ReclaimPiece { lease, proof, held, more } = piece;
        if !more && !self.held.contains_key(&lease) {
            return Ok(Some(Call::Reclaim { lease, proof, held }));
        }
        let bytes = weight(&held);
        if self.bytes + bytes > MAX_GATHERED {
            self.forget(lease);
            return Err(BorderError::ReclaimTooLarge(MAX_GATHERED));
        }
        self.bytes += bytes;
        self.held.entry(lease).or_default().extend(held);
        if more {
            return Ok(None);
        }
        Ok(Some(Call::Reclaim { lease, proof, held: self.forget(lease) }))
    }

    fn forget(&mut self, lease: LeaseId) -> Vec<Reclaim> {
        let held = self.held.remove(&lease).unwrap_or_default();
        self.bytes -= weight(&held);
        held
    }
}

/// About how many bytes these take.
fn weight(held: &[Reclaim]) -> usize {
    let locks = |reclaim: &Reclaim| -> usize {
        reclaim.wants.locks().iter().map(|(name, _)| 64 + name.as_bytes().len()).sum()
    };
    held.iter().map(|reclaim| 128 + reclaim.label.len() + locks(reclaim)).sum()
}
