//! `geolock kv watch`: shows what changes, as it changes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::{StoreArgs, show, watched};
use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::print;
use crate::cli::stopping::StopSignals;
use crate::client::{Snapshot, Watch, WatchRequest};

/// Show every change of keys, until Ctrl-C
///
/// A line each, when it is on disk here, whatever datacenter made it: `put city = Oslo`, `incr visits by 1`,
/// `add tags "new"`, `remove tags "new"`, `removed city`, `expire city in 10s`, `lapsed city`. Changes of a commit come together and in order. While no server
/// answers it waits, and goes on where it was. With --json each line is an object that has the snapshot to go on --after.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0 after Ctrl-C or SIGTERM, 1: the server does not remember what followed --after (read the keys and watch \
anew), 69: no server reachable at the beginning, 64: wrong usage.

To miss nothing, begin after what was read:
  after=$(geolock kv get --snapshot city | tail -n 1)
  geolock kv watch --after $after city")]
pub(super) struct WatchArgs {
    /// Only keys whose names begin with one of these, 100 at most [default: all keys of the bucket]
    #[arg(value_name = "PREFIX", num_args = 0..=100)]
    prefixes: Vec<OsString>,
    /// Show also what was changed since this snapshot, as --snapshot showed it, perhaps in another datacenter
    #[arg(long, value_name = "SNAPSHOT", value_parser = show::parse_snapshot)]
    after: Option<Snapshot>,
    /// At the end, show as the last line a snapshot to go on --after
    #[arg(long)]
    snapshot: bool,
    #[command(flatten)]
    store: StoreArgs,
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
            shown = show_next(&mut watch, args.store.json) => shown?,
            _ = signals.next() => break,
        }
    }
    if args.snapshot { print(show::snapshot(watch.position())) } else { Ok(()) }
}

async fn begin(args: &WatchArgs) -> Result<Watch, Failure> {
    let bucket = args.store.bucket.as_bytes();
    let mut request = match &args.prefixes[..] {
        [] => WatchRequest::new(bucket, b""),
        prefixes => {
            prefixes.iter().fold(WatchRequest::default(), |it, prefix| it.and(bucket, prefix.as_bytes()))
        }
    };
    if let Some(after) = &args.after {
        request = request.after(after);
    }
    args.store.connect.view().await?.watch(request).await.map_err(connect::failure)
}

/// Waits for one commit. Standard output is written line by line also when it is no terminal, so a reader has each
/// line at once.
async fn show_next(watch: &mut Watch, json: bool) -> Result<(), Failure> {
    let changed = watch.next().await.map_err(connect::failure)?;
    // Within a commit, going on after it is all there is: half of it would not be shown again.
    let position = show::snapshot(watch.position());
    for change in &changed.changes {
        if json {
            print(watched::json(change, &changed, &position))?;
        } else {
            print(watched::line(change))?;
        }
    }
    Ok(())
}
