//! Calls of operators: descriptions, listings, hot locks, force releases, the audit.

use std::time::SystemTime;

use bytes::Bytes;

use super::fields::{dcs, micros, millis, mode_message, name, request_id_message};
use super::status::not_serving;
use crate::access::{Principal, RefusedOperator};
use crate::replica::NotServing;
use crate::replica::call::{Call, HolderInfo, HotLock, ListCursor, LockDescription, LockSummary, WaiterInfo};
use crate::replica::force_release::{ForceRelease, ForceReleaseOutcome, ForceReleased};
use crate::server::api::error::BorderError;
use crate::server::api::options::{MAX_PAGE, PAGE, TOP};
use crate::server::api::server_info::ServerInfo;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, ForceReason, LockName};
use geolock_api::proto;

use BorderError::Malformed;

pub(in crate::server::api) fn describe(message: &proto::DescribeLockRequest) -> Result<Call, BorderError> {
    Ok(Call::Describe { lock: LockName::from_fields(&message.name, message.home)? })
}

pub(in crate::server::api) fn description(lock: &LockDescription) -> proto::LockDescription {
    let owner = |(part, owner): &(DcId, DcId)| proto::PartOwner {
        part: part.get().into(),
        owner: owner.get().into(),
    };
    proto::LockDescription {
        name: name(&lock.lock),
        home: lock.lock.home_field(),
        prefix_home: lock.prefix_home.map(|home| home.get().into()),
        owners: lock.owners.iter().map(owner).collect(),
        holders: lock.holders.iter().map(holder).collect(),
        unknown_dcs: dcs(lock.unknown),
        waiters: lock.waiters.iter().map(waiter).collect(),
        waiting: lock.waiting as u64,
        unreachable_dcs: dcs(lock.unreachable),
        not_serving: lock.not_serving.iter().map(|(dc, why)| not_serving_owner(*dc, *why)).collect(),
    }
}

fn not_serving_owner(dc: DcId, why: NotServing) -> proto::NotServingOwner {
    let (reason, grace_remaining_ms) = not_serving(Some(why));
    proto::NotServingOwner { dc: dc.get().into(), reason: reason.into(), grace_remaining_ms }
}

fn holder(holder: &HolderInfo) -> proto::Holder {
    proto::Holder {
        dc: holder.dc.get().into(),
        request: Some(request_id_message(holder.request)),
        mode: mode_message(holder.mode).into(),
        token: holder.token.0,
        label: holder.label.to_string(),
        held_for_ms: millis(holder.held_for),
    }
}

fn waiter(waiter: &WaiterInfo) -> proto::Waiter {
    proto::Waiter {
        request: Some(request_id_message(waiter.request)),
        mode: mode_message(waiter.mode).into(),
        label: waiter.label.as_deref().unwrap_or_default().to_owned(),
        at_ms: waiter.at.millis(),
        parked: waiter.parked,
    }
}

pub(in crate::server::api) fn list(message: proto::ListLocksRequest) -> Result<Call, BorderError> {
    let (cursor, limit) = page(&message.page_token, message.page_size)?;
    Ok(Call::List { prefix: message.prefix.into(), cursor, limit })
}

pub(in crate::server::api) fn list_keys(message: proto::ListKeysRequest) -> Result<Call, BorderError> {
    let (cursor, limit) = page(&message.page_token, message.page_size)?;
    Ok(Call::ListKeys { prefix: Key::prefix_bytes(&message.bucket, &message.prefix)?, cursor, limit })
}

fn page(token: &[u8], size: u32) -> Result<(ListCursor, usize), BorderError> {
    let limit = if size == 0 { PAGE } else { size.min(MAX_PAGE) };
    let cursor = match token {
        [] => ListCursor::default(),
        token => ListCursor(u64::from_be_bytes(token.try_into().map_err(|_| BAD_PAGE_TOKEN)?)),
    };
    Ok((cursor, limit as usize))
}

const BAD_PAGE_TOKEN: BorderError = Malformed("`page_token`: pass it on as the server gave it");

/// Returns the token that [`list`] parses.
pub(in crate::server::api) fn page_token(next: Option<ListCursor>) -> Bytes {
    next.map(|cursor| Bytes::copy_from_slice(&cursor.0.to_be_bytes())).unwrap_or_default()
}

pub(in crate::server::api) fn summary(lock: &LockSummary) -> proto::LockSummary {
    proto::LockSummary {
        name: name(&lock.lock),
        home: lock.lock.home_field(),
        owned_parts: dcs(lock.owned_parts),
        holders: lock.holders as u64,
        held_mode: lock.held.map_or(proto::Mode::Unspecified, mode_message).into(),
        waiting: lock.waiting as u64,
    }
}

pub(in crate::server::api) fn top(message: proto::TopLocksRequest) -> Call {
    let limit = match message.limit {
        0 => TOP,
        limit => limit,
    };
    Call::Top { prefix: message.prefix.into(), limit: limit as usize }
}

pub(in crate::server::api) fn hot_lock(hot: &HotLock) -> proto::HotLock {
    proto::HotLock {
        lock: Some(description(&hot.lock)),
        local_holders: hot.local_holders as u64,
        head_wait_ms: millis(hot.head_wait),
        tracked_ms: millis(hot.tracked),
        total_wait_us: micros(hot.heat.waited),
        grants: hot.heat.grants,
        hand_offs: hot.heat.hand_offs,
        max_wait_us: micros(hot.heat.max_wait),
    }
}

/// `principal`: the caller.
pub(in crate::server::api) fn force_release(
    message: &proto::ForceReleaseRequest,
    principal: &Principal,
) -> Result<Call, BorderError> {
    let (lock, by) = (LockName::from_fields(&message.name, message.home)?, principal.to_string().into());
    Ok(Call::ForceRelease(ForceRelease { lock, operator: by, reason: ForceReason::new(&message.reason)? }))
}

pub(in crate::server::api) fn force_release_outcome(
    info: &ServerInfo,
    outcome: &ForceReleaseOutcome,
) -> proto::ForceReleaseResponse {
    proto::ForceReleaseResponse {
        released: outcome.taken.iter().map(|taken| audit_record(taken)).collect(),
        lock: Some(description(&outcome.lock)),
        dc: info.dc.get().into(),
    }
}

pub(in crate::server::api) fn audit_record(forced: &ForceReleased) -> proto::AuditRecord {
    proto::AuditRecord {
        number: forced.number,
        at_ms: forced.at_ms,
        force_released: Some(force_released(forced)),
        name: name(&forced.lock),
        home: forced.lock.home_field(),
        mode: mode_message(forced.mode).into(),
        request: Some(request_id_message(forced.request)),
        token: forced.token.0,
        label: forced.label.to_string(),
        lease: forced.lease.get(),
        locks: forced.locks,
    }
}

pub(in crate::server::api) fn refusal_record(refused: RefusedOperator) -> proto::RefusalRecord {
    let RefusedOperator { caller, from, call, denied, reason, count, first, last } = refused;
    let (action, resource) =
        denied.map_or_else(Default::default, |(action, resource)| (action.to_string(), resource));
    proto::RefusalRecord {
        first_at_ms: millis_since_epoch(first),
        last_at_ms: millis_since_epoch(last),
        count,
        caller: caller.map(|caller| caller.to_string()).unwrap_or_default(),
        address: from.to_string(),
        call: call.to_owned(),
        action,
        resource,
        reason,
    }
}

/// A clock before the epoch says 0.
fn millis_since_epoch(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn force_released(forced: &ForceReleased) -> proto::ForceReleased {
    proto::ForceReleased { operator: forced.operator.to_string(), reason: forced.reason.as_str().to_owned() }
}
