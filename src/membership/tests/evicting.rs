//! Evictions: begin, reports, end, abort.

use super::*;

#[test]
fn an_eviction_cuts_the_log_behind_the_highest_report() {
    let mut list = List::of(3);
    let attempt = list.begin([2]);
    assert_eq!((attempt, list.config.epoch()), (AttemptId(2), Epoch(0)));
    let revision = list.config.revision();
    list.decide(list.have(0, [(0, 7), (2, 30)]));
    assert_eq!(list.refused(Command::End { attempt }), Refused::ReportsMissing { missing: set([1]) });
    list.decide(list.have(1, [(0, 9), (2, 31)]));
    assert_eq!(list.config.revision(), revision, "reports void no proposal");
    let applied = list.decide(Command::End { attempt });
    let cut = Cut { dc: dc(2), generation: Generation(0), seq: 31 };
    assert_eq!(applied, Applied { epoch: Some(Epoch(6)), cuts: vec![cut] });
    let config = &list.config;
    assert_eq!(
        (config.slots().cut(dc(2), Generation(0)), config.slots().is_over(dc(2), Generation(0))),
        (Some(31), true)
    );
    assert_eq!((config.fence(), config.evictions(), config.attempt()), (17, 1, None));
    assert_eq!((config.slots().member_set(), config.voters().members()), (set([0, 1]), set([0, 1])));
    assert_eq!(config.slots().past(dc(2), Generation(0)).map(|past| past.cause), Some(EndCause::Evicted));
    let generations = vec![(dc(2), Generation(0))];
    assert_eq!(config.last_end(), Some(&LastEnd { epoch: Epoch(6), generations }));
    let sets = config.voter_sets_since(Epoch(0)).expect("they are remembered");
    assert_eq!(sets.iter().map(VoterSet::members).collect::<Vec<_>>(), [set([0, 1, 2]), set([0, 1])]);
    assert_eq!(config.voter_sets_since(Epoch(6)).map(<[_]>::len), Some(1));
}

#[test]
fn a_generation_without_entries_is_cut_at_its_base() {
    let mut list = List::auto(3);
    list.evict(2);
    list.admit(2);
    list.settle(2);
    let attempt = list.begin([2]);
    list.decide(list.have(0, [(2, 30)]));
    list.decide(list.have(1, []));
    list.decide(Command::End { attempt });
    assert_eq!(list.config.slots().cut(dc(2), Generation(1)), Some(Generation(1).base()));
}

#[test]
fn the_cluster_policy_decides_what_evicts() {
    let mut list = List::of(3);
    let members = set([2]);
    assert_eq!(list.refused(list.eviction([2], Vouch::Silence)), Refused::PolicyNotAuto { members });
    list.decide(Command::SetPolicy(Policy { evict: EvictPolicy::Wait, ..*list.config.policy() }));
    for vouch in [Vouch::Silence, Vouch::Operator] {
        assert_eq!(list.refused(list.eviction([2], vouch)), Refused::PolicyWaits { members });
    }
    list.decide(list.eviction([2], Vouch::Replacement));
}

#[test]
fn an_eviction_names_members_in_order() {
    let mut list = List::of(5);
    assert_eq!(list.refused(list.eviction([], Vouch::Operator)), Refused::NobodyNamed);
    assert_eq!(list.refused(list.eviction([2, 2], Vouch::Operator)), Refused::NobodyNamed);
    assert_eq!(list.refused(list.eviction([2, 1], Vouch::Operator)), Refused::NobodyNamed);
    assert_eq!(list.refused(list.eviction([2, 9], Vouch::Operator)), Refused::NotMember { dc: dc(9) });
}

#[test]
fn a_joiner_ends_with_its_sponsor() {
    let mut list = List::of(3);
    list.admit(5);
    let alone = list.eviction([0], Vouch::Operator);
    assert_eq!(list.refused(alone), Refused::SponsorNeeded { dc: dc(0), joiner: dc(5) });
    let attempt = list.begin([0, 5]);
    list.decide(list.have(1, [(0, 3)]));
    list.decide(list.have(2, [(5, 4)]));
    let applied = list.decide(Command::End { attempt });
    assert_eq!(
        applied.cuts.iter().map(|cut| (cut.dc, cut.seq)).collect::<Vec<_>>(),
        [(dc(0), 3), (dc(5), 4)]
    );
    assert_eq!(list.config.fence(), 17, "one attempt is one eviction");
}

#[test]
fn a_joiner_alone_can_be_evicted() {
    let mut list = List::of(2);
    list.admit(5);
    list.evict(5);
    assert_eq!(list.config.slots().member_set(), set([0, 1]));
}

#[test]
fn an_eviction_needs_a_majority_of_all_voters_without_the_evicted() {
    let mut list = List::of(2);
    assert_eq!(
        list.refused(list.eviction([1], Vouch::Operator)),
        Refused::NoMajority { remaining: 1, needed: 2 }
    );
    list.decide(Command::AddWitness(witness(1)));
    let attempt = list.begin([1]);
    list.decide(list.have(0, []));
    let missing = Refused::PromisesMissing { promised: 1, needed: 2 };
    assert_eq!(list.refused(Command::End { attempt }), missing, "the witness has not promised");
    let by = Voter::Witness(WitnessId(3));
    list.decide(Command::Have { attempt, by, vector: vector([]) });
    list.decide(Command::End { attempt });
    assert_eq!((list.config.slots().member_set(), list.config.voters().voters.len()), (set([0]), 2));
}

#[test]
fn promises_of_members_without_a_vote_do_not_count() {
    let mut list = List::of(4);
    list.decide(list.vote(3, false));
    let attempt = list.begin([0]);
    for id in [1, 2, 3] {
        let needed = Command::End { attempt };
        assert!(list.try_decide(needed).is_err());
        list.decide(list.have(id, []));
    }
    list.decide(Command::End { attempt });
}

#[test]
fn a_voter_that_stays_remains() {
    let mut list = List::of(4);
    list.decide(list.vote(3, false));
    list.decide(list.leaving(1));
    list.decide(list.leaving(2));
    let refused = list.refused(list.eviction([0], Vouch::Operator));
    assert!(matches!(refused, Refused::LastVoter { .. }), "{refused}");
}

#[test]
fn reports_are_of_members_that_remain_and_count_once() {
    let mut list = List::of(4);
    let attempt = list.begin([2]);
    list.decide(list.have(0, [(2, 5)]));
    assert_eq!(list.refused(list.have(0, [(2, 6)])), Refused::AlreadyReported { by: founder(0) });
    assert_eq!(list.refused(list.have(2, [])), Refused::ReportOfEvicted { by: founder(2) });
    assert_eq!(list.refused(list.have(9, [])), Refused::NotMember { dc: dc(9) });
    let by = Voter::Witness(WitnessId(4));
    let vector = vector([]);
    let stranger = Command::Have { attempt, by, vector: vector.clone() };
    assert_eq!(list.refused(stranger), Refused::NotWitness(WitnessId(4)));
    let late = Command::Have { attempt: AttemptId(1), by: founder(1), vector };
    assert_eq!(list.refused(late), Refused::AttemptOver { attempt: AttemptId(1) });
    for (id, seq) in [(2, Generation(1).base() + 1), (9, 1)] {
        let refused = list.refused(list.have(1, [(id, seq)]));
        assert_eq!(refused, Refused::WrongReport { by: founder(1), dc: dc(id), seq });
    }
}

#[test]
fn an_attempt_that_is_given_up_leaves_nothing() {
    let mut list = List::of(3);
    let attempt = list.begin([2]);
    list.decide(list.have(0, [(2, 5)]));
    list.decide(Command::Abort { attempt });
    assert_eq!((list.config.attempt(), list.config.epoch(), list.config.fence()), (None, Epoch(0), 16));
    for over in [Command::End { attempt }, Command::Abort { attempt }] {
        assert_eq!(list.refused(over), Refused::AttemptOver { attempt });
    }
    let attempt = list.begin([1]);
    assert!(list.config.attempt().is_some_and(|it| it.id == attempt && it.reports.is_empty()));
}

#[test]
fn one_eviction_at_a_time_and_no_other_change_meanwhile() {
    let mut list = List::auto(4);
    list.decide(Command::AddWitness(witness(1)));
    let admission = list.admission(5);
    let attempt = list.begin([2]);
    let under_way = Refused::EvictionUnderWay { attempt, members: set([2]) };
    for command in [
        list.eviction([1], Vouch::Operator),
        Command::Admit(admission),
        Command::AddWitness(witness(2)),
        Command::RemoveWitness { id: WitnessId(3) },
        list.vote(1, false),
        Command::SetPolicy(Policy::default()),
    ] {
        assert_eq!(list.refused(command), under_way);
    }
    assert_eq!(
        under_way.to_string(),
        "an eviction of dc2 is under way (attempt 4): wait for its end, or give it up"
    );
}

#[test]
fn an_end_whose_cut_nobody_reaches_is_cut_anew() {
    let mut list = List::of(5);
    let attempt = list.begin([4]);
    for (id, seq) in [(0, 5), (1, 5), (2, 5), (3, 9)] {
        list.decide(list.have(id, [(4, seq)]));
    }
    let epoch = list.decide(Command::End { attempt }).epoch.expect("an epoch");
    assert_eq!(list.config.slots().cut(dc(4), Generation(0)), Some(9));
    // Member 3, which alone has the entries up to 9, dies before it has passed them on.
    let recut = |list: &List, recut| match list.eviction([3], Vouch::Operator) {
        Command::Begin(eviction) => Command::Begin(Eviction { recut, ..eviction }),
        _ => unreachable!("it is an eviction"),
    };
    assert_eq!(list.refused(recut(&list, Some(Epoch(1)))), Refused::NotLastEnd { epoch: Epoch(1) });
    list.decide(recut(&list, Some(epoch)));
    let attempt = list.config.attempt().expect("it has begun").id;
    for id in [0, 1, 2] {
        list.decide(list.have(id, [(4, 5), (3, 2)]));
    }
    let applied = list.decide(Command::End { attempt });
    let cut = |id, seq| Cut { dc: dc(id), generation: Generation(0), seq };
    assert_eq!(applied.cuts, [cut(3, 2), cut(4, 5)]);
    assert_eq!(list.config.slots().cut(dc(4), Generation(0)), Some(5));
    let last = list.config.last_end().expect("the last change is an end");
    assert_eq!(last.generations, [(dc(3), Generation(0)), (dc(4), Generation(0))]);
}

#[test]
fn a_cut_that_a_member_has_entered_stays() {
    let mut list = List::of(5);
    let attempt = list.begin([4]);
    for (id, seq) in [(0, 5), (1, 9), (2, 5), (3, 9)] {
        list.decide(list.have(id, [(4, seq)]));
    }
    let recut = list.decide(Command::End { attempt }).epoch;
    let Command::Begin(eviction) = list.eviction([3], Vouch::Operator) else { unreachable!() };
    list.decide(Command::Begin(Eviction { recut, ..eviction }));
    let attempt = list.config.attempt().expect("it has begun").id;
    for (id, seq) in [(0, 5), (1, 9), (2, 5)] {
        list.decide(list.have(id, [(4, seq)]));
    }
    list.decide(Command::End { attempt });
    assert_eq!(list.config.slots().cut(dc(4), Generation(0)), Some(9));
}

#[test]
fn other_changes_settle_the_cuts() {
    let mut list = List::of(4);
    list.evict(3);
    let epoch = list.config.last_end().expect("an end").epoch;
    list.admit(5);
    assert_eq!(list.config.last_end(), None);
    let Command::Begin(eviction) = list.eviction([2], Vouch::Operator) else { unreachable!() };
    let recut = Command::Begin(Eviction { recut: Some(epoch), ..eviction });
    assert_eq!(list.refused(recut), Refused::NotLastEnd { epoch });
}

#[test]
fn evictions_are_counted_in_tokens_and_have_a_limit() {
    let mut list = List::of(3);
    list.config.evictions = MAX_EVICTIONS - 1;
    assert_eq!(list.config.fence(), 1_022);
    list.evict(2);
    assert_eq!(list.config.fence(), 1_023, "10 bits");
    list.decide(Command::AddWitness(witness(1)));
    assert_eq!(list.refused(list.eviction([1], Vouch::Operator)), Refused::NoFenceLeft);
}
