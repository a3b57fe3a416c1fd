//! Authorization: checks the access rules for a call before any of it is executed.
//!
//! Rules restrict acquiring, not keeping or returning. A stream needs no rule; renewing a lease, releasing
//! and cancelling need only the secret of the lease. So a change of the rules takes nothing away and
//! prevents no release, as long as the client is authenticated: with a revoked token, every call is refused.
//! A reclaim counts as acquiring: after a restart the server knows only from the client which locks were
//! held.

use crate::access::{Action, Judge, Refused, What};
use crate::causal_log::Wants;
use crate::names::{Mode, RequestId};
use crate::replica::call::{Call, Reclaim};
use crate::replica::force_release::Force;
use crate::replica::store_call::{Begin, GoOn, Look, Step};
use crate::replica::watch_call::{Subject, Watch};

/// The actions that need a lease.
const NEED_A_LEASE: [Action; 4] =
    [Action::AcquireShared, Action::AcquireExclusive, Action::Read, Action::Write];

/// Refuses calls that the present rules do not allow.
pub(super) fn call(judge: &mut Judge, call: &Call) -> Result<(), Refused> {
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
        // They belong to a watch that was allowed.
        Call::Unwatch { .. } | Call::WatchTaken { .. } => Ok(()),
    }
}

/// Removes from a reclaim the requests that the present rules do not allow, and returns these. They count as
/// lost: refusing the whole reclaim would lose all.
pub(super) fn reclaim(judge: &mut Judge, held: &mut Vec<Reclaim>) -> Result<Vec<RequestId>, Refused> {
    judge.renew()?;
    if judge.allows_everything() {
        return Ok(Vec::new());
    }
    let lost = held.extract_if(.., |held| wants(judge, &held.wants).is_err());
    Ok(lost.map(|held| held.request).collect())
}

/// Checks a running watch after a change of the rules.
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
