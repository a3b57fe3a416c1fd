//! Outgoing attempts at a link, with back-off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, TransportConfig};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::error::{AttemptError, CloseCode, Refusal};
use super::hello::{self, Hello};
use super::shared::{Context, Peer, nonce};
use super::transport;
use crate::pki::Credentials;

/// The name in the TLS handshake. It decides nothing: a peer is known by its certificate's identity.
const SERVER_NAME: &str = "geolock";
/// Addresses of one host name that are tried in one attempt.
const MAX_ADDRESSES: usize = 8;

/// A connection that both sides agreed to use as their link.
pub(super) struct Established {
    pub connection: Connection,
    pub version: u16,
    /// What the arbiter calls it.
    pub nonce: u64,
    /// Which run of the peer it leads to.
    pub incarnation: u64,
}

/// A connection that is no link yet. Dropped, it tells the other side that another one is used.
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

    /// Closes it with what went wrong, so that both sides can say it.
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

/// How long to wait before the next attempt: nothing before the first, then 50 ms, doubled each time up to 1 s. Each
/// is drawn from the upper half of that, so that two datacenters do not go on meeting halfway.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LAST: Duration = Duration::from_secs(1);
    /// A link that lived so long was a good one.
    const STABLE: Duration = Duration::from_secs(1);

    fn next(&mut self) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let full = Self::FIRST.saturating_mul(1 << doublings.min(16)).min(Self::LAST);
        let percent = 50 + (nonce() % 51) as u32;
        full * percent / 100
    }

    /// A link came to its end. One that ended at once counts as another failure.
    pub(super) fn link_ended(&mut self, lived: Duration) {
        self.failures = if lived >= Self::STABLE { 1 } else { self.failures.max(1) };
    }
}

/// Dials one peer.
pub(super) struct Dialler {
    pub endpoint: Endpoint,
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
            match self.attempt().await {
                Ok(established) => return established,
                Err(error) => self.peer.failed(&error),
            }
        }
    }

    async fn attempt(&self) -> Result<Established, AttemptError> {
        let limit = self.context.timeout;
        let connection = timeout(limit, self.connect()).await.unwrap_or(Err(AttemptError::TimedOut))?;
        let connection = Unconfirmed::new(connection);
        match timeout(limit, self.greet(connection.get())).await.unwrap_or(Err(AttemptError::TimedOut)) {
            Ok((answer, version, nonce)) => Ok(Established {
                connection: connection.confirm(),
                version,
                nonce,
                incarnation: answer.incarnation,
            }),
            Err(error) => {
                connection.fail(&error);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        let mut last = None;
        let config = transport::client(&self.tls.borrow(), self.peer.id, &self.transport)
            .map_err(|error| AttemptError::Connect(error.to_string()))?;
        for address in self.resolve().await? {
            let connecting = self.endpoint.connect_with(config.clone(), address, SERVER_NAME);
            match connecting {
                Ok(connecting) => match connecting.await {
                    Ok(connection) => return Ok(connection),
                    Err(error) => last = Some(error.into()),
                },
                Err(error) => last = Some(AttemptError::Connect(format!("{address}: {error}"))),
            }
        }
        Err(last.unwrap_or_else(|| AttemptError::Resolve {
            address: self.peer.address.clone(),
            reason: "the name has no address".into(),
        }))
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, AttemptError> {
        let address = &self.peer.address;
        match lookup_host(address).await {
            Ok(found) => Ok(found.take(MAX_ADDRESSES).collect()),
            Err(error) => Err(AttemptError::Resolve { address: address.clone(), reason: error.to_string() }),
        }
    }

    /// The peer's answer, the version to speak, and what the arbiter calls the connection.
    async fn greet(&self, connection: &Connection) -> Result<(Hello, u16, u64), AttemptError> {
        let arbiter = self.context.arbitrates(self.peer.id);
        let ours = Hello::new(&self.context, if arbiter { nonce() } else { 0 }, self.peer.last_link());
        let (mut send, mut receive) = connection.open_bi().await?;
        hello::write(&mut send, &ours).await?;
        let answer = hello::read(&mut receive).await?;
        let version = answer.check(&self.context, self.peer.id)?;
        let nonce = if arbiter { ours.link } else { answer.named()? };
        // From here on the connection is the link: nothing may be awaited after this byte is written.
        hello::write_confirmation(&mut send).await?;
        Ok((answer, version, nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
