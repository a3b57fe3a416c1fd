//! Raft's members follow the decisions, and a leader that leaves chooses another one.

use std::collections::BTreeSet;

use super::super::decisions::founder_id;
use super::{successors, vote_proposer};
use crate::control::{Founding as Entry, MemberId, MemberStep, Status};
use crate::lock_server::MembersView;
use crate::membership::{
    Address, AgreedOptions, Command, Config, Credentials, Founder, Founding, Generation, Index, JoinPolicy,
    MemberName, NewWitness, Policy, Proposal, ServerId,
};
use geolock_api::names::{ClusterId, DcId, DcSet};

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn member(id: u8) -> MemberId {
    MemberId { dc: dc(id), generation: 0 }
}

fn set(ids: &[u8]) -> BTreeSet<MemberId> {
    ids.iter().copied().map(member).collect()
}

fn cluster() -> ClusterId {
    ClusterId::of("test")
}

fn named(text: &str) -> (MemberName, Address) {
    let address = Address::new(&format!("{text}:7401"));
    (MemberName::new(text).expect("a short name"), address.expect("a host and a port"))
}

fn decide(config: &mut Config, command: Command) {
    let proposal = Proposal { checked: config.revision(), command };
    config.apply(Index(config.index().0 + 1), &proposal).expect("it fits");
}

/// Founders 0 to 3, of which 0, 1 and 2 have founded the cluster as voters, and witness 9.
fn config(voters: usize) -> Config {
    let founder = |id: u8| {
        let (name, address) = named(&format!("city{id}"));
        let server = founder_id(cluster(), dc(id));
        Founder { dc: dc(id), server, name, address, votes: usize::from(id) < voters }
    };
    let mut config = Config::default();
    let policy = Policy { join: JoinPolicy::Auto, ..Policy::default() };
    let founders = (0..4).map(founder).collect();
    let options = AgreedOptions::default();
    decide(
        &mut config,
        Command::Found(Founding { cluster: cluster(), founders, policy, options, version: 4 }),
    );
    config
}

fn add_witness(config: &mut Config) {
    let (name, address) = named("wit");
    let credentials = Credentials { cluster: cluster(), lineage: None, version: 4 };
    decide(
        config,
        Command::AddWitness(NewWitness { dc: dc(9), server: ServerId([9; 16]), name, address, credentials }),
    );
}

fn leave(config: &mut Config, id: u8) {
    decide(config, Command::Leaving { dc: dc(id), generation: Generation(0) });
}

/// Raft's members. While they change, `voters` are those before and after, `settled` those of both.
fn status(voters: &[u8], settled: &[u8], learners: &[u8]) -> Status {
    Status {
        leader: Some(member(0)),
        leads: true,
        term: 3,
        voters: set(voters),
        settled_voters: set(settled),
        learners: set(learners),
        last_log: None,
        decided: 0,
        founding: Entry::Done,
        failed: None,
    }
}

fn next_step(config: &Config, status: &Status) -> Option<MemberStep> {
    super::next_step(config, status, &BTreeSet::new())
}

#[test]
fn voters_follow_the_decisions() {
    let mut config = config(4);
    let step = next_step;
    assert_eq!(step(&config, &status(&[0, 1, 2, 3], &[0, 1, 2, 3], &[])), None);
    let promote = Some(MemberStep::Promote(member(3)));
    assert_eq!(step(&config, &status(&[0, 1, 2], &[0, 1, 2], &[3])), promote);
    leave(&mut config, 3);
    assert_eq!(step(&config, &status(&[0, 1, 2, 3], &[0, 1, 2, 3], &[])), None, "it votes until it is gone");
    decide(&mut config, Command::Left { dc: dc(3), generation: Generation(0), cut: 1 });
    let demote = Some(MemberStep::Demote(member(3)));
    assert_eq!(step(&config, &status(&[0, 1, 2, 3], &[0, 1, 2, 3], &[])), demote);
    let remove = Some(MemberStep::Remove(member(3)));
    assert_eq!(step(&config, &status(&[0, 1, 2], &[0, 1, 2], &[3])), remove);
}

/// The server id of a founder says nothing about its directory, which the leader has to ask for.
#[test]
fn a_founder_without_a_vote_that_does_not_answer_keeps_no_other_one_waiting() {
    let mut config = config(3);
    let settled = status(&[0, 1, 2], &[0, 1, 2], &[]);
    assert!(
        matches!(next_step(&config, &settled), Some(MemberStep::AddLearner { member: it, .. }) if it == member(3))
    );
    assert!(
        (0..4).all(|id| super::is_founder(&config, member(id))) && !super::is_founder(&config, member(9))
    );
    add_witness(&mut config);
    let step = super::next_step(&config, &settled, &set(&[3]));
    let server = crate::control::ServerId::from_bytes([9; 16]);
    assert_eq!(step, Some(MemberStep::AddLearner { member: member(9), server }));
    assert_eq!(config.next_voter(), Some(dc(3)), "it gets a vote once there is room");
}

/// The former leader died between the two entries of a change: until the second one, a decision needs a
/// majority of both sets of voters.
#[test]
fn a_change_of_voters_that_a_former_leader_has_begun_is_ended() {
    let promoted = config(4);
    let promote = Some(MemberStep::Promote(member(3)));
    assert_eq!(next_step(&promoted, &status(&[0, 1, 2, 3], &[0, 1, 2], &[])), promote);
    let mut demoted = promoted.clone();
    leave(&mut demoted, 3);
    decide(&mut demoted, Command::Left { dc: dc(3), generation: Generation(0), cut: 1 });
    let demote = Some(MemberStep::Demote(member(3)));
    assert_eq!(next_step(&demoted, &status(&[0, 1, 2, 3], &[0, 1, 2], &[])), demote);
    // A leader that does not know the decision yet waits for it.
    assert_eq!(next_step(&config(3), &status(&[0, 1, 2, 3], &[0, 1, 2], &[])), None);
}

fn view(heard: &[u8], witnesses: &[u8]) -> MembersView {
    let dcs = |ids: &[u8]| ids.iter().copied().map(dc).collect::<DcSet>();
    MembersView { heard: dcs(heard), witnesses: (dcs(witnesses), Default::default()), ..Default::default() }
}

#[test]
fn a_leader_that_leaves_hands_over_to_a_voter_that_stays() {
    let mut config = config(4);
    add_witness(&mut config);
    let status = status(&[0, 1, 2, 3, 9], &[0, 1, 2, 9], &[]);
    let successors = |config: &Config, view: &MembersView| successors(config, &status, member(0), view);
    assert_eq!(successors(&config, &view(&[1, 2, 3], &[9])), set(&[]), "it stays");
    leave(&mut config, 0);
    assert_eq!(successors(&config, &view(&[1, 2, 3], &[9])), set(&[1, 2]), "3 does not vote yet");
    assert_eq!(successors(&config, &view(&[2], &[9])), set(&[2]));
    assert_eq!(successors(&config, &view(&[], &[9])), set(&[9]));
    assert_eq!(successors(&config, &view(&[], &[])), set(&[]), "it leads on: nobody else would");
    decide(&mut config, Command::Left { dc: dc(0), generation: Generation(0), cut: 1 });
    assert_eq!(successors(&config, &view(&[1, 2, 3], &[9])), set(&[1, 2]), "also when it has left");
}

#[test]
fn a_witness_that_is_removed_hands_over() {
    let mut config = config(3);
    add_witness(&mut config);
    let status = status(&[0, 1, 2, 9], &[0, 1, 2, 9], &[]);
    let successors = |config: &Config| successors(config, &status, member(9), &view(&[1], &[]));
    assert_eq!(successors(&config), set(&[]));
    let (id, _) = config.witnesses().at(dc(9)).expect("it was added");
    decide(&mut config, Command::RemoveWitness { id });
    assert_eq!(successors(&config), set(&[1]));
}

/// Member 0 waits for its vote.
#[test]
fn while_a_witness_leads_a_voter_proposes_the_vote_of_who_has_none() {
    let mut config = config(4);
    decide(&mut config, Command::Vote { dc: dc(0), generation: Generation(0), votes: false });
    add_witness(&mut config);
    let seen_by = |heard: &[u8]| MembersView { config: config.clone(), ..view(heard, &[9]) };
    let proposer = |leader: u8, me: u8, heard: &[u8]| vote_proposer(&seen_by(heard), dc(leader), dc(me));
    assert_eq!(proposer(2, 1, &[0, 2, 3]), Some(dc(2)), "the leader");
    for (me, heard) in [(0, [1, 2, 3]), (1, [0, 2, 3]), (2, [0, 1, 3])] {
        assert_eq!(proposer(9, me, &heard), Some(dc(1)), "the first that votes: 0 does not hear itself");
    }
    assert_eq!(proposer(9, 2, &[0, 3]), Some(dc(2)), "1 is down");
}
