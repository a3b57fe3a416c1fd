//! `geolock kv txn`: a transaction whose operations are read line by line.

use std::ffi::OsString;
use std::io::{BufRead as _, Read as _, stdin};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use super::operation::{self, Operation};
use super::{Committed, CommonArgs, failure, one_shot, show};
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::cli::home::{Home, HomeArgs};
use crate::cli::lock;
use crate::cli::print::{print, print_on_the_way};
use crate::cli::stopping::StopSignals;
use geolock_client::{
    Batch, Client, CommitError, Key, Mode, Transacted, Transaction, TxnRequest, Update, Value, Wait,
};

/// The heading of options about the locks of the transaction.
const LOCKS: &str = "Locks";

/// Run a transaction: operations from standard input, a line each, up to `commit`
///
/// Acquires the locks first, then opens one snapshot, which contains every commit ever made under these
/// locks, in any datacenter. `get` and `incr` show the value in the transaction before the next line is
/// read. `commit` commits everything and frees the locks. The transaction is aborted by `abort`, by a line
/// that fails, by the end of the input before `commit` (its writer may have died), and by Ctrl-C or SIGTERM
/// before `commit` is read: then none of its changes happen. After `commit` the command waits for the
/// outcome, until a second signal, and the exit code reports it (76: unknown). Lines after `commit` are not
/// read. A transaction that takes longer than the server's limit (20 s unless configured) is aborted.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Lines: get KEY, put KEY VALUE, incr KEY [BY], add KEY ELEMENT, remove KEY [ELEMENT], expire KEY TIME, commit, abort. A value or \
an element extends to the end of the line; empty lines and those that start with # are ignored.

Exit codes: as of geolock kv; 0 also after `abort`; 74 also when the input ends without `commit`: nothing was committed.

Example, as one command (two accounts, one lock, changed together):
  printf 'incr alice -10\\nincr bob 10\\ncommit\\n' | geolock kv txn --lock accounts --")]
pub(super) struct TxnArgs {
    /// Hold this lock in exclusive mode; may be given several times
    #[arg(long = "lock", value_name = "NAME", help_heading = LOCKS)]
    exclusive: Vec<OsString>,
    /// Hold this lock in shared mode; may be given several times
    #[arg(long, value_name = "NAME", help_heading = LOCKS)]
    shared: Vec<OsString>,
    /// How long to wait for the locks, such as 20s or 5min [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = lock::duration, conflicts_with = "try_once", help_heading = LOCKS)]
    wait: Option<Duration>,
    /// Do not wait for the locks, and do not ask other datacenters
    #[arg(long = "try", help_heading = LOCKS)]
    try_once: bool,
    /// The holder's name, shown to people who inspect a lock
    #[arg(long, value_name = "TEXT", help_heading = LOCKS)]
    label: Option<String>,
    /// Commit also at the end of the input, if its last line is complete: for input that is known to be
    /// complete, such as a file
    #[arg(long)]
    commit_at_end: bool,
    #[command(flatten, next_help_heading = LOCKS)]
    home: HomeArgs,
    // The heading goes on for what follows.
    #[command(flatten, next_help_heading = None)]
    pub(super) common: CommonArgs,
}

/// Longest line, in bytes: the limit of a change, and its key.
const MAX_LINE: u64 = (1 << 20) + (4 << 10);

pub(super) async fn run(args: TxnArgs) -> Result<(), Failure> {
    let home = args.home.find(&args.common.store.connect).await?;
    let request = args.request(home)?;
    let mut signals = StopSignals::listen()?;
    let client = args.common.store.connect.connect(|_| {}).await?;
    let commits = AtomicBool::new(false);
    let work = transact(&client, request, &args, &commits);
    let done = unless_stopped(work, &commits, async || signals.next().await).await;
    tokio::select! {
        () = one_shot::close(client) => {}
        _ = signals.next() => {}
    }
    done
}

/// Cancels the work at a signal, unless it commits already: then the server decides the outcome, and the
/// command waits for it until a second signal.
async fn unless_stopped(
    work: impl Future<Output = Result<(), Failure>>,
    commits: &AtomicBool,
    mut signal: impl AsyncFnMut() -> u8,
) -> Result<(), Failure> {
    let mut work = pin!(work);
    let code = tokio::select! {
        biased;
        done = &mut work => return done,
        code = signal() => code,
    };
    if !commits.load(Ordering::Relaxed) {
        // Its future is dropped, which aborts the transaction.
        return Err(Failure::silent(code));
    }
    tokio::select! {
        biased;
        done = work => done,
        _ = signal() => Err(Failure::new(
            Code::OutcomeUnknown,
            anyhow!("interrupted while it commits: whether the transaction was committed is not known"),
        )),
    }
}

/// `commits` is set when the lines read so far are to be committed.
async fn transact(
    client: &Client,
    request: TxnRequest,
    args: &TxnArgs,
    commits: &AtomicBool,
) -> Result<(), Failure> {
    let common = &args.common;
    let mut txn = client.begin(request).await.map_err(|error| failure(error.into()))?;
    let mut lines = lines();
    let (mut number, mut is_whole) = (0, true);
    while let Some(line) = lines.recv().await {
        number += 1;
        let at = || format!("line {number}");
        let line = line.with_context(at).or_fail(Code::Failed)?;
        is_whole = line.ends_with(b"\n");
        match operation::parse(&line).with_context(at).or_fail(Code::Usage)? {
            None => {}
            Some(Operation::Commit) => {
                commits.store(true, Ordering::Relaxed);
                return committed(txn.commit_with(Batch::new()).await, common);
            }
            Some(Operation::Abort) => {
                txn.abort().await.map_err(|error| failure(error.into()))?;
                return if common.store.json { print(json!({ "aborted": true })) } else { Ok(()) };
            }
            Some(operation) => {
                if let Some((key, value)) =
                    run_line(&mut txn, operation, common).await.map_err(|f| f.at(at()))?
                {
                    let shown = if common.store.json {
                        show::json(&key, &value).to_string()
                    } else {
                        show::line(&value)
                    };
                    print_on_the_way(shown)?;
                }
            }
        }
    }
    if args.commit_at_end && is_whole {
        commits.store(true, Ordering::Relaxed);
        return committed(txn.commit_with(Batch::new()).await, common);
    }
    // If this fails, dropping the handle aborts the transaction; it commits in neither case.
    let _ = txn.abort().await;
    Err(Failure::new(Code::LockLost, ended_early(number, args.commit_at_end)))
}

/// Returns why an end of the input does not commit.
fn ended_early(lines: usize, commit_at_end: bool) -> anyhow::Error {
    if commit_at_end {
        return anyhow!("aborted, nothing of it happened: the input ends within line {lines}");
    }
    let ending = if lines == 1 { "" } else { "s" };
    anyhow!(
        "aborted, nothing of it happened: the input ended after {lines} line{ending} without `commit` (end it with a \
         line `commit`, or say --commit-at-end if its end means that)"
    )
}

fn committed(outcome: Result<Transacted, CommitError>, common: &CommonArgs) -> Result<(), Failure> {
    let done = Committed::of(outcome)?;
    if common.store.json {
        print(json!({ "commit": show::snapshot(&done.commit) }))?;
    } else if common.snapshot {
        print(show::snapshot(&done.commit))?;
    }
    done.end()
}

/// Runs a line. Returns the text to show.
async fn run_line(
    txn: &mut Transaction,
    operation: Operation<'_>,
    common: &CommonArgs,
) -> Result<Option<(Key, Value)>, Failure> {
    let bytes = Bytes::copy_from_slice;
    let (key, batch) = match operation {
        Operation::Get(key) => (key, Batch::new()),
        Operation::Put(key, value) => (key, update(key, Update::register(bytes(value)), common)?),
        Operation::Incr(key, by) => (key, update(key, Update::counter(by), common)?),
        Operation::Add(key, element) => (key, update(key, Update::set_add([bytes(element)]), common)?),
        Operation::Remove(key, Some(element)) => {
            (key, update(key, Update::set_remove([bytes(element)]), common)?)
        }
        Operation::Remove(key, None) => (key, Batch::new().remove(&common.key_of(key)?)),
        Operation::Expire(key, after) => (key, Batch::new().expire(&common.key_of(key)?, after)),
        Operation::Commit | Operation::Abort => return Ok(None),
    };
    let key = common.key_of(key)?;
    let shows = matches!(operation, Operation::Get(_) | Operation::Incr(..));
    let batch = if shows { batch.read(&key) } else { batch };
    let mut values = txn.run(batch).await.map_err(|error| failure(error.into()))?;
    Ok(match operation {
        Operation::Incr(..) => Some((key, show::counted(values.pop()))),
        _ => values.pop().map(|value| (key, value)),
    })
}

fn update(key: &[u8], update: Update, common: &CommonArgs) -> Result<Batch, Failure> {
    Ok(Batch::new().update(&common.key_of(key)?, update))
}

/// Returns the lines of standard input. A read of it cannot be cancelled, so it has a thread of its own,
/// which ends with the input or the process; it reads at most one line ahead.
fn lines() -> mpsc::Receiver<anyhow::Result<Vec<u8>>> {
    let (tell, lines) = mpsc::channel(1);
    thread::spawn(move || {
        let mut input = stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line);
            let line = match read {
                Ok(0) => return,
                Ok(_) if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") => {
                    Err(anyhow!("a line has at most {MAX_LINE} bytes"))
                }
                Ok(_) => Ok(line),
                Err(error) => Err(anyhow!(error).context("cannot read standard input")),
            };
            let over = line.is_err();
            if tell.blocking_send(line).is_err() || over {
                return;
            }
        }
    });
    lines
}

impl TxnArgs {
    fn request(&self, home: Home) -> Result<TxnRequest, Failure> {
        let mut request = self.common.request();
        for (names, mode) in [(&self.exclusive, Mode::Exclusive), (&self.shared, Mode::Shared)] {
            for name in names {
                request = request.lock(home.lock(name)?, mode);
            }
        }
        if let Some(label) = &self.label {
            request = request.label(label);
        }
        Ok(match self.wait {
            _ if self.try_once => request.wait(Wait::Try),
            Some(time) => request.wait(Wait::AtMost(time)),
            None => request,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const TERMINATED: u8 = 128 + 15;

    #[tokio::test]
    async fn a_signal_gives_up_what_does_not_commit_yet() {
        let commits = AtomicBool::new(false);
        let stopped = unless_stopped(pending(), &commits, async || TERMINATED).await;
        let is_silent =
            |failure: Failure| failure.to_string().is_empty() && !failure.is(Code::OutcomeUnknown);
        assert!(stopped.is_err_and(is_silent));
    }

    #[tokio::test]
    async fn a_commit_is_waited_for_until_a_second_signal() {
        let commits = AtomicBool::new(true);
        let mut signals = 0;
        let commit = async {
            tokio::task::yield_now().await;
            Ok(())
        };
        let once = async || {
            signals += 1;
            if signals == 1 { TERMINATED } else { pending().await }
        };
        assert!(unless_stopped(commit, &commits, once).await.is_ok(), "it was committed");
        let unknown = unless_stopped(pending(), &commits, async || TERMINATED).await;
        assert!(unknown.is_err_and(|failure| failure.is(Code::OutcomeUnknown)));
        let over = unless_stopped(ready(Ok(())), &commits, async || TERMINATED).await;
        assert!(over.is_ok(), "it was over before");
    }
}
