//! Fields that several messages have.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::causal_log::{MAX_LOCKS_PER_REQUEST, Wants};
use crate::crdt::VersionVector;
use crate::replica::call::{IdempotencyKey, Proof};
use crate::server::api::error::BorderError;
use geolock_api::names::{
    DcId, DcSet, LeaseId, LockName, MAX_DCS, MAX_LABEL, MAX_NUMBER, Mode, RequestId, Secret,
};
use geolock_api::proto;

use BorderError::Malformed;

/// The ways in which a call may prove that a lease is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server::api) enum ProofBy {
    /// On a stream: by the secret, or by having attached the lease.
    SecretOrStream,
    /// In a unary call.
    Secret,
}

pub(super) fn proof(secret: &Bytes, by: ProofBy) -> Result<Proof, BorderError> {
    if secret.is_empty() && by == ProofBy::SecretOrStream {
        return Ok(Proof::Attached);
    }
    let secret = <[u8; 16]>::try_from(&secret[..]).map_err(|_| NO_SECRET)?;
    Ok(Proof::Secret(Secret::new(secret)))
}

pub(super) const NO_SECRET: BorderError = Malformed("`secret`: it has 16 bytes, as the server gave it");

/// Any number can be the id of a lease; 0 means that the field was not set.
pub(super) fn lease(raw: u64) -> Result<LeaseId, BorderError> {
    if raw == 0 { Err(Malformed("`lease` is missing")) } else { Ok(LeaseId::from_raw(raw)) }
}

pub(super) fn idempotency_key(raw: u64) -> Option<IdempotencyKey> {
    (raw != 0).then_some(raw)
}

pub(super) fn request_id(message: proto::RequestId) -> Result<RequestId, BorderError> {
    let dc = u8::try_from(message.dc).ok().and_then(DcId::new);
    let dc = dc.ok_or(Malformed("`request.dc`: no datacenter has that number"))?;
    if message.n > MAX_NUMBER {
        return Err(Malformed("`request.n`: no request has that number"));
    }
    Ok(RequestId { dc, n: message.n })
}

pub(super) fn request_id_message(id: RequestId) -> proto::RequestId {
    proto::RequestId { dc: id.dc.get().into(), n: id.n }
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

pub(super) fn mode_message(mode: Mode) -> proto::Mode {
    match mode {
        Mode::Shared => proto::Mode::Shared,
        Mode::Exclusive => proto::Mode::Exclusive,
    }
}

pub(super) fn name(lock: &LockName) -> Bytes {
    Bytes::copy_from_slice(lock.as_bytes())
}

pub(super) fn snapshot(message: proto::Snapshot) -> Result<VersionVector, BorderError> {
    if message.seqs.len() > MAX_DCS {
        return Err(Malformed("`snapshot.seqs`: a cluster has at most 64 datacenters"));
    }
    let dcs = (0_u8..).map_while(DcId::new);
    Ok(dcs.zip(message.seqs).collect())
}

pub(super) fn snapshot_message(vector: &VersionVector) -> proto::Snapshot {
    let mut seqs = Vec::new();
    for (dc, seq) in vector.iter() {
        seqs.resize(dc.index() + 1, 0);
        seqs[dc.index()] = seq;
    }
    proto::Snapshot { seqs }
}

pub(super) fn dcs(set: DcSet) -> Vec<u32> {
    set.iter().map(|dc| dc.get().into()).collect()
}

/// Returns whole milliseconds, rounded up: a client that waits for a rounded-down time would try once too
/// often.
pub(in crate::server::api) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
