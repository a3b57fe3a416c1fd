//! Bytes of all messages, and bytes that are none.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::words::{
    Assembled, Assembly, AssemblyHash, Endorsement, Epoch, HandedOver, IntentId, MAX_NAME, Node, Notice,
    Phase, Refusal, Rejection, Speculation, StateId,
};
use super::*;

fn intent() -> IntentId {
    IntentId::new(&Node::new("a"), "pay")
}

fn assembly() -> Assembly {
    let (inputs, outputs) = (vec![StateId::new("i")], vec![StateId::new("o"), StateId::new("p")]);
    Assembly { intent: intent(), inputs, outputs, payload: Bytes::from_static(b"signed") }
}

fn every_message() -> Vec<Message> {
    let (intent, hash, epoch, round) = (intent(), assembly().hash(), Epoch(7), 3);
    let notice = Notice { intent: intent.clone(), epoch, hash, nonce: 9 };
    let skipped = BTreeSet::from([Node::new("b")]);
    let states = BTreeSet::from([StateId::new("s"), StateId::new("t")]);
    let speculation = Speculation { spent: states.clone(), created: states };
    let mut all = vec![
        Message::Delegate { height: 4, skipped: skipped.clone(), intents: vec![intent.clone()] },
        Message::Delegated {
            accepted: vec![intent.clone()],
            dispatched: Vec::new(),
            full: vec![intent.clone()],
        },
        Message::Assemble { intents: vec![intent.clone()], round, speculation },
        Message::Endorse { round, height: 5, epoch: None, skipped: skipped.clone(), assembly: assembly() },
        Message::Endorse { round, height: 5, epoch: Some(Epoch::SOLO), skipped, assembly: assembly() },
        Message::AskDispatch { intent: intent.clone(), epoch, hash },
        Message::Granted { intent: intent.clone(), epoch, hash },
        Message::Revoke { intent: intent.clone(), epoch, hash },
        Message::Revoked { intent: intent.clone(), epoch, hash, height: 3 },
        Message::Dispatched(notice.clone()),
        Message::DispatchedAck(notice),
        Message::Returned { intents: vec![intent.clone()], why: None },
        Message::Returned { intents: vec![intent.clone()], why: Some(String::new()) },
    ];
    let who = Node::new("c");
    let rejections =
        [Rejection::WrongRange { height: 1 }, Rejection::NotCoordinator { who }, Rejection::Flushing];
    all.extend(rejections.map(Message::Rejected));
    let no = "no".to_owned();
    let answers =
        [Assembled::Done(assembly()), Assembled::Parked, Assembled::Invalid(no.clone()), Assembled::NotYours];
    all.extend(answers.map(|answer| Message::Assembled { intent: intent.clone(), round, answer }));
    let answers = [Endorsement::Given, Endorsement::WrongCoordinator { height: 2 }, Endorsement::Denied(no)];
    all.extend(answers.map(|answer| Message::Endorsed { intent: intent.clone(), round, answer }));
    let refusals = [Refusal::NotYours, Refusal::Unknown, Refusal::OtherAssembly, Refusal::OlderEpoch];
    all.extend(refusals.map(|why| Message::Refused { intent: intent.clone(), epoch, hash, why }));
    all
}

fn beat(phase: Phase) -> Beat {
    Beat { phase, epoch: Some(Epoch(0)), height: 8, coordinates: BTreeSet::from([intent()]) }
}

fn handover() -> Handover {
    let hash = assembly().hash();
    let assembly = Assembly { payload: Bytes::new(), ..assembly() };
    let transaction = Transaction { assembly, hash, epoch: Epoch(2), signer: Node::new("b"), nonce: 1 };
    let dispatched = vec![HandedOver { transaction, waited: Duration::from_millis(1_500) }];
    Handover { epoch: Epoch(2), dispatched, last: Some(AssemblyHash(1)) }
}

#[test]
fn everything_is_read_as_it_was_written() {
    let messages = every_message();
    let len: usize = messages.iter().map(message_len).sum();
    let envelope = Envelope { boot: u64::MAX, number: 1, content: Content::Messages(messages) };
    let bytes = envelope.encode();
    assert!(bytes.len() <= len + 32, "{} bytes, counted as {len}", bytes.len());
    assert_eq!(Envelope::decode(&bytes), Ok(envelope));
    for phase in [Phase::Electing, Phase::Active, Phase::Flushing, Phase::Closing, Phase::Idle] {
        let envelope = Envelope { boot: 0, number: 2, content: Content::Beat(beat(phase)) };
        assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
    }
    assert_eq!(Handover::decode(&handover().encode()), Ok(handover()));
}

#[test]
fn a_handover_leaves_payloads_out_and_a_transaction_keeps_its_own() {
    let mut full = handover();
    full.dispatched[0].transaction.assembly.payload = Bytes::from_static(b"signed");
    assert_eq!(Handover::decode(&full.encode()), Ok(handover()));
    let transaction = full.dispatched.remove(0).transaction;
    assert_eq!(Transaction::decode(&transaction.encode()), Some(transaction));
}

/// Every prefix of good bytes, and good bytes with one of them changed: never a panic.
#[test]
fn bytes_that_are_cut_off_or_changed_are_an_error_or_another_envelope() {
    let envelope = Envelope { boot: 1, number: 1, content: Content::Messages(every_message()) };
    let handover = handover().encode();
    for bytes in [envelope.encode(), handover] {
        for end in 0..bytes.len() {
            let _ = (Envelope::decode(&bytes[..end]), Handover::decode(&bytes[..end]));
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.to_vec();
                changed[end] ^= change;
                let _ = (Envelope::decode(&changed), Handover::decode(&changed));
            }
        }
    }
    assert!(Envelope::decode(b"").is_err(), "it has no number");
    assert!(Envelope::decode(b"not a message").is_err());
}

#[test]
fn names_that_are_too_long_are_an_error() {
    let long = IntentId::new(&Node::new("a"), &"x".repeat(MAX_NAME + 1));
    let content = Content::Messages(vec![Message::Returned { intents: vec![long], why: None }]);
    let error = Envelope::decode(&Envelope { boot: 1, number: 1, content }.encode());
    assert_eq!(error, Err(Unreadable("a name has 101 bytes, and may have 100".to_owned())));
}
