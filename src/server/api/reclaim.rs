//! Reclaims that come in several messages, because a lease may hold more than fits one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;

use super::convert::lock::ReclaimPiece;
use super::error::BorderError;
use super::options::{MAX_GATHERED, MAX_GATHERED_BY_ALL};
use crate::replica::call::{Call, Reclaim};
use geolock_api::names::LeaseId;

/// The pieces that a stream has collected, by lease. Bounded by [`MAX_GATHERED`], and for all streams
/// together by a [`GatherBudget`].
pub(super) struct Gathered {
    leases: FxHashMap<LeaseId, Pieces>,
    bytes: usize,
    budget: Arc<GatherBudget>,
}

#[derive(Default)]
struct Pieces {
    held: Vec<Reclaim>,
    /// One of the pieces was refused: so are all up to the last.
    spoilt: bool,
}

/// The number of bytes that all streams of a server may still collect.
pub(super) struct GatherBudget(AtomicUsize);

impl Default for GatherBudget {
    fn default() -> GatherBudget {
        GatherBudget(AtomicUsize::new(MAX_GATHERED_BY_ALL))
    }
}

impl GatherBudget {
    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Gathered {
    pub(super) fn new(budget: Arc<GatherBudget>) -> Gathered {
        Gathered { leases: FxHashMap::default(), bytes: 0, budget }
    }

    /// Adds a piece. Returns the whole call after its last piece, `None` before. After an error the collected
    /// pieces of the lease are dropped, and the following ones up to the last are refused; then the client
    /// may start over.
    pub(super) fn add(&mut self, piece: ReclaimPiece) -> Result<Option<Call>, BorderError> {
        let ReclaimPiece { lease, proof, held, more } = piece;
        match self.leases.get(&lease) {
            None if !more => return Ok(Some(Call::Reclaim { lease, proof, held })),
            Some(Pieces { spoilt: true, .. }) => {
                self.refused(lease, more);
                return Err(BorderError::Malformed(
                    "a piece of this reclaim was refused: start over after the last",
                ));
            }
            _ => {}
        }
        if let Err(error) = self.keep(lease, held) {
            self.refused(lease, more);
            return Err(error);
        }
        if more {
            return Ok(None);
        }
        Ok(Some(Call::Reclaim { lease, proof, held: self.forget(lease) }))
    }

    /// Notes that a piece for this lease was refused.
    pub(super) fn refused(&mut self, lease: LeaseId, more: bool) {
        self.forget(lease);
        // If there is no space for so little, there is none for the following pieces either.
        if more && self.grow(LEASE).is_ok() {
            self.leases.insert(lease, Pieces { held: Vec::new(), spoilt: true });
        }
    }

    fn keep(&mut self, lease: LeaseId, held: Vec<Reclaim>) -> Result<(), BorderError> {
        let first = if self.leases.contains_key(&lease) { 0 } else { LEASE };
        self.grow(first + weight(&held))?;
        self.leases.entry(lease).or_default().held.extend(held);
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), BorderError> {
        if self.bytes + bytes > MAX_GATHERED {
            return Err(BorderError::ReclaimTooLarge(MAX_GATHERED));
        }
        if !self.budget.take(bytes) {
            return Err(BorderError::TooManyReclaims(MAX_GATHERED_BY_ALL));
        }
        self.bytes += bytes;
        Ok(())
    }

    fn forget(&mut self, lease: LeaseId) -> Vec<Reclaim> {
        let Some(Pieces { held, .. }) = self.leases.remove(&lease) else { return Vec::new() };
        let bytes = LEASE + weight(&held);
        self.bytes -= bytes;
        self.budget.give_back(bytes);
        held
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Approximate size of the state of a lease, without its pieces, in bytes.
const LEASE: usize = 64;

/// Approximate size of these, in bytes.
fn weight(held: &[Reclaim]) -> usize {
    let locks = |reclaim: &Reclaim| -> usize {
        reclaim.wants.locks().iter().map(|(name, _)| 64 + name.as_bytes().len()).sum()
    };
    held.iter().map(|reclaim| 128 + reclaim.label.len() + locks(reclaim)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::api::convert::{ProofBy, lock};
    use geolock_api::proto;

    /// Returns a piece that holds `count` locks of 1000 bytes.
    fn piece(lease: u64, count: u64, more: bool) -> ReclaimPiece {
        let held = |n: u64| proto::HeldLocks {
            request: Some(proto::RequestId { dc: 0, n }),
            idempotency_key: n,
            locks: vec![proto::LockMode {
                name: format!("{n:->1000}").into(),
                mode: proto::Mode::Exclusive.into(),
                home: None,
            }],
            token: n,
            label: String::new(),
        };
        let held = (1..=count).map(held).collect();
        let message = proto::ReclaimRequest { lease, secret: bytes::Bytes::new(), held, more };
        lock::reclaim(&message, ProofBy::SecretOrStream).expect("a test makes good ones")
    }

    fn held(call: Option<Call>) -> usize {
        match call {
            Some(Call::Reclaim { held, .. }) => held.len(),
            other => panic!("the whole reclaim was expected, this is {other:?}"),
        }
    }

    #[test]
    fn pieces_of_a_lease_are_one_reclaim() {
        let budget = Arc::new(GatherBudget::default());
        let mut gathered = Gathered::new(Arc::clone(&budget));
        assert!(matches!(gathered.add(piece(1, 2, true)), Ok(None)));
        assert!(matches!(gathered.add(piece(2, 1, true)), Ok(None)));
        assert_eq!(held(gathered.add(piece(1, 3, false)).expect("it fits")), 5);
        assert_eq!(held(gathered.add(piece(3, 4, false)).expect("it fits")), 4);
        assert!(gathered.bytes > 0);
        drop(gathered);
        assert_eq!(budget.0.load(Ordering::Relaxed), MAX_GATHERED_BY_ALL, "all is given back");
    }

    #[test]
    fn a_reclaim_with_a_refused_piece_is_refused_as_a_whole() {
        let mut gathered = Gathered::new(Arc::default());
        let lease = LeaseId::from_raw(1);
        assert!(matches!(gathered.add(piece(1, 2, true)), Ok(None)));
        gathered.refused(lease, true);
        assert!(matches!(gathered.add(piece(1, 2, true)), Err(BorderError::Malformed(_))));
        assert!(matches!(gathered.add(piece(1, 2, false)), Err(BorderError::Malformed(_))));
        assert!(matches!(gathered.add(piece(1, 2, true)), Ok(None)), "it started over");
        gathered.refused(lease, false);
        assert_eq!(held(gathered.add(piece(1, 1, false)).expect("it fits")), 1);
        assert_eq!(gathered.bytes, 0);
    }

    #[test]
    fn streams_share_the_room() {
        let budget = Arc::new(GatherBudget(AtomicUsize::new(10_000)));
        let mut gathered = [(); 3].map(|()| Gathered::new(Arc::clone(&budget)));
        assert!(matches!(gathered[0].add(piece(1, 5, true)), Ok(None)));
        assert!(matches!(gathered[1].add(piece(2, 5, true)), Err(BorderError::TooManyReclaims(_))));
        assert!(matches!(gathered[2].add(piece(3, 2, true)), Ok(None)));
        let [first, mut second, _third] = gathered;
        drop(first);
        assert!(second.add(piece(2, 5, false)).is_err(), "it is spoilt");
        assert!(matches!(second.add(piece(2, 5, true)), Ok(None)));
    }
}
