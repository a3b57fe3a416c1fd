//! `geolock journal`: the data directory of a server that does not run.
//!
//! # Decisions
//!
//! - **Orphans are made again by a client** (`again.rs`), each in a transaction with a mark and under a
//!   lock, so it happens once without any help of the server.

mod again;
mod show;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::json;

use super::connect::{self, ConnectArgs};
use super::failure::{Code, Failure, OrFail as _};
use super::member::end_cause;
use super::print::print;
use crate::server::orphans::{LostDirectory, Orphan};
use again::{Choice, Outcome, Repeat};
use geolock_api::names::DcId;
use geolock_api::proto::{EndCause, ListMembersResponse};

/// Examine the data directory of a server that is lost or was evicted.
#[derive(clap::Args, Clone, Debug)]
pub struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum JournalCommand {
    /// List the commits that only this data directory has, and make them again
    ///
    /// A datacenter that is evicted, or lost in a forced recovery, may have acknowledged commits that it sent
    /// to no other datacenter. Its log ends for the others with the last entry that one of them had; the
    /// commits after it are orphans. This command asks the cluster for that entry, and reads the directory
    /// without changing it: that of the lost server, or `evicted-GENERATION` in that of a server that has
    /// returned. UNDER is the fencing token of the locks under which a commit was made.
    ///
    /// With `--apply` the orphans are made again, as new commits of today, in their order. Those under locks
    /// are left out: another client may have held the locks since, and may have changed the same data. So
    /// are removals. Each orphan is made again at most once, however often and from wherever the command
    /// runs: its mark in the bucket `geolock-orphans` is committed with it.
    Orphans(OrphansArgs),
}

#[derive(clap::Args, Clone, Debug)]
struct OrphansArgs {
    /// The data directory of the lost server
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Make the orphans again that were not made under locks
    #[arg(long)]
    apply: bool,
    /// With removals: of keys, of elements of sets, of fields of maps, and resets. They also remove what was
    /// written since
    #[arg(long)]
    with_removals: bool,
    /// Make this orphan again, although it was made under locks: the number of its entry; may be given
    /// several times
    #[arg(long, value_name = "ENTRY")]
    apply_locked: Vec<u64>,
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

pub async fn run(args: JournalArgs) -> Result<(), Failure> {
    let JournalCommand::Orphans(orphans) = args.command;
    list(orphans, &args.connect).await
}

async fn list(args: OrphansArgs, connect: &ConnectArgs) -> Result<(), Failure> {
    let choice = Choice {
        unlocked: args.apply,
        locked: args.apply_locked.iter().copied().collect(),
        removals: args.with_removals,
    };
    if args.with_removals && !choice.repeats() {
        let error = anyhow!("--with-removals needs --apply or --apply-locked");
        return Err(Failure::new(Code::Usage, error));
    }
    let lost = LostDirectory::read(&args.data_dir).or_fail(Code::Usage)?;
    let members = connect.admin_client().await?.members().await.map_err(connect::failure)?;
    let end = End::find(&lost, &members).map_err(|error| Failure::new(Code::Usage, error))?;
    let orphans = lost.orphans_after(end.last_entry).or_fail(Code::Failed)?;
    let known: BTreeSet<u64> = orphans.iter().map(|orphan| orphan.number).collect();
    if let Some(other) = choice.locked.iter().find(|number| !known.contains(number)) {
        let error = anyhow!("entry {other} is none of the orphans of this directory: nothing was made again");
        return Err(Failure::new(Code::Usage, error));
    }
    let outcomes = match choice.repeats() {
        true => Repeat::new(connect, &end, choice).await?.all(&orphans).await?,
        false => Vec::new(),
    };
    report(&args, &end, &orphans, &outcomes)?;
    match outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))) {
        true => Err(Failure::silent(Code::Failed as u8)),
        false => Ok(()),
    }
}

fn report(args: &OrphansArgs, end: &End, orphans: &[Orphan], outcomes: &[Outcome]) -> Result<(), Failure> {
    if args.json {
        let with = |(index, orphan)| show::json(orphan, outcomes.get(index));
        let rows: Vec<_> = orphans.iter().enumerate().map(with).collect();
        let End { dc, generation, last_entry, cause } = end;
        let (dc, how) = (dc.get(), end_cause(*cause));
        return print(
            json!({ "dc": dc, "generation": generation, "last_entry": last_entry, "end": how, "orphans": rows }),
        );
    }
    print(end.text())?;
    if orphans.is_empty() {
        return print("No other commit is in this directory.");
    }
    print(show::table(orphans, outcomes))?;
    let locked = orphans.iter().filter(|orphan| orphan.under.is_some()).count();
    let commits = if orphans.len() == 1 { "commit is" } else { "commits are" };
    print(format_args!(
        "{} {commits} only in this directory, {locked} of them made under locks.",
        orphans.len()
    ))
}

/// The end of the member whose directory this is.
struct End {
    dc: DcId,
    generation: u32,
    last_entry: u64,
    cause: EndCause,
}

impl End {
    fn find(lost: &LostDirectory, members: &ListMembersResponse) -> Result<End, anyhow::Error> {
        let (dc, generation) = lost.member();
        let (id, generation) = (u32::from(dc.get()), u32::from(generation.0));
        let cluster = members
            .cluster
            .ok_or_else(|| anyhow!("the cluster has no list of decisions: no member was ever evicted"))?;
        if cluster != lost.cluster().get() {
            let found = lost.cluster();
            return Err(anyhow!(
                "the data directory belongs to the cluster {found}, the answering server to {cluster:016x}: check \
                 --data-dir and --connect"
            ));
        }
        if members.members.iter().any(|it| it.dc == id && it.generation == generation) {
            return Err(anyhow!(
                "{dc} (generation {generation}) is a member: all its commits count, once it is started"
            ));
        }
        match members.ended.iter().find(|it| it.dc == id && it.generation == generation) {
            Some(ended) => Ok(End { dc, generation, last_entry: ended.last_entry, cause: ended.cause() }),
            None => Err(anyhow!(
                "the cluster does not know generation {generation} of {dc}: it remembers the last 16 members of each id"
            )),
        }
    }

    fn text(&self) -> String {
        let End { dc, generation, last_entry, .. } = self;
        let how = match self.cause {
            EndCause::Left => "has left",
            EndCause::Lost => "was given up by a forced recovery",
            EndCause::Evicted | EndCause::Unspecified => "was evicted",
        };
        format!("{dc} (generation {generation}) {how}: its log ends with entry {last_entry}.")
    }
}
