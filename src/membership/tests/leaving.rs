//! Members that leave.

use super::*;

#[test]
fn a_member_leaves_behind_its_last_entry() {
    let mut list = List::of(3);
    // A member that has entered that epoch gives nothing to the one that leaves any more.
    assert_eq!(list.decide(list.leaving(1)), Applied { epoch: Some(Epoch(2)), cuts: vec![] });
    assert_eq!((list.config.staying(), list.config.slots().member_set()), (set([0, 2]), set([0, 1, 2])));
    let applied = list.decide(list.left(1, 40));
    let cut = Cut { dc: dc(1), generation: Generation(0), seq: 40 };
    assert_eq!(applied, Applied { epoch: Some(Epoch(3)), cuts: vec![cut] });
    assert_eq!(
        (list.config.slots().member_set(), list.config.voters().members()),
        (set([0, 2]), set([0, 2]))
    );
    assert_eq!(list.config.slots().cut(dc(1), Generation(0)), Some(40));
    let past = list.config.slots().past(dc(1), Generation(0)).expect("it was one");
    assert_eq!((past.cause, past.ended, list.config.fence()), (EndCause::Left, Epoch(3), 16));
    assert_eq!(list.members_at(Epoch(2)), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(list.members_at(Epoch(3)), [(0, 0), (2, 0)]);
    assert_eq!(list.config.slots().generation_at(dc(1), Epoch(2)), Some(Generation(0)));
    assert_eq!(list.config.slots().generation_at(dc(1), Epoch(3)), None);
}

#[test]
fn the_last_member_stays() {
    let mut list = List::of(2);
    list.decide(list.leaving(1));
    assert_eq!(list.refused(list.leaving(0)), Refused::LastMember(set([0])));
    assert_eq!(list.refused(list.eviction([0], Vouch::Operator)), Refused::LastMember(set([0])));
    list.decide(list.left(1, 1));
    let refused = list.refused(list.leaving(0));
    assert_eq!(refused.to_string(), "no member would remain without dc0: add another one first");
}

#[test]
fn nobody_begins_to_leave_during_an_eviction() {
    let mut list = List::of(3);
    let attempt = list.begin([0]);
    assert_eq!(list.refused(list.leaving(1)), Refused::EvictionUnderWay { attempt, members: set([0]) });
}

#[test]
fn the_last_voter_stays() {
    let mut list = List::of(2);
    list.decide(list.vote(0, false));
    assert_eq!(list.refused(list.leaving(1)), Refused::LastVoter { voter: founder(1) });
    assert_eq!(list.refused(list.vote(1, false)), Refused::LastVoter { voter: founder(1) });
}

#[test]
fn a_member_leaves_once_and_settled() {
    let mut list = List::of(3);
    list.admit(5);
    assert_eq!(list.refused(list.leaving(5)), Refused::StillJoining { dc: dc(5), sponsor: dc(0) });
    assert_eq!(list.refused(list.left(1, 1)), Refused::NotLeaving { dc: dc(1) });
    list.decide(list.leaving(1));
    assert_eq!(list.refused(list.leaving(1)), Refused::AlreadyLeaving { dc: dc(1) });
    assert_eq!(list.refused(list.leaving(9)), Refused::NotMember { dc: dc(9) });
}

#[test]
fn a_sponsor_leaves_after_its_joiner_has_settled() {
    let mut list = List::of(3);
    list.admit(5);
    list.decide(list.leaving(0));
    assert_eq!(list.refused(list.left(0, 1)), Refused::SponsorNeeded { dc: dc(0), joiner: dc(5) });
    list.settle(5);
    list.decide(list.left(0, 1));
}

#[test]
fn the_last_entry_is_of_the_generation_that_leaves() {
    let mut list = List::of(3);
    list.decide(list.leaving(1));
    for cut in [0, Generation(1).base(), u64::MAX] {
        let generation = Generation(0);
        let command = Command::Left { dc: dc(1), generation, cut };
        assert_eq!(list.refused(command), Refused::WrongCut { dc: dc(1), generation, cut });
    }
}

#[test]
fn nobody_leaves_during_an_eviction_of_another() {
    let mut list = List::of(4);
    list.decide(list.leaving(1));
    let attempt = list.begin([2]);
    let under_way = Refused::EvictionUnderWay { attempt, members: set([2]) };
    assert_eq!(list.refused(list.left(1, 1)), under_way);
    assert_eq!(list.refused(list.leaving(2)), under_way);
    list.decide(Command::Abort { attempt });
    list.decide(list.left(1, 1));
}

#[test]
fn a_leave_that_is_cancelled_leaves_a_member_like_any_other() {
    let mut list = List::of(3);
    assert_eq!(list.refused(list.cancel_leave(1)), Refused::NotLeaving { dc: dc(1) });
    assert_eq!(list.refused(list.cancel_leave(9)), Refused::NotMember { dc: dc(9) });
    let voters = list.config.voters().clone();
    list.decide(list.leaving(1));
    let applied = list.decide(list.cancel_leave(1));
    // A member that has entered that epoch gives it parts again.
    assert_eq!(applied, Applied { epoch: Some(list.config.epoch()), cuts: vec![] });
    assert_eq!((list.config.staying(), list.config.voters()), (set([0, 1, 2]), &voters));
    assert_eq!(list.refused(list.left(1, 9)), Refused::NotLeaving { dc: dc(1) });
    list.begin([0]);
}

#[test]
fn a_leave_is_not_cancelled_during_an_eviction() {
    let mut list = List::of(3);
    list.decide(list.leaving(1));
    let attempt = list.begin([1]);
    let under_way = Refused::EvictionUnderWay { attempt, members: set([1]) };
    assert_eq!(list.refused(list.cancel_leave(1)), under_way);
}

/// A proposal may be decided late: after another leave of the same member has begun.
#[test]
fn an_old_cancellation_does_not_cancel_a_later_leave() {
    let mut list = List::of(2);
    list.decide(list.leaving(1));
    let old = Proposal { checked: list.config.revision(), command: list.cancel_leave(1) };
    list.decide(list.cancel_leave(1));
    list.decide(list.leaving(1));
    let refused = list.config.apply(list.config.index().next(), &old);
    assert!(matches!(refused, Err(Refused::Changed { .. })), "{refused:?}");
    assert_eq!(list.config.staying(), set([0]));
}
