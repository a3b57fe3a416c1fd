//! The client's one task: it connects, passes answers and the time to the session, and reconnects.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::clock;
use super::connection::{Answers, Api, Dialled};
use super::error::{ClientError, LinkError, of_status};
use super::session::{Ending, Why};
use super::shared::{Advanced, Shared};
use geolock_api::proto::Reason;
use geolock_api::time::Instant;

/// How often the clock is read: timers stand still while the machine sleeps, the clock does not.
const TICK: Duration = Duration::from_millis(500);
/// Pause before the next attempt, doubled with each further attempt that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The task's state.
pub(super) struct Driver {
    pub shared: Arc<Shared>,
    /// At least one.
    pub endpoints: Arc<[Dialled]>,
    pub current: Arc<Current>,
    /// Receives the result of opening the first lease.
    pub opened: Option<oneshot::Sender<Result<(), ClientError>>>,
    pub alarm: Alarm,
}

/// The channel for calls beside the most recent stream, and its endpoint.
#[derive(Default)]
pub(super) struct Current(Mutex<Option<(String, Api)>>);

impl Current {
    pub(super) fn get(&self) -> Option<(String, Api)> {
        self.0.lock().expect("nothing panics while it holds this").clone()
    }

    fn set(&self, endpoint: &str, client: Api) {
        *self.0.lock().expect("nothing panics while it holds this") = Some((endpoint.to_owned(), client));
    }
}

/// Why the driver left a stream.
enum Left {
    /// The session is over.
    Closed(Ending),
    /// The stream broke, or another one is better.
    For(LinkError),
    Drained,
}

impl Driver {
    pub(super) async fn run(mut self) -> Ending {
        let mut failures = 0;
        for attempt in 0_usize.. {
            let dialled = self.endpoints[attempt % self.endpoints.len()].clone();
            let (left, served) = self.visit(&dialled).await;
            self.shared.disconnected();
            match left {
                Left::Closed(ending) => return self.end(ending),
                Left::Drained => {}
                Left::For(error) => {
                    tracing::debug!(endpoint = dialled.name, %error, "no connection to the lock server");
                    let error = as_client_error(&dialled, error);
                    // Other refusals are temporary, such as that of a server that is stopping.
                    if let ClientError::Refused(
                        reason @ (Reason::Unauthenticated | Reason::PermissionDenied),
                        message,
                    ) = &error
                        && failures as usize + 1 >= self.endpoints.len()
                    {
                        self.shared.turned_away(*reason, message);
                    }
                    if self.fails_to_open(error, attempt) {
                        return self.end(Ending::Confirmed);
                    }
                }
            }
            failures = if served == Served::Well { 1 } else { failures + 1 };
            // There is no stream now, so the other reasons to leave one do not matter.
            if let Err(Left::Closed(ending)) = self.meanwhile(sleep(pause(failures))).await {
                return self.end(ending);
            }
        }
        Ending::NotConfirmed
    }

    /// One connection, from its beginning to its end.
    async fn visit(&mut self, dialled: &Dialled) -> (Left, Served) {
        let answers = match self.meanwhile(dial(dialled, &self.shared.clone(), &self.current.clone())).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(error)) => return (Left::For(error), Served::Badly),
            Err(left) => return (left, Served::Badly),
        };
        self.serve(answers).await
    }

    async fn serve(&mut self, mut answers: Answers) -> (Left, Served) {
        let mut messages = Vec::new();
        let mut served = Served::Badly;
        loop {
            let mut advanced = self.shared.advance(answers.moved(), &mut messages);
            if advanced.ready {
                served = Served::Well;
            }
            // Reported once, even if this stream is left in the same turn.
            if let Some(opened) = advanced.lease.take() {
                self.tell_opened(opened);
            }
            if let Some(left) = self.after(&advanced) {
                return (left, served);
            }
            tokio::select! {
                came = answers.next(&mut messages) => match came {
                    Ok(()) => {}
                    Err(error) => return (Left::For(error), served),
                },
                () = self.shared.work_for_driver() => {}
                () = self.alarm.ring(advanced.deadline) => {}
            }
        }
    }

    /// Returns why the stream must be left after a turn, if it must.
    fn after(&self, advanced: &Advanced) -> Option<Left> {
        if let Some(ending) = advanced.ending {
            return Some(Left::Closed(ending));
        }
        Some(match advanced.leave? {
            Why::Silent(time) => Left::For(LinkError::Silent(time)),
            Why::Draining => Left::Drained,
            Why::NotAttached | Why::Expired => Left::For(LinkError::Ended),
        })
    }

    /// Runs another future while time passes for the session. Returns an error if the session ends first, or
    /// wants to leave the stream that is just being opened: the session says so once, and sends nothing more
    /// on that stream.
    async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> Result<T, Left> {
        tokio::pin!(other);
        loop {
            let advanced = self.shared.advance(None, &mut Vec::new());
            if let Some(left) = self.after(&advanced) {
                return Err(left);
            }
            tokio::select! {
                result = &mut other => return Ok(result),
                () = self.shared.work_for_driver() => {}
                () = self.alarm.ring(advanced.deadline) => {}
            }
        }
    }

    /// Reports the error and returns true if the first lease is not open yet and this was the last endpoint
    /// to try.
    fn fails_to_open(&mut self, error: ClientError, attempt: usize) -> bool {
        if self.opened.is_none() || attempt + 1 < self.endpoints.len() {
            return false;
        }
        self.tell_opened(Err(error));
        true
    }

    fn tell_opened(&mut self, opened: Result<(), ClientError>) {
        if let Some(tell) = self.opened.take() {
            // A caller that no longer waits has dropped the handle, which closes the session.
            tell.send(opened).ok();
        }
    }

    fn end(&self, ending: Ending) -> Ending {
        self.shared.close();
        ending
    }
}

/// No caller waits for ever, however the task ends, even if its runtime ends.
impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.disconnected();
        self.shared.advance(None, &mut Vec::new());
    }
}

/// True if the session could make calls on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    Well,
    Badly,
}

fn as_client_error(dialled: &Dialled, error: LinkError) -> ClientError {
    dialled.explain(match error {
        LinkError::Stream(status) => of_status(&dialled.name, *status),
        source => ClientError::Unreachable { endpoint: dialled.name.clone(), source },
    })
}

async fn dial(dialled: &Dialled, shared: &Arc<Shared>, current: &Current) -> Result<Answers, LinkError> {
    let carrier = dialled.dial_session().await?;
    current.set(&dialled.name, carrier.api().clone());
    // The session counts the time from here, before anything is sent.
    let outgoing = shared.connected();
    dialled.open(carrier, outgoing).await
}

/// Returns the pause after that many failures in a row. It grows up to a limit, and it is random so that
/// clients do not reconnect together.
pub(super) fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    let longest = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    // The standard library's hash keys are random, which is enough here.
    let random = RandomState::new().build_hasher().finish() % 512;
    longest * (512 + random as u32) / 1024
}

/// A timer that also fires if the machine slept past its time ([`TICK`]).
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    set_for: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> Alarm {
        Alarm { sleep: Box::pin(sleep(Duration::ZERO)), set_for: None }
    }

    /// Waits until `deadline`, or for one [`TICK`], whichever is sooner.
    async fn ring(&mut self, deadline: Instant) {
        if self.set_for != Some(deadline) {
            let left = deadline.saturating_since(clock::now()).min(TICK);
            self.sleep.as_mut().reset(tokio::time::Instant::now() + left);
            self.set_for = Some(deadline);
        }
        self.sleep.as_mut().await;
        self.set_for = None;
    }
}
