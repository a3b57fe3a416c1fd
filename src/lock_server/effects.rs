//! Performs the effects of the machine. Nothing here blocks: everything goes into a bounded queue. The
//! machine emits an output only when it may leave (`docs/algorithm/log.md#13-output-commit`).

use std::fmt;

use super::fault_points::FaultPoints;
use super::members::{MembersOutlet, MembersOutput};
use super::outbox::Output;
use super::ports::{Links, Store};
use super::report::{self, Expired};
use super::sessions::{OWN, Sessions, UNARY};
use super::start::StopError;
use crate::base::wire;
use crate::replica::call::{CallId, Reply, Status};
use crate::replica::{Checkpoint, Effect, Message, Position, Record, Report};
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The destinations of effects.
pub(super) struct Outlets<S, L> {
    /// This datacenter.
    pub me: DcId,
    pub store: S,
    pub links: L,
    pub members: MembersOutlet,
    pub sessions: Sessions,
    /// Peers that broke the protocol, until their links are down.
    pub closing: DcSet,
    /// The version of the protocol that the link to each peer speaks.
    versions: [u16; MAX_DCS],
    pub appended: Position,
    pub durable: Position,
    /// A checkpoint to be written.
    pub checkpoint: Option<Box<Checkpoint>>,
    /// Expired leases that are not logged yet.
    pub expired: Expired,
    /// The answer to the server's own status call.
    pub own_status: Option<Box<Status>>,
}

impl<S: Store, L: Links> Outlets<S, L> {
    /// `last`: the position up to which the journal is durable at the start.
    pub(super) fn new(me: DcId, store: S, links: L, members: MembersOutlet, last: Position) -> Outlets<S, L> {
        Outlets {
            me,
            store,
            links,
            members,
            sessions: Sessions::default(),
            closing: DcSet::EMPTY,
            versions: [*wire::VERSIONS.end(); MAX_DCS],
            appended: last,
            durable: last,
            checkpoint: None,
            expired: Expired::default(),
            own_status: None,
        }
    }

    pub(super) fn perform(&mut self, effect: Effect) -> Result<(), StopError> {
        let points = FaultPoints::of(&effect, self.me);
        points.before();
        match effect {
            Effect::Persist { position, record } => self.persist(position, &record)?,
            Effect::Send { peer, message } => self.send(peer, &message),
            Effect::Reply { call, reply } => self.reply(call, reply),
            Effect::Notify { session, notice } => self.sessions.tell(session, Output::Notice(notice)),
            Effect::CloseLink { peer, violation } => self.close_link(peer, &violation),
            Effect::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint),
            Effect::Report(report) => {
                if let Report::ProposalRefused { why } = &report {
                    self.members.send(MembersOutput::Refused { why: why.clone() });
                }
                report::log(&report, &mut self.expired)
            }
            Effect::Propose(proposal) => self.members.send(MembersOutput::Propose(proposal)),
        }
        points.after();
        Ok(())
    }

    fn persist(&mut self, position: Position, record: &Record) -> Result<(), StopError> {
        let record = wire::encode("journal record", record).map_err(StopError::Encode)?;
        self.appended = position;
        self.store.append(position, &record);
        Ok(())
    }

    /// Notes the protocol version of a link that came up.
    pub fn note_version(&mut self, peer: DcId, version: u16) {
        self.versions[peer.index()] = version;
    }

    fn send(&mut self, peer: DcId, message: &Message) {
        if self.closing.contains(peer) {
            return;
        }
        let urgency = message.urgency();
        let translated = message.for_version(self.versions[peer.index()]);
        match wire::encode("message", translated.as_ref().unwrap_or(message)) {
            Ok(bytes) => self.links.send(peer, urgency, bytes),
            // This is a bug in geolock, but no reason to stop serving locks that need no other datacenter.
            Err(error) => self.close_link(peer, &error),
        }
    }

    fn reply(&mut self, call: CallId, reply: Reply) {
        match (call.session, reply) {
            (UNARY, reply) => self.sessions.answer_unary(call.tag, reply),
            (OWN, Reply::Status(status)) => self.own_status = Some(status),
            (session, reply) => self.sessions.tell(session, Output::Reply { tag: call.tag, reply }),
        }
    }

    /// Closes a link and logs the reason; the machine hears of it when the link is down.
    pub(super) fn close_link(&mut self, peer: DcId, why: &dyn fmt::Display) {
        let why = why.to_string();
        tracing::error!(%peer, why, "the link broke the protocol: closing it");
        self.closing.insert(peer);
        self.links.close(peer, &why);
    }
}
