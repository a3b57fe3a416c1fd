//! The bytes of messages between survivors of a lost majority: they never change.

use super::{dc, golden};
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::membership::{Ballot, Index, Lineage, RecoveryPlan};
use crate::replica::{Message, RecoveryMessage};
use geolock_api::names::DcSet;

#[test]
fn bytes_of_recoveries() {
    let ballot = Ballot { round: 300, by: dc(1) };
    let plan = RecoveryPlan { lineage: Lineage(1), survivors: DcSet::only(dc(0)), lost: DcSet::only(dc(2)) };
    let vector = VersionVector::from_iter([(dc(1), 2)]);
    let recovery = |message| Message::Recovery(Box::new(message));
    golden(&recovery(RecoveryMessage::Ask { ballot, plan }), "1700fb2c0101010104");
    golden(&recovery(RecoveryMessage::Promised { ballot, known: Index(9), vector }), "1701fb2c010109020002");
    let refused = RecoveryMessage::Refused { ballot, promised: Some(ballot), why: "a".into() };
    golden(&recovery(refused), "1702fb2c010101fb2c01010161");
    golden(&recovery(RecoveryMessage::GivenUp { ballot }), "1703fb2c0101");
}

#[test]
fn bytes_of_witnesses() {
    let hears = vec![(dc(1), Timestamp::from_raw(5), 300)];
    golden(&Message::WitnessHears { hears }, "18010105fb2c01");
}
