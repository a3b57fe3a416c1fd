//! Descriptions, listings and status, as messages for people and tools.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::server_info::{ServerInfo, VERSION};
use super::show_top;
use crate::base::capacity::{DiskSpace, Load};
use crate::crdt::VersionVector;
use crate::journal::{Figures, LastCheckpoint};
use crate::replica::NotServing;
use crate::replica::call::{
    Counts, HolderInfo, LockDescription, LockSummary, PeerStatus, Phase, Status, WaiterInfo,
};
use crate::replica::force_release::{ForceReleaseOutcome, ForceReleased};
use crate::telemetry::{CertificateFigures, LinkFigures, Snapshot, resident_bytes};
use geolock_api::names::{DcId, DcSet, LockName, Mode, RequestId};
use geolock_api::proto;

/// Returns whole milliseconds, rounded up: a client that waits for a rounded-down time would try once too
/// often.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn request(id: RequestId) -> proto::RequestId {
    proto::RequestId { dc: id.dc.get().into(), n: id.n }
}

pub(super) fn mode(mode: Mode) -> proto::Mode {
    match mode {
        Mode::Shared => proto::Mode::Shared,
        Mode::Exclusive => proto::Mode::Exclusive,
    }
}

pub(super) fn snapshot(vector: &VersionVector) -> proto::Snapshot {
    let mut seqs = Vec::new();
    for (dc, seq) in vector.iter() {
        seqs.resize(dc.index() + 1, 0);
        seqs[dc.index()] = seq;
    }
    proto::Snapshot { seqs }
}

pub(super) fn description(lock: &LockDescription) -> proto::LockDescription {
    let owner = |(part, owner): &(geolock_api::names::DcId, geolock_api::names::DcId)| proto::PartOwner {
        part: part.get().into(),
        owner: owner.get().into(),
    };
    proto::LockDescription {
        name: name(&lock.lock),
        home: lock.lock.home_field(),
        owners: lock.owners.iter().map(owner).collect(),
        holders: lock.holders.iter().map(holder).collect(),
        unknown_dcs: dcs(lock.unknown),
        waiters: lock.waiters.iter().map(waiter).collect(),
        waiting: lock.waiting as u64,
        unreachable_dcs: dcs(lock.unreachable),
        not_serving: lock.not_serving.iter().map(|(dc, why)| not_serving_owner(*dc, *why)).collect(),
    }
}

fn not_serving_owner(dc: DcId, why: NotServing) -> proto::NotServingOwner {
    let (reason, grace_remaining_ms) = not_serving(Some(why));
    proto::NotServingOwner { dc: dc.get().into(), reason: reason.into(), grace_remaining_ms }
}

/// Returns the reason, and the remaining time in milliseconds if known.
fn not_serving(why: Option<NotServing>) -> (proto::NotServing, u64) {
    match why {
        None => (proto::NotServing::Unspecified, 0),
        Some(NotServing::Starting) => (proto::NotServing::Starting, 0),
        Some(NotServing::ReadOnly) => (proto::NotServing::ReadOnly, 0),
        Some(NotServing::Grace { for_ms }) => (proto::NotServing::Grace, for_ms.into()),
        Some(NotServing::ClockSkew) => (proto::NotServing::ClockSkew, 0),
        Some(NotServing::DiskFull) => (proto::NotServing::DiskFull, 0),
        Some(NotServing::Forked) => (proto::NotServing::Forked, 0),
        Some(NotServing::LogFull) => (proto::NotServing::LogFull, 0),
        Some(NotServing::ClockBehind) => (proto::NotServing::ClockBehind, 0),
    }
}

fn holder(holder: &HolderInfo) -> proto::Holder {
    proto::Holder {
        dc: holder.dc.get().into(),
        request: Some(request(holder.request)),
        mode: mode(holder.mode).into(),
        token: holder.token.0,
        label: holder.label.to_string(),
        held_for_ms: millis(holder.held_for),
    }
}

fn waiter(waiter: &WaiterInfo) -> proto::Waiter {
    proto::Waiter {
        request: Some(request(waiter.request)),
        mode: mode(waiter.mode).into(),
        label: waiter.label.as_deref().unwrap_or_default().to_owned(),
        at_ms: waiter.at.millis(),
        parked: waiter.parked,
    }
}

pub(super) fn force_release_outcome(
    info: &ServerInfo,
    outcome: &ForceReleaseOutcome,
) -> proto::ForceReleaseResponse {
    proto::ForceReleaseResponse {
        released: outcome.taken.iter().map(|taken| forced(taken)).collect(),
        lock: Some(description(&outcome.lock)),
        dc: info.dc.get().into(),
    }
}

pub(super) fn forced(forced: &ForceReleased) -> proto::AuditRecord {
    proto::AuditRecord {
        number: forced.number,
        at_ms: forced.at_ms,
        force_released: Some(force_released(forced)),
        name: name(&forced.lock),
        home: forced.lock.home_field(),
        mode: mode(forced.mode).into(),
        request: Some(request(forced.request)),
        token: forced.token.0,
        label: forced.label.to_string(),
        lease: forced.lease.get(),
        locks: forced.locks,
    }
}

pub(super) fn force_released(forced: &ForceReleased) -> proto::ForceReleased {
    proto::ForceReleased { operator: forced.operator.to_string(), reason: forced.reason.as_str().to_owned() }
}

pub(super) fn summary(lock: &LockSummary) -> proto::LockSummary {
    proto::LockSummary {
        name: name(&lock.lock),
        home: lock.lock.home_field(),
        owned_parts: dcs(lock.owned_parts),
        holders: lock.holders as u64,
        held_mode: lock.held.map_or(proto::Mode::Unspecified, mode).into(),
        waiting: lock.waiting as u64,
    }
}

/// `picture`: the latest figures of the rest of the server; `None` before the first ones.
pub(super) fn status(
    info: &ServerInfo,
    status: &Status,
    picture: Option<&Snapshot>,
    certificates: &[CertificateFigures],
) -> proto::StatusResponse {
    let links = picture.map_or(&[][..], |picture| &picture.links);
    let (phase, grace_leases) = match status.phase {
        Phase::Starting => (proto::Phase::Starting, 0),
        Phase::ReadOnly => (proto::Phase::ReadOnly, 0),
        Phase::Grace { leases } => (proto::Phase::Grace, leases as u64),
        Phase::Serving => (proto::Phase::Serving, 0),
        Phase::Forked { .. } => (proto::Phase::Forked, 0),
    };
    proto::StatusResponse {
        dc: status.dc.get().into(),
        dc_name: info.name(status.dc),
        version: VERSION.to_owned(),
        boot_id: info.boot_id,
        phase: phase.into(),
        grace_leases,
        draining: status.draining,
        clock_skew: status.clock_skew,
        clock_behind_ms: status.clock_behind_ms,
        overloaded: status.load == Load::TooMuch,
        applied: Some(snapshot(&status.applied)),
        durable: Some(snapshot(&status.durable)),
        peers: status.peers.iter().map(|peer| peer_status(info, peer, links)).collect(),
        counts: counts(&status.counts),
        durations: show_top::durations(status, picture),
        uptime_ms: millis(info.started.elapsed()),
        disk_space: disk_space(status.disk_space).into(),
        journal: picture.map(|picture| journal(&picture.journal)),
        resident_bytes: resident_bytes().unwrap_or(0),
        certificates: certificates.iter().map(certificate).collect(),
    }
}

fn certificate(figures: &CertificateFigures) -> proto::CertificateStatus {
    proto::CertificateStatus {
        name: figures.name.to_owned(),
        expires_in_ms: millis(figures.left()),
        expires_soon: figures.expires_soon,
        failure: figures.failure.clone().unwrap_or_default(),
    }
}

fn journal(figures: &Figures) -> proto::JournalStatus {
    let checkpoint = |last: LastCheckpoint| proto::CheckpointStatus {
        position: last.position,
        bytes: last.bytes,
        age_ms: last.made.map(|made| millis(made.elapsed())),
    };
    proto::JournalStatus {
        position: figures.durable,
        files: figures.log.segments,
        bytes: figures.log.bytes,
        backlog_bytes: figures.backlog_bytes,
        waiting_for_disk_space: figures.waiting_for_disk_space,
        free_bytes: figures.free_bytes,
        since_checkpoint_bytes: figures.since_checkpoint,
        last_checkpoint: figures.last_checkpoint.map(checkpoint),
    }
}

fn disk_space(space: DiskSpace) -> proto::DiskSpace {
    match space {
        DiskSpace::Enough => proto::DiskSpace::Enough,
        DiskSpace::Low => proto::DiskSpace::Low,
        DiskSpace::Full => proto::DiskSpace::Full,
    }
}

fn peer_status(info: &ServerInfo, peer: &PeerStatus, links: &[LinkFigures]) -> proto::PeerStatus {
    let link = links.iter().find(|link| link.peer == peer.dc);
    let rtt = link.and_then(|link| link.rtt);
    let (why, grace_remaining_ms) = not_serving(peer.not_serving);
    proto::PeerStatus {
        not_serving: why.into(),
        grace_remaining_ms,
        dc: peer.dc.get().into(),
        dc_name: info.name(peer.dc),
        connected: peer.connected,
        reachable: peer.reachable,
        acknowledged: Some(snapshot(&peer.acknowledged)),
        unacked_entries: peer.unacked_entries,
        lag_ms: peer.lag_ms,
        missing_entries: peer.missing_entries,
        too_far_behind: peer.too_far_behind,
        clock_ahead_ms: peer.clock_ahead_ms,
        paused_by_skew: peer.paused_by_skew,
        rtt_us: rtt.map_or(0, micros),
        messages_sent: link.map_or(0, |link| link.messages_sent),
        messages_received: link.map_or(0, |link| link.messages_received),
        bytes_sent: link.map_or(0, |link| link.bytes_sent),
        bytes_received: link.map_or(0, |link| link.bytes_received),
    }
}

/// Returns the counts by name; a new field that is missing here does not compile.
fn counts(counts: &Counts) -> BTreeMap<String, u64> {
    macro_rules! by_name {
        ({ $($gauge:ident)* } { $($counter:ident)* }) => {{
            let Counts { $($gauge,)* $($counter),* } = *counts;
            BTreeMap::from([
                $((stringify!($gauge).to_owned(), $gauge),)*
                $((concat!(stringify!($counter), "_total").to_owned(), $counter)),*
            ])
        }};
    }
    by_name!(
        { leases held waiting published remote_requests parked locks_active locks_moved locks_away_here log_entries held_back
          transactions watches keys value_bytes uncompacted_changes snapshots tombstones_pending keys_expiring
          waiting_for_majority }
        {
            grants grants_local releases refusals timeouts cancels leases_expired part_transfers_sent
            part_transfers_received hand_offs_sent hand_offs_received idle_returns_age idle_returns_number idle_returns_shared entries_made entries_applied entries_relayed duplicates violations skew_pauses
            commits removals aborts transactions_killed anti_entropy_rounds digests_compared digest_mismatches
            rights_transferred state_transfers_sent state_transfers_received keys_expired watch_events_dropped force_releases calls_shed
            commits_not_at_majority
        }
    )
}

pub(super) fn name(lock: &LockName) -> Bytes {
    Bytes::copy_from_slice(lock.as_bytes())
}

pub(super) fn dcs(set: DcSet) -> Vec<u32> {
    set.iter().map(|dc| dc.get().into()).collect()
}
