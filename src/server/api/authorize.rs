//! Authorization: checks the access rules for a call before any of it is executed.
//!
//! Rules restrict acquiring, not keeping or returning. A stream needs no rule; renewing a lease, releasing,
//! downgrading and cancelling need only the secret of the lease. So a change of the rules takes nothing away
//! and prevents no release, as long as the client is authenticated: with a revoked token, every call is
//! refused. A reclaim counts as acquiring: after a restart the server knows only from the client which locks
//! were held.

use crate::access::{Action, Authorizer, Refused, Resource};
use crate::causal_log::Wants;
use crate::replica::call::store::{Begin, NextStep, Read, Step};
use crate::replica::call::watch::{Subject, Watch};
use crate::replica::call::{Call, Reclaim};
use crate::replica::force_release::ForceRelease;
use geolock_api::names::{Mode, RequestId};

/// The actions that need a lease.
const NEED_A_LEASE: [Action; 4] =
    [Action::AcquireShared, Action::AcquireExclusive, Action::Read, Action::Write];

const FORCE_RELEASE: &str = "ForceRelease";
const AUDIT: &str = "Audit";
pub(super) const LIST_MEMBERS: &str = "ListMembers";
pub(super) const ADD_MEMBER: &str = "AddMember";
pub(super) const REMOVE_MEMBER: &str = "RemoveMember";
pub(super) const EVICT_MEMBERS: &str = "EvictMembers";
pub(super) const RECOVER: &str = "Recover";
pub(super) const SET_POLICY: &str = "SetPolicy";
pub(super) const SET_HOME: &str = "SetHome";

/// The calls of operators by name, whose refusals the audit lists.
const OF_OPERATORS: [&str; 9] = [
    FORCE_RELEASE,
    AUDIT,
    LIST_MEMBERS,
    ADD_MEMBER,
    REMOVE_MEMBER,
    EVICT_MEMBERS,
    RECOVER,
    SET_POLICY,
    SET_HOME,
];

/// Returns the name of an operator's call, if `method` is one.
pub(super) fn of_operator(method: &str) -> Option<&'static str> {
    OF_OPERATORS.into_iter().find(|call| *call == method)
}

/// Refuses calls that the present rules do not allow.
pub(super) fn call(authorizer: &mut Authorizer, call: &Call) -> Result<(), Refused> {
    authorizer.renew()?;
    if authorizer.allows_everything() {
        return Ok(());
    }
    match call {
        Call::OpenLease { .. } => authorizer.check_any(&NEED_A_LEASE, "open a lease"),
        Call::AttachLease { .. }
        | Call::KeepAlive { .. }
        | Call::CloseLease { .. }
        | Call::Release { .. }
        | Call::Downgrade(_)
        | Call::Cancel { .. } => Ok(()),
        Call::Acquire(acquire) => wants(authorizer, &acquire.request.wants),
        Call::AcquireEnough(acquire) => acquire
            .of
            .names()
            .try_for_each(|lock| authorizer.check(Action::AcquireExclusive, Resource::Lock(lock))),
        Call::Amend(amend) => amend
            .add
            .iter()
            .try_for_each(|(lock, _)| authorizer.check(Action::AcquireExclusive, Resource::Lock(lock))),
        Call::Reclaim { held, .. } => held.iter().try_for_each(|held| wants(authorizer, &held.wants)),
        Call::Describe { lock } => authorizer.check(Action::Describe, Resource::Lock(lock)),
        Call::List { prefix, .. } | Call::Top { prefix, .. } => {
            authorizer.check(Action::Describe, Resource::Locks(prefix))
        }
        Call::ListKeys { prefix, .. } => authorizer.check(Action::Read, Resource::Keys(prefix)),
        Call::ForceRelease(ForceRelease { lock, .. }) => {
            authorizer.check_operator(FORCE_RELEASE, Action::ForceRelease, Resource::Lock(lock))
        }
        Call::Audit | Call::Decisions => authorizer.check_operator(AUDIT, Action::Admin, Resource::Server),
        // It names no lock, no key and no client.
        Call::Status => Ok(()),
        Call::Begin(Begin { locks, step: first, .. }) => {
            locks.as_ref().map_or(Ok(()), |locks| wants(authorizer, &locks.wants))?;
            step(authorizer, first)
        }
        Call::Step(NextStep { step: next, .. }) => step(authorizer, next),
        Call::Read(Read { reads, .. }) => {
            reads.iter().try_for_each(|key| authorizer.check(Action::Read, Resource::Key(key)))
        }
        Call::Watch(followed) => watch(authorizer, followed),
        // They belong to a watch that was allowed.
        Call::Unwatch { .. } | Call::WatchTaken { .. } => Ok(()),
    }
}

/// Refuses a call of an operator about the members that the present rules do not allow.
pub(super) fn operator(authorizer: &mut Authorizer, call: &'static str) -> Result<(), Refused> {
    authorizer.renew()?;
    authorizer.check_operator(call, Action::Admin, Resource::Server)
}

/// Removes from a reclaim the requests that the present rules do not allow, and returns these. They count as
/// lost: refusing the whole reclaim would lose all.
pub(super) fn reclaim(
    authorizer: &mut Authorizer,
    held: &mut Vec<Reclaim>,
) -> Result<Vec<RequestId>, Refused> {
    authorizer.renew()?;
    if authorizer.allows_everything() {
        return Ok(Vec::new());
    }
    let lost = held.extract_if(.., |held| wants(authorizer, &held.wants).is_err());
    Ok(lost.map(|held| held.request).collect())
}

/// Checks a running watch after a change of the rules.
pub(super) fn watch(authorizer: &Authorizer, watch: &Watch) -> Result<(), Refused> {
    watch.patterns.iter().try_for_each(|pattern| match watch.subject {
        Subject::Keys => authorizer.check(Action::Read, Resource::Keys(pattern.as_bytes())),
        Subject::Locks => authorizer.check(Action::Describe, Resource::Locks(pattern.as_bytes())),
    })
}

fn wants(authorizer: &Authorizer, wants: &Wants) -> Result<(), Refused> {
    wants.locks().iter().try_for_each(|(lock, mode)| {
        let action = match mode {
            Mode::Shared => Action::AcquireShared,
            Mode::Exclusive => Action::AcquireExclusive,
        };
        authorizer.check(action, Resource::Lock(lock))
    })
}

fn step(authorizer: &Authorizer, step: &Step) -> Result<(), Refused> {
    step.reads.iter().try_for_each(|key| authorizer.check(Action::Read, Resource::Key(key)))?;
    step.changes.iter().try_for_each(|change| authorizer.check(Action::Write, Resource::Key(&change.key)))
}
