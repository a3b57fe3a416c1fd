//! A request for enough tokens that waits, and whose candidates change meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use geolock_client::{AcquireError, AcquireRequest, Client, LockGuard, LockName, Wait};
use tokio::time::Instant;

/// More than a round trip between datacenters.
const LATELY: Duration = Duration::from_millis(500);

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, AcquireError>> + Send>>;

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
    client: Client,
    terms: Terms,
    /// All candidates that it ever had.
    all: Vec<Candidate>,
    /// The places of those that the request under way names.
    asked: Vec<usize>,
    /// The places of those that count.
    named: Vec<usize>,
    acquiring: Acquiring,
    began: Instant,
}

impl Waiting {
    pub fn begin(client: &Client, terms: Terms, candidates: Vec<Candidate>) -> Waiting {
        let named: Vec<usize> = (0..candidates.len()).collect();
        let acquiring = acquire(client, &terms, &candidates, &named);
        let (client, began) = (client.clone(), Instant::now());
        Waiting { client, terms, all: candidates, asked: named.clone(), named, acquiring, began }
    }

    /// Adds candidates and drops others. A request that has just been made and only has to drop some stays as
    /// it is: it would lose its place, and what is granted in vain is given back.
    pub fn amend(&mut self, add: Vec<Candidate>, drop: &[LockName]) {
        self.named.retain(|place| !drop.contains(&self.all[*place].0));
        if add.is_empty() && self.began.elapsed() < LATELY {
            return;
        }
        self.began = Instant::now();
        self.named.extend(self.all.len()..self.all.len() + add.len());
        self.all.extend(add);
        self.asked.clone_from(&self.named);
        self.acquiring = acquire(&self.client, &self.terms, &self.all, &self.named);
    }

    /// Waits for the grant. Returns the places of the chosen candidates, which count those of the beginning,
    /// then those of each amendment. Cancel-safe.
    pub async fn granted(&mut self) -> Result<(LockGuard, Vec<usize>), AcquireError> {
        let guard = (&mut self.acquiring).await?;
        let place = |at: &u32| usize::try_from(*at).ok().and_then(|at| self.asked.get(at).copied());
        let places = guard.chosen().iter().filter_map(place).collect();
        Ok((guard, places))
    }
}

fn acquire(client: &Client, terms: &Terms, all: &[Candidate], named: &[usize]) -> Acquiring {
    let wait = match terms.until {
        None => Wait::Try,
        Some(until) => Wait::AtMost(until.saturating_duration_since(Instant::now())),
    };
    let request = AcquireRequest::enough(terms.amount).most(terms.most).wait(wait).label(&terms.label);
    let request = named.iter().fold(request, |request, place| {
        let (lock, weight) = &all[*place];
        request.candidate(lock, *weight)
    });
    let client = client.clone();
    Box::pin(async move { client.acquire(request).await })
}
