//! Following a value.

use std::collections::VecDeque;
use std::future::pending;

use geolock_client::{Action, AtLeast, Changed, ClientError, Op, Snapshot, Update, Watch, WatchRequest};
use tokio::time::{Instant, sleep, sleep_until};

use super::{HeldError, LASTS, Place};
use crate::held_state::{Follower, HeldValue, News, Record};
use crate::retry::{PAUSE, read_passes};

/// Follows the value of the holder of a lock, in the datacenter of its client.
#[derive(Debug)]
pub struct HeldWatch {
    place: Place,
    follower: Follower,
    watch: Option<Watch>,
    /// The snapshot that it has reached, for the time when there is no watch.
    position: Snapshot,
    /// Changes that were not returned yet.
    ready: VecDeque<Result<Option<HeldValue>, HeldError>>,
    /// Ends of records that were not looked at yet.
    ended: bool,
    /// The moment at which a record ought to have ended that is not written again.
    due: Option<Instant>,
}

impl HeldWatch {
    pub(super) fn new(place: Place) -> HeldWatch {
        let (follower, position) = (Follower::default(), Snapshot::default());
        HeldWatch { place, follower, watch: None, position, ready: VecDeque::new(), ended: false, due: None }
    }

    /// Returns the present value at first, then waits for the next change; `None` if there is no value.
    /// Cancel-safe: dropping the future loses no change.
    ///
    /// While no server answers it waits and reconnects. If the server no longer keeps the commits since the
    /// last change, because this was not called for too long, it continues with the present value.
    pub async fn next(&mut self) -> Result<Option<HeldValue>, HeldError> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return ready;
            }
            if self.watch.is_none() {
                self.begin().await?;
            } else if self.ended {
                self.read_again().await?;
            } else {
                self.wait().await?;
            }
        }
    }

    async fn begin(&mut self) -> Result<(), HeldError> {
        let begun = async {
            let (record, snapshot) = self.place.read_at(&AtLeast::snapshot(&self.position)).await?;
            let request = WatchRequest::of(&self.place.key).from_snapshot(&snapshot);
            let watch = self.place.client.read_client()?.watch(request).await?;
            Ok((record, watch))
        };
        match begun.await {
            Ok((record, watch)) => {
                self.watch = Some(watch);
                self.ended = false;
                self.note(News::Begun(record));
                Ok(())
            }
            Err(error) => pause_after(error).await,
        }
    }

    /// Waits for a commit, or for the time at which the record ought to have ended.
    async fn wait(&mut self) -> Result<(), HeldError> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let due = self.due;
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = watch.next() => match changed {
                Ok(changed) => {
                    self.position = watch.position().clone();
                    self.apply(changed);
                    Ok(())
                }
                // It cannot resume: begin again.
                Err(ClientError::WatchTooOld(_)) => {
                    self.watch = None;
                    Ok(())
                }
                Err(error) => {
                    self.watch = None;
                    pause_after(error.into()).await
                }
            },
            () = due => {
                self.ended = true;
                Ok(())
            }
        }
    }

    fn apply(&mut self, changed: Changed) {
        for change in changed.changes {
            match change.action {
                Action::Update(Update { op: Op::LwwRegister(bytes), .. }) => {
                    match self.place.decode(&bytes) {
                        Ok(record) => self.note(News::Wrote(record)),
                        Err(error) => self.ready.push_back(Err(error)),
                    }
                }
                Action::Expires(_) => {}
                // An end, or nothing that a holder does.
                _ => self.ended = true,
            }
        }
    }

    async fn read_again(&mut self) -> Result<(), HeldError> {
        match self.place.read_at(&AtLeast::snapshot(&self.position)).await {
            Ok((record, _)) => {
                self.ended = false;
                self.note(News::ReadAgain(record));
                Ok(())
            }
            Err(error) => {
                // Otherwise the caller would get the same error for ever.
                self.ended = !matches!(error, HeldError::Unreadable { .. });
                pause_after(error).await
            }
        }
    }

    fn note(&mut self, news: News) {
        let record = match &news {
            News::Begun(record) | News::ReadAgain(record) => record.as_ref(),
            News::Wrote(record) => Some(record),
        };
        // A TTL for the datacenters that count, and for the way.
        let lasts = |record: &Record| record.ttl.map(|ttl| ttl.saturating_mul(LASTS + 1));
        self.due = record.and_then(lasts).and_then(|after| Instant::now().checked_add(after));
        self.ready.extend(self.follower.handle(news).map(Ok));
    }
}

/// Waits for a moment after an error that is likely to pass. Returns all others.
async fn pause_after(error: HeldError) -> Result<(), HeldError> {
    match &error {
        HeldError::Client(passing) if read_passes(passing) => sleep(PAUSE).await,
        _ => return Err(error),
    }
    Ok(())
}
