//! From the format to the words of the protocol. Everything is checked: others have written it.

use std::time::Duration;

use bytes::Bytes;

use super::super::super::words::{
    Assembled, Assembly, AssemblyHash, Beat, Endorsement, Epoch, HandedOver, Handover, IntentId, MAX_NAME,
    MAX_REASON, MAX_STATE, Message, Node, Notice, Phase, Refusal, Rejection, Speculation, StateId,
    Transaction,
};
use super::super::Unreadable;
use super::super::format::{self, Kind, Verdict};

type Read<T> = Result<T, Unreadable>;

pub(in super::super) fn message(message: format::OneMessage) -> Read<Message> {
    let kind = message.kind.ok_or_else(|| Unreadable::new("a message of an unknown kind"))?;
    Ok(match kind {
        Kind::Delegate(format::Delegate { height, skipped, intents: all }) => {
            Message::Delegate { height, skipped: list(skipped, node)?, intents: list(all, intent)? }
        }
        Kind::Delegated(format::Delegated { accepted, dispatched, full }) => Message::Delegated {
            accepted: list(accepted, intent)?,
            dispatched: list(dispatched, intent)?,
            full: list(full, intent)?,
        },
        Kind::Rejected(of) => Message::Rejected(rejection(of)?),
        Kind::Assemble(format::Assemble { intents: all, round, spent, created }) => {
            let speculation = Speculation { spent: list(spent, state)?, created: list(created, state)? };
            Message::Assemble { intents: list(all, intent)?, round, speculation }
        }
        Kind::Assembled(of) => assembled(of)?,
        Kind::Endorse(format::Endorse { round, height, epoch, skipped, assembly: of }) => {
            let (epoch, skipped) = (epoch.map(Epoch), list(skipped, node)?);
            Message::Endorse { round, height, epoch, skipped, assembly: assembly(of)? }
        }
        Kind::Endorsed(of) => endorsed(of)?,
        Kind::AskDispatch(of) => {
            let Notice { intent, epoch, hash, .. } = notice(&of)?;
            Message::AskDispatch { intent, epoch, hash }
        }
        Kind::Granted(of) => {
            let Notice { intent, epoch, hash, .. } = notice(&of)?;
            Message::Granted { intent, epoch, hash }
        }
        Kind::Refused(of) => {
            let Notice { intent, epoch, hash, .. } = notice(&of)?;
            Message::Refused { intent, epoch, hash, why: refusal(of.refusal())? }
        }
        Kind::Dispatched(of) => Message::Dispatched(notice(&of)?),
        Kind::DispatchedAck(of) => Message::DispatchedAck(notice(&of)?),
        Kind::Revoke(of) => {
            let Notice { intent, epoch, hash, .. } = notice(&of)?;
            Message::Revoke { intent, epoch, hash }
        }
        Kind::Revoked(of) => {
            let Notice { intent, epoch, hash, .. } = notice(&of)?;
            Message::Revoked { intent, epoch, hash, height: of.height }
        }
        Kind::Returned(format::Returned { intents, why }) => {
            Message::Returned { intents: list(intents, intent)?, why: why.map(reason) }
        }
    })
}

fn list<F, T, L: FromIterator<T>>(of: Vec<F>, read: impl Fn(F) -> Read<T>) -> Read<L> {
    of.into_iter().map(read).collect()
}

fn name(text: String, most: usize) -> Read<String> {
    match text.len() {
        0 => Err(Unreadable::new("a name is empty")),
        len if len > most => Err(Unreadable(format!("a name has {len} bytes, and may have {most}"))),
        _ => Ok(text),
    }
}

/// Shortens a reason: it is kept with the intent.
fn reason(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REASON));
    text
}

fn node(text: String) -> Read<Node> {
    Ok(Node::new(&name(text, MAX_NAME)?))
}

fn state(text: String) -> Read<StateId> {
    Ok(StateId::new(&name(text, MAX_STATE)?))
}

fn intent(of: format::IntentId) -> Read<IntentId> {
    Ok(IntentId { sender: node(of.sender)?, name: name(of.name, MAX_NAME)?.into() })
}

fn some_intent(of: Option<format::IntentId>) -> Read<IntentId> {
    intent(of.ok_or_else(|| Unreadable::new("an intent is missing"))?)
}

fn hash(bytes: &Bytes) -> Read<AssemblyHash> {
    let hash = <[u8; 16]>::try_from(&bytes[..]).map_err(|_| Unreadable::new("a hash has 16 bytes"))?;
    Ok(AssemblyHash(u128::from_be_bytes(hash)))
}

fn rejection(of: format::Rejected) -> Read<Rejection> {
    Ok(match of.why() {
        format::Rejection::WrongRange => Rejection::WrongRange { height: of.height },
        format::Rejection::NotCoordinator => Rejection::NotCoordinator { who: node(of.who)? },
        format::Rejection::Flushing => Rejection::Flushing,
        format::Rejection::Unspecified => return Err(Unreadable::new("a rejection without a reason")),
    })
}

fn assembled(of: format::Answer) -> Read<Message> {
    let verdict = of.verdict();
    let (intent, round) = (some_intent(of.intent)?, of.round);
    let answer = match verdict {
        Verdict::Done => Assembled::Done(assembly(of.assembly)?),
        Verdict::Parked => Assembled::Parked,
        Verdict::Invalid => Assembled::Invalid(reason(of.why)),
        Verdict::NotYours => Assembled::NotYours,
        _ => return Err(Unreadable::new("an unknown answer about an assembly")),
    };
    Ok(Message::Assembled { intent, round, answer })
}

fn endorsed(of: format::Answer) -> Read<Message> {
    let verdict = of.verdict();
    let (intent, round) = (some_intent(of.intent)?, of.round);
    let answer = match verdict {
        Verdict::Given => Endorsement::Given,
        Verdict::WrongCoordinator => Endorsement::WrongCoordinator { height: of.height },
        Verdict::Denied => Endorsement::Denied(reason(of.why)),
        _ => return Err(Unreadable::new("an unknown answer of an endorser")),
    };
    Ok(Message::Endorsed { intent, round, answer })
}

/// Reads a permission as a notice; the nonce is 0 if it has none.
fn notice(of: &format::Permission) -> Read<Notice> {
    let intent = some_intent(of.intent.clone())?;
    Ok(Notice { intent, epoch: Epoch(of.epoch), hash: hash(&of.hash)?, nonce: of.nonce })
}

fn refusal(of: format::Refusal) -> Read<Refusal> {
    Ok(match of {
        format::Refusal::NotYours => Refusal::NotYours,
        format::Refusal::Unknown => Refusal::Unknown,
        format::Refusal::OtherAssembly => Refusal::OtherAssembly,
        format::Refusal::OlderEpoch => Refusal::OlderEpoch,
        format::Refusal::Unspecified => return Err(Unreadable::new("a refusal without a reason")),
    })
}

fn assembly(of: Option<format::Assembly>) -> Read<Assembly> {
    let of = of.ok_or_else(|| Unreadable::new("an assembly is missing"))?;
    let (inputs, outputs) = (list(of.inputs, state)?, list(of.outputs, state)?);
    Ok(Assembly { intent: some_intent(of.intent)?, inputs, outputs, payload: of.payload })
}

pub(in super::super) fn transaction(of: format::Transaction) -> Read<Transaction> {
    let (assembly, hash) = (assembly(of.assembly)?, hash(&of.hash)?);
    Ok(Transaction { assembly, hash, epoch: Epoch(of.epoch), signer: node(of.signer)?, nonce: of.nonce })
}

pub(in super::super) fn beat(of: format::Beat) -> Read<Beat> {
    let phase = match of.phase() {
        format::Phase::Electing => Phase::Electing,
        format::Phase::Active => Phase::Active,
        format::Phase::Flushing => Phase::Flushing,
        format::Phase::Closing => Phase::Closing,
        format::Phase::Idle => Phase::Idle,
        format::Phase::Unspecified => return Err(Unreadable::new("a heartbeat without a phase")),
    };
    let coordinates = list(of.coordinates, intent)?;
    Ok(Beat { phase, epoch: of.epoch.map(Epoch), height: of.height, coordinates })
}

pub(in super::super) fn handover(of: format::Handover) -> Read<Handover> {
    let handed_over = |it: format::HandedOver| {
        let of = it.transaction.ok_or_else(|| Unreadable::new("a transaction is missing"))?;
        let waited = Duration::from_millis(it.waited_ms);
        Ok(HandedOver { transaction: transaction(of)?, waited })
    };
    let last = of.last.as_ref().map(hash).transpose()?;
    Ok(Handover { epoch: Epoch(of.epoch), dispatched: list(of.dispatched, handed_over)?, last })
}
