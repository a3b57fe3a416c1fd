//! A session: the hello, the answers on its stream, and notices.
//!
//! The core's contract says which reply answers which call. A reply that does not fit its call is a bug in
//! the server, and the client gets an internal error.

use tonic::Status;

use super::fields::{label, millis, request_id_message};
use super::{inspect, lease, lock, txn};
use crate::replica::Notice;
use crate::replica::call::Reply;
use crate::server::api::error::{self, BorderError};
use crate::server::api::options::REVISION;
use crate::server::api::server_info::{ServerInfo, VERSION, understands};
use geolock_api::names::{RequestId, Secret};
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ServerMessage};

/// Returns the revision to be used with the sender of this hello.
pub(in crate::server::api) fn hello(message: &proto::Hello) -> Result<u32, BorderError> {
    label(&message.client)?;
    match message.revision {
        0 => Err(BorderError::UnsupportedRevision(0)),
        revision => Ok(revision.min(REVISION)),
    }
}

pub(in crate::server::api) fn welcome(info: &ServerInfo, revision: u32) -> Answer {
    debug_assert!((1..=REVISION).contains(&revision), "a hello was accepted with a revision that we speak");
    Answer::Welcome(proto::Welcome {
        revision,
        dc: info.dc.get().into(),
        dc_name: info.name(info.dc),
        version: VERSION.to_owned(),
        boot_id: info.boot_id,
        understands: understands(),
    })
}

/// Returns the answer on a stream.
pub(in crate::server::api) fn answer(
    info: &ServerInfo,
    reply: Reply,
    asked: Option<Asked>,
) -> Result<Answer, Status> {
    Ok(match (reply, asked) {
        (Reply::Granted(grant), _) => Answer::Acquired(lock::granted(&grant)),
        (Reply::Chosen(chosen), _) => Answer::Acquired(lock::chosen(*chosen)),
        (Reply::Released, Some(Asked::Cancel)) => Answer::Cancelled(proto::CancelResponse {}),
        (Reply::Released, _) => Answer::Released(proto::ReleaseResponse {}),
        (Reply::Amended, _) => Answer::Amended(proto::AmendResponse {}),
        (Reply::Downgraded, _) => Answer::Downgraded(proto::DowngradeResponse {}),
        (Reply::Renewed { ttl }, _) => Answer::KeptAlive(lease::kept_alive(info, ttl)),
        (Reply::Refused(refusal), _) => Answer::Error(error::refused(&refusal)),
        (Reply::LeaseOpened { lease, ttl }, Some(Asked::OpenLease(secret))) => {
            Answer::LeaseOpened(lease::lease_opened(info, lease, ttl, &secret))
        }
        (Reply::LeaseAttached { ttl, reclaim }, _) => {
            Answer::LeaseAttached(proto::AttachLeaseResponse { ttl_ms: millis(ttl), reclaim })
        }
        (Reply::LeaseClosed, _) => Answer::LeaseClosed(proto::CloseLeaseResponse {}),
        (Reply::Reclaimed { kept, lost }, asked) => {
            let denied = if let Some(Asked::Reclaim(denied)) = asked { denied } else { Vec::new() };
            Answer::Reclaimed(lock::reclaimed(kept, lost, denied))
        }
        (Reply::Stepped(stepped), Some(Asked::Read)) => Answer::Stepped(txn::read_answer(*stepped)),
        (Reply::Stepped(stepped), _) => Answer::Stepped(txn::stepped(*stepped)),
        (reply, _) => return Err(unfit(&reply)),
    })
}

/// The facts about a call that its answer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server::api) enum Asked {
    OpenLease(Secret),
    Cancel,
    Read,
    /// The requests that no rule allows: they are lost.
    Reclaim(Vec<RequestId>),
}

pub(in crate::server::api) fn notice(notice: Notice) -> ServerMessage {
    let answer = match notice {
        Notice::LeaseEnded { lease } => Answer::LeaseEnded(proto::LeaseEnded { lease: lease.get() }),
        Notice::LockLost { lease, request: lost } => {
            let (lease, request) = (lease.get(), Some(request_id_message(lost)));
            Answer::LockLost(proto::LockLost { lease, request, force_released: None })
        }
        Notice::ForceReleased(forced) => Answer::LockLost(proto::LockLost {
            lease: forced.lease.get(),
            request: Some(request_id_message(forced.request)),
            force_released: Some(inspect::force_released(&forced)),
        }),
        Notice::Changed(_) | Notice::Lock(_) | Notice::Progress { .. } | Notice::WatchEnded { .. } => {
            unreachable!("no call on this stream begins a watch: each watch has a session of its own")
        }
    };
    ServerMessage { tag: 0, answer: Some(answer) }
}

/// Returns the status of a unary call whose reply does not answer it: a refusal, or a bug.
pub(in crate::server::api) fn no_answer(reply: &Reply) -> Status {
    match reply {
        Reply::Refused(refusal) => error::refused_status(refusal),
        reply => unfit(reply),
    }
}

fn unfit(reply: &Reply) -> Status {
    tracing::error!(?reply, "a reply does not fit its call");
    Status::internal("this is a bug in geolock: a reply does not fit its call")
}
