//! A story about a lost member that is started after an operator has vouched that it does not run.

use super::cluster::dc;
use super::evicting::Story;
use crate::base::bugs::Bug;
use crate::membership::{Command, Evictee, Eviction, Generation, Vouch};

/// An operator vouches that dc2, which is lost, does not run. Before its eviction begins, it is started, dc1
/// alone hears it and confirms that it is a member, and it is cut off again. Returns what the others propose
/// for the eviction.
fn proposed_after_a_start(bug: Option<Bug>) -> Vec<Command> {
    let mut s = Story::new(3, bug);
    s.c.run();
    s.c.isolate(2);
    s.c.pass(5_000);
    let last_heard = s.c.inspect(0).last_clocks()[&dc(2)];
    s.c.restart(2);
    s.c.link(1, 2);
    s.c.pass(10_000);
    assert!(s.serves(2), "a majority has told it that it is a member");
    s.c.isolate(2);
    s.c.pass(5_000);
    s.up.retain(|id| *id != 2);
    s.c.proposed.clear();
    let members = vec![Evictee { dc: dc(2), generation: Generation(0), last_heard }];
    s.decide(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }));
    s.c.run();
    s.c.pass(1_000);
    s.c.proposed.drain(..).map(|proposal| proposal.command).collect()
}

#[test]
fn a_member_that_was_started_after_the_operators_word_is_not_evicted() {
    let proposed = proposed_after_a_start(None);
    let gives_up = |command: &Command| matches!(command, Command::Abort { .. });
    assert!(!proposed.is_empty() && proposed.iter().all(gives_up), "{proposed:?}");
    let proposed = proposed_after_a_start(Some(Bug::StartNotSeen));
    let reports = |command: &Command| matches!(command, Command::Have { .. });
    assert!(!proposed.is_empty() && proposed.iter().all(reports), "{proposed:?}");
}
