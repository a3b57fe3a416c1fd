//! The client itself: connecting, acquiring, closing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::config::ClientConfig;
use super::connection::Dialled;
use super::driver::{Alarm, Current, Driver};
use super::error::{AcquireError, ClientError};
use super::guard::LockGuard;
use super::request::AcquireRequest;
use super::session::{Ending, Session, Settings};
use super::shared::Shared;

/// A client of one datacenter. Cheap to clone; clones share one connection and one lease.
///
/// The client ends when [`Client::close`] is called, or when the last clone and guard are dropped. In the
/// latter case its task closes the lease in the background, if the runtime lives long enough.
#[derive(Clone)]
pub struct Client {
    pub(super) handle: Arc<Handle>,
}

/// The state that clones and guards share.
pub(super) struct Handle {
    pub shared: Arc<Shared>,
    pub current: Arc<Current>,
    pub endpoints: Arc<[Dialled]>,
    pub connect_timeout: Duration,
    driver: Mutex<Option<JoinHandle<Ending>>>,
}

impl Client {
    /// Connects and opens a lease. Tries every endpoint once; later, the client reconnects for as long as it
    /// lives.
    ///
    /// Must be called within a tokio runtime with IO and time; the client runs on it.
    pub async fn connect(config: ClientConfig) -> Result<Client, ClientError> {
        let endpoints: Arc<[Dialled]> = Dialled::all(&config)?.into();
        let session = Session::new(Settings {
            ttl: config.ttl,
            on_disconnect: config.on_disconnect.into(),
            name: config.name,
            connect_timeout: config.connect_timeout,
            endpoints: endpoints.len(),
        });
        let shared = Arc::new(Shared::new(session));
        let current = Arc::new(Current::default());
        let (tell, opened) = oneshot::channel();
        let driver = Driver {
            shared: Arc::clone(&shared),
            endpoints: Arc::clone(&endpoints),
            current: Arc::clone(&current),
            opened: Some(tell),
            alarm: Alarm::new(),
        };
        let driver = Mutex::new(Some(tokio::spawn(driver.run())));
        let connect_timeout = config.connect_timeout;
        // From here on, dropping this future closes the session.
        let handle = Arc::new(Handle { shared, current, endpoints, connect_timeout, driver });
        opened.await.unwrap_or(Err(ClientError::Closed))?;
        Ok(Client { handle })
    }

    /// Acquires all the locks of a request, or none. Dropping the future cancels the request; if it has been
    /// granted meanwhile, its locks are released.
    ///
    /// The request survives a broken connection: it keeps its place in the queues of the server for as long
    /// as the lease lives.
    pub async fn acquire(&self, request: AcquireRequest) -> Result<LockGuard, AcquireError> {
        request.check()?;
        let (number, outcome) = self.handle.shared.acquire(request)?;
        let waiting = Waiting::new(&self.handle, number);
        let grant = outcome.await.unwrap_or(Err(AcquireError::Closed))?;
        Ok(LockGuard::new(waiting.into_handle(), number, grant))
    }

    /// Returns the time to live of the present lease, or of the last one ([`ClientConfig::ttl`]).
    pub fn ttl(&self) -> Duration {
        self.handle.shared.ttl()
    }

    /// Releases everything, closes the lease and ends the client, for its clones as well. For guards that
    /// still exist the locks are lost.
    pub async fn close(self) -> Result<(), ClientError> {
        self.handle.shared.close();
        let driver = self.handle.driver.lock().expect("nothing panics while it holds this").take();
        match driver.ok_or(ClientError::Closed)?.await {
            Ok(Ending::Confirmed) => Ok(()),
            Ok(Ending::NotConfirmed) => Err(ClientError::NotConfirmed(self.handle.connect_timeout)),
            Err(_) => Err(ClientError::Closed),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// An acquire whose future is not complete.
pub(super) struct Waiting {
    pub handle: Arc<Handle>,
    number: Option<u64>,
}

impl Waiting {
    pub fn new(handle: &Arc<Handle>, number: u64) -> Waiting {
        Waiting { handle: Arc::clone(handle), number: Some(number) }
    }

    /// Consumes this after the grant; the guard is responsible from now on.
    fn into_handle(mut self) -> Arc<Handle> {
        self.end();
        Arc::clone(&self.handle)
    }

    /// The request is granted, or over.
    pub fn end(&mut self) {
        self.number = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.handle.shared.abandon(number);
        }
    }
}
