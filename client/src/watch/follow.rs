//! The part that all watches share: a watch keeps the vector up to which it has returned events, so it can
//! resume at any endpoint.
//!
//! Reconnecting is a future of its own, kept beside the watch: a caller that drops `next` and calls it again
//! does not restart the attempt, however often.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::sleep;
use tonic::{Code, Response, Status, Streaming};

use super::super::connection::{Api, Dialled};
use super::super::driver::pause;
use super::super::error::{ClientError, LinkError, of_status};
use super::super::read_client::ReadClient;
use geolock_api::names::DcId;
use geolock_api::proto::{Reason, Snapshot};

/// One kind of watch: its subject, its call and its responses.
pub(super) trait Subject: Clone + Send + Sync + 'static {
    type Response: Send + 'static;
    /// The events that callers get.
    type Event: Send;

    fn read(response: Self::Response) -> ServerEvent<Self::Event>;

    /// The call that begins the watch, on a connection of its own.
    fn call(
        &self,
        client: Api,
        from: Option<Snapshot>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Response>>, Status>> + Send;
}

/// The content of a response.
pub(super) enum ServerEvent<N> {
    Created(Snapshot),
    Progress(Snapshot),
    /// An entry of the log.
    Entry(DcId, u64, N),
    /// An event that does not change the position from which to resume.
    Passing(N),
    /// Sent by a newer server.
    Unknown,
}

/// The next result of a watch.
pub(super) enum Next<N> {
    Event(N),
    /// All events up to the position were returned; the position may have moved.
    Progress,
}

/// A watch, with or without a connection.
pub(super) struct Following<S: Subject> {
    connector: Connector<S>,
    /// The vector of the events that were returned, or that the caller excluded at the start.
    position: Snapshot,
    link: Link<S>,
}

/// The way to a server.
#[derive(Clone)]
struct Connector<S> {
    /// At least one.
    endpoints: Arc<[Dialled]>,
    /// Counts attempts, which selects the next endpoint.
    next_endpoint: usize,
    subject: S,
}

enum Link<S: Subject> {
    Up(Box<Up<S>>),
    Connecting(Connecting<S>),
    /// No attempt since the last error was returned.
    Down,
}

struct Up<S: Subject> {
    responses: Streaming<S::Response>,
    endpoint: String,
}

type Connecting<S> = Pin<Box<dyn Future<Output = Result<(Up<S>, Snapshot), ClientError>> + Send>>;

impl<S: Subject> Following<S> {
    /// Tries every endpoint once.
    pub(super) async fn begin(
        reader: &ReadClient,
        subject: S,
        from: Option<Snapshot>,
    ) -> Result<Following<S>, ClientError> {
        let next_endpoint =
            reader.endpoints.iter().position(|dialled| dialled.name == reader.endpoint).unwrap_or(0);
        let mut connector = Connector { endpoints: Arc::clone(&reader.endpoints), next_endpoint, subject };
        let mut last = ClientError::Closed;
        for _ in 0..connector.endpoints.len() {
            match connector.attempt(from.clone()).await {
                Ok((up, position)) => {
                    return Ok(Following { connector, position, link: Link::Up(Box::new(up)) });
                }
                Err(error) if passes(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Waits for the next event, and reconnects meanwhile if needed. An error is a server's refusal to
    /// continue.
    pub(super) async fn next(&mut self) -> Result<Next<S::Event>, ClientError> {
        loop {
            match &mut self.link {
                Link::Down => {
                    self.link =
                        Link::Connecting(Box::pin(self.connector.clone().connect(self.position.clone())))
                }
                Link::Connecting(connecting) => match connecting.await {
                    Ok((up, _)) => self.link = Link::Up(Box::new(up)),
                    Err(error) => {
                        self.link = Link::Down;
                        return Err(error);
                    }
                },
                Link::Up(up) => match up.next().await {
                    Ok(event) => {
                        if let Some(next) = self.on_event(event) {
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

    fn on_event(&mut self, event: ServerEvent<S::Event>) -> Option<Next<S::Event>> {
        match event {
            ServerEvent::Entry(dc, seq, event) => {
                self.raise(dc.index(), seq);
                Some(Next::Event(event))
            }
            ServerEvent::Passing(event) => Some(Next::Event(event)),
            ServerEvent::Progress(snapshot) => {
                snapshot.seqs.iter().enumerate().for_each(|(dc, seq)| self.raise(dc, *seq));
                Some(Next::Progress)
            }
            ServerEvent::Created(_) | ServerEvent::Unknown => None,
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

impl<S: Subject> Connector<S> {
    /// Tries endpoint after endpoint until one accepts the watch, or refuses it for good.
    async fn connect(mut self, from: Snapshot) -> Result<(Up<S>, Snapshot), ClientError> {
        for failures in 1.. {
            sleep(pause(failures)).await;
            match self.attempt(Some(from.clone())).await {
                Err(error) if passes(&error) => tracing::debug!(%error, "no connection for a watch"),
                outcome => return outcome,
            }
        }
        Err(ClientError::Closed)
    }

    /// Tries one endpoint. Returns the stream and its first position.
    async fn attempt(&mut self, from: Option<Snapshot>) -> Result<(Up<S>, Snapshot), ClientError> {
        let dialled = &self.endpoints[self.next_endpoint % self.endpoints.len()];
        self.next_endpoint += 1;
        let endpoint = dialled.name.clone();
        let call = dialled.stream(|client| self.subject.call(client, from));
        let responses = call.await.map_err(|error| link_error(&endpoint, error))?;
        let mut up = Up { responses, endpoint };
        match up.next().await? {
            ServerEvent::Created(snapshot) => Ok((up, snapshot)),
            _ => Err(unreachable(&up.endpoint, LinkError::Ended)),
        }
    }
}

impl<S: Subject> Up<S> {
    async fn next(&mut self) -> Result<ServerEvent<S::Event>, ClientError> {
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

/// Returns true if another attempt may help.
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
