//! Bodies of fuzz targets, see `crate::testkit::fuzz`.

use bytes::Bytes;
use prost::Message;

use super::error::BorderError;
use super::parse::{self, ProofBy};
use super::{parse_store, parse_watch};
use crate::access::Principal;
use geolock_api::proto::{self, client_message::Call};

/// Parses a message of a client: one of a stream, or one of the unary calls. The first byte selects the kind.
pub(crate) fn message(data: &[u8]) -> bool {
    let Some((kind, message)) = data.split_first() else { return false };
    let message = Bytes::copy_from_slice(message);
    match kind % 8 {
        0 | 1 => {
            let by = if kind % 8 == 0 { ProofBy::SecretOrStream } else { ProofBy::Secret };
            proto::ClientMessage::decode(message).is_ok_and(|message| call(message, by))
        }
        2 => taken(message, parse_watch::keys),
        3 => taken(message, parse_watch::locks),
        4 => taken(message, parse::list),
        5 => taken(message, |message| parse::describe(&message)),
        6 => taken(message, |message| parse::force_release(&message, &Principal::Anonymous)),
        _ => taken(message, parse_store::transact),
    }
}

fn taken<M: Message + Default, T>(bytes: Bytes, parse: impl Fn(M) -> Result<T, BorderError>) -> bool {
    M::decode(bytes).is_ok_and(|message| is_taken(parse(message)))
}

fn is_taken<T>(parsed: Result<T, BorderError>) -> bool {
    match parsed {
        Ok(_) => true,
        Err(error) => {
            // The text that the client gets.
            let status = tonic::Status::from(error);
            assert!(!status.message().is_empty(), "every refusal says why");
            false
        }
    }
}

fn call(message: proto::ClientMessage, by: ProofBy) -> bool {
    let Some(call) = message.call else { return false };
    match call {
        Call::Hello(message) => is_taken(parse::hello(&message)),
        Call::OpenLease(message) => is_taken(parse::open_lease(&message, by)),
        Call::AttachLease(message) => is_taken(parse::attach_lease(&message)),
        Call::KeepAlive(message) => is_taken(parse::keep_alive(&message, by)),
        Call::CloseLease(message) => is_taken(parse::close_lease(&message, by)),
        Call::Acquire(message) => is_taken(parse::acquire(message, by)),
        Call::Release(message) => is_taken(parse::release(&message, by)),
        Call::Cancel(message) => is_taken(parse::cancel(&message, by)),
        Call::Reclaim(message) => is_taken(parse::reclaim(&message, by)),
        Call::Begin(message) => is_taken(parse_store::begin(message, by)),
        Call::Step(message) => is_taken(parse_store::next_step(message, by)),
        Call::Read(message) => is_taken(parse_store::read(message)),
    }
}
