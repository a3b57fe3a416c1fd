//! Requests of this datacenter's clients: acquire, grant, release, cancel, reclaim.

use crate::base::bugs::Bug;
use std::sync::Arc;
use std::time::Duration;

use super::enough::{AnyOf, Enough, Member, Rank, Ranked, choose, trim};
use super::lock::LockIndex;
use super::queue::Order;
use super::request::{Request, RequestIndex, State, Want};
use super::schedule::Schedule;
use super::tables::Tables;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::Wants;
use geolock_api::names::{FencingToken, LeaseId, LockName, Mode, Position, RequestId};

/// A request of a client.
pub(crate) struct NewRequest<'a> {
    pub id: RequestId,
    /// Reading of the hybrid clock: the time of the request in the order, unless it needs another datacenter.
    pub at: Timestamp,
    pub wants: &'a Wants,
    pub lease: LeaseId,
    pub label: &'a Arc<str>,
}

/// A request of a client for enough of many locks.
pub(crate) struct NewEnough<'a> {
    pub id: RequestId,
    /// As in [`NewRequest`].
    pub at: Timestamp,
    pub of: &'a Arc<AnyOf>,
    /// The number of the last amendment of this list; 0: it is the first one.
    pub revision: u64,
    pub lease: LeaseId,
    pub label: &'a Arc<str>,
}

/// A grant from before a restart, as its client reclaims it.
pub(crate) struct HeldRequest<'a> {
    pub request: NewRequest<'a>,
    pub token: FencingToken,
}

/// Decides if a request that is not granted at once stays in the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IfNotFree {
    Wait,
    GiveUp,
}

/// A request that was granted just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub id: RequestId,
    /// See [`State::Granted`].
    pub ready: Position,
    pub since: Instant,
    pub was_published: bool,
}

/// Result of an acquire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquired {
    /// [`super::Locks::next_granted`] returns the request.
    Granted(RequestIndex),
    Waiting(RequestIndex),
    /// The request left no trace.
    NotFree,
    /// The same, of a request for enough locks; the sum of the weights of the candidates that are free.
    NotEnough(u128),
}

/// Result of a downgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Downgraded {
    Done,
    /// The lock is held shared already.
    IsShared,
    /// The lock is none of the request.
    NotWanted,
}

/// Takes the calls of this datacenter's clients, see [`super::Locks::local_requests`].
pub(crate) struct LocalRequests<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) schedule: &'a mut Schedule,
}

impl LocalRequests<'_> {
    /// Grants the request at once, or inserts it into the queues.
    pub fn acquire(self, new: &NewRequest<'_>, if_not_free: IfNotFree, now: Instant) -> Acquired {
        let LocalRequests { tables, schedule } = self;
        debug_assert!(tables.requests.find(new.id).is_none(), "request {} is new", new.id);
        debug_assert_eq!(new.wants.validate(), Ok(()), "the wants of {} were checked", new.id);
        let mut row = tables.new_row(new, now);
        let mut learnt = false;
        for want in &row.wants {
            learnt |= tables.locks[want.lock].history.note_request(want.mode, now);
        }
        if tables.view.permissions.grant && tables.is_free(&row, now) {
            debug_assert!(tables.rivals(&row).is_empty(), "request {} is granted beside a rival", row.id);
            let index = tables.requests.insert(row);
            schedule.grant(tables, index, now);
            return Acquired::Granted(index);
        }
        if learnt {
            row.wants.iter().for_each(|want| tables.locks.mark(want.lock));
        }
        if if_not_free == IfNotFree::GiveUp {
            note_idle(tables, &row, now);
            return Acquired::NotFree;
        }
        row.at = row.at.plus(request_delay(tables, &row));
        row.parked = tables.should_park(&row);
        let index = tables.requests.insert(row);
        tables.enqueue(index);
        tables.note_wait(index);
        for i in 0..tables.requests[index].wants.len() {
            let lock = tables.requests[index].wants[i].lock;
            schedule.publish(tables, lock, now);
            tables.locks.note_idle(lock, &tables.policies, now);
        }
        Acquired::Waiting(index)
    }

    /// Returns the holders that conflict with a reclaimed request. All have smaller tokens, and the caller
    /// ends them before the reclaim.
    ///
    /// Returns `None` if the request cannot be held: its parts are not here, or a conflicting holder has a
    /// higher token.
    pub fn conflicts_of(self, held: &HeldRequest<'_>, now: Instant) -> Option<Vec<RequestId>> {
        let tables = self.tables;
        let row = tables.new_row(&held.request, now);
        note_idle(tables, &row, now);
        let here = row.wants.iter().all(|want| tables.view.has_parts(&tables.locks[want.lock], want.mode));
        let rivals = tables.rivals(&row);
        // A rival without a token was granted in this step.
        let is_lower =
            |rival: &RequestIndex| tables.requests[*rival].token().is_none_or(|token| token < held.token);
        let stands = rivals.iter().all(is_lower);
        let stands = stands || tables.view.bugs.has(Bug::StaleReclaim);
        (here && stands).then(|| rivals.iter().map(|rival| tables.requests[*rival].id).collect())
    }

    /// Holds a request again that was held before a restart. No holder conflicts, see
    /// [`LocalRequests::conflicts_of`].
    pub fn reclaim(self, held: &HeldRequest<'_>, now: Instant) -> RequestIndex {
        let tables = self.tables;
        let row = tables.new_row(&held.request, now);
        assert!(tables.rivals(&row).is_empty(), "request {} is reclaimed beside a rival", row.id);
        let index = tables.requests.insert(row);
        // Its client knows that it holds it: nobody has to be told.
        tables.hold(index, now);
        tables.requests.set_token(index, held.token);
        index
    }

    /// Sets the token of a fresh grant. Returns the facts that the caller needs to answer it.
    pub fn set_token(self, request: RequestIndex, token: FencingToken) -> Fresh {
        let (id, local, ready) = self.tables.requests.set_token(request, token);
        Fresh { id, ready, since: local.since, was_published: local.publication.was_published() }
    }

    /// Ends a held request. `position`: the record of that, if there is one. A later grant is answered only
    /// when the journal is durable up to there.
    pub fn release(self, request: RequestIndex, position: Position, now: Instant) {
        self.tables.release(request, position, now);
    }

    /// A commit under a held request, which stays held: a later grant of its locks is answered only when the
    /// journal is durable up to `position`.
    pub fn note_commit(self, request: RequestIndex, position: Position) {
        let Tables { locks, requests, .. } = self.tables;
        let row = &requests[request];
        assert!(row.is_held(), "request {} is committed under while it is held", row.id);
        row.wants.iter().for_each(|want| locks.note_commit(want.lock, position));
    }

    /// Makes an exclusive hold of one lock of a held request a shared one, with the same token.
    pub fn downgrade(self, request: RequestIndex, lock: &LockName, now: Instant) -> Downgraded {
        let Tables { locks, requests, .. } = self.tables;
        let Some(want) = requests.place_of(request, |want| locks[want.lock].name.cmp(lock)) else {
            return Downgraded::NotWanted;
        };
        if requests[request].wants[want].mode == Mode::Shared {
            return Downgraded::IsShared;
        }
        let index = requests.downgrade(request, want);
        locks.downgrade(index, now);
        Downgraded::Done
    }

    /// Ends a waiting request.
    pub fn cancel(self, request: RequestIndex, now: Instant) {
        let LocalRequests { tables, schedule } = self;
        let local = tables.requests[request].local().expect("requests of others are withdrawn by them");
        assert_eq!(local.state, State::Waiting, "only waiting requests are cancelled");
        schedule.withdraw(tables, request);
        tables.forget_waiting(request, now);
    }
}

/// Calls for enough of many locks.
impl LocalRequests<'_> {
    /// Grants the request at once, or lets it wait for its target.
    pub fn acquire_enough(self, new: &NewEnough<'_>, if_not_free: IfNotFree, now: Instant) -> Acquired {
        let LocalRequests { tables, schedule } = self;
        let order = Order { at: new.at, id: new.id };
        let locks: Vec<LockIndex> = new.of.names().map(|name| tables.activate(name)).collect();
        let mut row = Enough::new(Arc::clone(new.of), new.revision, order, locks);
        let ranked: Vec<Ranked> = (0..row.locks.len())
            .map(|place| {
                let (lock, weight) = (row.locks[place], row.weight(place as u32));
                Ranked { place: place as u32, weight, rank: tables.rank(lock, order, false, now) }
            })
            .collect();
        let free: Vec<Ranked> = ranked.iter().copied().filter(|it| it.rank == Rank::Free).collect();
        let sum_of_free = free.iter().map(|it| u128::from(it.weight)).sum();
        let chosen = choose(free, row.limits()).filter(|_| tables.view.permissions.grant);
        let is_granted = chosen.is_some();
        if !is_granted && if_not_free == IfNotFree::GiveUp {
            row.locks.iter().for_each(|lock| tables.locks.note_idle(*lock, &tables.policies, now));
            return Acquired::NotEnough(sum_of_free);
        }
        let target = chosen.or_else(|| choose(ranked.clone(), row.limits()));
        let target = target.expect("the candidates reach the amount");
        let target = if is_granted { needed(&row, &target) } else { target };
        let mut request = tables.new_row_of(new, target.iter().map(|place| row.locks[*place as usize]), now);
        if is_granted {
            let others: Vec<LockIndex> = row.locks.clone();
            row.granted(target);
            let index = tables.requests.insert(request);
            tables.enough.insert(index, row);
            schedule.grant(tables, index, now);
            others.into_iter().for_each(|lock| tables.locks.note_idle(lock, &tables.policies, now));
            return Acquired::Granted(index);
        }
        request.at = request.at.plus(request_delay(tables, &request));
        row.offered_as = request.order();
        row.set_members(&request.wants, &ranked);
        request.parked = tables.should_park(&request);
        let index = tables.requests.insert(request);
        tables.enough.insert(index, row);
        tables.enqueue(index);
        tables.put_offers(index);
        tables.note_wait(index);
        for i in 0..tables.requests[index].wants.len() {
            let lock = tables.requests[index].wants[i].lock;
            schedule.publish(tables, lock, now);
        }
        if !tables.requests[index].local().is_some_and(|local| local.publication.is_published()) {
            tables.enough.look_again(index, now);
        }
        Acquired::Waiting(index)
    }

    /// Returns the sum of the weights of the candidates that are free for a waiting request; `None` for one
    /// that wants all of its locks.
    pub fn free_of(self, request: RequestIndex, now: Instant) -> Option<u128> {
        self.tables.enough.get(request)?;
        let ranked = self.tables.ranked(request, now);
        let free = ranked.iter().filter(|it| it.rank == Rank::Free);
        Some(free.map(|it| u128::from(it.weight)).sum())
    }

    /// Publishes a waiting request again, under a new id and with its old time.
    pub fn ask_again(self, request: RequestIndex, id: RequestId, now: Instant) {
        let LocalRequests { tables, schedule } = self;
        schedule.ask_again(tables, request, id, now);
    }
}

/// Returns those of some free candidates that are needed to reach the amount.
fn needed(row: &Enough, places: &[u32]) -> Vec<u32> {
    let member = |place: &u32| Member { place: *place, weight: row.weight(*place), is_free: true };
    trim(places.iter().map(member).collect(), row.limits())
}

/// Puts the locks of a request that is not inserted into the list of idle locks, as far as they are idle.
fn note_idle(tables: &mut Tables, row: &Request, now: Instant) {
    row.wants.iter().for_each(|want| tables.locks.note_idle(want.lock, &tables.policies, now));
}

/// Returns the delay that is added to the time of a request that lacks parts.
fn request_delay(tables: &Tables, row: &Request) -> Duration {
    let delay = |want: &Want| {
        let lock = &tables.locks[want.lock];
        let lacks = !tables.view.has_parts(lock, want.mode);
        if lacks { tables.policies.request_delay(lock.rule) } else { Duration::ZERO }
    };
    row.wants.iter().map(delay).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{Locks, Permissions, Published};
    use super::*;
    use geolock_api::names::{DcId, DcSet, LockName, Mode};

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn wants(wants: &[(&str, Mode)]) -> Wants {
        let named = |(name, mode): &(&str, Mode)| (LockName::try_from(*name).expect("valid"), *mode);
        Wants::all(wants.iter().map(named).collect()).expect("some locks")
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn acquire(locks: &mut Locks, n: u64, wants: &Wants, now: Instant) -> Acquired {
        ask(locks, n, wants, IfNotFree::GiveUp, now)
    }

    fn ask(locks: &mut Locks, n: u64, wants: &Wants, if_not_free: IfNotFree, now: Instant) -> Acquired {
        let (lease, label) = (LeaseId::new(dc(0), 1), "test".into());
        let (id, at) = (RequestId { dc: dc(0), n }, Timestamp::from_millis(100 + n));
        let acquired = locks.local_requests().acquire(
            &NewRequest { id, at, wants, lease, label: &label },
            if_not_free,
            now,
        );
        locks.schedule(now);
        acquired
    }

    /// Locks of a cluster with one datacenter.
    fn alone() -> Locks {
        let mut locks = Locks::new(dc(0), DcSet::only(dc(0)), Vec::new(), 0);
        locks.permit(Permissions { grant: true, append: true });
        locks
    }

    fn granted(acquired: Acquired) -> RequestIndex {
        match acquired {
            Acquired::Granted(request) => request,
            other => panic!("it is free, and {other:?}"),
        }
    }

    #[test]
    fn a_request_for_many_locks_is_not_looked_at_whole_for_each_of_them() {
        const MANY: usize = 1_000;
        let names: Vec<String> = (0..MANY).map(|n| format!("lock {n:04}")).collect();
        let of = |names: &[String]| {
            wants(&names.iter().map(|name| (&**name, Mode::Exclusive)).collect::<Vec<_>>())
        };
        let mut locks = alone();
        let most = granted(acquire(&mut locks, 0, &of(&names[..MANY - 1]), at(0)));
        let last = granted(acquire(&mut locks, 1, &of(&names[MANY - 1..]), at(0)));
        let Acquired::Waiting(all) = ask(&mut locks, 2, &of(&names), IfNotFree::Wait, at(0)) else {
            panic!("all are held");
        };
        locks.tables.locks.looks = 0;
        locks.local_requests().release(most, Position::default(), at(1));
        locks.schedule(at(1));
        assert!(locks.tables.locks.looks <= 3 * MANY, "{} looks at {MANY} locks", locks.tables.locks.looks);
        locks.local_requests().release(last, Position::default(), at(2));
        locks.schedule(at(2));
        assert!(locks.requests()[all].is_held());
    }

    #[test]
    fn the_first_waiters_are_shown_in_order_whatever_they_want() {
        let mut locks = alone();
        granted(acquire(&mut locks, 0, &wants(&[("a", Mode::Exclusive)]), at(0)));
        for n in 1..=20 {
            let mode = if n % 3 == 0 { Mode::Exclusive } else { Mode::Shared };
            ask(&mut locks, n, &wants(&[("a", mode)]), IfNotFree::Wait, at(0));
        }
        for most in [1, 7, 20, 30] {
            let (rows, count) = locks.inspect().waiters(&LockName::try_from("a").expect("valid"), most);
            let shown: Vec<u64> = rows.iter().map(|row| row.id.n).collect();
            assert_eq!((shown, count), ((1..=20).take(most).collect(), 20));
        }
    }

    /// A refused request still shows how soon the lock is wanted here: remote requests become due by the new
    /// estimate, not by the old timer.
    #[test]
    fn what_a_request_tells_of_a_lock_counts_at_once_even_if_it_is_refused() {
        let mut locks = Locks::new(dc(0), DcSet::from_iter([dc(0), dc(1)]), Vec::new(), 0);
        locks.permit(Permissions { grant: true, append: true });
        let (reader, writer) = (wants(&[("a", Mode::Shared)]), wants(&[("a", Mode::Exclusive)]));
        for turn in 0..3 {
            let now = at(10 * turn);
            let Acquired::Granted(request) = acquire(&mut locks, turn, &reader, now) else {
                panic!("our own part is here");
            };
            if turn == 0 {
                let id = RequestId { dc: dc(1), n: 1 };
                locks.log_operations().apply_request(&Published {
                    id,
                    at: Timestamp::from_millis(150),
                    wants: &writer,
                    seq: 1,
                });
            }
            // Held for 8 ms, so the lock is unused for 2 ms.
            let now = at(10 * turn + 8);
            locks.expire(now);
            locks.schedule(now);
            locks.local_requests().release(request, Position::default(), now);
            locks.schedule(now);
        }
        let before = locks.next_deadline();
        let both = wants(&[("a", Mode::Shared), ("b", Mode::Exclusive)]);
        assert_eq!(acquire(&mut locks, 3, &both, at(30)), Acquired::NotFree, "a part of b is elsewhere");
        let due = locks.next_deadline();
        assert!(due < before, "two milliseconds once more: it is expected with more confidence");
        locks.expire(due);
        locks.schedule(due);
        assert_eq!(locks.take_ops().len(), 1, "the writer elsewhere gets our part");
    }
}
