//! A request for enough tokens that waits, and whose candidates change meanwhile.

use std::collections::BTreeMap;

use geolock_client::{
    AcquireError, AcquireRequest, AmendError, AmendableAcquire, Client, LockGuard, LockName, Wait,
};
use tokio::time::Instant;

/// A candidate: its lock, and the amount of its token.
pub(super) type Candidate = (LockName, u64);

/// The request, as far as it does not change.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub amount: u64,
    pub most: u32,
    pub label: String,
    /// `None`: it does not wait.
    pub until: Option<Instant>,
}

/// A request that waits. Dropping it gives it up.
pub(super) struct Waiting {
    /// The places of all candidates that it ever had.
    places: BTreeMap<LockName, usize>,
    named: usize,
    /// An error: it could not be made.
    acquire: Result<AmendableAcquire, Option<AcquireError>>,
}

impl Waiting {
    pub fn begin(client: &Client, terms: &Terms, candidates: &[Candidate]) -> Waiting {
        let wait = match terms.until {
            None => Wait::Try,
            Some(until) => Wait::AtMost(until.saturating_duration_since(Instant::now())),
        };
        let request = AcquireRequest::enough(terms.amount).most(terms.most).wait(wait).label(&terms.label);
        let request =
            candidates.iter().fold(request, |request, (lock, weight)| request.candidate(lock, *weight));
        let acquire = client.acquire_amendable(request).map_err(Some);
        let mut waiting = Waiting { places: BTreeMap::new(), named: 0, acquire };
        waiting.name(candidates);
        waiting
    }

    fn name(&mut self, candidates: &[Candidate]) {
        let places = self.named..;
        self.places.extend(candidates.iter().map(|(lock, _)| lock.clone()).zip(places));
        self.named += candidates.len();
    }

    /// Adds candidates and drops others: the request keeps its place in the queues. Returns false if it waits
    /// for the candidates of before.
    pub async fn amend(&mut self, add: &[Candidate], drop: &[LockName]) -> bool {
        self.name(add);
        match &mut self.acquire {
            Ok(acquire) => match acquire.amend(add, drop).await {
                // The end of its wait is under way.
                Ok(()) | Err(AmendError::NotWaiting) => true,
                Err(_) => false,
            },
            Err(_) => true,
        }
    }

    /// Waits for the grant. Returns the places of the chosen candidates, which count those of the beginning,
    /// then those of each amendment. Cancel-safe.
    pub async fn granted(&mut self) -> Result<(LockGuard, Vec<usize>), AcquireError> {
        let guard = match &mut self.acquire {
            Ok(acquire) => acquire.granted().await?,
            Err(error) => return Err(error.take().unwrap_or(AcquireError::Closed)),
        };
        let place = |lock| self.places.get(lock).copied();
        let places = guard.chosen_locks().iter().filter_map(place).collect();
        Ok((guard, places))
    }
}
