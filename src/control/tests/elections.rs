//! A leader that is gone is replaced.

use super::{World, dc, decide, member, until};

/// The release of openraft before this one draws an election timeout once for each process, so that two
/// survivors with equal ones can split every vote.
#[tokio::test]
async fn two_survivors_of_three_elect_a_leader_every_time() {
    let world = World::new(11);
    let groups = world.found([0, 1, 2]).await;
    let mut term = 0;
    for round in 0..20 {
        let leader = until(&groups[round % 3], |status| status.leader.is_some()).await;
        let gone = leader.leader.expect("waited for").dc;
        assert!(leader.term >= term, "terms only grow");
        term = leader.term;
        world.isolate(gone);
        for id in (0..3).filter(|id| dc(*id) != gone) {
            let survivor = &groups[id as usize];
            until(survivor, |it| it.term > term && it.leader.is_some_and(|leader| leader.dc != gone)).await;
        }
        decide(&groups[(gone.index() + 1) % 3], "by two").await;
        world.heal(gone);
        until(&groups[gone.index()], |it| it.leader.is_some_and(|leader| leader != member(gone.get()))).await;
    }
}

#[tokio::test]
async fn a_member_that_was_cut_off_does_not_disturb_the_leader() {
    let world = World::new(12);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "a").await;
    let before = until(&groups[0], |status| status.leader.is_some()).await;
    let leader = before.leader.expect("waited for").dc;
    let lonely = (leader.index() + 1) % 3;
    world.isolate(dc(lonely as u8));
    // Long enough for elections: each of these is 8 election timeouts.
    for _ in 0..2 {
        groups[lonely].propose(&"in vain".into()).await.expect_err("it is alone");
    }
    world.heal(dc(lonely as u8));
    let decided = decide(&groups[leader.index()], "b").await;
    let after = until(&groups[lonely], |status| status.decided >= decided).await;
    assert_eq!(after.term, before.term, "it asks before it takes a new term");
}

#[tokio::test]
async fn the_only_voter_leads_although_nobody_answers_it() {
    let world = World::new(29);
    let groups = world.found([0]).await;
    decide(&groups[0], "a").await;
    tokio::time::sleep(4 * groups[0].0.timing.election()).await;
    assert_eq!(groups[0].status().leader, Some(member(0)));
    decide(&groups[0], "b").await;
}
