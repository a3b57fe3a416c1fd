//! `geolock kv`: reads and changes the store.

pub(super) mod change;
mod list;
mod one_shot;
mod operation;
pub(super) mod show;
mod txn;
mod watch;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;

use super::connect::{ConnectArgs, refused};
use super::failure::{Code, Failure, OrFail as _};
use super::lock;
use geolock_client::{
    AtLeast, Batch, CommitError, Durability, Key, Snapshot, Transacted, TxnError, TxnRequest, Value,
};

/// Read and change keys that all datacenters share.
///
/// Every datacenter has all keys and changes them without asking the others; a change soon arrives in the
/// others. A key's first change decides its type: `put` makes a register (of concurrent writes the last one
/// wins), `incr` a counter (concurrent additions add up), `add` a set (an add wins over a concurrent
/// remove).
#[derive(clap::Args, Clone, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Exit codes: 0, or 1: refused, such as a value of another type, 75: no locks or no snapshot in time, 74: the \
transaction was lost and committed nothing, 73: committed, but a majority did not have it on disk in time, 76: the \
outcome of the commit is unknown, 69: no server reachable, 72: the server's disk is full, \
77: the server does not allow it, 64: wrong usage.

To read the writes of one command in another datacenter, pass its snapshot on:
  snapshot=$(geolock kv put --snapshot city Oslo)
  geolock kv get --connect 127.0.0.1:7410 --at-least $snapshot city"
)]
pub struct KvArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Show the values of keys, all at one snapshot
    ///
    /// Of one key: a register as it is, a set one element a line. Of several keys: a line each. A key
    /// without a value is `(nothing)`; if it is the only one, standard error says so and the exit code is 1.
    /// Bytes that are no text are escaped. --json shows them exactly, shows a key without a value as null,
    /// and ends with 0.
    Get {
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<OsString>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Write a register
    Put {
        #[arg(value_name = "KEY")]
        key: OsString,
        #[arg(value_name = "VALUE")]
        value: OsString,
        #[command(flatten)]
        expiry: ExpiryArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Add to a counter and show it
    Incr {
        #[arg(value_name = "KEY")]
        key: OsString,
        /// The amount; may be negative
        #[arg(value_name = "BY", default_value_t = 1, allow_negative_numbers = true, value_parser = whole_number)]
        by: i64,
        #[command(flatten)]
        expiry: ExpiryArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Add to a set
    Add {
        #[arg(value_name = "KEY")]
        key: OsString,
        #[arg(required = true, value_name = "ELEMENT")]
        elements: Vec<OsString>,
        #[command(flatten)]
        expiry: ExpiryArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Remove elements from a set, or a key with all its content
    Remove {
        #[arg(value_name = "KEY")]
        key: OsString,
        #[arg(value_name = "ELEMENT")]
        elements: Vec<OsString>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Let a key expire after some time, with all its content
    ///
    /// Counted from now, up to 10 years; the key may live somewhat longer. Repeat it, in any datacenter, to
    /// prolong the life of the key; only `remove` ends the key before the end of an earlier call of this
    /// kind.
    Expire {
        #[arg(value_name = "KEY")]
        key: OsString,
        /// Such as 10s or 5min
        #[arg(value_name = "TIME", value_parser = lock::duration)]
        lives: Duration,
        #[command(flatten)]
        common: CommonArgs,
    },
    List(list::ListArgs),
    Txn(txn::TxnArgs),
    Watch(watch::WatchArgs),
}

/// Options of every subcommand.
#[derive(clap::Args, Clone, Debug)]
struct StoreArgs {
    /// The namespace of the keys: 1 to 255 bytes
    #[arg(long, value_name = "NAME", default_value = "default")]
    bucket: OsString,
    /// For programs: JSON, with bytes that are no UTF-8 as base64
    #[arg(long)]
    json: bool,
    /// Copied from the options of `kv` itself, which may come before or after the subcommand.
    #[clap(skip)]
    connect: ConnectArgs,
}

/// Options of every subcommand that writes a new value.
#[derive(clap::Args, Clone, Copy, Debug)]
struct ExpiryArgs {
    /// Let the key expire after that time, such as 10s or 5min; never before the end that an earlier call set
    #[arg(long, value_name = "TIME", value_parser = lock::duration)]
    expire: Option<Duration>,
}

/// Options of every transaction.
#[derive(clap::Args, Clone, Debug)]
struct CommonArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Read at least this snapshot, as --snapshot printed it, in any datacenter; waits at most 10 s for it
    #[arg(long, value_name = "SNAPSHOT", value_parser = show::parse_snapshot)]
    at_least: Option<Snapshot>,
    /// How durable a change is before the command ends: `local`, on the disk of the server's datacenter, or
    /// `majority`, on the disks of more than half of the datacenters
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = DurabilityArg::Local)]
    durable: DurabilityArg,
    /// How long to wait for the majority, at most 1min; then the exit code is 73, and the change
    /// stays committed [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = lock::duration)]
    majority_wait: Option<Duration>,
    /// Print a snapshot as the last line: a read with --at-least and that snapshot sees everything that this
    /// command read and wrote
    #[arg(long)]
    snapshot: bool,
}

/// The values of `--durable`.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum DurabilityArg {
    Local,
    Majority,
}

pub async fn run(mut args: KvArgs) -> Result<ExitCode, Failure> {
    args.command.store().connect = args.connect;
    match args.command {
        Command::Get { keys, common } => return one_shot::get(&keys, &common).await,
        Command::Put { key, value, expiry, common } => one_shot::put(&key, &value, expiry, &common).await,
        Command::Incr { key, by, expiry, common } => one_shot::incr(&key, by, expiry, &common).await,
        Command::Add { key, elements, expiry, common } => {
            one_shot::add(&key, &elements, expiry, &common).await
        }
        Command::Remove { key, elements, common } => one_shot::remove(&key, &elements, &common).await,
        Command::Expire { key, lives, common } => one_shot::expire(&key, lives, &common).await,
        Command::List(args) => list::run(args).await,
        Command::Txn(args) => txn::run(args).await,
        Command::Watch(args) => watch::run(args).await,
    }
    .map(|()| ExitCode::SUCCESS)
}

fn whole_number(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| format!("a counter is changed by a whole number from {} to {}", i64::MIN, i64::MAX))
}

impl Command {
    fn store(&mut self) -> &mut StoreArgs {
        match self {
            Command::Get { common, .. }
            | Command::Put { common, .. }
            | Command::Incr { common, .. }
            | Command::Add { common, .. }
            | Command::Remove { common, .. }
            | Command::Expire { common, .. } => &mut common.store,
            Command::List(args) => &mut args.store,
            Command::Txn(args) => &mut args.common.store,
            Command::Watch(args) => &mut args.store,
        }
    }
}

impl ExpiryArgs {
    fn on(self, batch: Batch, key: &Key) -> Batch {
        match self.expire {
            Some(after) => batch.expire(key, after),
            None => batch,
        }
    }
}

impl CommonArgs {
    fn at_least(&self) -> AtLeast {
        self.at_least.as_ref().map_or_else(AtLeast::default, AtLeast::snapshot)
    }

    /// Returns the request of a transaction without locks.
    fn request(&self) -> TxnRequest {
        let durability = match self.durable {
            DurabilityArg::Local => Durability::Local,
            DurabilityArg::Majority => Durability::Majority,
        };
        let request = TxnRequest::new().at_least(self.at_least()).durability(durability);
        match self.majority_wait {
            Some(wait) => request.majority_wait(wait),
            None => request,
        }
    }

    fn key(&self, name: &OsString) -> Result<Key, Failure> {
        self.key_of(name.as_bytes())
    }

    fn key_of(&self, name: &[u8]) -> Result<Key, Failure> {
        let key = Key::new(self.store.bucket.as_bytes(), name);
        key.with_context(|| format!("\"{}\" is no key", name.escape_ascii())).or_fail(Code::Usage)
    }
}

/// A transaction that committed.
struct Committed {
    commit: Snapshot,
    values: Option<Vec<Value>>,
    /// Set if no majority had it in time. The subcommand prints what it committed all the same.
    not_at_majority: Option<Failure>,
}

impl Committed {
    fn of(outcome: Result<Transacted, CommitError>) -> Result<Committed, Failure> {
        match outcome {
            Ok(done) => Ok(Committed { commit: done.commit, values: done.values, not_at_majority: None }),
            Err(CommitError::NotAtMajority(not)) => {
                let (commit, values) = (not.commit.clone(), not.values.clone());
                let not_at_majority = Some(failure(CommitError::NotAtMajority(not)));
                Ok(Committed { commit, values, not_at_majority })
            }
            Err(error) => Err(failure(error)),
        }
    }

    /// Ends the subcommand, which has printed the commit.
    fn end(self) -> Result<(), Failure> {
        self.not_at_majority.map_or(Ok(()), Err)
    }
}

/// Returns the failure of the subcommand for a transaction that is not known to have committed as required.
pub(super) fn failure(error: CommitError) -> Failure {
    let code = match &error {
        CommitError::OutcomeUnknown(_) => Code::OutcomeUnknown,
        CommitError::NotAtMajority(_) => Code::NotAtMajority,
        CommitError::NotCommitted(TxnError::NotBegun(error)) => lock::code(error),
        CommitError::NotCommitted(TxnError::Refused(reason, _)) => refused(*reason),
        CommitError::NotCommitted(TxnError::Over(..) | TxnError::LeaseLost(_)) => Code::LockLost,
        _ => Code::Failed,
    };
    // Its text includes its causes.
    Failure::new(code, anyhow::anyhow!("{error}"))
}
