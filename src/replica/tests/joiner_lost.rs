//! Stories about a member that is evicted before its part is settled.

use super::cluster::dc;
use super::evicting::Story;
use super::too_early::joins_in_grace;
use crate::base::bugs::Bug;
use crate::membership::{AttemptId, Command, Evictee, Eviction, Generation, Vouch};
use crate::replica::Message;

/// dc2 joins, with dc0 as its sponsor, and is lost. dc1 has entered its end when dc0, which has not heard of
/// that, splits its part off.
fn splits_after_the_end(bug: Option<Bug>) -> Story {
    // While clients may reclaim locks there, dc0 splits nothing off.
    let mut s = joins_in_grace(bug);
    s.c.isolate(2);
    let last_heard = Default::default();
    let members = vec![Evictee { dc: dc(2), generation: Generation(1), last_heard }];
    s.decide(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
    let attempt = AttemptId(s.config.index().0);
    s.c.late = |message| matches!(message, Message::Decisions { .. });
    let reports = [(0, s.vector(0)), (1, s.vector(1))];
    s.up.retain(|id| *id != 0);
    s.end(attempt, &reports);
    s.c.run();
    assert!(s.has_entered(1) && !s.has_entered(0), "only dc1 knows of the end");
    s.c.pass(70_000);
    s
}

fn own_entries(s: &Story, id: u8, at: u8) -> u64 {
    s.c.inspect(usize::from(at)).applied().get(dc(id))
}

#[test]
fn the_split_of_a_member_that_has_ended_is_no_fault() {
    let s = splits_after_the_end(None);
    s.c.assert_no_violations();
    assert_eq!(own_entries(&s, 0, 0), own_entries(&s, 0, 1), "dc1 follows the log of dc0");
}

#[test]
fn a_split_that_is_taken_for_a_fault_stops_the_log_of_its_maker() {
    let s = splits_after_the_end(Some(Bug::EndedPartUnknown));
    assert_ne!(s.c.nodes[1].violations, []);
    assert!(own_entries(&s, 0, 1) < own_entries(&s, 0, 0));
}
