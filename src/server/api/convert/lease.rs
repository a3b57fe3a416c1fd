//! Leases: calls and their answers.

use std::time::Duration;

use bytes::Bytes;

use super::fields::{self, ProofBy, lease, millis, proof};
use crate::replica::call::{Call, OnDisconnect, Proof};
use crate::server::api::error::BorderError;
use crate::server::api::server_info::{self, ServerInfo};
use geolock_api::names::{LeaseId, Secret};
use geolock_api::proto;

/// Returns the call and the secret that was made for it.
pub(in crate::server::api) fn open_lease(
    message: &proto::OpenLeaseRequest,
    by: ProofBy,
) -> Result<(Call, Secret), BorderError> {
    let ttl = Some(Duration::from_millis(message.ttl_ms)).filter(|ttl| !ttl.is_zero());
    let on_disconnect = match (message.on_disconnect(), by) {
        (proto::OnDisconnect::Release, ProofBy::SecretOrStream) => OnDisconnect::Release,
        _ => OnDisconnect::Keep,
    };
    let secret = server_info::secret().map_err(|_| BorderError::NoRandomness)?;
    Ok((Call::OpenLease { secret, ttl, on_disconnect }, secret))
}

pub(in crate::server::api) fn lease_opened(
    info: &ServerInfo,
    lease: LeaseId,
    ttl: Duration,
    secret: &Secret,
) -> proto::OpenLeaseResponse {
    proto::OpenLeaseResponse {
        lease: lease.get(),
        secret: Bytes::copy_from_slice(secret.as_bytes()),
        ttl_ms: millis(ttl),
        boot_id: info.boot_id,
    }
}

pub(in crate::server::api) fn attach_lease(message: &proto::AttachLeaseRequest) -> Result<Call, BorderError> {
    let lease = lease(message.lease)?;
    match proof(&message.secret, ProofBy::Secret)? {
        Proof::Secret(secret) => Ok(Call::AttachLease { lease, secret }),
        Proof::Attached => Err(fields::NO_SECRET),
    }
}

pub(in crate::server::api) fn keep_alive(
    message: &proto::KeepAliveRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    Ok(Call::KeepAlive { lease: lease(message.lease)?, proof: proof(&message.secret, by)? })
}

pub(in crate::server::api) fn kept_alive(info: &ServerInfo, ttl: Duration) -> proto::KeepAliveResponse {
    proto::KeepAliveResponse { ttl_ms: millis(ttl), boot_id: info.boot_id }
}

pub(in crate::server::api) fn close_lease(
    message: &proto::CloseLeaseRequest,
    by: ProofBy,
) -> Result<Call, BorderError> {
    Ok(Call::CloseLease { lease: lease(message.lease)?, proof: proof(&message.secret, by)? })
}
