//! Members that come and go.

use std::time::Duration;

use super::{World, decide, member, members, names, until};
use crate::control::{Decided, MemberStep, ProposeError, Refusal, Start};

#[tokio::test]
async fn a_group_grows_from_one_to_three_and_shrinks_again() {
    let world = World::new(31);
    let first = world.start(member(0), Start::Found(members([0]))).await;
    decide(&first, "alone").await;
    let mut groups = vec![first];
    for id in [1, 2] {
        let new = world.start(member(id), Start::Join).await;
        let too_early = groups[0].change(MemberStep::Promote(member(id))).await;
        assert_eq!(too_early, Err(ProposeError::Refused(Refusal::NotALearner(member(id)))));
        let step = MemberStep::AddLearner { member: member(id), server: new.server_id() };
        groups[0].change(step).await.expect("a majority is there");
        groups[0].change(step).await.expect("it is safe to repeat");
        let decided = decide(&groups[0], "with a learner").await;
        let status = until(&new, |status| status.decided >= decided).await;
        assert!(status.learners.contains(&member(id)));
        // The leader learns a moment later that the learner has caught up.
        while groups[0].change(MemberStep::Promote(member(id))).await.is_err() {}
        groups[0].change(MemberStep::Promote(member(id))).await.expect("it is safe to repeat");
        groups.push(new);
    }
    // The new ones carry it without the founder, and let it go.
    world.isolate(member(0).dc);
    decide(&groups[1], "by the new ones").await;
    let voters = until(&groups[1], |status| status.leader.is_some()).await.voters;
    assert_eq!(voters, members([0, 1, 2]));
    groups[2].change(MemberStep::Remove(member(0))).await.expect("two of three are there");
    groups[2].change(MemberStep::Remove(member(0))).await.expect("it is safe to repeat");
    assert_eq!(groups[2].read_index().await, Ok(names(&groups[2]).len() as u64));
    until(&groups[1], |status| status.voters == members([1, 2])).await;
    // A witness is a voter like any other; back to one.
    groups[1].change(MemberStep::Demote(member(2))).await.expect("two of two are there");
    until(&groups[1], |status| status.learners == members([2])).await;
    let last = groups[1].change(MemberStep::Remove(member(1))).await;
    assert_eq!(last, Err(ProposeError::Refused(Refusal::LastVoter)));
    decide(&groups[1], "alone again").await;
}

#[tokio::test]
async fn a_leader_that_is_removed_lets_go() {
    let world = World::new(32);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "a").await;
    let leader = until(&groups[0], |status| status.leader.is_some()).await.leader.expect("waited for");
    let other = &groups[(leader.dc.index() + 1) % 3];
    other.change(MemberStep::Remove(leader)).await.expect("all are there");
    until(other, |status| status.leader.is_some_and(|new| new != leader)).await;
    decide(other, "b").await;
    assert!(!other.status().voters.contains(&leader));
}

#[tokio::test]
async fn a_member_that_was_away_for_long_gets_the_state() {
    let world = World::new(33);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "seen by all").await;
    until(&groups[2], |status| status.decided == 1).await;
    world.isolate(member(2).dc);
    for n in 0..5 {
        decide(&groups[0], &format!("missed {n}")).await;
    }
    for group in &groups[..2] {
        let last = until(group, |status| status.decided >= 6).await.last_log.expect("it has a log");
        group.0.raft.trigger().snapshot().await.expect("it runs");
        let raft = &group.0.raft;
        let limit = Some(Duration::from_secs(60));
        let made = |metrics: &openraft::RaftMetrics<_>| metrics.snapshot.is_some_and(|at| at.index >= 5);
        raft.wait(limit).metrics(made, "a snapshot").await.expect("it is made");
        raft.trigger().purge_log(last - 1).await.expect("it runs");
        let cut = |metrics: &openraft::RaftMetrics<_>| metrics.purged.is_some();
        raft.wait(limit).metrics(cut, "a cut log").await.expect("it is cut");
    }
    let mut applied = groups[2].applied(1);
    world.heal(member(2).dc);
    let decided = decide(&groups[0], "new").await;
    until(&groups[2], |status| status.decided >= decided).await;
    assert_eq!(names(&groups[2]), names(&groups[0]));
    let step = applied.next().await.expect("it runs");
    assert!(matches!(&step, Decided::State { index, .. } if *index >= 6), "{step:?}");
    // Its own snapshot carries it through a restart.
    world.kill(&groups[2]).await;
    let again = world.start(member(2), Start::Join).await;
    let decided = decide(&again, "newer").await;
    until(&again, |status| status.decided >= decided).await;
    assert_eq!(names(&again), names(&groups[0]));
}

#[tokio::test]
async fn a_promotion_that_a_lost_leader_has_begun_is_ended_by_repeating_it() {
    let world = World::new(34);
    let mut groups = world.found(0..5).await;
    groups.push(world.start(member(5), Start::Join).await);
    decide(&groups[0], "a").await;
    let add = MemberStep::AddLearner { member: member(5), server: groups[5].server_id() };
    while groups[0].change(add).await.is_err() {}
    let decided = decide(&groups[0], "with a learner").await;
    until(&groups[5], |status| status.decided >= decided).await;
    // Only one voter and the learner get the first of the two entries; then their leader is gone.
    let leader = until(&groups[0], |status| status.leader.is_some()).await.leader.expect("waited for").dc;
    let next = (leader.index() + 1) % 5;
    groups.iter().enumerate().filter(|(id, _)| *id != next).for_each(|(_, group)| {
        group.begin_no_elections();
    });
    let others = (0..5).filter(|id| *id != next && *id != leader.index());
    others.clone().for_each(|id| world.cut(leader, member(id as u8).dc));
    let begun = groups[leader.index()].clone();
    let begun = tokio::spawn(async move { begun.change(MemberStep::Promote(member(5))).await });
    until(&groups[next], |status| status.voters != status.settled_voters).await;
    world.isolate(leader);
    let status = until(&groups[next], |status| status.leads && status.leader.is_some()).await;
    assert_eq!((status.voters.len(), status.settled_voters.len()), (6, 5), "both sets have to agree");
    while groups[next].change(MemberStep::Promote(member(5))).await.is_err() {}
    until(&groups[5], |status| status.settled_voters == members(0..6)).await;
    begun.abort();
}
