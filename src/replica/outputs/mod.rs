//! Everything that leaves the machine: records, effects and counters, and the positions that they wait for
//! (`docs/algorithm/log.md#13-output-commit`).

pub(super) mod output_commit;

use std::collections::VecDeque;

use super::call::{CallId, Counts, Limit, Refusal, Reply};
use super::effect::{Effect, Report};
use super::message::Message;
use super::record::Record;
use crate::base::bugs::{Bug, Bugs};
use crate::causal_log::Log;
use crate::replica::outputs::output_commit::{Output, OutputCommit};
use geolock_api::names::{DcId, Position};

/// The outputs of a datacenter.
#[derive(Default)]
pub(super) struct Outputs {
    pub effects: VecDeque<Effect>,
    pub output_commit: OutputCommit,
    /// The position of the last record that was emitted to the journal.
    pub position: Position,
    /// The journal's last announced durable position; steps process it in portions.
    pub durable_to: Position,
    /// Position of the last end of a lease that, since the restart, never said which locks it held. Any grant
    /// may conflict with it, so every grant waits for it.
    pub unaccounted_end: Position,
    /// Position of the last record that this disk had lost and regained, mostly own entries. Any lock may
    /// have been used under it, so every grant waits for it
    /// (`docs/algorithm/recovery.md#5-regained-entries`).
    pub regained: Position,
    /// Entries may have become sendable.
    pub pump: bool,
    /// The log may have more entries to truncate than one step does.
    pub truncates: bool,
    pub counts: Counts,
    pub bugs: Bugs,
}

impl Outputs {
    pub fn new(bugs: Bugs) -> Outputs {
        Outputs { bugs, ..Outputs::default() }
    }

    /// Emits a record to the journal. Returns its position.
    pub fn persist(&mut self, record: Record) -> Position {
        self.position.0 += 1;
        let durable = self.output_commit.durable();
        assert!(self.position > durable, "record {:?} is new, and {durable:?} is durable", self.position);
        self.effects.push_back(Effect::Persist { position: self.position, record });
        if self.bugs.has(Bug::SendBeforeDurable) {
            self.output_commit.note_durable(self.position);
        }
        self.position
    }

    /// Emits an effect once the journal is durable up to `position`
    /// (`docs/algorithm/log.md#13-output-commit`).
    pub fn emit_when_durable(&mut self, position: Position, effect: Effect) {
        assert!(position <= self.position, "{position:?} will be recorded, {:?} was the last", self.position);
        if self.output_commit.may_emit(position) {
            self.effects.push_back(effect);
        } else {
            self.output_commit.queue(position, Output::Effect(effect));
        }
    }

    pub fn send(&mut self, log: &mut Log, peer: DcId, message: Message) {
        debug_assert!(log.peer(peer).is_linked(), "a message goes to {peer}, which has no link");
        log.peer_mut(peer).note_message();
        self.effects.push_back(Effect::Send { peer, message });
    }

    /// Sends a message on the link to a witness, or of one: no log knows of it.
    pub fn send_beside_log(&mut self, peer: DcId, message: Message) {
        self.effects.push_back(Effect::Send { peer, message });
    }

    pub fn report(&mut self, report: Report) {
        self.effects.push_back(Effect::Report(report));
    }

    pub fn reply(&mut self, call: CallId, reply: Reply) {
        self.effects.push_back(Effect::Reply { call, reply });
    }

    pub fn refuse(&mut self, call: CallId, refusal: Refusal) {
        self.counts.refusals += 1;
        if let Refusal::ResourceExhausted { limit: Limit::Load, .. } = refusal {
            self.counts.calls_shed += 1;
        }
        self.reply(call, Reply::Refused(refusal));
    }

    /// Returns true if the journal has more durable records, or the output commit more ready outputs, than
    /// earlier steps have processed.
    #[inline]
    pub fn has_more_durable(&self) -> bool {
        self.durable_to > self.output_commit.durable() || self.output_commit.has_ready()
    }

    /// Asserts that nothing waits for a record that was never made.
    pub fn check(&self) {
        let last = self.position;
        self.output_commit.check(last);
        assert!(self.durable_to <= last, "{:?} is durable, {last:?} was the last", self.durable_to);
        assert!(self.regained <= last, "{:?} was regained, {last:?} was the last", self.regained);
        let ended = self.unaccounted_end;
        assert!(ended <= last, "a lease ended at {ended:?}, {last:?} was the last");
    }

    /// Returns true if regained entries are not on disk again: no snapshot is complete without them.
    pub fn is_regaining(&self) -> bool {
        self.regained > self.output_commit.durable()
    }
}
