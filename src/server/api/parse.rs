//! Messages to calls: every message of a client is checked here, once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::BorderError;
use super::options::{DEFAULT_TTL, MAX_PAGE, PAGE, TOP};
use super::server_info;
use crate::access::Principal;
use crate::causal_log::{MAX_LOCKS_PER_REQUEST, Wants};
use crate::replica::call::{
    Acquire, Call, IdempotencyKey, ListCursor, OnDisconnect, Proof, Reclaim, Target, Wait,
};
use crate::replica::force_release::ForceRelease;
use geolock_api::names::{
    DcId, FencingToken, ForceReason, LeaseId, LockName, MAX_LABEL, MAX_NUMBER, Mode, RequestId, Secret,
};
use geolock_api::proto::{self, acquire_request, cancel_request, release_request};

use BorderError::Malformed;

/// The ways in which a call may prove that a lease is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofBy {
    /// On a stream: by the secret, or by having attached the lease.
    SecretOrStream,
    /// In a unary call.
    Secret,
}

/// Returns the call and the secret that was made for it.
pub(super) fn open_lease(
    message: &proto::OpenLeaseRequest,
    by: ProofBy,
) -> Result<(Call, Secret), BorderError> {
    let ttl = match message.ttl_ms {
        0 => DEFAULT_TTL,
        millis => Duration::from_millis(millis),
    };
    let on_disconnect = match (message.on_disconnect(), by) {
        (proto::OnDisconnect::Release, ProofBy::SecretOrStream) => OnDisconnect::Release,
        _ => OnDisconnect::Keep,
    };
    let secret = server_info::secret().map_err(|_| BorderError::NoRandomness)?;
    Ok((Call::OpenLease { secret, ttl, on_disconnect }, secret))
}

pub(super) fn attach_lease(message: &proto::AttachLeaseRequest) -> Result<Call, BorderError> {
    let lease = lease(message.lease)?;
    match proof(&message.secret, ProofBy::Secret)? {
        Proof::Secret(secret) => Ok(Call::AttachLease { lease, secret }),
        Proof::Attached => Err(NO_SECRET),
    }
}

pub(super) fn keep_alive(message: &proto::KeepAliveRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::KeepAlive { lease: lease(message.lease)?, proof: proof(&message.secret, by)? })
}

pub(super) fn close_lease(message: &proto::CloseLeaseRequest, by: ProofBy) -> Result<Call, BorderError> {
    Ok(Call::CloseLease { lease: lease(message.lease)?, proof: proof(&message.secret, by)? })
}

pub(super) fn acquire(message: proto::AcquireRequest, by: ProofBy) -> Result<Call, BorderError> {
    let key = key(message.idempotency_key);
    if by == ProofBy::Secret && key.is_none() {
        return Err(Malformed("`key`: a unary acquire needs one, so that it can be called again"));
    }
    let wait = match message.wait {
        Some(acquire_request::Wait::TryOnce(_)) => Wait::Try,
        Some(acquire_request::Wait::WaitMs(millis)) => Wait::AtMost(Duration::from_millis(millis)),
        Some(acquire_request::Wait::WaitForever(_)) => Wait::Forever,
        None => return Err(NO_WAIT),
    };
    Ok(Call::Acquire(Acquire {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key,
        wants: wants(&message.locks)?,
        wait,
        label: label(&message.label)?,
    }))
}

pub(super) fn release(message: &proto::ReleaseRequest, by: ProofBy) -> Result<Call, BorderError> {
    let target = match &message.target {
        Some(release_request::Target::Request(id)) => Target::Id(request(*id)?),
        Some(release_request::Target::IdempotencyKey(key)) => target_key(*key)?,
        None => return Err(NO_TARGET),
    };
    Ok(Call::Release { lease: lease(message.lease)?, proof: proof(&message.secret, by)?, target })
}

pub(super) fn cancel(message: &proto::CancelRequest, by: ProofBy) -> Result<Call, BorderError> {
    let target = match &message.target {
        Some(cancel_request::Target::Request(id)) => Target::Id(request(*id)?),
        Some(cancel_request::Target::IdempotencyKey(key)) => target_key(*key)?,
        None => return Err(NO_TARGET),
    };
    Ok(Call::Cancel { lease: lease(message.lease)?, proof: proof(&message.secret, by)?, target })
}

/// A reclaim, or a piece of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReclaimPiece {
    pub lease: LeaseId,
    pub proof: Proof,
    pub held: Vec<Reclaim>,
    pub more: bool,
}

pub(super) fn reclaim(message: &proto::ReclaimRequest, by: ProofBy) -> Result<ReclaimPiece, BorderError> {
    if message.more && by == ProofBy::Secret {
        return Err(Malformed("`more`: reclaims in several messages are for streams"));
    }
    Ok(ReclaimPiece {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        held: message.held.iter().map(held).collect::<Result<_, _>>()?,
        more: message.more,
    })
}

fn held(message: &proto::HeldLocks) -> Result<Reclaim, BorderError> {
    Ok(Reclaim {
        request: request(message.request.ok_or(Malformed("`request` of what is held is missing"))?)?,
        key: key(message.idempotency_key),
        wants: wants(&message.locks)?,
        token: FencingToken(message.token),
        label: label(&message.label)?,
    })
}

pub(super) fn describe(message: &proto::DescribeLockRequest) -> Result<Call, BorderError> {
    Ok(Call::Describe { lock: LockName::from_fields(&message.name, message.home)? })
}

/// `who`: the caller.
pub(super) fn force_release(
    message: &proto::ForceReleaseRequest,
    principal: &Principal,
) -> Result<Call, BorderError> {
    let (lock, by) = (LockName::from_fields(&message.name, message.home)?, principal.to_string().into());
    Ok(Call::ForceRelease(ForceRelease { lock, operator: by, reason: ForceReason::new(&message.reason)? }))
}

pub(super) fn list(message: proto::ListLocksRequest) -> Result<Call, BorderError> {
    let limit = match message.page_size {
        0 => PAGE,
        size => size.min(MAX_PAGE),
    };
    let cursor = match &message.page_token[..] {
        [] => ListCursor::default(),
        token => ListCursor(u64::from_be_bytes(token.try_into().map_err(|_| BAD_PAGE_TOKEN)?)),
    };
    Ok(Call::List { prefix: message.prefix.into(), cursor, limit: limit as usize })
}

pub(super) fn top(message: proto::TopLocksRequest) -> Call {
    let limit = match message.limit {
        0 => TOP,
        limit => limit,
    };
    Call::Top { prefix: message.prefix.into(), limit: limit as usize }
}

/// Returns the token that [`list`] parses.
pub(super) fn page_token(next: Option<ListCursor>) -> Bytes {
    next.map(|cursor| Bytes::copy_from_slice(&cursor.0.to_be_bytes())).unwrap_or_default()
}

/// Returns the revision to be used with the sender of this hello.
pub(super) fn hello(message: &proto::Hello) -> Result<u32, BorderError> {
    label(&message.client)?;
    match message.revision {
        0 => Err(BorderError::UnsupportedRevision(0)),
        revision => Ok(revision.min(super::options::REVISION)),
    }
}

pub(super) const NO_WAIT: BorderError = Malformed("`wait`: set `try_once`, `wait_ms` or `wait_forever`");
const NO_TARGET: BorderError = Malformed("`target`: set `request` or `key`");
const NO_SECRET: BorderError = Malformed("`secret`: it has 16 bytes, as the server gave it");
const BAD_PAGE_TOKEN: BorderError = Malformed("`page_token`: pass it on as the server gave it");

/// Any number can be the id of a lease; 0 means that the field was not set.
pub(super) fn lease(raw: u64) -> Result<LeaseId, BorderError> {
    if raw == 0 { Err(Malformed("`lease` is missing")) } else { Ok(LeaseId::from_raw(raw)) }
}

pub(super) fn proof(secret: &Bytes, by: ProofBy) -> Result<Proof, BorderError> {
    if secret.is_empty() && by == ProofBy::SecretOrStream {
        return Ok(Proof::Attached);
    }
    let secret = <[u8; 16]>::try_from(&secret[..]).map_err(|_| NO_SECRET)?;
    Ok(Proof::Secret(Secret::new(secret)))
}

pub(super) fn key(raw: u64) -> Option<IdempotencyKey> {
    (raw != 0).then_some(raw)
}

fn target_key(raw: u64) -> Result<Target, BorderError> {
    key(raw).map(Target::Key).ok_or(Malformed("`key`: keys are above 0"))
}

fn request(message: proto::RequestId) -> Result<RequestId, BorderError> {
    let dc = u8::try_from(message.dc).ok().and_then(DcId::new);
    let dc = dc.ok_or(Malformed("`request.dc`: no datacenter has that number"))?;
    if message.n > MAX_NUMBER {
        return Err(Malformed("`request.n`: no request has that number"));
    }
    Ok(RequestId { dc, n: message.n })
}

pub(super) fn label(text: &str) -> Result<Arc<str>, BorderError> {
    if text.len() <= MAX_LABEL { Ok(text.into()) } else { Err(BorderError::LabelTooLong(text.len())) }
}

pub(super) fn wants(locks: &[proto::LockMode]) -> Result<Wants, BorderError> {
    // Before anything is allocated for them.
    if locks.len() > MAX_LOCKS_PER_REQUEST {
        return Err(BorderError::TooManyLocks(locks.len()));
    }
    let locks = locks.iter().map(|lock| Ok((LockName::from_fields(&lock.name, lock.home)?, mode(lock)?)));
    Ok(Wants::all(locks.collect::<Result<_, BorderError>>()?)?)
}

fn mode(lock: &proto::LockMode) -> Result<Mode, BorderError> {
    match lock.mode() {
        proto::Mode::Shared => Ok(Mode::Shared),
        proto::Mode::Exclusive => Ok(Mode::Exclusive),
        proto::Mode::Unspecified => Err(Malformed("`mode`: say shared or exclusive")),
    }
}
