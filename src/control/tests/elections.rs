//! A leader that is gone is replaced.

use std::time::Duration;

use super::{Group, Timing, World, dc, decide, member, members, until};

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
    // Long enough for elections: this is 16 election timeouts.
    groups[lonely].propose(&"in vain".into()).await.expect_err("it is alone");
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
    tokio::time::sleep(4 * groups[0].0.timing().election()).await;
    assert_eq!(groups[0].status().leader, Some(member(0)));
    decide(&groups[0], "b").await;
}

/// A leader that is gone is replaced after some of the round trips that the links measure, also those of
/// before it was gone. The times of the start would take hours.
#[tokio::test]
async fn elections_follow_the_round_trips_that_are_measured() {
    let world = World::new(31);
    let groups = world.found([0, 1, 2]).await;
    let never = Timing::with_election(Duration::from_secs(3_600));
    for group in &groups {
        group.0.caller.timing.send_replace(never);
    }
    *world.net.round_trip.lock().unwrap() = Some(Duration::from_millis(3));
    for group in &groups {
        let mut timing = group.0.caller.timing.subscribe();
        let measured = timing.wait_for(|timing| *timing == Timing::for_round_trip(Duration::from_millis(3)));
        drop(measured.await.expect("it runs"));
    }
    let gone = until(&groups[0], |status| status.leader.is_some()).await.leader.expect("waited for").dc;
    world.isolate(gone);
    for group in groups.iter().filter(|group| group.0.caller.me.dc != gone) {
        until(group, |it| it.leader.is_some_and(|leader| leader.dc != gone)).await;
    }
    // Nobody has a link: what was measured before counts.
    *world.net.round_trip.lock().unwrap() = None;
    world.heal(gone);
    until(&groups[gone.index()], |it| it.leader.is_some_and(|leader| leader.dc != gone)).await;
    assert_eq!(groups[0].0.timing(), Timing::for_round_trip(Duration::from_millis(3)));
}

/// No timeout elects anybody here: who leads was chosen.
#[tokio::test]
async fn a_leader_hands_over_to_the_one_that_it_chooses() {
    let world = World::new(30);
    let groups = world.found(0..5).await;
    for round in 0..10 {
        groups.iter().for_each(Group::begin_no_elections);
        decide(&groups[round % 5], "by the leader of the round").await;
        let leader = until(&groups[0], |status| status.leader.is_some()).await.leader.expect("waited for");
        let next = member(((leader.dc.index() + 1 + round % 4) % 5) as u8);
        let nobody = groups[next.dc.index()].hand_over(&members([leader.dc.get()])).await;
        assert_eq!(nobody, None, "it does not lead");
        let handed = groups[leader.dc.index()].hand_over(&members([next.dc.get(), leader.dc.get()])).await;
        assert_eq!(handed, Some(next));
        for group in &groups {
            until(group, |status| status.leader == Some(next)).await;
        }
    }
}

/// The others would begin the next election before they hear of one that begins its heartbeats late.
#[tokio::test]
async fn an_elected_leader_sends_heartbeats_at_once() {
    let world = World::new(32);
    let groups = world.found([0, 1, 2]).await;
    for round in 0..10 {
        decide(&groups[round % 3], "by the leader of the round").await;
        let leader = until(&groups[0], |status| status.leader.is_some()).await.leader.expect("waited for");
        let next = (leader.dc.index() + 1) % 3;
        groups[leader.dc.index()]
            .hand_over(&members([next as u8]))
            .await
            .expect("it leads and that one votes");
        let term = until(&groups[next], |status| status.leads).await.term;
        let follower = &groups[(next + 1) % 3].0;
        let mut contact = follower.contact.subscribe();
        for _ in 0..12 {
            contact.changed().await.expect("it runs");
        }
        assert_eq!(follower.status().term, term, "in round {round}");
    }
}
