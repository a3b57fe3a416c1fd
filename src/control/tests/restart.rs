//! Vote and log survive a loss of power.

use std::time::Duration;

use super::super::message::{Answer, Candidacy, Envelope, Request};
use super::super::wire::{WireLogId, WireVote};
use super::{Group, World, decide, member, members, names, until};
use crate::base::wire;
use crate::control::{Decided, MemberId, ProposeError, Refusal, Start};

#[tokio::test]
async fn a_group_that_lost_power_everywhere_goes_on_with_its_list() {
    let world = World::new(41);
    let mut groups = world.found([0, 1, 2]).await;
    let mut expected = Vec::new();
    for round in 0..5 {
        for (n, group) in groups.iter().enumerate() {
            let name = format!("{round}.{n}");
            decide(group, &name).await;
            expected.push(name);
        }
        let term = groups.iter().map(|group| group.status().term).max().expect("three");
        for group in &groups {
            world.kill(group).await;
        }
        groups = world.found([0, 1, 2]).await;
        let index = groups[round % 3].read_index().await.expect("all are there");
        let mut known = names(&groups[round % 3]);
        // A proposal whose answer was lost was made again.
        known.dedup();
        assert_eq!((known, index >= 3), (expected.clone(), true));
        assert!(groups.iter().any(|group| group.status().term >= term), "a vote was kept");
    }
}

/// Asks `group` for its vote in the name of `candidate`.
async fn ask_for_vote(group: &Group, candidate: MemberId, term: u64) -> Answer {
    let core = &group.0;
    let request = Request::Vote(Candidacy {
        vote: WireVote { term, leader: candidate, committed: false },
        last: Some(WireLogId { term: term - 1, index: 1 << 20 }),
        // It does not wait for the present leader.
        transfer: true,
    });
    let envelope = Envelope {
        from: candidate,
        from_server: core.server_of(candidate).expect("it is a member"),
        to: core.caller.me,
        to_server: Some(core.caller.server),
        request,
    };
    let bytes = wire::encode("request", &envelope).expect("it is small");
    let answer = group.handle_request(candidate.dc, bytes.into()).await;
    wire::decode("answer", &answer).expect("an answer")
}

#[tokio::test]
async fn a_voter_that_crashes_right_after_its_answer_remembers_its_vote() {
    let world = World::new(42);
    let groups = world.found([0, 1, 2]).await;
    let mut voter = groups[2].clone();
    world.isolate(member(2).dc);
    for term in [100, 200, 300, 400] {
        let granted = ask_for_vote(&voter, member(0), term).await;
        assert!(matches!(granted, Answer::Vote { granted: true, .. }), "{granted:?}");
        world.kill(&voter).await;
        world.isolate(member(2).dc);
        voter = world.start(member(2), Start::Join).await;
        let refused = ask_for_vote(&voter, member(1), term).await;
        let Answer::Vote { vote, granted: false, .. } = refused else { panic!("voted twice: {refused:?}") };
        assert_eq!((vote.term, vote.leader), (term, member(0)));
    }
}

#[tokio::test]
async fn a_vote_and_an_entry_that_are_not_on_disk_are_not_answered() {
    let world = World::new(43);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "a").await;
    world.isolate(member(2).dc);
    world.disk(member(2)).fail();
    let syncs = world.disk(member(2)).syncs();
    let answer = ask_for_vote(&groups[2], member(0), 100).await;
    assert_eq!(answer, Answer::Refused(Refusal::Stopped));
    assert_eq!(world.disk(member(2)).syncs(), syncs);
    until(&groups[2], |status| status.failed.is_some()).await;
    assert_eq!(groups[2].propose(&"b".into()).await, Err(ProposeError::NoLeader));
    // The others go on without it.
    decide(&groups[0], "c").await;
}

#[tokio::test]
async fn a_directory_holds_one_member_and_is_opened_once() {
    use crate::control::{ControlConfig, ControlGroup, StartError, StoreError, Timing};
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::new(44);
    let config = |id| ControlConfig {
        dir: dir.path().join("control"),
        timing: Timing::for_round_trip(Duration::from_millis(1)),
        ..world.config(member(id), Start::Found(members([id])))
    };
    let group: Group = ControlGroup::start(config(0)).await.expect("it starts");
    assert_eq!(group.propose(&"a".into()).await, Ok(1));
    let second = Group::start(config(0)).await.err();
    assert!(matches!(second, Some(StartError::Store(StoreError::InUse { .. }))), "{second:?}");
    let server = group.server_id();
    group.shutdown().await;
    drop(group);
    let other = Group::start(config(1)).await.err();
    assert!(matches!(other, Some(StartError::Store(StoreError::WrongMember { .. }))), "{other:?}");
    let group = Group::start(config(0)).await.expect("it starts again");
    assert_eq!(group.propose(&"b".into()).await, Ok(2));
    assert_eq!((names(&group), group.server_id()), (vec!["a".to_owned(), "b".to_owned()], server));
}

/// Its lock server may have lost the last ones of them in the same crash, and nobody else has them.
#[tokio::test]
async fn a_member_that_is_alone_knows_the_last_decisions_one_by_one_after_a_restart() {
    let world = World::new(45);
    let group = world.found([0]).await.remove(0);
    for n in 1..=600 {
        decide(&group, &format!("{n}")).await;
    }
    let is_made = |metrics: &openraft::RaftMetrics<_>| metrics.snapshot.is_some();
    group.0.raft.wait(None).metrics(is_made, "a snapshot").await.expect("it is made");
    world.kill(&group).await;
    let group = world.start(member(0), Start::Found(members([0]))).await;
    let snapshot = until(&group, |status| status.decided >= 600).await.decided;
    assert_eq!(snapshot, 600);
    let mut applied = group.applied(0);
    let first = applied.next().await.expect("it runs");
    assert!(matches!(first, Decided::State { index: 600, .. }), "{first:?}");
    applied.rewind();
    for n in 400..=600 {
        let mut step = applied.next().await.expect("it runs");
        while matches!(&step, Decided::Command { index, .. } if *index < n) {
            step = applied.next().await.expect("it runs");
        }
        assert_eq!(step, Decided::Command { index: n, command: n.to_string() });
    }
}
