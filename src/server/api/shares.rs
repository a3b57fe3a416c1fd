//! The bounds on each client's use of a server: sessions, calls in progress, answers that it has not
//! accepted.
//!
//! A client is identified by its certificate or its token; without either, by its address. A call beyond the
//! client's share is refused with a time to try again, and logged; other clients are not affected.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::BorderError;
use super::options::ApiOptions;
use crate::access::{Authorizer, LogLimit, Principal};
use crate::lock_server::{Allowance, ByteCount, ClientAllowance, LockServerHandle};
use crate::replica::call::ClientId;

/// Most clients that are remembered although they use nothing at the moment.
const MAX_IDLE: usize = 10_000;

/// The shares of all clients.
pub(super) struct Shares {
    max_sessions: usize,
    max_calls: usize,
    max_bytes: usize,
    server: LockServerHandle,
    by_client: Mutex<FxHashMap<Client, Arc<Share>>>,
    /// Makes the ids of clients, which last while shares are forgotten and made again.
    ids: RandomState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    principal: Principal,
    /// The address of a client without a certificate or token.
    address: Option<IpAddr>,
}

/// The resources in use by one client.
#[derive(Debug)]
pub(super) struct Share {
    client: Client,
    sessions: Arc<Semaphore>,
    max_sessions: usize,
    calls: Arc<Semaphore>,
    max_calls: usize,
    /// Bytes of answers that were not accepted yet.
    pub bytes: Arc<ByteCount>,
    /// Bytes of requests that are being received. Counted apart from answers, because a client that sends
    /// much may still read its answers.
    pub requests: Arc<ByteCount>,
    /// Bytes of calls in the mailbox.
    pub mailbox: ClientAllowance,
    /// The part of them that belongs to calls outside sessions.
    pub unary: Arc<Allowance>,
    /// Its calls and sessions that were refused for want of a share.
    refused: AtomicU64,
    logged: LogLimit,
}

impl Shares {
    pub(super) fn new(options: &ApiOptions, server: &LockServerHandle) -> Shares {
        Shares {
            max_sessions: options.max_sessions_per_client,
            max_calls: options.max_calls_per_client,
            max_bytes: options.max_bytes_per_client,
            server: server.clone(),
            by_client: Mutex::default(),
            ids: RandomState::new(),
        }
    }

    pub(super) fn of(&self, authorizer: &Authorizer) -> Arc<Share> {
        let principal = authorizer.principal().clone();
        let address = (principal == Principal::Anonymous).then(|| authorizer.from().ip());
        let client = Client { principal, address };
        let mut by_client = self.by_client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = by_client.get(&client) {
            return Arc::clone(share);
        }
        if by_client.len() >= MAX_IDLE {
            by_client.retain(|_, share| Arc::strong_count(share) > 1);
        }
        // No client can choose its hash; 0 is the id of no client.
        let id = ClientId(self.ids.hash_one(&client).max(1));
        let mailbox = self.server.client_allowance(id);
        let share = Arc::new(Share {
            client: client.clone(),
            sessions: Arc::new(Semaphore::new(self.max_sessions)),
            max_sessions: self.max_sessions,
            calls: Arc::new(Semaphore::new(self.max_calls)),
            max_calls: self.max_calls,
            bytes: Arc::new(ByteCount::new(self.max_bytes)),
            requests: Arc::new(ByteCount::new(self.max_bytes)),
            unary: mailbox.allowance(),
            mailbox,
            refused: AtomicU64::new(0),
            logged: LogLimit::default(),
        });
        by_client.insert(client, Arc::clone(&share));
        share
    }
}

/// A slot of a client. It keeps the client's share alive, too.
#[derive(Debug)]
pub(super) struct Place {
    _place: OwnedSemaphorePermit,
    _share: Arc<Share>,
}

/// The first bytes of a message of a session, which are not counted.
const UNCOUNTED: usize = 32 << 10;

/// Bytes of an incomplete message of a session, counted for its client.
#[derive(Debug)]
pub(super) struct Received {
    of: Arc<Share>,
    counted: usize,
}

impl Received {
    pub(super) fn new(of: Arc<Share>) -> Received {
        Received { of, counted: 0 }
    }

    /// Sets the number of these bytes. Returns an error if the client exceeds its share.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), BorderError> {
        let bytes = bytes.saturating_sub(UNCOUNTED);
        if bytes == self.counted {
            return Ok(());
        }
        let more = bytes.saturating_sub(self.counted);
        self.of.requests.sub(self.counted.saturating_sub(bytes));
        self.counted = bytes;
        if more > 0 && !self.of.requests.add(more) {
            return Err(self.of.refused(BorderError::TooManyBytes(self.of.requests.most())));
        }
        Ok(())
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.of.requests.sub(self.counted);
    }
}

impl Share {
    /// Takes a slot for a session.
    pub(super) fn session(self: &Arc<Self>) -> Result<Place, BorderError> {
        self.place(&self.sessions, BorderError::TooManySessions(self.max_sessions))
    }

    /// Takes a slot for a call.
    pub(super) fn call(self: &Arc<Self>) -> Result<Place, BorderError> {
        self.place(&self.calls, BorderError::TooManyCalls(self.max_calls))
    }

    /// Refuses calls with large answers while the client has not accepted too many earlier ones.
    pub(super) fn room_for_answers(&self) -> Result<(), BorderError> {
        if self.bytes.is_full() {
            Err(self.refused(BorderError::TooManyBytes(self.bytes.most())))
        } else {
            Ok(())
        }
    }

    /// Logs that this client was refused.
    pub(super) fn refused(&self, error: BorderError) -> BorderError {
        let refused_so_far = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if self.logged.allows(Instant::now()) {
            tracing::warn!(who = %self.client.principal, reason = %error, refused_so_far, "a client has all that it may have");
        }
        error
    }

    fn place(self: &Arc<Self>, places: &Arc<Semaphore>, refusal: BorderError) -> Result<Place, BorderError> {
        match Arc::clone(places).try_acquire_owned() {
            Ok(place) => Ok(Place { _place: place, _share: Arc::clone(self) }),
            Err(_) => Err(self.refused(refusal)),
        }
    }
}
