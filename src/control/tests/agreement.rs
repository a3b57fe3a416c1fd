//! All members have one list, whatever the network does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::super::{Decided, ProposeError};
use super::{Group, World, dc, decide, member, members, names, until};
use crate::base::rng::Rng;
use crate::control::Start;

#[tokio::test]
async fn a_single_member_founds_its_group_and_decides_at_once() {
    let world = World::new(1);
    let group = world.start(member(3), Start::Found(members([3]))).await;
    assert_eq!(group.propose(&"first".into()).await, Ok(1));
    assert_eq!(group.propose(&"second".into()).await, Ok(2));
    assert_eq!(group.read_index().await, Ok(2));
    let status = group.status();
    assert_eq!((status.leader, status.leads), (Some(member(3)), true));
    assert_eq!((status.voters, status.decided), (members([3]), 2));
}

/// Decides while two threads read the status without a pause.
#[tokio::main(worker_threads = 2)]
async fn decide_beside_readers() {
    let world = World::new(4);
    let group = world.start(member(3), Start::Found(members([3]))).await;
    decide(&group, "x").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let readers = [(); 2].map(|()| {
        let (group, is_over) = (group.clone(), Arc::clone(&is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(group.status().voters, members([3]));
            }
        })
    });
    for _ in 0..500 {
        decide(&group, "x").await;
    }
    is_over.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().expect("every status is right"));
}

/// Raft waits for readers of its state, and whoever comes after it waits for Raft.
#[test]
fn the_status_is_read_while_it_changes() {
    // Threads that wait for ever end with the process.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        decide_beside_readers();
        tell.send(()).ok();
    });
    told.recv_timeout(Duration::from_secs(60)).expect("it ends, and nobody waits for ever");
}

#[tokio::test]
async fn a_reader_gets_every_decision_in_order() {
    let world = World::new(2);
    let groups = world.found([0, 1, 2]).await;
    for name in ["a", "b", "c"] {
        decide(&groups[1], name).await;
    }
    for group in &groups {
        let mut applied = group.applied(1);
        let command = |index, name: &str| Some(Decided::Command { index, command: name.to_owned() });
        assert_eq!(applied.next().await, command(2, "b"));
        assert_eq!(applied.next().await, command(3, "c"));
    }
    let mut applied = groups[0].applied(3);
    groups[0].shutdown().await;
    assert_eq!(applied.next().await, None, "the group has shut down");
}

#[tokio::test]
async fn an_index_read_anywhere_has_what_was_decided_before() {
    let world = World::new(3);
    let groups = world.found([0, 1, 2]).await;
    for round in 0..10 {
        let decided = decide(&groups[round % 3], "x").await;
        for group in &groups {
            let read = group.read_index().await.expect("all are there");
            assert!(read >= decided && names(group).len() as u64 >= decided);
        }
    }
}

/// Proposes from one member until it was decided so often.
async fn propose_many(group: Group, count: u64) -> Vec<(u64, String)> {
    let mut decided = Vec::new();
    for n in 0..count {
        let name = format!("{}-{n}", group.0.caller.me);
        decided.push((decide(&group, &name).await, name));
    }
    decided
}

#[tokio::test]
async fn three_members_agree_while_links_break_and_messages_are_lost() {
    for seed in 0..4 {
        let world = World::new(seed);
        let groups = world.found([0, 1, 2]).await;
        *world.net.loses.lock().unwrap() = 20;
        let proposers: Vec<_> =
            groups.iter().map(|group| tokio::spawn(propose_many(group.clone(), 8))).collect();
        // Each cut lasts until the two others have decided something.
        let mut rng = Rng::new(seed, 1);
        for _ in 0..6 {
            let lonely = rng.index(3);
            world.isolate(dc(lonely as u8));
            let other = &groups[(lonely + 1) % 3];
            decide(other, "while cut").await;
            world.heal(dc(lonely as u8));
        }
        *world.net.loses.lock().unwrap() = 0;
        let mut acknowledged = Vec::new();
        for proposer in proposers {
            acknowledged.extend(proposer.await.expect("no proposer panics"));
        }
        let last = decide(&groups[0], "last").await;
        for group in &groups {
            until(group, |status| status.decided >= last).await;
        }
        let list = names(&groups[0]);
        for group in &groups[1..] {
            assert_eq!(names(group)[..last as usize], list[..last as usize]);
        }
        for (index, name) in &acknowledged {
            assert_eq!(&list[*index as usize - 1], name, "an acknowledged decision stays");
        }
        let numbers: BTreeSet<_> = acknowledged.iter().map(|(index, _)| index).collect();
        assert_eq!(numbers.len(), 24, "each has a number of its own");
    }
}

#[tokio::test]
async fn a_minority_decides_nothing_and_says_so() {
    let world = World::new(5);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "before").await;
    let leader = groups[0].status().leader.expect("it has just decided");
    world.isolate(leader.dc);
    let cut_off = &groups[leader.dc.index()];
    // At first the leader does not know that it is cut off.
    while cut_off.propose(&"in vain".into()).await != Err(ProposeError::NoLeader) {}
    assert_eq!(cut_off.status().decided, 1);
    assert_eq!(cut_off.status().leader, None);
    assert_eq!(cut_off.read_index().await, Err(ProposeError::NoLeader));
    let other = &groups[(leader.dc.index() + 1) % 3];
    let decided = decide(other, "by the majority").await;
    world.heal(leader.dc);
    until(cut_off, |status| status.decided >= decided).await;
    assert!(!names(cut_off).contains(&"in vain".to_owned()) || names(cut_off) == names(other));
    // A follower alone says so, too.
    let leader = until(cut_off, |status| status.leader.is_some()).await.leader.expect("there is one");
    let follower = groups.iter().find(|group| group.0.caller.me != leader).expect("two of three follow");
    world.isolate(follower.0.caller.me.dc);
    while follower.propose(&"in vain, too".into()).await != Err(ProposeError::NoLeader) {}
}
