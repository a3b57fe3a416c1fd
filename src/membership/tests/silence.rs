//! Marks of silence, and evictions that stand on them.

use super::*;

fn mark(by: Voter, of: u8, number: u64) -> Mark {
    Mark { by, of: dc(of), of_generation: Generation(0), number }
}

fn silent(by: u8, of: u8, number: u64) -> Command {
    Command::Silent { mark: mark(founder(by), of, number), policy: Epoch(2) }
}

fn heard(by: u8, of: u8, number: u64) -> Command {
    Command::Heard { mark: mark(founder(by), of, number) }
}

#[test]
fn silence_of_a_majority_evicts() {
    let mut list = List::auto(5);
    assert_eq!(list.config.policy_epoch(), Epoch(2));
    let eviction = list.eviction([4], Vouch::Silence);
    list.decide(silent(0, 4, 1));
    list.decide(silent(1, 4, 1));
    let missing = Refused::NotSilent { dc: dc(4), silent: 2, needed: 3 };
    assert_eq!(list.refused(eviction.clone()), missing);
    list.decide(silent(2, 4, 1));
    assert_eq!(list.config.silent_about(dc(4)).collect::<Vec<_>>(), [0, 1, 2].map(founder));
    list.decide(eviction);
    let attempt = list.config.attempt().expect("it has begun").id;
    for id in 0..4 {
        list.decide(list.have(id, []));
    }
    list.decide(Command::End { attempt });
    let past = list.config.slots().past(dc(4), Generation(0)).expect("it is over");
    assert_eq!(past.cause, EndCause::EvictedBySilence);
    assert_eq!(list.config.silent_about(dc(4)).count(), 0, "marks end with the generation");
}

#[test]
fn an_operator_confirms_afterwards() {
    let mut list = List::auto(3);
    for by in [0, 1] {
        list.decide(silent(by, 2, 1));
    }
    list.decide(list.eviction([2], Vouch::Silence));
    let attempt = list.config.attempt().expect("it has begun").id;
    for id in [0, 1] {
        list.decide(list.have(id, []));
    }
    list.decide(Command::End { attempt });
    let confirm = Command::ConfirmDead { dc: dc(2), generation: Generation(0) };
    list.decide(confirm.clone());
    let past = list.config.slots().past(dc(2), Generation(0)).expect("it is over");
    assert_eq!(past.cause, EndCause::Evicted);
    let nothing = Refused::NothingToConfirm { dc: dc(2), generation: Generation(0) };
    assert_eq!(list.refused(confirm), nothing);
}

#[test]
fn a_voter_that_hears_again_takes_its_silence_back() {
    let mut list = List::auto(3);
    list.decide(silent(0, 2, 1));
    list.decide(heard(0, 2, 2));
    assert_eq!(list.config.silence(founder(0), dc(2)), Some(Silence { number: 2, silent: false }));
    list.decide(silent(0, 2, 3));
    assert_eq!(list.config.silence(founder(0), dc(2)), Some(Silence { number: 3, silent: true }));
}

#[test]
fn a_late_silence_does_not_come_true_after_its_retraction() {
    let mut list = List::auto(3);
    list.decide(heard(0, 2, 2));
    for command in [silent(0, 2, 1), silent(0, 2, 2), heard(0, 2, 2)] {
        assert!(matches!(list.refused(command), Refused::OldMark { last: 2, .. }));
    }
    assert_eq!(list.config.silent_about(dc(2)).count(), 0);
}

#[test]
fn an_attempt_does_not_end_when_silence_was_taken_back() {
    let mut list = List::auto(3);
    for by in [0, 1] {
        list.decide(silent(by, 2, 1));
    }
    list.decide(list.eviction([2], Vouch::Silence));
    let attempt = list.config.attempt().expect("it has begun").id;
    for id in [0, 1] {
        list.decide(list.have(id, []));
    }
    list.decide(heard(1, 2, 2));
    let refused = list.refused(Command::End { attempt });
    assert_eq!(refused, Refused::NotSilent { dc: dc(2), silent: 1, needed: 2 });
    list.decide(Command::Abort { attempt });
}

#[test]
fn a_joiner_ends_with_its_silent_sponsor_whoever_hears_it() {
    let mut list = List::auto(3);
    list.admit(5);
    for by in [1, 2] {
        list.decide(silent(by, 0, 1));
    }
    let alone = list.eviction([5], Vouch::Silence);
    assert_eq!(list.refused(alone), Refused::NotSilent { dc: dc(5), silent: 0, needed: 2 });
    let both = list.eviction([0, 5], Vouch::Silence);
    let settled = Command::Settled { dc: dc(5), generation: Generation(0) };
    // Once it is settled it grants, so it has to be silent, too.
    let mut other = List { config: list.config.clone(), decided: Vec::new() };
    other.decide(settled.clone());
    assert_eq!(other.refused(both.clone()), Refused::NotSilent { dc: dc(5), silent: 0, needed: 2 });
    list.decide(both);
    assert!(matches!(list.refused(settled), Refused::EvictionUnderWay { .. }));
}

#[test]
fn silence_is_of_voters_about_current_members_under_the_current_policy() {
    let mut list = List::of(4);
    let members = set([2]);
    assert_eq!(list.refused(silent(0, 2, 1)), Refused::PolicyNotAuto { members });
    list.decide(Command::SetPolicy(auto()));
    let policy = list.config.policy_epoch();
    let stale = Refused::OldPolicy { counted: Epoch(2), policy };
    assert_eq!(list.refused(silent(0, 2, 1)), stale);
    let mut silent = |by: Voter, of: u8, of_generation: u16| {
        let mark = Mark { of_generation: Generation(of_generation), ..mark(by, of, 1) };
        list.try_decide(Command::Silent { mark, policy }).map_err(|refused| refused.to_string())
    };
    assert!(silent(founder(0), 2, 0).is_ok());
    assert!(
        silent(founder(0), 3, 1).is_err_and(|it| it.contains("dc3 is a member with generation 0, not 1"))
    );
    assert!(silent(founder(0), 9, 0).is_err_and(|it| it.contains("dc9 is no member")));
    assert!(silent(founder(9), 2, 0).is_err_and(|it| it.contains("dc9 has no vote about that")));
    assert!(silent(founder(2), 2, 0).is_err_and(|it| it.contains("dc2 has no vote about that")));
    let older = Voter::Member { dc: dc(1), generation: Generation(1) };
    assert!(silent(older, 2, 0).is_err_and(|it| it.contains("dc1 has no vote about that")));
    assert!(silent(Voter::Witness(WitnessId(1)), 2, 0).is_err());
    let heard = |by| Command::Heard { mark: mark(by, 2, 5) };
    assert_eq!(list.refused(heard(founder(9))), Refused::NotMember { dc: dc(9) });
    let stranger = Voter::Witness(WitnessId(1));
    assert_eq!(list.refused(heard(stranger)), Refused::NotWitness(WitnessId(1)));
}

#[test]
fn marks_of_a_voter_end_with_its_generation() {
    let mut list = List::auto(4);
    for by in [1, 2] {
        list.decide(silent(by, 3, 1));
    }
    list.evict(2);
    assert_eq!(list.config.silent_about(dc(3)).collect::<Vec<_>>(), [founder(1)]);
    list.admit(2);
    list.settle(2);
    list.decide(list.vote(2, true));
    assert_eq!(
        list.config.silent_about(dc(3)).collect::<Vec<_>>(),
        [founder(1)],
        "the next one said nothing"
    );
    assert!(matches!(list.refused(silent(2, 3, 9)), Refused::NotVoter { .. }));
}

#[test]
fn marks_of_a_member_count_while_it_votes() {
    let mut list = List::auto(5);
    for by in [0, 1, 2] {
        list.decide(silent(by, 4, 1));
    }
    list.decide(list.vote(0, false));
    let eviction = list.eviction([4], Vouch::Silence);
    assert_eq!(list.refused(eviction.clone()), Refused::NotSilent { dc: dc(4), silent: 2, needed: 3 });
    assert!(matches!(list.refused(silent(0, 3, 1)), Refused::NotVoter { .. }));
    list.decide(list.vote(0, true));
    list.decide(eviction);
    list.decide(heard(0, 4, 2));
}

#[test]
fn a_new_policy_counts_silence_anew() {
    let mut list = List::auto(3);
    for by in [0, 1] {
        list.decide(silent(by, 2, 1));
    }
    list.decide(Command::SetPolicy(Policy { evict_after_ms: 60_000, ..auto() }));
    assert_eq!(list.config.silent_about(dc(2)).count(), 0);
    let eviction = list.eviction([2], Vouch::Silence);
    assert_eq!(list.refused(eviction), Refused::NotSilent { dc: dc(2), silent: 0, needed: 2 });
    assert!(matches!(list.refused(silent(0, 2, 2)), Refused::OldPolicy { .. }));
    let mark = mark(founder(0), 2, 1);
    let command = Command::Silent { mark, policy: list.config.policy_epoch() };
    assert!(matches!(list.refused(command), Refused::OldMark { last: 1, .. }), "numbers are kept");
}
