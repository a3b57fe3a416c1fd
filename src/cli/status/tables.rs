//! The parts of the status for people.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::time::brief;
use crate::cli::dc_names::DcNames;
use crate::cli::print::{size, table};
use crate::cli::{at_stake, witnesses};
use geolock_api::names::EntryNumber;
use geolock_api::proto::{CheckpointStatus, JournalStatus, PeerStatus};
use geolock_client::{Snapshot, Status};

/// Returns the other datacenters, a line each.
pub(super) fn peers(status: &Status, names: &DcNames) -> String {
    let header = [
        "OTHERS",
        "LINK",
        "REACHABLE",
        "ROUND TRIP",
        "BEHIND BY",
        "AHEAD BY",
        "CLOCK",
        "SENT",
        "RECEIVED",
        "LOCKS",
        "WAITING",
    ];
    let mut rows = vec![header.map(String::from).to_vec()];
    let yes_no = |yes| if yes { "yes" } else { "NO" };
    for peer in &status.peers {
        rows.push(vec![
            names.show(peer.dc),
            if peer.connected { "up" } else { "DOWN" }.into(),
            yes_no(peer.reachable).into(),
            round_trip(peer),
            behind(peer),
            count(peer.missing_entries, "entry", "entries"),
            format!("{:+} ms", peer.clock_ahead_ms),
            peer.messages_sent.to_string(),
            peer.messages_received.to_string(),
            peer.at_stake.unwrap_or_default().away_locks.to_string(),
            at_stake::waiting(&peer.at_stake.unwrap_or_default(), status.waiting_is_least),
        ]);
    }
    table(&rows)
}

fn round_trip(peer: &PeerStatus) -> String {
    match peer.rtt_us {
        0 => "-".into(),
        rtt => format!("{:.1} ms", rtt as f64 / 1_000.0),
    }
}

fn behind(peer: &PeerStatus) -> String {
    let entries = count(peer.unacked_entries, "entry", "entries");
    match peer.lag_ms {
        0 => entries,
        ms => format!("{entries}, {}", brief(Duration::from_millis(ms))),
    }
}

/// Returns the vectors: how many entries of each log each datacenter has.
pub(super) fn vectors(status: &Status, names: &DcNames) -> String {
    let mut dcs: Vec<u32> = status.peers.iter().map(|peer| peer.dc).chain([status.dc]).collect();
    dcs.sort_unstable();
    let row = |who: String, has: Option<&Snapshot>| {
        let seq = |dc: &u32| has.and_then(|has| has.seqs.get(*dc as usize)).copied().unwrap_or(0);
        [who].into_iter().chain(dcs.iter().map(|dc| EntryNumber(seq(dc)).to_string())).collect()
    };
    let mut rows: Vec<Vec<String>> = vec![
        ["LOG OF".to_owned()].into_iter().chain(dcs.iter().map(|dc| names.show(*dc))).collect(),
        row("here".into(), status.applied.as_ref()),
        row("here on disk".into(), status.durable.as_ref()),
    ];
    rows.extend(
        status
            .peers
            .iter()
            .map(|peer| row(format!("{} has", names.show(peer.dc)), peer.acknowledged.as_ref())),
    );
    table(&rows)
}

/// Returns the last change of the members, and the consequences if this datacenter died now.
pub(super) fn members(status: &Status, names: &DcNames) -> String {
    let mut rows = vec![("members", String::new())];
    rows.push(("  epoch", format!("{}, decision {}", status.epoch, status.decision)));
    if !status.evicting.is_empty() {
        rows.push(("  evicting", names.list(&status.evicting)));
    }
    if let Some(ms) = status.backed_for_ms {
        rows.push(("  backed", format!("for {}", brief(Duration::from_millis(ms)))));
    }
    let mut heading = "  witnesses";
    for witness in &status.witnesses {
        rows.push((heading, format!("dc{} ({}) {}", witness.dc, witness.name, witnesses::state(witness))));
        heading = "";
    }
    if let Some(stake) = &status.at_stake {
        let waiting = status.counts.get("waiting").copied().unwrap_or(0);
        let clients = format!(
            "{}, {} with locks, {waiting} waiting",
            count(stake.leases.unwrap_or(0), "lease", "leases"),
            count(stake.held.unwrap_or(0), "request", "requests"),
        );
        let others = format!(
            "{} of others wait for parts that are here",
            at_stake::waiting(stake, status.waiting_is_least)
        );
        let lost = match stake.only_here {
            Some(entries) => format!("{} that no other has", count(entries, "entry", "entries")),
            None => "all: there is no other datacenter".into(),
        };
        rows.extend([
            ("at stake", String::new()),
            ("  locks", format!("{} with parts of others", stake.away_locks)),
            ("  clients", clients),
            ("  requests", others),
            ("  lost", lost),
        ]);
    }
    lines(&rows)
}

/// Returns the figures of disk and memory.
pub(super) fn journal_and_store(status: &Status) -> String {
    let mut rows = Vec::new();
    if let Some(journal) = &status.journal {
        journal_rows(journal, &mut rows);
    }
    let counted = |name: &str| status.counts.get(name).copied().unwrap_or(0);
    let open = format!(
        "{}, {}; {} kept for them",
        count(counted("transactions"), "transaction", "transactions"),
        count(counted("snapshots"), "snapshot", "snapshots"),
        count(counted("uncompacted_changes"), "change", "changes"),
    );
    let marks = count(counted("tombstones_pending"), "mark", "marks");
    rows.extend([
        ("store", String::new()),
        ("  keys", format!("{}, with about {} of values", counted("keys"), size(counted("value_bytes")))),
        ("  open", open),
        ("  removals", format!("{marks} that some datacenter may not have seen")),
    ]);
    if status.resident_bytes > 0 {
        rows.push(("memory", size(status.resident_bytes)));
    }
    if !status.certificates.is_empty() {
        rows.push(("certificates", String::new()));
    }
    let names: Vec<String> = status.certificates.iter().map(|one| format!("  {}", one.name)).collect();
    for (name, certificate) in names.iter().zip(&status.certificates) {
        let left = Duration::from_millis(certificate.expires_in_ms);
        rows.push((name, format!("good for {}", brief(left))));
    }
    lines(&rows)
}

fn lines(rows: &[(&str, String)]) -> String {
    let line = |(name, value): &(&str, String)| format!("{name:<13}  {value}").trim_end().to_owned();
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn journal_rows(journal: &JournalStatus, rows: &mut Vec<(&str, String)>) {
    let log = format!(
        "{}, {}; a restart reads {}",
        count(journal.files, "file", "files"),
        size(journal.bytes),
        size(journal.since_checkpoint_bytes)
    );
    let for_room = if journal.waiting_for_disk_space { ", for room on the disk" } else { "" };
    rows.extend([
        ("journal", String::new()),
        ("  log", log),
        ("  checkpoint", checkpoint(journal)),
        ("  waiting", size(journal.backlog_bytes) + for_room),
    ]);
    if let Some(free) = journal.free_bytes {
        rows.push(("  disk", format!("{} free", size(free))));
    }
}

fn checkpoint(journal: &JournalStatus) -> String {
    let Some(CheckpointStatus { position, bytes, age_ms }) = journal.last_checkpoint else {
        return "none yet".into();
    };
    let made = match age_ms {
        Some(ms) => format!("made {} ago", brief(Duration::from_millis(ms))),
        None => "made by an earlier run".into(),
    };
    format!("{}, {made}, up to record {position} of {}", size(bytes), journal.position)
}

/// Returns the counts that are not shown elsewhere and not 0, by name.
pub(super) fn counts(status: &Status) -> String {
    let elsewhere =
        ["keys", "value_bytes", "uncompacted_changes", "snapshots", "tombstones_pending", "transactions"];
    let counts: BTreeMap<_, _> = status.counts.iter().collect();
    let rest = counts.iter().filter(|(name, count)| ***count > 0 && !elsewhere.contains(&name.as_str()));
    table(&rest.map(|(name, count)| vec![(*name).clone(), count.to_string()]).collect::<Vec<_>>())
}

fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
