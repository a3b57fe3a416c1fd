//! The decisions, as members list them for operators.

use super::cluster::Cluster;
use super::evicting::Story;
use crate::membership::{Command, Lineage, MemberName, Proposal, Revision};
use crate::replica::call::{Call, Reply};
use crate::replica::{Decision, Event};

/// Returns the decisions as a member lists them.
fn decisions(c: &mut Cluster, id: u8) -> Vec<Decision> {
    let tag = c.call(id, Call::Decisions);
    c.run();
    match c.reply(id, tag) {
        Some(Reply::Decisions(listed)) => listed,
        other => panic!("it lists them, not {other:?}"),
    }
}

#[test]
fn every_member_lists_all_decisions() {
    let mut s = Story::new(2, None);
    let name = MemberName::new("oslo").expect("a short name");
    s.decide(Command::Invite { name: name.clone(), sponsor: None });
    // The members have changed since this was proposed.
    let proposal = Proposal { checked: Revision(0), command: Command::CancelInvitation { name } };
    let index = s.config.index().next();
    assert!(s.config.apply(index, &proposal).is_err());
    for id in 0..2 {
        s.c.handle(id, Event::Decided { lineage: Lineage(0), index, proposal: Box::new(proposal.clone()) });
    }
    s.c.pass(1_000);
    let listed = decisions(&mut s.c, 0);
    let rows: Vec<_> = listed.iter().map(|it| (it.number, it.text.as_str(), it.is_refused)).collect();
    let expected = [
        (1, "the first members are dc0, dc1", false),
        (2, "oslo may join", false),
        (3, "oslo may not join any more", true),
    ];
    assert_eq!(rows, expected);
    assert!(listed.iter().all(|it| it.at_ms.is_some()), "{listed:?}");
    s.c.restart(1);
    s.c.pass(1_000);
    let elsewhere = decisions(&mut s.c, 1);
    assert!(elsewhere.iter().all(|it| it.at_ms.is_none()), "the time is not on disk: {elsewhere:?}");
    let rows: Vec<_> = elsewhere.iter().map(|it| (it.number, it.text.as_str(), it.is_refused)).collect();
    assert_eq!(rows, expected);
}
