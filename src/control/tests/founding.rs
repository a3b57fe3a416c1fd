//! Founding a group, once.

use openraft::errors::{InitializeError, RaftError};

use super::{World, decide, member, members, names, until};
use crate::control::{Founding, MemberId, MemberStep, ProposeError, Refusal, Start, StartError};

#[tokio::test]
async fn founders_with_different_lists_found_nothing() {
    let world = World::new(21);
    let first = world.start(member(0), Start::Found(members([0, 1]))).await;
    let second = world.start(member(1), Start::Found(members([0, 1, 2]))).await;
    until(&first, |status| status.founding == Founding::OtherFounders { at: member(1) }).await;
    until(&second, |status| status.founding == Founding::OtherFounders { at: member(0) }).await;
    assert_eq!(first.propose(&"a".into()).await, Err(ProposeError::NoLeader));
    assert_eq!((first.status().last_log, second.status().last_log), (None, None));
}

#[tokio::test]
async fn a_group_is_founded_once_all_founders_are_there() {
    let world = World::new(22);
    let first = world.start(member(0), Start::Found(members([0, 1]))).await;
    assert_eq!(first.propose(&"a".into()).await, Err(ProposeError::NoLeader));
    assert_eq!(first.status().founding, Founding::Waiting);
    let second = world.start(member(1), Start::Found(members([0, 1]))).await;
    decide(&second, "a").await;
    until(&first, |status| status.founding == Founding::Done && status.decided == 1).await;
}

#[tokio::test]
async fn a_second_founding_that_differs_is_refused_and_the_list_counts() {
    let world = World::new(23);
    let group = world.start(member(0), Start::Found(members([0]))).await;
    decide(&group, "a").await;
    let others = members([0, 1]).into_iter().map(|it| (it, Default::default()));
    let again = group.0.raft.initialize(others.collect::<std::collections::BTreeMap<_, _>>()).await;
    assert!(matches!(again, Err(RaftError::APIError(InitializeError::NotAllowed(_)))), "{again:?}");
    world.kill(&group).await;
    drop(group);
    // The configuration has other founders now.
    let group = world.start(member(0), Start::Found(members([0, 1]))).await;
    decide(&group, "b").await;
    assert_eq!(group.status().voters, members([0]));
    assert_eq!(names(&group), ["a", "b"]);
}

#[tokio::test]
async fn a_server_that_is_no_founder_of_a_founded_group_is_told_to_join() {
    let world = World::new(24);
    let group = world.start(member(0), Start::Found(members([0]))).await;
    decide(&group, "a").await;
    let late = world.start(member(1), Start::Found(members([0, 1]))).await;
    until(&late, |status| status.founding == Founding::NotAMember { at: member(0) }).await;
    assert_eq!(late.status().last_log, None);
}

#[tokio::test]
async fn a_member_that_follows_is_taken_in_under_the_name_of_its_directory() {
    let world = World::new(27);
    let [group, second]: [_; 2] = world.found([0, 1]).await.try_into().ok().expect("two of them");
    let follower = world.start(member(2), Start::Follow(members([0, 1]))).await;
    let other_list = world.start(member(3), Start::Follow(members([0, 4]))).await;
    until(&other_list, |status| matches!(status.founding, Founding::OtherFounders { .. })).await;
    decide(&group, "a").await;
    let server = group.directory_of(member(2)).await.expect("it is there");
    assert_eq!((server, follower.status().founding), (follower.server_id(), Founding::Waiting));
    while group.change(MemberStep::AddLearner { member: member(2), server }).await.is_err() {}
    until(&follower, |status| status.founding == Founding::Done && status.decided >= 1).await;
    assert_eq!(names(&follower), ["a"]);
    // Its directory is lost: it is told so, and takes no part.
    world.kill(&follower).await;
    drop(follower);
    assert_eq!(group.directory_of(member(2)).await, None, "it does not answer");
    world.disks.lock().unwrap().remove(&member(2));
    let lost = world.start(member(2), Start::Follow(members([0, 1]))).await;
    until(&lost, |status| status.founding == Founding::OtherDirectory { known: server }).await;
    drop(second);
}

#[tokio::test]
async fn impossible_founders_are_refused() {
    let world = World::new(25);
    let start = |founders| world.try_start(member(0), Start::Found(founders));
    assert!(matches!(start(members([1, 2])).await, Err(StartError::NotAFounder(_))));
    assert!(matches!(start(members(0..8)).await, Err(StartError::TooManyFounders(8))));
    let follows = world.try_start(member(0), Start::Follow(members([0, 1]))).await;
    assert!(matches!(follows, Err(StartError::Founder(_))));
}

#[tokio::test]
async fn a_member_with_a_lost_directory_takes_no_part_until_it_is_taken_in_anew() {
    let world = World::new(26);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "a").await;
    world.kill(&groups[2]).await;
    world.disks.lock().unwrap().remove(&member(2));
    let lost = world.start(member(2), Start::Found(members([0, 1, 2]))).await;
    until(&lost, |status| matches!(status.founding, Founding::OtherDirectory { .. })).await;
    // Its voice does not count: with it alone there is no majority.
    world.cut(member(0).dc, member(1).dc);
    while groups[0].propose(&"in vain".into()).await != Err(ProposeError::NoLeader) {}
    while groups[1].propose(&"in vain".into()).await != Err(ProposeError::NoLeader) {}
    assert_eq!(lost.status().last_log, None);
    world.heal(member(0).dc);
    // Nor is it taken in under its old name.
    decide(&groups[0], "b").await;
    let old_name = MemberStep::AddLearner { member: member(2), server: lost.server_id() };
    let refused = groups[0].change(old_name).await;
    assert_eq!(refused, Err(ProposeError::Refused(Refusal::OtherServer(member(2)))));
    world.kill(&lost).await;
    drop(lost);
    let anew = MemberId { generation: 1, ..member(2) };
    let back = world.start(anew, Start::Join).await;
    groups[0].change(MemberStep::Remove(member(2))).await.expect("two of three are there");
    let step = MemberStep::AddLearner { member: anew, server: back.server_id() };
    groups[0].change(step).await.expect("two of two are there");
    let last = decide(&groups[0], "c").await;
    until(&back, |status| status.decided >= last).await;
    while groups[0].change(MemberStep::Promote(anew)).await.is_err() {}
    assert!(groups[0].status().voters.contains(&anew));
    assert_eq!(names(&back), names(&groups[0]));
}
