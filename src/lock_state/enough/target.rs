//! The choices of a request for enough locks: its first target, a better one, and what it is granted. Pure.

use std::cmp::Reverse;
use std::time::Duration;

/// The amount that a request wants, and the most locks that it may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::lock_state) struct Limits {
    pub amount: u128,
    pub most: usize,
}

/// How soon a candidate can be had, the soonest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::lock_state) enum Rank {
    Free,
    /// Parts of it are elsewhere; the time until they can be here. Those that were not asked for come first.
    Elsewhere {
        was_asked: bool,
        distance: Duration,
    },
    /// It is here, and held, or wanted by an earlier request.
    Taken,
    /// A datacenter that it needs cannot be reached.
    Away,
}

/// A candidate, by its place in the client's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::lock_state) struct Ranked {
    pub place: u32,
    pub weight: u64,
    pub rank: Rank,
}

/// A member of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::lock_state) struct Member {
    pub place: u32,
    pub weight: u64,
    pub is_free: bool,
}

fn sum(members: &[Member]) -> u128 {
    members.iter().map(|member| u128::from(member.weight)).sum()
}

/// Removes the members that are not needed to reach the amount, the last ones first.
fn leave_out(members: &mut Vec<Member>, amount: u128, may: impl Fn(&Member) -> bool) {
    let mut reach = sum(members);
    let mut keeps = vec![true; members.len()];
    for (index, member) in members.iter().enumerate().rev() {
        let weight = u128::from(member.weight);
        if may(member) && reach - weight >= amount {
            reach -= weight;
            keeps[index] = false;
        }
    }
    let mut keeps = keeps.into_iter();
    members.retain(|_| keeps.next().is_some_and(|keep| keep));
}

/// Chooses the target of a request: the candidates that can be had soonest, each rank in the client's order,
/// until they reach the amount. If those are too many, the heaviest. Returns their places; `None` if the
/// candidates do not reach the amount.
pub(in crate::lock_state) fn choose(mut candidates: Vec<Ranked>, limits: Limits) -> Option<Vec<u32>> {
    candidates.sort_unstable_by_key(|candidate| (candidate.rank, candidate.place));
    let mut members = take(&candidates, limits.amount)?;
    leave_out(&mut members, limits.amount, |member| !member.is_free);
    if members.len() > limits.most {
        candidates.sort_by_key(|candidate| Reverse(candidate.weight));
        members = take(&candidates[..candidates.len().min(limits.most)], limits.amount)?;
    }
    Some(places(&members))
}

/// Returns candidates from the first one on until they reach the amount.
fn take(candidates: &[Ranked], amount: u128) -> Option<Vec<Member>> {
    let (mut members, mut reach) = (Vec::new(), 0);
    for Ranked { place, weight, rank } in candidates {
        if reach >= amount {
            break;
        }
        members.push(Member { place: *place, weight: *weight, is_free: *rank == Rank::Free });
        reach += u128::from(*weight);
    }
    (reach >= amount).then_some(members)
}

/// Returns the target after some of its members, or a new last one, became free: without the members that are
/// not free and not needed any more, and with the heavier ones if they would be too many. Free members stay,
/// needed or not, until enough are free. Of all members: [`super::Members`] does the same for one at a time,
/// and is compared with this.
#[cfg(test)]
pub(in crate::lock_state) fn improve(mut members: Vec<Member>, limits: Limits) -> Vec<u32> {
    leave_out(&mut members, limits.amount, |member| !member.is_free);
    while members.len() > limits.most {
        let reach = sum(&members);
        // Of equal ones the last, or two free locks would take each other's place without end.
        let lightest = (0..members.len()).rev().min_by_key(|index| members[*index].weight);
        let Some(lightest) =
            lightest.filter(|index| reach - u128::from(members[*index].weight) >= limits.amount)
        else {
            // The last one came in vain.
            members.pop();
            continue;
        };
        members.remove(lightest);
    }
    places(&members)
}

/// Returns those of the members of a free target that are needed to reach the amount.
pub(in crate::lock_state) fn trim(mut members: Vec<Member>, limits: Limits) -> Vec<u32> {
    leave_out(&mut members, limits.amount, |_| true);
    places(&members)
}

/// Returns the places of these members, in the client's order.
fn places(members: &[Member]) -> Vec<u32> {
    let mut places: Vec<u32> = members.iter().map(|member| member.place).collect();
    places.sort_unstable();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(all: &[(u64, Rank)]) -> Vec<Ranked> {
        let one = |(place, (weight, rank)): (usize, &(u64, Rank))| Ranked {
            place: place as u32,
            weight: *weight,
            rank: *rank,
        };
        all.iter().enumerate().map(one).collect()
    }

    fn members(all: &[(u64, bool)]) -> Vec<Member> {
        let one = |(place, (weight, is_free)): (usize, &(u64, bool))| Member {
            place: place as u32,
            weight: *weight,
            is_free: *is_free,
        };
        all.iter().enumerate().map(one).collect()
    }

    fn elsewhere(was_asked: bool, millis: u64) -> Rank {
        Rank::Elsewhere { was_asked, distance: Duration::from_millis(millis) }
    }

    const ANY: usize = usize::MAX;

    #[test]
    fn a_target_is_what_can_be_had_soonest() {
        let limits = |amount| Limits { amount, most: ANY };
        let all = ranked(&[
            (1, Rank::Away),
            (1, Rank::Taken),
            (1, elsewhere(false, 40)),
            (1, elsewhere(false, 10)),
            (1, elsewhere(true, 5)),
            (1, Rank::Free),
            (1, Rank::Free),
        ]);
        let first = |amount| choose(all.clone(), limits(amount));
        assert_eq!(first(1), Some(vec![5]));
        assert_eq!(first(3), Some(vec![3, 5, 6]));
        assert_eq!(first(5), Some(vec![2, 3, 4, 5, 6]), "what was asked for comes after the rest");
        assert_eq!(first(6), Some(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(first(7), Some(vec![0, 1, 2, 3, 4, 5, 6]), "what is away comes last");
        assert_eq!(first(8), None);
    }

    #[test]
    fn what_is_not_needed_is_left_out_and_too_many_become_the_heaviest() {
        let all = ranked(&[(1, Rank::Free), (2, Rank::Taken), (9, Rank::Taken), (4, Rank::Taken)]);
        let first = |amount, most| choose(all.clone(), Limits { amount, most });
        assert_eq!(
            first(10, ANY),
            Some(vec![0, 2]),
            "a free one stays, one that is not and not needed does not"
        );
        assert_eq!(first(13, 2), Some(vec![2, 3]));
        assert_eq!(first(3, 1), Some(vec![2]));
        assert_eq!(first(14, 2), None);
    }

    #[test]
    fn free_ones_gather_until_they_reach_the_amount() {
        let limits = Limits { amount: 5, most: ANY };
        assert_eq!(improve(members(&[(5, false), (3, true)]), limits), [0, 1]);
        assert_eq!(improve(members(&[(5, false), (3, true), (2, true)]), limits), [1, 2]);
        assert_eq!(improve(members(&[(3, false), (2, false), (2, true)]), limits), [0, 2], "in its place");
        assert_eq!(trim(members(&[(5, true), (3, true)]), limits), [0]);
        assert_eq!(trim(members(&[(1, true), (3, true), (4, true)]), limits), [0, 2]);
    }

    #[test]
    fn of_too_many_the_lightest_goes_and_one_that_came_in_vain() {
        let limits = Limits { amount: 6, most: 2 };
        assert_eq!(improve(members(&[(5, false), (1, true), (3, true)]), limits), [0, 2]);
        assert_eq!(improve(members(&[(5, false), (3, true), (3, true)]), limits), [1, 2]);
        assert_eq!(improve(members(&[(3, false), (3, false), (1, true)]), limits), [0, 1]);
        assert_eq!(
            improve(members(&[(5, false), (1, true), (1, true)]), limits),
            [0, 1],
            "as good as before"
        );
    }
}
