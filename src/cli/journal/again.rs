//! Makes orphans again: each as one commit, with a mark that it was done, under a lock.
//!
//! The mark and the changes are one transaction, and the lock serialises all who do the same, in any
//! datacenter. So an orphan is made again at most once.

use std::collections::BTreeSet;

use super::End;
use crate::causal_log::{Action, Change};
use crate::cli::connect::ConnectArgs;
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::server::orphans::Orphan;
use geolock_api::value::{FlagOp, Op, RegisterOp, ResettableCounterOp, SetOp, Update};
use geolock_client::{Batch, Client, CommitError, Key, LockName, TxnError, TxnRequest};

/// The bucket of the marks.
const BUCKET: &[u8] = b"geolock-orphans";
/// Bytes of changes at which a step ends: a change has at most 1 MiB, a step at most 2 MiB.
const STEP: usize = 1 << 20;

/// The orphans to make again.
pub struct Choice {
    /// Those that were not made under locks.
    pub unlocked: bool,
    /// Entries of others.
    pub locked: BTreeSet<u64>,
    /// Removals, too.
    pub removals: bool,
}

impl Choice {
    /// Returns true if any orphan is to be made again.
    pub fn repeats(&self) -> bool {
        self.unlocked || !self.locked.is_empty()
    }

    fn has(&self, orphan: &Orphan) -> bool {
        self.locked.contains(&orphan.number) || (self.unlocked && orphan.under.is_none())
    }
}

/// The fate of an orphan.
#[derive(Debug)]
pub enum Outcome {
    /// It is committed again; that many of its changes were left out.
    Made { left_out: usize },
    /// It was made again earlier.
    Before,
    /// It was made under locks, or was not asked for.
    LeftOut,
    /// All its changes are left out: removals, or rights that it gave.
    NothingLeft,
    /// The server refused it: the reason.
    Failed(String),
}

/// Makes orphans of one directory again.
pub struct Repeat {
    client: Client,
    lock: LockName,
    /// The keys of the marks begin with this.
    prefix: String,
    choice: Choice,
}

impl Repeat {
    pub async fn new(connect: &ConnectArgs, end: &End, choice: Choice) -> Result<Repeat, Failure> {
        let client = connect.connect(|_| {}).await?;
        let prefix = format!("{}/{}", end.dc, end.generation);
        let lock = LockName::try_from(format!("geolock-orphans/{prefix}").as_str()).or_fail(Code::Failed)?;
        Ok(Repeat { client, lock, prefix, choice })
    }

    /// Makes them again, in their order. Ends at the first failure of the connection.
    pub async fn all(self, orphans: &[Orphan]) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::new();
        for orphan in orphans {
            outcomes.push(if self.choice.has(orphan) { self.one(orphan).await? } else { Outcome::LeftOut });
        }
        // If that fails, its lease expires; everything is done in any case.
        let _ = self.client.close().await;
        Ok(outcomes)
    }

    async fn one(&self, orphan: &Orphan) -> Result<Outcome, Failure> {
        let kept: Vec<&Change> = orphan
            .changes
            .iter()
            .filter(|change| is_repeated(&change.action, self.choice.removals))
            .collect();
        if kept.is_empty() {
            return Ok(Outcome::NothingLeft);
        }
        let left_out = orphan.changes.len() - kept.len();
        let mark = format!("{}/{}", self.prefix, orphan.number);
        let mark = Key::new(BUCKET, mark.as_bytes()).or_fail(Code::Failed)?;
        match self.commit(&mark, &kept).await {
            Ok(true) => Ok(Outcome::Made { left_out }),
            Ok(false) => Ok(Outcome::Before),
            // The server answered: the next orphan may be possible.
            Err(CommitError::NotCommitted(TxnError::Refused(reason, message))) => {
                tracing::debug!(?reason, entry = orphan.number, "refused");
                Ok(Outcome::Failed(message))
            }
            Err(error) => {
                let place = format!("entry {}; earlier ones are done, repeat the command", orphan.number);
                Err(Failure::new(Code::Failed, error).at(place))
            }
        }
    }

    /// Commits the changes with the mark. Returns false if the mark is there.
    async fn commit(&self, mark: &Key, changes: &[&Change]) -> Result<bool, CommitError> {
        let request = TxnRequest::exclusive(self.lock.clone()).label("geolock journal orphans");
        let mut transaction = self.client.begin(request).await?;
        if transaction.read(mark).await?.is_some() {
            return Ok(false);
        }
        let (mut batch, mut weight) = (Batch::new().update(mark, Update::enable_wins(FlagOp::Enable)), 0);
        for change in changes {
            if weight + change.weight() > STEP {
                transaction.run(std::mem::take(&mut batch)).await?;
                weight = 0;
            }
            weight += change.weight();
            batch = with(batch, change);
        }
        transaction.commit_with(batch).await?;
        Ok(true)
    }
}

fn with(batch: Batch, Change { key, action }: &Change) -> Batch {
    match action {
        Action::Update(update) => batch.update(key, update.clone()),
        Action::Remove => batch.remove(key),
        Action::Expire(after) => batch.expire(key, after.duration()),
        // Nobody commits it for a client.
        Action::Expired => batch,
    }
}

fn is_repeated(action: &Action, with_removals: bool) -> bool {
    match action {
        Action::Update(update) => is_possible(&update.op) && (with_removals || !removes(&update.op)),
        Action::Remove => with_removals,
        Action::Expire(_) => true,
        Action::Expired => false,
    }
}

/// The rights of counters of a lost datacenter have gone to another one, so it has none to give.
fn is_possible(op: &Op) -> bool {
    !matches!(op, Op::TransferRights { .. })
}

/// Returns true for operations that remove what the transaction sees: today that is also what came later.
fn removes(op: &Op) -> bool {
    match op {
        Op::ResettableCounter(op) => matches!(op, ResettableCounterOp::Reset),
        Op::MvRegister(op) => matches!(op, RegisterOp::Reset),
        Op::AddWinsSet(op) | Op::RemoveWinsSet(op) => matches!(op, SetOp::Remove(_) | SetOp::Reset),
        Op::EnableWinsFlag(op) | Op::DisableWinsFlag(op) => matches!(op, FlagOp::Reset),
        Op::ResettableMap(_) => true,
        Op::Counter(_)
        | Op::BoundedCounter(_)
        | Op::TransferRights { .. }
        | Op::LwwRegister(_)
        | Op::Versioned { .. }
        | Op::GrowOnlySet(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::TimeToLive;
    use geolock_api::names::DcId;

    #[test]
    fn removals_are_left_out_unless_they_are_asked_for() {
        let ttl = TimeToLive::from_millis(300).expect("it is short");
        let always = [
            Action::Update(Update::counter(1)),
            Action::Update(Update::register("x")),
            Action::Update(Update::enable_wins(FlagOp::Disable)),
            Action::Update(Update::set_add(["a"])),
            Action::Expire(ttl),
        ];
        let removals = [
            Action::Remove,
            Action::Update(Update::set_remove(["a"])),
            Action::Update(Update::remove_fields(["a"])),
            Action::Update(Update::resettable_counter_reset()),
        ];
        let never =
            [Action::Expired, Action::Update(Update::transfer_rights(DcId::new(1).expect("small"), 5))];
        assert!(always.iter().all(|action| is_repeated(action, false) && is_repeated(action, true)));
        assert!(removals.iter().all(|action| !is_repeated(action, false) && is_repeated(action, true)));
        assert!(never.iter().all(|action| !is_repeated(action, true)));
    }
}
