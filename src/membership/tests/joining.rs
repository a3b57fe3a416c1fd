//! Invitations and joins.

use super::*;

#[test]
fn a_server_joins_and_settles_and_gets_its_vote() {
    let mut list = List::of(2);
    let applied = list.admit(5);
    assert_eq!(applied, Applied { epoch: Some(Epoch(2)), cuts: vec![] });
    let config = &list.config;
    assert_eq!((config.slots().sponsor(dc(5)), config.slots().is_settled(dc(5))), (Some(dc(0)), false));
    assert_eq!(
        config.slots().member(dc(5)).map(|it| (it.phase, it.admitted)),
        Some((Phase::Joining, Epoch(2)))
    );
    assert_eq!((config.next_voter(), config.slots().with_joiners(set([0]))), (None, set([0, 5])));
    list.settle(5);
    let config = &list.config;
    assert_eq!((config.slots().sponsor(dc(5)), config.slots().is_settled(dc(5))), (Some(dc(5)), true));
    assert_eq!((config.next_voter(), config.slots().with_joiners(set([0]))), (Some(dc(5)), set([0])));
    assert_eq!(list.decide(list.vote(5, true)).epoch, Some(Epoch(4)));
    assert_eq!((list.config.next_voter(), list.config.voters().members()), (None, set([0, 1, 5])));
    assert_eq!(list.members_at(Epoch(1)), [(0, 0), (1, 0)]);
    assert_eq!(list.members_at(Epoch(2)), [(0, 0), (1, 0), (5, 0)]);
}

#[test]
fn one_server_grows_to_many() {
    let mut list = List::of(1);
    for id in 1..64 {
        list.admit(id);
        list.settle(id);
        if let Some(voter) = list.config.next_voter() {
            list.decide(list.vote(voter.get(), true));
        }
    }
    assert_eq!((list.config.slots().member_set().len(), list.config.voters().voters.len()), (64, MAX_VOTERS));
}

#[test]
fn a_slot_has_one_member_and_each_member_its_generation() {
    let mut list = List::of(3);
    let again = Admission { dc: dc(1), ..list.admission(5) };
    let refused = list.refused(Command::Admit(again));
    assert_eq!(refused, Refused::SlotUsed { dc: dc(1), server: ServerId([1; 16]) });
    list.evict(1);
    let old = Admission { generation: Generation(0), ..list.admission(1) };
    let expected = Generation(1);
    let refused = list.refused(Command::Admit(old));
    assert_eq!(refused, Refused::WrongGeneration { dc: dc(1), asked: Generation(0), expected });
    let policy = Policy { rejoin: JoinPolicy::Auto, ..*list.config.policy() };
    list.decide(Command::SetPolicy(policy));
    list.admit(1);
    assert_eq!(list.config.slots().generation(dc(1)), Some(Generation(1)));
    assert!(
        list.config.slots().is_over(dc(1), Generation(0))
            && !list.config.slots().is_over(dc(1), Generation(1))
    );
    assert!(
        !list.config.slots().is_over(dc(1), Generation(2))
            && !list.config.slots().is_over(dc(9), Generation(0))
    );
}

#[test]
fn the_last_generation_is_not_followed_by_another() {
    let mut list = List::of(2);
    let member = list.config.slots.member_mut(dc(1)).expect("founder");
    member.generation = Generation::MAX;
    let voters = [founder(0), Voter::Member { dc: dc(1), generation: Generation::MAX }];
    list.config.voters.sets[0].voters = voters.into();
    list.decide(list.leaving(1));
    list.decide(list.left(1, 9));
    assert_eq!(list.config.slots().cut(dc(1), Generation::MAX), Some(Generation::MAX.base() + 9));
    let admission = Admission { dc: dc(1), ..list.admission(5) };
    assert_eq!(list.refused(Command::Admit(admission)), Refused::SlotExhausted { dc: dc(1) });
}

#[test]
fn a_server_is_admitted_once_and_a_name_has_one_member() {
    let mut list = List::of(3);
    let server = ServerId([1; 16]);
    let used = Command::Admit(Admission { server, ..list.admission(5) });
    assert_eq!(list.refused(used.clone()), Refused::ServerUsed { server });
    let admission = Admission { name: name("founder-2"), ..list.admission(5) };
    assert_eq!(list.refused(Command::Admit(admission)), Refused::NameUsed { name: name("founder-2") });
    list.evict(1);
    assert_eq!(list.refused(used), Refused::ServerUsed { server }, "also when its generation is over");
}

#[test]
fn a_server_is_of_this_cluster_and_lineage_and_speaks_its_version() {
    let mut list = List::of(1);
    let mut refused = |change: fn(&mut Credentials)| {
        let mut admission = list.admission(5);
        change(&mut admission.credentials);
        list.refused(Command::Admit(admission)).to_string()
    };
    let cluster = refused(|it| it.cluster = ClusterId::from_raw(8));
    assert!(cluster.contains("belongs to cluster 0000000000000008, this is cluster 0000000000000007"));
    assert!(refused(|it| it.lineage = Some(Lineage(1))).contains("of lineage 1, the cluster of lineage 0"));
    assert!(refused(|it| it.version = 2).contains("speaks version 2 at most, the cluster uses 3: upgrade"));
    let admission = list.admission(5);
    let credentials = Credentials { lineage: Some(Lineage(0)), version: 4, ..admission.credentials };
    list.decide(Command::Admit(Admission { credentials, ..admission }));
}

#[test]
fn a_sponsor_is_settled_and_stays() {
    let mut list = List::of(3);
    list.admit(5);
    list.decide(list.leaving(1));
    let mut refused = |sponsor: u8| {
        let admission = Admission { sponsor: dc(sponsor), ..list.admission(6) };
        list.refused(Command::Admit(admission)).to_string()
    };
    assert!(refused(5).contains("dc5 cannot be a sponsor: it is joining itself"));
    assert!(refused(1).contains("dc1 cannot be a sponsor: it is leaving"));
    assert!(refused(6).contains("dc6 cannot be a sponsor: it is no member"));
}

#[test]
fn an_operator_invites() {
    let mut list = List::of(3);
    list.decide(Command::SetPolicy(Policy::default()));
    let invited = name("joiner-5");
    let admission = Command::Admit(list.admission(5));
    assert_eq!(list.refused(admission.clone()), Refused::NotInvited { name: invited.clone() });
    list.decide(Command::Invite { name: invited.clone(), sponsor: Some(dc(1)) });
    assert_eq!(list.config.invitations().collect::<Vec<_>>(), [(&invited, Some(dc(1)))]);
    assert!(list.refused(admission.clone()).to_string().contains("is not the one that the invitation names"));
    list.decide(Command::CancelInvitation { name: invited.clone() });
    let none = Refused::NoInvitation { name: invited.clone() };
    assert_eq!(list.refused(Command::CancelInvitation { name: invited.clone() }), none);
    list.decide(Command::Invite { name: invited.clone(), sponsor: None });
    list.decide(admission);
    assert_eq!(list.config.invitations().count(), 0, "an invitation is for one server");
    let used = Refused::NameUsed { name: invited.clone() };
    assert_eq!(list.refused(Command::Invite { name: invited, sponsor: None }), used);
    let sponsor = Some(dc(9));
    assert!(list.refused(Command::Invite { name: name("x"), sponsor }).to_string().contains("is no member"));
}

#[test]
fn invitations_have_a_limit() {
    let mut list = List::of(1);
    let invite = |n: u8| Command::Invite { name: name(&format!("server-{n}")), sponsor: None };
    (0..64).for_each(|n| drop(list.decide(invite(n))));
    assert_eq!(list.refused(invite(64)), Refused::TooManyInvitations);
    list.decide(invite(5));
}

#[test]
fn an_evicted_server_returns_by_the_policy_for_returns() {
    let mut list = List::of(4);
    list.decide(Command::SetPolicy(Policy { rejoin: JoinPolicy::Auto, ..Policy::default() }));
    list.evict(1);
    list.decide(list.leaving(2));
    list.decide(list.left(2, 1));
    list.admit(1);
    let admission = list.admission(2);
    assert_eq!(list.refused(Command::Admit(admission)), Refused::NotInvited { name: name("joiner-2") });
}

#[test]
fn a_member_settles_once() {
    let mut list = List::of(2);
    let settled = |generation| Command::Settled { dc: dc(5), generation };
    assert_eq!(list.refused(settled(Generation(0))), Refused::NotMember { dc: dc(5) });
    list.admit(5);
    let other = Refused::OldGeneration { dc: dc(5), asked: Generation(1), now: Generation(0) };
    assert_eq!(list.refused(settled(Generation(1))), other);
    list.decide(settled(Generation(0)));
    assert_eq!(list.refused(settled(Generation(0))), Refused::AlreadySettled { dc: dc(5) });
}

#[test]
fn a_joiner_that_is_to_be_evicted_does_not_settle() {
    let mut list = List::of(3);
    list.admit(5);
    let attempt = list.begin([0, 5]);
    let settled = Command::Settled { dc: dc(5), generation: Generation(0) };
    let members = set([0, 5]);
    assert_eq!(list.refused(settled.clone()), Refused::EvictionUnderWay { attempt, members });
    list.decide(Command::Abort { attempt });
    list.decide(settled);
}

#[test]
fn ends_of_many_generations_are_forgotten() {
    let mut list = List::of(2);
    for _ in 0..20 {
        list.admit(5);
        list.settle(5);
        list.decide(list.leaving(5));
        list.decide(list.left(5, 1));
    }
    let slot = list.config.slots().iter().find(|(slot, _)| *slot == dc(5)).expect("it was given out").1;
    assert_eq!(slot.past.len(), MAX_PAST);
    assert!(
        list.config.slots().is_over(dc(5), Generation(0))
            && list.config.slots().cut(dc(5), Generation(0)).is_none()
    );
    assert_eq!(list.config.slots().cut(dc(5), Generation(4)), Some(Generation(4).base() + 1));
}
