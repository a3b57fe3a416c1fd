//! Output commit: what leaves a datacenter waits until the journal holds what it depends on.

use std::collections::BTreeMap;

use crate::names::{DcId, DcSet, Position, RequestId};
use crate::replica::effect::Effect;

/// Something that waits for the journal.
#[derive(Debug)]
pub(super) enum Gated {
    /// The answer to the acquire of this request; its snapshot is taken when it leaves.
    Grant(RequestId),
    /// The same, once more.
    GrantAgain(RequestId),
    Effect(Effect),
    /// A heartbeat to this peer, made anew when it leaves.
    Heartbeat(DcId),
    /// A piece of this peer's state is durable: another may come.
    AskState(DcId),
}

/// What waits, in the order of the positions waited for, then in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Gate {
    waiting: BTreeMap<(Position, u64), Gated>,
    /// Peers for whom a heartbeat waits: one is enough, however long.
    heartbeats: DcSet,
    arrivals: u64,
    durable: Position,
}

impl Gate {
    pub fn new(durable: Position) -> Gate {
        Gate { durable, ..Gate::default() }
    }

    pub fn durable(&self) -> Position {
        self.durable
    }

    pub fn note_durable(&mut self, position: Position) {
        assert!(position >= self.durable, "what is durable stays durable");
        self.durable = position;
    }

    /// Whether some need not wait any more.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.waiting.first_key_value().is_some_and(|((position, _), _)| *position <= self.durable)
    }

    /// Answers it back if it need not wait, neither for the journal nor for those whose turn has come.
    pub fn pass(&mut self, position: Position, gated: Gated) -> Option<Gated> {
        if position <= self.durable && !self.has_ready() {
            return Some(gated);
        }
        let position = position.max(self.durable);
        self.arrivals += 1;
        if let Gated::Heartbeat(peer) = gated {
            self.heartbeats.insert(peer);
        }
        self.waiting.insert((position, self.arrivals), gated);
        None
    }

    pub fn awaits_heartbeat(&self, peer: DcId) -> bool {
        self.heartbeats.contains(peer)
    }

    /// The next one that need not wait any more.
    pub fn next(&mut self) -> Option<Gated> {
        match self.waiting.first_key_value() {
            Some(((position, _), _)) if *position <= self.durable => {
                let gated = self.waiting.pop_first().map(|(_, gated)| gated);
                if let Some(Gated::Heartbeat(peer)) = gated {
                    self.heartbeats.remove(peer);
                }
                gated
            }
            _ => None,
        }
    }
}
