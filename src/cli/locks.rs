//! `geolock locks`: lists the locks that are held, waited for, or away from home.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use super::connect::{self, ConnectArgs};
use super::failure::Failure;
use super::print::{lock_name, named, print};
use geolock_api::proto::Mode;
use geolock_client::{LockSummary, Page};

/// List locks that are held, waited for, or were moved between datacenters.
///
/// As the answering datacenter knows them: HELD is the mode in which the lock is held in this datacenter,
/// HOLDERS the number of requests that hold it here, WAITING the number of requests that wait for it in all
/// datacenters, PARTS HERE the parts of it that are here, HOME its home if its name has one. In no particular
/// order.
#[derive(clap::Args, Clone, Debug)]
pub struct LocksArgs {
    /// Only locks whose names start with this
    #[arg(value_parser = clap::value_parser!(OsString), default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Only locks that are held in this datacenter, or waited for
    #[arg(long)]
    held: bool,
    /// For programs: one JSON object a line; a lock is `name`, or `name_base64` if it is not UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Locks per call.
const PAGE: u32 = 1_000;

pub async fn run(args: LocksArgs) -> Result<(), Failure> {
    let reader = args.connect.read_client().await?;
    let mut page = Page { size: PAGE, ..Page::default() };
    let mut listed = 0;
    loop {
        let answer = reader.list_locks(args.prefix.as_bytes(), page).await.map_err(connect::failure)?;
        let wanted: Vec<&LockSummary> =
            answer.locks.iter().filter(|lock| !args.held || is_in_use(lock)).collect();
        if listed == 0 && !wanted.is_empty() && !args.json {
            print(row(["HELD", "HOLDERS", "WAITING", "PARTS HERE", "HOME", "NAME"].map(String::from)))?;
        }
        listed += wanted.len();
        for lock in wanted {
            if args.json { print(json(lock))? } else { print(row(cells(lock)))? }
        }
        match answer.next {
            Some(token) => page = Page { size: PAGE, token },
            None => break,
        }
    }
    if listed == 0 && !args.json {
        print(match args.held {
            true => "No lock is held here, or waited for.",
            false => "No lock is held, waited for, or away from home.",
        })?;
    }
    Ok(())
}

fn is_in_use(lock: &LockSummary) -> bool {
    held(lock).is_some() || lock.waiting > 0
}

/// The name comes last, so that a long one does not widen a column.
fn row([held, holders, waiting, parts, home, name]: [String; 6]) -> String {
    format!("{held:<9}  {holders:>7}  {waiting:>7}  {parts:<10}  {home:<4}  {name}")
}

fn cells(lock: &LockSummary) -> [String; 6] {
    let parts: Vec<_> = lock.owned_parts.iter().map(u32::to_string).collect();
    let parts = if parts.is_empty() { "none".into() } else { parts.join(",") };
    let held = held(lock).unwrap_or("no");
    let home = lock.home.map_or_else(|| "-".into(), |home| format!("dc{home}"));
    let (holders, waiting) = (lock.holders.to_string(), lock.waiting.to_string());
    [held.into(), holders, waiting, parts, home, lock_name(&lock.name, None)]
}

fn held(lock: &LockSummary) -> Option<&'static str> {
    match lock.held_mode() {
        Mode::Shared => Some("shared"),
        Mode::Exclusive => Some("exclusive"),
        Mode::Unspecified => None,
    }
}

fn json(lock: &LockSummary) -> Value {
    let rest = json!({
        "held_mode": held(lock),
        "holders": lock.holders,
        "waiting": lock.waiting,
        "owned_parts": lock.owned_parts,
    });
    named(&lock.name, lock.home, rest)
}
