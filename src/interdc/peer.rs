//! One task per peer. Without a link it dials and accepts; with a link it moves messages until the link ends;
//! then it starts again. All events of a peer come from its task, so they are in order by construction.
//!
//! # Which connection is the link
//!
//! Both sides dial, because possibly only one of them can reach the other, and because a side that restarts
//! knows first that the link is gone. So two connections may be in progress at once, and exactly one must
//! survive. One side decides, the *arbiter*: the one with the lower id. A connection becomes the link when
//! its dialler confirms it (`hello.rs`), and
//!
//! - the arbiter pauses its own dialling while it waits for the confirmation of a connection it has welcomed,
//!   so it never has two that may still be confirmed;
//! - the other side leaves the choice to it: it confirms what the arbiter welcomes, welcomes what the arbiter
//!   dials, and the connection that is confirmed last is the link.
//!
//! While it has a link, the arbiter refuses a new connection as a double dial, with two exceptions: the peer
//! has restarted since (another incarnation), or the peer says that the last link it knows of is this very
//! one, so it has lost it. Then the old link is half dead, and the new connection replaces it as soon as it
//! is confirmed.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::accept::Candidate;
use super::dial::{Backoff, Dialler, Established};
use super::error::{AttemptError, DownReason, Refusal};
use super::event::{Lane, LinkEvent};
use super::link::{DRAIN_TIME, Link, Running};
use super::shared::{Context, Peer};

pub(super) struct PeerTask {
    pub context: Arc<Context>,
    pub peer: Arc<Peer>,
    pub dialler: Dialler,
    pub backoff: Backoff,
    pub candidates: mpsc::Receiver<Candidate>,
    pub welcoming: Welcoming,
    pub events: mpsc::Sender<LinkEvent>,
    pub shutdown: watch::Receiver<bool>,
    /// True once it is no peer any more.
    pub removed: watch::Receiver<bool>,
}

/// The way a link ended, which decides how to continue.
enum After {
    Down,
    /// This connection is the link now.
    Replaced(Established),
    Stop,
}

impl PeerTask {
    pub(super) async fn run(mut self) {
        let mut next = None;
        loop {
            let established = match next.take() {
                Some(established) => established,
                None => match self.meet().await {
                    Some(established) => established,
                    None => return,
                },
            };
            match self.serve(established).await {
                After::Down => {}
                After::Replaced(by) => next = Some(by),
                After::Stop => return,
            }
        }
    }

    /// Runs without a link: until there is one, or it is time to stop.
    async fn meet(&mut self) -> Option<Established> {
        let arbiter = self.context.arbitrates(self.peer.id);
        let mut dial = pin!(self.dialler.dial(&mut self.backoff));
        loop {
            tokio::select! {
                established = &mut dial, if !(arbiter && self.welcoming.is_busy()) => return Some(established),
                outcome = self.welcoming.done() => match outcome {
                    Ok(established) => return Some(established),
                    Err(error) => self.peer.failed(&error),
                },
                Some(candidate) = self.candidates.recv() => {
                    self.welcoming.start(candidate.welcome(self.context.clone(), self.peer.clone()));
                }
                () = stopped(&mut self.shutdown) => return None,
                () = stopped(&mut self.removed) => return None,
            }
        }
    }

    /// Runs with a link: from its `Up` to its `Down`.
    async fn serve(&mut self, established: Established) -> After {
        let (nonce, incarnation, generation) =
            (established.nonce, established.incarnation, established.generation);
        let (connection, version) = (established.connection, established.version);
        let link = Link::new(self.peer.next_link_id(), connection, self.context.queue, version);
        let link = Arc::new(link);
        let began = Instant::now();
        self.peer.link_up(link.clone(), nonce, generation);
        self.context.note_control(self.peer.id, link.has(Lane::Control));
        let up = LinkEvent::Up { peer: self.peer.id, link: link.id, version };
        let (reason, next) = match self.tell(up).await {
            true => self.move_messages(&link, nonce, incarnation).await,
            false => (DownReason::ShuttingDown, None),
        };
        // Closes it in case the code above did not: closing twice has no effect.
        link.connection.close(reason.code().value(), reason.to_string().as_bytes());
        self.backoff.link_ended(began.elapsed());
        self.context.note_control(self.peer.id, false);
        self.peer.link_down(&reason);
        let told = self.tell(LinkEvent::Down { peer: self.peer.id, reason }).await;
        match next {
            _ if !told || *self.shutdown.borrow() => After::Stop,
            Some(established) => After::Replaced(established),
            None => After::Down,
        }
    }

    /// Runs the link until it ends. Returns the reason, and the connection that replaces it. Closes the
    /// connection before its streams are dropped, so that the peer sees the reason and not truncated streams.
    async fn move_messages(
        &mut self,
        link: &Link,
        nonce: u64,
        incarnation: u64,
    ) -> (DownReason, Option<Established>) {
        let running = Running {
            link,
            peer: &self.peer,
            events: &self.events,
            timeout: self.context.timeout,
            takes_bulk: self.context.takes_bulk.subscribe(),
            control: self.context.control.as_ref(),
        };
        let mut end = pin!(running.until_end());
        let arbiter = self.context.arbitrates(self.peer.id);
        let (reason, next) = loop {
            tokio::select! {
                reason = &mut end => break (reason, None),
                outcome = self.welcoming.done() => match outcome {
                    Ok(established) => {
                        // While the events were not read, the old link may have ended unnoticed: then that is
                        // the reason.
                        let reason = link.connection.close_reason().map_or(DownReason::Replaced, Into::into);
                        break (reason, Some(established));
                    }
                    Err(error) => self.peer.failed(&error),
                },
                Some(candidate) = self.candidates.recv() => {
                    let hello = &candidate.hello;
                    if arbiter && hello.incarnation == incarnation && hello.last_link != nonce {
                        candidate.refuse(Refusal::Duplicate);
                    } else {
                        self.welcoming.start(candidate.welcome(self.context.clone(), self.peer.clone()));
                    }
                }
                () = stopped(&mut self.shutdown) => {
                    link.finish();
                    // Messages that are not delivered by then are lost with the link, as always.
                    let _ = timeout(DRAIN_TIME, &mut end).await;
                    break (DownReason::ShuttingDown, None);
                }
            }
        };
        link.connection.close(reason.code().value(), reason.to_string().as_bytes());
        (reason, next)
    }

    /// Reports an event, however slow its reader is; at shutdown waits for at most [`DRAIN_TIME`]. Returns
    /// false when the reader is gone.
    async fn tell(&mut self, event: LinkEvent) -> bool {
        let PeerTask { events, shutdown, .. } = self;
        let out_of_time = async {
            stopped(shutdown).await;
            sleep(DRAIN_TIME).await;
        };
        tokio::select! {
            biased;
            sent = events.send(event) => sent.is_ok(),
            () = out_of_time => false,
        }
    }
}

/// Completes when it is time to stop; also when the sender is dropped.
pub(super) async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is dropped, and with it everything that could use links.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

type Welcome = Pin<Box<dyn Future<Output = Result<Established, AttemptError>> + Send>>;

/// The incoming connection whose confirmation is awaited, if any. A newer one replaces it.
#[derive(Default)]
pub(super) struct Welcoming(Option<Welcome>);

impl Welcoming {
    fn start(&mut self, welcome: impl Future<Output = Result<Established, AttemptError>> + Send + 'static) {
        self.0 = Some(Box::pin(welcome));
    }

    fn is_busy(&self) -> bool {
        self.0.is_some()
    }

    /// Pending for ever while there is none. Cancel safe.
    async fn done(&mut self) -> Result<Established, AttemptError> {
        let Some(welcome) = &mut self.0 else { return std::future::pending().await };
        let outcome = welcome.await;
        self.0 = None;
        outcome
    }
}
