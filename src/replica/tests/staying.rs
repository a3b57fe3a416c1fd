//! Stories about leaves that are taken back: of two members and a witness, dc1 is to leave.

use std::time::Duration;

use super::cluster::dc;
use super::witness_story::Story;
use crate::base::bugs::Bug;
use crate::membership::{Command, EvictPolicy, Generation, Phase, Proposal, Refused};
use crate::replica::call::{Refusal, Reply};
use crate::replica::{Event, Record};
use geolock_api::names::DcSet;

/// Two members and a witness. A client of dc1 holds a lock, and dc1 is to leave, so it waits for that client.
/// Returns the call of the client, too.
fn leaving(bug: Option<Bug>) -> (Story, u64) {
    let mut s = Story::new(2, EvictPolicy::Operator, bug);
    let held = s.c.lock(1, "held");
    s.pass(500);
    assert!(matches!(s.c.reply(1, held), Some(Reply::Granted(_))), "{:?}", s.c.reply(1, held));
    s.decide_command(Command::Leaving { dc: dc(1), generation: Generation(0) });
    s.pass(2_000);
    assert!(phase(&s) == Some(Phase::Leaving) && !s.c.inspect(1).has_left());
    (s, held)
}

fn phase(s: &Story) -> Option<Phase> {
    s.config.slots().member(dc(1)).map(|member| member.phase)
}

/// The client of dc1 lets its lock go: nothing else keeps dc1.
fn release(s: &mut Story, held: u64) {
    let Some(Reply::Granted(grant)) = s.c.reply(1, held) else { panic!("it was granted") };
    s.c.release(1, grant.request);
    s.run();
}

fn cancel(s: &mut Story) {
    s.c.handle(1, Event::CancelLeave);
    s.run();
}

fn refused(s: &Story) -> Option<Refused> {
    s.c.inspect(1).stay().refused
}

fn is_promised(s: &Story) -> bool {
    s.c.nodes[1].records.iter().any(|(_, record)| matches!(record, Record::StayPromised))
}

#[test]
fn a_leave_that_waits_for_a_holder_is_taken_back() {
    let (mut s, held) = leaving(None);
    let turned_away = s.c.lock(1, "new");
    s.run();
    assert_eq!(s.c.refused(1, turned_away), Refusal::Draining);
    cancel(&mut s);
    s.pass(1_000);
    assert_eq!(phase(&s), Some(Phase::Settled));
    assert_eq!(s.c.inspect(1).stay().cancelled, [(dc(1), s.config.index())]);
    assert_eq!(s.c.inspect(0).stay().cancelled, s.c.inspect(1).stay().cancelled);
    release(&mut s, held);
    s.pass(1_000);
    // It is given what it asks for, and gives.
    for id in [0, 1, 0, 1] {
        let tag = s.c.lock(id, "held");
        s.pass(500);
        let grant = s.c.granted(id, tag);
        s.c.release(id, grant.request);
    }
    s.pass(2_000);
    assert!(!s.c.inspect(1).has_left(), "it stays");
}

/// The dead end: who leaves can neither go, because the other is lost, nor evict the other, because then
/// nobody would stay.
#[test]
fn one_that_leaves_stays_and_evicts_the_only_other_one_that_is_lost() {
    // The part that dc0 has given for an exclusive lock cannot go back; nothing else would keep dc1.
    for (knew_it, has_its_part) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut s = Story::new(2, EvictPolicy::Operator, None);
        let leaving = Command::Leaving { dc: dc(1), generation: Generation(0) };
        let held = if has_its_part { s.c.lock(1, "held") } else { s.c.share(1, "held") };
        s.pass(500);
        if knew_it {
            s.decide_command(leaving);
            s.isolate(0);
        } else {
            s.isolate(0);
            s.decide_command(leaving);
        }
        s.pass(4_000);
        // It leaves only while it hears all others: nothing could be taken back any more.
        release(&mut s, held);
        s.pass(5_000);
        s.begin(0);
        assert_eq!((s.config.attempt(), s.c.inspect(1).has_left()), (None, false), "a dead end");
        cancel(&mut s);
        s.pass(1_000);
        s.begin(0);
        s.pass(5_000);
        assert_eq!(s.config.slots().member_set(), DcSet::only(dc(1)), "{:?}", s.config.attempt());
        s.c.open_lease(1, Duration::from_secs(15));
        assert!(s.grants(1, "held") && s.grants(1, "new"));
    }
}

#[test]
fn what_its_log_says_cannot_be_taken_back() {
    let (mut s, held) = leaving(None);
    // Nothing is decided, so it is still a member.
    s.decides = false;
    release(&mut s, held);
    s.pass(2_000);
    assert!(s.c.inspect(1).has_left() && phase(&s) == Some(Phase::Leaving));
    cancel(&mut s);
    assert_eq!((refused(&s), is_promised(&s)), (Some(Refused::HasLeft { dc: dc(1) }), false));
    s.decides = true;
    s.pass(2_000);
    assert!(!s.is_member(1));
    cancel(&mut s);
    assert_eq!(refused(&s), Some(Refused::HasLeft { dc: dc(1) }));
}

#[test]
fn nothing_is_promised_without_a_majority_or_by_one_that_does_not_leave() {
    let (mut s, held) = leaving(None);
    s.isolate(1);
    s.pass(5_000);
    cancel(&mut s);
    assert_eq!(refused(&s), Some(Refused::NoMajority { remaining: 1, needed: 2 }));
    s.rejoin(1);
    s.pass(1_000);
    cancel(&mut s);
    s.pass(1_000);
    let decided = s.config.index();
    let records = s.c.nodes[1].records.len();
    cancel(&mut s);
    assert_eq!((refused(&s), s.config.index()), (Some(Refused::NotLeaving { dc: dc(1) }), decided));
    assert_eq!(s.c.nodes[1].records.len(), records, "nothing else is recorded");
    release(&mut s, held);
}

#[test]
fn nobody_else_proposes_it() {
    let (mut s, _) = leaving(None);
    s.decides = false;
    for id in [0, 1] {
        let command = Command::CancelLeave { dc: dc(1), generation: Generation(0) };
        s.c.handle(id, Event::Propose { command: Box::new(command) });
        s.run();
    }
    assert_eq!(s.c.proposed, []);
}

/// The proposal is decided late. Returns true if dc1 has left by then.
fn has_left_meanwhile(bug: Option<Bug>, crash: impl Fn(&mut Story)) -> bool {
    let (mut s, held) = leaving(bug);
    cancel(&mut s);
    let is_cancel = |it: &&Proposal| matches!(it.command, Command::CancelLeave { .. });
    let late = s.c.proposed.iter().find(is_cancel).cloned().expect("its promise is on disk");
    s.decides = false;
    release(&mut s, held);
    crash(&mut s);
    s.pass(20_000);
    if s.c.inspect(1).has_left() {
        return true;
    }
    s.decide(late);
    s.pass(1_000);
    assert_eq!(phase(&s), Some(Phase::Settled));
    // The next leave is another one.
    s.decides = true;
    s.decide_command(Command::Leaving { dc: dc(1), generation: Generation(0) });
    s.pass(2_000);
    assert!(!s.is_member(1));
    false
}

fn restart(s: &mut Story) {
    s.cut(1);
    s.c.restart(1);
    s.rejoin(1);
}

fn restart_from_checkpoint(s: &mut Story) {
    s.c.handle(1, Event::Checkpoint);
    s.run();
    let checkpoint = s.c.nodes[1].checkpoint.clone().expect("it is asked for");
    s.cut(1);
    s.c.restart_from(1, checkpoint);
    s.rejoin(1);
}

#[test]
fn it_does_not_leave_before_the_outcome_is_known() {
    assert!(!has_left_meanwhile(None, |_| ()));
    assert!(has_left_meanwhile(Some(Bug::LeavesAfterCancel), |_| ()), "it leaves");
}

#[test]
fn it_remembers_that_over_a_restart() {
    assert!(!has_left_meanwhile(None, restart));
    assert!(!has_left_meanwhile(None, restart_from_checkpoint));
    assert!(has_left_meanwhile(Some(Bug::StayNotOnDisk), restart), "it has forgotten it");
}
