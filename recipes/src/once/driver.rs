//! The driver of an instance: performs the effects of its machine, one after the other, and passes it news
//! and time meanwhile.

use std::fmt::Display;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use geolock_client::{
    AcquireError, AcquireRequest, AtLeast, ClientError, FencingToken, LockGuard, Reason, Snapshot, Watch,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::section::{Run, caught};
use super::{CriticalSection, OnceError, Outcome, Progress};
use crate::once_state::{Content, Effect, Event, Machine, Told, Verdict, Write};
use crate::random::random;
use crate::retry::{Failed, PAUSE, passes};

/// The answer to the question if the section is needed.
pub(super) enum Asked<E> {
    Answer(bool),
    /// It is, unless this says that it is done.
    Content(Content),
    Unreachable(ClientError),
    Failed(E),
}

/// One call of `run`.
pub(super) struct Driver<'a> {
    of: &'a CriticalSection,
    machine: Machine,
    began: Instant,
    guard: Option<Arc<LockGuard>>,
    /// Why the server refused.
    refused: Reason,
    /// It follows the record.
    follows: bool,
    watch: Option<Watch>,
    content: Content,
    /// The latest snapshot that it has seen.
    snapshot: Snapshot,
}

type Renewal<'a> = Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

impl<'a> Driver<'a> {
    pub(super) fn new(of: &'a CriticalSection) -> Driver<'a> {
        Driver {
            of,
            machine: Machine::new(of.options.clone(), random(), of.done()),
            began: Instant::now(),
            guard: None,
            refused: Reason::Unspecified,
            follows: false,
            watch: None,
            content: Content::default(),
            snapshot: Snapshot::default(),
        }
    }

    pub(super) async fn run<E: Display, N, S>(
        mut self,
        mut needed: impl FnMut(AtLeast) -> N,
        mut section: impl FnMut(Run) -> S,
    ) -> Result<Outcome, OnceError<E>>
    where
        N: Future<Output = Asked<E>>,
        S: Future<Output = Result<(), E>>,
    {
        loop {
            let Some(effect) = self.machine.poll_effect() else {
                self.background().await;
                continue;
            };
            match effect {
                Effect::AskNeeded => self.ask(&mut needed).await?,
                Effect::Acquire => self.acquire().await,
                Effect::Leave => {
                    // A run that looks at its lock at this moment lets it go.
                    if let Some(guard) = self.guard.take().and_then(Arc::into_inner) {
                        // If it was lost, there is nothing to release.
                        let _ = guard.release().await;
                    }
                }
                Effect::Read => self.read().await,
                Effect::Write(write) => self.write(&write).await,
                Effect::Start { token } => self.start(token, &mut section).await,
                // The section has ended already.
                Effect::Stop => {}
                Effect::Tell(told) => self.tell(told),
                Effect::Finish(verdict) => return self.outcome(verdict),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.machine.handle(self.began.elapsed(), event);
    }

    fn refuse(&mut self, reason: Reason, message: String) -> Event {
        self.refused = reason;
        Event::Refused(message)
    }

    fn outcome<E>(&self, verdict: Verdict) -> Result<Outcome, OnceError<E>> {
        Ok(match verdict {
            Verdict::NotNeeded { done: None } => Outcome::NotNeeded,
            Verdict::NotNeeded { done: Some(done) } => {
                Outcome::DoneByOther { run: done.run, who: done.who, at_ms: done.at_ms }
            }
            Verdict::Ran { run } => {
                self.of.note_done(run);
                Outcome::Ran { run }
            }
            Verdict::GaveUp { attempts, last } => Outcome::GaveUp { attempts, last },
            Verdict::Refused(message) => return Err(OnceError::Refused { reason: self.refused, message }),
        })
    }

    fn tell(&self, told: Told) {
        if let Some(progress) = &self.of.progress {
            progress(match told {
                Told::Failed { error, pause } => Progress::Failed { error, pause },
                Told::Paused { pause } => Progress::Waits { pause },
            });
        }
    }

    /// Waits for one piece of news, or for the time at which the machine has something to do. Cancel-safe.
    async fn background(&mut self) {
        let due = self.machine.deadline().map(|at| self.began + at);
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        let store = &self.of.store;
        let event = match &mut self.watch {
            Some(watch) => tokio::select! {
                changed = watch.next() => match changed {
                    Ok(changed) => {
                        store.apply(&mut self.content, changed);
                        self.snapshot = watch.position().clone();
                        Event::News(self.content.clone())
                    }
                    // It cannot resume: read again.
                    Err(_) => {
                        self.watch = None;
                        return;
                    }
                },
                () = due => Event::Time,
            },
            None if self.follows => tokio::select! {
                followed = store.follow() => match followed {
                    Ok((content, snapshot, watch)) => {
                        (self.content, self.snapshot, self.watch) = (content, snapshot, Some(watch));
                        Event::News(self.content.clone())
                    }
                    Err(_) => return sleep(PAUSE).await,
                },
                () = due => Event::Time,
            },
            None => {
                due.await;
                Event::Time
            }
        };
        self.handle(event);
    }

    async fn ask<E: Display, N: Future<Output = Asked<E>>>(
        &mut self,
        needed: &mut impl FnMut(AtLeast) -> N,
    ) -> Result<(), OnceError<E>> {
        loop {
            let answer = {
                let mut asking = pin!(needed(AtLeast::snapshot(&self.snapshot)));
                loop {
                    tokio::select! {
                        biased;
                        answer = &mut asking => break answer,
                        () = self.background() => if self.machine.has_effects() {
                            return Ok(());
                        },
                    }
                }
            };
            match answer {
                Asked::Answer(needed) => self.handle(Event::Needed(needed)),
                Asked::Content(content) => {
                    let is_done = content.is_done();
                    self.handle(Event::News(content));
                    self.handle(Event::Needed(!is_done));
                }
                Asked::Failed(error) => return Err(OnceError::Needed(error)),
                Asked::Unreachable(ClientError::Refused(reason, message)) if !passes(reason) => {
                    return Err(OnceError::Refused { reason, message });
                }
                Asked::Unreachable(ClientError::Closed) => {
                    let message = ClientError::Closed.to_string();
                    return Err(OnceError::Refused { reason: Reason::Unspecified, message });
                }
                Asked::Unreachable(_) => {
                    sleep(PAUSE).await;
                    self.handle(Event::Time);
                    if self.machine.has_effects() {
                        return Ok(());
                    }
                    continue;
                }
            }
            return Ok(());
        }
    }

    async fn acquire(&mut self) {
        self.follows = true;
        let request = AcquireRequest::exclusive(self.of.lock.clone()).label(&self.of.options.who);
        let mut acquiring = pin!(self.of.client.acquire(request));
        let acquired = loop {
            tokio::select! {
                biased;
                acquired = &mut acquiring => break acquired,
                () = self.background() => if self.machine.has_effects() {
                    // It leaves the queue.
                    return;
                },
            }
        };
        let event = match acquired {
            Ok(guard) => {
                let token = guard.token().0;
                self.snapshot = guard.snapshot().clone();
                self.guard = Some(Arc::new(guard));
                Event::Granted { token }
            }
            Err(AcquireError::Exhausted { retry_after, .. }) => Event::NotAcquired { after: retry_after },
            Err(AcquireError::Refused(reason, message)) if !passes(reason) => self.refuse(reason, message),
            Err(error @ AcquireError::Closed) => Event::Refused(error.to_string()),
            Err(_) => Event::NotAcquired { after: Duration::ZERO },
        };
        self.handle(event);
    }

    async fn read(&mut self) {
        let Some(guard) = &self.guard else { return self.handle(Event::NotRead) };
        let event = match self.of.store.read_under(guard).await {
            Ok(content) => Event::Read(content),
            Err(Failed::NotWritten(_)) => Event::NotRead,
            Err(Failed::Refused(reason, why)) => self.refuse(reason, why),
        };
        self.handle(event);
    }

    async fn write(&mut self, write: &Write) {
        let Some(guard) = &self.guard else { return };
        let event = match self.of.store.write(guard, write, &self.of.options).await {
            Ok(()) => Event::Written,
            Err(Failed::NotWritten(why)) => Event::NotWritten(why),
            Err(Failed::Refused(reason, why)) => self.refuse(reason, why),
        };
        self.handle(event);
    }

    /// Runs the section until it has ended, or its machine stops it: then its future is dropped.
    async fn start<E: Display, S: Future<Output = Result<(), E>>>(
        &mut self,
        token: u64,
        section: &mut impl FnMut(Run) -> S,
    ) {
        let Some(guard) = self.guard.take() else { return self.handle(Event::Lost) };
        {
            let (_running, run) = Run::new(FencingToken(token), Arc::downgrade(&guard));
            let of = self.of;
            let mut renewal: Renewal<'_> = None;
            let mut lost = pin!(guard.lost());
            let mut running = pin!(caught(section(run)));
            'run: loop {
                tokio::select! {
                    biased;
                    _ = &mut lost => self.handle(Event::Lost),
                    ended = &mut running => {
                        self.handle(Event::Ended(ended));
                        break 'run;
                    }
                    () = renewed(&mut renewal) => renewal = None,
                    () = self.background() => {}
                }
                while let Some(effect) = self.machine.poll_effect() {
                    match effect {
                        Effect::Write(write @ Write::Renew) => {
                            let guard = &guard;
                            renewal = Some(Box::pin(async move {
                                // If it fails, the next one may succeed, and the lock protects the run.
                                let _ = of.store.write(guard, &write, &of.options).await;
                            }));
                        }
                        Effect::Stop => break 'run,
                        effect => unreachable!("a running section only renews and stops, not {effect:?}"),
                    }
                }
            }
        }
        self.guard = Some(guard);
    }
}

/// Waits for a renewal, if one is under way. Cancel-safe.
async fn renewed(renewal: &mut Renewal<'_>) {
    match renewal {
        Some(renewal) => renewal.await,
        None => pending().await,
    }
}
