//! From the words of the protocol to their format.

use bytes::Bytes;

use super::super::super::words::{
    Assembled, Assembly, AssemblyHash, Beat, Endorsement, Epoch, Handover, IntentId, Message, Node, Notice,
    Phase, Refusal, Rejection, StateId, Transaction,
};
use super::super::format::{self, Kind, Verdict};

pub(in super::super) fn message(message: &Message) -> format::OneMessage {
    let kind = match message {
        Message::Delegate { height, skipped, intents } => Kind::Delegate(format::Delegate {
            height: *height,
            skipped: nodes(skipped),
            intents: intents.iter().map(intent).collect(),
        }),
        Message::Delegated { accepted, dispatched, full } => {
            let [accepted, dispatched, full] =
                [accepted, dispatched, full].map(|list| list.iter().map(intent).collect());
            Kind::Delegated(format::Delegated { accepted, dispatched, full })
        }
        Message::Rejected(why) => Kind::Rejected(rejected(why)),
        Message::Assemble { intents, round, speculation } => Kind::Assemble(format::Assemble {
            intents: intents.iter().map(intent).collect(),
            round: *round,
            spent: states(&speculation.spent),
            created: states(&speculation.created),
        }),
        Message::Assembled { intent, round, answer } => Kind::Assembled(assembled(intent, *round, answer)),
        Message::Endorse { round, height, epoch, skipped, assembly: of } => Kind::Endorse(format::Endorse {
            round: *round,
            height: *height,
            epoch: epoch.map(|Epoch(epoch)| epoch),
            skipped: nodes(skipped),
            assembly: Some(assembly(of)),
        }),
        Message::Endorsed { intent, round, answer } => Kind::Endorsed(endorsed(intent, *round, answer)),
        Message::AskDispatch { intent, epoch, hash } => Kind::AskDispatch(permission(intent, *epoch, *hash)),
        Message::Granted { intent, epoch, hash } => Kind::Granted(permission(intent, *epoch, *hash)),
        Message::Refused { intent, epoch, hash, why } => {
            let refusal = refusal(*why).into();
            Kind::Refused(format::Permission { refusal, ..permission(intent, *epoch, *hash) })
        }
        Message::Dispatched(of) => Kind::Dispatched(notice(of)),
        Message::DispatchedAck(of) => Kind::DispatchedAck(notice(of)),
        Message::Revoke { intent, epoch, hash } => Kind::Revoke(permission(intent, *epoch, *hash)),
        Message::Revoked { intent, epoch, hash, height } => {
            Kind::Revoked(format::Permission { height: *height, ..permission(intent, *epoch, *hash) })
        }
        Message::Returned { intents, why } => Kind::Returned(format::Returned {
            intents: intents.iter().map(intent).collect(),
            why: why.clone(),
        }),
    };
    format::OneMessage { kind: Some(kind) }
}

fn intent(intent: &IntentId) -> format::IntentId {
    format::IntentId { sender: intent.sender.to_string(), name: intent.name.to_string() }
}

fn nodes<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<String> {
    nodes.into_iter().map(Node::to_string).collect()
}

fn states<'a>(states: impl IntoIterator<Item = &'a StateId>) -> Vec<String> {
    states.into_iter().map(StateId::to_string).collect()
}

fn hash(AssemblyHash(hash): AssemblyHash) -> Bytes {
    Bytes::copy_from_slice(&hash.to_be_bytes())
}

fn rejected(why: &Rejection) -> format::Rejected {
    let (why, height, who) = match why {
        Rejection::WrongRange { height } => (format::Rejection::WrongRange, *height, String::new()),
        Rejection::NotCoordinator { who } => (format::Rejection::NotCoordinator, 0, who.to_string()),
        Rejection::Flushing => (format::Rejection::Flushing, 0, String::new()),
    };
    format::Rejected { why: why.into(), height, who }
}

fn answer(of: &IntentId, round: u64, verdict: Verdict) -> format::Answer {
    let intent = Some(intent(of));
    format::Answer { intent, round, verdict: verdict.into(), ..format::Answer::default() }
}

fn assembled(intent: &IntentId, round: u64, of: &Assembled) -> format::Answer {
    match of {
        Assembled::Done(done) => {
            format::Answer { assembly: Some(assembly(done)), ..answer(intent, round, Verdict::Done) }
        }
        Assembled::Parked => answer(intent, round, Verdict::Parked),
        Assembled::Invalid(why) => {
            format::Answer { why: why.clone(), ..answer(intent, round, Verdict::Invalid) }
        }
        Assembled::NotYours => answer(intent, round, Verdict::NotYours),
    }
}

fn endorsed(intent: &IntentId, round: u64, of: &Endorsement) -> format::Answer {
    match of {
        Endorsement::Given => answer(intent, round, Verdict::Given),
        Endorsement::WrongCoordinator { height } => {
            format::Answer { height: *height, ..answer(intent, round, Verdict::WrongCoordinator) }
        }
        Endorsement::Denied(why) => {
            format::Answer { why: why.clone(), ..answer(intent, round, Verdict::Denied) }
        }
    }
}

fn permission(of: &IntentId, Epoch(epoch): Epoch, of_assembly: AssemblyHash) -> format::Permission {
    let (intent, hash) = (Some(intent(of)), hash(of_assembly));
    format::Permission { intent, epoch, hash, ..format::Permission::default() }
}

fn refusal(why: Refusal) -> format::Refusal {
    match why {
        Refusal::NotYours => format::Refusal::NotYours,
        Refusal::Unknown => format::Refusal::Unknown,
        Refusal::OtherAssembly => format::Refusal::OtherAssembly,
        Refusal::OlderEpoch => format::Refusal::OlderEpoch,
    }
}

fn notice(Notice { intent, epoch, hash, nonce }: &Notice) -> format::Permission {
    format::Permission { nonce: *nonce, ..permission(intent, *epoch, *hash) }
}

fn assembly(of: &Assembly) -> format::Assembly {
    format::Assembly {
        intent: Some(intent(&of.intent)),
        inputs: states(&of.inputs),
        outputs: states(&of.outputs),
        payload: of.payload.clone(),
    }
}

pub(in super::super) fn transaction(of: &Transaction) -> format::Transaction {
    format::Transaction {
        assembly: Some(assembly(&of.assembly)),
        hash: hash(of.hash),
        epoch: of.epoch.0,
        signer: of.signer.to_string(),
        nonce: of.nonce,
    }
}

pub(in super::super) fn beat(of: &Beat) -> format::Beat {
    let phase = match of.phase {
        Phase::Electing => format::Phase::Electing,
        Phase::Active => format::Phase::Active,
        Phase::Flushing => format::Phase::Flushing,
        Phase::Closing => format::Phase::Closing,
        Phase::Idle => format::Phase::Idle,
    };
    format::Beat {
        phase: phase.into(),
        epoch: of.epoch.map(|Epoch(epoch)| epoch),
        height: of.height,
        coordinates: of.coordinates.iter().map(intent).collect(),
    }
}

pub(in super::super) fn handover(of: &Handover) -> format::Handover {
    let handed_over = |it: &super::super::super::words::HandedOver| {
        let mut transaction = transaction(&it.transaction);
        if let Some(assembly) = &mut transaction.assembly {
            assembly.payload = Bytes::new();
        }
        let waited_ms = u64::try_from(it.waited.as_millis()).unwrap_or(u64::MAX);
        format::HandedOver { transaction: Some(transaction), waited_ms }
    };
    let dispatched = of.dispatched.iter().map(handed_over).collect();
    format::Handover { epoch: of.epoch.0, dispatched, last: of.last.map(hash) }
}
