//! Whether the rules let a caller do what a call wants: at the edge, before anything is done.
//!
//! Rules are about taking, not about keeping or giving back: a stream needs no rule, renewing a lease, releasing and cancelling
//! no more than the secret of the lease. So rules that change take nothing from anybody and keep nobody from giving back, as
//! long as it is known who that is: whose token was withdrawn is refused whatever it wants. A reclaim takes: after a restart
//! the server knows only from its client what was held.

use crate::access::{Action, Judge, Refused, What};
use crate::causal_log::Wants;
use crate::names::{Mode, RequestId};
use crate::replica::call::{Call, Reclaim};
use crate::replica::forced::Force;
use crate::replica::store_call::{Begin, GoOn, Look, Step};
use crate::replica::watch_call::{Subject, Watch};

/// What a lease is good for.
const NEED_A_LEASE: [Action; 4] =
    [Action::AcquireShared, Action::AcquireExclusive, Action::Read, Action::Write];

/// Refuses what the rules of this moment do not allow.
pub(super) fn permit(judge: &mut Judge, call: &Call) -> Result<(), Refused> {
    judge.renew()?;
    if judge.allows_everything() {
        return Ok(());
    }
    match call {
        Call::OpenLease { .. } => judge.check_any(&NEED_A_LEASE, "open a lease"),
        Call::AttachLease { .. }
        | Call::KeepAlive { .. }
        | Call::CloseLease { .. }
        | Call::Release { .. }
        | Call::Cancel { .. } => Ok(()),
        Call::Acquire(acquire) => wants(judge, &acquire.wants),
        Call::Reclaim { held, .. } => held.iter().try_for_each(|held| wants(judge, &held.wants)),
        Call::Describe { lock } => judge.check(Action::Describe, What::Lock(lock)),
        Call::List { prefix, .. } | Call::Top { prefix, .. } => {
            judge.check(Action::Describe, What::Locks(prefix))
        }
        Call::ForceRelease(Force { lock, .. }) => judge.check(Action::ForceRelease, What::Lock(lock)),
        Call::Audit => judge.check(Action::Admin, What::Server),
        // It names no lock, no key and no client.
        Call::Status => Ok(()),
        Call::Begin(Begin { locks, step: first, .. }) => {
            locks.as_ref().map_or(Ok(()), |locks| wants(judge, &locks.wants))?;
            step(judge, first)
        }
        Call::GoOn(GoOn { step: next, .. }) => step(judge, next),
        Call::Look(Look { reads, .. }) => {
            reads.iter().try_for_each(|key| judge.check(Action::Read, What::Key(key)))
        }
        Call::Watch(followed) => watch(judge, followed),
        // Of a watch that was allowed.
        Call::Unwatch { .. } | Call::WatchTaken { .. } => Ok(()),
    }
}

/// Leaves of a reclaim what the rules of this moment allow. The rest counts as lost: refusing all of it would lose all.
pub(super) fn reclaim(judge: &mut Judge, held: &mut Vec<Reclaim>) -> Result<Vec<RequestId>, Refused> {
    judge.renew()?;
    if judge.allows_everything() {
        return Ok(Vec::new());
    }
    let lost = held.extract_if(.., |held| wants(judge, &held.wants).is_err());
    Ok(lost.map(|held| held.request).collect())
}

/// A watch that goes on, under rules that have changed.
pub(super) fn watch(judge: &Judge, watch: &Watch) -> Result<(), Refused> {
    watch.patterns.iter().try_for_each(|pattern| match watch.subject {
        Subject::Keys => judge.check(Action::Read, What::Keys(pattern.as_bytes())),
        Subject::Locks => judge.check(Action::Describe, What::Locks(pattern.as_bytes())),
    })
}

fn wants(judge: &Judge, wants: &Wants) -> Result<(), Refused> {
    wants.locks().iter().try_for_each(|(lock, mode)| {
        let action = match mode {
            Mode::Shared => Action::AcquireShared,
            Mode::Exclusive => Action::AcquireExclusive,
        };
        judge.check(action, What::Lock(lock))
    })
}

fn step(judge: &Judge, step: &Step) -> Result<(), Refused> {
    step.reads.iter().try_for_each(|key| judge.check(Action::Read, What::Key(key)))?;
    step.changes.iter().try_for_each(|change| judge.check(Action::Write, What::Key(&change.key)))
}
