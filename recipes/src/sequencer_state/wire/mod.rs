//! The bytes of messages, heartbeats and handovers, and of transactions in a database.
//!
//! All that is sent to one receiver at a time is one [`Envelope`]. Bytes of others are not trusted: a name
//! that is too long, or an enumeration that is not known, is an error, and nothing is allocated that is not
//! there.

mod convert;
mod format;

use bytes::Bytes;
use prost::Message as _;

use super::words::{Beat, Handover, Message, Transaction};
use convert::{from_format, to_format};

/// Largest content of a register, in bytes: below the largest change that a server takes.
pub(crate) const MAX_ENVELOPE: usize = 1_000_000;

/// Messages from one life of a node to another node, or a heartbeat of it to all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Envelope {
    /// The life of the sender.
    pub boot: u64,
    /// The number of the envelope among those of this life under its key, from 1: a gap is a loss.
    pub number: u64,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Messages(Vec<Message>),
    Beat(Beat),
}

/// Bytes that have something else in them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(String);

impl Unreadable {
    fn new(what: &str) -> Unreadable {
        Unreadable(what.to_owned())
    }
}

impl Envelope {
    pub fn encode(&self) -> Bytes {
        let (messages, beat) = match &self.content {
            Content::Messages(messages) => (messages.iter().map(to_format::message).collect(), None),
            Content::Beat(beat) => (Vec::new(), Some(to_format::beat(beat))),
        };
        let envelope = format::Envelope { boot: self.boot, number: self.number, messages, beat };
        envelope.encode_to_vec().into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Envelope, Unreadable> {
        let format::Envelope { boot, number, messages, beat } = decode(bytes)?;
        let content = match beat {
            Some(beat) => Content::Beat(from_format::beat(beat)?),
            None => {
                Content::Messages(messages.into_iter().map(from_format::message).collect::<Result<_, _>>()?)
            }
        };
        match number {
            0 => Err(Unreadable::new("an envelope has a number above 0")),
            _ => Ok(Envelope { boot, number, content }),
        }
    }
}

/// Returns the bytes of a message that count against [`MAX_ENVELOPE`].
pub(crate) fn message_len(message: &Message) -> usize {
    /// Longest tag and length of a message in an envelope.
    const AROUND: usize = 8;
    to_format::message(message).encoded_len() + AROUND
}

impl Handover {
    /// Returns the bytes for the register. Payloads are left out: the next coordinator does not need them.
    pub(crate) fn encode(&self) -> Bytes {
        to_format::handover(self).encode_to_vec().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Handover, Unreadable> {
        from_format::handover(decode(bytes)?)
    }
}

impl Transaction {
    /// Returns the bytes of the transaction, which [`Transaction::decode`] reads, also in later versions.
    pub fn encode(&self) -> Bytes {
        to_format::transaction(self).encode_to_vec().into()
    }

    /// Reads the bytes of a transaction; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Transaction> {
        from_format::transaction(decode(bytes).ok()?).ok()
    }
}

fn decode<M: prost::Message + Default>(bytes: &[u8]) -> Result<M, Unreadable> {
    M::decode(bytes).map_err(|error| Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests;
