//! The member lease: under the policy `auto`, a member grants locks and renews leases only while a majority
//! of the voters acknowledges its heartbeats (`docs/algorithm/membership.md#5-eviction-by-time`).
//!
//! It is counted from when a heartbeat was sent, by the clock of the member itself, as in the leader lease of
//! Chubby (Burrows 2006). So no clock is compared with another one; only their rates must be nearly equal.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::base::time::{Instant, Timestamp};
use crate::membership::VoterSet;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// Most own heartbeats whose acknowledgements are waited for.
const MOST_SENT: usize = 16_384;

/// The acknowledged heartbeats, as far as is known here.
pub(in crate::replica) struct MemberLease {
    /// Clock and time of the own heartbeats of this run, oldest first.
    sent: VecDeque<(Timestamp, Instant)>,
    /// By voter: when the latest own heartbeat was sent that it has acknowledged.
    acknowledged: [Option<Instant>; MAX_DCS],
    /// By voter and member: the clock of the latest heartbeat that was acknowledged, as the voter told.
    of_others: BTreeMap<(DcId, DcId), Timestamp>,
}

impl MemberLease {
    pub fn new() -> MemberLease {
        MemberLease { sent: VecDeque::new(), acknowledged: [None; MAX_DCS], of_others: BTreeMap::new() }
    }

    /// A heartbeat is sent. It counts for the time `keep`.
    pub fn note_sent(&mut self, clock: Timestamp, now: Instant, keep: Duration) {
        while self.sent.pop_front_if(|(_, at)| *at + keep < now).is_some() {}
        if self.sent.len() == MOST_SENT {
            self.sent.pop_front();
        }
        // A slow disk makes the same reading go to several peers, the first time counts.
        if let Err(place) = self.sent.binary_search_by_key(&clock, |(sent, _)| *sent) {
            self.sent.insert(place, (clock, now));
        }
    }

    /// A voter has acknowledged the own heartbeat with this clock. One of another run does not count: what
    /// the voter has heard since is not known. Returns true if that is news.
    pub fn note_acknowledged(&mut self, voter: DcId, clock: Timestamp) -> bool {
        let Ok(place) = self.sent.binary_search_by_key(&clock, |(sent, _)| *sent) else { return false };
        let (_, at) = self.sent[place];
        let latest = &mut self.acknowledged[voter.index()];
        let is_news = latest.is_none_or(|latest| latest < at);
        *latest = (*latest).max(Some(at));
        is_news
    }

    /// A voter has acknowledged the heartbeat of another member with this clock.
    pub fn note_of_other(&mut self, voter: DcId, member: DcId, clock: Timestamp) {
        let latest = self.of_others.entry((voter, member)).or_default();
        *latest = clock.max(*latest);
    }

    /// Returns what others than `member` itself have acknowledged of its heartbeats.
    pub fn of(&self, member: DcId) -> impl Iterator<Item = (DcId, Timestamp)> {
        let rows = self.of_others.iter().filter(move |((voter, of), _)| *of == member && *voter != member);
        rows.map(|((voter, _), clock)| (*voter, *clock))
    }

    /// Only these are members.
    pub fn retain(&mut self, members: DcSet) {
        self.of_others.retain(|(voter, member), _| members.contains(*voter) && members.contains(*member));
    }

    /// The monotonic clock may have stood still: nothing that was acknowledged counts any more.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.acknowledged = [None; MAX_DCS];
    }

    /// Returns the latest time by which a majority of these voters has acknowledged a heartbeat that was sent
    /// then. `voters`: the ids of their links. `me` acknowledges its own at once. [`Instant::ZERO`] if no
    /// majority has.
    pub fn backed_at(&self, me: DcId, set: &VoterSet, voters: DcSet) -> Instant {
        let by = |dc: DcId| match dc == me {
            true => Some(Instant::FAR_FUTURE),
            false => self.acknowledged[dc.index()],
        };
        let mut times: Vec<Instant> = voters.iter().filter_map(by).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(set.majority() - 1).copied().unwrap_or(Instant::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Epoch, Generation, Voter};

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn voters(ids: &[u8]) -> VoterSet {
        let voter = |id: &u8| Voter::Member { dc: dc(*id), generation: Generation(0) };
        VoterSet { from: Epoch(0), voters: ids.iter().map(voter).collect() }
    }

    fn sent(times: &[u64]) -> MemberLease {
        let mut lease = MemberLease::new();
        for millis in times {
            lease.note_sent(Timestamp::from_millis(*millis), at(*millis), Duration::from_secs(10));
        }
        lease
    }

    #[test]
    fn a_majority_backs_from_the_time_at_which_the_heartbeat_was_sent() {
        let mut lease = sent(&[100, 200, 300]);
        let (me, five) = (dc(0), voters(&[0, 1, 2, 3, 4]));
        assert!(lease.note_acknowledged(dc(1), Timestamp::from_millis(300)));
        assert_eq!(lease.backed_at(me, &five, five.members()), Instant::ZERO);
        assert!(lease.note_acknowledged(dc(2), Timestamp::from_millis(100)));
        assert_eq!(lease.backed_at(me, &five, five.members()), at(100));
        assert!(lease.note_acknowledged(dc(4), Timestamp::from_millis(200)));
        assert_eq!(lease.backed_at(me, &five, five.members()), at(200));
        assert_eq!(
            lease.backed_at(me, &voters(&[0]), voters(&[0]).members()),
            Instant::FAR_FUTURE,
            "it is the only voter"
        );
        assert_eq!(
            lease.backed_at(me, &voters(&[1, 2, 4]), voters(&[1, 2, 4]).members()),
            at(200),
            "it does not vote itself"
        );
    }

    #[test]
    fn an_older_acknowledgement_takes_nothing_back() {
        let mut lease = sent(&[100, 200]);
        lease.note_acknowledged(dc(1), Timestamp::from_millis(200));
        assert!(!lease.note_acknowledged(dc(1), Timestamp::from_millis(100)));
        assert_eq!(lease.backed_at(dc(0), &voters(&[0, 1, 2]), voters(&[0, 1, 2]).members()), at(200));
    }

    #[test]
    fn a_heartbeat_that_this_run_did_not_send_does_not_count() {
        let mut lease = sent(&[100, 200]);
        for millis in [50, 150, 9_999] {
            assert!(!lease.note_acknowledged(dc(1), Timestamp::from_millis(millis)));
        }
        lease.note_acknowledged(dc(1), Timestamp::from_millis(200));
        lease.forget();
        assert!(!lease.note_acknowledged(dc(1), Timestamp::from_millis(200)));
        assert_eq!(lease.backed_at(dc(0), &voters(&[0, 1]), voters(&[0, 1]).members()), Instant::ZERO);
    }

    #[test]
    fn what_is_relayed_is_bounded_by_the_members() {
        let mut lease = MemberLease::new();
        lease.note_of_other(dc(1), dc(2), Timestamp::from_millis(7));
        lease.note_of_other(dc(1), dc(2), Timestamp::from_millis(5));
        lease.note_of_other(dc(3), dc(2), Timestamp::from_millis(6));
        let of: Vec<(DcId, Timestamp)> = lease.of(dc(2)).collect();
        assert_eq!(of, [(dc(1), Timestamp::from_millis(7)), (dc(3), Timestamp::from_millis(6))]);
        lease.retain([dc(1), dc(2)].into_iter().collect());
        assert_eq!(lease.of(dc(2)).count(), 1);
    }
}
