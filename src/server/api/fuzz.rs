//! Bodies of fuzz targets, see `crate::testkit::fuzz`.

use bytes::Bytes;
use prost::Message;

use super::convert::{ProofBy, inspect, lease, lock, session, txn, watch};
use super::error::BorderError;
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
        2 => taken(message, watch::keys),
        3 => taken(message, watch::locks),
        4 => taken(message, inspect::list),
        5 => taken(message, |message| inspect::describe(&message)),
        6 => taken(message, |message| inspect::force_release(&message, &Principal::Anonymous)),
        _ => taken(message, txn::transact),
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
        Call::Hello(message) => is_taken(session::hello(&message)),
        Call::OpenLease(message) => is_taken(lease::open_lease(&message, by)),
        Call::AttachLease(message) => is_taken(lease::attach_lease(&message)),
        Call::KeepAlive(message) => is_taken(lease::keep_alive(&message, by)),
        Call::CloseLease(message) => is_taken(lease::close_lease(&message, by)),
        Call::Acquire(message) => is_taken(lock::acquire(message, by)),
        Call::Release(message) => is_taken(lock::release(&message, by)),
        Call::Amend(message) => is_taken(lock::amend(&message, by)),
        Call::Downgrade(message) => is_taken(lock::downgrade(&message, by)),
        Call::Cancel(message) => is_taken(lock::cancel(&message, by)),
        Call::Reclaim(message) => is_taken(lock::reclaim(&message, by)),
        Call::Begin(message) => is_taken(txn::begin(message, by)),
        Call::Step(message) => is_taken(txn::next_step(message, by)),
        Call::Read(message) => is_taken(txn::read(message)),
    }
}
