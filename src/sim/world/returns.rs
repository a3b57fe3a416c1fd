//! Members that have ended and come back: a server with an empty disk and the next generation of the slot.

use std::time::Duration;

use crate::membership::{Generation, ServerId};
use crate::sim::world::{Action, Node, Phase as RunPhase, World};
use geolock_api::names::DcId;

/// Most generations of a slot in a run.
const MOST_GENERATIONS: u16 = 4;

/// Returns the id of the server that has this generation of a slot.
pub(super) fn server(dc: DcId, generation: Generation) -> ServerId {
    let mut id = [dc.get() + 1; 16];
    id[15] = id[15].wrapping_add(16 * generation.0 as u8);
    ServerId(id)
}

impl World {
    /// A member has ended, and its server is stopped: perhaps another one gets its slot.
    pub(super) fn plan_return(&mut self, dc: DcId) {
        let generation = self.control.config.slots().next_generation(dc);
        let may = generation.is_some_and(|generation| generation.0 < MOST_GENERATIONS);
        if self.plan.returns && may && self.phase == RunPhase::Trouble {
            let after = self.chance.members.duration(Duration::from_millis(1), Duration::from_secs(2));
            self.queue.push(self.now + after, Action::Return { node: dc });
        }
    }

    /// A server with an empty disk starts in order to join with the slot of one that has ended.
    pub(super) fn on_return(&mut self, dc: DcId) {
        let next = self.control.config.slots().next_generation(dc);
        let Some(generation) = next.filter(|_| self.node(dc).is_gone && self.phase == RunPhase::Trouble)
        else {
            return;
        };
        self.nodes[dc.index()] = Node::returning(&self.plan, server(dc, generation), self.node(dc));
        let control = &mut self.control;
        control.joining.insert(dc);
        for set in
            [&mut control.lost, &mut control.evicted, &mut control.without_clients, &mut control.isolated]
        {
            set.remove(dc);
        }
        control.cut_off.remove(&dc);
        control.lost_at.remove(&dc);
        self.trace.line(self.now, dc, || format!("returns with generation {generation}"));
        self.tally.returns += 1;
        self.start_node(dc);
        self.queue.push(self.now, Action::Join { node: dc });
        // It may be lost again, or leave.
        if self.chance.members.percent(50) {
            let after = self.chance.members.duration(Duration::ZERO, self.plan.trouble / 3);
            let lost = self.plan.losses > 0 && self.chance.members.percent(70);
            let again = if lost { Action::Lose { node: dc } } else { Action::Leave { node: dc } };
            self.queue.push(self.now + after, again);
        }
    }
}
