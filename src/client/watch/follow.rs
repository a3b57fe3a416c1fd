//! What every watch does: it keeps the vector of what it was told, so it can go on at any endpoint.
//!
//! Connecting again is a future of its own, kept beside the watch: a caller that gives up waiting and asks again, however
//! often, does not start it anew.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::sleep;
use tonic::{Code, Response, Status, Streaming};

use super::super::connection::{Api, Dialled};
use super::super::driver::pause;
use super::super::error::{ClientError, LinkError, of_status};
use super::super::queries::Viewer;
use crate::names::DcId;
use crate::proto::{Reason, Snapshot};

/// One kind of watch: what it follows, and how that is said.
pub(super) trait Subject: Clone + Send + Sync + 'static {
    type Response: Send + 'static;
    /// What callers are told.
    type News: Send;

    fn read(response: Self::Response) -> Said<Self::News>;

    /// The call that begins it, on a connection of its own.
    fn call(
        &self,
        client: Api,
        from: Option<Snapshot>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Response>>, Status>> + Send;
}

/// What a response says.
pub(super) enum Said<N> {
    Begun(Snapshot),
    Reached(Snapshot),
    /// An entry of the log.
    Entry(DcId, u64, N),
    /// Something that does not count for where to go on.
    Passing(N),
    /// Of a newer server.
    Unknown,
}

/// What a watch has to tell.
pub(super) enum Next<N> {
    News(N),
    /// It is complete up to its position, which may have moved.
    Reached,
}

/// A watch, perhaps without a connection.
pub(super) struct Following<S: Subject> {
    way: Way<S>,
    /// What it was told, or knew before.
    position: Snapshot,
    link: Link<S>,
}

/// How to come to a server.
#[derive(Clone)]
struct Way<S> {
    /// At least one.
    endpoints: Arc<[Dialled]>,
    /// Which of them is next.
    turn: usize,
    subject: S,
}

enum Link<S: Subject> {
    Up(Box<Up<S>>),
    Coming(Coming<S>),
    /// Not tried since the last error that was told.
    Down,
}

struct Up<S: Subject> {
    responses: Streaming<S::Response>,
    endpoint: String,
}

type Coming<S> = Pin<Box<dyn Future<Output = Result<(Up<S>, Snapshot), ClientError>> + Send>>;

impl<S: Subject> Following<S> {
    /// Tries every endpoint once.
    pub(super) async fn begin(
        viewer: &Viewer,
        subject: S,
        from: Option<Snapshot>,
    ) -> Result<Following<S>, ClientError> {
        let turn = viewer.endpoints.iter().position(|dialled| dialled.name == viewer.endpoint).unwrap_or(0);
        let mut way = Way { endpoints: Arc::clone(&viewer.endpoints), turn, subject };
        let mut last = ClientError::Closed;
        for _ in 0..way.endpoints.len() {
            match way.attempt(from.clone()).await {
                Ok((up, position)) => return Ok(Following { way, position, link: Link::Up(Box::new(up)) }),
                Err(error) if passes(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Waits for what comes next, and connects again meanwhile if need be. An error is a server's refusal to go on.
    pub(super) async fn next(&mut self) -> Result<Next<S::News>, ClientError> {
        loop {
            match &mut self.link {
                Link::Down => {
                    self.link = Link::Coming(Box::pin(self.way.clone().come(self.position.clone())))
                }
                Link::Coming(coming) => match coming.await {
                    Ok((up, _)) => self.link = Link::Up(Box::new(up)),
                    Err(error) => {
                        self.link = Link::Down;
                        return Err(error);
                    }
                },
                Link::Up(up) => match up.next().await {
                    Ok(said) => {
                        if let Some(next) = self.on_said(said) {
                            return Ok(next);
                        }
                    }
                    Err(error) => {
                        self.link = Link::Down;
                        if !passes(&error) {
                            return Err(error);
                        }
                        tracing::debug!(%error, "a watch broke; it connects again");
                    }
                },
            }
        }
    }

    pub(super) fn position(&self) -> &Snapshot {
        &self.position
    }

    fn on_said(&mut self, said: Said<S::News>) -> Option<Next<S::News>> {
        match said {
            Said::Entry(dc, seq, news) => {
                self.raise(dc.index(), seq);
                Some(Next::News(news))
            }
            Said::Passing(news) => Some(Next::News(news)),
            Said::Reached(snapshot) => {
                snapshot.seqs.iter().enumerate().for_each(|(dc, seq)| self.raise(dc, *seq));
                Some(Next::Reached)
            }
            Said::Begun(_) | Said::Unknown => None,
        }
    }

    fn raise(&mut self, dc: usize, seq: u64) {
        let seqs = &mut self.position.seqs;
        if seqs.len() <= dc {
            seqs.resize(dc + 1, 0);
        }
        seqs[dc] = seqs[dc].max(seq);
    }
}

impl<S: Subject> std::fmt::Debug for Following<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<S: Subject> Way<S> {
    /// Tries endpoint after endpoint until one takes the watch, or refuses it for good.
    async fn come(mut self, from: Snapshot) -> Result<(Up<S>, Snapshot), ClientError> {
        for failures in 1.. {
            sleep(pause(failures)).await;
            match self.attempt(Some(from.clone())).await {
                Err(error) if passes(&error) => tracing::debug!(%error, "no connection for a watch"),
                outcome => return outcome,
            }
        }
        Err(ClientError::Closed)
    }

    /// One endpoint: the stream, and where it begins.
    async fn attempt(&mut self, from: Option<Snapshot>) -> Result<(Up<S>, Snapshot), ClientError> {
        let dialled = &self.endpoints[self.turn % self.endpoints.len()];
        self.turn += 1;
        let endpoint = dialled.name.clone();
        let call = dialled.stream(|client| self.subject.call(client, from));
        let responses = call.await.map_err(|error| link_error(&endpoint, error))?;
        let mut up = Up { responses, endpoint };
        match up.next().await? {
            Said::Begun(snapshot) => Ok((up, snapshot)),
            _ => Err(unreachable(&up.endpoint, LinkError::Ended)),
        }
    }
}

impl<S: Subject> Up<S> {
    async fn next(&mut self) -> Result<Said<S::News>, ClientError> {
        match self.responses.message().await {
            Ok(Some(response)) => Ok(S::read(response)),
            Ok(None) => Err(unreachable(&self.endpoint, LinkError::Ended)),
            Err(status) => Err(status_error(&self.endpoint, status)),
        }
    }
}

fn unreachable(endpoint: &str, source: LinkError) -> ClientError {
    ClientError::Unreachable { endpoint: endpoint.to_owned(), source }
}

fn link_error(endpoint: &str, error: LinkError) -> ClientError {
    match error {
        LinkError::Stream(status) => status_error(endpoint, *status),
        source => unreachable(endpoint, source),
    }
}

fn status_error(endpoint: &str, status: Status) -> ClientError {
    match of_status(endpoint, status) {
        ClientError::Refused(Reason::WatchTooOld, message) => ClientError::WatchTooOld(message),
        error => error,
    }
}

/// Whether trying again may help.
fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { source: LinkError::Stream(status), .. } => {
            !matches!(status.code(), Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied)
        }
        ClientError::Unreachable { .. } => true,
        ClientError::Refused(reason, _) => matches!(
            reason,
            Reason::Unavailable | Reason::Draining | Reason::ResourceExhausted | Reason::SlowReader
        ),
        _ => false,
    }
}
