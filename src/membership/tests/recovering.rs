//! Forced recovery.

use super::*;

fn recovery<const N: usize>(survivors: [(u8, VersionVector); N]) -> Recovery {
    let survivors = survivors.map(|(id, vector)| (dc(id), vector));
    Recovery { lineage: Lineage(1), survivors: survivors.into() }
}

#[test]
fn survivors_go_on_in_a_new_lineage() {
    let mut list = List::of(5);
    list.decide(Command::AddWitness(witness(1)));
    list.begin([4]);
    let survivors = [(0, vector([(2, 7)])), (1, vector([(2, 9), (4, 1)]))];
    let applied = list.decide(Command::Recover(recovery(survivors)));
    let cut = |id, seq| Cut { dc: dc(id), generation: Generation(0), seq };
    assert_eq!(applied.cuts, [cut(2, 9), cut(3, 0), cut(4, 1)]);
    let config = &list.config;
    assert_eq!((config.lineage(), config.fence(), config.attempt()), (Lineage(1), 32, None));
    assert_eq!((config.slots().member_set(), config.voters().members()), (set([0, 1]), set([0, 1])));
    assert_eq!((config.witnesses().iter().count(), config.voters().voters.len()), (0, 2));
    assert_eq!(config.slots().past(dc(3), Generation(0)).map(|past| past.cause), Some(EndCause::Lost));
    let old = Credentials { lineage: Some(Lineage(0)), ..credentials() };
    let admission = Admission { credentials: old, ..list.admission(4) };
    let refused = list.refused(Command::Admit(admission));
    assert_eq!(refused, Refused::WrongLineage { theirs: Lineage(0), ours: Lineage(1) });
}

#[test]
fn the_voters_are_settled_survivors_that_stay() {
    let mut list = List::of(5);
    list.admit(5);
    list.decide(list.leaving(1));
    list.decide(list.vote(0, false));
    let survivors = [0, 1, 5].map(|id| (id, vector([])));
    list.decide(Command::Recover(recovery(survivors)));
    assert_eq!(
        (list.config.slots().member_set(), list.config.voters().members()),
        (set([0, 1, 5]), set([0]))
    );
}

#[test]
fn a_lost_witness_alone_can_be_recovered_from() {
    let mut list = List::of(1);
    list.decide(Command::AddWitness(witness(1)));
    let applied = list.decide(Command::Recover(recovery([(0, vector([]))])));
    assert!(applied.epoch.is_some() && applied.cuts.is_empty());
    assert_eq!(list.config.voters().voters.len(), 1);
}

#[test]
fn a_majority_evicts_instead() {
    let mut list = List::of(3);
    let refused = list.refused(Command::Recover(recovery([(0, vector([])), (1, vector([]))])));
    assert_eq!(
        refused.to_string(),
        "the survivors have 2 votes, and 2 are a majority: evict the others instead"
    );
}

#[test]
fn survivors_are_members_that_can_go_on() {
    let mut list = List::of(5);
    list.admit(5);
    list.decide(list.leaving(1));
    let mut refused = |recovery| list.refused(Command::Recover(recovery));
    let other = Recovery { lineage: Lineage(2), ..recovery([(2, vector([]))]) };
    let expected = Lineage(1);
    assert_eq!(refused(other), Refused::LineageNotNext { asked: Lineage(2), expected });
    assert_eq!(refused(recovery([])), Refused::WrongSurvivors);
    assert_eq!(refused(recovery([(1, vector([]))])), Refused::WrongSurvivors, "it leaves");
    assert_eq!(refused(recovery([(3, vector([])), (2, vector([]))])), Refused::WrongSurvivors);
    assert_eq!(refused(recovery([(9, vector([]))])), Refused::NotMember { dc: dc(9) });
    let joiner = recovery([(2, vector([])), (5, vector([]))]);
    assert_eq!(refused(joiner), Refused::SponsorNeeded { dc: dc(0), joiner: dc(5) });
    let wrong = refused(recovery([(2, vector([(9, 1)]))]));
    assert!(matches!(wrong, Refused::WrongReport { .. }), "{wrong}");
}

#[test]
fn a_cut_that_no_survivor_can_reach_is_lowered() {
    let mut list = List::of(5);
    let attempt = list.begin([4]);
    for (id, seq) in [(0, 5), (1, 5), (2, 5), (3, 9)] {
        list.decide(list.have(id, [(4, seq)]));
    }
    list.decide(Command::End { attempt });
    let applied = list.decide(Command::Recover(recovery([(0, vector([(4, 5)]))])));
    assert_eq!(applied.cuts.last().map(|cut| (cut.dc, cut.seq)), Some((dc(4), 5)));
    assert_eq!(list.config.slots().cut(dc(4), Generation(0)), Some(5));
}

#[test]
fn recovery_takes_16_evictions() {
    let mut list = List::of(3);
    list.config.evictions = MAX_EVICTIONS - RECOVERY_FENCES + 1;
    let refused = list.refused(Command::Recover(recovery([(0, vector([]))])));
    assert_eq!(refused, Refused::NoFenceLeft);
}

fn facts(reachable: impl IntoIterator<Item = u8>) -> Facts {
    Facts { reachable: reachable.into_iter().map(founder).collect(), ..Facts::default() }
}

#[test]
fn a_plan_names_everybody_once_and_is_asked_for_at_a_survivor() {
    let list = List::of(5);
    let config = &list.config;
    let check = |survivors: &[u8], lost: &[u8], me, facts| {
        let set = |ids: &[u8]| ids.iter().copied().map(dc).collect();
        config.check_recovery(&facts, dc(me), &config.recovery_plan(set(survivors), set(lost)))
    };
    assert_eq!(check(&[0, 1], &[2, 3, 4], 0, facts([1])), Ok(()));
    let away = Refused::SurvivorAway { members: set([1]) };
    assert_eq!(check(&[0, 1], &[2, 3, 4], 0, facts([])), Err(away));
    let incomplete = Refused::NotAllNamed { missing: set([4]), twice: set([1]) };
    assert_eq!(check(&[0, 1], &[1, 2, 3], 0, facts([1])), Err(incomplete));
    assert_eq!(check(&[0, 1], &[2, 3, 4, 9], 0, facts([1])), Err(Refused::NotMember { dc: dc(9) }));
    assert_eq!(check(&[0, 1], &[2, 3, 4], 3, facts([1])), Err(Refused::NotSurvivor { dc: dc(3) }));
    assert_eq!(check(&[], &[0, 1, 2, 3, 4], 0, facts([])), Err(Refused::NotSurvivor { dc: dc(0) }));
    let majority = Refused::MajorityUp { voters: 3, needed: 3 };
    assert_eq!(check(&[0, 1, 2], &[3, 4], 0, facts([1, 2])), Err(majority.clone()));
    assert_eq!(check(&[0, 1], &[2, 3, 4], 0, facts([1, 2])), Err(majority), "dc2 can be reached");
    let heard = (founder(1), std::time::Duration::from_millis(200));
    let heard = Facts {
        heard: [(dc(3), heard)].into(),
        heard_within: std::time::Duration::from_secs(1),
        ..facts([1])
    };
    let refused = check(&[0, 1], &[2, 3, 4], 0, heard).expect_err("dc3 is heard");
    assert!(matches!(refused, Refused::StillHeard { dc: it, .. } if it == dc(3)), "{refused}");
}

#[test]
fn one_that_joins_or_knows_nothing_recovers_nobody() {
    let mut list = List::of(3);
    list.admit(5);
    let plan = list.config.recovery_plan(set([0, 5]), set([1, 2]));
    let refused = list.config.check_recovery(&facts([0]), dc(5), &plan);
    assert_eq!(refused, Err(Refused::JoinerRecovers { dc: dc(5), sponsor: dc(0) }));
    assert_eq!(list.config.check_recovery(&facts([5]), dc(0), &plan), Ok(()));
    let nothing = Config::default();
    assert_eq!(nothing.check_recovery(&facts([]), dc(0), &plan), Err(Refused::NotFounded));
}

#[test]
fn lost_members_are_told_from_others_that_ended() {
    let mut list = List::of(5);
    list.decide(Command::Recover(recovery([(0, vector([(2, 7)])), (1, vector([]))])));
    let lost: Vec<Cut> = list.config.slots().lost_at(list.config.epoch()).collect();
    let cut = |id, seq| Cut { dc: dc(id), generation: Generation(0), seq };
    assert_eq!(lost, [cut(2, 7), cut(3, 0), cut(4, 0)]);
    assert!(
        list.config.slots().is_lost(dc(3))
            && !list.config.slots().is_lost(dc(0))
            && !list.config.slots().is_lost(dc(9))
    );
}
