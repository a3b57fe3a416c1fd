//! Output commit: an output of a datacenter waits until everything that it depends on is durable in the
//! journal (`docs/algorithm/log.md#13-output-commit`).

use std::collections::BTreeMap;

use crate::replica::data::transactions::WaitingAnswer;
use crate::replica::effect::Effect;
use geolock_api::names::{DcId, DcSet, Position, RequestId};

/// An output that waits for the journal.
#[derive(Debug)]
pub(in crate::replica) enum Output {
    /// The reply to the acquire of this request. Its snapshot is taken when it is emitted.
    Grant(RequestId),
    /// The same reply once more.
    GrantAgain(RequestId),
    Effect(Effect),
    /// The reply to a commit that waited for a majority, with the number of its entry. It is completed when
    /// it is emitted.
    Committed(u64, Box<WaitingAnswer>),
    /// A heartbeat to this peer; it is built when it is emitted.
    Heartbeat(DcId),
    /// A piece of this peer's state is durable: the next one may be requested.
    AskState(DcId),
}

/// The waiting outputs, by the position that they wait for, then in the order of arrival.
#[derive(Debug, Default)]
pub(in crate::replica) struct OutputCommit {
    waiting: BTreeMap<(Position, u64), Output>,
    /// Peers for which a heartbeat waits. At most one per peer waits.
    heartbeats: DcSet,
    arrivals: u64,
    durable: Position,
}

impl OutputCommit {
    pub fn new(durable: Position) -> OutputCommit {
        OutputCommit { durable, ..OutputCommit::default() }
    }

    pub fn durable(&self) -> Position {
        self.durable
    }

    pub fn note_durable(&mut self, position: Position) {
        assert!(position >= self.durable, "what is durable stays durable");
        self.durable = position;
    }

    /// Returns true if an output is ready.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.waiting.first_key_value().is_some_and(|((position, _), _)| *position <= self.durable)
    }

    /// Returns true if an output can be emitted now: its position is durable, and no earlier output is ready
    /// and not yet emitted.
    #[inline]
    pub fn may_emit(&self, position: Position) -> bool {
        position <= self.durable && !self.has_ready()
    }

    /// Queues an output that may not be emitted yet.
    pub fn queue(&mut self, position: Position, output: Output) {
        assert!(!self.may_emit(position), "{output:?} is ready at {position:?}");
        let position = position.max(self.durable);
        self.arrivals += 1;
        if let Output::Heartbeat(peer) = output {
            assert!(!self.heartbeats.contains(peer), "one heartbeat to {peer} waits at a time");
            self.heartbeats.insert(peer);
        }
        self.waiting.insert((position, self.arrivals), output);
    }

    /// Returns the requests whose grants wait to be answered.
    pub fn grants(&self) -> impl Iterator<Item = RequestId> {
        self.waiting.values().filter_map(|output| match output {
            Output::Grant(id) => Some(*id),
            _ => None,
        })
    }

    /// Asserts that each output will be emitted, given the last record of the journal.
    pub fn check(&self, last: Position) {
        assert!(self.durable <= last, "{:?} is durable, {last:?} was the last record", self.durable);
        let longest = self.waiting.last_key_value().map_or(last, |((position, _), _)| *position);
        assert!(longest <= last, "an output waits for {longest:?}, {last:?} was the last record");
        let heartbeats = self.waiting.values().filter(|output| matches!(output, Output::Heartbeat(_)));
        assert_eq!(heartbeats.count(), self.heartbeats.len(), "the peers for which a heartbeat waits");
    }

    pub fn awaits_heartbeat(&self, peer: DcId) -> bool {
        self.heartbeats.contains(peer)
    }

    /// Removes and returns the next output that is ready.
    pub fn next(&mut self) -> Option<Output> {
        match self.waiting.first_key_value() {
            Some(((position, _), _)) if *position <= self.durable => {
                let output = self.waiting.pop_first().map(|(_, output)| output);
                if let Some(Output::Heartbeat(peer)) = output {
                    assert!(self.heartbeats.contains(peer), "a heartbeat to {peer} that waits is counted");
                    self.heartbeats.remove(peer);
                }
                output
            }
            _ => None,
        }
    }
}
