//! Force releases. From the moment when one is durable its victim holds nothing of the request: the lock is
//! granted to others, and later calls of the victim are answered with that or get nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::replica::call::store::TxnRefusal;
use crate::replica::call::{Call, CallId, Refusal, Reply, Target};
use crate::replica::force_release::{ForceReleased, MAX_AUDITED};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Broken, TxnKey};
use crate::sim::queue::Moment;
use geolock_api::names::{DcId, FencingToken, Position, RequestId};

/// All force releases in one datacenter, over all its runs.
#[derive(Debug)]
pub(crate) struct ForceReleases {
    dc: DcId,
    /// Appended to the journal and not durable: by position, with the time of that.
    appended: BTreeMap<Position, (Arc<ForceReleased>, Moment)>,
    durable: Vec<Arc<ForceReleased>>,
    by_request: BTreeMap<RequestId, Arc<ForceReleased>>,
    by_token: BTreeMap<FencingToken, RequestId>,
    /// Releases that arrived after the force release of their requests: their answers say so.
    releases: BTreeMap<CallId, RequestId>,
    /// Tokens of transactions, as answered to their clients.
    txns: BTreeMap<TxnKey, FencingToken>,
}

fn broken(what: String) -> Result<(), Broken> {
    Err(Broken::new(FailureKind::ForcedKeeps, what))
}

impl ForceReleases {
    pub fn new(dc: DcId) -> ForceReleases {
        ForceReleases {
            dc,
            appended: BTreeMap::new(),
            durable: Vec::new(),
            by_request: BTreeMap::new(),
            by_token: BTreeMap::new(),
            releases: BTreeMap::new(),
            txns: BTreeMap::new(),
        }
    }

    /// A force release is appended to the journal.
    pub fn on_forced(&mut self, position: Position, forced: &Arc<ForceReleased>, now: Moment) {
        self.by_request.insert(forced.request, forced.clone());
        self.by_token.insert(forced.token, forced.request);
        self.appended.insert(position, (forced.clone(), now));
    }

    /// The journal is durable up to there. Returns the force releases that became final with that, and the
    /// times at which they were appended.
    pub fn on_durable(&mut self, position: Position) -> Vec<(Arc<ForceReleased>, Moment)> {
        let later = self.appended.split_off(&Position(position.0 + 1));
        let now_final: Vec<_> = std::mem::replace(&mut self.appended, later).into_values().collect();
        self.durable.extend(now_final.iter().map(|(forced, _)| forced.clone()));
        now_final
    }

    /// The node crashed: force releases that were not durable never happened.
    pub fn on_crash(&mut self) {
        for (forced, _) in std::mem::take(&mut self.appended).into_values() {
            self.by_request.remove(&forced.request);
            self.by_token.remove(&forced.token);
        }
        self.releases.clear();
    }

    /// Returns true if the holder with that token has lost its lock for good.
    pub fn is_final(&self, token: FencingToken) -> bool {
        let not_yet = || self.appended.values().any(|(forced, _)| forced.token == token);
        self.by_token.contains_key(&token) && !not_yet()
    }

    /// A call has arrived at the node.
    pub fn on_call(&mut self, id: CallId, call: &Call) {
        if let Call::Release { target: Target::Id(request), .. } = call
            && self.by_request.contains_key(request)
        {
            self.releases.insert(id, *request);
        }
    }

    /// Checks an answer of the node to a client or an operator.
    pub fn on_reply(&mut self, call: CallId, reply: &Reply) -> Result<(), Broken> {
        let (dc, released) = (self.dc, self.releases.remove(&call));
        match reply {
            Reply::Released => match released {
                Some(request) => {
                    let forced = &self.by_request[&request];
                    broken(format!("{dc} let {request} be released as if nothing had happened: {forced}"))
                }
                None => Ok(()),
            },
            Reply::Reclaimed { kept, .. } => match kept.iter().find(|id| self.by_request.contains_key(id)) {
                Some(id) => broken(format!("{dc} gave {id} back although {}", self.by_request[id])),
                None => Ok(()),
            },
            Reply::Refused(
                Refusal::ForceReleased(forced)
                | Refusal::Transaction(TxnRefusal::ForceReleased { forced, .. }),
            ) => self.check_told(forced),
            Reply::ForceReleased(outcome) => {
                outcome.taken.iter().try_for_each(|forced| self.check_final(forced))
            }
            Reply::Audited(rows) => {
                let known = &self.durable[self.durable.len().saturating_sub(MAX_AUDITED)..];
                if rows == known {
                    return Ok(());
                }
                let what = format!("{dc} remembers {rows:?}; taken away were {known:?}");
                Err(Broken::new(FailureKind::Forgotten, what))
            }
            _ => Ok(()),
        }
    }

    fn check_told(&self, forced: &Arc<ForceReleased>) -> Result<(), Broken> {
        if self.by_request.get(&forced.request) == Some(forced) {
            return Ok(());
        }
        let what = format!("{} says to a client that never lost {}: {forced}", self.dc, forced.request);
        Err(Broken::new(FailureKind::Contract, what))
    }

    /// People and streams hear of a force release when it is durable; the answer to a call of the victim may
    /// be sooner.
    pub fn check_final(&self, forced: &Arc<ForceReleased>) -> Result<(), Broken> {
        self.check_told(forced)?;
        if self.is_final(forced.token) {
            return Ok(());
        }
        let what = format!("{} told before it was durable: {forced}", self.dc);
        Err(Broken::new(FailureKind::LeftBeforeDurable, what))
    }

    /// A client hears that its transaction is open and holds locks with that token.
    pub fn on_txn_open(&mut self, txn: TxnKey, token: FencingToken) {
        self.txns.insert(txn, token);
    }

    /// Checks a transaction that the node commits.
    pub fn on_commit(&self, txn: TxnKey) -> Result<(), Broken> {
        let Some(request) = self.txns.get(&txn).and_then(|token| self.by_token.get(token)) else {
            return Ok(());
        };
        broken(format!(
            "{} committed transaction {} of {} although {}",
            self.dc, txn.1, txn.0, self.by_request[request]
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::call::{Proof, SessionId};
    use geolock_api::names::{ForceReason, LeaseId, LockName, Mode};

    fn forced() -> Arc<ForceReleased> {
        let dc = DcId::new(0).expect("a small id");
        Arc::new(ForceReleased {
            number: 1,
            at_ms: 0,
            operator: "ann".into(),
            reason: ForceReason::new("it hangs").expect("a line of text"),
            lock: LockName::try_from("a").expect("a valid name"),
            mode: Mode::Exclusive,
            lease: LeaseId::new(dc, 1),
            request: RequestId { dc, n: 2 },
            token: FencingToken(7),
            label: "".into(),
            locks: 1,
        })
    }

    fn kind(result: Result<(), Broken>) -> Option<FailureKind> {
        result.err().map(|broken| broken.kind)
    }

    #[test]
    fn a_victim_that_keeps_anything_is_caught() {
        let forced = forced();
        let mut all = ForceReleases::new(forced.request.dc);
        all.on_forced(Position(3), &forced, Moment::START);
        let release = |tag| CallId { session: SessionId(1), tag };
        let call =
            Call::Release { lease: forced.lease, proof: Proof::Attached, target: Target::Id(forced.request) };
        all.on_call(release(1), &call);
        all.on_call(release(2), &call);
        assert_eq!(kind(all.on_reply(release(1), &Reply::Released)), Some(FailureKind::ForcedKeeps));
        let refused = Reply::Refused(Refusal::ForceReleased(forced.clone()));
        assert_eq!(all.on_reply(release(2), &refused), Ok(()));
        let kept = Reply::Reclaimed { kept: vec![forced.request], lost: vec![] };
        assert_eq!(kind(all.on_reply(release(3), &kept)), Some(FailureKind::ForcedKeeps));
        let txn = (forced.lease, 9);
        assert_eq!(all.on_commit(txn), Ok(()));
        all.on_txn_open(txn, forced.token);
        assert_eq!(kind(all.on_commit(txn)), Some(FailureKind::ForcedKeeps));
    }

    #[test]
    fn people_are_told_when_it_is_durable_and_a_crash_takes_back_what_was_not() {
        let forced = forced();
        let mut all = ForceReleases::new(forced.request.dc);
        all.on_forced(Position(3), &forced, Moment::START);
        assert_eq!(all.on_durable(Position(2)), []);
        assert_eq!(kind(all.check_final(&forced)), Some(FailureKind::LeftBeforeDurable));
        assert_eq!(all.on_durable(Position(3)).len(), 1);
        assert_eq!((all.check_final(&forced), all.is_final(forced.token)), (Ok(()), true));
        let audited = |rows| Reply::Audited(rows);
        let call = CallId { session: SessionId(1), tag: 1 };
        assert_eq!(kind(all.on_reply(call, &audited(vec![]))), Some(FailureKind::Forgotten));
        assert_eq!(all.on_reply(call, &audited(vec![forced.clone()])), Ok(()));
        let mut all = ForceReleases::new(forced.request.dc);
        all.on_forced(Position(3), &forced, Moment::START);
        all.on_crash();
        assert_eq!(kind(all.check_final(&forced)), Some(FailureKind::Contract));
    }
}
