//! The address of an endpoint: a host name or an address, and a port.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

/// The address of an endpoint. Clones share what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    host: Arc<str>,
    port: u16,
    /// The one that answered last. It is used while the name cannot be resolved: the certificate says if it
    /// is still the server.
    last: Arc<Mutex<Option<SocketAddr>>>,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Address {
        Address { host: host.into(), port, last: Arc::default() }
    }

    /// Connects within this time. A name service that is silent gets half of it, if an address is known.
    pub(super) async fn connect(&self, time: Duration) -> io::Result<TcpStream> {
        let (begun, last) = (Instant::now(), self.last());
        let patience = if last.is_some() { time / 2 } else { time };
        let found = timeout(patience, lookup_host((&*self.host, self.port))).await.unwrap_or_else(|_| {
            let what = format!("the name {} is not resolved in time", self.host);
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        });
        let left = time.saturating_sub(begun.elapsed());
        let stream = match (found, last) {
            (Ok(found), _) => connect_to_any(found.collect(), left).await?,
            // The name is the cause, also if the server has moved.
            (Err(unresolved), Some(last)) => {
                connect_to_any(vec![last], left).await.map_err(|_| unresolved)?
            }
            (Err(unresolved), None) => return Err(unresolved),
        };
        // Calls are small, and a caller waits for each.
        stream.set_nodelay(true)?;
        self.note(stream.peer_addr()?);
        Ok(stream)
    }

    fn last(&self) -> Option<SocketAddr> {
        *self.last.lock().expect("nothing panics while it holds an address")
    }

    fn note(&self, address: SocketAddr) {
        *self.last.lock().expect("nothing panics while it holds an address") = Some(address);
    }
}

/// Connects to the first address that answers. Each address gets a share of the time, so that a silent one
/// leaves time for those after it.
async fn connect_to_any(addresses: Vec<SocketAddr>, time: Duration) -> io::Result<TcpStream> {
    let share = time / (addresses.len() as u32 + 1);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} is silent")),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_first_address_that_answers_is_taken() {
        let bind = || std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let (gone, there) = (bind(), bind());
        let addresses = [&gone, &there].map(|it| it.local_addr().expect("it is bound"));
        drop(gone);
        let stream = connect_to_any(addresses.to_vec(), LONG).await.expect("the second is there");
        assert_eq!(stream.peer_addr().expect("it is connected"), addresses[1]);
        assert!(connect_to_any(addresses[..1].to_vec(), LONG).await.is_err());
        let nothing = connect_to_any(Vec::new(), LONG).await.map(drop);
        assert_eq!(nothing.expect_err("there is nowhere to go").kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn the_address_that_worked_last_is_used_while_its_name_is_gone() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let known = Address::new("localhost", at.port());
        known.connect(LONG).await.expect("it listens");
        // No such name is ever given out.
        let gone = Address { host: "gone.invalid".into(), ..known.clone() };
        let stream = gone.connect(LONG).await.expect("the address is known");
        assert_eq!(stream.peer_addr().expect("it is connected").port(), at.port());
        let unknown = Address::new("gone.invalid", at.port());
        unknown.connect(LONG).await.expect_err("nothing is known");
    }
}
