//! The status of the server, for people and tools.

use std::collections::BTreeMap;

use super::fields::{micros, millis, snapshot_message};
use super::members::{self, ids, own_stake, stake_of};
use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::{Bucket, Histogram};
use crate::journal::{Figures, LastCheckpoint};
use crate::replica::NotServing;
use crate::replica::call::{Counts, PeerStatus, Phase, Status};
use crate::server::api::server_info::{ServerInfo, VERSION, understands};
use crate::telemetry::{CertificateFigures, LinkFigures, Snapshot, resident_bytes};
use geolock_api::proto;

/// `picture`: the latest figures of the rest of the server; `None` before the first ones.
pub(in crate::server::api) fn status(
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
        backed_for_ms: status.backed_for_ms,
        unknown_leases_ms: status.unknown_leases_ms,
        decision: status.members.decision,
        epoch: status.members.epoch,
        evicting: ids(status.members.evicting),
        at_stake: Some(own_stake(status)),
        waiting_is_least: status.members.waiting_is_least,
        overloaded: status.load == Load::TooMuch,
        applied: Some(snapshot_message(&status.applied)),
        durable: Some(snapshot_message(&status.durable)),
        peers: status.peers.iter().map(|peer| peer_status(info, peer, links)).collect(),
        counts: counts(&status.counts),
        durations: durations(status, picture),
        uptime_ms: millis(info.started.elapsed()),
        disk_space: disk_space(status.disk_space).into(),
        journal: picture.map(|picture| journal(&picture.journal)),
        resident_bytes: resident_bytes().unwrap_or(0),
        certificates: certificates.iter().map(certificate).collect(),
        witnesses: info.members.iter().flat_map(|members| members::witnesses(members, status)).collect(),
        understands: understands(),
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
        at_stake: Some(stake_of(peer)),
        silent: ids(peer.at_stake.silent),
        differing: peer.differing.iter().map(|option| (*option).into()).collect(),
        dc: peer.dc.get().into(),
        dc_name: info.name(peer.dc),
        connected: peer.connected,
        reachable: peer.reachable,
        acknowledged: Some(snapshot_message(&peer.acknowledged)),
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

/// Returns the reason, and the remaining time in milliseconds if known.
pub(super) fn not_serving(why: Option<NotServing>) -> (proto::NotServing, u64) {
    match why {
        None => (proto::NotServing::Unspecified, 0),
        Some(NotServing::Starting) => (proto::NotServing::Starting, 0),
        Some(NotServing::ReadOnly) => (proto::NotServing::ReadOnly, 0),
        Some(NotServing::Grace { for_ms }) => (proto::NotServing::Grace, for_ms.into()),
        Some(NotServing::ClockSkew) => (proto::NotServing::ClockSkew, 0),
        Some(NotServing::DiskFull) => (proto::NotServing::DiskFull, 0),
        Some(NotServing::Forked) => (proto::NotServing::Forked, 0),
        Some(NotServing::LogFull) => (proto::NotServing::LogFull, 0),
        Some(NotServing::Unbacked) => (proto::NotServing::Unbacked, 0),
        Some(NotServing::ClockBehind) => (proto::NotServing::ClockBehind, 0),
    }
}

/// Returns the histograms by name. `picture` has those that the machine does not measure.
fn durations(status: &Status, picture: Option<&Snapshot>) -> BTreeMap<String, proto::Histogram> {
    let Status { acquires, majority_waits, .. } = status;
    let of_machine = [
        ("acquire_local", &acquires.local),
        ("acquire_remote", &acquires.remote),
        ("majority_wait", majority_waits),
    ];
    let of_edge = picture
        .map(|picture| [("journal_sync", &picture.sync_times), ("mailbox_delay", &picture.mailbox_delays)]);
    let all = of_machine.into_iter().chain(of_edge.into_iter().flatten());
    all.map(|(name, histogram)| (name.to_owned(), histogram_message(histogram))).collect()
}

fn histogram_message(histogram: &Histogram) -> proto::Histogram {
    let bucket = |bucket: Bucket| proto::HistogramBucket {
        above_us: bucket.above_us,
        up_to_us: bucket.up_to_us.unwrap_or(0),
        count: bucket.count,
    };
    proto::Histogram {
        count: histogram.count(),
        sum_us: micros(histogram.sum()),
        buckets: histogram.buckets().filter(|bucket| bucket.count > 0).map(bucket).collect(),
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
