//! Stories about members and a witness: a server that only votes.

use std::time::Duration;

use super::cluster::dc;
use super::witness_story::{Story, WITNESS, now, recover, server};
use crate::base::bugs::{Bug, Bugs};
use crate::base::time::Timestamp;
use crate::membership::{
    Command, EvictPolicy, Evictee, Eviction, Generation, Index, MemberName, Voter, Vouch,
};
use crate::replica::{Event, Record, Witness, WitnessConfig, WitnessRecoveryError};

#[test]
fn with_a_witness_one_of_two_is_evicted_and_its_locks_go_to_the_other() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.c.use_lock(1, "moved");
    s.run();
    s.isolate(1);
    s.pass(4_000);
    assert!(!s.grants(0, "moved"), "dc1 has it");
    s.begin(1);
    s.pass(2_000);
    assert!(!s.is_member(1), "{:?}", s.config.attempt());
    assert!(s.grants(0, "other"));
    assert_eq!(s.config.voters().majority(), 2, "neither the last member nor the witness decides alone");
}

#[test]
fn an_eviction_waits_for_the_promise_of_the_witness() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(1);
    s.pass(4_000);
    s.is_stuck = true;
    s.begin(1);
    let before = s.config.index();
    s.pass(10_000);
    assert!(s.is_member(1) && !s.has_promised());
    assert!(s.config.index().0 <= before.0 + 1, "an end that would be refused is not proposed");
    s.is_stuck = false;
    s.pass(1_000);
    assert!(!s.is_member(1));
}

#[test]
fn a_witness_that_hears_one_that_is_to_be_evicted_gives_that_up() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.c.cut(0, 1);
    s.pass(5_000);
    let members = vec![Evictee { dc: dc(1), generation: Generation(0), last_heard: Timestamp::default() }];
    let begin = Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None });
    s.c.handle(0, Event::Propose { command: Box::new(begin.clone()) });
    assert!(s.c.proposed.is_empty(), "the witness hears it");
    s.begin(1);
    s.pass(1_000);
    assert!(s.config.attempt().is_none() && s.is_member(1));
    s.cut(1);
    s.pass(5_000);
    s.c.handle(0, Event::Propose { command: Box::new(begin) });
    assert_eq!(s.c.proposed.len(), 1, "nobody hears it");
}

#[test]
fn a_member_that_was_down_serves_when_the_witness_confirms_it() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(1);
    s.c.restart(1);
    s.pass(30_000);
    assert!(!s.serves(1), "nobody has told it that it is a member");
    s.up.push(1);
    s.link(1);
    s.pass(1_000);
    assert!(s.serves(1), "the witness and itself are a majority");
}

/// dc1 is evicted while the witness lags, or forgets; then it is started again, and has a link to the witness
/// alone. Returns true if it is evicted and serves.
fn serves_after_its_end(mut s: Story, known: usize) -> bool {
    s.pass(3_000);
    s.learns = false;
    let is_over = !s.is_member(1);
    s.crash_witness(known);
    s.cut(0);
    s.c.restart(1);
    s.c.cut(0, 1);
    s.link(1);
    s.pass(30_000);
    is_over && s.serves(1)
}

#[test]
fn a_witness_that_forgot_its_promise_confirms_one_that_was_evicted() {
    let serves = |bug| {
        let mut s = Story::new(2, EvictPolicy::Operator, bug);
        s.isolate(1);
        s.pass(4_000);
        s.is_stuck = true;
        let known = s.records.len();
        s.begin(1);
        serves_after_its_end(s, known)
    };
    assert!(!serves(None));
    assert!(serves(Some(Bug::WitnessPromiseNotOnDisk)));
}

#[test]
fn a_witness_that_lags_confirms_one_that_was_evicted_if_its_promise_was_not_awaited() {
    let serves = |bug| {
        let mut s = Story::new(2, EvictPolicy::Operator, bug);
        s.isolate(1);
        s.pass(4_000);
        s.learns = false;
        s.cut(0);
        let known = s.records.len();
        s.begin(1);
        serves_after_its_end(s, known)
    };
    assert!(!serves(None));
    assert!(serves(Some(Bug::PromisesForWitness)));
}

#[test]
fn a_witness_keeps_its_promise_over_a_restart() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(1);
    s.pass(4_000);
    s.begin(1);
    s.run();
    let known = s.records.len();
    s.crash_witness(known);
    s.c.restart(1);
    s.link(1);
    s.run();
    assert!(!s.serves(1), "it learns that it is to be evicted");
    s.cut(1);
    s.link(0);
    s.pass(5_000);
    assert!(!s.is_member(1));
}

#[test]
fn with_a_witness_one_of_two_is_evicted_by_time() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    assert!(s.is_backed(0) && s.is_backed(1));
    s.isolate(1);
    s.pass(11_000);
    assert!(!s.is_backed(1), "it is cut off");
    assert!(s.is_backed(0), "the witness acknowledges it");
    s.pass(15_000);
    assert!(s.is_member(1), "its clients may believe in their leases");
    s.pass(8_000);
    assert!(!s.is_member(1));
    s.c.open_lease(0, Duration::from_secs(15));
    assert!(s.grants(0, "any"));
}

#[test]
fn members_that_do_not_reach_each_other_are_both_backed_by_the_witness() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    s.c.cut(0, 1);
    s.pass(60_000);
    assert!(s.is_member(0) && s.is_member(1) && s.is_backed(0) && s.is_backed(1));
}

#[test]
fn a_witness_without_members_is_silent_about_nobody() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    s.cut(0);
    s.cut(1);
    s.pass(60_000);
    assert!(s.is_member(0) && s.is_member(1) && s.is_backed(0) && s.is_backed(1));
    assert!(!s.records.iter().any(|(_, record)| matches!(record, Record::Silent { .. })));
}

#[test]
fn a_witness_that_crashes_after_it_was_silent_acknowledges_nothing_before_that_is_taken_back() {
    let acknowledges = |bug| {
        let mut s = Story::new(2, EvictPolicy::Auto, bug);
        s.isolate(1);
        s.pass(29_000);
        // Its next proposal is under way.
        let is_silent = |s: &Story| {
            let statements = s.proposed.iter().map(|proposal| &proposal.command);
            statements.filter(|command| matches!(command, Command::Silent { .. })).count() > 0
        };
        for _ in 0..20 {
            s.c.pass(250);
            s.handle(Event::Tick);
            s.run();
            if is_silent(&s) {
                break;
            }
        }
        assert!(is_silent(&s), "it states its silence");
        let known = s.records.len();
        s.crash_witness(known);
        s.proposed.clear();
        s.c.proposed.clear();
        s.c.restart(1);
        s.c.cut(0, 1);
        s.link(1);
        for _ in 0..12 {
            s.c.pass(250);
            s.handle(Event::Tick);
            s.run();
        }
        s.is_backed(1)
    };
    assert!(!acknowledges(None));
    assert!(acknowledges(Some(Bug::SilenceNotOnDisk)), "it has forgotten it");
}

#[test]
fn what_a_removed_witness_acknowledges_does_not_count() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    let Voter::Witness(id) = s.voter() else { panic!("it is a witness") };
    s.decide_command(Command::RemoveWitness { id });
    s.run();
    assert!(s.witness.is_over());
    assert_eq!(s.witness.decisions().witnesses().of(server()), None);
    s.isolate(1);
    s.pass(60_000);
    assert!(s.is_member(1), "of two neither is evicted");
}

#[test]
fn a_witness_that_is_added_late_learns_all_decisions_from_members() {
    let mut s = Story::new(3, EvictPolicy::Operator, None);
    s.learns = false;
    s.linked.clone().into_iter().for_each(|id| s.cut(id));
    for number in 0..70 {
        let name = MemberName::new(&format!("n{number}")).expect("a short name");
        s.decide_command(Command::Invite { name: name.clone(), sponsor: None });
        s.decide_command(Command::CancelInvitation { name });
    }
    assert!(s.witness.decisions().index() < s.config.index());
    s.link(2);
    assert_eq!(s.witness.decisions(), &s.config);
    let again = recover(None, now(&s.c), s.records.clone());
    assert_eq!(again.decisions(), &s.config);
}

#[test]
fn a_witness_refuses_a_journal_that_is_not_its_own() {
    let s = Story::new(2, EvictPolicy::Operator, None);
    let config = |s: &Story| WitnessConfig {
        dc: dc(WITNESS),
        server: server(),
        heartbeat: Duration::from_millis(500),
        peer_timeout: Duration::from_secs(3),
        max_clock_skew: Duration::from_secs(5),
        bugs: s.bug.map(Bugs::one).unwrap_or_default(),
    };
    let of_member = s.c.nodes[0].records.clone();
    let refused = Witness::recover(config(&s), now(&s.c), of_member).map(drop);
    assert!(matches!(refused, Err(WitnessRecoveryError::NotOfWitness { .. })), "{refused:?}");
    let gap = s.records[1..].to_vec();
    let missing = WitnessRecoveryError::DecisionMissing { found: Index(2), last: Index(0) };
    assert_eq!(Witness::recover(config(&s), now(&s.c), gap).map(drop), Err(missing));
}
