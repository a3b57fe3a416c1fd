//! The client's one task: it connects, hands answers and the time to the session, and connects again.

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
use super::hub::{Hub, Turn};
use super::session::{Ending, Why};
use crate::proto::Reason;
use crate::time::Instant;

/// How often the clock is looked at: timers stand still while the machine sleeps, the clock does not.
const TICK: Duration = Duration::from_millis(500);
/// Pause before the next attempt, doubled with each further one that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See the top of this file.
pub(super) struct Driver {
    pub hub: Arc<Hub>,
    /// At least one.
    pub endpoints: Arc<[Dialled]>,
    pub current: Arc<Current>,
    /// Told whether the first lease was opened.
    pub opened: Option<oneshot::Sender<Result<(), ClientError>>>,
    pub alarm: Alarm,
}

/// What makes calls beside the last stream.
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

/// Why a stream was left.
enum Left {
    /// The session is over.
    Closed(Ending),
    /// It broke, or another one is better.
    For(LinkError),
    Drained,
}

impl Driver {
    pub(super) async fn run(mut self) -> Ending {
        let mut failures = 0;
        for turn in 0_usize.. {
            let dialled = self.endpoints[turn % self.endpoints.len()].clone();
            let (left, served) = self.visit(&dialled).await;
            self.hub.disconnected();
            match left {
                Left::Closed(ending) => return self.end(ending),
                Left::Drained => {}
                Left::For(error) => {
                    tracing::debug!(endpoint = dialled.name, %error, "no connection to the lock server");
                    let error = as_client_error(&dialled, error);
                    // Another refusal, such as that of a server which stops, passes.
                    if let ClientError::Refused(
                        reason @ (Reason::Unauthenticated | Reason::PermissionDenied),
                        message,
                    ) = &error
                        && failures as usize + 1 >= self.endpoints.len()
                    {
                        self.hub.turned_away(*reason, message);
                    }
                    if self.fails_to_open(error, turn) {
                        return self.end(Ending::Confirmed);
                    }
                }
            }
            failures = if served == Served::Well { 1 } else { failures + 1 };
            // Without a stream there is nothing else to leave.
            if let Err(Left::Closed(ending)) = self.meanwhile(sleep(pause(failures))).await {
                return self.end(ending);
            }
        }
        Ending::NotConfirmed
    }

    /// One connection, from its beginning to its end.
    async fn visit(&mut self, dialled: &Dialled) -> (Left, Served) {
        let answers = match self.meanwhile(dial(dialled, &self.hub.clone(), &self.current.clone())).await {
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
            let mut turn = self.hub.turn(answers.moved(), &mut messages);
            if turn.ready {
                served = Served::Well;
            }
            // Said once, also if this stream is left in the same turn.
            if let Some(opened) = turn.lease.take() {
                self.tell_opened(opened);
            }
            if let Some(left) = self.after(&turn) {
                return (left, served);
            }
            tokio::select! {
                came = answers.next(&mut messages) => match came {
                    Ok(()) => {}
                    Err(error) => return (Left::For(error), served),
                },
                () = self.hub.news() => {}
                () = self.alarm.ring(turn.deadline) => {}
            }
        }
    }

    /// Whether a turn ends the visit.
    fn after(&self, turn: &Turn) -> Option<Left> {
        if let Some(ending) = turn.ending {
            return Some(Left::Closed(ending));
        }
        Some(match turn.leave? {
            Why::Silent(time) => Left::For(LinkError::Silent(time)),
            Why::Draining => Left::Drained,
            Why::NotAttached | Why::Expired => Left::For(LinkError::Ended),
        })
    }

    /// Does something else while time goes on for the session. An error if the session is over first, or wants to leave
    /// the stream that is just being opened: it says so once, and sends nothing on that stream any more.
    async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> Result<T, Left> {
        tokio::pin!(other);
        loop {
            let turn = self.hub.turn(None, &mut Vec::new());
            if let Some(left) = self.after(&turn) {
                return Err(left);
            }
            tokio::select! {
                result = &mut other => return Ok(result),
                () = self.hub.news() => {}
                () = self.alarm.ring(turn.deadline) => {}
            }
        }
    }

    /// Whether this was the last endpoint to try before the first lease is open.
    fn fails_to_open(&mut self, error: ClientError, turn: usize) -> bool {
        if self.opened.is_none() || turn + 1 < self.endpoints.len() {
            return false;
        }
        self.tell_opened(Err(error));
        true
    }

    fn tell_opened(&mut self, opened: Result<(), ClientError>) {
        if let Some(tell) = self.opened.take() {
            // Who does not wait for it any more drops the handle, and that closes the session.
            tell.send(opened).ok();
        }
    }

    fn end(&self, ending: Ending) -> Ending {
        self.hub.close();
        ending
    }
}

/// However the task ends, also with its runtime: nobody waits for ever.
impl Drop for Driver {
    fn drop(&mut self) {
        self.hub.close();
        self.hub.disconnected();
        self.hub.turn(None, &mut Vec::new());
    }
}

/// Whether calls could be made on a connection.
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

async fn dial(dialled: &Dialled, hub: &Arc<Hub>, current: &Current) -> Result<Answers, LinkError> {
    let way = dialled.dial_session().await?;
    current.set(&dialled.name, way.api().clone());
    // The session counts the time from here, before anything is sent.
    let outgoing = hub.connected();
    dialled.open(way, outgoing).await
}

/// How long to wait after so many failures in a row: longer and longer, and never the same for all clients.
pub(super) fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    let longest = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    // The standard library's hash keys are random, which is all that is needed here.
    let random = RandomState::new().build_hasher().finish() % 512;
    longest * (512 + random as u32) / 1024
}

/// A timer that also goes off when the machine slept past its time. See [`TICK`].
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    set_for: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> Alarm {
        Alarm { sleep: Box::pin(sleep(Duration::ZERO)), set_for: None }
    }

    /// Waits until `deadline`, or a little, whichever is sooner.
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
