//! The actor. Waits for links, the journal, the deadline and a requested stop; makes a step with the works;
//! sleeps until their next deadline. Submitting threads handle calls (see `workshop.rs`); the actor handles
//! those that are left after each of its steps.

use std::sync::Arc;

use super::checkpoints::Checkpoints;
use super::clock;
use super::inlets::{Inlets, Wake};
use super::ports::{Links, Machine, Store};
use super::start::StopError;
use super::works::{Go, Works};
use super::workshop::Workshop;
use crate::replica::Event;
use crate::time::Instant;

/// The actor's task.
pub(super) struct Actor<M, S, L: Links> {
    pub workshop: Arc<Workshop<M, S, L>>,
    pub inlets: Inlets<L::Event>,
    pub checkpoints: Checkpoints,
}

/// The result of a step: when to wake up, and if to continue.
struct Plan {
    until: Instant,
    go: Go,
}

impl<M: Machine, S: Store, L: Links> Actor<M, S, L> {
    /// Runs until the drain is over or the server has failed. When this returns, every caller has been told.
    pub(super) async fn run(mut self) -> Result<(), StopError> {
        let driven = self.drive().await;
        self.stop(driven).await
    }

    async fn drive(&mut self) -> Result<(), StopError> {
        let workshop = Arc::clone(&self.workshop);
        let mut wake = Wake::Called;
        loop {
            let plan = workshop.turn(|works| self.take_turn(wake, works))?;
            if plan.go == Go::Stop {
                return Ok(());
            }
            let called = workshop.called();
            wake = self.inlets.next(plan.until, called, &mut self.checkpoints).await;
        }
    }

    fn take_turn(&mut self, wake: Wake, works: &mut Works<M, S, L>) -> Result<Plan, StopError> {
        works.now = clock::now();
        if let Some(error) = works.failed.take() {
            return Err(error);
        }
        self.step(wake, works)?;
        works.look_if_due()?;
        self.go_on_with_checkpoints(works)?;
        works.outlets.callers.wake();
        works.sleeps_until = works.sleep_until();
        works.bound_links();
        Ok(Plan { until: works.sleeps_until, go: works.show() })
    }

    fn step(&mut self, wake: Wake, works: &mut Works<M, S, L>) -> Result<(), StopError> {
        match wake {
            Wake::Called => {}
            Wake::Links => {
                while let Some(event) = self.inlets.next_link() {
                    works.on_link(event)?;
                }
            }
            Wake::Journal => {
                if let Some(end) = works.on_journal(self.inlets.journal_news())? {
                    self.checkpoints.done(end, works.now.mono);
                }
            }
            Wake::Deadline => works.on_deadline()?,
            Wake::Wanted => works.on_wanted()?,
            Wake::Encoded(position, state) => works.outlets.store.checkpoint(position, state?),
        }
        Ok(())
    }

    fn go_on_with_checkpoints(&mut self, works: &mut Works<M, S, L>) -> Result<(), StopError> {
        let figures = works.outlets.store.figures();
        if self.checkpoints.are_due(&figures, works.options.checkpoint_after, works.now.mono) {
            self.checkpoints.wanted();
            works.event(Event::Checkpoint)?;
        }
        if let Some(checkpoint) = works.outlets.checkpoint.take() {
            self.checkpoints.start(checkpoint);
        }
        Ok(())
    }
}
