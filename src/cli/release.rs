//! `geolock release`: takes a lock from its holder.

use std::ffi::OsString;

use anyhow::anyhow;
use serde_json::{Value, json};

use super::audit;
use super::connect::{self, ConnectArgs};
use super::dc_names::DcNames;
use super::describe::{held, holder_json};
use super::failure::{Code, Failure, OrFail as _};
use super::home::HomeArgs;
use super::print::{named, print, table};
use geolock_api::names::ForceReason;
use geolock_api::proto::Holder;
use geolock_client::{ForceReleaseResponse, LockDescription};

/// Take a lock from its holder in this datacenter.
///
/// For a holder that hangs and cannot be ended where it runs. The holder loses the lock, with all other
/// locks of the same request; a transaction cannot commit any more; `geolock lock` ends its command. The
/// holder is informed of the operator and the reason, and `geolock audit` lists them. The next holder has a
/// higher token.
///
/// A process that continues is not stopped by this: let the protected resource refuse tokens below the
/// highest it has seen.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0: released, or not held; 1: it is held, or may be held, in another datacenter: connect to that one; 69: no server \
reachable, or one that has just restarted; 77: the server does not allow it; 64: wrong usage.

Example:
  geolock release nightly-report --force --reason 'report.sh hangs since Monday, ticket 4711'")]
pub struct ReleaseArgs {
    /// The lock: any bytes, up to 1024
    #[arg(value_parser = clap::value_parser!(OsString))]
    name: OsString,
    #[command(flatten)]
    home: HomeArgs,
    /// Required, because only its holder should release a lock
    #[arg(long, required = true)]
    force: bool,
    /// The reason: a line of up to 256 bytes
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// For programs: one JSON object; the lock is `name`, or `name_base64` if it is not UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: ReleaseArgs) -> Result<(), Failure> {
    let name = args.home.find(&args.connect).await?.lock(&args.name)?;
    let reason = ForceReason::new(&args.reason).or_fail(Code::Usage)?;
    let operator = args.connect.admin_client().await?;
    let mut all = operator.force_release(&name, &reason).await.map_err(connect::failure)?;
    // One call is not enough if very many hold it shared.
    while !all.released.is_empty() && is_held_here(&all) {
        let more = operator.force_release(&name, &reason).await.map_err(connect::failure)?;
        if more.released.is_empty() {
            break;
        }
        all.released.extend(more.released);
        all.lock = more.lock;
    }
    if args.json {
        print(json(&all))?;
    } else {
        all.released.iter().try_for_each(|taken| print(format!("released: {}", audit::lost(taken))))?;
    }
    let lock = all.lock.clone().unwrap_or_default();
    let elsewhere: Vec<&Holder> = lock.holders.iter().filter(|holder| holder.dc != all.dc).collect();
    if !elsewhere.is_empty() || !lock.unknown_dcs.is_empty() {
        let names = DcNames::of_answer(operator.read_client().status().await);
        return Err(held_elsewhere(&lock, &elsewhere, &names));
    }
    if all.released.is_empty() && !args.json {
        print(format!("Nobody holds {}: nothing was changed.", name))?;
    }
    Ok(())
}

fn is_held_here(answer: &ForceReleaseResponse) -> bool {
    answer.lock.iter().flat_map(|lock| &lock.holders).any(|holder| holder.dc == answer.dc)
}

/// Returns the failure that names the other datacenters.
fn held_elsewhere(lock: &LockDescription, elsewhere: &[&Holder], names: &DcNames) -> Failure {
    let mut said = Vec::new();
    if !elsewhere.is_empty() {
        let rows: Vec<_> = elsewhere.iter().map(|holder| held(holder, names)).collect();
        said.push(format!(
            "it is held in another datacenter: take it away there (--connect)\n{}",
            table(&rows)
        ));
    }
    if !lock.unknown_dcs.is_empty() {
        let unknown = names.list(&lock.unknown_dcs);
        said.push(format!("it may be held in {unknown}, which did not say in time"));
    }
    Failure::new(Code::Failed, anyhow!(said.join("\n")))
}

fn json(all: &ForceReleaseResponse) -> Value {
    let lock = all.lock.clone().unwrap_or_default();
    let rest = json!({
        "released": all.released.iter().map(audit::json).collect::<Vec<_>>(),
        "holders": lock.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "unknown_dcs": lock.unknown_dcs,
    });
    named(&lock.name, lock.home, rest)
}
