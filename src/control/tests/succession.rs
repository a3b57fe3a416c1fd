//! A new group takes the place of one whose majority is gone.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::group::ControlFile;
use super::{Group, Names, World, dc, decide, member, members, names, until};
use crate::control::{ServerId, Start, Succession};

async fn start(world: &World, dir: &Path, id: u8, start: Start) -> Group {
    let config = super::ControlConfig { dir: dir.join(id.to_string()), ..world.config(member(id), start) };
    let group = Group::start(config).await.expect("it starts");
    world.net.groups.lock().unwrap().insert(dc(id), group.clone());
    group
}

async fn stop(world: &World, group: Group) {
    world.net.groups.lock().unwrap().remove(&group.0.caller.me.dc);
    group.shutdown().await;
}

fn succession(state: &[&str]) -> Succession<Names> {
    let server = |id: u8| (member(id), ServerId::from_raw(900 + u128::from(id)));
    Succession {
        members: BTreeMap::from([0, 1, 3].map(server)),
        voters: members([0, 1]),
        decided: state.len() as u64,
        state: Names(state.iter().map(ToString::to_string).collect()),
        former: "control-0.redb".into(),
    }
}

#[tokio::test]
async fn survivors_begin_a_new_group_without_the_others() {
    let (world, dir) = (World::new(71), tempfile::tempdir().expect("a directory"));
    let mut groups = Vec::new();
    for id in 0..4 {
        groups.push(start(&world, dir.path(), id, Start::Found(members(0..4))).await);
    }
    decide(&groups[3], "a").await;
    decide(&groups[1], "b").await;
    for group in groups.drain(..) {
        stop(&world, group).await;
    }

    let succession = succession(&["a", "recovered"]);
    for id in [0, 1, 3] {
        let of = dir.path().join(id.to_string());
        // A crash in the middle leaves a piece of a file; the next start does it again.
        std::fs::write(of.join("control.redb.next"), b"a piece").expect("there is room");
        succession.begin(&of, member(id)).expect("it begins");
        let file = succession.begin(&of, member(id)).expect("once more");
        assert_eq!(file.saved_state::<Names>().expect("it has one"), succession.state);
        assert!(of.join("control-0.redb").exists());
    }
    assert!(succession.begin(&dir.path().join("2"), member(2)).is_err(), "it is no survivor");
    for id in [0, 1, 3] {
        groups.push(start(&world, dir.path(), id, Start::Join).await);
    }
    // The lost one is back, with the file of the old group.
    let lost = start(&world, dir.path(), 2, Start::Found(members(0..4))).await;
    for group in &groups {
        let status = until(group, |status| status.leader.is_some()).await;
        assert_eq!((status.voters, status.learners), (members([0, 1]), members([3])));
    }
    assert_eq!(decide(&groups[0], "c").await, 3);
    groups[2].read_index().await.expect("there is a majority");
    assert_eq!(names(&groups[2]), ["a", "recovered", "c"]);
    assert!(lost.status().leader.is_none(), "no survivor votes in the old group: {:?}", lost.status());
    assert!(!names(&lost).contains(&"recovered".to_owned()));

    // It is still the new group after a restart.
    for group in groups.drain(..) {
        stop(&world, group).await;
    }
    let file = ControlFile::open(&dir.path().join("1"), member(1)).expect("it is not in use");
    assert_eq!(file.saved_state::<Names>().expect("it has one"), succession.state);
    drop(file);
    for id in [0, 1] {
        groups.push(start(&world, dir.path(), id, Start::Found(members(0..4))).await);
    }
    assert_eq!(decide(&groups[1], "d").await, 4);
    until(&groups[1], |status| status.decided >= 4).await;
    assert_eq!(names(&groups[1]), ["a", "recovered", "c", "d"]);
}
