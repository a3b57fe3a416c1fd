//! Outgoing attempts at a link, with back-off.

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, TransportConfig};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{AttemptError, CloseCode, Refusal};
use super::hello::{self, Hello};
use super::shared::{Context, Peer, nonce};
use super::source::{Sources, is_fresh};
use super::transport;
use crate::pki::Credentials;

/// Most addresses of one host name that are tried in one attempt.
const MAX_ADDRESSES: usize = 8;
/// An address may be silent for this long before the next one is tried beside it. It is longer than most
/// round trips; and all addresses have had their turn within half of the shortest useful time limit.
const STAGGER: Duration = Duration::from_millis(150);

/// A connection that both sides agreed to use as their link.
pub(super) struct Established {
    pub connection: Connection,
    pub version: u16,
    /// The number that the arbiter gave the connection.
    pub nonce: u64,
    /// Identifies the run of the peer.
    pub incarnation: u64,
    /// The number of servers that had its id before.
    pub generation: u32,
}

/// A connection that is not a link yet. Dropping it tells the other side that another connection is used.
pub(super) struct Unconfirmed(Option<Connection>);

impl Unconfirmed {
    pub(super) fn new(connection: Connection) -> Unconfirmed {
        Unconfirmed(Some(connection))
    }

    pub(super) fn get(&self) -> &Connection {
        self.0.as_ref().expect("only taken by value, or in drop")
    }

    pub(super) fn confirm(mut self) -> Connection {
        self.0.take().expect("only taken by value, or in drop")
    }

    /// Closes it with the reason, so that both sides can log it.
    pub(super) fn fail(mut self, error: &AttemptError) {
        if let Some(connection) = self.0.take() {
            let code = match error {
                AttemptError::Refused(refusal) => refusal.code(),
                AttemptError::Superseded => CloseCode::Duplicate,
                _ => CloseCode::TimedOut,
            };
            connection.close(code.value(), error.to_string().as_bytes());
        }
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.close(CloseCode::Duplicate.value(), Refusal::Duplicate.to_string().as_bytes());
        }
    }
}

/// The wait before the next attempt: none before the first, then 50 ms, doubled each time up to 1 s. Each
/// wait is drawn at random from the upper half of that, so that two datacenters do not keep dialling each
/// other at the same moment.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    /// Attempts in a row that nothing answered.
    silent: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LAST: Duration = Duration::from_secs(1);
    /// A link that lived this long counts as stable.
    const STABLE: Duration = Duration::from_secs(1);

    fn next(&mut self) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let full = Self::FIRST.saturating_mul(1 << doublings.min(16)).min(Self::LAST);
        let percent = 50 + (nonce() % 51) as u32;
        full * percent / 100
    }

    /// Notes the result of an attempt. An answer to a fresh port says nothing of the port that listens.
    fn note_result<T>(&mut self, result: &Result<T, AttemptError>) {
        match result {
            Err(AttemptError::Silent(_)) => self.silent = self.silent.saturating_add(1),
            _ if is_fresh(self.silent) => {}
            _ => self.silent = 0,
        }
    }

    /// Notes the end of a link. A link that ended at once counts as one more failure.
    pub(super) fn link_ended(&mut self, lived: Duration) {
        self.failures = if lived >= Self::STABLE { 1 } else { self.failures.max(1) };
    }
}

/// Dials one peer.
pub(super) struct Dialler {
    pub sources: Arc<Sources>,
    pub tls: watch::Receiver<Credentials>,
    pub transport: Arc<TransportConfig>,
    pub context: Arc<Context>,
    pub peer: Arc<Peer>,
}

impl Dialler {
    /// Tries until there is a connection that the peer agreed to use.
    pub(super) async fn dial(&self, backoff: &mut Backoff) -> Established {
        loop {
            sleep(backoff.next()).await;
            let attempt = self.attempt(self.sources.after(backoff.silent)).await;
            backoff.note_result(&attempt);
            match attempt {
                Ok(established) => return established,
                Err(error) => {
                    match &error {
                        AttemptError::NotMember(_) => {
                            self.context.disowned_by.send_replace(Some(self.peer.address.clone()));
                        }
                        AttemptError::LostToPeer(_) => {
                            self.context.lost_to.send_replace(Some(self.peer.id));
                        }
                        AttemptError::RunsTwice(_) => {
                            self.context.runs_twice.send_replace(Some(self.peer.id));
                        }
                        _ => {}
                    }
                    self.peer.failed(&error);
                }
            }
        }
    }

    async fn attempt(&self, from: Endpoint) -> Result<Established, AttemptError> {
        let limit = self.context.timeout;
        let connection = Unconfirmed::new(self.connect(from, limit).await?);
        match timeout(limit, self.greet(connection.get())).await.unwrap_or(Err(AttemptError::TimedOut)) {
            Ok((answer, version, nonce)) => Ok(Established {
                connection: connection.confirm(),
                version,
                nonce,
                incarnation: answer.incarnation,
                generation: answer.generation,
            }),
            Err(error) => {
                connection.fail(&error);
                Err(error)
            }
        }
    }

    async fn connect(&self, from: Endpoint, limit: Duration) -> Result<Connection, AttemptError> {
        let config = transport::client(&self.tls.borrow(), self.peer.id, &self.transport)
            .map_err(|error| AttemptError::Connect(error.to_string()))?;
        let until = Instant::now() + limit;
        let (addresses, unresolved) = self.addresses(limit).await?;
        let dial = |address| {
            let connecting = from.connect_with(config.clone(), address, transport::SERVER_NAME);
            async move { Ok(connecting.map_err(|error| AttemptError::Connect(error.to_string()))?.await?) }
        };
        let connected = first_of(addresses, until, dial).await.map_err(of_all);
        let connection = connected.map_err(|error| match (error, unresolved) {
            (AttemptError::Connect(_) | AttemptError::Silent(_), Some(unresolved)) => unresolved,
            (error, _) => error,
        })?;
        self.context.addresses.note(&self.peer.address, connection.remote_address());
        Ok(connection)
    }

    /// Returns the addresses of the peer. A name service that is silent gets half of the time, if one that
    /// worked is known.
    async fn addresses(&self, limit: Duration) -> Result<Addresses, AttemptError> {
        let last = self.context.addresses.of(&self.peer.address);
        let patience = if last.is_some() { limit / 2 } else { limit };
        let resolved = timeout(patience, self.resolve()).await;
        or_last(resolved.unwrap_or_else(|_| Err(self.unresolved("no answer in time"))), last)
    }

    /// Resolves the peer's name to at least one address.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, AttemptError> {
        let found = lookup_host(&self.peer.address).await.map_err(|error| self.unresolved(error))?;
        let addresses: Vec<SocketAddr> = found.take(MAX_ADDRESSES).collect();
        if addresses.is_empty() { Err(self.unresolved("the name has no address")) } else { Ok(addresses) }
    }

    fn unresolved(&self, reason: impl ToString) -> AttemptError {
        AttemptError::Resolve { address: self.peer.address.clone(), reason: reason.to_string() }
    }

    /// Exchanges hellos. Returns the peer's answer, the version to speak, and the number that the arbiter
    /// gave the connection.
    async fn greet(&self, connection: &Connection) -> Result<(Hello, u16, u64), AttemptError> {
        let arbiter = self.context.arbitrates(self.peer.id);
        let ours = Hello::new(&self.context, if arbiter { nonce() } else { 0 }, self.peer.last_link());
        let (mut send, mut receive) = connection.open_bi().await?;
        hello::write(&mut send, &ours).await?;
        let answer = hello::read(&mut receive).await?;
        let version = answer.check(&self.context, self.peer.id)?;
        self.peer.recognize(&answer)?;
        let nonce = if arbiter { ours.link } else { answer.named()? };
        // From here on the connection is the link: nothing may be awaited after this byte is written.
        hello::write_confirmation(&mut send).await?;
        Ok((answer, version, nonce))
    }
}

/// The addresses of a peer, and the reason why its name was not resolved.
type Addresses = (Vec<SocketAddr>, Option<AttemptError>);

/// While a name cannot be resolved, the address that worked last is used: the certificate says if it is still
/// the peer.
fn or_last(
    resolved: Result<Vec<SocketAddr>, AttemptError>,
    last: Option<SocketAddr>,
) -> Result<Addresses, AttemptError> {
    match (resolved, last) {
        (Ok(addresses), _) => Ok((addresses, None)),
        (Err(error), Some(last)) => Ok((vec![last], Some(error))),
        (Err(error), None) => Err(error),
    }
}

/// Returns the first connection that is established. The addresses are tried in order: the next one when the
/// one before has failed or has been silent for [`STAGGER`]; earlier attempts continue meanwhile. So a dead
/// address costs no more than that, and a slow one nothing. An attempt that is not complete at `until` has
/// failed. The failures are in the order of the addresses.
async fn first_of<C, F>(
    addresses: Vec<SocketAddr>,
    until: Instant,
    dial: impl Fn(SocketAddr) -> F,
) -> Result<C, Vec<(SocketAddr, AttemptError)>>
where
    C: Send + 'static,
    F: Future<Output = Result<C, AttemptError>> + Send + 'static,
{
    let mut failures: Vec<_> = addresses.iter().map(|address| (*address, AttemptError::TimedOut)).collect();
    // Dropping it cancels the attempts that are not needed any more.
    let mut attempts = JoinSet::new();
    let mut next = 0..addresses.len();
    loop {
        if let Some(index) = next.next() {
            let attempt = dial(addresses[index]);
            attempts.spawn(async move { (index, attempt.await) });
        }
        let patience = if next.is_empty() { until } else { until.min(Instant::now() + STAGGER) };
        match timeout_at(patience, attempts.join_next()).await {
            Ok(Some(Ok((_, Ok(connection))))) => return Ok(connection),
            Ok(Some(Ok((index, Err(error))))) => {
                let is_last = error == AttemptError::Superseded;
                failures[index].1 = error;
                if is_last {
                    return Err(failures);
                }
            }
            Ok(Some(Err(error))) => {
                if let Ok(panic) = error.try_into_panic() {
                    resume_unwind(panic);
                }
            }
            Ok(None) if next.is_empty() => return Err(failures),
            Ok(None) => {}
            Err(_) if Instant::now() >= until => return Err(failures),
            Err(_) => {}
        }
    }
}

/// Combines the failures into one error. It does not depend on the order of the attempts, because name
/// servers return addresses in varying order.
fn of_all(mut failures: Vec<(SocketAddr, AttemptError)>) -> AttemptError {
    failures.sort_by_key(|(address, _)| *address);
    let is_superseded = |(_, error): &(_, AttemptError)| *error == AttemptError::Superseded;
    if failures.iter().any(is_superseded) {
        return AttemptError::Superseded;
    }
    if let [(_, error @ (AttemptError::RefusedByPeer(_) | AttemptError::NotMember(_)))] = &failures[..] {
        return error.clone();
    }
    let reason = |(address, error): &(SocketAddr, AttemptError)| match error {
        AttemptError::Connect(reason) => format!("{address}: {reason}"),
        error => format!("{address}: {error}"),
    };
    let reasons = failures.iter().map(reason).collect::<Vec<_>>().join("; ");
    match failures.iter().all(|(_, error)| *error == AttemptError::TimedOut) {
        true => AttemptError::Silent(reasons),
        false => AttemptError::Connect(reasons),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Port 1 is silent, port 2 refuses, all others answer.
    async fn dial(address: SocketAddr) -> Result<u16, AttemptError> {
        match address.port() {
            1 => pending().await,
            2 => Err(AttemptError::Connect("refused".into())),
            port => Ok(port),
        }
    }

    async fn first(ports: &[u16], limit: Duration) -> Result<u16, String> {
        let addresses = ports.iter().copied().map(at).collect();
        let until = Instant::now() + limit;
        first_of(addresses, until, dial).await.map_err(|failures| of_all(failures).to_string())
    }

    #[test]
    fn the_address_that_worked_last_is_used_while_its_name_is_gone() {
        let gone = || AttemptError::Resolve { address: "there:1".into(), reason: "no such name".into() };
        assert_eq!(or_last(Err(gone()), Some(at(7))), Ok((vec![at(7)], Some(gone()))));
        assert_eq!(or_last(Err(gone()), None), Err(gone()));
        assert_eq!(or_last(Ok(vec![at(8)]), Some(at(7))), Ok((vec![at(8)], None)), "it has moved");
    }

    #[tokio::test]
    async fn an_address_that_is_dead_does_not_hide_the_next() {
        assert_eq!(first(&[7], LONG).await, Ok(7));
        assert_eq!(first(&[1, 7], LONG).await, Ok(7));
        assert_eq!(first(&[2, 1, 7, 8], LONG).await, Ok(7));
        assert_eq!(first(&[1, 1, 1, 1, 1, 1, 1, 7], LONG).await, Ok(7), "as many as are tried");
    }

    #[tokio::test]
    async fn each_address_that_failed_is_named_with_its_reason() {
        // The order of the attempts does not matter: the error is the same.
        let said = "no connection: 127.0.0.1:1: no answer in time; 127.0.0.1:2: refused";
        assert_eq!(first(&[2, 1], STAGGER).await, Err(said.into()));
        let refused = AttemptError::RefusedByPeer("unknown".into());
        assert_eq!(of_all(vec![(at(3), refused.clone())]), refused);
        assert_eq!(
            of_all(vec![(at(2), refused), (at(3), AttemptError::Superseded)]),
            AttemptError::Superseded
        );
    }

    #[test]
    fn back_off_grows_to_its_limit_and_forgets_after_a_good_link() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(), Duration::ZERO);
        for full in [50, 100, 200, 400, 800, 1000, 1000] {
            let full = Duration::from_millis(full);
            let next = backoff.next();
            assert!(next >= full / 2 && next <= full, "{next:?} of {full:?}");
        }
        backoff.link_ended(Duration::from_millis(10));
        assert!(backoff.next() >= Duration::from_millis(500));
        backoff.link_ended(Duration::from_secs(60));
        assert!(backoff.next() <= Duration::from_millis(50));
    }
}
