//! The ports from which peers are dialled.
//!
//! A NAT or a stateful firewall on the way may keep an entry of an earlier connection that leads nowhere, and
//! packets from the same port renew it. So after some attempts without any answer, every second one is made
//! from a port that was not used before. The port that the server listens on stays the first choice:
//! firewalls may let through no other.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use quinn::{Endpoint, TokioRuntime};

use super::error::CloseCode;
use super::transport;

/// After so many attempts in a row that nothing answered, others begin from a fresh port.
const SILENT: u32 = 3;

/// The endpoints that connections to peers begin from.
pub(super) struct Sources {
    listening: Endpoint,
    /// The address to bind fresh ports to; none while distance is simulated, which the sockets do.
    fresh_at: Option<SocketAddr>,
    /// Endpoints with a port of their own, while they may have a connection.
    fresh: Mutex<Vec<Endpoint>>,
}

impl Sources {
    pub(super) fn new(listening: Endpoint, fresh_at: Option<SocketAddr>) -> Arc<Sources> {
        Arc::new(Sources { listening, fresh_at, fresh: Mutex::default() })
    }

    /// Returns the endpoint for the next attempt after so many that nothing answered. If no fresh port can be
    /// bound, it is the one that listens.
    pub(super) fn after(&self, silent: u32) -> Endpoint {
        let fresh = is_fresh(silent).then_some(self.fresh_at).flatten().and_then(|at| self.open(at));
        fresh.unwrap_or_else(|| self.listening.clone())
    }

    fn open(&self, at: SocketAddr) -> Option<Endpoint> {
        let socket = UdpSocket::bind(SocketAddr::new(at.ip(), 0));
        let opened = socket
            .and_then(|socket| Endpoint::new(transport::endpoint(), None, socket, Arc::new(TokioRuntime)));
        let endpoint =
            opened.inspect_err(|error| tracing::warn!(%error, "no fresh port to dial from")).ok()?;
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.retain(|endpoint| endpoint.open_connections() > 0);
        fresh.push(endpoint.clone());
        Some(endpoint)
    }

    /// Closes all connections from fresh ports, and waits until their peers know.
    pub(super) async fn close(&self) {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        for endpoint in fresh {
            endpoint.close(CloseCode::ShuttingDown.value(), b"shut down");
            endpoint.wait_idle().await;
        }
    }
}

/// Returns true if the attempt after so many without an answer begins from a fresh port.
pub(super) fn is_fresh(silent: u32) -> bool {
    silent.checked_sub(SILENT).is_some_and(|more| more % 2 == 0)
}

#[cfg(test)]
mod tests {
    use super::is_fresh;

    #[test]
    fn the_port_that_listens_is_tried_first_and_each_second_time() {
        let fresh: Vec<u32> = (0..9).filter(|silent| is_fresh(*silent)).collect();
        assert_eq!(fresh, [3, 5, 7]);
    }
}
