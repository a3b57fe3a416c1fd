//! The end of the actor: last sync, end of all sessions.

use std::time::Duration;

use tokio::time::timeout;

use super::actor::Actor;
use super::clock;
use super::handle::Stage;
use super::ports::{Links, Machine, Store};
use super::start::StopError;
use super::works::Works;

/// How long the disk may take for the last records.
const LAST_SYNC: Duration = Duration::from_secs(30);

impl<M: Machine, S: Store, L: Links> Actor<M, S, L> {
    /// Ends everything in order. After an error of the journal nothing more is written or answered.
    pub(super) async fn stop(mut self, driven: Result<(), StopError>) -> Result<(), StopError> {
        let mut works = self.workshop.close();
        works.mailbox.close();
        let synced = match driven {
            Ok(()) => self.last_sync(&mut works).await,
            Err(error) => Err(error),
        };
        works.outlets.expired.log_rest();
        works.outlets.callers.wake();
        works.outlets.callers.end_all();
        works.outlets.links.shutdown().await;
        let closed = works.outlets.store.close();
        // The journal has reported the reason once.
        let why = self.inlets.journal_news().failed;
        let closed = closed.map_err(|error| StopError::Journal(why.unwrap_or(error)));
        works.showing.stage.send_replace(Stage::Stopped);
        synced.and(closed)
    }

    /// Waits until all appended records are durable and the answers that waited for them are sent. Does not
    /// wait for a full disk: closing the journal reports that.
    async fn last_sync(&mut self, works: &mut Works<M, S, L>) -> Result<(), StopError> {
        let synced = timeout(LAST_SYNC, async {
            while works.outlets.durable < works.outlets.appended
                && !works.outlets.store.figures().waits_for_room
            {
                self.inlets.journal_changed().await;
                works.now = clock::now();
                works.on_journal(self.inlets.journal_news())?;
            }
            Ok(())
        });
        synced.await.unwrap_or(Err(StopError::LastSync(LAST_SYNC)))
    }
}
