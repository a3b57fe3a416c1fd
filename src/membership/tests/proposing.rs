//! Checks with the facts of a proposer.

use std::time::Duration;

use super::*;

/// All members and witnesses are up, silent towards each other, of one version, and have entered everything.
fn facts(list: &List) -> Facts {
    let config = &list.config;
    let members =
        config.slots().members().map(|(dc, member)| Voter::Member { dc, generation: member.generation });
    Facts {
        entered: config.slots().members().map(|(dc, _)| (dc, config.epoch())).collect(),
        heard_within: Duration::from_secs(3),
        reachable: members.chain(config.witnesses().iter().map(|(id, _)| Voter::Witness(id))).collect(),
        ..Facts::default()
    }
}

#[test]
fn a_proposal_names_the_revision_that_it_was_checked_against() {
    let list = List::of(3);
    let command = Command::Version { version: 4 };
    let facts = Facts { versions: [0, 1, 2].map(|id| (founder(id), 4)).into(), ..facts(&list) };
    let proposal = list.config.check_proposal(&facts, command.clone()).expect("all speak it");
    assert_eq!(proposal, Proposal { checked: Revision(1), command });
}

#[test]
fn a_change_waits_until_all_have_entered_the_last_one() {
    let mut list = List::auto(4);
    list.admit(5);
    list.decide(list.leaving(1));
    let mut facts = facts(&list);
    facts.entered.insert(dc(1), Epoch(2));
    facts.entered.remove(&dc(5));
    let (epoch, members) = (list.config.epoch(), set([1, 5]));
    let changes = [
        Command::Admit(list.admission(6)),
        Command::AddWitness(witness(1)),
        list.vote(2, false),
        Command::SetPolicy(Policy { evict_after_ms: 60_000, ..auto() }),
    ];
    for command in changes {
        let refused = list.config.check_proposal(&facts, command).expect_err("two have not entered");
        assert_eq!(refused, Refused::ChangeUnderWay { epoch, members });
    }
    // Those that are to end do not have to enter it, and who joins and has no state ends with them.
    let refused = list.config.check_proposal(&facts, list.eviction([2], Vouch::Operator));
    let others = Refused::ChangeUnderWay { epoch, members: set([1]) };
    assert_eq!(refused.expect_err("one that stays has not entered"), others);
    list.config.check_proposal(&facts, list.eviction([1, 5], Vouch::Operator)).expect("all others have");
    let careful = Command::SetPolicy(Policy::default());
    list.config.check_proposal(&facts, careful).expect("a stricter policy needs no epoch");
    facts.entered.insert(dc(5), epoch);
    list.config.check_proposal(&facts, list.left(1, 1)).expect("it ends itself");
    facts.left = set([1]);
    list.config.check_proposal(&facts, list.vote(2, false)).expect("one that has left enters nothing");
}

/// It could be lost, and could not be evicted before all others have entered what waits for it.
#[test]
fn a_rule_and_a_new_member_wait_until_all_have_given_by_the_rule_before() {
    let list = List::of(4);
    let prefix = || Prefix::new(b"jobs/").expect("a plain name");
    let rule = PrefixRule { home: Some(dc(1)), operator_evicts: false };
    let changes = [
        Command::SetRule { prefix: prefix(), rule },
        Command::RemoveRule { prefix: prefix() },
        Command::Admit(list.admission(6)),
    ];
    // One that is no member has nothing to give.
    let unsettled = Unsettled { rule_unseen: set([2, 9]), ..Unsettled::default() };
    let facts = Facts { unsettled, ..facts(&list) };
    for command in changes {
        let refused = list.config.check_proposal(&facts, command).expect_err("one has not given");
        let (epoch, members) = (list.config.epoch(), set([2]));
        assert_eq!(refused, Refused::ChangeUnderWay { epoch, members });
    }
    list.config.check_proposal(&facts, list.eviction([2], Vouch::Operator)).expect("it is lost");
    list.config.check_proposal(&facts, list.leaving(1)).expect("who leaves waits for nobody's parts");
}

#[test]
fn nobody_joins_while_another_leaves_and_no_slot_is_used_twice() {
    let mut list = List::auto(3);
    list.admit(5);
    let mut entered = facts(&list);
    let refused = |list: &List, facts: &Facts, command| {
        list.config.check_proposal(facts, command).expect_err("it has to wait")
    };
    assert_eq!(refused(&list, &entered, list.leaving(1)), Refused::MemberJoins { dc: dc(5) });
    list.settle(5);
    // Its sponsor may be lost before it has split the part off: no change may wait for that.
    entered.unsettled.unsplit = set([5]);
    for command in [list.leaving(1), Command::Admit(list.admission(6))] {
        assert_eq!(refused(&list, &entered, command), Refused::MemberJoins { dc: dc(5) });
    }
    list.config.check_proposal(&entered, list.eviction([0], Vouch::Operator)).expect("of its sponsor");
    // One that has not seen the split would wait for it, too. One that is no member waits for nothing.
    entered.unsettled = Unsettled { split_unseen: set([1, 9]), ..Unsettled::default() };
    for command in [list.leaving(2), Command::Admit(list.admission(6))] {
        let (epoch, members) = (list.config.epoch(), set([1]));
        assert_eq!(refused(&list, &entered, command), Refused::ChangeUnderWay { epoch, members });
    }
    entered.unsettled.split_unseen = set([]);
    list.config.check_proposal(&entered, list.leaving(1)).expect("nothing else changes");
    list.decide(list.leaving(1));
    assert!(matches!(refused(&list, &entered, list.leaving(2)), Refused::MemberLeaves { .. }));
    entered = facts(&list);
    for command in [Command::Admit(list.admission(6)), list.leaving(2)] {
        assert_eq!(refused(&list, &entered, command), Refused::MemberLeaves { dc: dc(1) });
    }
    list.decide(list.left(1, 40));
    entered = facts(&list);
    list.config.check_proposal(&entered, Command::Admit(list.admission(6))).expect("it is gone");
    // Its slot is given out again when nothing can come any more that names it.
    let again = Admission { generation: Generation(1), ..list.admission(1) };
    let members = list.config.slots().member_set();
    let waits = refused(&list, &entered, Command::Admit(again.clone()));
    assert_eq!(waits, Refused::SlotNotFree { dc: dc(1), members });
    entered.freed.insert(dc(1), members);
    list.config.check_proposal(&entered, Command::Admit(again)).expect("all have freed it");
}

#[test]
fn cuts_that_nobody_can_reach_are_no_obstacle() {
    let mut list = List::of(5);
    let epoch = list.evict(4).epoch.expect("an epoch");
    let facts = Facts { entered: Default::default(), ..facts(&list) };
    let Command::Begin(eviction) = list.eviction([3], Vouch::Operator) else { unreachable!() };
    let proposal = list.config.check_proposal(&facts, Command::Begin(eviction)).expect("it is possible");
    let Command::Begin(eviction) = proposal.command else { unreachable!() };
    assert_eq!(eviction.recut, Some(epoch), "the earlier cuts are set anew");
}

/// It would be decided, and never end: who is to be evicted does not promise.
#[test]
fn a_member_that_runs_does_not_evict_itself() {
    let list = List::auto(4);
    let facts = Facts { me: Some(dc(2)), ..facts(&list) };
    for vouch in [Vouch::Operator, Vouch::Silence, Vouch::Replacement] {
        for command in [list.eviction([2], vouch), list.eviction([2, 3], vouch)] {
            let refused = list.config.check_proposal(&facts, command).expect_err("it runs");
            assert_eq!(refused, Refused::EvictsItself { dc: dc(2) });
        }
    }
    list.config.check_proposal(&facts, list.eviction([3], Vouch::Operator)).expect("another one");
}

#[test]
fn a_member_that_somebody_hears_is_not_evicted_by_an_operator() {
    let mut list = List::of(3);
    list.admit(5);
    let mut facts = facts(&list);
    facts.heard.insert(dc(2), (founder(1), Duration::from_millis(350)));
    facts.heard.insert(dc(5), (founder(1), Duration::from_millis(350)));
    for vouch in [Vouch::Operator, Vouch::Replacement] {
        let refused = list.config.check_proposal(&facts, list.eviction([2], vouch)).expect_err("it is heard");
        let expected = "dc1 heard dc2 350 ms ago: it runs, or was stopped a moment ago; stop it, and repeat the \
                        command some seconds later";
        assert_eq!(refused.to_string(), expected);
    }
    list.config.check_proposal(&facts, list.eviction([0, 5], Vouch::Operator)).expect("5 goes with 0");
    facts.heard.insert(dc(2), (founder(1), Duration::from_secs(3)));
    list.config.check_proposal(&facts, list.eviction([2], Vouch::Operator)).expect("that was long ago");
}

#[test]
fn a_member_that_was_started_after_the_operators_word_is_not_evicted() {
    let list = List::of(3);
    let clock = Timestamp::from_raw;
    let vouched = |last_heard| {
        let members = vec![Evictee { dc: dc(2), generation: Generation(0), last_heard }];
        Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None })
    };
    let mut facts = facts(&list);
    facts.last_clocks.insert(dc(2), clock(9));
    let refused = list.config.check_proposal(&facts, vouched(clock(8))).expect_err("it was heard since");
    assert!(matches!(refused, Refused::Started { dc: it } if it == dc(2)), "{refused}");
    list.config.check_proposal(&facts, vouched(clock(9))).expect("nobody heard it since");
    let proposal = list.config.check_proposal(&facts, vouched(Timestamp::default())).expect("it is possible");
    assert_eq!(proposal.command, vouched(clock(9)), "nothing was said: what is known now counts");
}

#[test]
fn nobody_is_evicted_by_silence_before_it_knows_the_policy() {
    let mut list = List::auto(3);
    for by in [0, 1] {
        let mark = Mark { by: founder(by), of: dc(2), of_generation: Generation(0), number: 1 };
        list.decide(Command::Silent { mark, policy: Epoch(2) });
    }
    let mut facts = facts(&list);
    facts.heard.insert(dc(2), (founder(1), Duration::ZERO));
    list.config.check_proposal(&facts, list.eviction([2], Vouch::Silence)).expect("marks count");
    facts.entered.insert(dc(2), Epoch(0));
    let refused = list.config.check_proposal(&facts, list.eviction([2], Vouch::Silence));
    assert_eq!(refused, Err(Refused::AutoNotEntered { dc: dc(2), policy: Epoch(2) }));
}

/// Of two voters neither can be evicted without itself, so neither has to stop granting when nobody
/// acknowledges it. When a third one votes, both have to know that first.
#[test]
fn nobody_is_evicted_by_silence_before_it_knows_that_the_others_can_decide_without_it() {
    let mut list = List::auto(2);
    assert_eq!(list.config.fenced_since(dc(1)), None);
    let witness_joins = list.decide(Command::AddWitness(witness(1))).epoch.expect("a new set of voters");
    assert_eq!(list.config.fenced_since(dc(1)), Some(witness_joins));
    let third = Voter::Witness(list.config.witnesses().iter().next().expect("there is one").0);
    for by in [founder(0), third] {
        let mark = Mark { by, of: dc(1), of_generation: Generation(0), number: 1 };
        list.decide(Command::Silent { mark, policy: list.config.policy_epoch() });
    }
    let mut facts = facts(&list);
    facts.entered.insert(dc(1), Epoch(witness_joins.0 - 1));
    let refused = list.config.check_proposal(&facts, list.eviction([1], Vouch::Silence));
    assert_eq!(refused, Err(Refused::AutoNotEntered { dc: dc(1), policy: witness_joins }));
    facts.entered.insert(dc(1), witness_joins);
    list.config.check_proposal(&facts, list.eviction([1], Vouch::Silence)).expect("it has entered it");
}

#[test]
fn without_a_majority_nothing_is_proposed_but_recovery() {
    let list = List::of(3);
    let reachable = [founder(2)].into();
    let alone = Facts { reachable, ..facts(&list) };
    let refused = list.config.check_proposal(&alone, list.eviction([0], Vouch::Operator));
    assert_eq!(refused, Err(Refused::NoMajority { remaining: 1, needed: 2 }));
    let survivors = vec![(dc(2), vector([]))];
    let recover = Command::Recover(Recovery { lineage: Lineage(1), survivors });
    list.config.check_proposal(&alone, recover.clone()).expect("a majority is gone");
    let refused = list.config.check_proposal(&facts(&list), recover);
    assert_eq!(refused, Err(Refused::MajorityUp { voters: 3, needed: 2 }));
}

#[test]
fn the_first_members_need_no_majority() {
    let proposal = Config::default().check_proposal(&Facts::default(), Command::Found(founding(3)));
    assert_eq!(proposal.map(|it| it.checked), Ok(Revision(0)));
}

#[test]
fn versions_rise_together_and_members_do_not_change_meanwhile() {
    let mut list = List::of(3);
    list.decide(Command::AddWitness(witness(1)));
    let witness = Voter::Witness(WitnessId(2));
    let mut facts = facts(&list);
    facts.versions = [(founder(0), 4), (founder(1), 4), (founder(2), 4)].into();
    let rise = Command::Version { version: 4 };
    let refused = list.config.check_proposal(&facts, rise.clone());
    assert_eq!(refused, Err(Refused::VersionNotSpoken { voter: witness, speaks: 3, asked: 4 }));
    let differ = Err(Refused::VersionsDiffer { low: 3, high: 4, behind: witness });
    for command in [Command::Admit(list.admission(5)), list.leaving(1), list.vote(2, false)] {
        assert_eq!(list.config.check_proposal(&facts, command), differ);
    }
    list.config.check_proposal(&facts, list.eviction([1], Vouch::Operator)).expect("evictions go on");
    let remove = Command::RemoveWitness { id: WitnessId(2) };
    list.config.check_proposal(&facts, remove).expect("it may be gone, and then nobody can upgrade it");
    facts.versions.insert(witness, 5);
    list.config.check_proposal(&facts, rise).expect("all speak it");
}

#[test]
fn a_command_that_the_config_refuses_is_not_proposed() {
    let list = List::of(3);
    let refused = list.config.check_proposal(&facts(&list), list.leaving(9));
    assert_eq!(refused, Err(Refused::NotMember { dc: dc(9) }));
}

#[test]
fn a_vote_is_not_taken_if_no_majority_of_the_others_can_be_reached() {
    let mut list = List::of(2);
    let id = list.decide(Command::AddWitness(witness(1))).epoch.expect("an epoch");
    let remove = || Command::RemoveWitness { id: WitnessId(id.0) };
    let mut facts = facts(&list);
    list.config.check_proposal(&facts, remove()).expect("both members can be reached");
    facts.reachable.remove(&founder(1));
    let refused = Refused::NoMajority { remaining: 1, needed: 2 };
    assert_eq!(list.config.check_proposal(&facts, remove()), Err(refused.clone()), "it may be lost");
    assert_eq!(list.config.check_proposal(&facts, list.vote(0, false)), Err(refused));
    list.config.check_proposal(&facts, list.vote(1, false)).expect("the one that is lost can do without");
}

#[test]
fn a_member_leaves_only_if_a_majority_of_the_others_can_be_reached() {
    let mut list = List::of(2);
    let id = list.decide(Command::AddWitness(witness(1))).epoch.expect("an epoch");
    let witness = Voter::Witness(WitnessId(id.0));
    let mut known = facts(&list);
    list.config.check_proposal(&known, list.leaving(1)).expect("the other member and the witness are up");
    known.reachable.remove(&witness);
    let refused = Refused::NoMajority { remaining: 1, needed: 2 };
    assert_eq!(list.config.check_proposal(&known, list.leaving(1)), Err(refused.clone()));
    list.decide(list.leaving(1));
    let mut known = facts(&list);
    known.reachable.remove(&witness);
    assert_eq!(list.config.check_proposal(&known, list.left(1, 40)), Err(refused), "it was lost meanwhile");
    known.reachable.insert(witness);
    list.config.check_proposal(&known, list.left(1, 40)).expect("it is back");
    // One without a vote takes none with it.
    let mut list = List::of(3);
    list.decide(list.vote(2, false));
    let known = facts(&list);
    list.config.check_proposal(&known, list.leaving(2)).expect("two voters remain");
    let alone = Facts { reachable: [founder(0), founder(2)].into(), ..known };
    assert!(matches!(list.config.check_proposal(&alone, list.leaving(2)), Err(Refused::NoMajority { .. })));
}
