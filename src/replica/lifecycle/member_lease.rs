//! The answers of the member lease: under the policy `auto`, a member serves clients only while a majority of
//! the voters backs it (`docs/algorithm/membership.md#5-eviction-by-time`). Under every policy, a server that
//! was started renews no lease of before until a majority of the voters has confirmed that it still is a
//! member (`docs/algorithm/membership.md#4-members-that-are-evicted`).

use std::time::Duration;

use crate::base::time::Instant;

/// The member lease, as far as it permits something.
pub(in crate::replica) struct MemberLeaseState {
    /// A majority of the voters backs this member until then.
    until: Instant,
    backing: Backing,
    /// This server was started, and may have been evicted before.
    may_be_over: bool,
    /// The times that clients were told are of a clock that stood still since.
    told_is_void: bool,
    /// Longest time to live of a client's lease by the policy.
    longest: Option<Duration>,
    /// No client was told of a lease that lasts longer.
    told_until: Instant,
}

/// The backing by a majority of the voters, as of the last step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backing {
    /// Members are not evicted by time.
    NotNeeded,
    Backed,
    /// This member may be evicted: it may not serve clients.
    Missing,
}

impl Default for MemberLeaseState {
    fn default() -> MemberLeaseState {
        MemberLeaseState {
            until: Instant::ZERO,
            backing: Backing::NotNeeded,
            may_be_over: false,
            told_is_void: false,
            longest: None,
            told_until: Instant::ZERO,
        }
    }
}

impl MemberLeaseState {
    /// A majority of the voters backs this member until then. `is_fenced`: without that it serves no clients.
    /// Returns true if [`MemberLeaseState::is_backed`] has changed.
    pub(super) fn renew(&mut self, until: Instant, is_fenced: bool, now: Instant) -> bool {
        let was_backed = self.is_backed();
        self.until = until;
        self.backing = match (is_fenced, now < until) {
            (false, _) => Backing::NotNeeded,
            (true, true) => Backing::Backed,
            (true, false) => Backing::Missing,
        };
        // From now on leases are renewed by a clock that runs.
        self.told_is_void &= self.backing == Backing::Missing;
        self.is_backed() != was_backed
    }

    /// Notes whether this server may have been evicted before it was started.
    pub(super) fn set_may_be_over(&mut self, may_be_over: bool) {
        self.may_be_over = may_be_over;
    }

    /// The monotonic clock has stood still: the rest of a lease by that clock is too long.
    pub(super) fn forget_told(&mut self) {
        self.told_is_void = true;
    }

    /// Returns true if a client of a member that is not backed may be told the rest of the time that it was
    /// told before.
    pub fn may_tell_rest(&self) -> bool {
        !self.told_is_void
    }

    /// Ends the backing when its time is over. Returns true if it ends.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let is_over = self.backing == Backing::Backed && self.until <= now;
        if is_over {
            self.backing = Backing::Missing;
        }
        is_over
    }

    /// Leases of clients live at most that long, by the policy.
    pub fn limit_leases(&mut self, longest: Option<Duration>) {
        self.longest = longest;
    }

    /// Returns false if members are evicted by time, and no majority of the voters backs this one: it may be
    /// evicted, so it grants nothing and renews no lease.
    #[inline]
    pub fn is_backed(&self) -> bool {
        self.backing != Backing::Missing
    }

    /// Returns true if this server was started, and no majority of the voters has confirmed that it still is
    /// a member: it grants nothing, and renews no lease of before.
    pub fn may_be_over(&self) -> bool {
        self.may_be_over
    }

    /// Returns how long a majority of the voters backs this member without further acknowledgements; `None`
    /// if that is not needed.
    pub fn backed_for(&self, now: Instant) -> Option<Duration> {
        // The only voter backs itself for ever.
        let ends = self.backing != Backing::NotNeeded && self.until != Instant::FAR_FUTURE;
        ends.then(|| self.until.saturating_since(now))
    }

    /// Returns true if a majority of the voters backs this member, whether that is needed or not yet.
    pub fn would_be_backed(&self, now: Instant) -> bool {
        now < self.until
    }

    /// A client is told that its lease lasts until then.
    #[inline]
    pub fn note_told(&mut self, until: Instant) {
        self.told_until = self.told_until.max(until);
    }

    /// Returns true if no client relies on a lease that lasts longer than the policy permits. That stays so:
    /// none is opened or renewed for longer.
    pub fn leases_fit(&self, now: Instant) -> bool {
        self.longest.is_none_or(|longest| self.told_until <= now + longest)
    }

    /// Returns the longest time to live that a client's lease may have here. `most`: by the configuration.
    pub fn longest_lease(&self, most: Duration) -> Duration {
        self.longest.map_or(most, |longest| longest.min(most))
    }

    /// Returns when time alone ends the backing.
    #[inline]
    pub(super) fn next_deadline(&self) -> Instant {
        if self.backing == Backing::Backed { self.until } else { Instant::FAR_FUTURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_fenced_member_is_backed_until_the_time_is_over_and_again_when_it_is_renewed() {
        let mut lease = MemberLeaseState::default();
        assert!(!lease.renew(at(100), true, at(0)), "it was backed as none was needed");
        assert_eq!(lease.next_deadline(), at(100));
        assert_eq!(lease.backed_for(at(40)), Some(Duration::from_millis(60)));
        assert!(!lease.expire(at(99)) && lease.is_backed());
        assert!(lease.expire(at(100)) && !lease.is_backed() && !lease.expire(at(101)));
        assert_eq!(lease.next_deadline(), Instant::FAR_FUTURE);
        assert!(lease.renew(at(200), true, at(110)) && lease.is_backed());
        assert!(lease.renew(at(105), true, at(110)) && !lease.is_backed(), "acknowledgements were forgotten");
    }

    #[test]
    fn a_member_that_is_not_evicted_by_time_needs_no_backing() {
        let mut lease = MemberLeaseState::default();
        assert!(!lease.renew(at(100), false, at(0)) && !lease.expire(at(200)));
        assert!(lease.is_backed() && !lease.would_be_backed(at(200)));
        assert_eq!((lease.next_deadline(), lease.backed_for(at(40))), (Instant::FAR_FUTURE, None));
    }

    #[test]
    fn the_only_voter_backs_itself_for_ever() {
        let mut lease = MemberLeaseState::default();
        assert!(!lease.renew(Instant::FAR_FUTURE, true, at(0)) && !lease.expire(at(1_000_000)));
        assert_eq!((lease.is_backed(), lease.backed_for(at(0))), (true, None));
    }

    #[test]
    fn the_shorter_limit_of_client_leases_counts() {
        let mut lease = MemberLeaseState::default();
        assert_eq!(lease.longest_lease(Duration::from_secs(9)), Duration::from_secs(9));
        lease.limit_leases(Some(Duration::from_secs(5)));
        assert_eq!(lease.longest_lease(Duration::from_secs(9)), Duration::from_secs(5));
        assert_eq!(lease.longest_lease(Duration::from_secs(2)), Duration::from_secs(2));
    }
}
