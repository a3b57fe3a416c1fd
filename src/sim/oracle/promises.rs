//! Announcements of a node: durable before they leave, and still true after every crash.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::replica::call::store::Then;
use crate::replica::call::{Call, CallId, Grant, IdempotencyKey, Reclaim};
use crate::replica::force_release::ForceReleased;
use crate::replica::{Message, Position};
use crate::sim::disk::Disk;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::Broken;
use crate::sim::oracle::told::{Told, ToldGrants};
use crate::sim::queue::Moment;
use geolock_api::names::{DcId, DcSet, FencingToken, LeaseId, LockName, Mode, RequestId};

/// The end of a lease, or of one of its requests, in the journal, with the locks that it held as far as
/// clients were answered.
#[derive(Clone, Debug)]
pub(crate) struct EndedHold {
    pub lease: LeaseId,
    pub position: Position,
    pub wants: Vec<(LockName, Mode)>,
}

/// A transaction that holds locks, at least until then.
#[derive(Debug)]
struct OpenTxn {
    wants: Vec<(LockName, Mode)>,
    token: FencingToken,
    until: Moment,
}

/// A request as its client knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub lease: LeaseId,
    pub key: IdempotencyKey,
    pub wants: &'a [(LockName, Mode)],
}

/// The announcements of one node, over all its runs.
#[derive(Debug)]
pub(crate) struct Promises {
    dc: DcId,
    /// By peer: the clock of the last heartbeat.
    clocks: BTreeMap<DcId, Timestamp>,
    /// The highest token, and that of the runs before this one.
    token: Option<FencingToken>,
    token_before: Option<FencingToken>,
    /// Grants that were answered, and neither released nor ended as far as the server knows. After a crash it
    /// may know less than this, until the client reclaims: a lease that ends before that may hold all of it.
    pub(super) held: ToldGrants,
    /// Reclaims of clients, by their calls, until these are answered. A claim alone is no hold: clients that
    /// break rules claim what they have released, and a claim whose session ends first is never answered.
    claims: BTreeMap<CallId, (LeaseId, Vec<(RequestId, Told)>)>,
    /// Transactions whose clients heard that they hold locks, and that did not end since for any reason that
    /// is known here.
    txns: BTreeMap<(LeaseId, IdempotencyKey), OpenTxn>,
    /// Ends of leases that may not be durable yet.
    ended: Vec<EndedHold>,
}

impl Promises {
    pub fn new(dc: DcId) -> Promises {
        Promises {
            dc,
            clocks: BTreeMap::new(),
            token: None,
            token_before: None,
            held: ToldGrants::default(),
            claims: BTreeMap::new(),
            txns: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Checks a message of the node to a peer.
    pub fn on_send(&mut self, disk: &Disk, peer: DcId, message: &Message) -> Result<(), Broken> {
        let durable = &disk.facts.applied;
        match message {
            Message::Entries(entries) | Message::EntriesV1(entries) => {
                if let Some(entry) = entries.iter().find(|e| durable.get(e.dc) < e.seq) {
                    let what = format!(
                        "{} sent entry {}:{} to {peer}; durable are only {durable}",
                        self.dc, entry.dc, entry.seq
                    );
                    return Err(Broken::new(FailureKind::LeftBeforeDurable, what));
                }
            }
            Message::Heartbeat(heartbeat)
            | Message::HeartbeatV2(heartbeat)
            | Message::HeartbeatV1(heartbeat) => {
                self.on_vector(durable, peer, &heartbeat.durable)?;
                let before = self.clocks.insert(peer, heartbeat.clock);
                if let Some(before) = before.filter(|before| *before >= heartbeat.clock) {
                    let what =
                        format!("{} told {peer} the clock {:?} after {before:?}", self.dc, heartbeat.clock);
                    return Err(Broken::new(FailureKind::HandedOutAgain, what));
                }
            }
            Message::HeldBack { durable: told }
            | Message::Compare { durable: told, .. }
            | Message::TooFarBehind { truncated: told }
            | Message::Acknowledged { durable: told, .. }
            | Message::Digests { durable: told, .. } => self.on_vector(durable, peer, told)?,
            Message::KnowsLog { of, by, seq, .. } if *by == self.dc => {
                self.on_vector(durable, peer, &VersionVector::from_iter([(*of, *seq)]))?;
            }
            Message::State(piece) => {
                if let Some(told) = piece.vector() {
                    self.on_vector(durable, peer, &told)?;
                }
            }
            Message::AskHolders { .. }
            | Message::Holders { .. }
            | Message::Sums { .. }
            | Message::AskRights { .. }
            | Message::AckWanted { .. }
            | Message::HeartbeatAcks { .. }
            | Message::Recovery(_)
            | Message::WitnessHears { .. }
            | Message::LongestLeases { .. }
            | Message::AccessRules(_)
            | Message::AskState { .. }
            | Message::AskLog { .. }
            | Message::WallClock { .. }
            | Message::KnowsDecisions { .. }
            | Message::Decisions { .. }
            | Message::Compacted(_)
            | Message::KnowsLog { .. } => {}
        }
        Ok(())
    }

    fn on_vector(&self, durable: &VersionVector, peer: DcId, told: &VersionVector) -> Result<(), Broken> {
        if durable.covers(told) {
            return Ok(());
        }
        let what = format!("{} told {peer} that it has {told}; durable are only {durable}", self.dc);
        Err(Broken::new(FailureKind::LeftBeforeDurable, what))
    }

    /// Checks an answer that a lease is open. A short lease may end while the disk is slow: then one sync
    /// makes both durable, and the notice of its end follows the answer.
    pub fn on_lease_opened(&self, disk: &Disk, lease: LeaseId) -> Result<(), Broken> {
        if disk.facts.opened.contains(&lease) {
            return Ok(());
        }
        let what = format!("{} answered that {lease:?} is open before it is durable", self.dc);
        Err(Broken::new(FailureKind::LeftBeforeDurable, what))
    }

    /// Checks an answer that a lease is closed.
    pub fn on_lease_closed(&self, disk: &Disk, lease: LeaseId) -> Result<(), Broken> {
        if !disk.facts.leases.contains_key(&lease) {
            return Ok(());
        }
        let what = format!("{} answered that {lease:?} is closed before that is durable", self.dc);
        Err(Broken::new(FailureKind::LeftBeforeDurable, what))
    }

    /// Checks a grant that is answered to a client for the first time, or again.
    pub fn on_granted(
        &mut self,
        disk: &Disk,
        asked: Asked<'_>,
        grant: &Grant,
        members: DcSet,
    ) -> Result<(), Broken> {
        let (dc, Asked { lease, key, wants }) = (self.dc, asked);
        let left = |what| Err(Broken::new(FailureKind::LeftBeforeDurable, what));
        if !disk.facts.applied.covers(&grant.snapshot) {
            let (snapshot, durable) = (&grant.snapshot, &disk.facts.applied);
            return left(format!("{dc} granted {} at {snapshot}; durable are only {durable}", grant.request));
        }
        self.check_locks(disk, &grant.request, wants, members)?;
        self.on_token(&grant.request, grant.token)?;
        self.held.insert(lease, grant.request, Told { key, wants: wants.to_vec() });
        Ok(())
    }

    /// Checks an answer, perhaps repeated, that a transaction is open and holds these locks, at least `until`
    /// then by the client's own count.
    pub fn on_txn_open(
        &mut self,
        disk: &Disk,
        asked: Asked<'_>,
        token: FencingToken,
        until: Moment,
        members: DcSet,
    ) -> Result<(), Broken> {
        let Asked { lease, key, wants } = asked;
        let whose = format!("transaction {key} of {lease}");
        self.check_locks(disk, &whose, wants, members)?;
        self.on_token(&whose, token)?;
        self.txns.insert((lease, key), OpenTxn { wants: wants.to_vec(), token, until });
        Ok(())
    }

    /// Checks that the parts that these locks need are durably here, as far as they are parts of `members`,
    /// and so are the ends of all leases that held them.
    fn check_locks(
        &mut self,
        disk: &Disk,
        whose: &dyn fmt::Display,
        wants: &[(LockName, Mode)],
        members: DcSet,
    ) -> Result<(), Broken> {
        let dc = self.dc;
        for (lock, mode) in wants {
            let needed =
                if *mode == Mode::Exclusive { members } else { DcSet::only(dc) }.intersection(members);
            let durably_here = disk.facts.ownership.of(lock).parts_of(dc, members);
            if !durably_here.is_superset(needed) {
                let what = format!(
                    "{dc} granted {lock} {mode} as {whose} with the parts {durably_here:?} durably there"
                );
                return Err(Broken::new(FailureKind::LeftBeforeDurable, what));
            }
        }
        self.ended.retain(|ended| ended.position > disk.durable());
        let conflicts = |ended: &&EndedHold| {
            ended.wants.iter().any(|(lock, mode)| {
                wants.iter().any(|(wanted, as_mode)| wanted == lock && as_mode.conflicts_with(*mode))
            })
        };
        if let Some(ended) = self.ended.iter().find(conflicts) {
            let what = format!("{dc} granted {whose} before the end of {:?} is durable", ended.lease);
            return Err(Broken::new(FailureKind::LeaseEndNotDurable, what));
        }
        Ok(())
    }

    /// Checks a token that leaves: it is above all that left before the restart.
    pub fn on_token(&mut self, whose: &dyn fmt::Display, token: FencingToken) -> Result<(), Broken> {
        if let Some(before) = self.token_before.filter(|before| *before >= token) {
            let what =
                format!("{} granted {whose} with {token:?}; before its restart it gave {before:?}", self.dc);
            return Err(Broken::new(FailureKind::HandedOutAgain, what));
        }
        self.token = self.token.max(Some(token));
        Ok(())
    }

    /// A call has arrived at the node: notes a release or a reclaim.
    pub fn on_call(&mut self, id: CallId, call: &Call) {
        match call {
            Call::Release { lease, target, .. } | Call::Cancel { lease, target, .. } => {
                self.held.remove_target(*lease, *target);
            }
            Call::Downgrade(downgrade) => {
                self.held.downgrade(downgrade.lease, downgrade.target, &downgrade.lock);
            }
            Call::Reclaim { lease, held, .. } => {
                let claim = |Reclaim { request, key, wants, .. }: &Reclaim| {
                    let (key, wants) = (key.unwrap_or_default(), wants.locks().to_vec());
                    (*request, Told { key, wants })
                };
                self.claims.insert(id, (*lease, held.iter().map(claim).collect()));
            }
            // Its locks may be gone as soon as the call has arrived.
            Call::Step(next_step) if next_step.step.then != Then::Continue => {
                self.txns.remove(&(next_step.lease, next_step.key));
            }
            _ => {}
        }
    }

    /// Returns true if a transaction that was answered as open still is, as far as is known here.
    pub fn is_open(&self, id: (LeaseId, IdempotencyKey)) -> bool {
        self.txns.contains_key(&id)
    }

    /// The node installs a state: open transactions are over.
    pub fn on_state_taken(&mut self) {
        self.txns.clear();
    }

    /// The node has answered a reclaim: its lease holds that, and nothing else.
    pub fn on_reclaimed(&mut self, call: CallId, kept: &[RequestId]) {
        let Some((lease, claimed)) = self.claims.remove(&call) else { return };
        drop(self.held.remove_lease(lease));
        for (request, told) in claimed.into_iter().filter(|(request, _)| kept.contains(request)) {
            self.held.insert(lease, request, told);
        }
    }

    /// The end of a lease is appended to the journal.
    pub fn on_lease_ended(&mut self, lease: LeaseId, position: Position, now: Moment) {
        let mut wants = Vec::new();
        let txns: Vec<_> =
            self.txns.range((lease, 0)..=(lease, IdempotencyKey::MAX)).map(|(id, _)| *id).collect();
        for txn in txns.iter().filter_map(|id| self.txns.remove(id)).filter(|txn| txn.until > now) {
            wants.extend(txn.wants);
        }
        wants.extend(self.held.remove_lease(lease).flat_map(|told| told.wants));
        if !wants.is_empty() {
            self.ended.push(EndedHold { lease, position, wants });
        }
    }

    /// The disk does not know which readings and tokens it handed out, and no other node does.
    pub fn forget_tokens(&mut self) {
        (self.token, self.token_before) = (None, None);
    }

    /// The disk does not know the clock readings that it announced.
    pub fn forget_clocks(&mut self) {
        self.clocks.clear();
    }

    /// A force release is appended to the journal.
    pub fn on_forced(&mut self, forced: &ForceReleased, position: Position) {
        let mut wants =
            self.held.remove(forced.lease, forced.request).map(|told| told.wants).unwrap_or_default();
        let of_lease = (forced.lease, 0)..=(forced.lease, IdempotencyKey::MAX);
        let its_txn = |_: &_, txn: &mut OpenTxn| txn.token == forced.token;
        wants.extend(self.txns.extract_if(of_lease, its_txn).flat_map(|(_, txn)| txn.wants));
        if !wants.is_empty() {
            self.ended.push(EndedHold { lease: forced.lease, position, wants });
        }
    }

    /// The node crashed; its memory is gone.
    pub fn on_crash(&mut self) {
        self.token_before = self.token;
        self.claims.clear();
        self.txns.clear();
        self.ended.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::holders::test_grant;
    use super::*;
    use crate::causal_log::Wants;
    use crate::replica::call::{OnDisconnect, Proof, SessionId};
    use crate::replica::{LeaseRecord, Record};
    use geolock_api::names::Secret;
    use std::time::Duration;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn lease() -> LeaseId {
        LeaseId::new(dc(0), 1)
    }

    fn opened() -> Record {
        Record::LeaseOpened(LeaseRecord {
            lease: lease(),
            secret: Secret::new([0; 16]),
            ttl: Duration::from_secs(1),
            on_disconnect: OnDisconnect::Keep,
        })
    }

    fn wants(mode: Mode) -> Vec<(LockName, Mode)> {
        vec![(LockName::try_from("a").expect("valid"), mode)]
    }

    fn kind(result: Result<(), Broken>) -> Option<FailureKind> {
        result.err().map(|broken| broken.kind)
    }

    fn sync(disk: &mut Disk) {
        assert!(disk.begin_sync());
        disk.end_sync();
    }

    #[test]
    fn a_vector_told_from_memory_is_caught() {
        let told = Message::HeldBack { durable: [(dc(0), 1)].into_iter().collect() };
        let result = Promises::new(dc(0)).on_send(&Disk::new(), dc(1), &told);
        assert_eq!(kind(result), Some(FailureKind::LeftBeforeDurable));
    }

    #[test]
    fn a_lease_answered_before_it_is_durable_is_caught() {
        let (promises, mut disk) = (Promises::new(dc(0)), Disk::new());
        disk.append(Position(1), opened()).expect("no gap");
        assert_eq!(kind(promises.on_lease_opened(&disk, lease())), Some(FailureKind::LeftBeforeDurable));
        sync(&mut disk);
        assert_eq!(promises.on_lease_opened(&disk, lease()), Ok(()));
        assert_eq!(kind(promises.on_lease_closed(&disk, lease())), Some(FailureKind::LeftBeforeDurable));
    }

    #[test]
    fn a_grant_over_an_end_that_is_not_durable_is_caught() {
        let (mut promises, mut disk) = (Promises::new(dc(0)), Disk::new());
        let members = DcSet::only(dc(0));
        let granted = |promises: &mut Promises, disk: &Disk, n, mode| {
            let asked = Asked { lease: lease(), key: n, wants: &wants(mode) };
            promises.on_granted(disk, asked, &test_grant(n, n, &[]), members)
        };
        assert_eq!(granted(&mut promises, &disk, 1, Mode::Shared), Ok(()));
        disk.append(Position(1), Record::LeaseEnded { lease: lease() }).expect("no gap");
        promises.on_lease_ended(lease(), Position(1), Moment::from_millis(0));
        assert_eq!(granted(&mut promises, &disk, 2, Mode::Shared), Ok(()), "two readers do not conflict");
        let early = granted(&mut promises, &disk, 3, Mode::Exclusive);
        assert_eq!(kind(early), Some(FailureKind::LeaseEndNotDurable));
        sync(&mut disk);
        assert_eq!(granted(&mut promises, &disk, 4, Mode::Exclusive), Ok(()));
    }

    #[test]
    fn a_lease_that_ends_without_having_said_what_it_held_may_hold_all_that_it_did() {
        let asked = Asked { lease: lease(), key: 1, wants: &wants(Mode::Exclusive) };
        let early = |claimed: bool, kept: &[RequestId]| {
            let (mut promises, mut disk, members) = (Promises::new(dc(0)), Disk::new(), DcSet::only(dc(0)));
            let grant = test_grant(1, 1, &[]);
            assert_eq!(promises.on_granted(&disk, asked, &grant, members), Ok(()));
            promises.on_crash();
            if claimed {
                let id = CallId { session: SessionId(1), tag: 1 };
                let wants = Wants::all(wants(Mode::Exclusive)).expect("one lock");
                let (token, label, request) = (grant.token, "".into(), grant.request);
                let held = vec![Reclaim { request, key: None, wants, token, label }];
                let proof = Proof::Attached;
                promises.on_call(id, &Call::Reclaim { lease: lease(), proof, held });
                promises.on_reclaimed(id, kept);
            }
            disk.append(Position(1), Record::LeaseEnded { lease: lease() }).expect("no gap");
            promises.on_lease_ended(lease(), Position(1), Moment::from_millis(0));
            kind(promises.on_granted(&disk, asked, &test_grant(2, 2, &[]), members))
        };
        assert_eq!(early(false, &[]), Some(FailureKind::LeaseEndNotDurable));
        assert_eq!(early(true, &[test_grant(1, 1, &[]).request]), Some(FailureKind::LeaseEndNotDurable));
        assert_eq!(early(true, &[]), None, "judged, and not kept");
    }

    #[test]
    fn a_transaction_over_an_end_that_is_not_durable_is_caught() {
        let (mut promises, mut disk) = (Promises::new(dc(0)), Disk::new());
        let (members, end) = (DcSet::only(dc(0)), Moment::from_millis(100));
        let open = |promises: &mut Promises, disk: &Disk, key| {
            let asked = Asked { lease: lease(), key, wants: &wants(Mode::Exclusive) };
            promises.on_txn_open(disk, asked, FencingToken(key), end, members)
        };
        assert_eq!(open(&mut promises, &disk, 1), Ok(()));
        disk.append(Position(1), Record::LeaseEnded { lease: lease() }).expect("no gap");
        promises.on_lease_ended(lease(), Position(1), Moment::from_millis(99));
        let early = open(&mut promises, &disk, 2);
        assert_eq!(kind(early), Some(FailureKind::LeaseEndNotDurable));
        sync(&mut disk);
        assert_eq!(open(&mut promises, &disk, 3), Ok(()));
        // Its locks may have been released before.
        disk.append(Position(2), Record::LeaseEnded { lease: lease() }).expect("no gap");
        promises.on_lease_ended(lease(), Position(2), end);
        assert_eq!(open(&mut promises, &disk, 4), Ok(()));
        promises.on_crash();
        assert_eq!(kind(open(&mut promises, &disk, 4)), Some(FailureKind::HandedOutAgain));
    }

    #[test]
    fn a_transaction_without_all_parts_is_caught() {
        let both: DcSet = [dc(0), dc(1)].into_iter().collect();
        let asked = Asked { lease: lease(), key: 1, wants: &wants(Mode::Exclusive) };
        let (mut promises, until) = (Promises::new(dc(0)), Moment::from_millis(1));
        let result = promises.on_txn_open(&Disk::new(), asked, FencingToken(1), until, both);
        assert_eq!(kind(result), Some(FailureKind::LeftBeforeDurable));
    }

    #[test]
    fn an_exclusive_grant_without_all_parts_is_caught() {
        let both: DcSet = [dc(0), dc(1)].into_iter().collect();
        let asked = Asked { lease: lease(), key: 1, wants: &wants(Mode::Exclusive) };
        let result = Promises::new(dc(0)).on_granted(&Disk::new(), asked, &test_grant(1, 1, &[]), both);
        assert_eq!(kind(result), Some(FailureKind::LeftBeforeDurable));
    }

    #[test]
    fn a_token_of_before_the_restart_is_caught() {
        let (mut promises, disk, members) = (Promises::new(dc(0)), Disk::new(), DcSet::only(dc(0)));
        let grant = |promises: &mut Promises, token| {
            let grant = test_grant(token, token, &[]);
            let asked = Asked { lease: lease(), key: token, wants: &wants(Mode::Shared) };
            promises.on_granted(&disk, asked, &grant, members)
        };
        assert_eq!(grant(&mut promises, 7), Ok(()));
        promises.on_crash();
        assert_eq!(kind(grant(&mut promises, 7)), Some(FailureKind::HandedOutAgain));
        assert_eq!(grant(&mut promises, 8), Ok(()));
    }
}
