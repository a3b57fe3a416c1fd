//! The reasons why the group refuses a call.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::member::{MemberId, ServerId};
use super::transport::Unreachable;
use crate::base::wire::WireError;

/// The vote and the log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the control group's file {}: {source}", path.display())]
    Open { path: PathBuf, source: redb::DatabaseError },
    #[error(
        "the control group's file {} is in use by another geolock server: stop that one, or give this one a \
         directory of its own",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("the control group's file cannot be read or written: {0}")]
    Database(#[from] redb::Error),
    #[error("cannot make the control group's directory: {0}")]
    Io(#[from] io::Error),
    #[error("the control group's file is damaged: {0}; restore nothing: admit this member again")]
    Damaged(#[from] WireError),
    #[error(
        "the control group's file belongs to member {found}, this server is {expected}: correct the datacenter or \
         the data directory in the configuration"
    )]
    WrongMember { found: MemberId, expected: MemberId },
    #[error("member {0} is not in the group that takes the place of the former one")]
    NotInSuccession(MemberId),
    #[error(
        "the state of the list has {size} bytes, and a snapshot takes {limit}: nothing was lost; report this"
    )]
    StateTooLarge { size: usize, limit: usize },
}

/// The group does not start here.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("member {0} is not among the founders of its configuration: add it there, or let it join")]
    NotAFounder(MemberId),
    #[error("member {0} is among the voters that found the group, so it does not follow them")]
    Founder(MemberId),
    #[error("{0} founders, at most {limit} vote: let the others join as learners", limit = super::group::MAX_VOTERS)]
    TooManyFounders(usize),
    #[error("the control group cannot start: {0}")]
    Raft(String),
}

/// A request to the group was not carried out, or may not have been.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProposeError {
    /// Nothing changed.
    #[error(
        "the control group has no leader that a majority of its voters follows: nothing was changed; repeat later"
    )]
    NoLeader,
    /// Nothing changed.
    #[error(
        "the control group's leader {leader} cannot be reached from here: nothing was changed; repeat later"
    )]
    Unreachable { leader: MemberId },
    /// It may have been carried out, or be later.
    #[error("the control group gave no answer in time: repeat, it may have been done already")]
    Timeout,
    /// It may have been carried out.
    #[error("this server is shutting down")]
    ShuttingDown,
    /// Nothing changed.
    #[error("a command of {size} bytes, the limit is {limit}")]
    TooLarge { size: usize, limit: usize },
    /// Nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A member refuses the request of another one. Nothing changed there. A wire type: variants are appended
/// only.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("the request cannot be read: both members must speak the cluster's version")]
    Malformed,
    #[error("the request is for another member; here is {0}")]
    WrongMember(MemberId),
    #[error(
        "the request is for another directory of member {member}; this one is {server}: it was lost or exchanged; take \
         the member in anew"
    )]
    WrongServer { member: MemberId, server: ServerId },
    #[error("the group knows member {0} under the name of another directory: admit it again")]
    UnknownServer(MemberId),
    #[error("too many requests are being handled; repeat later")]
    Busy,
    #[error("not the leader")]
    NotLeader,
    #[error("the leader has lost its office meanwhile; repeat, it may have been done already")]
    Uncertain,
    #[error("the control group has stopped there; its log says why")]
    Stopped,
    #[error("another change of the voters is under way; repeat when it has ended")]
    ChangeInProgress,
    #[error("member {0} must be a learner first, and have caught up")]
    NotALearner(MemberId),
    #[error("there are enough voters already; further members stay learners")]
    TooManyVoters,
    #[error("the last voter cannot go")]
    LastVoter,
    #[error("member {0} is in the group with another directory")]
    OtherServer(MemberId),
}

/// A call to another member failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("no answer in time")]
    TimedOut,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the answer cannot be read")]
    Malformed,
}
