//! The waiters of one lock, in the order of requests.
//!
//! One ordered map holds all waiters of a lock, grouped by class. So "the first local exclusive waiter" or
//! "the first due shared request of dc2" is one look-up, however many requests wait. The rules of
//! `docs/algorithm/ownership.md#2-ordering` only ask for first waiters.

use std::collections::BTreeMap;

use super::request::RequestIndex;
use crate::base::time::Timestamp;
use geolock_api::names::{DcId, DcSet, Mode, RequestId};

/// The place of a request in the order of all requests: by time, then datacenter, then number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) struct Order {
    pub at: Timestamp,
    pub id: RequestId,
}

/// The kinds of waiters that the rules distinguish.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    LocalExclusive,
    LocalShared,
    /// Of another datacenter, and not due yet.
    RemoteExclusive,
    RemoteExclusiveDue,
    /// By the datacenter of the request: a shared request matters only where that datacenter's own part is.
    RemoteShared(DcId),
    RemoteSharedDue(DcId),
    /// Absent in every rule; keeps its place.
    Parked,
    /// A request for enough locks that has this lock among its candidates and not in its target. Absent in
    /// every rule, but a lock that becomes free is offered to it.
    Offer,
}

impl Class {
    pub fn local(mode: Mode) -> Class {
        match mode {
            Mode::Exclusive => Class::LocalExclusive,
            Mode::Shared => Class::LocalShared,
        }
    }

    pub fn remote(mode: Mode, dc: DcId) -> Class {
        match mode {
            Mode::Exclusive => Class::RemoteExclusive,
            Mode::Shared => Class::RemoteShared(dc),
        }
    }

    /// Returns true if a waiter of this class counts in no rule.
    pub fn is_parked(self) -> bool {
        self == Class::Parked
    }

    /// Returns the class of the same request once it is due.
    pub fn due(self) -> Class {
        match self {
            Class::RemoteExclusive => Class::RemoteExclusiveDue,
            Class::RemoteShared(dc) => Class::RemoteSharedDue(dc),
            other => other,
        }
    }
}

/// A waiter: its place in the order and its row.
pub(super) type Waiter = (Order, RequestIndex);

/// The waiters of one lock.
#[derive(Default, Debug)]
pub(super) struct Queue(BTreeMap<(Class, Order), RequestIndex>);

const FIRST: Order =
    Order { at: Timestamp::ZERO, id: RequestId { dc: DcId::new(0).expect("0 is an id"), n: 0 } };

impl Queue {
    pub fn insert(&mut self, class: Class, order: Order, request: RequestIndex) {
        debug_assert!(
            class == class.due() || !self.0.contains_key(&(class.due(), order)),
            "{} waits",
            order.id
        );
        let before = self.0.insert((class, order), request);
        assert!(before.is_none(), "request {} waits twice for one lock", order.id);
    }

    /// Removes a waiter, due or not. Returns true if it was present.
    pub fn remove(&mut self, class: Class, order: Order) -> bool {
        self.0.remove(&(class, order)).is_some() || self.0.remove(&(class.due(), order)).is_some()
    }

    /// Returns the first waiter of a class.
    pub fn first(&self, class: Class) -> Option<Waiter> {
        let (key, request) = self.0.range((class, FIRST)..).next()?;
        (key.0 == class).then_some((key.1, *request))
    }

    /// Returns the first local waiter whose mode conflicts with `mode`.
    pub fn first_local_conflict(&self, mode: Mode) -> Option<Order> {
        let exclusive = self.first(Class::LocalExclusive);
        let shared = (mode == Mode::Exclusive).then(|| self.first(Class::LocalShared)).flatten();
        earliest(exclusive, shared).map(|(order, _)| order)
    }

    /// Returns the first due remote request that conflicts with `mode` and wants one of `parts`.
    pub fn first_due_conflict(&self, mode: Mode, parts: DcSet) -> Option<Order> {
        let mut first = self.first(Class::RemoteExclusiveDue);
        if mode == Mode::Exclusive {
            for dc in parts.iter() {
                first = earliest(first, self.first(Class::RemoteSharedDue(dc)));
            }
        }
        first.map(|(order, _)| order)
    }

    /// Returns the first exclusive remote request.
    pub fn first_remote_exclusive(&self) -> Option<(Waiter, Due)> {
        self.first_remote(Class::RemoteExclusive)
    }

    /// Returns the first shared request of `dc`.
    pub fn first_remote_shared(&self, dc: DcId) -> Option<(Waiter, Due)> {
        self.first_remote(Class::RemoteShared(dc))
    }

    fn first_remote(&self, class: Class) -> Option<(Waiter, Due)> {
        match (self.first(class), self.first(class.due())) {
            (Some(waiting), Some(due)) if waiting < due => Some((waiting, Due::NotYet)),
            (_, Some(due)) => Some((due, Due::Due)),
            (waiting, None) => waiting.map(|waiting| (waiting, Due::NotYet)),
        }
    }

    /// Makes all requests of a class due that come before `end`. Each request becomes due at most once, so
    /// the total cost is bounded by the number of requests.
    pub fn make_due(&mut self, class: Class, end: Option<Order>) {
        debug_assert!(class != class.due(), "requests of other datacenters become due, once");
        while let Some((order, request)) = self.first(class).filter(|f| end.is_none_or(|end| f.0 < end)) {
            self.0.remove(&(class, order));
            let before = self.0.insert((class.due(), order), request);
            assert!(before.is_none(), "request {} waits once for one lock", order.id);
        }
    }

    /// Returns the waiters of a class in order.
    pub fn of_class(&self, class: Class) -> impl Iterator<Item = Waiter> {
        self.of_class_from(class, None)
    }

    /// The same, beginning at a place in the order.
    pub fn of_class_from(&self, class: Class, from: Option<Order>) -> impl Iterator<Item = Waiter> {
        self.0
            .range((class, from.unwrap_or(FIRST))..)
            .take_while(move |(key, _)| key.0 == class)
            .map(|(key, request)| (key.1, *request))
    }

    /// Returns all waiters, grouped by class.
    pub fn iter(&self) -> impl Iterator<Item = (Class, Order, RequestIndex)> {
        self.0.iter().map(|((class, order), request)| (*class, *order, *request))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The state of a remote request. A due one blocks later local requests and may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Due,
    NotYet,
}

/// Returns the earlier of two waiters.
pub(super) fn earliest(a: Option<Waiter>, b: Option<Waiter>) -> Option<Waiter> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
