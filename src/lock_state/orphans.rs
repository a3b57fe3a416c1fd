//! Own requests that are in the log although nobody here waits for them any more: published before a restart,
//! or over while no entry could be made. Other datacenters still know them; here they stand in no queue, stop
//! nobody and get nothing, until an entry withdraws them.

use super::locks::Locks;
use super::request::{Request, RequestIndex};
use crate::causal_log::{Op, Wants};
use crate::names::RequestId;
use crate::time::Timestamp;

/// See the module.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub id: RequestId,
    pub at: Timestamp,
    pub wants: Wants,
    /// The entry that published it.
    pub seq: u64,
}

impl Locks {
    /// All orphans, in no order.
    pub fn orphans(&self) -> impl Iterator<Item = &Orphan> {
        self.orphans.iter()
    }

    /// A published request is over, and no entry can say so now.
    pub(super) fn orphan(&mut self, request: RequestIndex, seq: u64) {
        let wants = Wants::All(self.wants(request).map(|(name, mode)| (name.clone(), mode)).collect());
        let Request { id, at, .. } = *self.get(request);
        self.orphans.push(Orphan { id, at, wants, seq });
    }

    /// Entries may be made again: withdraws all orphans in the next one.
    pub(super) fn withdraw_orphans(&mut self) {
        let ids = self.orphans.drain(..).map(|orphan| Op::Withdraw { id: orphan.id });
        self.output.withdraws.extend(ids);
    }
}
