//! State transfer: for a member that is further behind than the log of the others reaches.
//!
//! ```text
//!  giver                                              taker
//!    | <----------- Heartbeat: its vector ------------- |
//!    | ---------------- TooFarBehind ------------------> |  lacks for two heartbeats what is not kept there
//!    | <--------- AskState { anew, more: 16 } ---------- |
//!    | ------- State: pieces, as many as asked for ----> |  each is journaled, then one more is asked for
//!    | -------------------- ... ------------------------> |
//!    |                                          Record::StateTaken: from here on all of it counts
//! ```
//!
//! The giver reads its state at a snapshot of its own, some keys with every step; its clients notice nothing. The taker goes
//! on with what it has until all pieces are journaled. Then it takes the state over with one record of the journal: a
//! crash before that leaves it as it was. What the taker has and the state lacks are entries of the taker's own log
//! ([`crate::causal_log`], `truncation`, says why they are there): they are applied on top. So what comes out is what
//! it would be had the entries come one by one.
//!
//! Entries that arrive meanwhile wait, or are applied, as always. Transactions that are open when the state is taken over
//! end, as the snapshots that they read at are no more.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod give;
mod stream;
mod take;

use std::collections::BTreeMap;
use std::time::Duration;

pub use stream::StatePiece;

use crate::names::DcId;

/// Pieces that a taker asks for ahead, and with every piece again; together they are what is under way.
const WINDOW: u32 = 16;
/// Whoever hears nothing of the other side for that long gives the transfer up; it is asked for again.
const PATIENCE: Duration = Duration::from_secs(30);

/// All transfers of this datacenter.
#[derive(Default)]
pub(super) struct Transfers {
    giving: BTreeMap<DcId, give::Giving>,
    taking: Option<take::Taking>,
    /// A checkpoint is wanted, and waits until the pieces that the journal has are used.
    checkpoint_waits: bool,
}

impl Transfers {
    /// Whether pieces are wanted of this datacenter that it can make now.
    pub fn has_work(&self, durable: crate::names::Position) -> bool {
        self.giving.values().any(|giving| giving.has_work(durable))
    }

    /// How many states are not read to the end of their locks and requests.
    pub fn readers(&self) -> usize {
        self.giving.values().filter(|giving| giving.is_reading()).count()
    }

    pub fn is_taking(&self) -> bool {
        self.taking.is_some()
    }

    /// A checkpoint would forget pieces that are needed still: it is made later.
    pub fn postpone_checkpoint(&mut self) {
        self.checkpoint_waits = true;
    }
}
