//! Edge. The Rust client of geolock: acquire locks, hold guards, be told when they are lost.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use geolock::client::{AcquireRequest, Client, ClientConfig, ClientTls};
//! use geolock::names::LockName;
//!
//! let tls = ClientTls::from_dir("tls/client")?;
//! let client = Client::connect(ClientConfig::new(["127.0.0.1:7400"], tls)).await?;
//! let guard = client.acquire(AcquireRequest::exclusive(LockName::try_from("orders")?)).await?;
//! tokio::select! {
//!     () = async { /* work, and hand guard.token() to what the lock protects */ } => guard.release().await?,
//!     reason = guard.lost() => eprintln!("stop working: {reason}"),
//! }
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Transaction`] reads and changes the store, perhaps under locks:
//!
//! ```no_run
//! # async fn example(client: geolock::client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use geolock::client::{Batch, Key, TxnRequest, Update};
//! use geolock::names::LockName;
//!
//! let account = Key::new(b"accounts", b"7")?;
//! let mut txn = client.begin(TxnRequest::exclusive(LockName::try_from("account/7")?)).await?;
//! let balance = txn.read(&account).await?.counter()?;
//! txn.update(&account, Update::counter(-balance)).await?;
//! let commit = txn.commit().await?;
//! // All of it in one round trip, without a lock.
//! let tags = Key::new(b"tags", b"7")?;
//! let batch = Batch::new().update(&tags, Update::set_add(["closed"])).read(&tags);
//! client.transact(TxnRequest::new(), batch).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A client talks to one datacenter over one stream and holds all its locks under one lease. One task owns the
//! stream: it renews the lease, reconnects, also to other endpoints, and reclaims the locks after a restart of the
//! server. Callers see none of that, only its limits:
//!
//! - A lease that could not be renewed in time is lost with all its locks. [`LockGuard::lost`] tells so while the
//!   locks are still the client's, [`lease_margin`] before the server can give them to somebody else. The next
//!   acquire opens another lease.
//! - *Unknown is not no*: an acquire whose connection breaks is asked again under its own key until its outcome is
//!   known, or its lease is lost. When the caller gives up first (its wait is over and no server answers, or its
//!   future is dropped), the client sees to it that nothing stays held.
//! - A commit whose answer was lost is asked again under its own key, also after its lease is lost: it happens once, and
//!   [`CommitError::OutcomeUnknown`] means that no server answered in time. A transaction that was open when the server
//!   restarted is gone with its locks, without a trace; its next step says so.
//!
//! Who only wants to look uses a [`Viewer`], which needs no lease, and a [`Watch`] or [`LockWatch`] to be told of
//! changes; who may take locks away from others uses an [`Operator`]. What a viewer returns are the messages of the API themselves, described in `proto/geolock/v1/geolock.proto`.
//!
//! ```text
//!  Client, LockGuard --acquire, release--> Hub( Session ) --Outgoing--> stream --> server
//!        ^                                   ^   |  decides                          |
//!        '---------------- outcomes ---------|---'                                   |
//!                                            '--- Driver: connect, answers, time <---'
//! ```
//!
//! | file | job |
//! |---|---|
//! | `handle.rs`, `guard.rs`, `transaction.rs`, `queries.rs`, `operator.rs` | what callers have |
//! | `watch/` | following keys and locks |
//! | `config.rs`, `token.rs`, `request.rs`, `txn_request.rs`, `operations.rs` | what goes in |
//! | `values.rs`, `error.rs`, `txn_error.rs` | what comes out, what can go wrong |
//! | `session/` | pure: every decision |
//! | `lease_clock.rs`, `tag.rs` | pure: how long a lease counts, what answers belong to |
//! | `hub.rs` | where callers and driver meet |
//! | `driver.rs` | the task |
//! | `connection.rs`, `native.rs`, `clock.rs` | sockets, time |

mod clock;
mod config;
mod connection;
mod driver;
mod error;
mod guard;
mod handle;
mod hub;
mod lease_clock;
mod native;
mod operations;
mod operator;
mod queries;
mod renewing;
mod request;
mod seen;
mod session;
mod tag;
mod token;
mod transaction;
mod txn_error;
mod txn_request;
mod values;
mod watch;

pub use config::{ClientCertificate, ClientConfig, ClientTls, OnDisconnect, Transport};
pub use error::{AcquireError, ClientError, LinkError, LostReason};
pub use guard::LockGuard;
pub use handle::Client;
pub use lease_clock::lease_margin;
pub use operator::Operator;
pub use queries::{LockPage, Page, View, Viewer};
pub use request::{AcquireRequest, Wait};
pub use token::ClientToken;
pub use transaction::{Transacted, Transaction};
pub use txn_error::{CommitError, TxnError};
pub use txn_request::{AtLeast, Batch, TxnRequest};
pub use values::{Value, WrongType};
pub use watch::{
    Action, Change, Changed, Holding, LockEvent, LockMove, LockWatch, LockWatchRequest, Moved, News, Watch,
    WatchRequest,
};

pub use crate::crdt::value::{
    FlagOp, MapOp, MapType, Op, PathStep, Reading, RegisterOp, ResettableCounterOp, SetOp, Type, Update,
    VersionedReading,
};
pub use crate::keys::{Key, KeyError};
pub use crate::names::Mode;
pub use crate::proto::{
    ForceReleaseResponse, ForcedRelease, HotLock, LockDescription, LockSummary, Reason, Snapshot,
    StatusResponse as Status,
};
