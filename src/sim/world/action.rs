//! The events of the world.

use std::time::Duration;

use crate::membership::{EvictPolicy, Generation, Index, Proposal};
use crate::replica::call::{Call, Reply, SessionId};
use crate::replica::{Message, Notice};
use crate::sim::client::Timer;
use crate::sim::failure::FaultKind;
use crate::sim::network::ConnId;
use crate::sim::queue::Moment;
use crate::sim::world::absences::Word;
use geolock_api::names::{DcId, DcSet};

/// An event.
#[derive(Debug)]
pub(in crate::sim) enum Action {
    Arrive {
        from: DcId,
        to: DcId,
        conn: ConnId,
        message: Message,
    },
    Flush {
        node: DcId,
        peer: DcId,
        conn: ConnId,
    },
    LinkUp {
        node: DcId,
        peer: DcId,
        conn: ConnId,
    },
    LinkDown {
        node: DcId,
        peer: DcId,
        conn: ConnId,
    },
    /// QUIC's idle timeout of a link that carries nothing.
    IdleTimeout {
        a: DcId,
        b: DcId,
        conn: ConnId,
    },
    Connect {
        a: DcId,
        b: DcId,
    },
    Uncut {
        from: DcId,
        to: DcId,
    },
    Break {
        a: DcId,
        b: DcId,
    },
    /// A link that was silent one way answers again.
    Unmute {
        from: DcId,
        to: DcId,
    },
    /// The weather of a link ends.
    Clear {
        a: DcId,
        b: DcId,
    },
    /// The peers of a stopped process give its links up.
    PeersGiveUp {
        node: DcId,
        life: u64,
    },
    Resume {
        node: DcId,
        life: u64,
    },
    ResumeClient {
        client: usize,
    },
    Synced {
        node: DcId,
        life: u64,
    },
    TakeCheckpoint {
        node: DcId,
    },
    CheckpointWritten {
        node: DcId,
        life: u64,
    },
    Restart {
        node: DcId,
        life: u64,
    },
    /// A member is to leave, or continues to.
    Leave {
        node: DcId,
    },
    /// A server gets the slot of a member that has ended.
    Return {
        node: DcId,
    },
    /// A member that leaves is to stay.
    CancelLeave {
        node: DcId,
    },
    /// A member is lost for good.
    Lose {
        node: DcId,
    },
    /// So many members are lost for good at once.
    Disaster {
        lost: usize,
    },
    /// The others are to go on without these.
    Recover {
        lost: DcSet,
    },
    /// A member that has joined is to vote.
    Vote {
        node: DcId,
    },
    /// Members are to be evicted by time from now on.
    SetPolicy,
    /// The locks below a prefix are to have another home, or none.
    SetHome {
        prefix: &'static str,
        /// The home that was asked for before, if it was.
        wanted: Option<Option<DcId>>,
        /// How often an operator still asks for it.
        attempts: u32,
    },
    /// A policy for evictions is to be decided.
    ChangePolicy {
        evict: EvictPolicy,
    },
    /// An operator vouches that a member does not run.
    GiveWord {
        node: DcId,
        until: Moment,
    },
    /// A member that is away is cut off again from one that it has met.
    PartAgain {
        node: DcId,
        other: DcId,
        lasts: Duration,
    },
    /// A member is to be evicted by the word of an operator.
    EvictAbsent(Word),
    /// The machine of a node is stopped with its clocks.
    StandStill {
        node: DcId,
        life: u64,
        lasts: Duration,
    },
    /// A lost member is to be evicted.
    Evict {
        node: DcId,
        generation: Generation,
    },
    MakeRoom {
        node: DcId,
    },
    ToServer {
        dc: DcId,
        session: SessionId,
        tag: u64,
        call: Call,
    },
    SessionClosed {
        dc: DcId,
        session: SessionId,
    },
    ToClient {
        client: usize,
        session: SessionId,
        said: ToClient,
    },
    SessionBroken {
        client: usize,
        session: SessionId,
    },
    Client {
        client: usize,
        timer: Timer,
    },
    Spawn {
        dc: DcId,
    },
    Fault(FaultKind),
    /// A server restarts with a clock far behind all others, until `SetClock`.
    FallBehind,
    SetClock {
        node: DcId,
    },
    /// A watcher looks after its watch.
    Watcher {
        number: usize,
    },
    /// An operator takes a lock by force.
    Force,
    /// The control group decides a proposal.
    Decide {
        proposal: Box<Proposal>,
    },
    /// A member learns the next decisions, up to this number.
    Learn {
        node: DcId,
        index: Index,
    },
    /// A witness is to be added.
    AddWitness {
        node: DcId,
    },
    /// A witness crashes, or is cut off from some member.
    WitnessFault {
        node: DcId,
    },
    /// A server is restarted as the next release.
    Upgrade {
        node: DcId,
    },
    /// A server joins, or asks again.
    Join {
        node: DcId,
    },
    /// A server has too much to do, until `Relief`.
    Overload,
    Relief {
        node: DcId,
    },
    Sample,
}

/// A message of a server to a client.
#[derive(Debug)]
pub(in crate::sim) enum ToClient {
    Reply { tag: u64, reply: Reply },
    Notice(Notice),
}
