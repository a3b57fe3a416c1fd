//! The actor. Waits for links, the journal, the deadline and a requested stop; makes a step with the engine;
//! sleeps until their next deadline. Submitting threads handle calls (see `combiner.rs`); the actor handles
//! those that are left after each of its steps.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::checkpoints::Checkpoints;
use super::clock;
use super::combiner::Combiner;
use super::engine::Engine;
use super::inputs::{Inputs, Wake};
use super::ports::{Links, Machine, Store};
use super::start::StopError;
use crate::base::time::Instant;
use crate::replica::Event;

/// The actor's task.
pub(super) struct Actor<M: Machine, S: Store, L: Links> {
    pub combiner: Arc<Combiner<Engine<M, S, L>>>,
    pub inputs: Inputs<L::Event>,
    pub checkpoints: Checkpoints,
}

/// The result of a step: when to wake up, and if to continue.
struct Plan {
    until: Instant,
    flow: ControlFlow<()>,
}

impl<M: Machine, S: Store, L: Links> Actor<M, S, L> {
    /// Runs until the drain is over or the server has failed. When this returns, every caller has been told.
    pub(super) async fn run(mut self) -> Result<(), StopError> {
        self.drive().await;
        self.stop().await
    }

    async fn drive(&mut self) {
        let combiner = Arc::clone(&self.combiner);
        let mut wake = Wake::Notified;
        loop {
            let Some(plan) = combiner.with_engine(|engine| self.run_step(wake, engine)) else { return };
            if plan.flow.is_break() {
                return;
            }
            wake = self.inputs.next(plan.until, &mut self.checkpoints).await;
        }
    }

    fn run_step(&mut self, wake: Wake, engine: &mut Engine<M, S, L>) -> Result<Plan, StopError> {
        engine.now = clock::now();
        self.step(wake, engine)?;
        engine.publish_if_due()?;
        self.continue_checkpoints(engine)?;
        engine.outlets.sessions.wake();
        engine.sleeps_until = engine.sleep_until();
        engine.bound_links();
        Ok(Plan { until: engine.sleeps_until, flow: engine.publish_status() })
    }

    fn step(&mut self, wake: Wake, engine: &mut Engine<M, S, L>) -> Result<(), StopError> {
        match wake {
            Wake::Notified => {}
            Wake::Links => {
                while let Some(event) = self.inputs.next_link() {
                    engine.on_link(event)?;
                }
            }
            Wake::Journal => {
                if let Some(end) = engine.on_journal(self.inputs.journal_events())? {
                    self.checkpoints.done(end, engine.now.mono);
                }
            }
            Wake::Deadline => engine.on_deadline()?,
            Wake::Members(input) => engine.event(input.into())?,
            Wake::DrainRequested => engine.on_drain_requested()?,
            Wake::Encoded(position, state) => engine.outlets.store.checkpoint(position, state?),
        }
        Ok(())
    }

    fn continue_checkpoints(&mut self, engine: &mut Engine<M, S, L>) -> Result<(), StopError> {
        let figures = engine.outlets.store.figures();
        if self.checkpoints.are_due(&figures, engine.options.checkpoint_after, engine.now.mono) {
            self.checkpoints.wanted();
            engine.event(Event::Checkpoint)?;
        }
        if let Some(checkpoint) = engine.outlets.checkpoint.take() {
            self.checkpoints.start(checkpoint);
        }
        Ok(())
    }
}

impl<M: Machine, S: Store, L: Links> Drop for Actor<M, S, L> {
    /// Callers hold the combiner, too: if the actor has panicked, they would wait for the engine for ever.
    fn drop(&mut self) {
        self.combiner.abandon();
    }
}
