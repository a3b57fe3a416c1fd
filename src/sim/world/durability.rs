//! The promise to commits that are durable at a majority (`docs/algorithm/log.md#25-durable-at-a-majority`).

use crate::crdt::value::Dot;
use crate::replica::call::store::Durable;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::TxnKey;
use crate::sim::world::{Node, World};
use geolock_api::names::{DcId, DcSet};

/// How often each member of some time had lost its disk by then.
pub(super) type Losses = Vec<(DcId, u64)>;

impl World {
    /// Checks that a majority of the disks has a commit that is answered as such, or has had it before it was
    /// lost.
    pub(super) fn judge_durability(&mut self, dc: DcId, txn: TxnKey, durable: Durable) {
        let Some(dot) = self.txns.made_as(txn) else { return };
        let has_had =
            |node: &Node| node.disk.facts.applied.get(dot.dc) >= dot.seq || node.lost.get(dot.dc) >= dot.seq;
        match durable {
            Durable::Here => {}
            Durable::NotAtMajority { missing } if missing.is_empty() => {
                let what =
                    format!("{dc} says that no majority has {txn:?} and names no datacenter that lacks it");
                self.fail(FailureKind::Contract, what);
            }
            Durable::NotAtMajority { .. } => self.tally.not_at_majority += 1,
            Durable::AtMajority => {
                // It may have entered the end of a member in this step, before the answer or after it.
                let now = self.node(dc).inspect().map_or(DcSet::EMPTY, |replica| replica.members());
                let before = self.node(dc).members_before;
                let is_most = |members: DcSet| {
                    let having = members.iter().filter(|dc| has_had(self.node(*dc)));
                    2 * having.count() > members.len()
                };
                let members = if is_most(before) { before } else { now };
                let having: DcSet = members.iter().filter(|dc| has_had(self.node(*dc))).collect();
                if 2 * having.len() <= members.len() {
                    let what = format!(
                        "{dc} says that a majority of {members:?} has {txn:?}, {dot:?}; only {having:?} have it"
                    );
                    return self.fail(FailureKind::NotAtMajority, what);
                }
                self.tally.at_majority += 1;
                let losses = members.iter().map(|member| (member, self.node(member).losses)).collect();
                self.at_majority.entry(dot).or_insert(losses);
            }
        }
    }

    /// No node has the entries of `dc` after `seq` any more.
    pub(super) fn lose_after(&mut self, dc: DcId, seq: u64) {
        self.judge_lost(dc, seq);
        // A generation without an entry ends where the one before it did.
        let last = self.txns.on_lost(dc, seq);
        self.holders.forget_entries(dc, last);
    }

    /// The entries of `dc` after `seq` are lost. None of them may be a commit that a majority had,
    /// unless most members of that time lost their disks since.
    fn judge_lost(&mut self, dc: DcId, seq: u64) {
        let lost = Dot { dc, seq: seq + 1 }..=Dot { dc, seq: u64::MAX };
        let gone: Vec<(Dot, Losses)> =
            self.at_majority.range(lost).map(|(dot, then)| (*dot, then.clone())).collect();
        for (dot, then) in gone {
            self.at_majority.remove(&dot);
            let since = then.iter().filter(|(dc, then)| self.node(*dc).losses > *then).count();
            if 2 * since <= then.len() {
                let what = format!("{dot:?}, which a majority had, is lost with {since} disks");
                self.fail(FailureKind::NotAtMajority, what);
            }
        }
    }
}
