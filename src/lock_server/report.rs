//! What an operator is told: one line in the log for each report of the machine.

use crate::replica::Report;
use crate::replica::call::Phase;
use crate::replica::forced::Forced;
use crate::room::Room;

pub(super) fn log(report: &Report) {
    match report {
        Report::PhaseChanged(phase) => log_phase(*phase),
        Report::PeerReachable { peer, reachable: true } => tracing::info!(%peer, "datacenter reachable"),
        Report::PeerReachable { peer, reachable: false } => {
            tracing::warn!(%peer, "datacenter unreachable: requests that need it wait, others go on");
        }
        Report::ClockDrifts { peer, ahead_ms } => {
            tracing::warn!(%peer, ahead_ms, "clocks drift apart: check time synchronisation");
        }
        Report::EntryTooFarAhead { peer, dc, seq, ahead_ms } => {
            tracing::warn!(%peer, %dc, seq, ahead_ms, "an entry of the future waits: check the clocks");
        }
        Report::ClockSkew { active: true } => {
            tracing::error!(
                "our clock is far ahead of most others: no locks move from here until it is right"
            );
        }
        Report::ClockSkew { active: false } => tracing::info!("our clock agrees with most others again"),
        Report::WallClockJumped { ahead_ms } => {
            tracing::warn!(ahead_ms, "the wall clock jumped: following it slowly");
        }
        Report::DiskRoom { room: Room::Low } => tracing::error!(
            "the journal's disk is nearly full: no commits, no leases, no locks but what is free here, until there is room"
        ),
        Report::DiskRoom { room: Room::Full } => tracing::error!(
            "the journal's disk is full: only what is durable is read, nothing is written, until there is room"
        ),
        Report::DiskRoom { room: Room::Enough } => tracing::info!("the journal's disk has room again"),
        Report::Forced(forced) => {
            let Forced { number, by, reason, lock, request, token, label, .. } = &**forced;
            let (label, by) = (label.escape_debug(), by.escape_debug());
            tracing::warn!(number, %by, %reason, %lock, %request, %token, %label, "lock taken from its holder");
        }
        Report::LeaseExpired { lease, held, waiting } => {
            tracing::info!(%lease, held, waiting, "lease expired");
        }
        Report::PeerTooFarBehind { peer } => {
            tracing::warn!(%peer, "it lacks entries that are no longer kept here: it can have our state");
        }
        Report::StateWanted { peer } => {
            tracing::warn!(%peer, "it keeps what we lack no more: asking for its state");
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
        Report::OwnLogBehind { ours, theirs } => {
            tracing::error!(
                ours,
                theirs,
                "others know more of our log than we do: read-only until it is here"
            );
        }
    }
}

fn log_phase(phase: Phase) {
    match phase {
        Phase::Starting => tracing::info!("starting"),
        Phase::ReadOnly => tracing::warn!(
            "read-only: others have to say what they know of our log (after every start for up to peer_timeout; all of \
             them if the data directory is new or a restored copy, and then until leases that a copy may not know are over), \
             or they know more of it"
        ),
        Phase::Grace { leases } => tracing::info!(leases, "waiting for clients to reclaim their locks"),
        Phase::Serving => tracing::info!("serving"),
    }
}
