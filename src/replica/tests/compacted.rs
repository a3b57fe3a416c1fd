//! Stories about decisions that are kept no more.

use super::cluster::dc;
use super::evicting::Story;
use crate::base::bugs::Bug;
use crate::membership::{Command, Index, MemberName, Prefix, PrefixRule};
use crate::replica::call::{Call, Phase, Reply};
use crate::replica::{MAX_LISTED, Message};

/// More decisions than are kept, by a third, none of which begins an epoch.
fn decide_many(s: &mut Story) {
    let name = MemberName::new("oslo").expect("a short name");
    for _ in 0..MAX_LISTED * 2 / 3 {
        s.decide(Command::Invite { name: name.clone(), sponsor: None });
        s.decide(Command::CancelInvitation { name: name.clone() });
    }
}

/// A decision that every member has to enter.
fn begin_epoch(s: &mut Story) {
    let rule = PrefixRule { home: Some(dc(0)), operator_evicts: false };
    s.decide(Command::SetRule { prefix: Prefix::new(b"a").expect("a short prefix"), rule });
}

/// Returns the number of decisions that a member has compacted.
fn compacted(s: &Story, id: u8) -> Index {
    s.c.inspect(usize::from(id)).decisions().0.index()
}

fn knows_all(s: &Story, id: u8) -> bool {
    s.c.inspect(usize::from(id)).decided_members() == Some(&s.config)
}

/// The disk of dc0 is of before decisions that the others have compacted, one of which begins an epoch, or
/// has the first `more` records of that epoch. It has no link.
fn with_older_disk(more: usize, bug: Option<Bug>) -> Story {
    let mut s = Story::new(2, bug);
    s.c.pass(1_000);
    let keep = s.c.nodes[0].records.len() + more;
    begin_epoch(&mut s);
    s.c.pass(1_000);
    assert!(s.c.nodes[0].records.len() > keep);
    decide_many(&mut s);
    s.c.pass(5_000);
    s.c.crash(0, keep);
    s
}

/// The same, and it has had a link for long.
fn lacks_compacted(more: usize, bug: Option<Bug>) -> (Story, Phase) {
    let mut s = with_older_disk(more, bug);
    s.c.link(0, 1);
    // Leases that it does not know may live for a minute.
    s.c.pass(70_000);
    let phase = s.c.inspect(0).phase();
    (s, phase)
}

#[test]
fn the_last_decisions_are_kept_and_listed() {
    let mut s = Story::new(2, None);
    decide_many(&mut s);
    s.c.pass(5_000);
    let all = s.config.index().0;
    for id in 0..2 {
        let kept = all - compacted(&s, id).0;
        assert!((MAX_LISTED as u64..1_300).contains(&kept), "dc{id} keeps {kept} of {all}");
    }
    let checkpoint = s.c.inspect(1).checkpoint();
    assert_eq!(
        crate::replica::Checkpoint::decode(&checkpoint.encode().expect("it is small")).expect("it is read"),
        checkpoint
    );
    s.c.restart_from(1, checkpoint);
    s.c.link(0, 1);
    s.c.pass(2_000);
    assert!(knows_all(&s, 1) && compacted(&s, 1) > Index(0));
    let tag = s.c.call(1, Call::Decisions);
    s.c.run();
    let Some(Reply::Decisions(listed)) = s.c.reply(1, tag) else { panic!("it lists them") };
    assert_eq!(listed.len(), MAX_LISTED);
    assert_eq!(listed.last().expect("there are some").number, all);
    s.c.assert_no_violations();
}

#[test]
fn decisions_that_a_member_has_not_entered_are_kept_for_it() {
    let mut s = Story::new(2, None);
    s.c.isolate(1);
    s.up.retain(|id| *id != 1);
    begin_epoch(&mut s);
    decide_many(&mut s);
    let epoch = s.config.epoch();
    s.c.pass(5_000);
    assert_eq!(compacted(&s, 0), Index(0), "dc1 has entered nothing of it");
    s.c.link(0, 1);
    s.c.pass(10_000);
    assert!(knows_all(&s, 1));
    assert_eq!(s.c.inspect(0).entered_by(dc(1)), epoch);
    assert!(compacted(&s, 0) > Index(0));
    s.c.assert_no_violations();
}

#[test]
fn a_disk_of_before_compacted_decisions_gets_a_state() {
    // With one record it knows the decision that begins the epoch, and has not entered it.
    for more in [0, 1] {
        let (mut s, phase) = lacks_compacted(more, None);
        assert_eq!(phase, Phase::Serving);
        assert!(knows_all(&s, 0));
        assert_eq!(s.c.inspect(0).entered_by(dc(0)), s.config.epoch());
        s.c.restart(0);
        s.c.link(0, 1);
        s.c.pass(2_000);
        assert_eq!(s.c.inspect(0).phase(), Phase::Serving, "so after a restart");
        s.c.assert_no_violations();
    }
}

/// The same, and no entry is truncated, because dc2 was lost before it had all. Returns true if dc0 enters
/// the epoch all the same.
fn enters_although_nothing_is_truncated(bug: Option<Bug>) -> bool {
    let mut s = Story::new(3, bug);
    s.c.pass(1_000);
    let keep = s.c.nodes[0].records.len();
    s.c.late = |message| matches!(message, Message::Entries(entries) if entries[0].dc == dc(0));
    begin_epoch(&mut s);
    s.c.run();
    while s.c.deliver(0, 1) {}
    s.c.isolate(2);
    s.up.retain(|id| *id != 2);
    s.c.late = |_| false;
    decide_many(&mut s);
    s.c.pass(5_000);
    s.c.crash(0, keep);
    s.c.link(0, 1);
    s.c.pass(5_000);
    assert!(knows_all(&s, 0) && compacted(&s, 0).0 > s.config.epoch().0);
    s.c.inspect(0).entered_by(dc(0)) == s.config.epoch()
}

#[test]
fn a_disk_of_before_compacted_decisions_asks_for_a_state() {
    assert!(enters_although_nothing_is_truncated(None));
    assert!(!enters_although_nothing_is_truncated(Some(Bug::NeededStateUnasked)));
}

#[test]
fn an_operator_is_told_that_a_history_lacks_decisions() {
    let mut s = with_older_disk(0, None);
    assert!(!s.c.nodes[0].replica.resolve_fork(), "it has not heard of them");
    s.c.late = |message| matches!(message, Message::State(_));
    s.c.link(0, 1);
    s.c.pass(2_000);
    s.c.restart(0);
    assert!(s.c.nodes[0].replica.resolve_fork());
}

#[test]
#[should_panic(expected = "every epoch that is decided is entered, or waits for that")]
fn a_member_that_goes_on_without_compacted_epochs_is_caught() {
    lacks_compacted(0, Some(Bug::ServesWithoutCompacted));
}

#[test]
fn an_evicted_server_learns_its_end_from_compacted_decisions() {
    let mut s = Story::new(3, None);
    s.evict_dc2();
    s.c.pass(2_000);
    decide_many(&mut s);
    s.c.pass(5_000);
    let end = s.config.epoch();
    assert!(compacted(&s, 0).0 > end.0, "its end is compacted");
    s.c.link_again(2);
    s.c.pass(5_000);
    let known = s.c.inspect(2).decided_members().expect("it knows some");
    assert!(known.slots().has_ended(dc(2)));
    assert_ne!(s.c.inspect(2).phase(), Phase::Serving);
    s.c.assert_no_violations();
}

/// dc2 lacks a compacted decision and asks for a state, and learns its end, which is not compacted, before
/// that comes.
fn learns_its_end_while_a_state_comes(bug: Option<Bug>) {
    let mut s = Story::new(3, bug);
    let tag = s.c.lock(2, "moved");
    s.c.run();
    let held = s.c.granted(2, tag);
    s.c.release(2, held.request);
    s.c.isolate(2);
    s.up.retain(|id| *id != 2);
    begin_epoch(&mut s);
    let epoch = s.config.epoch();
    decide_many(&mut s);
    s.evict_dc2();
    // The parts of dc2 are elsewhere now.
    let tag = s.c.lock(1, "moved");
    s.c.pass(2_000);
    s.c.granted(1, tag);
    let end = s.config.index();
    assert!((epoch.0..end.0).contains(&compacted(&s, 0).0), "{:?}", compacted(&s, 0));
    s.c.late = |message| matches!(message, Message::Decisions { .. } | Message::State(_));
    s.c.link_again(2);
    s.c.pass(2_000);
    let is_given = |message: &Message| matches!(message, Message::State(_));
    assert!(s.c.wires.values().flatten().any(is_given) && !s.c.inspect(2).is_over());
    s.c.late = |message| matches!(message, Message::State(_));
    s.c.run();
    assert!(s.c.inspect(2).is_over());
    s.c.late = |_| false;
    s.c.pass(5_000);
    s.c.assert_no_violations();
}

#[test]
fn a_state_is_of_no_use_to_an_evicted_server() {
    learns_its_end_while_a_state_comes(None);
}

#[test]
#[should_panic(expected = "was given to nobody")]
fn an_evicted_server_that_takes_a_state_is_caught() {
    learns_its_end_while_a_state_comes(Some(Bug::StateAfterEnd));
}
