//! The record of a critical section, and its encoding in a register of the store.

use bytes::Bytes;
use prost::Message;

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs, or its runner died.
    Started,
    /// It ended without an error.
    Done,
    /// It ended with this error.
    Failed {
        /// The error, shortened.
        error: String,
    },
}

/// The latest run of a critical section, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the run: the fencing token of its lock. Numbers increase from run to run.
    pub run: u64,
    /// The state of the run.
    pub state: RunState,
    /// The instance that ran it, for people.
    pub who: String,
    /// Runs that failed since the last one that did not, this one included.
    pub attempts: u32,
    /// When the record was written, in ms since the Unix epoch, by the clock of the instance. For people:
    /// nothing depends on it.
    pub at_ms: u64,
}

/// The content of the store about a critical section, at one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// `None`: there is none, it is too old, or it cannot be read.
    pub record: Option<Record>,
    /// The runner has shown that it lives within the watermark.
    pub live: bool,
    /// The back-off after a failure lasts.
    pub pause: bool,
}

impl Content {
    /// Returns true if its latest run is done.
    pub fn is_done(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state == RunState::Done)
    }
}

/// Longest error that a record keeps, in bytes.
const MAX_ERROR: usize = 4_096;
/// Longest name of an instance that a record keeps, in bytes.
const MAX_WHO: usize = 256;

/// The bytes of a record. Fields are only ever added.
#[derive(Clone, PartialEq, Message)]
struct RecordMessage {
    #[prost(enumeration = "StateMessage", tag = "1")]
    state: i32,
    #[prost(uint64, tag = "2")]
    run: u64,
    #[prost(string, tag = "3")]
    who: String,
    #[prost(uint32, tag = "4")]
    attempts: u32,
    #[prost(string, tag = "5")]
    error: String,
    #[prost(uint64, tag = "6")]
    at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum StateMessage {
    Unspecified = 0,
    Started = 1,
    Done = 2,
    Failed = 3,
}

impl Record {
    /// Returns the bytes for the register.
    pub(crate) fn encode(&self) -> Bytes {
        let (state, error) = match &self.state {
            RunState::Started => (StateMessage::Started, ""),
            RunState::Done => (StateMessage::Done, ""),
            RunState::Failed { error } => (StateMessage::Failed, &**error),
        };
        let message = RecordMessage {
            state: state.into(),
            run: self.run,
            who: shortened(&self.who, MAX_WHO),
            attempts: self.attempts,
            error: shortened(error, MAX_ERROR),
            at_ms: self.at_ms,
        };
        message.encode_to_vec().into()
    }

    /// Reads the bytes of a register; `None` if they are no record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Record> {
        let message = RecordMessage::decode(bytes).ok()?;
        let state = match message.state() {
            StateMessage::Unspecified => return None,
            StateMessage::Started => RunState::Started,
            StateMessage::Done => RunState::Done,
            StateMessage::Failed => RunState::Failed { error: message.error },
        };
        let RecordMessage { run, who, attempts, at_ms, .. } = message;
        (run > 0).then_some(Record { run, state, who, attempts, at_ms })
    }

    /// Returns true if this one tells more than `other`: a later run, or the end of the same one.
    pub(crate) fn is_later_than(&self, other: &Record) -> bool {
        let over = |record: &Record| record.state != RunState::Started;
        (self.run, over(self)) > (other.run, over(other))
    }
}

fn shortened(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: RunState) -> Record {
        Record { run: 7, state, who: "ann".to_owned(), attempts: 2, at_ms: 5 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let failed = RunState::Failed { error: "no disk".to_owned() };
        for state in [RunState::Started, RunState::Done, failed] {
            let record = record(state);
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        // Golden bytes: an older or newer program reads them, too.
        assert_eq!(record(RunState::Done).encode()[..], [8, 2, 16, 7, 26, 3, b'a', b'n', b'n', 32, 2, 48, 5]);
    }

    #[test]
    fn what_is_no_record_is_none() {
        for bytes in [&b""[..], b"\xff", b"done", &[8, 9, 16, 7], &[8, 2]] {
            assert_eq!(Record::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let error = "ä".repeat(5_000);
        let written = Record { who: "x".repeat(1_000), ..record(RunState::Failed { error }) }.encode();
        let read = Record::decode(&written).expect("it is a record");
        assert_eq!((read.who.len(), written.len() < 5_000), (256, true));
    }
}
