//! Maps effects to the fault points of [`crate::testkit::faults`]. Without the feature `faults` there are
//! none.

use smallvec::{SmallVec, smallvec};

use crate::causal_log::{Entry, Op};
use crate::membership::Command;
use crate::replica::call::Reply;
use crate::replica::call::store::TxnState;
use crate::replica::{Effect, Message, Record};
use crate::testkit::faults::{self, Step};
use geolock_api::names::DcId;

/// The fault points of one effect.
pub(super) struct FaultPoints(SmallVec<[Step; 3]>);

impl FaultPoints {
    /// Returns the fault points of an effect in the datacenter `me`.
    #[inline]
    pub fn of(effect: &Effect, me: DcId) -> FaultPoints {
        FaultPoints(if cfg!(feature = "faults") { of(effect, me) } else { SmallVec::new() })
    }

    #[inline]
    pub fn before(&self) {
        self.0.iter().for_each(|step| faults::before(*step));
    }

    #[inline]
    pub fn after(&self) {
        self.0.iter().for_each(|step| faults::after(*step));
    }
}

fn of(effect: &Effect, me: DcId) -> SmallVec<[Step; 3]> {
    match effect {
        Effect::Persist { record: Record::Entry(entry), .. } => of_entry(entry, me),
        Effect::Persist { record: Record::LeaseOpened(_), .. } => smallvec![Step::Append, Step::Lease],
        Effect::Persist { record: Record::StatePiece(_), .. } => smallvec![Step::Append, Step::Take],
        Effect::Persist { record: Record::StateTaken { .. }, .. } => smallvec![Step::Append, Step::Install],
        Effect::Persist { record: Record::Decided { proposal, .. }, .. } => match proposal.command {
            Command::Admit(_) => smallvec![Step::Append, Step::Admit],
            Command::Settled { .. } => smallvec![Step::Append, Step::Settle],
            _ => smallvec![Step::Append],
        },
        Effect::Persist { .. } => smallvec![Step::Append],
        Effect::Send { message: Message::State(_), .. } => smallvec![Step::Send, Step::Give],
        Effect::Send { .. } => smallvec![Step::Send],
        Effect::Reply { reply: Reply::Granted(_), .. } => smallvec![Step::Grant],
        Effect::Reply { reply: Reply::Released, .. } => smallvec![Step::Release],
        Effect::Reply { reply: Reply::Stepped(stepped), .. } => match stepped.state {
            TxnState::Committed(_) => smallvec![Step::Committed],
            // The transaction begins with its locks.
            TxnState::Open if stepped.token.is_some() => smallvec![Step::Grant],
            TxnState::Open | TxnState::Aborted => smallvec![],
        },
        _ => smallvec![],
    }
}

fn of_entry(entry: &Entry, me: DcId) -> SmallVec<[Step; 3]> {
    if entry.dc != me {
        return smallvec![Step::Append, Step::Apply];
    }
    let mut points = smallvec![Step::Append];
    let has = |is: fn(&Op) -> bool| entry.ops.iter().any(is);
    points.extend(has(|op| matches!(op, Op::Transfer { .. })).then_some(Step::Transfer));
    points.extend(has(|op| matches!(op, Op::Commit(_))).then_some(Step::Commit));
    points.extend(has(|op| matches!(op, Op::Enter { .. })).then_some(Step::Enter));
    points.extend(has(|op| matches!(op, Op::Split { .. })).then_some(Step::Split));
    points.extend(has(|op| matches!(op, Op::Done { .. })).then_some(Step::Done));
    points
}
