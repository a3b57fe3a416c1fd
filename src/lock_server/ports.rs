//! The actor's interfaces to the machine, the journal and the links, so that tests can replace them.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::base::histogram::Histogram;
use crate::base::time::{Instant, Now, Timestamp};
use crate::journal::{Figures, Journal, JournalError};
use crate::membership::{Config, Epoch, Fallen, LossReport, Unsettled, Voter};
use crate::replica::{Effect, Event, Position, RecoveryView, Replica, StayView, Urgency, Witness};
use crate::telemetry::LinkFigures;
use geolock_api::names::{DcId, DcSet};

/// The machine: the methods of [`Replica`].
pub trait Machine: Send + 'static {
    fn handle(&mut self, now: Now, event: Event);
    fn poll_effect(&mut self) -> Option<Effect>;
    fn next_deadline(&self) -> Instant;

    /// Returns the members after the decisions that are known here; `None` if there are none.
    fn members(&self) -> Option<&Config> {
        None
    }

    /// Returns the last epoch that a member has entered, as far as is known here.
    fn entered_by(&self, _: DcId) -> Epoch {
        Epoch(0)
    }

    /// Returns the other members that are heard, by any path.
    fn heard(&self) -> DcSet {
        DcSet::EMPTY
    }

    /// Returns the witnesses that are heard, and by member the one that hears it, if one does.
    fn heard_witnesses(&self) -> (DcSet, BTreeMap<DcId, DcId>) {
        Default::default()
    }

    /// Returns the clocks of the last heartbeats of the members that are not heard, whoever heard them.
    fn last_clocks(&self) -> BTreeMap<DcId, Timestamp> {
        BTreeMap::new()
    }

    /// Returns the longest lease that a client of each member may have.
    fn lease_limits(&self) -> BTreeMap<DcId, Duration> {
        BTreeMap::new()
    }

    /// Returns the members that have said that they leave.
    fn left(&self) -> DcSet {
        DcSet::EMPTY
    }

    /// Returns the members that have freed each slot that is over.
    fn freed(&self) -> BTreeMap<DcId, DcSet> {
        BTreeMap::new()
    }

    /// Returns the members that changes have to wait for.
    fn unsettled(&self) -> Unsettled {
        Unsettled::default()
    }

    /// Returns the highest version that each member and witness speaks.
    fn versions(&self) -> BTreeMap<Voter, u16> {
        BTreeMap::new()
    }

    /// Returns the forced recovery that an operator has asked for.
    fn recovery(&self) -> RecoveryView {
        RecoveryView::default()
    }

    /// Returns the leaves that operators have taken back.
    fn stay(&self) -> StayView {
        StayView::default()
    }

    /// Returns the state after the last forced recovery, once its decision is on disk.
    fn recovered(&self) -> Option<&Config> {
        None
    }

    /// Returns the locks and counters of the last ends of members, by name.
    fn fallen(&self) -> &[Fallen] {
        &[]
    }

    /// Returns the forced recoveries that are entered here.
    fn losses(&self) -> &[LossReport] {
        &[]
    }
}

impl Machine for Replica {
    fn handle(&mut self, now: Now, event: Event) {
        Replica::handle(self, now, event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Replica::poll_effect(self)
    }

    fn next_deadline(&self) -> Instant {
        Replica::next_deadline(self)
    }

    fn members(&self) -> Option<&Config> {
        self.inspect().decided_members()
    }

    fn entered_by(&self, dc: DcId) -> Epoch {
        self.inspect().entered_by(dc)
    }

    fn heard(&self) -> DcSet {
        self.inspect().heard()
    }

    fn heard_witnesses(&self) -> (DcSet, BTreeMap<DcId, DcId>) {
        self.inspect().heard_witnesses()
    }

    fn last_clocks(&self) -> BTreeMap<DcId, Timestamp> {
        self.inspect().last_clocks()
    }

    fn lease_limits(&self) -> BTreeMap<DcId, Duration> {
        self.inspect().lease_limits()
    }

    fn left(&self) -> DcSet {
        self.inspect().left()
    }

    fn freed(&self) -> BTreeMap<DcId, DcSet> {
        self.inspect().freed()
    }

    fn unsettled(&self) -> Unsettled {
        self.inspect().unsettled()
    }

    fn versions(&self) -> BTreeMap<Voter, u16> {
        self.inspect().versions()
    }

    fn recovery(&self) -> RecoveryView {
        self.inspect().recovery()
    }

    fn stay(&self) -> StayView {
        self.inspect().stay()
    }

    fn recovered(&self) -> Option<&Config> {
        self.inspect().recovered()
    }

    fn fallen(&self) -> &[Fallen] {
        self.inspect().fallen()
    }

    fn losses(&self) -> &[LossReport] {
        self.inspect().losses()
    }
}

impl Machine for Witness {
    fn handle(&mut self, now: Now, event: Event) {
        Witness::handle(self, now, event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Witness::poll_effect(self)
    }

    fn next_deadline(&self) -> Instant {
        Witness::next_deadline(self)
    }

    fn members(&self) -> Option<&Config> {
        Some(self.decisions()).filter(|config| config.cluster().is_some())
    }

    fn heard(&self) -> DcSet {
        self.hears()
    }
}

/// The journal: the methods of [`Journal`]. Only the last one waits for the disk.
pub trait Store: Send + 'static {
    fn append(&mut self, position: Position, record: &[u8]);
    /// Keeps this checkpoint once everything up to `position` is durable, and drops the records that it
    /// covers.
    fn checkpoint(&mut self, position: Position, state: Vec<u8>);
    fn figures(&self) -> Figures;
    fn sync_times(&self) -> Histogram;
    /// Makes everything durable and stops.
    fn close(self) -> Result<(), JournalError>;
}

impl Store for Journal {
    fn append(&mut self, position: Position, record: &[u8]) {
        Journal::append(self, position.0, record);
    }

    fn checkpoint(&mut self, position: Position, state: Vec<u8>) {
        Journal::checkpoint(self, position.0, state);
    }

    fn figures(&self) -> Figures {
        Journal::figures(self)
    }

    fn sync_times(&self) -> Histogram {
        Journal::sync_times(self)
    }

    fn close(self) -> Result<(), JournalError> {
        Journal::close(self)
    }
}

/// An event of a link. `Flushed`: so many messages left its queue, and `batches` of them carried entries.
#[derive(Debug)]
pub enum LinkInput {
    /// `version`: the protocol version agreed for this link.
    Up {
        peer: DcId,
        version: u16,
    },
    Down {
        peer: DcId,
    },
    Received {
        peer: DcId,
        message: Bytes,
    },
    Flushed {
        peer: DcId,
        messages: usize,
        batches: usize,
    },
}

/// The links to other datacenters.
pub trait Links: Send + 'static {
    /// The type of events that links put into the actor's channel.
    type Event: Send + 'static;

    /// Translates one event. Call exactly once per event, in order: later sends use the link that came up
    /// last.
    fn read(&mut self, event: Self::Event) -> LinkInput;
    /// Queues a message on the link to `peer`. Urgent messages may overtake others. Without a link, or
    /// without space, the message is lost and the link is closed.
    fn send(&mut self, peer: DcId, urgency: Urgency, message: Vec<u8>);
    /// Closes the link to `peer` and sends it the reason.
    fn close(&mut self, peer: DcId, reason: &str);
    /// Sets if messages that are not urgent are received. They are not while the disk is behind, because they
    /// would be written.
    fn take_bulk(&mut self, takes: bool);
    /// Links to one more peer, unless it is known, or is this datacenter.
    fn add_peer(&mut self, peer: DcId, address: &str, generation: u16);
    fn figures(&self) -> Vec<LinkFigures>;
    /// Returns true if no link can work any more until a restart.
    fn have_failed(&self) -> bool;
    /// Sends queued messages, for a short time at most, and closes all links.
    fn shutdown(self) -> impl Future<Output = ()> + Send;
}
