//! Leader election: one of all candidates, in any datacenters, leads, and observers see it.

use bytes::Bytes;
use geolock_client::{Client, ClientError, FencingToken, LockName, LostReason};

use crate::held::{HeldError, HeldOptions, HeldWatch, Holding, Place};
use crate::held_state::HeldValue;

/// The bucket of all leaders; with a slash, the names of the locks begin with it.
const BUCKET: &str = "geolock.elect";

/// The leader, as an observer sees it.
pub type Elected = HeldValue;

/// An election: candidates campaign, one of them leads, observers see the leader.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn serve_as_leader(_: geolock_client::FencingToken) {}
/// use geolock_recipes::{Election, HeldOptions};
///
/// let election = Election::new(&client, "scheduler", HeldOptions::default())?;
/// loop {
///     let leader = election.campaign("10.0.0.7:8080").await?;
///     tokio::select! {
///         () = serve_as_leader(leader.token()) => return Ok(leader.resign().await?),
///         reason = leader.lost() => eprintln!("no leader any more: {reason}"),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Election {
    place: Place,
}

impl Election {
    /// Prepares a candidate or an observer. Those with the same name belong together.
    pub fn new(client: &Client, name: impl AsRef<[u8]>, options: HeldOptions) -> Result<Election, HeldError> {
        Ok(Election { place: Place::new(client, BUCKET, name.as_ref(), options, true)? })
    }

    /// Returns the lock of the leader, to describe or release it.
    pub fn lock(&self) -> &LockName {
        &self.place.lock
    }

    /// Waits until this candidate leads. Observers see it with this value, at most 64 KiB, such as the
    /// address at which it serves. Dropping the future gives up the candidacy.
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leader, HeldError> {
        let (holding, _) = self.place.hold(value.into()).await?;
        Ok(Leader(holding))
    }

    /// Reads the leader, as far as the datacenter of the client knows.
    pub async fn leader(&self) -> Result<Option<Elected>, HeldError> {
        self.place.read().await
    }

    /// Follows the leader. Observers see every leader, in the order of their tokens, and `None` when no
    /// leader is known.
    pub fn observe(&self) -> HeldWatch {
        self.place.follow()
    }
}

/// The right to lead, until it is resigned, dropped or lost.
///
/// The lead is a lease: stop when [`Leader::lost`] resolves, and let everything that is changed outside of
/// the store refuse tokens below the highest that it has seen. A task writes the value again once in each
/// TTL.
#[must_use = "a leader that is dropped resigns in the background"]
#[derive(Debug)]
pub struct Leader(Holding);

impl Leader {
    /// Returns the fencing token. It is above that of every leader before, in any datacenter.
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// Resolves when the lead is lost, before another candidate can lead, as
    /// [`LockGuard::lost`](geolock_client::LockGuard::lost) does.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.0.lost()
    }

    /// Returns the reason of the loss if the lead is lost at this moment.
    pub fn is_lost(&self) -> Option<LostReason> {
        self.0.is_lost()
    }

    /// Shows another value to the observers. Waits until it is written, as long as this one leads. Of several
    /// calls at the same time the last one counts.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), HeldError> {
        self.0.set(value.into()).await
    }

    /// Ends the lead: observers see it, and the next candidate leads. Returns [`ClientError::LeaseLost`] if
    /// it had been lost before. Dropping the future does not stop it.
    pub async fn resign(self) -> Result<(), ClientError> {
        self.0.release().await
    }
}
