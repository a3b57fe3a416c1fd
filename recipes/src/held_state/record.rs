//! The record of a holder, and its encoding in a register of the store.

use std::time::Duration;

use bytes::Bytes;
use geolock_client::FencingToken;
use prost::Message;

/// The value that a holder of a lock has written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldValue {
    /// The name of the holder, for people.
    pub who: String,
    /// The value.
    pub value: Bytes,
    /// The fencing token of the holder's lock. Tokens increase from holder to holder.
    pub token: FencingToken,
}

/// A value as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub held: HeldValue,
    /// The TTL of the holder's lease, if the record expires unless the holder writes it again.
    pub ttl: Option<Duration>,
}

/// The bytes of a record. Fields are only ever added.
#[derive(Clone, PartialEq, Message)]
struct RecordMessage {
    #[prost(uint64, tag = "1")]
    token: u64,
    #[prost(string, tag = "2")]
    who: String,
    #[prost(bytes = "bytes", tag = "3")]
    value: Bytes,
    /// 0: it does not expire.
    #[prost(uint64, tag = "4")]
    ttl_ms: u64,
}

impl Record {
    /// Returns the bytes for the register.
    pub fn encode(&self) -> Bytes {
        let HeldValue { who, value, token } = self.held.clone();
        let ttl = self.ttl.unwrap_or_default();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        RecordMessage { token: token.0, who, value, ttl_ms }.encode_to_vec().into()
    }

    /// Reads the bytes of a register; `None` if they are no record.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let RecordMessage { token, who, value, ttl_ms } = RecordMessage::decode(bytes).ok()?;
        let ttl = (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms));
        let held = HeldValue { who, value, token: FencingToken(token) };
        (token > 0).then_some(Record { held, ttl })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let held = HeldValue { who: "ann".into(), value: "v".into(), token: FencingToken(7) };
        for ttl in [None, Some(Duration::from_secs(10))] {
            let record = Record { held: held.clone(), ttl };
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        // Golden bytes: an older or newer program reads them, too.
        let record = Record { held, ttl: Some(Duration::from_millis(5)) };
        assert_eq!(record.encode()[..], [8, 7, 18, 3, b'a', b'n', b'n', 26, 1, b'v', 32, 5]);
    }

    #[test]
    fn bytes_that_are_no_record_are_none() {
        for bytes in [&b""[..], b"\xff", b"leader", &[18, 1, b'x'], &[8, 7, 18, 1, 0xff]] {
            assert_eq!(Record::decode(bytes), None, "{bytes:?}");
        }
    }
}
