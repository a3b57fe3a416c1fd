//! State transfer, for a member that lacks truncated entries (`docs/algorithm/recovery.md#2-state-transfer`).
//!
//! ```text
//!  giver                                              taker
//!    | <----------- Heartbeat: its vector ------------- |
//!    | ---------------- TooFarBehind ------------------> |  lacks truncated entries for two heartbeats
//!    | <--------- AskState { anew, more: 16 } ---------- |
//!    | ------- State: pieces, as many as asked for ----> |  each is journaled, then one more is asked for
//!    | -------------------- ... ------------------------> |
//!    |                                          Record::StateTaken: installs it
//! ```
//!
//! The giver reads its state at a snapshot of its own, some keys per step; its clients notice nothing. The
//! taker continues with its present state until all pieces are journaled. Then one record installs the new
//! state; a crash before that record leaves the taker as it was. Entries that the taker has and the state
//! lacks are still in the taker's log (the proof is in `docs/algorithm/log.md#34-truncation`) and are applied
//! on top. So the result is the same as if all entries had come one by one.
//!
//! Entries that arrive meanwhile wait, or are applied, as always. Transactions that are open at the
//! installation end, because the snapshots that they read no longer exist.
//!
//! # Decisions
//!
//! - **A state is journaled piece by piece and installed by one record.** Rejected: one record with the
//!   state, which would exceed any limit; and a checkpoint with it, which would have to be written before
//!   any other output could leave. A checkpoint that is wanted meanwhile waits.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod give;
mod stream;
mod take;

use std::collections::BTreeMap;
use std::time::Duration;

pub use stream::StatePiece;

use crate::base::time::Now;
use crate::causal_log::Log;
use crate::lock_state::Locks;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::ids::Ids;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::outputs::Outputs;
use crate::replica::peers::copies::Copies;
use geolock_api::names::{DcId, DcSet};

/// Sends and receives copies of the state.
pub(in crate::replica) struct StateTransfer<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a Ids,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) data: &'a mut Data,
    pub(in crate::replica) copies: &'a mut Copies,
}

/// Pieces that a taker asks for ahead. With every durable piece it asks for one more, so this bounds the
/// pieces in flight.
const WINDOW: u32 = 16;
/// A side that hears nothing from the other side for this long gives the transfer up; the taker asks again
/// later.
const PATIENCE: Duration = Duration::from_secs(30);

/// All transfers of this datacenter.
#[derive(Default)]
pub(in crate::replica) struct Transfers {
    giving: BTreeMap<DcId, give::Giving>,
    intake: Option<take::Intake>,
    /// A checkpoint is wanted and waits until the journaled pieces are used.
    checkpoint_waits: bool,
}

impl Transfers {
    /// Returns true if a peer takes a state from here.
    #[inline]
    pub fn are_giving(&self) -> bool {
        !self.giving.is_empty()
    }

    /// Returns true if a peer asked for pieces that can be made now.
    #[inline]
    pub fn has_work(&self, durable: geolock_api::names::Position) -> bool {
        self.are_giving() && self.giving.values().any(|giving| giving.has_work(durable))
    }

    /// Returns the number of states whose locks and requests are not all read.
    pub fn readers(&self) -> usize {
        self.giving.values().filter(|giving| giving.is_reading()).count()
    }

    /// Asserts that no transfer goes on without a link, and none keeps what it does not need.
    pub fn check(&self, linked: DcSet) {
        for (peer, giving) in &self.giving {
            assert!(linked.contains(*peer), "a state goes to {peer}, which has no link");
            giving.check(*peer);
        }
        let Some(intake) = &self.intake else { return };
        let is_linked = intake.from.is_some_and(|peer| linked.contains(peer));
        assert!(is_linked, "a state comes from {:?}, which has no link", intake.from);
    }

    pub fn is_taking(&self) -> bool {
        self.intake.is_some()
    }

    /// A checkpoint would drop pieces that are still needed: it is made later.
    pub fn postpone_checkpoint(&mut self) {
        self.checkpoint_waits = true;
    }

    /// Returns true, once, if a checkpoint was postponed and no state is being received any more.
    pub fn take_postponed_checkpoint(&mut self) -> bool {
        !self.is_taking() && std::mem::take(&mut self.checkpoint_waits)
    }
}
