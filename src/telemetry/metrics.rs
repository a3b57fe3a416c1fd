//! Metrics in the OpenMetrics text format, made from the latest snapshot at each scrape: nothing is counted
//! here. Every name starts with `geolock_`; the tables below are the vocabulary, help and units included.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::access;
use crate::capacity::Load;
use crate::crdt::VersionVector;
use crate::histogram::{Bucket, Histogram};
use crate::journal::{Figures, LastCheckpoint};
use crate::replica::call::{Counts, PeerStatus, Phase, Status};

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
            "Lines of the log dropped because standard error was not read",
            lines_lost(),
        )?;
        page.build_info()?;
        for Places { name, help, free, most } in self.0.places() {
            page.gauge(name, help, most.saturating_sub(free.available_permits()) as u64)?;
            let (name, help) = (format!("{name}_limit"), format!("{help}, at most"));
            page.gauge(&name, &help, most as u64)?;
        }
        page.certificates(&self.0.certificates())?;
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
            leases, held, waiting, published, remote_requests, parked, locks_active, locks_moved, log_entries,
            held_back, transactions, watches, keys, value_bytes, effects, snapshots, unsettled, keys_mortal, grants, grants_local, releases, refusals, timeouts, cancels, leases_expired,
            transfers_sent, transfers_received, hand_offs_sent, hand_offs_received, gone_home, entries_made, entries_applied, entries_relayed, duplicates,
            violations, skew_pauses, commits, removals, aborts, transactions_killed,
            anti_entropy_rounds, digests_compared, digest_mismatches, rights_transferred, states_given, states_taken, keys_expired, watch_news_lost, forced_releases, shed,
        } = *counts;
        for (name, help, value) in [
            ("leases", "Leases alive", leases),
            ("requests_held", "Requests of clients of this datacenter that hold their locks", held),
            ("requests_waiting", "Requests of clients of this datacenter that wait", waiting),
            ("requests_published", "Own requests that other datacenters were told of", published),
            ("requests_remote", "Requests of other datacenters that wait", remote_requests),
            ("requests_parked", "Requests that wait for an unreachable datacenter and stop nobody", parked),
            ("locks_active", "Locks held or waited for", locks_active),
            ("locks_moved", "Locks with parts away from their default owners", locks_moved),
            ("log_entries", "Log entries kept because some member may lack them", log_entries),
            ("entries_held_back", "Received entries that wait for others they depend on", held_back),
            ("transactions", "Transactions open or waiting", transactions),
            ("watches", "Watches of clients of this datacenter", watches),
            ("keys", "Keys of the store", keys),
            ("effects", "Changes that some open snapshot does not show", effects),
            ("snapshots", "Snapshots open: of transactions, and of a checkpoint under way", snapshots),
            ("marks_unsettled", "Marks of removals that some datacenter may not have seen", unsettled),
            ("keys_mortal", "Keys that expire, or are done and go once every datacenter knows", keys_mortal),
        ] {
            self.gauge(name, help, value)?;
        }
        let help = ("values", "All values of the store as readers see them, about");
        self.with_unit(MetricType::Gauge, &Unit::Bytes, help, value_bytes as f64)?;
        for (name, help, value) in [
            ("grants", "Requests granted", grants),
            ("grants_local", "Requests granted without asking another datacenter", grants_local),
            ("releases", "Requests released", releases),
            ("refusals", "Calls refused", refusals),
            ("timeouts", "Requests not granted in time", timeouts),
            ("cancels", "Requests cancelled by their clients", cancels),
            ("leases_expired", "Leases that ended because nobody renewed them", leases_expired),
            ("transfers_sent", "Lock parts given to other datacenters", transfers_sent),
            ("transfers_received", "Lock parts got from other datacenters", transfers_received),
            ("hand_offs_sent", "Locks of which parts were given to another datacenter, counted each time", hand_offs_sent),
            ("hand_offs_received", "Locks of which parts came from another datacenter, counted each time", hand_offs_received),
            ("gone_home", "Locks of which parts were given back because nobody used them here", gone_home),
            ("entries_made", "Log entries made here", entries_made),
            ("entries_applied", "Log entries applied, own and foreign", entries_applied),
            ("entries_relayed", "Log entries of others passed on", entries_relayed),
            ("entries_duplicate", "Log entries received again", duplicates),
            ("violations", "Protocol violations by peers; each closed a link and wants an operator", violations),
            ("skew_pauses", "Times that an entry stamped too far ahead stopped a link", skew_pauses),
            ("commits", "Transactions committed here", commits),
            ("removals", "Keys removed by transactions, here or in another datacenter", removals),
            ("aborts", "Transactions aborted by their clients", aborts),
            ("transactions_killed", "Transactions that were open too long or lost their locks", transactions_killed),
            ("anti_entropy_rounds", "Comparisons with another datacenter begun here", anti_entropy_rounds),
            ("digests_compared", "Comparisons of what is shown, with another datacenter that had applied the same", digests_compared),
            ("digest_mismatches", "Buckets that another datacenter shows otherwise; wants an operator", digest_mismatches),
            ("rights_transferred", "Moves of bounded counters' rights to another datacenter that asked", rights_transferred),
            ("states_given", "Copies of the state given to members that were too far behind", states_given),
            ("states_taken", "Copies of another datacenter's state taken over", states_taken),
            ("keys_expired", "Keys that this datacenter ended because their time was over or they were done", keys_expired),
            ("watch_news_lost", "Grants and releases not told to watches whose clients do not keep up", watch_news_lost),
            ("forced_releases", "Requests whose locks an operator took away", forced_releases),
            ("shed", "Calls refused because the server was far behind; among geolock_refusals_total", shed),
        ] {
            self.counter(name, help, value)?;
        }
        Ok(())
    }

    fn state(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let Status { draining, clock_skew, .. } = snapshot.status;
        let ready = snapshot.ready().is_ok();
        self.gauge("ready", "1 when clients should be sent here", ready.into())?;
        self.gauge("draining", "1 while the server shuts down", draining.into())?;
        let help = "1 while this datacenter's clock is too far ahead of the others: it makes no entries";
        self.gauge("clock_skew", help, clock_skew.into())?;
        let help =
            "1 when another datacenter has other entries of a log than this one: only reads are served";
        self.gauge("forked", help, matches!(snapshot.status.phase, Phase::Forked { .. }).into())?;
        let help = "1 while the server is far behind: what clients begin anew is refused";
        self.gauge("overloaded", help, (snapshot.status.load == Load::TooMuch).into())?;
        let help = ("mailbox", "Calls that wait inside, beyond the first 32 KiB of each session");
        self.with_unit(MetricType::Gauge, &Unit::Bytes, help, snapshot.mailbox_bytes as f64)?;
        let Status { applied, durable, .. } = &snapshot.status;
        self.vector(("log_applied", "Entries of each datacenter's log that are applied here"), applied)?;
        self.vector(("log_durable", "Entries of each datacenter's log that are on disk here"), durable)?;
        if let Some(bytes) = resident_bytes() {
            let help = ("process_resident_memory", "Memory of the process");
            self.with_unit(MetricType::Gauge, &Unit::Bytes, help, bytes as f64)?;
        }
        Ok(())
    }

    fn durations(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let acquires = &snapshot.status.acquires;
        let help =
            "From an acquire to its grant on its way out, by whether another datacenter had to be asked";
        let mut metric =
            self.0.encode_descriptor("acquire", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (origin, histogram) in [("local", &acquires.local), ("remote", &acquires.remote)] {
            observed(metric.encode_family(&[("origin", origin)])?, histogram)?;
        }
        for (name, help, histogram) in [
            ("journal_sync", "One write and one sync of the journal", &snapshot.sync_times),
            (
                "mailbox_delay",
                "From an input to the moment when the server takes it up; a sample, about ten a second",
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
            metric.encode_family(&[("dc", dc.to_string())])?.encode_gauge(&seq)?;
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
        self.gauge("journal_position", "Position of the last durable record", durable)?;
        self.gauge("journal_segments", "Files of the log", log.segments)?;
        let help = "Batches of records made durable: one write and one sync each";
        self.counter("journal_batches", help, batches)?;
        self.counter("journal_checkpoints", "Checkpoints made", checkpoints)?;
        let help = "Checkpoints that there was no room for";
        self.counter("journal_checkpoints_skipped", help, checkpoints_skipped)?;
        let help = "1 while less than journal.min_free_bytes is free, 2 while half of that or nothing; wants an operator";
        self.gauge("disk_full", help, disk_space as u64)?;
        let help = "1 while records wait for room on the disk";
        self.gauge("journal_waits_for_room", help, waiting_for_disk_space.into())?;
        for (name, help, kind, value) in [
            ("journal_backlog", "Records appended and not yet durable", gauge, backlog_bytes),
            ("journal_written", "Written to the log", counter, written_bytes),
            ("journal_size", "The log on disk", gauge, log.bytes),
            ("journal_reclaimable", "What a checkpoint taken now would give back", gauge, log.reclaimable),
            ("journal_since_checkpoint", "Records since the last checkpoint: what a restart replays", gauge, since_checkpoint),
        ] {
            self.with_unit(kind, &Unit::Bytes, (name, help), value as f64)?;
        }
        if let Some(free) = free_bytes {
            self.with_unit(gauge, &Unit::Bytes, ("disk_free", "Free on the disk of the log"), free as f64)?;
        }
        if let Some(LastCheckpoint { position, bytes, made }) = last_checkpoint {
            self.gauge("checkpoint_position", "The last record that the newest checkpoint covers", position)?;
            let help = ("checkpoint_size", "The newest checkpoint");
            self.with_unit(gauge, &Unit::Bytes, help, bytes as f64)?;
            let help = ("checkpoint_age", "Since the newest checkpoint was made, if it was since the start");
            if let Some(made) = made {
                self.with_unit(gauge, &Unit::Seconds, help, made.elapsed().as_secs_f64())?;
            }
        }
        let help = ("journal_write", "Time spent making batches durable");
        self.with_unit(counter, &Unit::Seconds, help, write_time.as_secs_f64())
    }

    fn peers(&mut self, peers: &[PeerStatus]) -> fmt::Result {
        let series = |value: fn(&PeerStatus) -> f64| peers.iter().map(move |p| (p.dc.to_string(), value(p)));
        let gauge = MetricType::Gauge;
        let help = ("peer_linked", "1 when there is a link to the peer");
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.connected))))?;
        let help = ("peer_reachable", "1 when the peer is known to live, by whatever path");
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.reachable))))?;
        let help = ("peer_serving", "0 when the peer is not reachable, or is and hands nothing over");
        let serves = |peer: &PeerStatus| peer.reachable && peer.not_serving.is_none();
        let serving = peers.iter().map(|peer| (peer.dc.to_string(), f64::from(u8::from(serves(peer)))));
        self.by_peer(gauge, None, help, serving)?;
        let help = ("peer_lag_entries", "Log entries here that the peer has not acknowledged");
        self.by_peer(gauge, None, help, series(|peer| peer.unacked_entries as f64))?;
        let help = ("peer_lag", "Since the oldest of these came to the disk here");
        self.by_peer(gauge, Some(&Unit::Seconds), help, series(|peer| peer.lag_ms as f64 / 1e3))?;
        let help = ("peer_lacking_entries", "Log entries of the peer that are not here");
        self.by_peer(gauge, None, help, series(|peer| peer.missing_entries as f64))?;
        let help = (
            "peer_too_far_behind",
            "1 when the peer lacks what is not kept here any more: it gets a copy of the state",
        );
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.too_far_behind))))?;
        let help = ("peer_paused_by_skew", "1 while an entry stamped too far ahead waits before the link");
        self.by_peer(gauge, None, help, series(|peer| f64::from(u8::from(peer.paused_by_skew))))?;
        let help = ("peer_clock_ahead", "The peer's clock less ours when last heard");
        self.by_peer(gauge, Some(&Unit::Seconds), help, series(|peer| peer.clock_ahead_ms as f64 / 1e3))
    }

    fn certificates(&mut self, certificates: &[CertificateFigures]) -> fmt::Result {
        if certificates.is_empty() {
            return Ok(());
        }
        let (name, help) = ("certificate_expiry", "Until a certificate of this server expires; 0 after that");
        let mut metric = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for figures in certificates {
            let labels = [("certificate", figures.name)];
            metric.encode_family(&labels)?.encode_gauge(&figures.left().as_secs_f64())?;
        }
        let help =
            "1 while what is in the folder of a certificate cannot be used: the one before stays in use";
        let mut metric = self.0.encode_descriptor("certificate_refused", help, None, MetricType::Gauge)?;
        for figures in certificates {
            let labels = [("certificate", figures.name)];
            metric.encode_family(&labels)?.encode_gauge(&u64::from(figures.failure.is_some()))?;
        }
        Ok(())
    }

    fn access(&mut self, figures: &access::Figures) -> fmt::Result {
        let help = "Calls refused because no rule allows them, by what they wanted";
        let mut metric = self.0.encode_descriptor("access_denied", help, None, MetricType::Counter)?;
        for (action, count) in figures.denied() {
            let labels = [("action", action.name())];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let (reloads, failed) = figures.reloads();
        for (name, help, count) in [
            (
                "access_useless",
                "Leases refused to callers that may do nothing with one",
                figures.nothing_to_do(),
            ),
            (
                "access_unknown",
                "Calls refused because their caller showed neither certificate nor a good token",
                figures.unknown(),
            ),
            ("access_reloads", "Times that rules and tokens were read again", reloads),
            ("access_reloads_failed", "Times that they could not be used: those before stay in use", failed),
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
        let help = ("link_sent", "Sent to the peer in datagrams, QUIC's own among them");
        self.by_peer(counter, bytes, help, series(|link| link.bytes_sent))?;
        let help = ("link_received", "Received from the peer in datagrams");
        self.by_peer(counter, bytes, help, series(|link| link.bytes_received))?;
        let help = ("link_queued_messages", "Messages that wait in the queues of the link");
        self.by_peer(gauge, None, help, series(|link| link.queued))?;
        let help = ("link_connects", "Times that the link came up");
        self.by_peer(counter, None, help, series(|link| link.connects))?;
        let help = ("link_round_trip", "Round trip to the peer, while the link is up");
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
