//! Orphans: own published requests that no local client waits for any more, because they were published
//! before a restart or ended while no entry could be made. Other datacenters still have them in their request
//! tables. Here they are in no queue, block nothing and get nothing, until an entry withdraws them
//! (`docs/algorithm.md#41-entries`).

use super::locks::Locks;
use super::request::{Request, RequestIndex, RequestRow};
use crate::causal_log::{Op, Wants};

impl Locks {
    /// Makes an orphan of a published request that is over while no entry can withdraw it.
    pub(super) fn orphan(&mut self, request: RequestIndex, seq: u64) {
        let wants = Wants::All(self.wants(request).map(|(name, mode)| (name.clone(), mode)).collect());
        let Request { id, at, .. } = *self.get(request);
        self.orphans.insert(id, RequestRow { id, at, wants, seq });
    }

    /// Withdraws all orphans in the next entry, because entries may be made again.
    pub(super) fn withdraw_orphans(&mut self) {
        while let Some(id) = self.orphans.first_key_value().map(|(id, _)| *id) {
            self.note_before(id);
            self.orphans.remove(&id);
            self.output.withdraws.push(Op::Withdraw { id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Acquired, IfNotFree, NewRequest, Permissions};
    use super::*;
    use crate::names::{DcId, DcSet, LeaseId, LockName, Mode, RequestId};
    use crate::time::{Instant, Timestamp};

    /// Seed 91 of the simulator: a request was cancelled while the clock was too far ahead to make entries.
    /// It was dropped here and stayed in the request table of all others.
    #[test]
    fn a_request_cancelled_while_no_entry_can_be_made_is_withdrawn_later() {
        let dc = |id| DcId::new(id).expect("a small id");
        let (now, members) = (Instant::ZERO, DcSet::from_iter([dc(0), dc(1)]));
        let mut locks = Locks::new(dc(0), members, Vec::new(), 0);
        locks.permit(Permissions { grant: true, append: true });
        let name = LockName::try_from("a").expect("valid");
        let wants = Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock");
        let (id, at) = (RequestId { dc: dc(0), n: 7 }, Timestamp::from_millis(3));
        let label = "test".into();
        let new = NewRequest { id, at, wants: &wants, lease: LeaseId::new(dc(0), 1), label: &label };
        let Acquired::Waiting(request) = locks.acquire(&new, IfNotFree::Wait, now) else {
            panic!("a part is elsewhere");
        };
        locks.schedule(now);
        let ops = locks.take_ops();
        assert_eq!(ops, [Op::Request { id, at, wants: wants.clone() }]);
        locks.note_own_entry(1, &ops, now);

        locks.permit(Permissions { grant: true, append: false });
        locks.cancel(request, now);
        locks.schedule(now);
        assert_eq!(locks.take_ops(), []);
        let kept: Vec<_> = locks.request_table().iter().map(|orphan| (orphan.id, orphan.seq)).collect();
        assert_eq!(kept, [(id, 1)], "others still know it");

        locks.permit(Permissions { grant: true, append: true });
        assert_eq!(locks.take_ops(), [Op::Withdraw { id }]);
        assert_eq!(locks.asked(), 0);
    }
}
