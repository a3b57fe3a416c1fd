//! The target of a waiting request, kept member by member.
//!
//! A request for enough locks hears of its members one at a time: a part arrives, a holder releases,
//! a further candidate is offered. There may be 10 000 of them, so no such event may examine all. What the
//! choices of `target.rs` depend on is kept here and changes with each member: the number and the weight of
//! the members, which of them are *missing*, that is, not free for the request, and the lightest missing one
//! of each range of candidates. An event then costs time logarithmic in the number of candidates.
//!
//! A member that is not missing was free when its lock was last examined. Other requests may have taken it
//! since, so a grant checks all members once more (`schedule/enough.rs`). A missing member that became free
//! is noticed when the schedule restores the rules on its lock, because every change marks the lock.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::target::Limits;

/// The index among the wants of a candidate that is no member.
const OUTSIDE: u32 = u32::MAX;

/// The members of a target. Candidates are named by their places in the client's order.
#[derive(Debug)]
pub(in crate::lock_state) struct Members {
    limits: Limits,
    /// By candidate: its index among the wants of the request, or [`OUTSIDE`].
    wants: Vec<u32>,
    number: usize,
    reach: u128,
    missing: Missing,
    /// All members, the lightest first; of equal ones the last. Empty if the target cannot become too large.
    by_weight: BTreeSet<(u64, Reverse<u32>)>,
}

impl Members {
    /// Returns a target without members, for that many candidates.
    pub fn new(candidates: usize, limits: Limits) -> Members {
        Members {
            limits,
            wants: vec![OUTSIDE; candidates],
            number: 0,
            reach: 0,
            missing: Missing::new(candidates),
            by_weight: BTreeSet::new(),
        }
    }

    pub fn contains(&self, place: u32) -> bool {
        self.wants[place as usize] != OUTSIDE
    }

    /// Returns true if all members were free when they were last examined.
    pub fn are_free(&self) -> bool {
        self.missing.number == 0
    }

    /// Returns true if a member was not free when it was last examined.
    pub fn is_missing(&self, place: u32) -> bool {
        self.missing.contains(place)
    }

    /// Adds a member, which is free or missing. `want`: its index among the wants of the request.
    pub fn insert(&mut self, (place, weight): (u32, u64), is_free: bool, want: usize) {
        assert!(!self.contains(place), "candidate {place} is a member once");
        self.wants[place as usize] = want as u32;
        self.number += 1;
        self.reach += u128::from(weight);
        if self.may_be_too_many() {
            self.by_weight.insert((weight, Reverse(place)));
        }
        if !is_free {
            self.missing.insert(place, weight);
        }
    }

    /// Removes a member. Returns its index among the wants of the request.
    pub fn remove(&mut self, (place, weight): (u32, u64)) -> usize {
        assert!(self.contains(place), "candidate {place} is a member");
        self.number -= 1;
        self.reach -= u128::from(weight);
        self.by_weight.remove(&(weight, Reverse(place)));
        self.missing.remove(place);
        std::mem::replace(&mut self.wants[place as usize], OUTSIDE) as usize
    }

    /// The wants of the request were put in another order, or one of them has moved.
    pub fn set_want(&mut self, place: u32, want: usize) {
        debug_assert!(self.contains(place), "only members are wanted");
        self.wants[place as usize] = want as u32;
    }

    /// Notes that a member is free, or missing.
    pub fn set_free(&mut self, (place, weight): (u32, u64), is_free: bool) {
        debug_assert!(self.contains(place), "candidate {place} is a member");
        match is_free {
            true => self.missing.remove(place),
            false => self.missing.insert(place, weight),
        }
    }

    /// Returns the last missing member that is not needed to reach the amount. With a further member of
    /// weight `beside`, which is 0 for none.
    pub fn superfluous(&self, beside: u64) -> Option<u32> {
        let excess = (self.reach + u128::from(beside)).saturating_sub(self.limits.amount);
        self.missing.last_of_at_most(excess)
    }

    /// Returns true if the target may have one more member.
    pub fn has_room(&self) -> bool {
        self.number < self.limits.most
    }

    /// Returns the member whose place one of this weight takes if there is no room: the lightest, of equal
    /// ones the last; `None` if the target is no better with the heavier one.
    pub fn lightest_below(&self, weight: u64) -> Option<u32> {
        let (lightest, Reverse(place)) = *self.by_weight.first()?;
        let reach = self.reach - u128::from(lightest) + u128::from(weight);
        (lightest < weight && reach >= self.limits.amount).then_some(place)
    }

    fn may_be_too_many(&self) -> bool {
        self.limits.most < self.wants.len()
    }

    /// Asserts that the sums are those of the members. `weight`: that of a candidate.
    pub fn check(&self, weight: impl Fn(u32) -> u64) {
        let members: Vec<u32> = (0..self.wants.len() as u32).filter(|place| self.contains(*place)).collect();
        assert_eq!(self.number, members.len(), "the number of members");
        assert_eq!(self.reach, members.iter().map(|place| u128::from(weight(*place))).sum(), "their weight");
        assert!(self.number <= self.limits.most && self.reach >= self.limits.amount, "the target is enough");
        let by_weight = if self.may_be_too_many() { self.number } else { 0 };
        assert_eq!(self.by_weight.len(), by_weight, "the members by weight");
        let missing = members.iter().filter(|place| self.is_missing(**place)).count();
        assert_eq!(self.missing.number, missing, "the number of missing members");
    }

    /// Returns the index of a member among the wants.
    pub fn want_of(&self, place: u32) -> Option<usize> {
        self.contains(place).then(|| self.wants[place as usize] as usize)
    }
}

/// The missing members: a tree over all candidates. Each node has the least weight of the missing ones below
/// it, so the last one of at most some weight is found without a walk over those that are too heavy.
#[derive(Debug)]
struct Missing {
    number: usize,
    /// The number of leaves, a power of two.
    leaves: usize,
    /// The children of node i are 2i and 2i + 1. A weight is kept as one less, so that [`NONE`] is no weight.
    nodes: Vec<u64>,
}

const NONE: u64 = u64::MAX;

impl Missing {
    fn new(candidates: usize) -> Missing {
        let leaves = candidates.next_power_of_two();
        Missing { number: 0, leaves, nodes: vec![NONE; 2 * leaves] }
    }

    fn contains(&self, place: u32) -> bool {
        self.nodes[self.leaves + place as usize] != NONE
    }

    fn insert(&mut self, place: u32, weight: u64) {
        debug_assert!(weight > 0, "a candidate has a weight");
        self.number += usize::from(!self.contains(place));
        self.set(place, weight - 1);
    }

    fn remove(&mut self, place: u32) {
        self.number -= usize::from(self.contains(place));
        self.set(place, NONE);
    }

    fn set(&mut self, place: u32, value: u64) {
        let mut node = self.leaves + place as usize;
        self.nodes[node] = value;
        while node > 1 {
            node /= 2;
            let least = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if self.nodes[node] == least {
                break;
            }
            self.nodes[node] = least;
        }
    }

    /// Returns the last missing candidate whose weight is at most this.
    fn last_of_at_most(&self, weight: u128) -> Option<u32> {
        let most = u64::try_from(weight.checked_sub(1)?).unwrap_or(NONE).min(NONE - 1);
        if self.nodes[1] > most {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node = if self.nodes[2 * node + 1] <= most { 2 * node + 1 } else { 2 * node };
        }
        Some((node - self.leaves) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::lock_state::enough::target::{Member, improve};

    /// The target as a list, to which the choices of `target.rs` are applied whole.
    fn as_list(members: &Members, weights: &[u64]) -> Vec<Member> {
        let places = (0..weights.len() as u32).filter(|place| members.contains(*place));
        let member =
            |place| Member { place, weight: weights[place as usize], is_free: !members.is_missing(place) };
        places.map(member).collect()
    }

    /// As `schedule/enough.rs` does it, without locks.
    fn offer(members: &mut Members, weights: &[u64], offered: u32) {
        let weight = weights[offered as usize];
        let has_room = members.has_room() || members.superfluous(weight).is_some();
        let lightest = members.lightest_below(weight);
        if !has_room && lightest.is_none() {
            return;
        }
        members.insert((offered, weight), true, 0);
        if let Some(place) = lightest.filter(|_| !has_room) {
            members.remove((place, weights[place as usize]));
        }
        while let Some(place) = members.superfluous(0) {
            members.remove((place, weights[place as usize]));
        }
    }

    #[test]
    fn a_target_that_is_kept_is_the_one_that_is_computed() {
        let mut rng = Rng::new(7, 1);
        for round in 0..400 {
            let many = rng.between(2, 40) as usize;
            let heaviest = *rng.pick(&[1, 3, 20]);
            let weights: Vec<u64> = (0..many).map(|_| rng.between(1, heaviest)).collect();
            let most = if rng.percent(50) { rng.between(1, many as u64) as usize } else { usize::MAX };
            // A target of the heaviest ones: it is enough, and not too large.
            let mut heavy: Vec<u32> = (0..many as u32).collect();
            heavy.sort_by_key(|place| Reverse(weights[*place as usize]));
            heavy.truncate(rng.between(1, most.min(many) as u64) as usize);
            let amount: u128 = heavy.iter().map(|place| u128::from(weights[*place as usize])).sum();
            let limits = Limits { amount, most };
            let mut members = Members::new(many, limits);
            for (want, place) in heavy.into_iter().enumerate() {
                members.insert((place, weights[place as usize]), rng.percent(30), want);
            }
            for _ in 0..40 {
                let place = rng.index(many) as u32;
                let weight = weights[place as usize];
                let mut list = as_list(&members, &weights);
                if members.contains(place) {
                    members.set_free((place, weight), rng.percent(60));
                    list = as_list(&members, &weights);
                    while let Some(left) = members.superfluous(0) {
                        members.remove((left, weights[left as usize]));
                    }
                } else {
                    list.push(Member { place, weight, is_free: true });
                    offer(&mut members, &weights, place);
                }
                let kept: Vec<u32> = as_list(&members, &weights).iter().map(|member| member.place).collect();
                assert_eq!(kept, improve(list, limits), "round {round}");
                members.check(|place| weights[place as usize]);
            }
        }
    }

    #[test]
    fn the_last_one_that_is_light_enough_is_found_among_any_weights() {
        let mut missing = Missing::new(5);
        for (place, weight) in [(0, 1), (1, u64::MAX), (2, 3), (3, u64::MAX - 1), (4, 2)] {
            missing.insert(place, weight);
        }
        let found = |missing: &Missing, most: u128| missing.last_of_at_most(most);
        assert_eq!([0, 1, 2, 3].map(|most| found(&missing, most)), [None, Some(0), Some(4), Some(4)]);
        missing.remove(4);
        assert_eq!([2, 3].map(|most| found(&missing, most)), [Some(0), Some(2)]);
        assert_eq!(found(&missing, u128::from(u64::MAX)), Some(3));
        missing.remove(3);
        assert_eq!(found(&missing, u128::from(u64::MAX) - 1), Some(2));
        missing.remove(2);
        assert_eq!(found(&missing, u128::MAX), Some(1), "the heaviest weight is one");
        assert_eq!(missing.number, 2);
    }
}
