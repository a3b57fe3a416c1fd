//! Schedules that are too rare to be drawn.

use geolock_api::names::DcSet;

use crate::bugs::Bug;
use crate::checks::{Broken, Kind};
use crate::decisions::{Command, Proposal};
use crate::parts::Move;
use crate::slots::slot;
use crate::state::{Op, Record};
use crate::world::World;

impl World {
    /// Everything that was proposed is decided.
    fn decide_all(&mut self) -> Result<(), Broken> {
        while let Some(proposal) = self.proposals.pop() {
            self.decide(&proposal)?;
        }
        Ok(())
    }

    /// Returns true if the command is decided, checked against the last epoch.
    fn command(&mut self, command: Command) -> Result<bool, Broken> {
        let (checked, before) = (self.latest().epoch, self.latest().number);
        self.decide(&Proposal { command, checked })?;
        Ok(self.latest().number > before)
    }

    fn cut_link(&mut self, a: usize, b: usize) {
        self.broken_links[slot(a)].insert(slot(b));
        self.broken_links[slot(b)].insert(slot(a));
    }
}

/// A joiner and its sponsor are cut off and evicted before the joiner has a state. The same server asks to be
/// admitted again, without knowing of its eviction.
fn evicted_before_it_had_a_state(bug: Option<Bug>) -> Result<(), Broken> {
    let founders = [slot(0), slot(1)].into_iter().collect();
    let mut world = World::new(1, founders, bug);
    let server = world.now(slot(2)).server;
    assert!(world.command(Command::Admit { slot: slot(2), server, sponsor: slot(1) })?);
    for site in [0, 1, 0, 1] {
        world.catch_up(slot(site))?;
    }
    world.journal(slot(2), Record::Learn(1))?;
    world.cut_link(0, 1);
    world.cut_link(0, 2);
    let ending = [slot(1), slot(2)].into_iter().collect();
    assert!(world.command(Command::Begin { ending, again: DcSet::EMPTY })?);
    while !world.latest().is_over(slot(1), 1) {
        world.catch_up(slot(0))?;
        world.decide_all()?;
    }
    world.catch_up(slot(0))?;
    let again = world.command(Command::Admit { slot: slot(2), server, sponsor: slot(0) })?;
    assert_eq!(again, bug == Some(Bug::ServerAdmittedTwice));
    // The evicted sponsor knows no more than the server that it gives its state to.
    assert!(world.can_take_state(slot(2), slot(1)));
    world.take_state(slot(2), slot(1))?;
    world.heal()
}

#[test]
fn a_server_is_admitted_once() {
    evicted_before_it_had_a_state(None).expect("it comes back with another id");
    let broken = evicted_before_it_had_a_state(Some(Bug::ServerAdmittedTwice));
    assert_eq!(broken.expect_err("the admitted server does not exist any more").kind, Kind::Stuck);
}

/// A leaving member has an entry of another one within a state only, and has left in an epoch that a third
/// member is past when the second loses its disk.
fn only_a_leaver_has_it(bug: Option<Bug>) -> Result<(), Broken> {
    let [leaver, lost, lagging, joiner] = [0, 1, 2, 3].map(slot);
    let mut world = World::new(1, [leaver, lost, lagging].into_iter().collect(), bug);
    world.cut_link(0, 2);
    world.cut_link(1, 2);
    let part_move = Move { lock: 0, part: lost, to: lagging, version: 1 };
    world.append(lost, vec![Op::Transfer(vec![part_move])])?;
    world.sync(lost)?;
    world.take_state(leaver, lost)?;
    assert!(world.command(Command::Leaving { slot: leaver, generation: 1 })?);
    world.journal(leaver, Record::Learn(1))?;
    world.append(leaver, vec![Op::Leave])?;
    world.sync(leaver)?;
    let server = world.now(joiner).server;
    assert!(world.command(Command::Admit { slot: joiner, server, sponsor: lagging })?);
    world.journal(lagging, Record::Learn(2))?;
    world.catch_up(lagging)?;
    assert_eq!((world.now(lagging).entered, world.now(leaver).entered), (2, 0));
    world.lose_disk(lost);
    world.heal()
}

#[test]
fn a_state_of_a_member_that_left_is_taken() {
    only_a_leaver_has_it(None).expect("the lagging member takes the state of an earlier epoch");
    let broken = only_a_leaver_has_it(Some(Bug::NoStateOfLeaver));
    assert_eq!(broken.expect_err("nobody else has the entry").kind, Kind::Stuck);
}
