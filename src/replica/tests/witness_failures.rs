//! Stories about a witness when something else fails, too: a forced recovery, its own removal, and failures
//! at each step of an eviction.

use std::time::Duration;

use super::cluster::{Cluster, dc, founding};
use super::witness_story::{Story, WITNESS, new_witness, server};
use crate::base::time::Timestamp;
use crate::base::wire::PROTOCOL_VERSION;
use crate::membership::{
    Address, Admission, Command, Config, Credentials, EvictPolicy, Founding, Generation, Index, Lineage,
    Mark, MemberName, NewWitness, Policy, Proposal, RecoveryPlan, Refused, ServerId, Voter, Vouch,
};
use crate::replica::call::Phase;
use crate::replica::{Event, Message};
use geolock_api::names::{ClusterId, DcSet};

/// Long enough for every timeout of an eviction by time, twice.
const LONG: u64 = 90_000;

fn invite(number: u8) -> Command {
    Command::Invite { name: MemberName::new(&format!("n{number}")).expect("a short name"), sponsor: None }
}

fn knows(s: &Story, id: usize) -> u64 {
    s.c.inspect(id).decided_members().map_or(0, |config| config.index().0)
}

#[test]
fn survivors_and_a_witness_that_are_a_majority_are_not_recovered_by_force() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    let plan = RecoveryPlan { lineage: Lineage(1), survivors: DcSet::only(dc(0)), lost: DcSet::only(dc(1)) };
    s.isolate(1);
    s.pass(4_000);
    s.c.handle(0, Event::Recover { plan });
    let refused = s.c.inspect(0).recovery().refused;
    assert_eq!(refused, Some(Refused::MajorityUp { voters: 2, needed: 2 }), "it hears the witness");
    s.cut(0);
    s.pass(4_000);
    s.c.handle(0, Event::Recover { plan });
    s.run();
    assert_eq!(s.c.inspect(0).decided_members().map(Config::lineage), Some(Lineage(1)));
}

/// dc0 goes on alone; dc1 and the witness were cut off, and are still a majority of the group of before.
#[test]
fn a_witness_of_the_group_of_before_a_recovery_tells_the_survivors_nothing() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.isolate(0);
    s.pass(4_000);
    let plan = RecoveryPlan { lineage: Lineage(1), survivors: DcSet::only(dc(0)), lost: DcSet::only(dc(1)) };
    s.c.handle(0, Event::Recover { plan });
    s.run();
    let (recovered, before) = (knows(&s, 0), s.config.index().0);
    assert_eq!(recovered, before + 1);
    (0..3).for_each(|number| s.decide_command(invite(number)));
    assert_eq!(s.witness.decisions().index().0, before + 3, "the majority of before has decided more");
    s.link(0);
    s.pass(2_000);
    assert_eq!(knows(&s, 0), recovered, "those are decisions of another group");
    assert_eq!(s.witness.decisions(), &s.config, "and so are those of the survivor");
}

#[test]
fn a_removed_witness_learns_that_and_nothing_else_and_says_nothing() {
    let mut s = Story::new(3, EvictPolicy::Auto, None);
    let Voter::Witness(id) = s.voter() else { panic!("it is a witness") };
    s.learns = false;
    s.cut(0);
    s.cut(1);
    s.cut(2);
    s.decide_command(Command::RemoveWitness { id });
    let removed = s.config.index();
    s.decide_command(invite(1));
    assert!(!s.witness.is_over());
    s.link(0);
    s.pass(1_000);
    assert!(s.witness.is_over(), "it is told");
    assert_eq!(s.witness.decisions().index(), removed, "and nothing that was decided later");
    (s.learns, s.messages) = (true, 0);
    let records = s.records.len();
    s.decide_command(invite(2));
    s.link(1);
    // A member says how many decisions it knows when a link comes up.
    assert!(s.messages <= 1, "{} messages", s.messages);
    s.messages = 0;
    s.pass(5_000);
    assert_eq!((s.messages, s.records.len(), s.witness.decisions().index()), (0, records, removed));
}

#[test]
fn one_that_only_a_removed_witness_hears_is_evicted() {
    let mut s = Story::new(3, EvictPolicy::Operator, None);
    let Voter::Witness(id) = s.voter() else { panic!("it is a witness") };
    s.learns = false;
    s.decide_command(Command::RemoveWitness { id });
    s.isolate(1);
    s.pass(4_000);
    s.begin(1);
    // It does not know that it was removed.
    let message = Message::WitnessHears { hears: vec![(dc(1), Timestamp::default(), 0)] };
    s.c.handle(0, Event::Received { peer: dc(WITNESS), message });
    s.c.pass(1_000);
    let gives_up = |proposal: &Proposal| matches!(proposal.command, Command::Abort { .. });
    assert!(!s.c.proposed.iter().any(gives_up), "{:?}", s.c.proposed);
    s.pass(1_000);
    assert!(!s.is_member(1), "{:?}", s.config.attempt());
}

#[test]
fn one_that_leaves_keeps_its_vote_until_a_majority_of_the_others_is_up() {
    let mut s = Story::new(2, EvictPolicy::Operator, None);
    s.cut(0);
    s.cut(1);
    s.pass(20_000);
    s.decide_command(Command::Leaving { dc: dc(1), generation: Generation(0) });
    s.pass(5_000);
    assert!(s.c.inspect(1).has_left(), "it has appended its last entry");
    assert!(s.is_member(1), "without it, dc0 could decide nothing");
    s.link(0);
    s.link(1);
    s.pass(2_000);
    assert!(!s.is_member(1));
}

/// A voter that hears the silent one for a moment takes its silence back. By the time it knows that the
/// eviction has begun, it does not hear it any more.
#[test]
fn an_eviction_by_time_whose_silence_was_taken_back_is_given_up_and_begins_again() {
    for by_witness in [true, false] {
        let mut s = Story::new(2, EvictPolicy::Auto, None);
        s.isolate(1);
        while s.config.attempt().is_none() {
            s.pass(250);
        }
        let by = match by_witness {
            true => s.voter(),
            false => Voter::Member { dc: dc(0), generation: Generation(0) },
        };
        let number = s.config.silence(by, dc(1)).expect("it is silent").number + 1;
        s.decide_command(Command::Heard {
            mark: Mark { by, of: dc(1), of_generation: Generation(0), number },
        });
        s.pass(1_000);
        assert!(s.config.attempt().is_none() && s.is_member(1), "by the witness: {by_witness}");
        s.pass(LONG);
        assert!(!s.is_member(1), "by the witness: {by_witness}, {:?}", s.config.attempt());
        s.c.open_lease(0, Duration::from_secs(15));
        assert!(s.grants(0, "any"), "by the witness: {by_witness}");
    }
}

/// A server that is to join is lost before it has a state, together with dc1: neither can report.
#[test]
fn a_server_that_joins_and_is_lost_with_a_member_does_not_hold_its_eviction_up() {
    let mut s = Story::new(2, EvictPolicy::Auto, None);
    s.decide_command(Command::Admit(Admission {
        dc: dc(2),
        generation: Generation(0),
        server: ServerId([7; 16]),
        name: MemberName::new("joins").expect("a short name"),
        address: Address::new("joins:1").expect("a host and a port"),
        sponsor: dc(0),
        votes: true,
        credentials: Credentials {
            cluster: ClusterId::of("stories"),
            lineage: None,
            version: PROTOCOL_VERSION,
        },
    }));
    s.pass(1_000);
    s.isolate(1);
    s.pass(LONG);
    assert!(!s.is_member(1) && !s.is_member(2), "{:?}", s.config.slots().member_set());
    assert!(s.serves(0));
}

/// dc0 votes, and so do two witnesses; dc1 does not, and is the only one that can report.
#[test]
fn a_member_without_a_vote_evicts_the_last_one_with_a_vote() {
    let mut c = Cluster::new(2, 1_000, 1_000);
    let mut config = Config::default();
    let mut decide = |c: &mut Cluster, command: Command| {
        let proposal = Proposal { checked: config.revision(), command };
        let index = config.index().next();
        config.apply(index, &proposal).expect("it is possible");
        for id in 0..2 {
            let proposal = Box::new(proposal.clone());
            c.handle(id, Event::Decided { lineage: Lineage(0), index, proposal });
        }
        c.pass(70_000);
        (config.policy_epoch(), index)
    };
    let mut founders = founding(2).founders;
    founders[1].votes = false;
    c.pass(1_000);
    decide(&mut c, Command::Found(Founding { founders, ..founding(2) }));
    // A member enters this policy when a majority backs it: alone, it is one.
    let (policy, _) =
        decide(&mut c, Command::SetPolicy(Policy { evict: EvictPolicy::Auto, ..Policy::default() }));
    let mut witnesses = Vec::new();
    for id in [8, 9] {
        let name = MemberName::new(&format!("w{id}")).expect("a short name");
        let added = NewWitness { dc: dc(id), server: ServerId([id; 16]), name, ..new_witness() };
        decide(&mut c, Command::Invite { name: added.name.clone(), sponsor: None });
        let (_, Index(number)) = decide(&mut c, Command::AddWitness(added));
        witnesses.push(Voter::Witness(crate::membership::WitnessId(number)));
        c.wires.insert((dc(1), dc(id)), Default::default());
        c.handle(1, Event::LinkUp { peer: dc(id), version: PROTOCOL_VERSION });
    }
    assert_eq!(c.inspect(1).phase(), Phase::Serving);
    c.isolate(0);
    for by in witnesses {
        let mark = Mark { by, of: dc(0), of_generation: Generation(0), number: 1 };
        decide(&mut c, Command::Silent { mark, policy });
    }
    c.proposed.clear();
    for id in [8, 9] {
        c.handle(1, Event::Received { peer: dc(id), message: Message::WitnessHears { hears: vec![] } });
    }
    c.pass(1_000);
    let begins = |proposal: &Proposal| match &proposal.command {
        Command::Begin(eviction) => {
            eviction.vouch == Vouch::Silence && eviction.slots() == DcSet::only(dc(0))
        }
        _ => false,
    };
    assert!(c.proposed.iter().any(begins), "{:?}", c.proposed);
}

/// A failure while dc1 is lost.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The witness is down for a while.
    WitnessDown,
    /// dc0 is down for a while.
    MemberDown,
    /// The proposals that are under way are lost.
    ProposalsLost,
    /// dc1 and the witness reach each other for a moment.
    HeardByWitness,
    /// dc1 and dc0 reach each other for a moment.
    HeardByMember,
    /// dc1 is back.
    Back,
}

impl Story {
    fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::WitnessDown => {
                let known = self.records.len();
                self.crash_witness(known);
                (self.decides, self.learns) = (false, false);
                self.pass_without_witness(40_000);
                (self.decides, self.learns) = (true, true);
                self.link(0);
            }
            Fault::MemberDown => {
                self.isolate(0);
                self.c.restart(0);
                self.decides = false;
                self.pass(40_000);
                self.decides = true;
                self.up.push(0);
                self.link(0);
            }
            Fault::ProposalsLost => {
                self.c.proposed.clear();
                self.proposed.clear();
            }
            Fault::HeardByWitness => {
                self.link(1);
                self.pass(500);
                self.cut(1);
            }
            Fault::HeardByMember => {
                self.c.link(0, 1);
                self.run();
                self.pass(500);
                self.c.cut(0, 1);
            }
            Fault::Back => self.rejoin(1),
        }
    }

    fn pass_without_witness(&mut self, millis: u64) {
        self.c.pass(millis);
        self.c.proposed.clear();
    }
}

#[test]
fn an_eviction_by_time_is_completed_or_given_up_whatever_fails_once_at_any_step() {
    use Fault::*;
    for fault in [WitnessDown, MemberDown, ProposalsLost, HeardByWitness, HeardByMember, Back] {
        for step in 0..8 {
            let mut s = Story::new(2, EvictPolicy::Auto, None);
            s.isolate(1);
            let from = s.config.index().0;
            // Silent twice, Begin, Have twice, End: then it is over.
            for _ in 0..200 {
                if s.config.index().0 >= from + step || !s.is_member(1) {
                    break;
                }
                s.pass(250);
            }
            // Once all have reported, the end is under way.
            let ends = s.config.attempt().is_some() && s.config.missing_reports().is_empty();
            let is_back = matches!(fault, Back) && s.is_member(1) && !ends;
            s.suffer(fault);
            let begun = s.c.now;
            while s.is_member(1) && s.c.now < begun + if is_back { LONG / 2 } else { 2 * LONG } {
                s.pass(250);
            }
            s.pass(2_000);
            let what = format!("{fault:?} after {step} decisions: {:?}", s.config.attempt());
            assert!(s.config.attempt().is_none(), "{what}");
            assert_eq!(s.is_member(1), is_back, "{what}");
            s.c.open_lease(0, Duration::from_secs(15));
            assert!(s.grants(0, "any"), "{what}");
            assert!(!is_back || s.serves(1), "{what}");
            let decided = s.config.index().0 - from;
            assert!(decided < 60, "{what}: {decided} decisions");
            assert_eq!(s.witness.decisions().witnesses().of(server()), s.config.witnesses().of(server()));
        }
    }
}
