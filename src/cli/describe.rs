//! `geolock describe`: shows the holders of a lock, and why requests wait for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::connect::{self, ConnectArgs};
use super::dc_names::DcNames;
use super::failure::Failure;
use super::home::HomeArgs;
use super::print::{lock_name, named, number, print, table};
use crate::base::time::brief;
use geolock_api::proto::{self, Holder, NotServing, Waiter};
use geolock_client::LockDescription;

/// Show the holders of a lock, and why requests wait for it.
///
/// Asks the server of this datacenter, which asks the others for their holders; that takes up to a second.
#[derive(clap::Args, Clone, Debug)]
pub struct DescribeArgs {
    /// The lock: any bytes, up to 1024
    #[arg(value_parser = clap::value_parser!(OsString))]
    name: OsString,
    #[command(flatten)]
    home: HomeArgs,
    /// For programs: one JSON object; the lock is `name`, or `name_base64` if it is not UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: DescribeArgs) -> Result<(), Failure> {
    let name = args.home.find(&args.connect).await?.lock(&args.name)?;
    let reader = args.connect.read_client().await?;
    let described = reader.describe_lock(&name).await.map_err(connect::failure)?;
    let names = DcNames::of_answer(reader.status().await);
    if args.json { print(json(&described)) } else { print(text(&described, &names).trim_end()) }
}

/// Returns some lines for people that start with the lock's name.
pub(super) fn text(lock: &LockDescription, names: &DcNames) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    text_at(now, lock, names)
}

/// As [`text`], at a given time since the epoch.
fn text_at(now: Duration, lock: &LockDescription, names: &DcNames) -> String {
    let mut text = format!("lock {}\n", lock_name(&lock.name, None));
    let mut line = |label: &str, said: &str| {
        for (number, part) in said.lines().enumerate() {
            let label = if number == 0 { label } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {label:<13}{part}");
        }
    };
    if let Some(home) = lock.home {
        line("home", &names.show(home));
    }
    if let Some(home) = lock.prefix_home {
        line("home", &format!("{}, by its prefix", names.show(home)));
    }
    line("parts", &parts(lock, names));
    let restarted = restarted_owners(lock);
    if lock.holders.is_empty() {
        let all_known = lock.unknown_dcs.is_empty() && restarted.is_empty();
        line("held by", if all_known { "nobody" } else { "no known holder" });
    }
    line("held by", &table(&lock.holders.iter().map(|holder| held(holder, names)).collect::<Vec<_>>()));
    if !lock.unknown_dcs.is_empty() {
        line("unknown", &format!("the holders in {}: no answer in time", names.list(&lock.unknown_dcs)));
    }
    if !restarted.is_empty() {
        let whose = names.list(&restarted);
        line("unknown", &format!("the holders in {whose} before the restart: they may reclaim the lock"));
    }
    if !lock.unreachable_dcs.is_empty() {
        let away = names.list_unheard(&lock.unreachable_dcs);
        line(
            "unreachable",
            &format!("{away}: requests that need its parts wait until it returns or is evicted"),
        );
    }
    for owner in &lock.not_serving {
        let why = why_not_serving(owner.reason(), owner.grace_remaining_ms);
        line(
            "not serving",
            &format!("{} {why}: requests that need its parts wait until that ends", names.show(owner.dc)),
        );
    }
    let waiters: Vec<_> =
        lock.waiters.iter().enumerate().map(|(place, waiter)| waits(place, waiter, now, names)).collect();
    line("waiting", &table(&waiters));
    let more = lock.waiting.saturating_sub(lock.waiters.len() as u64);
    if more > 0 {
        line("", &format!("and {more} more"));
    }
    text
}

/// Returns the owners of parts that were restarted a moment ago: a client may hold the lock and not have
/// reclaimed it yet.
fn restarted_owners(lock: &LockDescription) -> Vec<u32> {
    let is_owner = |dc: u32| lock.owners.iter().any(|part| part.owner == dc);
    let reclaims = |why: NotServing| matches!(why, NotServing::Starting | NotServing::Grace);
    let owners = lock.not_serving.iter().filter(|owner| is_owner(owner.dc) && reclaims(owner.reason()));
    owners.map(|owner| owner.dc).collect()
}

fn parts(lock: &LockDescription, names: &DcNames) -> String {
    let Some(first) = lock.owners.first() else { return "unknown".into() };
    if lock.owners.iter().all(|part| part.owner == first.owner) {
        return format!("all {} in {}", lock.owners.len(), names.show(first.owner));
    }
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    lock.owners.iter().for_each(|part| *counts.entry(part.owner).or_default() += 1);
    let all = lock.owners.len();
    let owned = counts.iter().map(|(owner, count)| format!("{count} of {all} in {}", names.show(*owner)));
    owned.collect::<Vec<_>>().join(", ")
}

pub(super) fn held(holder: &Holder, names: &DcNames) -> Vec<String> {
    vec![
        label(&holder.label),
        mode(holder.mode).into(),
        format!("in {}", names.show(holder.dc)),
        format!("for {}", brief(Duration::from_millis(holder.held_for_ms))),
        format!("token {}", holder.token),
    ]
}

fn waits(place: usize, waiter: &Waiter, now: Duration, names: &DcNames) -> Vec<String> {
    let dc = waiter
        .request
        .as_ref()
        .map_or_else(String::new, |request| format!("from {}", names.show(request.dc)));
    let since = brief(now.saturating_sub(Duration::from_millis(waiter.at_ms)));
    let parked = if waiter.parked { "parked: needs a datacenter that does not serve now" } else { "" };
    // Other datacenters do not get the labels of waiting requests.
    let elsewhere = waiter.request.as_ref().map(|request| request.dc).filter(|dc| names.is_elsewhere(*dc));
    let label = match elsewhere {
        Some(dc) if waiter.label.is_empty() => format!("(label known in dc{dc})"),
        _ => label(&waiter.label),
    };
    vec![
        format!("{}.", place + 1),
        label,
        mode(waiter.mode).into(),
        dc,
        format!("since {since}"),
        parked.into(),
    ]
}

/// Returns the text after the name of a datacenter that is reachable and does not serve.
pub(super) fn why_not_serving(reason: NotServing, grace_remaining_ms: u64) -> String {
    match reason {
        NotServing::Unspecified => "does not serve".into(),
        NotServing::Starting => "is starting".into(),
        NotServing::ReadOnly => "is read-only: it does not know all of its own log".into(),
        NotServing::Grace => format!("is in grace for {} s more", grace_remaining_ms.div_ceil(1_000)),
        NotServing::ClockSkew => "has a clock that is too far ahead of most others".into(),
        NotServing::DiskFull => "has a full disk".into(),
        NotServing::Forked => "is forked: two datacenters have different entries of one log".into(),
        NotServing::ClockBehind => "has a clock that is too far behind most others".into(),
        NotServing::Unbacked => "is not backed by a majority of the voters, and may be evicted".into(),
        NotServing::LogFull => "has a full log: too few others can be reached".into(),
    }
}

/// Escapes the label of another client, so that it cannot send control characters to a terminal.
pub(super) fn label(text: &str) -> String {
    if text.is_empty() { "(no label)".into() } else { text.escape_debug().to_string().replace("\\'", "'") }
}

pub(super) fn mode(mode: i32) -> &'static str {
    match proto::Mode::try_from(mode) {
        Ok(proto::Mode::Shared) => "shared",
        Ok(proto::Mode::Exclusive) => "exclusive",
        _ => "",
    }
}

/// For programs; `None` if it serves or is unreachable.
pub(super) fn not_serving(why: NotServing) -> Option<String> {
    let name = why.as_str_name().trim_start_matches("NOT_SERVING_").to_lowercase();
    (why != NotServing::Unspecified).then_some(name)
}

fn json(lock: &LockDescription) -> Value {
    let waiter = |waiter: &Waiter| {
        json!({
            "request": request(waiter.request.as_ref()),
            "mode": mode(waiter.mode),
            "label": waiter.label,
            "at_ms": waiter.at_ms,
            "parked": waiter.parked,
        })
    };
    let mut rest = json!({
        "owners": lock.owners.iter().map(|part| json!({ "part": part.part, "owner": part.owner })).collect::<Vec<_>>(),
        "holders": lock.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "unknown_dcs": lock.unknown_dcs,
        "waiters": lock.waiters.iter().map(waiter).collect::<Vec<_>>(),
        "waiting": lock.waiting,
        "unreachable_dcs": lock.unreachable_dcs,
        "not_serving": lock.not_serving.iter().map(|owner| json!({
            "dc": owner.dc,
            "reason": not_serving(owner.reason()),
            "grace_remaining_ms": owner.grace_remaining_ms,
        })).collect::<Vec<_>>(),
    });
    if let Some(home) = lock.prefix_home {
        rest["prefix_home"] = home.into();
    }
    named(&lock.name, lock.home, rest)
}

pub(super) fn holder_json(holder: &Holder) -> Value {
    json!({
        "dc": holder.dc,
        "request": request(holder.request.as_ref()),
        "mode": mode(holder.mode),
        "token": number(holder.token),
        "label": holder.label,
        "held_for_ms": holder.held_for_ms,
    })
}

pub(super) fn request(request: Option<&proto::RequestId>) -> Value {
    request.map_or(Value::Null, |id| format!("dc{}#{}", id.dc, id.n).into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use geolock_api::proto::{AtStake, PartOwner, PeerStatus, RequestId};
    use geolock_client::Status;

    fn names() -> DcNames {
        let peer = PeerStatus { dc: 1, dc_name: "virginia".into(), ..PeerStatus::default() };
        let heard = AtStake { heard_ms: Some(12_500), ..AtStake::default() };
        let lost = PeerStatus { dc: 2, at_stake: Some(heard), ..PeerStatus::default() };
        DcNames::of(&Status { dc: 0, dc_name: "fra".into(), peers: vec![peer, lost], ..Status::default() })
    }

    #[test]
    fn it_says_who_has_it_and_what_the_others_wait_for() {
        let exclusive = proto::Mode::Exclusive.into();
        let holder = Holder {
            dc: 1,
            mode: exclusive,
            token: 77,
            label: "eve\x1b[2J".into(),
            held_for_ms: 61_000,
            ..Holder::default()
        };
        let waiter = |n, label: &str, at_ms, parked| Waiter {
            request: Some(RequestId { dc: 0, n }),
            mode: exclusive,
            label: label.into(),
            at_ms,
            parked,
        };
        let lock = LockDescription {
            prefix_home: None,
            home: None,
            name: Bytes::from_static(b"orders"),
            owners: vec![PartOwner { part: 0, owner: 0 }, PartOwner { part: 1, owner: 1 }],
            holders: vec![holder],
            unknown_dcs: vec![0],
            waiters: vec![waiter(1, "bob@web", 7_500, false), waiter(2, "", 9_000, true)],
            waiting: 5,
            unreachable_dcs: vec![2],
            not_serving: vec![proto::NotServingOwner {
                dc: 1,
                reason: NotServing::Grace.into(),
                grace_remaining_ms: 11_500,
            }],
        };
        let expected = "\
lock orders
  parts        1 of 2 in dc0 (fra), 1 of 2 in dc1 (virginia)
  held by      eve\\u{1b}[2J  exclusive  in dc1 (virginia)  for 1 min 1 s  token 77
  unknown      the holders in dc0 (fra): no answer in time
  unknown      the holders in dc1 (virginia) before the restart: they may reclaim the lock
  unreachable  dc2, last heard 12.5 s ago: requests that need its parts wait until it returns or is evicted
  not serving  dc1 (virginia) is in grace for 12 s more: requests that need its parts wait until that ends
  waiting      1.  bob@web     exclusive  from dc0 (fra)  since 2.5 s
               2.  (no label)  exclusive  from dc0 (fra)  since 1.0 s  parked: needs a datacenter that does not serve now
               and 3 more
";
        assert_eq!(text_at(Duration::from_secs(10), &lock, &names()), expected);
    }

    #[test]
    fn what_may_be_reclaimed_is_not_said_to_be_free() {
        let owners = vec![PartOwner { part: 0, owner: 1 }];
        let restarted = |dc, reason: NotServing| {
            let why = proto::NotServingOwner { dc, reason: reason.into(), grace_remaining_ms: 500 };
            let (owners, not_serving) = (owners.clone(), vec![why]);
            let lock = LockDescription { owners, not_serving, ..LockDescription::default() };
            text_at(Duration::ZERO, &lock, &names())
        };
        let unknown = "held by      no known holder";
        assert!(restarted(1, NotServing::Grace).contains(unknown));
        assert!(restarted(1, NotServing::Starting).contains(unknown));
        assert!(!restarted(1, NotServing::DiskFull).contains(unknown), "it knows all");
        assert!(!restarted(0, NotServing::Grace).contains(unknown), "it has no part");
    }

    #[test]
    fn a_lock_that_nobody_has() {
        let owners = (0..3).map(|part| PartOwner { part, owner: 1 }).collect();
        let lock =
            LockDescription { name: Bytes::from_static(b"\xff"), owners, ..LockDescription::default() };
        let expected = "lock \\xff\n  parts        all 3 in dc1 (virginia)\n  held by      nobody\n";
        assert_eq!(text_at(Duration::ZERO, &lock, &names()), expected);
        assert_eq!(json(&lock)["name_base64"], "/w==");
        let homed = LockDescription { home: Some(1), ..lock };
        let expected = "lock \\xff\n  home         dc1 (virginia)\n  parts        all 3 in dc1 (virginia)\n  held by      nobody\n";
        assert_eq!(text_at(Duration::ZERO, &homed, &names()), expected);
        assert_eq!(json(&homed)["home"], 1);
    }
}
