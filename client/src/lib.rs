//! The Rust client of geolock: acquires locks, holds them in guards, and reports their loss.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use geolock_client::{AcquireRequest, Client, ClientConfig, ClientTls, LockName};
//!
//! let tls = ClientTls::from_dir("tls/client")?;
//! let client = Client::connect(ClientConfig::new(["127.0.0.1:7400"], tls)).await?;
//! let guard = client.acquire(AcquireRequest::exclusive(LockName::try_from("orders")?)).await?;
//! tokio::select! {
//!     () = async { /* work, and pass guard.token() to the protected resource */ } => guard.release().await?,
//!     reason = guard.lost() => eprintln!("stop working: {reason}"),
//! }
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Transaction`] reads and changes the store, with or without locks:
//!
//! ```no_run
//! # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use geolock_client::{Batch, Key, LockName, TxnRequest, Update};
//!
//! let account = Key::new(b"accounts", b"7")?;
//! let mut txn = client.begin(TxnRequest::exclusive(LockName::try_from("account/7")?)).await?;
//! let balance = txn.read(&account).await?.counter()?;
//! txn.update(&account, Update::counter(-balance)).await?;
//! let commit = txn.commit().await?;
//! // A whole transaction in one round trip, without a lock.
//! let tags = Key::new(b"tags", b"7")?;
//! let batch = Batch::new().update(&tags, Update::set_add(["closed"])).read(&tags);
//! client.transact(TxnRequest::new(), batch).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/critical_section.rs` is a whole program. [`api::value`] has the types of values, and the results
//! of concurrent operations on them.
//!
//! A client talks to one datacenter over one stream and holds all its locks under one lease. One task owns
//! the stream: it renews the lease, reconnects, also to other endpoints, and reclaims the locks after a
//! restart of the server. Callers notice only the limits of that:
//!
//! - A lease that could not be renewed in time is lost with all its locks. [`LockGuard::lost`] reports that
//!   while no other client can have the locks, [`lease_margin`] before the server can grant them. The next
//!   acquire opens another lease.
//! - *Unknown is not no*: the client repeats an acquire whose connection breaks, under its idempotency key,
//!   until the outcome is known or the lease is lost. If the caller gives up first (its wait is over and no
//!   server answers, or it drops the future), the client makes sure that nothing stays held.
//! - The client repeats a commit whose answer was lost, under its idempotency key, even after its lease is
//!   lost. It commits at most once, and [`CommitError::OutcomeUnknown`] means that no server answered in
//!   time. A transaction that is open when the server restarts is gone with its locks and changes nothing;
//!   its next step returns an error.
//!
//! A program that only reads uses a [`ReadClient`], which needs no lease, and a [`Watch`] or [`LockWatch`]
//! to follow changes. A program that releases the locks of others by force uses an [`AdminClient`]. A read
//! client returns the messages of the API themselves, [`api::proto`], which `geolock.proto` describes.
//!
//! ```text
//!  Client, LockGuard --acquire, release--> Shared( Session ) --Outgoing--> stream --> server
//!        ^                                      ^   |  decides                          |
//!        '---------------- outcomes ------------|---'                                   |
//!                                               '--- Driver: connect, answers, time <---'
//! ```
//!
//! | file | job |
//! |---|---|
//! | `handle.rs`, `guard.rs`, `with_lock.rs`, `transaction.rs` | clients, held locks, transactions |
//! | `read_client.rs`, `admin_client.rs` | clients without a lease |
//! | `watch/` | following keys and locks |
//! | `config.rs`, `token.rs`, `request.rs`, `txn_request.rs`, `changes.rs` | settings and requests |
//! | `values.rs`, `error.rs`, `txn_error.rs` | results and errors |
//! | `session/` | pure: every decision |
//! | `lease_clock.rs`, `tag.rs` | pure: how long a lease counts, matching of answers to calls |
//! | `shared.rs` | the state that callers and driver share |
//! | `driver.rs` | the task |
//! | `connection.rs`, `native.rs`, `clock.rs` | sockets, time |
#![deny(missing_docs)]

mod address;
mod admin_client;
mod amendable;
mod changes;
mod clock;
mod config;
mod connection;
mod driver;
mod error;
mod guard;
mod handle;
mod lease_clock;
mod native;
mod read_client;
mod renewing;
mod request;
mod seen;
mod session;
mod shared;
mod tag;
mod token;
mod transaction;
mod txn_error;
mod txn_request;
mod values;
mod watch;
mod with_lock;

pub use admin_client::{AdminClient, EvictionCheck};
pub use amendable::AmendableAcquire;
pub use config::{ClientCertificate, ClientConfig, ClientTls, OnDisconnect, Transport};
pub use error::{AcquireError, AmendError, ClientError, LinkError, LostReason};
pub use guard::LockGuard;
pub use handle::Client;
pub use lease_clock::lease_margin;
pub use read_client::{KeyPage, LockPage, Page, ReadClient, ReadResult};
pub use request::{AcquireRequest, Wait};
pub use token::ClientToken;
pub use transaction::{Transacted, Transaction};
pub use txn_error::{CommitError, NotAtMajority, TxnError};
pub use txn_request::{AtLeast, Batch, Durability, TxnRequest};
pub use values::{Value, WrongType};
pub use watch::{
    Action, Change, Changed, Holding, LockEvent, LockMove, LockWatch, LockWatchRequest, Moved, Watch,
    WatchEvent, WatchRequest,
};
pub use with_lock::WithLockError;

/// The API itself: the messages that a [`ReadClient`] returns, and the rules of values.
pub use geolock_api as api;
pub use geolock_api::keys::{Key, KeyError};
pub use geolock_api::names::{
    DcId, FencingToken, ForceReason, ForceReasonError, LockName, LockNameError, Mode, RequestId,
};
pub use geolock_api::proto::{
    AuditRecord, DecisionRecord, ForceReleaseResponse, HotLock, LockDescription, LockSummary, LossReport,
    Reason, RefusalRecord, Snapshot, StatusResponse as Status,
};
pub use geolock_api::value::{
    FlagOp, MapOp, MapType, Op, PathStep, Reading, RegisterOp, ResettableCounterOp, SetOp, Type, Update,
    VersionedReading,
};
