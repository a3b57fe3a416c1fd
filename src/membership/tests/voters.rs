//! Votes and witnesses.

use super::*;

#[test]
fn a_change_of_the_voters_is_an_epoch() {
    let mut list = List::of(3);
    let first = list.decide(Command::AddWitness(witness(1))).epoch.expect("an epoch");
    let second = list.decide(list.vote(2, false)).epoch.expect("an epoch");
    let third = list.decide(Command::RemoveWitness { id: WitnessId(first.0) }).epoch.expect("an epoch");
    assert!(first < second && second < third);
    let sets =
        |since| list.config.voter_sets_since(since).map(|sets| sets.iter().map(|set| set.voters.len()));
    assert_eq!(sets(Epoch(0)).map(Iterator::collect), Some(vec![3, 4, 3, 2]));
    assert_eq!(sets(second).map(Iterator::collect), Some(vec![3, 2]));
    assert_eq!(list.members_at(first), list.members_at(third));
}

#[test]
fn old_sets_of_voters_are_forgotten() {
    let mut list = List::of(3);
    for n in 0..MAX_VOTER_SETS {
        list.decide(list.vote(2, n % 2 == 1));
    }
    assert_eq!(list.config.voter_sets_since(Epoch(0)), None, "its voters are not known any more");
    assert_eq!(list.config.voter_sets_since(list.config.epoch()).map(<[_]>::len), Some(1));
}

#[test]
fn a_majority_is_more_than_half() {
    let list = List::of(4);
    let voters = list.config.voters();
    assert_eq!(voters.majority(), 3);
    assert!(!voters.is_majority(&[founder(0), founder(1), founder(1), founder(9)]));
    assert!(voters.is_majority(&[founder(0), founder(1), founder(2)]));
    let later = Voter::Member { dc: dc(2), generation: Generation(1) };
    assert!(!voters.is_majority(&[founder(0), founder(1), later]), "another generation is another voter");
    assert_eq!((voters.without(set([0, 1])).majority(), voters.contains_member(dc(3))), (2, true));
}

#[test]
fn there_are_7_voters_at_most() {
    let mut list = List::of(8);
    assert_eq!(list.refused(list.vote(7, true)), Refused::TooManyVoters);
    assert_eq!(list.refused(Command::AddWitness(witness(1))), Refused::TooManyVoters);
    list.decide(list.vote(0, false));
    list.decide(list.vote(7, true));
    assert!(list.refused(list.vote(7, true)).to_string().contains("its vote is so already"));
}

#[test]
fn a_vote_is_of_a_settled_member_that_stays() {
    let mut list = List::of(3);
    list.admit(5);
    assert_eq!(list.refused(list.vote(5, true)), Refused::StillJoining { dc: dc(5), sponsor: dc(0) });
    list.decide(list.vote(2, false));
    list.decide(list.leaving(2));
    assert_eq!(list.refused(list.vote(2, true)), Refused::AlreadyLeaving { dc: dc(2) });
    assert_eq!(list.refused(list.vote(9, true)), Refused::NotMember { dc: dc(9) });
}

#[test]
fn a_witness_is_a_new_server_with_a_new_name() {
    let mut list = List::of(2);
    list.decide(Command::AddWitness(witness(1)));
    let server = witness(1).server;
    assert_eq!(list.refused(Command::AddWitness(witness(1))), Refused::ServerUsed { server });
    let other = NewWitness { name: name("founder-1"), ..witness(2) };
    assert_eq!(list.refused(Command::AddWitness(other)), Refused::NameUsed { name: name("founder-1") });
    let admission = Admission { server, ..list.admission(5) };
    assert_eq!(list.refused(Command::Admit(admission)), Refused::ServerUsed { server });
    let old = Credentials { version: 2, ..credentials() };
    let refused = list.refused(Command::AddWitness(NewWitness { credentials: old, ..witness(2) }));
    assert_eq!(refused, Refused::OldVersion { theirs: 2, ours: 3 });
    list.decide(Command::SetPolicy(Policy::default()));
    let uninvited = Refused::NotInvited { name: witness(2).name };
    assert_eq!(list.refused(Command::AddWitness(witness(2))), uninvited);
    list.decide(Command::Invite { name: witness(2).name, sponsor: None });
    list.decide(Command::AddWitness(witness(2)));
    assert_eq!(list.config.witnesses().iter().count(), 2);
}

#[test]
fn the_id_of_a_witness_is_used_once() {
    let mut list = List::of(2);
    let id = list.decide(Command::AddWitness(witness(1))).epoch.expect("an epoch");
    let at = |number, id| NewWitness { dc: dc(id), ..witness(number) };
    assert_eq!(list.refused(Command::AddWitness(at(2, 1))), Refused::IdOfMember { dc: dc(1) });
    assert_eq!(list.refused(Command::AddWitness(at(2, 41))), Refused::IdOfWitness { dc: dc(41) });
    assert_eq!(list.refused(Command::Admit(list.admission(41))), Refused::IdOfWitness { dc: dc(41) });
    list.decide(Command::RemoveWitness { id: WitnessId(id.0) });
    assert_eq!(list.refused(Command::AddWitness(at(2, 41))), Refused::IdOfWitness { dc: dc(41) });
    assert_eq!(list.refused(Command::Admit(list.admission(41))), Refused::IdOfWitness { dc: dc(41) });
    let server = witness(1).server;
    assert_eq!(list.refused(Command::AddWitness(at(1, 42))), Refused::ServerUsed { server });
    assert!(list.config.witnesses().is_past(server));
    list.decide(Command::AddWitness(at(2, 42)));
    assert_eq!(list.config.witnesses().link_ids(list.config.voters()), set([0, 1, 42]));
}

#[test]
fn the_last_voter_is_not_removed() {
    let mut list = List::of(1);
    list.decide(Command::AddWitness(witness(1)));
    let id = WitnessId(2);
    list.decide(list.vote(0, false));
    assert_eq!(list.refused(Command::RemoveWitness { id }), Refused::LastVoter { voter: Voter::Witness(id) });
    list.decide(list.vote(0, true));
    list.decide(Command::RemoveWitness { id });
    assert_eq!(list.refused(Command::RemoveWitness { id }), Refused::NotWitness(id));
}
