//! Durable upper bounds of what is handed out: clock readings and request numbers.
//!
//! Neither is journaled one by one. A record says in advance how far they may go, so that a restart starts
//! above everything that was handed out before: never more than [`CLOCK_BOUND`](super::CLOCK_BOUND) ahead.

use std::collections::VecDeque;

use crate::names::Position;
use crate::time::Timestamp;

/// Fewer numbers than this are handed out in a millisecond, on average since the epoch.
pub(super) const NUMBERS_PER_MILLI: u64 = 1 << 10;
/// How many request numbers one record sets aside: 64 ms of them, so that even a server that restarts again and again does
/// not get ahead of [`NUMBERS_PER_MILLI`].
pub(super) const NUMBERS: u64 = 1 << 16;

/// A bound: readings up to `clock` and numbers below `n` may be handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bound {
    pub clock: Timestamp,
    pub n: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    durable: Bound,
    /// That of the clock when this run began. A run that the disk does not know of may have handed out more.
    before: Timestamp,
    /// Recorded and not durable yet, in order.
    pending: VecDeque<(Position, Bound)>,
}

impl Bounds {
    pub fn new(durable: Bound) -> Bounds {
        Bounds { durable, before: durable.clock, pending: VecDeque::new() }
    }

    /// The latest that is recorded.
    pub fn recorded(&self) -> Bound {
        self.pending.back().map_or(self.durable, |(_, bound)| *bound)
    }

    pub fn record(&mut self, position: Position, bound: Bound) {
        self.pending.push_back((position, bound));
    }

    pub fn note_durable(&mut self, position: Position) {
        while let Some((_, bound)) = self.pending.pop_front_if(|(at, _)| *at <= position) {
            self.durable = bound;
        }
    }

    /// The bound of the clock on disk, if this run has set it.
    pub fn own_clock(&self) -> Option<Timestamp> {
        Some(self.durable.clock).filter(|clock| *clock > self.before)
    }

    /// Where the journal allows to hand out more than now.
    pub fn next_position(&self) -> Position {
        self.pending.front().map_or(Position::default(), |(position, _)| *position)
    }

    /// Where the journal allows to hand these out; [`Position::default`] if it does already.
    pub fn position_of(&self, clock: Timestamp, n: u64) -> Position {
        let allows = |bound: &Bound| clock <= bound.clock && n < bound.n;
        if allows(&self.durable) {
            return Position::default();
        }
        let pending = self.pending.iter().find(|(_, bound)| allows(bound));
        pending.expect("nothing is handed out above what is recorded").0
    }
}
