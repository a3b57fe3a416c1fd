//! Requests for locks: calls and their answers.

use std::sync::Arc;
use std::time::Duration;

use super::fields::{
    ProofBy, idempotency_key, label, lease, proof, request_id, request_id_message, snapshot_message, wants,
};
use crate::causal_log::MAX_LOCKS_PER_REQUEST;
use crate::replica::call::{
    Acquire, AcquireEnough, Amend, AnyOf, Call, Chosen, Downgrade, Grant, LockRequest, Proof, Reclaim,
    Target, Wait,
};
use crate::server::api::error::BorderError;
use geolock_api::names::{FencingToken, LeaseId, LockName, RequestId};
use geolock_api::proto::{self, acquire_request, cancel_request, downgrade_request, release_request};

use BorderError::Malformed;

pub(in crate::server::api) fn acquire(
    message: proto::AcquireRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    let key = idempotency_key(message.idempotency_key);
    if by == ProofBy::Secret && key.is_none() {
        return Err(Malformed(
            "`idempotency_key`: a unary acquire needs one, so that it can be called again",
        ));
    }
    let wait = match message.wait {
        Some(acquire_request::Wait::TryOnce(_)) => Wait::Try,
        Some(acquire_request::Wait::WaitMs(millis)) => Wait::AtMost(Duration::from_millis(millis)),
        Some(acquire_request::Wait::WaitForever(_)) => Wait::Forever,
        None => return Err(NO_WAIT),
    };
    if let Some(enough) = message.enough {
        if !message.locks.is_empty() {
            return Err(Malformed("`locks`: a request for `enough` names none beside its candidates"));
        }
        return Ok(Call::AcquireEnough(Box::new(AcquireEnough {
            lease: lease(message.lease)?,
            proof: proof(&message.secret, by)?,
            key,
            of: Arc::new(any_of(&enough)?),
            revision: enough.revision,
            wait,
            label: label(&message.label)?,
        })));
    }
    Ok(Call::Acquire(Acquire {
        lease: lease(message.lease)?,
        proof: proof(&message.secret, by)?,
        key,
        request: LockRequest { wants: wants(&message.locks)?, wait, label: label(&message.label)? },
    }))
}

fn any_of(message: &proto::Enough) -> Result<AnyOf, BorderError> {
    // Before anything is allocated for them.
    if message.candidates.len() > MAX_LOCKS_PER_REQUEST {
        return Err(BorderError::TooManyLocks(message.candidates.len()));
    }
    let candidates = message.candidates.iter().map(candidate).collect::<Result<_, BorderError>>()?;
    Ok(AnyOf::new(message.amount, message.most, candidates)?)
}

fn candidate(message: &proto::Candidate) -> Result<(LockName, u64), BorderError> {
    Ok((LockName::from_fields(&message.name, message.home)?, message.weight))
}

pub(in crate::server::api) fn amend(message: &proto::AmendRequest, by: ProofBy) -> Result<Call, BorderError> {
    let (add, drop) = (&message.add, &message.drop);
    if let Some(many) = [add.len(), drop.len()].into_iter().find(|len| *len > MAX_LOCKS_PER_REQUEST) {
        return Err(BorderError::TooManyLocks(many));
    }
    if message.revision == 0 {
        return Err(Malformed("`revision`: amendments are numbered from 1 on"));
    }
    let (lease, proof) = (lease(message.lease)?, proof(&message.secret, by)?);
    let Target::Key(key) = target_key(message.idempotency_key)? else { return Err(NO_TARGET) };
    let add = add.iter().map(candidate).collect::<Result<_, _>>()?;
    let drop = drop.iter().map(|it| Ok(candidate(it)?.0)).collect::<Result<_, BorderError>>()?;
    Ok(Call::Amend(Box::new(Amend { lease, proof, key, revision: message.revision, add, drop })))
}

pub(in crate::server::api) fn granted(grant: &Grant) -> proto::AcquireResponse {
    proto::AcquireResponse {
        request: Some(request_id_message(grant.request)),
        token: grant.token.0,
        snapshot: Some(snapshot_message(&grant.snapshot)),
        chosen: Vec::new(),
        revision: 0,
    }
}

pub(in crate::server::api) fn chosen(chosen: Chosen) -> proto::AcquireResponse {
    proto::AcquireResponse { chosen: chosen.chosen, revision: chosen.revision, ..granted(&chosen.grant) }
}

pub(in crate::server::api) fn release(
    message: &proto::ReleaseRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    let target = match &message.target {
        Some(release_request::Target::Request(id)) => Target::Id(request_id(*id)?),
        Some(release_request::Target::IdempotencyKey(key)) => target_key(*key)?,
        None => return Err(NO_TARGET),
    };
    Ok(Call::Release { lease: lease(message.lease)?, proof: proof(&message.secret, by)?, target })
}

pub(in crate::server::api) fn downgrade(
    message: &proto::DowngradeRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    let target = match &message.target {
        Some(downgrade_request::Target::Request(id)) => Target::Id(request_id(*id)?),
        Some(downgrade_request::Target::IdempotencyKey(key)) => target_key(*key)?,
        None => return Err(NO_TARGET),
    };
    let lock = LockName::from_fields(&message.name, message.home)?;
    let (lease, proof) = (lease(message.lease)?, proof(&message.secret, by)?);
    Ok(Call::Downgrade(Downgrade { lease, proof, target, lock }))
}

pub(in crate::server::api) fn cancel(
    message: &proto::CancelRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    let target = match &message.target {
        Some(cancel_request::Target::Request(id)) => Target::Id(request_id(*id)?),
        Some(cancel_request::Target::IdempotencyKey(key)) => target_key(*key)?,
        None => return Err(NO_TARGET),
    };
    Ok(Call::Cancel { lease: lease(message.lease)?, proof: proof(&message.secret, by)?, target })
}

fn target_key(raw: u64) -> Result<Target, BorderError> {
    idempotency_key(raw).map(Target::Key).ok_or(Malformed("`idempotency_key`: keys are above 0"))
}

pub(super) const NO_WAIT: BorderError = Malformed("`wait`: set `try_once`, `wait_ms` or `wait_forever`");
const NO_TARGET: BorderError = Malformed("`target`: set `request` or `idempotency_key`");

/// A reclaim, or a piece of one.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server::api) struct ReclaimPiece {
    pub lease: LeaseId,
    pub proof: Proof,
    pub held: Vec<Reclaim>,
    pub more: bool,
}

pub(in crate::server::api) fn reclaim(
    message: &proto::ReclaimRequest,
    by: ProofBy,
) -> Result<ReclaimPiece, BorderError> {
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
        request: request_id(message.request.ok_or(Malformed("`request` of `held` is missing"))?)?,
        key: idempotency_key(message.idempotency_key),
        wants: wants(&message.locks)?,
        token: FencingToken(message.token),
        label: label(&message.label)?,
    })
}

/// `denied`: the requests that the access rules forbid, which the datacenter therefore was not asked to keep.
pub(in crate::server::api) fn reclaimed(
    kept: Vec<RequestId>,
    lost: Vec<RequestId>,
    denied: Vec<RequestId>,
) -> proto::ReclaimResponse {
    proto::ReclaimResponse {
        kept: kept.into_iter().map(request_id_message).collect(),
        lost: lost.into_iter().chain(denied).map(request_id_message).collect(),
    }
}
