//! The status for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli::{at_stake, describe, witnesses};
use geolock_api::names::EntryNumber;
use geolock_api::proto::{CertificateStatus, CheckpointStatus, Histogram, JournalStatus, PeerStatus};
use geolock_client::Status;

/// Returns the whole status as one object.
pub(super) fn status(status: &Status) -> Value {
    let peer = |peer: &PeerStatus| {
        json!({
            "dc": peer.dc,
            "dc_name": peer.dc_name,
            "connected": peer.connected,
            "reachable": peer.reachable,
            "acknowledged": seqs(peer.acknowledged.as_ref()),
            "unacked_entries": peer.unacked_entries,
            "lag_ms": peer.lag_ms,
            "missing_entries": peer.missing_entries,
            "too_far_behind": peer.too_far_behind,
            "clock_ahead_ms": peer.clock_ahead_ms,
            "paused_by_skew": peer.paused_by_skew,
            "not_serving": describe::not_serving(peer.not_serving()),
            "grace_remaining_ms": peer.grace_remaining_ms,
            "rtt_us": peer.rtt_us,
            "messages_sent": peer.messages_sent,
            "messages_received": peer.messages_received,
            "bytes_sent": peer.bytes_sent,
            "bytes_received": peer.bytes_received,
            "silent": peer.silent,
            "differing": peer.differing,
            "at_stake": at_stake::json(peer.at_stake.as_ref()),
        })
    };
    json!({
        "dc": status.dc,
        "dc_name": status.dc_name,
        "version": status.version,
        "boot_id": status.boot_id,
        "phase": status.phase().as_str_name().trim_start_matches("PHASE_").to_lowercase(),
        "disk_space": status.disk_space().as_str_name().trim_start_matches("DISK_SPACE_").to_lowercase(),
        "grace_leases": status.grace_leases,
        "draining": status.draining,
        "clock_skew": status.clock_skew,
        "clock_behind_ms": status.clock_behind_ms,
        "backed_for_ms": status.backed_for_ms,
        "unknown_leases_ms": status.unknown_leases_ms,
        "overloaded": status.overloaded,
        "decision": status.decision,
        "epoch": status.epoch,
        "evicting": status.evicting,
        "at_stake": at_stake::json(status.at_stake.as_ref()),
        "waiting_is_least": status.waiting_is_least,
        "applied": seqs(status.applied.as_ref()),
        "durable": seqs(status.durable.as_ref()),
        "logs": logs(status),
        "journal": status.journal.as_ref().map(journal),
        "resident_bytes": status.resident_bytes,
        "certificates": status.certificates.iter().map(certificate).collect::<Vec<_>>(),
        "peers": status.peers.iter().map(peer).collect::<Vec<_>>(),
        "witnesses": status.witnesses.iter().map(witnesses::json).collect::<Vec<_>>(),
        "uptime_ms": status.uptime_ms,
        "durations": status.durations.iter().map(|(name, took)| (name, durations(took))).collect::<BTreeMap<_, _>>(),
        "counts": status.counts.iter().collect::<BTreeMap<_, _>>(),
    })
}

fn durations(took: &Histogram) -> Value {
    let buckets = took
        .buckets
        .iter()
        .map(|one| json!({ "above_us": one.above_us, "up_to_us": one.up_to_us, "count": one.count }));
    json!({ "count": took.count, "sum_us": took.sum_us, "buckets": buckets.collect::<Vec<_>>() })
}

fn certificate(certificate: &CertificateStatus) -> Value {
    json!({
        "name": certificate.name,
        "expires_in_ms": certificate.expires_in_ms,
        "expires_soon": certificate.expires_soon,
        "failure": certificate.failure,
    })
}

fn journal(journal: &JournalStatus) -> Value {
    let checkpoint = |last: &CheckpointStatus| json!({ "position": last.position, "bytes": last.bytes, "age_ms": last.age_ms });
    json!({
        "position": journal.position,
        "files": journal.files,
        "bytes": journal.bytes,
        "backlog_bytes": journal.backlog_bytes,
        "waiting_for_disk_space": journal.waiting_for_disk_space,
        "free_bytes": journal.free_bytes,
        "since_checkpoint_bytes": journal.since_checkpoint_bytes,
        "last_checkpoint": journal.last_checkpoint.as_ref().map(checkpoint),
    })
}

/// Returns how many entries of each log are here, of which generation of that datacenter: its number in a
/// vector is both.
fn logs(status: &Status) -> Vec<Value> {
    let of = |vector: &[u64], dc: usize| EntryNumber(vector.get(dc).copied().unwrap_or(0));
    let (applied, durable) = (seqs(status.applied.as_ref()), seqs(status.durable.as_ref()));
    let log = |dc: usize| {
        let (applied, durable) = (of(applied, dc), of(durable, dc));
        // Of an earlier generation none of these is on disk yet.
        let is_same = applied.generation() == durable.generation();
        json!({
            "dc": dc,
            "generation": applied.generation(),
            "applied": applied.count(),
            "durable": if is_same { durable.count() } else { 0 },
        })
    };
    (0..applied.len()).filter(|dc| applied[*dc] > 0).map(log).collect()
}

fn seqs(snapshot: Option<&geolock_client::Snapshot>) -> &[u64] {
    snapshot.map_or(&[], |snapshot| &snapshot.seqs)
}
