//! A client's reactions to its server's messages. An impossible answer is the server's fault and fails the
//! run.

use std::time::Duration;

use crate::replica::call::{Call, Grant, IdempotencyKey, Proof, Reclaim, Refusal, Reply, Target, Wait};
use crate::sim::client::transactions::TxnCall;
use crate::sim::client::{Client, HoldEnd, Lease, Out, Pending, Request, State, Timer, names_home, usable};
use crate::sim::failure::FailureKind;
use crate::sim::queue::Moment;
use geolock_api::names::{LeaseId, RequestId};

/// Pause after a lease was refused because the disk is full.
const AFTER_DISK_FULL: Duration = Duration::from_millis(100);

impl Client {
    /// The server ended the lease by itself.
    pub fn on_lease_ended(&mut self, now: Moment, lease: LeaseId, out: &mut Vec<Out>) {
        let Some(ours) = self.lease.as_ref().filter(|ours| ours.id == lease) else { return };
        if now < ours.valid_until && !self.lost_leases.contains(&lease) && !self.is_moving {
            let until = ours.valid_until;
            let what = format!(
                "client {} was told at {now} that its {lease:?} ended; it is valid until {until}",
                self.number
            );
            out.push(Out::Fails { kind: FailureKind::LeaseEndedEarly, what });
        }
        self.forget_lease(HoldEnd::Told, out);
        self.open_lease(now, out);
    }

    pub fn on_reply(&mut self, now: Moment, tag: u64, reply: Reply, out: &mut Vec<Out>) {
        let Some(pending) = self.pending.remove(&tag) else {
            let what = format!("client {} got a second reply to call {tag}: {reply:?}", self.number);
            out.push(Out::Fails { kind: FailureKind::Contract, what });
            return;
        };
        match (pending, reply) {
            (Pending::Open { sent, secret }, Reply::LeaseOpened { lease, ttl }) => {
                let valid_until = sent + usable(ttl);
                self.lease = Some(Lease { id: lease, secret, valid_until, attached: true, lapsed: false });
                self.arm_lease_timer(out);
                self.resend(now, out);
            }
            (Pending::Attach { sent }, Reply::LeaseAttached { ttl, reclaim }) => {
                self.on_attached(now, sent, ttl, reclaim, out);
            }
            (Pending::KeepAlive { sent }, Reply::Renewed { ttl }) => self.renewed(sent, ttl, out),
            (Pending::Acquire(key), Reply::Granted(grant)) => self.on_granted(now, key, grant, out),
            (Pending::Acquire(key), Reply::Chosen(chosen)) => self.on_chosen(now, key, *chosen, out),
            (Pending::End(key), Reply::Released) => {
                if let Some(Request { state: State::Ending { id: None }, .. }) = self.requests.get(&key) {
                    self.cancelled.insert(key);
                }
                self.over(key, out);
            }
            (Pending::Amend(key), Reply::Amended) => self.on_amended(key, out),
            (Pending::Downgrade(key), Reply::Downgraded) => self.on_downgraded(key),
            (Pending::Drop(id), Reply::Released) => self.unwanted.retain(|unwanted| *unwanted != id),
            (Pending::Reclaim, Reply::Reclaimed { kept, lost }) => {
                let given_back = kept.iter().filter(|id| self.unwanted.contains(id)).count();
                out.push(Out::Reclaimed { count: kept.len() - given_back });
                self.drop_unwanted(out);
                self.on_lost(now, &lost, out);
            }
            (Pending::Close { .. }, Reply::LeaseClosed) => {}
            // It has run out by its own count, perhaps while the server was stopped, and the server need not
            // have sent a notice.
            (Pending::Close { valid_until, .. }, Reply::Refused(Refusal::UnknownLease(_)))
                if valid_until <= now => {}
            (Pending::Txn(key, call), Reply::Stepped(stepped)) => {
                self.on_stepped(now, (key, call), &stepped, out);
            }
            (Pending::Read, Reply::Stepped(_)) => {
                self.reads.remove(&tag);
            }
            (Pending::Read, Reply::Refused(refusal)) => self.on_read_refused(tag, &refusal, out),
            (pending, Reply::Refused(refusal)) if self.may_yet_be_done(tag, pending, &refusal) => {}
            (pending, Reply::Refused(refusal)) => self.on_refused(now, pending, refusal, out),
            (pending, reply) => {
                let what = format!("client {} got {reply:?} to {pending:?}", self.number);
                out.push(Out::Fails { kind: FailureKind::Contract, what });
            }
        }
    }

    fn on_attached(&mut self, now: Moment, sent: Moment, ttl: Duration, reclaim: bool, out: &mut Vec<Out>) {
        // It may have run out while the answer was under way: then there is another one by now, or none.
        let Some(lease) = &mut self.lease else { return };
        lease.attached = true;
        let id = lease.id;
        self.renewed(sent, ttl, out);
        if reclaim {
            self.requests.values_mut().for_each(|request| request.shaken = true);
            self.txns.values_mut().for_each(|txn| txn.shaken = true);
            if self.manner.behaviour.silent {
                self.give_up_holds(out);
                return self.resend(now, out);
            }
            let held = self.requests.iter().filter_map(|(&key, request)| {
                let State::Held { id, token } = request.state else { return None };
                let wants = request.order.wants.clone();
                Some(Reclaim { request: id, key: Some(key), wants, token, label: self.label.clone() })
            });
            let mut held: Vec<Reclaim> = held.collect();
            if let Some(stale) = self.released.take() {
                out.push(Out::ReclaimsStale);
                self.unwanted.push(stale.request);
                held.push(stale);
            }
            let call = Call::Reclaim { lease: id, proof: Proof::Attached, held };
            self.call(Pending::Reclaim, call, out);
        } else {
            // The answer to an earlier reclaim was lost with its session.
            self.drop_unwanted(out);
        }
        self.resend(now, out);
    }

    /// Releases the locks that it does not want. An answer may be lost with its session, so they stay noted.
    fn drop_unwanted(&mut self, out: &mut Vec<Out>) {
        self.unwanted.clone().into_iter().for_each(|id| self.drop_hold(id, out));
    }

    fn drop_hold(&mut self, id: RequestId, out: &mut Vec<Out>) {
        let Some(lease) = self.lease() else { return };
        let call = Call::Release { lease, proof: Proof::Attached, target: Target::Id(id) };
        self.call(Pending::Drop(id), call, out);
    }

    pub(super) fn on_granted(&mut self, now: Moment, key: IdempotencyKey, grant: Grant, out: &mut Vec<Out>) {
        let valid = self.lease.as_ref().is_some_and(|lease| !lease.lapsed && lease.valid_until > now);
        let Some(request) = self.requests.get_mut(&key) else { return self.give_back(key, &grant, out) };
        let id = grant.request;
        match request.state {
            State::Waiting if valid => {
                request.state = State::Held { id, token: grant.token };
                if names_home(&request.order.wants) {
                    self.first_home.get_or_insert(now);
                }
                if let Some(hold) = request.order.hold {
                    out.push(Out::Timer { at: now + hold, timer: Timer::Release(key) });
                }
                out.push(Out::Holds { key, grant });
            }
            State::Waiting => {
                request.state = State::Ending { id: Some(id) };
                self.send_end(key, out);
            }
            State::Held { id: before, token } if before != id || token != grant.token => {
                let what = format!("client {} holds {before} with {token:?} and got {grant:?}", self.number);
                out.push(Out::Fails { kind: FailureKind::Contract, what });
            }
            State::Held { .. } | State::Ending { .. } => {}
        }
    }

    /// Returns true if the refusal of one copy of a call does not decide the key: a temporary refusal does
    /// not use it up, and a copy that was sent later is still to be answered.
    fn may_yet_be_done(&self, tag: u64, pending: Pending, refusal: &Refusal) -> bool {
        let passes =
            matches!(refusal, Refusal::DiskFull | Refusal::Draining | Refusal::ResourceExhausted { .. });
        let is_copied = matches!(pending, Pending::Acquire(_) | Pending::Txn(_, TxnCall::Step(0)));
        passes && is_copied && self.pending.range(tag..).any(|(_, later)| *later == pending)
    }

    /// Releases a grant that no request of the client waits for.
    fn give_back(&mut self, key: IdempotencyKey, grant: &Grant, out: &mut Vec<Out>) {
        if self.cancelled.contains(&key) {
            let what =
                format!("client {} was granted request {key} after its cancel was answered", self.number);
            out.push(Out::Fails { kind: FailureKind::Contract, what });
        }
        let of_this_lease = |lease: &&Lease| lease.attached && grant.request.n > lease.id.n();
        if self.lease.as_ref().filter(of_this_lease).is_some() {
            self.unwanted.push(grant.request);
            self.drop_hold(grant.request, out);
        }
    }

    /// The server says that these requests lost their locks.
    pub fn on_lost(&mut self, now: Moment, lost: &[RequestId], out: &mut Vec<Out>) {
        let valid = self.lease.as_ref().is_some_and(|lease| !lease.lapsed && lease.valid_until > now);
        let held = self.requests.iter().filter_map(|(key, r)| match r.state {
            State::Held { id, .. } => Some((*key, id)),
            _ => None,
        });
        let told: Vec<(IdempotencyKey, RequestId)> = held.filter(|(_, id)| lost.contains(id)).collect();
        for (key, id) in told {
            self.requests.remove(&key);
            out.push(Out::Ends { key, why: HoldEnd::Told });
            // After an unmarked rollback of its disk, the server cannot know which parts it gave away after
            // the copy, if the members that know are away. A client without a stream gets no notice of a
            // force release.
            let is_unheard = self.manner.behaviour.unary && self.lost_to_operator == self.lease();
            let is_blind = self.lease() == self.rolled_back || self.blind_grants.contains(&id.n);
            if valid && !is_blind && !is_unheard {
                let what = format!("client {} came back in time and lost request {key}", self.number);
                out.push(Out::Fails { kind: FailureKind::HoldLost, what });
            }
        }
    }

    /// The server says that an operator took these locks; it says so only of a real force release.
    pub fn on_force_released(&mut self, lost: RequestId, out: &mut Vec<Out>) {
        let is_it =
            |(_, r): &(&IdempotencyKey, &Request)| matches!(r.state, State::Held { id, .. } if id == lost);
        if let Some(key) = self.requests.iter().find(is_it).map(|(key, _)| *key) {
            self.requests.remove(&key);
            out.push(Out::Ends { key, why: HoldEnd::Told });
        }
    }

    fn over(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let ended = self.requests.remove(&key);
        if ended.is_some_and(|request| !matches!(request.state, State::Ending { id: Some(_) })) {
            out.push(Out::Over { key });
        }
    }

    fn on_refused(&mut self, now: Moment, pending: Pending, refusal: Refusal, out: &mut Vec<Out>) {
        match (pending, &refusal) {
            (Pending::Txn(key, call), refusal) if self.lease() != self.lease_of_txn(key) => {
                self.on_txn_refused(now, (key, call), refusal, out);
            }
            (_, Refusal::UnknownLease(lease)) if !matches!(pending, Pending::Close { .. }) => {
                self.on_lease_ended(now, *lease, out);
            }
            (Pending::Txn(key, call), refusal) => self.on_txn_refused(now, (key, call), refusal, out),
            (Pending::Open { .. }, Refusal::ResourceExhausted { retry_after, .. }) if self.may_be_refused => {
                out.push(Out::Timer { at: now + *retry_after, timer: Timer::OpenLease });
            }
            (Pending::Open { .. }, Refusal::NotBacked { retry_after }) => {
                out.push(Out::Timer { at: now + *retry_after, timer: Timer::OpenLease });
            }
            (Pending::Attach { .. }, Refusal::NotBacked { retry_after }) => {
                out.push(Out::Timer { at: now + *retry_after, timer: Timer::Attach });
            }
            (Pending::KeepAlive { .. }, Refusal::NotBacked { .. }) => {}
            (Pending::Open { .. }, Refusal::Draining) if self.is_moving => {
                // Also what it wanted to ask for under the lease that it does not get.
                self.forget_lease(HoldEnd::Expired, out);
                self.retired = true;
            }
            (Pending::Open { .. }, Refusal::DiskFull) if self.disk_was_full => {
                out.push(Out::Timer { at: now + AFTER_DISK_FULL, timer: Timer::OpenLease });
            }
            (Pending::Acquire(key), refusal) => self.on_acquire_refused(now, key, refusal, out),
            (Pending::End(key), Refusal::NotHeld) => self.on_not_held(key, out),
            (Pending::End(key), Refusal::ForceReleased(_)) => self.over(key, out),
            (Pending::Drop(id), Refusal::NotHeld | Refusal::ForceReleased(_)) => {
                self.unwanted.retain(|unwanted| *unwanted != id);
            }
            // An earlier reclaim was accepted, and its answer was lost with its session.
            (Pending::Reclaim, Refusal::NoReclaimExpected(_)) => self.drop_unwanted(out),
            (Pending::Downgrade(_) | Pending::Amend(_), Refusal::NotAttached(lease))
                if self.lease() != Some(*lease) => {}
            (Pending::Amend(key), refusal) if self.on_amendment_refused(key, refusal) => {}
            (Pending::Downgrade(key), refusal) if self.on_downgrade_refused(now, key, refusal, out) => {}
            (
                Pending::KeepAlive { .. } | Pending::End(_) | Pending::Drop(_) | Pending::Reclaim,
                Refusal::NotAttached(lease),
            ) if self.lease() != Some(*lease) => {}
            (pending, refusal) => {
                let what = format!("client {} was refused {pending:?}: {refusal}", self.number);
                out.push(Out::Fails { kind: FailureKind::Contract, what });
            }
        }
    }

    fn on_acquire_refused(
        &mut self,
        now: Moment,
        key: IdempotencyKey,
        refusal: &Refusal,
        out: &mut Vec<Out>,
    ) {
        let Some(request) = self.requests.get(&key) else { return };
        let ending = matches!(request.state, State::Ending { .. });
        let waited = now.since(request.issued);
        let is_victim = self.lost_to_operator.is_some() && self.lost_to_operator == self.lease();
        let allowed = match (refusal, request.order.wait) {
            (Refusal::NotFree | Refusal::NotEnoughFree { .. } | Refusal::NotServing(_), wait) => {
                wait == Wait::Try
            }
            // A server's clock may run fast by 1 %.
            (Refusal::TimedOut(_) | Refusal::NotEnoughInTime { .. }, Wait::AtMost(limit)) => {
                waited >= limit - limit / 50
            }
            (Refusal::Cancelled, _) => ending,
            // An earlier copy was refused because of overload: a higher key was used since, so this one may
            // not begin any more.
            (Refusal::IdempotencyKeyFinished(_), _) if self.may_be_refused || self.is_moving => true,
            (Refusal::IdempotencyKeyFinished(_), wait) => {
                let was_early = self.may_be_too_early(request);
                // An earlier copy was refused because a home had left.
                let is_homed = self.homes_may_end && names_home(&request.order.wants);
                is_homed || wait != Wait::Forever || ending || self.disk_was_full || is_victim || was_early
            }
            // Granted, and taken by force before the grant could be answered.
            (Refusal::ForceReleased(_), _) => is_victim,
            (Refusal::Draining, _) => self.is_moving,
            (Refusal::UnknownHome { .. }, _) => self.homes_may_end,
            (Refusal::DiskFull, _) => self.disk_was_full,
            (Refusal::NotYet { .. }, _) => self.may_be_too_early(request),
            (Refusal::ResourceExhausted { .. }, _) => self.may_be_refused,
            (Refusal::LeaseEnded, _) => request.shaken || self.is_moving,
            _ => ending,
        };
        if !allowed {
            let what = format!("client {}, request {key} after {waited:?}: {refusal}", self.number);
            out.push(Out::Fails { kind: FailureKind::Contract, what });
        }
        if let (Refusal::ResourceExhausted { retry_after, .. }, false) = (refusal, ending) {
            return self.ask_later(now + *retry_after, key, out);
        }
        // A cancelled request ends with the answer to the cancel.
        if !ending {
            self.over(key, out);
        }
    }

    /// Returns true if the request may have come before its server knew that all datacenters understand
    /// homes: once it has granted one, it knows.
    pub(super) fn may_be_too_early(&self, request: &Request) -> bool {
        names_home(&request.order.wants) && self.first_home.is_none_or(|first| request.issued <= first)
    }

    fn on_not_held(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        if let Some(Request { state: State::Ending { id: Some(id) }, shaken: false, .. }) =
            self.requests.get(&key)
        {
            let what = format!(
                "client {} released {id}, which it held, and was told that it never did",
                self.number
            );
            out.push(Out::Fails { kind: FailureKind::Contract, what });
        }
        self.over(key, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::call::{OnDisconnect, SessionId, Wait};
    use crate::sim::client::{Manner, Order};
    use crate::sim::scene::wants;
    use geolock_api::names::{DcId, FencingToken, Mode};

    /// Returns a client that sent an acquire twice under one key.
    fn asked_twice() -> (Client, IdempotencyKey, Vec<u64>) {
        let dc = DcId::new(0).expect("a small id");
        let manner = Manner {
            ttl: Duration::from_secs(5),
            on_disconnect: OnDisconnect::Keep,
            stubborn: false,
            forgetful: false,
            behaviour: Default::default(),
        };
        let (mut client, mut out, now) = (Client::new(0, dc, manner), Vec::new(), Moment::from_millis(0));
        client.disk_was_full = true;
        client.on_connected(now, SessionId(1), &mut out);
        let opened = Reply::LeaseOpened { lease: LeaseId::new(dc, 1), ttl: manner.ttl };
        client.on_reply(now, 1, opened, &mut out);
        let order = Order { wants: wants(&["a"], Mode::Exclusive), wait: Wait::Forever, hold: None };
        let key = client.acquire(now, order, &mut out);
        client.send_acquire(now, key, &mut out);
        (client, key, vec![2, 3])
    }

    fn granted() -> Reply {
        let request = RequestId { dc: DcId::new(0).expect("a small id"), n: 7 };
        Reply::Granted(Grant { request, token: FencingToken(1), snapshot: Default::default() })
    }

    /// One copy was refused while the disk was full, and another one granted once there was space: the client
    /// took the refusal for the answer and held the lock, by its lease, for ever.
    #[test]
    fn the_refusal_of_one_copy_is_not_the_answer_to_another() {
        let (mut client, key, tags) = asked_twice();
        let (now, mut out) = (Moment::from_millis(1), Vec::new());
        client.on_reply(now, tags[0], Reply::Refused(Refusal::DiskFull), &mut out);
        assert_eq!(client.requests()[&key].state, State::Waiting);
        client.on_reply(now, tags[1], granted(), &mut out);
        assert!(matches!(client.requests()[&key].state, State::Held { .. }));
    }

    #[test]
    fn a_grant_that_nobody_waits_for_is_given_back() {
        let (mut client, key, tags) = asked_twice();
        let (now, mut out) = (Moment::from_millis(1), Vec::new());
        client.on_reply(now, tags[1], Reply::Refused(Refusal::DiskFull), &mut out);
        assert!(!client.requests().contains_key(&key), "it was the last copy");
        out.clear();
        client.on_reply(now, tags[0], granted(), &mut out);
        let is_release = |call: &Call| matches!(call, Call::Release { .. });
        let released = |out: &Out| matches!(out, Out::Call { call, .. } if is_release(call));
        assert!(matches!(&out[..], [out] if released(out)), "{out:?}");
    }
}
