//! A selection that is being made: one task for all callers of its transaction.

use std::future::pending;
use std::sync::Arc;

use geolock_client::{AcquireError, DcId, LockDescription, LockGuard, LockName, Reason};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};

use super::describe::{MAX_DESCRIBED, describe};
use super::opened;
use super::shared::{Shared, count};
use super::store::{NotRead, Subject};
use super::wait::{Candidate, Terms, Waiting};
use super::{SelectError, Selection, Token, TokenId, TokenSource};
use crate::retry::{PAUSE, passes, read_passes};
use crate::selector_state::{Ask, Effect, Event, HeldBy, Holder, Need, Select, Verdict, Wait};

type Outcome = Result<Selection, SelectError>;

/// A selection that is being made. It is given up when its last caller drops this.
pub(super) struct Flight {
    pub ask: Ask,
    outcome: watch::Receiver<Option<Outcome>>,
    task: AbortHandle,
}

impl Flight {
    pub fn begin<S: TokenSource>(shared: &Arc<Shared<S>>, ask: Ask) -> Flight {
        let (tell, outcome) = watch::channel(None);
        let driver = Driver::new(Arc::clone(shared), ask.clone());
        let task = tokio::spawn(async move {
            let outcome = driver.run().await;
            // If nobody listens any more, the selection is dropped, and so released.
            let _ = tell.send(Some(outcome));
        });
        Flight { ask, outcome, task: task.abort_handle() }
    }

    pub async fn outcome(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(SelectError::Closed)),
            Err(_) => Err(SelectError::Closed),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Driver<S: TokenSource> {
    shared: Arc<Shared<S>>,
    ask: Ask,
    select: Select,
    request: Option<Waiting>,
    guard: Option<LockGuard>,
    has_announced: bool,
}

impl<S: TokenSource> Driver<S> {
    fn new(shared: Arc<Shared<S>>, ask: Ask) -> Driver<S> {
        let ttl = shared.store.client.ttl();
        let seed = shared.seed
            ^ ask.tx.as_str().bytes().fold(0, |sum: u64, byte| sum * 31 % 1_000_003 + u64::from(byte));
        let select = Select::new(shared.now(), ask.clone(), &shared.options, ttl, seed);
        Driver { shared, ask, select, request: None, guard: None, has_announced: false }
    }

    async fn run(mut self) -> Outcome {
        count(&self.shared.counters.selections, 1);
        let mut changes = self.shared.changes();
        self.handle(Event::News);
        loop {
            while let Some(effect) = self.select.poll_effect() {
                if let Some(outcome) = self.perform(effect).await {
                    return outcome;
                }
            }
            let due = self.select.deadline(self.shared.now(), &self.shared.lock().space);
            let due = async {
                match due {
                    Some(due) => sleep_until(self.shared.at(due)).await,
                    None => pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                granted = granted(&mut self.request) => Some(granted),
                changed = changes.changed() => {
                    if changed.is_err() || self.shared.lock().is_closed() {
                        return Err(SelectError::Closed);
                    }
                    None
                }
                () = due => None,
            };
            match event {
                Some(granted) => self.on_request(granted)?,
                None => self.handle(Event::News),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let Driver { shared, select, .. } = self;
        shared.step(|state, now| select.handle(now, &mut state.space, event));
    }

    async fn perform(&mut self, effect: Effect) -> Option<Outcome> {
        match effect {
            Effect::Request { tokens, most, wait } => self.request(tokens, most, &wait),
            Effect::Amend { add, drop } => {
                let add = self.candidates(add);
                let drop: Vec<LockName> =
                    drop.iter().map(|token| self.shared.store.keys.lock(token)).collect();
                if let Some(request) = &mut self.request
                    && !request.amend(&add, &drop).await
                {
                    // It waits for candidates of before, which may be spent by now.
                    self.request = None;
                    self.handle(Event::Failed);
                }
            }
            Effect::Cancel => self.request = None,
            Effect::ReadMarks(ids) => return self.read_marks(&ids).await.err().map(Err),
            Effect::ReadRecord => return self.read_record().await.err().map(Err),
            Effect::GiveBack => {
                if let Some(guard) = self.guard.take() {
                    count(&self.shared.counters.given_back, guard.chosen().len());
                    // If it was lost, there is nothing to release.
                    let _ = guard.release().await;
                }
            }
            Effect::Announce => {
                self.has_announced = true;
                let dc = self.shared.lock().space.home();
                let need = Need { amount: self.ask.amount, dc };
                self.announce(Some(&need)).await;
            }
            Effect::Withdraw => {
                self.has_announced = false;
                self.announce(None).await;
            }
            Effect::Finish(Verdict::Locked { free, mut by, retry_after }) => {
                let elsewhere = self.holders_elsewhere().await;
                by.extend(elsewhere.into_iter().filter(|held| !held.is_of(&self.ask.tx)));
                return Some(Err(SelectError::Locked { free, by, retry_after }));
            }
            Effect::Finish(verdict) => return Some(self.finish(verdict)),
        }
        None
    }

    /// It is advice: if it does not reach the store in time, so be it.
    async fn announce(&mut self, need: Option<&Need>) {
        let _ = timeout(PAUSE, self.shared.store.need(&self.ask.pool, &self.ask.tx, need)).await;
    }

    fn candidates(&self, tokens: Vec<Token>) -> Vec<Candidate> {
        tokens.iter().map(|token| (self.shared.store.keys.lock(token), token.amount)).collect()
    }

    fn request(&mut self, tokens: Vec<Token>, most: usize, wait: &Wait) {
        count(&self.shared.counters.requests, 1);
        let until = match wait {
            Wait::Try => None,
            Wait::AtMost(wait) => {
                count(&self.shared.counters.waits, 1);
                Some(self.shared.at(self.shared.now() + *wait))
            }
        };
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let terms = Terms { amount: self.ask.amount, most, label: self.ask.tx.to_string(), until };
        let candidates = self.candidates(tokens);
        self.request = Some(Waiting::begin(&self.shared.store.client, &terms, &candidates));
    }

    fn on_request(&mut self, granted: Granted) -> Result<(), SelectError> {
        self.request = None;
        let counters = &self.shared.counters;
        let event = match granted {
            Ok((guard, chosen)) => {
                count(&counters.granted, 1);
                count(&counters.locks_granted, chosen.len());
                let fence = guard.token().0;
                self.guard = Some(guard);
                Event::Granted { chosen, fence }
            }
            Err(error) => {
                count(&counters.refused, 1);
                match error {
                    AcquireError::NotFree | AcquireError::NotEnoughFree { .. } => Event::NotFree,
                    AcquireError::TimedOut { locks, free } => {
                        Event::TimedOut { by: self.holders(&locks), free }
                    }
                    AcquireError::Refused(Reason::NotEnough, _) => Event::NotEnough,
                    AcquireError::Refused(reason, _) if !passes(reason) => return Err(error.into()),
                    AcquireError::Closed => return Err(error.into()),
                    _ => Event::Failed,
                }
            }
        };
        self.handle(event);
        Ok(())
    }

    fn holders(&self, locks: &[LockDescription]) -> Vec<HeldBy> {
        let of = |lock: &LockDescription| {
            let name = LockName::from_fields(&lock.name, lock.home).ok()?;
            let token = self.shared.store.keys.token_of(&name);
            let unreachable = lock.unreachable_dcs.iter().find_map(|dc| DcId::new(u8::try_from(*dc).ok()?));
            let by = match (unreachable, lock.holders.first()) {
                (Some(dc), _) => Holder::Unreachable { dc },
                (None, Some(holder)) => Holder::Locked { tx: holder.label.clone() },
                (None, None) => return None,
            };
            Some(HeldBy { token, by })
        };
        locks.iter().filter_map(of).collect()
    }

    /// Asks who keeps the selection from tokens of other datacenters.
    async fn holders_elsewhere(&mut self) -> Vec<HeldBy> {
        let tokens = self.shared.lock().space.elsewhere(&self.ask.pool, MAX_DESCRIBED);
        let locks = describe(&self.shared.store, &tokens).await;
        self.holders(&locks)
    }

    async fn read_marks(&mut self, ids: &[TokenId]) -> Result<(), SelectError> {
        let Some(guard) = &self.guard else {
            self.handle(Event::Marks(None));
            return Ok(());
        };
        let read = match self.shared.store.marks_under(guard, &self.ask.tx, ids).await {
            Ok(read) => Some(read),
            Err(NotRead::ForNow) => None,
            Err(NotRead::For(error)) => return Err(error),
        };
        self.handle(Event::Marks(read));
        Ok(())
    }

    async fn read_record(&mut self) -> Result<(), SelectError> {
        let event = match self.shared.store.record(&self.ask.tx).await {
            Ok(record) => Event::Record(record),
            Err(SelectError::Client(failure)) => match &*failure {
                super::ClientFailure::Client(error) if read_passes(error) => Event::Failed,
                _ => return Err(failure.into()),
            },
            Err(error) => return Err(error),
        };
        self.handle(event);
        Ok(())
    }

    fn finish(&mut self, verdict: Verdict) -> Outcome {
        let asked = self.ask.amount;
        Err(match verdict {
            Verdict::Picked { tokens, fence } => {
                let guard = self.guard.take().ok_or(SelectError::Closed)?;
                let subject = self.subject(tokens);
                return opened::open(&self.shared, subject, opened::Begin::Picked { guard, fence });
            }
            Verdict::Adopted(record) => {
                let of = Subject::of_record(&self.ask.tx, &record);
                let key = || super::store::key_text(&self.shared.store.keys.tx(&self.ask.tx));
                let of = of.ok_or_else(|| SelectError::Unreadable { key: key() })?;
                if of.pool != self.ask.pool || of.amount != self.ask.amount {
                    let Subject { tx, pool, amount, .. } = of;
                    return Err(SelectError::OtherRequest { tx, pool, amount });
                }
                return opened::open(&self.shared, of, opened::Begin::Recovered(record));
            }
            Verdict::Insufficient { have } => SelectError::Insufficient { have, asked },
            Verdict::Locked { free, by, retry_after } => SelectError::Locked { free, by, retry_after },
            Verdict::Timeout => SelectError::Timeout,
            Verdict::SourceUnavailable => {
                let failure = self.shared.lock().failures.get(&self.ask.pool).cloned();
                failure.unwrap_or(SelectError::Timeout)
            }
            Verdict::Limit { which, most } => SelectError::Limit { which, most },
        })
    }

    fn subject(&self, tokens: Vec<Token>) -> Subject {
        let Ask { tx, pool, amount } = self.ask.clone();
        Subject { tx, pool, amount, tokens }
    }
}

impl<S: TokenSource> Drop for Driver<S> {
    fn drop(&mut self) {
        let Driver { shared, select, .. } = self;
        shared.change(|state, _| select.give_up(&mut state.space));
        if self.has_announced
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (store, pool, tx) = (self.shared.store.clone(), self.ask.pool.clone(), self.ask.tx.clone());
            runtime.spawn(async move {
                // Otherwise it ends by itself.
                let _ = timeout(PAUSE, store.need(&pool, &tx, None)).await;
            });
        }
    }
}

type Granted = Result<(LockGuard, Vec<usize>), AcquireError>;

/// Waits for the request, if there is one. Cancel-safe.
async fn granted(request: &mut Option<Waiting>) -> Granted {
    match request {
        Some(request) => request.granted().await,
        None => pending().await,
    }
}
