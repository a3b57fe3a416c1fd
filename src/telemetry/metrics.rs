//! Metrics in the OpenMetrics text format, made from the latest snapshot at each scrape: nothing is counted
//! here. Every name starts with `geolock_`; the tables below are the vocabulary, help and units included.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::access;
use crate::base::capacity::Load;
use crate::base::histogram::{Bucket, Histogram};
use crate::crdt::VersionVector;
use crate::journal::{Figures, LastCheckpoint};
use crate::replica::call::{Counts, MembersStatus, PeerStatus, Phase, Status};

use geolock_api::names::EntryNumber;

use super::logs::lines_lost;
use super::memory::resident_bytes;
use super::snapshot::{Board, CertificateFigures, LinkFigures, Places, Snapshot};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The first bucket bound of durations, in microseconds.
const FIRST_BOUND_US: u64 = 8;

/// The metrics of one server.
pub(super) struct Metrics(Registry);

impl Metrics {
    pub fn new(board: Arc<Board>) -> Metrics {
        let mut registry = Registry::with_prefix("geolock");
        registry.register_collector(Box::new(Scrape(board)));
        Metrics(registry)
    }

    /// Renders one page. Before the first snapshot it has only the metrics of certificates and access.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.0)?;
        Ok(page)
    }
}

#[derive(Debug)]
struct Scrape(Arc<Board>);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.counter(
            "log_lines_lost",
            "Lines of the log that were dropped because standard error was not read",
            lines_lost(),
        )?;
        page.build_info()?;
        for Places { name, help, free, most } in self.0.places() {
            page.gauge(name, help, most.saturating_sub(free.available_permits()) as u64)?;
            let (name, help) = (format!("{name}_limit"), format!("{help}: the limit"));
            page.gauge(&name, &help, most as u64)?;
        }
        page.certificates(&self.0.certificates())?;
        let help = "Evictions of other members that this process has learned of, by cause";
        page.by_cause("evictions", help, &self.0.evictions())?;
        if let Some(figures) = self.0.access() {
            page.access(figures)?;
        }
        match self.0.latest() {
            None => Ok(()),
            Some(snapshot) => {
                page.counts(&snapshot.status.counts)?;
                page.state(&snapshot)?;
                page.durations(&snapshot)?;
                page.journal(&snapshot.journal)?;
                page.peers(&snapshot.status.peers)?;
                page.links(&snapshot.links)
            }
        }
    }
}

/// The page that is being written.
struct Page<'a>(DescriptorEncoder<'a>);

/// One series of a metric: its labels and value.
type Series<L> = (L, f64);

impl Page<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn with_unit(
        &mut self,
        kind: MetricType,
        unit: &Unit,
        (name, help): (&str, &str),
        value: f64,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, Some(unit), kind)?;
        match kind {
            MetricType::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
            _ => metric.encode_gauge(&value),
        }
    }

    /// Writes one metric with a series per peer, in the given order.
    fn by_peer(
        &mut self,
        kind: MetricType,
        unit: Option<&Unit>,
        (name, help): (&str, &str),
        series: impl Iterator<Item = Series<String>>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit, kind)?;
        for (peer, value) in series {
            let labels = [("peer", peer)];
            let mut metric = metric.encode_family(&labels)?;
            match kind {
                MetricType::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
                _ => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn build_info(&mut self) -> fmt::Result {
        let help = "Always 1; the version of the server is its label";
        let mut metric = self.0.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
        metric.encode_family(&[("version", env!("GEOLOCK_VERSION"))])?.encode_gauge(&1_u64)
    }

    #[rustfmt::skip] // a table
    fn counts(&mut self, counts: &Counts) -> fmt::Result {
        // Destructured so that a new count cannot be forgotten here.
        let Counts {
            leases, held, waiting, published, remote_requests, parked, locks_active, locks_moved, locks_away_here, log_entries, held_back, transactions, watches, keys, value_bytes, uncompacted_changes, snapshots, tombstones_pending, keys_expiring, grants, grants_local, releases, refusals, timeouts, cancels, leases_expired, part_transfers_sent, part_transfers_received, hand_offs_sent, hand_offs_received, idle_returns_age, idle_returns_number, idle_returns_shared, entries_made, entries_applied, entries_relayed, duplicates, violations, skew_pauses, commits, removals, aborts, transactions_killed, anti_entropy_rounds, digests_compared, digest_mismatches, rights_transferred, state_transfers_sent, state_transfers_received, keys_expired, watch_events_dropped, force_releases, calls_shed, waiting_for_majority, commits_not_at_majority,
        } = *counts;
        for (name, help, value) in [
            ("leases", "Leases that have not ended", leases),
            ("requests_held", "Requests of clients of this datacenter that hold their locks", held),
            ("requests_waiting", "Requests of clients of this datacenter that wait", waiting),
            ("requests_published", "Waiting requests of this datacenter that are published to the others", published),
            ("requests_remote", "Waiting requests of other datacenters", remote_requests),
            ("requests_parked", "Requests that wait for a datacenter that is unreachable or does not serve; they block no others", parked),
            ("locks_active", "Locks that are held, waited for, or were used a short time ago", locks_active),
            ("locks_moved", "Locks with parts outside their home datacenters", locks_moved),
            ("locks_away_here", "Locks with parts here that have their homes in other datacenters; limits.max_away_locks limits them", locks_away_here),
            ("log_entries", "Log entries that are kept because a member may lack them", log_entries),
            ("entries_held_back", "Received entries that wait for entries they depend on", held_back),
            ("transactions", "Transactions that are open or waiting", transactions),
            ("watches", "Watches of clients of this datacenter", watches),
            ("keys", "Keys in the store", keys),
            ("uncompacted_changes", "Changes that are kept apart because an open snapshot does not show them", uncompacted_changes),
            ("snapshots", "Open snapshots: of transactions, and of a checkpoint in progress", snapshots),
            ("tombstones_pending", "Tombstones of keys and elements that a datacenter may not have seen removed", tombstones_pending),
            ("keys_expiring", "Keys with an expiry time, or with a value that was written as done", keys_expiring),
            ("commits_waiting_for_majority", "Commits that are answered when a majority of the datacenters has them on disk", waiting_for_majority),
        ] {
            self.gauge(name, help, value)?;
        }
        let help = ("values", "Approximate size of all values, as readers see them");
        self.with_unit(MetricType::Gauge, &Unit::Bytes, help, value_bytes as f64)?;
        let help = "Locks whose unused parts returned to their homes, by cause";
        self.by_cause("idle_returns", help, &[("age", idle_returns_age), ("number", idle_returns_number), ("shared", idle_returns_shared)])?;
        for (name, help, value) in [
            ("grants", "Requests granted", grants),
            ("grants_local", "Requests granted without a request to another datacenter", grants_local),
            ("releases", "Requests released", releases),
            ("refusals", "Calls refused", refusals),
            ("timeouts", "Requests that were not granted in time", timeouts),
            ("cancels", "Requests cancelled by their clients", cancels),
            ("leases_expired", "Leases that ended because they were not renewed", leases_expired),
            ("part_transfers_sent", "Lock parts sent to other datacenters", part_transfers_sent),
            ("part_transfers_received", "Lock parts received from other datacenters", part_transfers_received),
            ("hand_offs_sent", "Hand-offs of locks to other datacenters: one per lock and move", hand_offs_sent),
            ("hand_offs_received", "Hand-offs of locks from other datacenters: one per lock and move", hand_offs_received),
            ("entries_made", "Log entries created here", entries_made),
            ("entries_applied", "Log entries applied here, of all datacenters", entries_applied),
            ("entries_relayed", "Log entries of other datacenters relayed", entries_relayed),
            ("entries_duplicate", "Log entries received more than once", duplicates),
            ("violations", "Protocol violations by peers; each closed a link and needs an operator", violations),
            ("skew_pauses", "Times that a link was paused before an entry that is stamped too far ahead", skew_pauses),
            ("commits", "Transactions committed here", commits),
            ("removals", "Keys removed by transactions of any datacenter", removals),
            ("aborts", "Transactions aborted by their clients", aborts),
            ("transactions_killed", "Transactions aborted by the server: open for too long, or their locks were lost", transactions_killed),
            ("anti_entropy_rounds", "Comparisons with another datacenter that were started here", anti_entropy_rounds),
            ("digests_compared", "Comparisons of the visible state with a datacenter that had applied the same entries", digests_compared),
            ("digest_mismatches", "Buckets with other content in a datacenter that had applied the same entries; needs an operator", digest_mismatches),
            ("rights_transferred", "Transfers of bounded counter rights to a datacenter that asked for them", rights_transferred),
            ("state_transfers_sent", "Copies of the state sent to members that were too far behind", state_transfers_sent),
            ("state_transfers_received", "Copies of the state of another datacenter installed here", state_transfers_received),
            ("keys_expired", "Keys that this datacenter ended: they expired, or their value was written as done", keys_expired),
            ("watch_events_dropped", "Grants and releases that were not sent to watches because their clients read too slowly", watch_events_dropped),
            ("force_releases", "Requests whose locks were released by force", force_releases),
            ("commits_not_at_majority", "Commits that were to wait for a majority and did not reach one in time", commits_not_at_majority),
            ("calls_shed", "Calls refused because the server was overloaded; included in geolock_refusals_total", calls_shed),
        ] {
            self.counter(name, help, value)?;
        }
        Ok(())
    }

    /// Writes one counter with a series per cause.
    fn by_cause(&mut self, name: &str, help: &str, by_cause: &[(&str, u64)]) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (cause, value) in by_cause {
            metric.encode_family(&[("cause", *cause)])?.encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        Ok(())
    }

    fn state(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let Status { draining, clock_skew, clock_behind_ms, .. } = snapshot.status;
        let ready = snapshot.ready().is_ok();
        self.gauge("ready", "1 if clients should use this server", ready.into())?;
        self.gauge("draining", "1 while the server is shutting down", draining.into())?;
        let help =
            "1 while the clock of this server is too far ahead of most others: it creates no log entries";
        self.gauge("clock_skew", help, clock_skew.into())?;
        let help =
            "How far the clock of this server is behind most others, if that is more than max_clock_skew";
        let mut gauge = self.0.encode_descriptor("clock_behind_seconds", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&(clock_behind_ms as f64 / 1_000.0))?;
        if let Some(backed_for_ms) = snapshot.status.backed_for_ms {
            let help = "If members are evicted by time: how long a majority of the voters backs this one";
            let mut gauge = self.0.encode_descriptor("backed_for_seconds", help, None, MetricType::Gauge)?;
            gauge.encode_gauge(&(backed_for_ms as f64 / 1_000.0))?;
        }
        let MembersStatus { decision, epoch, only_here, evicting, .. } = snapshot.status.members;
        self.gauge("members_decision", "Last decision about the members that is known here", decision)?;
        self.gauge("members_epoch", "Last change of the members that this datacenter has entered", epoch)?;
        let help = "Members that are being evicted";
        self.gauge("members_evicting", help, evicting.len() as u64)?;
        if let Some(only_here) = only_here {
            let help = "Entries of the own log that no other datacenter has acknowledged: they would be lost with this one";
            self.gauge("entries_only_here", help, only_here)?;
        }
        let help = "1 if two datacenters have different entries of one log: only reads are served";
        self.gauge("forked", help, matches!(snapshot.status.phase, Phase::Forked { .. }).into())?;
        let help = "1 while the server is overloaded: new work of clients is refused";
        self.gauge("overloaded", help, (snapshot.status.load == Load::TooMuch).into())?;
        let help = (
            "mailbox",
            "Memory of calls that wait inside the server, beyond the first 32 KiB of each session",
        );
        self.with_unit(MetricType::Gauge, &Unit::Bytes, help, snapshot.mailbox_bytes as f64)?;
        let Status { applied, durable, .. } = &snapshot.status;
        self.vector(("log_applied", "Number of entries of each log that are applied here"), applied)?;
        self.vector(("log_durable", "Number of entries of each log that are on disk here"), durable)?;
        if let Some(bytes) = resident_bytes() {
            let help = ("process_resident_memory", "Resident memory of the process");
            self.with_unit(MetricType::Gauge, &Unit::Bytes, help, bytes as f64)?;
        }
        Ok(())
    }

    fn durations(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let acquires = &snapshot.status.acquires;
        let help =
            "Time from an acquire until its grant is sent: local, or with a request to another datacenter";
        let mut metric =
            self.0.encode_descriptor("acquire", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (origin, histogram) in [("local", &acquires.local), ("remote", &acquires.remote)] {
            observed(metric.encode_family(&[("origin", origin)])?, histogram)?;
        }
        for (name, help, histogram) in [
            (
                "majority_wait",
                "Time from a commit until a majority had it on disk, of commits that waited for that",
                &snapshot.status.majority_waits,
            ),
            ("journal_sync", "Time of a write and a sync of the journal", &snapshot.sync_times),
            (
                "mailbox_delay",
                "Time from the arrival of an input until the server processes it; sampled about ten times a second",
                &snapshot.mailbox_delays,
            ),
        ] {
            let metric = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            observed(metric, histogram)?;
        }
        Ok(())
    }

    fn vector(&mut self, (name, help): (&str, &str), vector: &VersionVector) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (dc, seq) in vector.iter() {
            let number = EntryNumber(seq);
            let labels = [("dc", dc.to_string()), ("generation", number.generation().to_string())];
            metric.encode_family(&labels)?.encode_gauge(&number.count())?;
        }
        Ok(())
    }

    #[rustfmt::skip] // tables
    fn journal(&mut self, figures: &Figures) -> fmt::Result {
        // Destructured so that a new figure cannot be forgotten here.
        let Figures {
            backlog_bytes, durable, log, since_checkpoint, last_checkpoint, disk_space, waiting_for_disk_space, free_bytes, batches,
            written_bytes, write_time, checkpoints, checkpoints_skipped,
        } = *figures;
        let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
        self.gauge("journal_position", "Number of the last record on disk", durable)?;
        self.gauge("journal_segments", "Files of the journal", log.segments)?;
        let help = "Batches of records written: one write and one sync each";
        self.counter("journal_batches", help, batches)?;
        self.counter("journal_checkpoints", "Checkpoints written", checkpoints)?;
        let help = "Checkpoints that were skipped for want of disk space";
        self.counter("journal_checkpoints_skipped", help, checkpoints_skipped)?;
        let help = "0; 1 while less than journal.min_free_bytes is free; 2 while less than half of it is, or a write failed; needs an operator";
        self.gauge("disk_pressure", help, disk_space as u64)?;
        let help = "1 while records wait for free disk space";
        self.gauge("journal_waiting_for_disk_space", help, waiting_for_disk_space.into())?;
        for (name, help, kind, value) in [
            ("journal_backlog", "Records that are not yet on disk", gauge, backlog_bytes),
            ("journal_written", "Bytes written to the journal", counter, written_bytes),
            ("journal_size", "Size of the journal", gauge, log.bytes),
            ("journal_reclaimable", "Disk space that a checkpoint would free now", gauge, log.reclaimable),
            ("journal_since_checkpoint", "Records since the last checkpoint, which a restart reads", gauge, since_checkpoint),
        ] {
            self.with_unit(kind, &Unit::Bytes, (name, help), value as f64)?;
        }
        if let Some(free) = free_bytes {
            self.with_unit(gauge, &Unit::Bytes, ("disk_free", "Free space on the disk of the journal"), free as f64)?;
        }
        if let Some(LastCheckpoint { position, bytes, made }) = last_checkpoint {
            self.gauge("checkpoint_position", "Number of the last record in the latest checkpoint", position)?;
            let help = ("checkpoint_size", "Size of the latest checkpoint");
            self.with_unit(gauge, &Unit::Bytes, help, bytes as f64)?;
            let help = ("checkpoint_age", "Age of the latest checkpoint, if this run wrote it");
            if let Some(made) = made {
                self.with_unit(gauge, &Unit::Seconds, help, made.elapsed().as_secs_f64())?;
            }
        }
        let help = ("journal_write", "Total time of writes and syncs of the journal");
        self.with_unit(counter, &Unit::Seconds, help, write_time.as_secs_f64())
    }

    fn peers(&mut self, peers: &[PeerStatus]) -> fmt::Result {
        let series = |value: fn(&PeerStatus) -> f64| peers.iter().map(move |p| (p.dc.to_string(), value(p)));
        let gauge = MetricType::Gauge;
        let help = ("peer_connected", "1 if there is a link to the peer");
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.connected))))?;
        let help = ("peer_reachable", "1 if the peer is known to live, heard directly or through others");
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.reachable))))?;
        let help = ("peer_serving", "0 if the peer is unreachable, or is reachable and transfers no parts");
        let serves = |peer: &PeerStatus| peer.reachable && peer.not_serving.is_none();
        let serving = peers.iter().map(|peer| (peer.dc.to_string(), f64::from(u8::from(serves(peer)))));
        self.by_peer(gauge, None, help, serving)?;
        let help = (
            "peer_away_locks",
            "Locks of which the peer has parts that are named after others: while it is down they cannot be taken exclusively",
        );
        self.by_peer(gauge, None, help, series(|peer| peer.at_stake.away_locks as f64))?;
        let help = (
            "peer_awaited_requests",
            "Requests that wait and need a part that the peer has; of very many only the first are counted",
        );
        self.by_peer(gauge, None, help, series(|peer| peer.at_stake.waiting as f64))?;
        let help = ("peer_silent_voters", "Voters that have said that they hear nothing of the peer");
        self.by_peer(gauge, None, help, series(|peer| peer.at_stake.silent.len() as f64))?;
        let silence = peers.iter().filter_map(|peer| Some((peer, peer.at_stake.heard_ms?)));
        let silence = silence.map(|(peer, ms)| (peer.dc.to_string(), ms as f64 / 1e3));
        let help =
            ("peer_silence", "Time since the peer was heard for the last time, directly or through others");
        self.by_peer(gauge, Some(&Unit::Seconds), help, silence)?;
        let help = ("peer_unacked_entries", "Log entries here that the peer has not acknowledged");
        self.by_peer(gauge, None, help, series(|peer| peer.unacked_entries as f64))?;
        let help = (
            "peer_lag",
            "Time since the oldest entry that the peer has not acknowledged became durable here",
        );
        self.by_peer(gauge, Some(&Unit::Seconds), help, series(|peer| peer.lag_ms as f64 / 1e3))?;
        let help = ("peer_missing_entries", "Log entries that the peer has and that are missing here");
        self.by_peer(gauge, None, help, series(|peer| peer.missing_entries as f64))?;
        let help = (
            "peer_too_far_behind",
            "1 if the peer lacks entries that are truncated here: it gets a copy of the state",
        );
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.too_far_behind))))?;
        let help = (
            "peer_paused_by_skew",
            "1 while the link is paused before an entry that is stamped too far ahead",
        );
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.paused_by_skew))))?;
        let help =
            ("peer_clock_ahead", "Clock of the peer minus the clock of this server, at the last message");
        self.by_peer(gauge, Some(&Unit::Seconds), help, series(|peer| peer.clock_ahead_ms as f64 / 1e3))?;
        let help = (
            "peer_options_differ",
            "Options that should be equal in all datacenters, and differ between these two",
        );
        self.by_peer(gauge, None, help, series(|peer| peer.differing.len() as f64))
    }

    fn certificates(&mut self, certificates: &[CertificateFigures]) -> fmt::Result {
        if certificates.is_empty() {
            return Ok(());
        }
        let (name, help) =
            ("certificate_expiry", "Time until a certificate of this server expires; 0 after that");
        let mut metric = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for figures in certificates {
            let labels = [("certificate", figures.name)];
            metric.encode_family(&labels)?.encode_gauge(&figures.left().as_secs_f64())?;
        }
        let help = "1 while the certificate in the folder cannot be used: the previous one stays in use";
        let mut metric = self.0.encode_descriptor("certificate_refused", help, None, MetricType::Gauge)?;
        for figures in certificates {
            let labels = [("certificate", figures.name)];
            metric.encode_family(&labels)?.encode_gauge(&u64::from(figures.failure.is_some()))?;
        }
        Ok(())
    }

    fn access(&mut self, figures: &access::Figures) -> fmt::Result {
        let help = "Calls refused because no rule allows them, by action";
        let mut metric = self.0.encode_descriptor("access_denied", help, None, MetricType::Counter)?;
        for (action, count) in figures.denied() {
            let labels = [("action", action.name())];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let (reloads, failed) = figures.reloads();
        for (name, help, count) in [
            (
                "access_leases_denied",
                "Leases refused because no rule allows the caller to use one",
                figures.nothing_to_do(),
            ),
            (
                "access_unauthenticated",
                "Calls refused because the caller presented neither a certificate nor a valid token",
                figures.unknown(),
            ),
            ("access_reloads", "Times that access rules and tokens were reloaded", reloads),
            (
                "access_reloads_failed",
                "Reloads of access rules and tokens that failed: the previous ones stay in use",
                failed,
            ),
        ] {
            self.counter(name, help, count)?;
        }
        Ok(())
    }

    fn links(&mut self, links: &[LinkFigures]) -> fmt::Result {
        let series = |value: fn(&LinkFigures) -> u64| {
            links.iter().map(move |link| (link.peer.to_string(), value(link) as f64))
        };
        let (gauge, counter, bytes) = (MetricType::Gauge, MetricType::Counter, Some(&Unit::Bytes));
        let help = ("link_messages_sent", "Messages sent to the peer");
        self.by_peer(counter, None, help, series(|link| link.messages_sent))?;
        let help = ("link_messages_received", "Messages received from the peer");
        self.by_peer(counter, None, help, series(|link| link.messages_received))?;
        let help = ("link_sent", "Bytes sent to the peer in datagrams, including the overhead of QUIC");
        self.by_peer(counter, bytes, help, series(|link| link.bytes_sent))?;
        let help =
            ("link_received", "Bytes received from the peer in datagrams, including the overhead of QUIC");
        self.by_peer(counter, bytes, help, series(|link| link.bytes_received))?;
        let help = ("link_queued_messages", "Messages that wait in the send queues of the link");
        self.by_peer(gauge, None, help, series(|link| link.queued))?;
        let help = ("link_connects", "Times that the link was established");
        self.by_peer(counter, None, help, series(|link| link.connects))?;
        let help = ("link_round_trip", "Round-trip time to the peer, while the link is up");
        let round_trips =
            links.iter().filter_map(|link| Some((link.peer.to_string(), link.rtt?.as_secs_f64())));
        self.by_peer(gauge, Some(&Unit::Seconds), help, round_trips)
    }
}

/// Writes a histogram with powers of two as bounds: a quarter of its buckets.
fn observed(mut metric: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let mut buckets = Vec::new();
    let mut open = 0;
    for Bucket { up_to_us, count, .. } in histogram.buckets() {
        open += count;
        match up_to_us {
            Some(end) if !end.is_power_of_two() || end < FIRST_BOUND_US => {}
            end => {
                buckets.push((end.map_or(f64::INFINITY, |end| end as f64 / 1e6), std::mem::take(&mut open)))
            }
        }
    }
    metric.encode_histogram::<NoLabelSet>(histogram.sum().as_secs_f64(), histogram.count(), &buckets, None)
}
