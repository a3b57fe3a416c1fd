//! Start of a machine: from nothing, or from the checkpoint and the journal.

use std::sync::Arc;

use crate::base::bugs::Bug;
use crate::base::entry_number::follows;
use crate::base::time::{Instant, Now, Timestamp};
use crate::causal_log::{Entry, Log};
use crate::crdt::Ownership;
use crate::lock_state::Locks;
use crate::replica::Replica;
use crate::replica::clients::Clients;
use crate::replica::config::{CLOCK_RESERVATION, ReplicaConfig};
use crate::replica::data::Data;
use crate::replica::deadline::Due;
use crate::replica::ids::Ids;
use crate::replica::ids::id_reservation::{Reservation, Reservations};
use crate::replica::lend::lend;
use crate::replica::lifecycle::{Lifecycle, Parameters};
use crate::replica::members::{ListState, Members};
use crate::replica::outputs::Outputs;
use crate::replica::outputs::output_commit::OutputCommit;
use crate::replica::peers::Peers;
use crate::replica::peers::copies::Copies;
use crate::replica::record::{Checkpoint, Record};
use crate::replica::watches::Watches;
use geolock_api::names::{DcId, DcSet, Position};

/// The reason why the data on disk is not that of this datacenter. Recovery writes nothing.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum RecoveryError {
    #[error("record {} of the journal cannot follow what is before it: {why}", position.0)]
    Record { position: Position, why: String },
    #[error("the data is of a cluster with the members {found:?}, the configuration names {configured:?}")]
    Members { found: DcSet, configured: DcSet },
}

/// A machine that is being read from disk. It makes no steps before [`Recovery::restart`] turns it into a
/// [`Replica`].
struct Recovery {
    replica: Replica,
}

impl Recovery {
    fn new(config: ReplicaConfig, now: Now) -> Recovery {
        let (dc, members, local) = (config.dc, config.agreed.members, &config.local);
        let members = Members::new(dc, config.server, members, config.joins);
        let (all, peers) = (members.entered.all(), members.peers());
        let locks = Locks::new(dc, all, local.hold.clone(), local.hash_seed)
            .with_max_away(local.max_away_locks)
            .with_bugs(config.bugs);
        let log = Log::new(dc, all, config.bugs);
        let (me, peer_timeout, max_log) = (dc, config.agreed.peer_timeout, local.max_log);
        let (may_serve, speaks) = (members.may_serve(), config.speaks);
        let lifecycle = Parameters { me, peers, peer_timeout, max_log, may_serve, speaks };
        let replica = Replica {
            out: Outputs::new(config.bugs),
            ids: Ids::new(now),
            log,
            locks,
            lifecycle: Lifecycle::new(&lifecycle),
            members,
            peers: Peers::new(peers, &config, now),
            clients: Clients::new(&config),
            data: Data::new(&config),
            copies: Copies::default(),
            watches: Watches::default(),
            now,
            due: Due::default(),
            config,
        };
        Recovery { replica }
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<(), RecoveryError> {
        let replica = &mut self.replica;
        let configured = replica.members.entered.all();
        if let Some(state) = &checkpoint.members_state {
            lend!(Decisions, replica).install_members(state, &checkpoint.applied);
            replica.ids.fence = replica.members.fence();
        } else if checkpoint.members != configured {
            return Err(RecoveryError::Members { found: checkpoint.members, configured });
        }
        replica.out.position = checkpoint.position;
        checkpoint.fork.into_iter().for_each(|fork| replica.lifecycle.on_fork(fork));
        replica.lifecycle.versions.note_recorded(checkpoint.all_speak);
        replica.ids.raise_lead(checkpoint.lead_ms, Position::default());
        if checkpoint.joined {
            replica.lifecycle.on_joined();
        } else {
            // The checkpoint does not show if the directory is new or an old copy, so leases that it does not
            // know may live.
            lend!(LogRecovery, replica).become_doubted();
        }
        replica.ids.reservations =
            Reservations::new(Reservation { clock: checkpoint.clock, n: checkpoint.n });
        replica.data.store.restore(checkpoint.contents, &checkpoint.applied);
        let (stamps, hashes) = (&checkpoint.last_stamps, &checkpoint.hashes);
        replica.log.restore(checkpoint.applied, stamps, hashes, &checkpoint.log, replica.now.mono);
        replica.watches.history.restore(checkpoint.past, &checkpoint.log);
        let mut ownership = checkpoint.ownership.reseeded(replica.config.local.hash_seed);
        *ownership.sponsors_mut() = replica.locks.owners().sponsors().clone();
        replica.locks.replay().restore_ownership(ownership);
        for row in &checkpoint.requests {
            replica.locks.log_operations().apply_request(&row.into());
        }
        for lease in checkpoint.leases {
            replica.clients.open_again(&lease, replica.config.lease_time(replica.now));
        }
        for forced in checkpoint.forced {
            replica.clients.note_forced(forced, Position::default(), replica.config.bugs);
        }
        for row in checkpoint.outcomes {
            let needs_majority = !replica.config.local.majority_buckets.is_empty();
            let is_open = replica.clients.leases.find(row.lease).is_some();
            replica.data.transactions.outcomes.restore(row, needs_majority, is_open, replica.now.mono);
        }
        for (lease, key, content) in checkpoint.commit_contents {
            replica.data.transactions.outcomes.restore_content(lease, key, content);
        }
        for (lease, key) in checkpoint.lost_commits {
            replica.data.transactions.outcomes.note_lost(lease, key);
        }
        replica
            .ids
            .clock
            .observe(checkpoint.last_stamps.iter().map(|(_, stamp)| *stamp).max().unwrap_or_default());
        Ok(())
    }

    fn replay(&mut self, position: Position, record: Record) -> Result<(), RecoveryError> {
        let refused = |why: String| RecoveryError::Record { position, why };
        let replica = &mut self.replica;
        if position.0 != replica.out.position.0 + 1 {
            return Err(refused(format!("it should be record {}", replica.out.position.0 + 1)));
        }
        replica.out.position = position;
        match record {
            Record::Entry(entry) | Record::EntryV1(entry) => {
                replay_entry(replica, &entry).map_err(refused)?;
            }
            Record::IdReservation { clock, n } => {
                replica.ids.reservations = Reservations::new(Reservation { clock, n })
            }
            Record::LeaseOpened(lease) => {
                if replica.clients.leases.find(lease.lease).is_some() {
                    return Err(refused(format!("lease {} is open already", lease.lease)));
                }
                replica.clients.open_again(&lease, replica.config.lease_time(replica.now));
            }
            Record::LeaseEnded { lease } => match replica.clients.leases.find(lease) {
                Some(index) => {
                    let secret = replica.clients.secret_while_joining(index, &replica.lifecycle);
                    replica.clients.leases.end(index);
                    replica.data.transactions.outcomes.end_lease(lease, secret, replica.now.mono);
                    replica.clients.audit.end_lease(lease);
                }
                None => return Err(refused(format!("lease {lease} was never opened"))),
            },
            Record::Joined => replica.lifecycle.on_joined(),
            Record::Restored => lend!(LogRecovery, replica).become_doubted(),
            Record::Forked(fork) => replica.lifecycle.on_fork(fork),
            Record::ForkResolved => {
                let _was_forked = replica.lifecycle.on_fork_resolved();
            }
            Record::TokenLead { millis } => replica.ids.raise_lead(millis, Position::default()),
            Record::Forgotten { entries } => replica.log.truncate_again(&entries),
            Record::Decided { index, proposal } => {
                if index != replica.members.decided.config().index().next() {
                    return Err(refused(format!("it is decision {index}")));
                }
                lend!(Decisions, replica).take_decision(index, *proposal);
            }
            Record::Compacted(compacted) => replay_compacted(replica, &compacted).map_err(refused)?,
            Record::Silent { of, number, policy } => {
                replica.members.silences.note(of, number, policy, Position::default())
            }
            Record::RecoveryPromised(promise) => {
                replica.members.note_recovery_promise(promise, Position::default())
            }
            Record::StayPromised => replica.members.stay.note(Position::default()),
            Record::Recovered(report) => replica.members.recovering.note_loss(*report),
            Record::AllSpeak { version } => replica.lifecycle.versions.note_recorded(version),
            Record::StatePiece(piece) => {
                lend!(StateTransfer, replica)
                    .replay_piece(&piece)
                    .map_err(|fault| refused(fault.to_string()))?;
            }
            Record::EnteredAgain { epoch } => lend!(Writer, replica).replay_entered_again(epoch),
            Record::StateTaken { vector } => replica.replay_taken(&vector).map_err(refused)?,
            Record::ForceReleased(forced) => {
                let next = replica.clients.audit.next_number();
                if forced.number != next {
                    return Err(refused(format!("it is forced release {}, due is {next}", forced.number)));
                }
                replica.clients.note_forced(forced, Position::default(), replica.config.bugs);
            }
        }
        Ok(())
    }

    /// Everything read is durable. All readings and numbers from now on are above those of earlier runs.
    fn restart(mut self) -> Replica {
        let replica = &mut self.replica;
        let read = replica.out.position;
        let restarted = read > Position::default();
        replica.locks.replay().end();
        replica.copies.transfers.forget_unfinished_state();
        replica.follow_if_left();
        // It is not known what clients of an earlier run were told, and an old copy of the disk lacks leases.
        let ends = replica.clients.leases.iter().map(|lease| lease.expires).max();
        replica.lifecycle.member_lease.note_told(ends.unwrap_or(Instant::ZERO));
        if restarted {
            let (now, most) = (replica.now.mono, replica.config.local.max_lease_ttl);
            replica.lifecycle.member_lease.note_told(now + most);
        }
        let may_lack_decisions = restarted && replica.config.has_control_group;
        let founders = if may_lack_decisions { replica.members.configured() } else { DcSet::EMPTY };
        replica.members.begin_run(founders, replica.config.bugs);
        lend!(Decisions, replica).follow_peers();
        replica.out.output_commit = OutputCommit::new(replica.out.position);
        replica.log.note_durable(replica.out.position, replica.now.mono);
        replica.data.store.note_durable(replica.out.position);
        let (durable, applied) = (replica.log.durable(), replica.log.applied());
        assert_eq!(**durable, *applied, "what is read from the disk is durable");
        assert_eq!(replica.out.position, read, "recovery writes nothing");
        let bound = replica.ids.reservations.recorded();
        let bound = if replica.config.bugs.has(Bug::TokensReused) {
            Reservation { clock: Timestamp::ZERO, ..bound }
        } else {
            bound
        };
        replica.ids.clock.observe(bound.clock);
        replica.ids.next_n = replica.ids.next_n.max(bound.n);
        lend!(KeyExpiry, replica).restart_expiry(replica.out.position);
        let judge_at = restarted.then_some(replica.now.mono + CLOCK_RESERVATION);
        replica.lifecycle.on_restart(judge_at, replica.ids.clock.physical_millis(), replica.log.applied());
        replica.ids.may_stamp = !replica.lifecycle.state.is_starting();
        if replica.config.bugs.has(Bug::NoGrace) {
            replica.locks.set_unreachable(replica.peers.reachability.away());
            return self.replica;
        }
        replica
            .clients
            .leases
            .start_grace(replica.config.local.max_lease_ttl, replica.config.lease_time(replica.now));
        replica.lifecycle.on_leases_in_grace(replica.clients.leases.in_grace());
        replica.locks.set_unreachable(replica.peers.reachability.away());
        self.replica
    }
}

impl Replica {
    /// Returns the state of `checkpoint` and the records after it, restarted at `now`. Both are empty at the
    /// very first start.
    pub fn recover(
        config: ReplicaConfig,
        now: Now,
        checkpoint: Option<Checkpoint>,
        records: impl IntoIterator<Item = (Position, Record)>,
    ) -> Result<Replica, RecoveryError> {
        let mut recovery = Recovery::new(config, now);
        if let Some(checkpoint) = checkpoint {
            recovery.restore(checkpoint)?;
        }
        for (position, record) in records {
            recovery.replay(position, record)?;
        }
        Ok(recovery.restart())
    }
}

fn replay_compacted(replica: &mut Replica, compacted: &ListState) -> Result<(), String> {
    if !compacted.follows(replica.members.decided.config(), replica.config.agreed.cluster) {
        return Err(format!("decisions up to {} follow no others", compacted.index()));
    }
    lend!(Decisions, replica).take_compacted(compacted);
    Ok(())
}

fn replay_entry(replica: &mut Replica, entry: &Arc<Entry>) -> Result<(), String> {
    let is_next = follows(entry.seq, replica.log.applied().get(entry.dc));
    if !is_next || !replica.log.applied().covers(&entry.deps) {
        return Err(format!("entry {}:{} is not the next one", entry.dc, entry.seq));
    }
    replica.follow_if_left();
    lend!(Applier, replica).validate(entry).map_err(|fault| fault.to_string())?;
    lend!(Applier, replica).take_in(entry, Position::default());
    replica.watches.history.remember(entry);
    replica.locks.replay().forget_idle(replica.now.mono);
    // All of it is durable, and nobody reads an older snapshot.
    while replica.data.store.fold(usize::MAX) {}
    Ok(())
}

/// Returns the state that the records so far amount to, without what is copied in several steps: locks,
/// requests, keys, leases, outcomes and entries.
pub(in crate::replica) fn begin_checkpoint(replica: &Replica) -> Checkpoint {
    let bound = replica.ids.reservations.recorded();
    Checkpoint {
        position: replica.out.position,
        members: replica.members.entered.all(),
        joined: replica.lifecycle.own_log.has_joined(),
        clock: bound.clock,
        n: bound.n.max(replica.ids.next_n),
        applied: replica.log.applied().clone(),
        last_stamps: last_stamps(&replica.log),
        ownership: Ownership::new(replica.config.local.hash_seed),
        requests: Vec::new(),
        leases: Vec::new(),
        contents: Vec::new(),
        outcomes: Vec::new(),
        log: Vec::new(),
        past: replica.watches.history.past(replica.log.truncated().vector()),
        forced: replica.clients.audit.to_keep(),
        hashes: replica.log.hashes(),
        all_speak: replica.lifecycle.versions.all(),
        fork: replica.lifecycle.state.fork(),
        lead_ms: replica.ids.lead.millis,
        members_state: replica.members.state(replica.locks.owners().sponsors()),
        lost_commits: replica.data.transactions.outcomes.lost(),
        commit_contents: Vec::new(),
    }
}

/// Returns the stamp of the last applied entry of each datacenter.
pub(in crate::replica) fn last_stamps(log: &Log) -> Vec<(DcId, Timestamp)> {
    log.applied().iter().map(|(dc, _)| (dc, log.last_stamp(dc))).collect()
}
