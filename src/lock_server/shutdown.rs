//! The end of the actor: last sync, end of all sessions.

use std::time::Duration;

use tokio::time::timeout;

use super::actor::Actor;
use super::clock;
use super::engine::Engine;
use super::handle::Stage;
use super::ports::{Links, Machine, Store};
use super::start::StopError;

/// How long the disk may take for the last records.
const LAST_SYNC: Duration = Duration::from_secs(30);

impl<M: Machine, S: Store, L: Links> Actor<M, S, L> {
    /// Ends everything in order. After an error of the journal nothing more is written or answered.
    pub(super) async fn stop(mut self) -> Result<(), StopError> {
        let (mut engine, driven) = self.combiner.close();
        engine.mailbox.close();
        let synced = match driven {
            Ok(()) => self.last_sync(&mut engine).await,
            Err(error) => Err(error),
        };
        engine.outlets.expired.log_rest();
        engine.outlets.sessions.wake();
        engine.outlets.sessions.end_all();
        engine.outlets.links.shutdown().await;
        let closed = engine.outlets.store.close();
        // The journal has reported the reason once.
        let why = self.inputs.journal_events().failed;
        let closed = closed.map_err(|error| StopError::Journal(why.unwrap_or(error)));
        engine.publisher.stage.send_replace(Stage::Stopped);
        synced.and(closed)
    }

    /// Waits until all appended records are durable and the answers that waited for them are sent. Does not
    /// wait for a full disk: closing the journal reports that.
    async fn last_sync(&mut self, engine: &mut Engine<M, S, L>) -> Result<(), StopError> {
        let synced = timeout(LAST_SYNC, async {
            while engine.outlets.durable < engine.outlets.appended
                && !engine.outlets.store.figures().waiting_for_disk_space
            {
                self.inputs.journal_changed().await;
                engine.now = clock::now();
                engine.on_journal(self.inputs.journal_events())?;
            }
            Ok(())
        });
        synced.await.unwrap_or(Err(StopError::LastSync(LAST_SYNC)))
    }
}
