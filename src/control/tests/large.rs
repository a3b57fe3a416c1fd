//! Lists whose state is larger than a frame, and one of which no snapshot can be made.

use super::{Group, World, decide, member, members, names, until};
use crate::control::Start;

/// Decides so many commands, many at a time, each with `name` and its number.
async fn decide_many(group: &Group, name: &str, count: usize) {
    for batch in (0..count).collect::<Vec<_>>().chunks(64) {
        let proposals = batch.iter().map(|n| {
            let (group, name) = (group.clone(), format!("{name}{n}"));
            tokio::spawn(async move {
                while group.propose(&name).await.is_err() {
                    assert_eq!(group.status().failed, None);
                }
            })
        });
        for proposal in proposals.collect::<Vec<_>>() {
            proposal.await.expect("it does not panic");
        }
    }
}

/// Waits until the log up to there is cut: a member that lacks entries before needs a snapshot.
async fn cut_up_to(group: &Group, index: u64) {
    let is_cut = |metrics: &openraft::RaftMetrics<_>| metrics.purged.is_some_and(|at| at.index >= index);
    group.0.raft.wait(None).metrics(is_cut, "a cut log").await.expect("it is cut");
}

#[tokio::test]
async fn a_state_of_many_frames_survives_restarts_and_reaches_a_member_that_was_away() {
    let world = World::new(61);
    let mut groups = world.found([0, 1, 2]).await;
    let away = member(2);
    world.isolate(away.dc);
    // As 256 rules of the longest prefixes.
    decide_many(&groups[0], &"p".repeat(1_021), 256).await;
    decide_many(&groups[0], "short ", 1_100).await;
    for group in &groups[..2] {
        cut_up_to(group, 256).await;
    }
    for id in [0, 1] {
        world.kill(&groups[id]).await;
        world.isolate(away.dc);
        groups[id] = world.start(member(id as u8), Start::Found(members([0, 1, 2]))).await;
    }
    assert!(decide(&groups[0], "after the restart").await > 1_356);
    assert!(groups[2].status().decided < 256, "it was away");

    world.heal(away.dc);
    let decided = decide(&groups[1], "with all").await;
    for group in &groups {
        let status = until(group, |status| status.decided >= decided).await;
        assert_eq!(status.failed, None);
        assert_eq!(names(group), names(&groups[0]));
    }
    // The state is on its disk.
    world.kill(&groups[2]).await;
    groups[2] = world.start(away, Start::Join).await;
    let decided = decide(&groups[2], "by the one that was away").await;
    until(&groups[2], |status| status.decided >= decided).await;
    assert_eq!(names(&groups[2]), names(&groups[0]));
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_made_stops_nothing() {
    let world = World::new(62);
    let mut groups = world.found([0, 1, 2]).await;
    // More than a snapshot takes.
    decide_many(&groups[0], &"x".repeat(15 << 10), 72).await;
    decide_many(&groups[1], "short ", 600).await;
    let decided = decide(&groups[2], "still").await;
    for group in &groups {
        let status = until(group, |status| status.decided >= decided).await;
        assert_eq!(status.failed, None);
    }
    for (id, group) in groups.iter_mut().enumerate() {
        world.kill(group).await;
        *group = world.start(member(id as u8), Start::Found(members([0, 1, 2]))).await;
    }
    let decided = decide(&groups[0], "and after a restart").await;
    until(&groups[0], |status| status.decided >= decided).await;
    assert_eq!(names(&groups[0]).len() as u64, decided);
}
