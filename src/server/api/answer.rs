//! Replies to messages. The core's contract says which reply answers which call. A reply that does not fit
//! its call is a bug in the server, and the client gets an internal error.

use bytes::Bytes;
use tonic::Status;

use super::error;
use super::options::REVISION;
use super::server_info::{ServerInfo, VERSION};
use super::show::{self, millis, request, snapshot};
use super::show_store;
use crate::replica::Notice;
use crate::replica::call::{Grant, Reply};
use geolock_api::names::{LeaseId, RequestId, Secret};
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ServerMessage};

pub(super) fn lease_opened(
    info: &ServerInfo,
    lease: LeaseId,
    ttl: std::time::Duration,
    secret: &Secret,
) -> proto::OpenLeaseResponse {
    proto::OpenLeaseResponse {
        lease: lease.get(),
        secret: Bytes::copy_from_slice(secret.as_bytes()),
        ttl_ms: millis(ttl),
        boot_id: info.boot_id,
    }
}

pub(super) fn granted(grant: &Grant) -> proto::AcquireResponse {
    proto::AcquireResponse {
        request: Some(request(grant.request)),
        token: grant.token.0,
        snapshot: Some(snapshot(&grant.snapshot)),
    }
}

pub(super) fn kept_alive(info: &ServerInfo, ttl: std::time::Duration) -> proto::KeepAliveResponse {
    proto::KeepAliveResponse { ttl_ms: millis(ttl), boot_id: info.boot_id }
}

/// `denied`: the requests that the access rules forbid, which the datacenter therefore was not asked to keep.
pub(super) fn reclaimed(
    kept: Vec<RequestId>,
    lost: Vec<RequestId>,
    denied: Vec<RequestId>,
) -> proto::ReclaimResponse {
    proto::ReclaimResponse {
        kept: kept.into_iter().map(request).collect(),
        lost: lost.into_iter().chain(denied).map(request).collect(),
    }
}

pub(super) fn welcome(info: &ServerInfo, revision: u32) -> Answer {
    debug_assert!((1..=REVISION).contains(&revision), "a hello was accepted with a revision that we speak");
    Answer::Welcome(proto::Welcome {
        revision,
        dc: info.dc.get().into(),
        dc_name: info.name(info.dc),
        version: VERSION.to_owned(),
        boot_id: info.boot_id,
    })
}

/// Returns the answer on a stream.
pub(super) fn on_stream(info: &ServerInfo, reply: Reply, asked: Option<Asked>) -> Result<Answer, Status> {
    Ok(match (reply, asked) {
        (Reply::Granted(grant), _) => Answer::Acquired(granted(&grant)),
        (Reply::Released, Some(Asked::Cancel)) => Answer::Cancelled(proto::CancelResponse {}),
        (Reply::Released, _) => Answer::Released(proto::ReleaseResponse {}),
        (Reply::Renewed { ttl }, _) => Answer::KeptAlive(kept_alive(info, ttl)),
        (Reply::Refused(refusal), _) => Answer::Error(error::refused(&refusal)),
        (Reply::LeaseOpened { lease, ttl }, Some(Asked::OpenLease(secret))) => {
            Answer::LeaseOpened(lease_opened(info, lease, ttl, &secret))
        }
        (Reply::LeaseAttached { ttl, reclaim }, _) => {
            Answer::LeaseAttached(proto::AttachLeaseResponse { ttl_ms: millis(ttl), reclaim })
        }
        (Reply::LeaseClosed, _) => Answer::LeaseClosed(proto::CloseLeaseResponse {}),
        (Reply::Reclaimed { kept, lost }, asked) => {
            let denied = if let Some(Asked::Reclaim(denied)) = asked { denied } else { Vec::new() };
            Answer::Reclaimed(reclaimed(kept, lost, denied))
        }
        (Reply::Stepped(stepped), Some(Asked::Read)) => Answer::Stepped(show_store::read(*stepped)),
        (Reply::Stepped(stepped), _) => Answer::Stepped(show_store::stepped(*stepped)),
        (reply, _) => return Err(unfit(&reply)),
    })
}

/// The facts about a call that its answer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    OpenLease(Secret),
    Cancel,
    Read,
    /// The requests that no rule allows: they are lost.
    Reclaim(Vec<RequestId>),
}

pub(super) fn notice(notice: Notice) -> ServerMessage {
    let answer = match notice {
        Notice::LeaseEnded { lease } => Answer::LeaseEnded(proto::LeaseEnded { lease: lease.get() }),
        Notice::LockLost { lease, request: lost } => {
            let (lease, request) = (lease.get(), Some(request(lost)));
            Answer::LockLost(proto::LockLost { lease, request, force_released: None })
        }
        Notice::ForceReleased(forced) => Answer::LockLost(proto::LockLost {
            lease: forced.lease.get(),
            request: Some(request(forced.request)),
            force_released: Some(show::force_released(&forced)),
        }),
        Notice::Changed(_) | Notice::Lock(_) | Notice::Progress { .. } | Notice::WatchEnded { .. } => {
            unreachable!("no call on this stream begins a watch: each watch has a session of its own")
        }
    };
    ServerMessage { tag: 0, answer: Some(answer) }
}

/// Returns the status of a unary call whose reply does not answer it: a refusal, or a bug.
pub(super) fn no_answer(reply: &Reply) -> Status {
    match reply {
        Reply::Refused(refusal) => error::refused_status(refusal),
        reply => unfit(reply),
    }
}

fn unfit(reply: &Reply) -> Status {
    tracing::error!(?reply, "a reply does not fit its call");
    Status::internal("this is a bug in geolock: a reply does not fit its call")
}
