//! Effects of a node: performed at once, in order, each checked by the oracle on its way.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::causal_log::{Entry, LockParts, Op};
use crate::crdt::VersionVector;
use crate::replica::call::{CallId, Grant, Refusal, Reply, SessionId};
use crate::replica::{Effect, Inspect, Notice, Record, Replica, Report, RequestRow};
use crate::sim::client::chosen_wants;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Asked, MadeAt};
use crate::sim::world::nodes::OPERATOR;
use crate::sim::world::{Action, Node, ToClient, World, show};
use geolock_api::names::Position;
use geolock_api::names::{DcId, LockName, Mode, RequestId};

impl World {
    pub(super) fn perform_effects(&mut self, dc: DcId) {
        while let Some(effect) = self.nodes[dc.index()].replica.as_mut().and_then(|r| r.poll_effect()) {
            self.trace.line(self.now, dc, || format!("-> {}", show::effect(&effect)));
            match effect {
                Effect::Persist { position, record } => self.on_persist(dc, position, record),
                Effect::Send { peer, message } => {
                    self.trace.mix(0x5e4d ^ u64::from(peer.get()) << 32);
                    let node = &mut self.nodes[dc.index()];
                    let judged = node.promises.on_send(&node.disk, peer, &message);
                    self.blame(judged);
                    self.send(dc, peer, message);
                }
                Effect::Reply { call, reply } => self.on_effect_reply(dc, call, reply),
                Effect::Notify { session, notice } => {
                    self.trace.mix(session.0);
                    if let Notice::ForceReleased(forced) = &notice {
                        let judged = self.nodes[dc.index()].forced.check_final(forced);
                        self.blame(judged);
                    }
                    if !self.is_news_for_watcher(session, &notice) {
                        self.tell(session, ToClient::Notice(notice));
                    }
                }
                Effect::CloseLink { peer, violation } => {
                    self.fail(FailureKind::Violation, format!("{dc} accuses {peer}: {violation}"));
                }
                Effect::Checkpoint(checkpoint) => self.on_checkpoint(dc, *checkpoint),
                Effect::Report(Report::DigestsDiffer { peer, bucket }) => {
                    let bucket = bucket.escape_ascii();
                    self.fail(FailureKind::Diverged, format!("{dc} and {peer} differ in bucket {bucket}"));
                }
                Effect::Report(Report::SumsDiffer { peer, of }) if self.has_one_history() => {
                    self.fail(FailureKind::Diverged, format!("{dc} and {peer} differed: {of:?}"));
                }
                Effect::Report(Report::PhaseChanged(phase)) => self.note_phase(dc, phase),
                Effect::Report(_) => {}
                Effect::Propose(_) if self.is_cut_off(dc) => {}
                Effect::Propose(proposal) => self.on_proposed(*proposal),
            }
        }
        self.check_wanted(dc);
    }

    /// Checks that a datacenter that takes a state over needs one: it has none, or lacks entries that another
    /// one has truncated. A giver that is down may have had any.
    fn judge_state(&mut self, dc: DcId, position: Position) {
        let before = self.node(dc).disk.applied_before(position, &VersionVector::default());
        let has_truncated =
            |node: &Node| node.inspect().is_none_or(|replica| !before.covers(replica.truncated()));
        // Or decisions, which no other check sees.
        let is_needed = before == VersionVector::default()
            || self.plan.kept_decisions < usize::MAX
            || self.nodes.iter().any(|node| node.dc != dc && has_truncated(node));
        if !is_needed {
            let what =
                format!("{dc} takes a state over at {before}, of which nobody has truncated what it lacks");
            self.fail(FailureKind::Contract, what);
        }
    }

    fn on_persist(&mut self, dc: DcId, position: Position, record: Record) {
        self.trace.mix(position.0);
        match &record {
            Record::Entry(entry) => {
                self.compare_entry(dc, entry);
                if self.has_one_history() && !self.control.evicted.contains(dc) {
                    self.judge_entry(dc, entry);
                }
            }
            Record::ForceReleased(forced) => self.on_forced(dc, position, forced),
            Record::LeaseEnded { lease } => {
                self.nodes[dc.index()].promises.on_lease_ended(*lease, position, self.now);
            }
            Record::StateTaken { vector } => {
                self.tally.state_transfers_received += 1;
                self.judge_state(dc, position);
                let node = &mut self.nodes[dc.index()];
                node.promises.on_state_taken();
                if let Some(damage) = &mut node.damage {
                    damage.took_state = true;
                }
                self.end_txn_holds_at(dc);
                let judged = self.txns.check_closed(vector);
                self.blame(judged);
                let disk = &mut self.nodes[dc.index()].disk;
                let ownership = self.txns.ownership_at(&disk.applied_before(position, vector));
                disk.note_taken(position, vector, ownership);
            }
            Record::Restored => {
                if let Some(damage) = &mut self.nodes[dc.index()].damage {
                    damage.doubts = true;
                }
            }
            Record::LeaseOpened(_)
            | Record::IdReservation { .. }
            | Record::Joined
            | Record::AllSpeak { .. }
            | Record::StatePiece(_)
            | Record::Forked(_)
            | Record::ForkResolved
            | Record::TokenLead { .. }
            | Record::Forgotten { .. }
            | Record::Decided { .. }
            | Record::Silent { .. }
            | Record::RecoveryPromised(_)
            | Record::StayPromised
            | Record::EnteredAgain { .. }
            | Record::Compacted(_)
            | Record::Recovered(_)
            | Record::EntryV1(_) => {}
        }
        if let Err(due) = self.nodes[dc.index()].disk.append(position, record) {
            let what = format!("{dc} persists position {}, due is {}", position.0, due.0);
            self.fail(FailureKind::Contract, what);
        }
    }

    /// Checks an entry that is applied at `dc`, which may have made it.
    fn judge_entry(&mut self, dc: DcId, entry: &Arc<Entry>) {
        self.check_moved_parts(entry);
        self.note_moves(dc, entry);
        self.check_commit_of_victim(dc, entry);
        self.check_split(dc, entry);
        if self.plan.in_order && entry.dc == dc {
            self.check_order(entry);
        }
        self.forget_outcome(dc, entry);
        let at = MadeAt { now: self.now, clocks_are_right: self.plan.clock.is_right() };
        let judged = match entry.dc == dc && !self.txns.is_made(entry) {
            true => self.txns.on_made(entry, &at),
            false => self.txns.on_applied(dc, entry),
        };
        self.blame(judged);
    }

    /// Checks that no transaction commits under a lock that was taken from it by force.
    fn check_commit_of_victim(&mut self, dc: DcId, entry: &Entry) {
        let is_new = entry.dc == dc && !self.txns.is_made(entry);
        if let Some(txn) = entry.ops.iter().find_map(Op::as_commit).filter(|_| is_new).and_then(|c| c.client)
        {
            let judged = self.nodes[dc.index()].forced.on_commit(txn);
            self.blame(judged);
            self.check_guards(dc, txn);
        }
    }

    /// Checks the parts of a transfer that was applied somewhere: only the new owner may believe that it owns
    /// them.
    fn check_moved_parts(&mut self, entry: &Entry) {
        for (_, moved) in entry.ops.iter().flat_map(transfers) {
            moved.parts.iter().for_each(|&(part, _)| self.check_part(&moved.lock, part));
        }
    }

    /// Notes what an entry says of requests, and the parts that a new entry of `dc` moves.
    fn note_moves(&mut self, dc: DcId, entry: &Entry) {
        self.requests.on_applied(dc, entry, self.tally.steps);
        let requests =
            entry.ops.iter().filter_map(|op| if let Op::Request { id, .. } = op { Some(*id) } else { None });
        self.came.extend(requests);
        let is_new = entry.dc == dc && !self.txns.is_made(entry);
        if is_new && self.node(dc).replica.is_some() {
            self.moves.extend(entry.ops.iter().flat_map(transfers).map(|(to, moved)| (to, moved.clone())));
        }
    }

    /// Checks that the receivers of the parts that `dc` moved in this step want them and can be reached. All
    /// moves of a step are judged together: a step with many of them makes several entries.
    fn check_wanted(&mut self, dc: DcId) {
        let (moves, came) = (std::mem::take(&mut self.moves), std::mem::take(&mut self.came));
        let node = &self.nodes[dc.index()];
        let Some(replica) = node.replica.as_ref() else { return };
        // A member that was heard of in this very step, or not heard of for too long in it, is not checked.
        let away = replica.inspect().away().intersection(node.away_before);
        for (to, moved) in &moves {
            let to = *to;
            if self.names_part(dc, to, moved) {
                continue;
            }
            if away.contains(to) {
                let what = format!(
                    "{dc} gives parts of {} to {to}, which it cannot reach or which does not serve",
                    moved.lock
                );
                return self.fail(FailureKind::GivenToUnreachable, what);
            }
            if self.is_known_behind(to) {
                let what = format!("{dc} gives parts of {} to {to}, whose clock is far behind", moved.lock);
                return self.fail(FailureKind::GivenToUnreachable, what);
            }
            let idle = self.holders.idle_for(&moved.lock, dc, node.started, self.now);
            let may_return = self.plan.may_return_idle(idle)
                || self.is_leaving(dc)
                || self.control.stayed.contains(dc)
                || self.is_above_limit(replica, &moves)
                || self.pays_for_shared(replica, &moved.lock, &moves, &came);
            // The part of a new member goes along unasked.
            let moved = self.without_joiners(to, moved);
            let sponsors = replica.inspect().ownership().sponsors();
            let home = |part| match self.plan.rules {
                0 => sponsors.home(&moved.lock).unwrap_or(part),
                // It may have changed in this step.
                _ if to == part || sponsors.home(&moved.lock) == Some(to) => to,
                _ => sponsors.default_owner(&moved.lock, part),
            };
            let home: Option<&dyn Fn(DcId) -> DcId> = if may_return { Some(&home) } else { None };
            if let Err(broken) = self.requests.on_transfer((dc, to), &moved, self.tally.steps, home) {
                return self.blame(Err(broken));
            }
        }
    }

    /// Returns true if more locks than the limit had foreign parts in a datacenter before a step with these
    /// transfers.
    fn is_above_limit(&self, replica: &Replica, moves: &[(DcId, LockParts)]) -> bool {
        let left: BTreeSet<&LockName> = moves.iter().map(|(_, moved)| &moved.lock).collect();
        let here = replica.inspect().counts().locks_away_here;
        here + left.len() as u64 > self.plan.max_away_locks as u64
    }

    /// Returns true if the same step has a transfer of the lock for a shared request, and no exclusive
    /// request of others waited for the lock before it: one that came in it may be too late. While a member
    /// is away, leaves or was evicted, requests may be parked: then those do not count.
    fn pays_for_shared(
        &self,
        replica: &Replica,
        lock: &LockName,
        moves: &[(DcId, LockParts)],
        came: &[RequestId],
    ) -> bool {
        let (dc, step) = (replica.inspect().dc(), self.tally.steps);
        let is_served = |(to, moved): &(DcId, LockParts)| {
            let (to, moved) = (*to, self.without_joiners(*to, moved));
            let is_own = moved.parts.iter().all(|(part, _)| *part == to);
            is_own && moved.lock == *lock && self.requests.on_transfer((dc, to), &moved, step, None).is_ok()
        };
        let node = self.node(dc);
        let away = replica.inspect().away().union(node.away_before);
        let wants = |row: &RequestRow| {
            row.id.dc != dc
                && !came.contains(&row.id)
                && row.wants.locks().contains(&(lock.clone(), Mode::Exclusive))
        };
        moves.iter().any(is_served)
            && (!away.is_empty()
                || !self.still_leaving().is_empty()
                || !self.control.stayed.is_empty()
                // Requests that were parked for one that was evicted are examined again bit by bit.
                || (self.tally.evictions > 0 && (node.was_examining || replica.inspect().is_examining()))
                || !replica.inspect().request_table().iter().any(wants))
    }

    fn check_part(&mut self, lock: &LockName, part: DcId) {
        let believes = |node: &super::Node| {
            let owns = |replica: Inspect| {
                replica.has_state()
                    && !replica.has_left()
                    && replica.members().contains(part)
                    && replica.owner_of(lock, part) == node.dc
            };
            node.inspect().is_some_and(owns) && !self.is_out_of_date(node.dc)
        };
        let mut owners = self.nodes.iter().filter(|node| believes(node)).map(|node| node.dc);
        if let (Some(first), Some(second)) = (owners.next(), owners.next()) {
            let what = format!("{first} and {second} both believe that they own part {part} of {lock}");
            self.fail(FailureKind::TwoOwners, what);
        }
    }

    /// Checks parts that leave: no earlier exclusive request of another datacenter may want their lock.
    fn check_order(&mut self, entry: &Entry) {
        let Some(replica) = &self.nodes[entry.dc.index()].replica else { return };
        let table = replica.inspect().request_table();
        for (to, moved) in entry.ops.iter().flat_map(transfers) {
            let wants = |row: &&RequestRow, weakest| {
                row.wants.locks().iter().any(|(lock, mode)| *lock == moved.lock && *mode >= weakest)
            };
            let first_of = |mode, theirs: bool| {
                let rows = table.iter().filter(|row| (row.id.dc == to) == theirs && wants(row, mode));
                rows.map(|row| (row.at, row.id)).min()
            };
            let shared_will_do = moved.parts.iter().all(|(part, _)| *part == to);
            let served = first_of(if shared_will_do { Mode::Shared } else { Mode::Exclusive }, true);
            let earlier = first_of(Mode::Exclusive, false);
            if let (Some(served), Some(earlier)) = (served, earlier)
                && earlier < served
            {
                let lock = &moved.lock;
                let what = format!("{} gives parts of {lock} to {served:?} past {earlier:?}", entry.dc);
                return self.fail(FailureKind::Overtaken, what);
            }
        }
    }

    fn on_effect_reply(&mut self, dc: DcId, call: CallId, reply: Reply) {
        self.trace.mix(call.session.0 << 20 ^ call.tag);
        let judged = self.nodes[dc.index()].forced.on_reply(call, &reply);
        self.blame(judged);
        if self.is_told_watcher(call, &reply) {
            return;
        }
        if call.session == OPERATOR {
            return self.on_operator_reply(dc, reply);
        }
        self.judge_reply(dc, call, &reply);
        self.tell(call.session, ToClient::Reply { tag: call.tag, reply });
    }

    /// Checks that the promise of an answer is durable by now.
    fn judge_reply(&mut self, dc: DcId, call: CallId, reply: &Reply) {
        // Also an answer that no client waits for any more.
        if let Reply::Reclaimed { kept, .. } = reply {
            self.nodes[dc.index()].promises.on_reclaimed(call, kept);
        }
        if let Some(grant) = granted(reply) {
            self.check_forked_grant(dc, grant.token);
            if self.acts_blindly(dc) {
                self.blind_grants.insert(grant.request);
                if let Some(session) = self.sessions.get(&call.session) {
                    self.clients[session.client].blind_grants.insert(grant.request.n);
                }
            }
        }
        if !self.has_one_history() {
            return;
        }
        let Some(session) = self.sessions.get(&call.session) else { return };
        let client = &self.clients[session.client];
        if client.session() != Some(session.main) {
            return;
        }
        if let Reply::Refused(Refusal::ResourceExhausted { .. }) = reply {
            self.tally.shed += 1;
        }
        if let Reply::Stepped(stepped) = reply {
            let client = session.client;
            return self.judge_step(dc, call, client, stepped);
        }
        let members = self.members_on_disks();
        let node = &mut self.nodes[dc.index()];
        let judged = match reply {
            Reply::Granted(_) | Reply::Chosen(_) => {
                let (Some(grant), Some(lease), Some((key, request))) =
                    (granted(reply), client.lease(), client.acquire_of(call.tag))
                else {
                    return;
                };
                let chosen = match (reply, &request.lists) {
                    (Reply::Chosen(chosen), Some(lists)) => {
                        lists.of(chosen.revision).and_then(|of| chosen_wants(of, chosen))
                    }
                    _ => None,
                };
                let wants = chosen.as_ref().unwrap_or(&request.order.wants).locks();
                self.trace.mix(grant.token.0);
                let is_serial = match node.was_blind {
                    true => Ok(()),
                    false => self.txns.check_serial(&grant.request, &grant.snapshot, wants),
                };
                let judged =
                    node.promises.on_granted(&node.disk, Asked { lease, key, wants }, grant, members);
                judged.and(is_serial)
            }
            Reply::LeaseOpened { lease, .. } => node.promises.on_lease_opened(&node.disk, *lease),
            Reply::LeaseClosed => match client.closing_of(call.tag) {
                Some(lease) => node.promises.on_lease_closed(&node.disk, lease),
                None => Ok(()),
            },
            _ => Ok(()),
        };
        self.blame(judged);
    }

    /// Sends a message to the client of a session, if there still is one.
    fn tell(&mut self, session: SessionId, said: ToClient) {
        if let Some(known) = self.sessions.get(&session) {
            if matches!(said, ToClient::Notice(_)) && self.clients[known.client].manner.behaviour.unary {
                return;
            }
            let action = Action::ToClient { client: known.client, session: known.main, said };
            self.queue.push(self.now + self.plan.load.distance, action);
        }
    }
}

/// Returns the grant in a reply.
fn granted(reply: &Reply) -> Option<&Grant> {
    match reply {
        Reply::Granted(grant) => Some(grant),
        Reply::Chosen(chosen) => Some(&chosen.grant),
        _ => None,
    }
}

/// Returns the transfers of an operation: the receiver, the lock and its parts.
fn transfers(op: &Op) -> impl Iterator<Item = (DcId, &LockParts)> {
    let (to, parts) = match op {
        Op::Transfer { to, parts } => (Some(*to), parts.as_slice()),
        Op::Request { .. }
        | Op::Withdraw { .. }
        | Op::Commit(_)
        | Op::Enter { .. }
        | Op::Split { .. }
        | Op::Done { .. }
        | Op::Freed { .. }
        | Op::Keep { .. }
        | Op::Rehome { .. }
        | Op::Under { .. }
        | Op::Leave => (None, [].as_slice()),
    };
    to.into_iter().flat_map(move |to| parts.iter().map(move |moved| (to, moved)))
}
