//! The operator's log: one line for each report of the machine.

use std::time::Duration;

use crate::base::capacity::DiskSpace;
use crate::base::time::Instant;
use crate::replica::call::Phase;
use crate::replica::force_release::ForceReleased;
use crate::replica::{Fork, Report, Summed};
use geolock_api::names::{DcId, EntryNumber, LeaseId};

/// Expired leases that are not logged yet. A client can let a hundred thousand leases expire at once, and
/// each line costs time of the thread that steps the machine.
#[derive(Debug, Default)]
pub(super) struct Expired {
    leases: u64,
    held: usize,
    waiting: usize,
    last: Option<LeaseId>,
    logged: Option<Instant>,
}

/// Least time between two lines about expired leases.
const EXPIRED_INTERVAL: Duration = Duration::from_secs(1);

impl Expired {
    fn add(&mut self, lease: LeaseId, held: usize, waiting: usize) {
        self.leases += 1;
        self.held += held;
        self.waiting += waiting;
        self.last = Some(lease);
    }

    /// Logs all of them in one line, if the interval has passed.
    pub(super) fn log(&mut self, now: Instant) {
        let is_early = self.logged.is_some_and(|logged| now.saturating_since(logged) < EXPIRED_INTERVAL);
        if !is_early && self.last.is_some() {
            self.log_rest();
            self.logged = Some(now);
        }
    }

    /// Logs all of them now; called at the end.
    pub(super) fn log_rest(&mut self) {
        let Some(lease) = self.last else { return };
        let Expired { leases, held, waiting, .. } = *self;
        match leases {
            1 => tracing::info!(%lease, held, waiting, "lease expired"),
            _ => {
                tracing::info!(leases, held, waiting, last = %lease, "leases expired: `held` and `waiting` are of all of them")
            }
        }
        *self = Expired { logged: self.logged, ..Expired::default() };
    }
}

fn log_recovery(report: &Report) {
    match report {
        Report::RecoveryRefused { why } => {
            tracing::warn!(why, "the forced recovery was given up: nothing was changed")
        }
        Report::Recovered(loss) => tracing::warn!(
            decision = %loss.decision, lineage = %loss.lineage, survivors = ?loss.survivors, lost = ?loss.lost,
            locks = loss.locks, "recovered by force: entries of the lost members beyond these are lost"
        ),
        _ => {}
    }
}

/// Logs a report at once, except expired leases, which are gathered in `expired`.
pub(super) fn log(report: &Report, expired: &mut Expired) {
    match report {
        Report::PhaseChanged(phase) => log_phase(*phase),
        Report::ProposalRefused { why } => tracing::warn!(why, "a change of the members was refused"),
        Report::RecoveryRefused { .. } | Report::Recovered(_) => log_recovery(report),
        Report::PeerReachable { peer, reachable: true } => tracing::info!(%peer, "datacenter reachable"),
        Report::PeerReachable { peer, reachable: false } => {
            tracing::warn!(%peer, "datacenter unreachable: requests that need it wait, others go on");
        }
        Report::PeerServes { peer, why: None } => tracing::info!(%peer, "datacenter serves again"),
        Report::PeerServes { peer, why: Some(why) } => {
            tracing::warn!(%peer, "datacenter {peer} {why}: requests that need it wait, others go on");
        }
        Report::OptionDiffers { peer, option, ours, theirs } => tracing::warn!(
            %peer, option, ours_ms = ours, theirs_ms = theirs,
            "an option that all datacenters should have in common differs: make it the same in all"
        ),
        Report::AccessDiffers { peer, option, ours, theirs } => {
            tracing::warn!(%peer, option, files = files(*ours, *theirs), "clients may do one thing here and another there: give all servers the same file, then SIGHUP");
        }
        Report::ClockDrifts { peer, ahead_ms } => {
            tracing::warn!(%peer, ahead_ms, "clocks drift apart: check time synchronisation");
        }
        Report::EntryTooFarAhead { peer, dc, seq, ahead_ms } => {
            tracing::warn!(%peer, %dc, seq = %EntryNumber(*seq), ahead_ms, "an entry of the future waits: check the clocks");
        }
        Report::ClockSkew { .. }
        | Report::ClockBehind { .. }
        | Report::ClockSetForward { .. }
        | Report::ClockContradicted { .. }
        | Report::WallClockJumped { .. } => log_clock(report),
        Report::DiskRoom { room } => log_disk_space(*room),
        Report::LogFull { full: true } => tracing::error!(
            "four times limits.max_log_bytes is kept for datacenters that cannot be reached: no lock moves, nothing is committed here until \
             most of them are back"
        ),
        Report::LogFull { full: false } => tracing::info!("there is room in the log again"),
        Report::ForceReleased(forced) => {
            let ForceReleased { number, operator, reason, lock, request, token, label, .. } = &**forced;
            let (label, operator) = (label.escape_debug(), operator.escape_debug());
            tracing::warn!(number, %operator, %reason, %lock, %request, %token, %label, "lock taken from its holder");
        }
        Report::LeaseExpired { lease, held, waiting } => expired.add(*lease, *held, *waiting),
        Report::PeerTooFarBehind { peer } => {
            tracing::warn!(%peer, "datacenter {peer} lacks entries that are no longer kept here: it can have our state");
        }
        Report::StateWanted { peer } => {
            tracing::warn!(%peer, "datacenter {peer} has truncated entries that are missing here: asking for its state");
        }
        Report::StateTaken { peer, vector } => tracing::info!(%peer, %vector, "took its state over"),
        Report::StateOfNoUse { peer, why } => tracing::warn!(%peer, why, "its state was not taken over"),
        Report::StateNotGiven { peer, why } => tracing::error!(%peer, why, "it cannot have our state"),
        Report::DigestsDiffer { peer, bucket } => {
            let bucket = bucket.escape_ascii();
            tracing::error!(
                %peer,
                %bucket,
                "it shows something else in this bucket, although both applied the same: one of the two is broken"
            );
        }
        Report::SumsDiffer { peer, of } => log_difference(*peer, *of),
        Report::OwnLogBehind { ours, theirs } => {
            tracing::error!(
                ours,
                theirs,
                "others know more of our log than we do: read-only until it is here"
            );
        }
        Report::Forked(fork) => log_fork(fork),
    }
}

/// Describes two files that differ, of which at least one is there.
fn files(ours: bool, theirs: bool) -> &'static str {
    match (ours, theirs) {
        (true, true) => "the two do not mean the same",
        (true, false) => "only this datacenter has one",
        (false, _) => "only the other datacenter has one",
    }
}

/// Logs a report about the own clock.
fn log_clock(report: &Report) {
    match report {
        Report::ClockSkew { active: true } => {
            tracing::error!(
                "our clock is far ahead of most others: no locks move from here until it is right"
            );
        }
        Report::ClockSkew { active: false } => tracing::info!("our clock agrees with most others again"),
        Report::ClockBehind { by_ms: Some(by_ms) } => tracing::error!(
            by_ms,
            "our clock is far behind most others: no locks move to or from here, and nothing that others write is seen here, \
             until it is set right"
        ),
        Report::ClockBehind { by_ms: None } => tracing::info!("our clock is no longer behind most others"),
        Report::ClockSetForward { by_ms } => {
            tracing::warn!(by_ms, "the wall clock was set forward, and others agree: following it at once");
        }
        Report::ClockContradicted { ahead_ms } => log_contradicted(*ahead_ms),
        Report::WallClockJumped { ahead_ms } => {
            tracing::warn!(ahead_ms, "the wall clock jumped: following it slowly");
        }
        _ => {}
    }
}

fn log_contradicted(ahead_ms: Option<i64>) {
    match ahead_ms {
        Some(ahead_ms) => tracing::error!(
            ahead_ms,
            "our clock is far ahead of most others: this server waits, and serves as soon as its clock is set right"
        ),
        None => tracing::info!("our clock agrees with others"),
    }
}

fn log_difference(peer: DcId, of: Summed) {
    match of {
        Summed::Shown => tracing::error!(
            %peer,
            "it showed something else at a time when both had applied the same: one of the two is broken"
        ),
        Summed::Owned => tracing::error!(
            %peer,
            "it knew other owners of parts at a time when both had applied the same: one of the two is broken, and locks may be \
             held twice"
        ),
    }
}

fn log_disk_space(space: DiskSpace) {
    match space {
        DiskSpace::Low => tracing::error!(
            "the journal's disk is nearly full: no commits, no leases, only locks that are free here, until there is space"
        ),
        DiskSpace::Full => tracing::error!(
            "the journal's disk is full (space, inodes or a quota): only durable data is read, and nothing is written until there is space"
        ),
        DiskSpace::Enough => tracing::info!("the journal's disk has room again"),
    }
}

fn log_fork(Fork { dc, seq, ours, theirs, peer }: &Fork) {
    let (ours, theirs) = (format!("{ours:016x}"), format!("{theirs:016x}"));
    tracing::error!(
        %dc, seq = %EntryNumber(*seq), %ours, %theirs, %peer,
        "there are two entries of that number in the log of that datacenter: two histories. Nothing is granted, moved or \
         committed until an operator has decided which one is kept"
    );
}

fn log_phase(phase: Phase) {
    match phase {
        Phase::Starting => tracing::info!("starting"),
        Phase::ReadOnly => tracing::warn!(
            "read-only: this server joins or leaves; or after a start a majority of the voters has to say that it was not \
             evicted; or others have to say what they know of our log (after every start for up to peer_timeout; all of \
             them if the data directory is new or a restored copy, and then until leases that a copy may not know are \
             over), or they know more of it"
        ),
        Phase::Grace { leases } => tracing::info!(leases, "waiting for clients to reclaim their locks"),
        Phase::Serving => tracing::info!("serving"),
        Phase::Forked { dc, seq } => {
            let seq = EntryNumber(seq);
            tracing::error!(%dc, %seq, "forked: only reads are served, see Two histories in docs/operations.md");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::lock_server::fakes::dc;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic holds it").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn leases_that_expire_together_are_one_line() {
        let page = Page::default();
        let writer = page.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut expired = Expired::default();
            let mut expire = |count: u64, at_ms: u64| {
                for n in 0..count {
                    let lease = LeaseId::new(dc(0), n + 1);
                    log(&Report::LeaseExpired { lease, held: 2, waiting: 1 }, &mut expired);
                }
                expired.log(Instant::from_nanos(at_ms * 1_000_000));
            };
            expire(1, 0);
            expire(100_000, 500);
            expire(0, 999);
            expire(1, 1_000);
            expire(0, 5_000);
        });
        let bytes = page.0.lock().expect("no panic holds it").clone();
        let text = String::from_utf8(bytes).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].contains("lease expired lease=") && lines[0].contains("held=2"), "{lines:#?}");
        assert!(
            lines[1].contains("leases expired:")
                && lines[1].contains("leases=100001")
                && lines[1].contains("held=200002"),
            "{lines:#?}"
        );
    }
}
