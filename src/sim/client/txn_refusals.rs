//! The refusals that a step of a transaction may get, and the client's reactions.

use std::time::Duration;

use crate::replica::call::store::TxnRefusal;
use crate::replica::call::{IdempotencyKey, Refusal, Wait};
use crate::sim::client::transactions::{Stage, Txn, TxnCall, TxnOrder};
use crate::sim::client::{Client, Out, names_home};
use crate::sim::failure::FailureKind;
use crate::sim::queue::Moment;
use geolock_api::value::OpError;

/// The consequence of a refusal.
enum Verdict {
    /// Not committed, for this reason.
    Over(&'static str),
    /// The transaction is as before; the client aborts it.
    Abort,
    /// The same, or it tries again later.
    Insist,
    /// The answer to another call will decide.
    Wait,
    /// The outcome is unknown for ever.
    Unknown,
    /// This cannot be.
    Wrong,
}

impl Client {
    /// Returns true if one of its guards is not held, or its datacenter had given its locks away before its
    /// disk was rolled back.
    fn may_lose_locks(&self, key: IdempotencyKey) -> bool {
        !self.holds_guards(key) || !self.blind_grants.is_empty() || self.rolled_back.is_some()
    }

    pub(super) fn on_txn_refused(
        &mut self,
        now: Moment,
        (key, call): (IdempotencyKey, TxnCall),
        refusal: &Refusal,
        out: &mut Vec<Out>,
    ) {
        let (disk_was_full, may_be_refused) = (self.disk_was_full, self.may_be_refused);
        let (disks_forget, is_moving) = (self.disks_forget, self.is_moving);
        let homes_may_end = self.homes_may_end;
        let Some(txn_lease) = self.lease_of_txn(key) else { return };
        // A member that follows another one with its id knows nothing of earlier leases.
        let lease_may_be_unknown = self.lost_leases.contains(&txn_lease) || homes_may_end;
        let is_victim = self.lost_to_operator == Some(txn_lease);
        let may_lose = self.may_lose_locks(key);
        let Some(txn) = self.txns.get_mut(&key) else { return };
        // A server that may have few open transactions also remembers few reasons for their ends.
        let may_have_ended =
            took(now.since(txn.issued), txn.order.max_open) || txn.order.may_be_replaced || is_victim;
        txn.is_told_over |= may_be_refused && may_have_ended;
        let verdict = match refusal {
            refusal if is_moving && ends_with_its_server(refusal) => Verdict::Over("its datacenter leaves"),
            Refusal::Transaction(TxnRefusal::UnknownDc(_)) if homes_may_end && txn.next > 0 => Verdict::Abort,
            refusal if homes_may_end && ends_with_a_member(refusal, &txn.order) => {
                Verdict::Over("a home of its locks, or who is to get rights, has left")
            }
            Refusal::DiskFull if !disk_was_full => Verdict::Wrong,
            Refusal::ResourceExhausted { .. } if !may_be_refused => Verdict::Wrong,
            Refusal::Transaction(TxnRefusal::SnapshotLost { .. }) if homes_may_end => {
                Verdict::Over("what it wants to see was lost with its datacenter")
            }
            Refusal::Transaction(TxnRefusal::SnapshotAhead { .. }) if disks_forget => {
                Verdict::Over("what it wants to see is lost")
            }
            Refusal::Transaction(TxnRefusal::LocksLost(_)) if may_lose => Verdict::Over("it lost its locks"),
            Refusal::Transaction(TxnRefusal::OutcomeUnknown(_)) if lease_may_be_unknown => Verdict::Unknown,
            _ => judge(txn, call, refusal, now.since(txn.issued)),
        };
        let verdict = match verdict {
            Verdict::Insist if self.insist(now, key, call, out) => return,
            Verdict::Insist => Verdict::Abort,
            other => other,
        };
        let Some(txn) = self.txns.get_mut(&key) else { return };
        match verdict {
            Verdict::Over(why) => self.finish_txn(key, why, out),
            // No call asks once more.
            Verdict::Abort if txn.stage == Stage::InDoubt => self.finish_txn(key, "its end was refused", out),
            Verdict::Abort => {
                txn.stage = Stage::Aborting;
                self.send_txn(key, out);
            }
            Verdict::Unknown => {
                self.end_txn_hold(key, out);
                self.txns.remove(&key);
            }
            Verdict::Insist | Verdict::Wait => {
                let ends = |refusal: &TxnRefusal| {
                    use TxnRefusal::{ForceReleased, StateReplaced, TooOld};
                    matches!(refusal, StateReplaced(_) | TooOld(..) | ForceReleased { .. })
                };
                txn.is_told_over |= matches!(refusal, Refusal::Transaction(refusal) if ends(refusal));
            }
            Verdict::Wrong => {
                let what =
                    format!("client {}, {call:?} of transaction {key}, {txn:?}: {refusal}", self.number);
                out.push(Out::Fails { kind: FailureKind::Contract, what });
            }
        }
    }
}

/// Returns true if something took that long, given that clocks differ in speed by 1 % each.
fn took(waited: Duration, limit: Duration) -> bool {
    waited >= limit - limit / 32
}

/// Returns true for a refusal by a datacenter that leaves, or was evicted.
fn ends_with_its_server(refusal: &Refusal) -> bool {
    use TxnRefusal::{LocksLost, Unknown};
    matches!(
        refusal,
        Refusal::Draining | Refusal::LeaseEnded | Refusal::Transaction(LocksLost(_) | Unknown(_))
    )
}

/// Returns true for a refusal because another datacenter has left, or of a copy of such a call.
fn ends_with_a_member(refusal: &Refusal, order: &TxnOrder) -> bool {
    match refusal {
        Refusal::UnknownHome { .. } | Refusal::Transaction(TxnRefusal::UnknownDc(_)) => true,
        Refusal::Transaction(TxnRefusal::Unknown(_)) => wants_home(order),
        _ => false,
    }
}

fn wants_home(order: &TxnOrder) -> bool {
    order.locks.as_ref().is_some_and(|(wants, _)| names_home(wants))
}

fn judge(txn: &Txn, call: TxnCall, refusal: &Refusal, waited: Duration) -> Verdict {
    let (order, aborting) = (&txn.order, txn.stage == Stage::Aborting);
    if aborting && call != TxnCall::Abort {
        return Verdict::Wait;
    }
    let in_doubt = txn.stage == Stage::InDoubt;
    let awaited = if in_doubt { TxnCall::Ask } else { TxnCall::Step(txn.next) };
    if call != TxnCall::Abort && call != awaited {
        // The answer to a step that was sent twice, or before the lease was over.
        return Verdict::Wait;
    }
    let only_if = |allowed: bool, why| if allowed { Verdict::Over(why) } else { Verdict::Wrong };
    let first = txn.next == 0;
    if aborting {
        let is_over = match refusal {
            Refusal::Transaction(TxnRefusal::Unknown(_) | TxnRefusal::ForceReleased { .. }) => true,
            Refusal::Transaction(TxnRefusal::TooOld(..)) => took(waited, order.max_open),
            Refusal::Transaction(TxnRefusal::StateReplaced(_)) => order.may_be_replaced,
            _ => false,
        };
        return only_if(is_over, "the server does not know it any more");
    }
    match refusal {
        Refusal::UnknownLease(_) => only_if(in_doubt, "its lease is not known any more"),
        Refusal::LeaseEnded => only_if(in_doubt || txn.shaken, "its lease ended"),
        Refusal::NotFree | Refusal::NotServing(_) => {
            let tries = matches!(order.locks, Some((_, Wait::Try)));
            only_if(first && tries, "its locks were not free")
        }
        Refusal::TimedOut(_) => {
            let in_time = matches!(order.locks, Some((_, Wait::AtMost(limit))) if took(waited, limit));
            only_if(first && in_time, "its locks were not granted in time")
        }
        Refusal::DiskFull if first => Verdict::Over("the disk is full"),
        Refusal::DiskFull => Verdict::Insist,
        Refusal::ResourceExhausted { .. } => only_if(first, "the server has too much to do"),
        Refusal::NotYet { .. } => only_if(first && wants_home(order), "homes are not understood yet"),
        Refusal::ForceReleased(_) => only_if(first, "an operator took its locks"),
        Refusal::Transaction(refusal) => match refusal {
            TxnRefusal::ForceReleased { .. } => Verdict::Over("an operator took its locks"),
            TxnRefusal::Change(change) => match change.error {
                OpError::Overflow => only_if(order.overflows, "it would overflow a counter"),
                OpError::InsufficientRights { .. } if first => Verdict::Over("its datacenter has no rights"),
                OpError::InsufficientRights { .. } => Verdict::Abort,
                OpError::Stale { .. } | OpError::Done { .. } if first => {
                    Verdict::Over("another version was written")
                }
                OpError::Stale { .. } | OpError::Done { .. } => Verdict::Abort,
                OpError::KeyEnded if first => Verdict::Over("its key ended meanwhile"),
                OpError::KeyEnded => Verdict::Abort,
                _ => Verdict::Wrong,
            },
            TxnRefusal::Unknown(_) => {
                let may_be_forgotten = in_doubt || txn.shaken || txn.resent || txn.is_told_over;
                only_if(may_be_forgotten, "the server does not know it")
            }
            TxnRefusal::TooOld(..) => only_if(took(waited, order.max_open), "it was open for too long"),
            TxnRefusal::StateReplaced(_) => {
                only_if(order.may_be_replaced, "its datacenter took over another state")
            }
            TxnRefusal::SnapshotNotReached { .. } | TxnRefusal::NoState => {
                only_if(first && took(waited, order.at_least.patience), "its snapshot did not come in time")
            }
            TxnRefusal::CannotCommit(_) if first => Verdict::Over("the server cannot commit"),
            TxnRefusal::CannotCommit(_) => Verdict::Insist,
            _ => Verdict::Wrong,
        },
        _ => Verdict::Wrong,
    }
}
