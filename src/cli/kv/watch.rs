//! `geolock kv watch`: shows changes of keys as they occur.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::{StoreArgs, change, show};
use crate::cli::connect;
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::cli::print::print;
use crate::cli::stopping::StopSignals;
use geolock_client::{Key, Snapshot, Watch, WatchEvent, WatchRequest};

/// Show every change of keys, until Ctrl-C
///
/// One line per change, when it is durable here, from any datacenter: `put city = Oslo`, `incr visits by 1`,
/// `add tags "new"`, `remove tags "new"`, `removed city`, `expire city in 10s`, `expired city`. Changes of a
/// commit come together and in order. While no server answers it waits, and then resumes. With --json each
/// line is an object that has the snapshot to resume with --from.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0 after Ctrl-C or SIGTERM, 1: the server no longer keeps the commits since --from \
(read the keys, and watch from the snapshot of that read), 69: no server reachable at the beginning, 77: the server does not \
allow it, 64: wrong usage.

To miss no change, start from the snapshot of a read:
  snapshot=$(geolock kv get --snapshot city | tail -n 1)
  geolock kv watch --from $snapshot city")]
pub(super) struct WatchArgs {
    /// Watch these keys [default: all keys of the bucket, if there is no --prefix]
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    /// Watch also the keys whose names begin with this; can be given several times, 100 keys and prefixes in
    /// all
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<OsString>,
    /// Show also the changes since this snapshot, printed by --snapshot in any datacenter
    #[arg(long, value_name = "SNAPSHOT", value_parser = show::parse_snapshot)]
    from: Option<Snapshot>,
    /// At the end, print a snapshot as the last line, to resume with --from
    #[arg(long)]
    snapshot: bool,
    /// Print also, from time to time, a snapshot up to which all changes have been shown
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    pub(super) store: StoreArgs,
}

pub(super) async fn run(args: WatchArgs) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let begun = tokio::select! {
        begun = begin(&args) => begun,
        _ = signals.next() => return Ok(()),
    };
    let mut watch = begun?;
    loop {
        tokio::select! {
            shown = show_next(&mut watch, &args) => shown?,
            _ = signals.next() => break,
        }
    }
    if args.snapshot { print(show::snapshot(watch.position())) } else { Ok(()) }
}

async fn begin(args: &WatchArgs) -> Result<Watch, Failure> {
    let bucket = args.store.bucket.as_bytes();
    let mut request = WatchRequest::default();
    for key in &args.keys {
        let key = Key::new(bucket, key.as_bytes());
        request = request.and_key(&key.or_fail(Code::Usage)?);
    }
    for prefix in &args.prefixes {
        request = request.and(bucket, prefix.as_bytes());
    }
    if args.keys.is_empty() && args.prefixes.is_empty() {
        request = request.and(bucket, b"");
    }
    if let Some(snapshot) = &args.from {
        request = request.from_snapshot(snapshot);
    }
    args.store.connect.read_client().await?.watch(request).await.map_err(connect::failure)
}

/// Waits for one commit and prints it. Standard output is written line by line even if it is no terminal, so
/// a reader has each line at once.
async fn show_next(watch: &mut Watch, args: &WatchArgs) -> Result<(), Failure> {
    let changed = match watch.next_event().await.map_err(connect::failure)? {
        WatchEvent::Changed(changed) => changed,
        WatchEvent::Progress if args.progress => {
            return print(show::progress(watch.position(), args.store.json));
        }
        WatchEvent::Progress => return Ok(()),
    };
    // All changes of a commit carry the position after it, because a watch cannot resume within a commit.
    let position = show::snapshot(watch.position());
    for change in &changed.changes {
        if args.store.json {
            print(change::json(change, &changed, &position))?;
        } else {
            print(change::line(change))?;
        }
    }
    Ok(())
}
