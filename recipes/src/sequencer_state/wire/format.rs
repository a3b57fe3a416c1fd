//! The messages as prost encodes them. Fields are only ever added.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Envelope {
    #[prost(fixed64, tag = "1")]
    pub boot: u64,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(message, repeated, tag = "3")]
    pub messages: Vec<OneMessage>,
    #[prost(message, optional, tag = "4")]
    pub beat: Option<Beat>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OneMessage {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Delegate(Delegate),
    #[prost(message, tag = "2")]
    Delegated(Delegated),
    #[prost(message, tag = "3")]
    Rejected(Rejected),
    #[prost(message, tag = "4")]
    Assemble(Assemble),
    #[prost(message, tag = "5")]
    Assembled(Answer),
    #[prost(message, tag = "6")]
    Endorse(Endorse),
    #[prost(message, tag = "7")]
    Endorsed(Answer),
    #[prost(message, tag = "8")]
    AskDispatch(Permission),
    #[prost(message, tag = "9")]
    Granted(Permission),
    #[prost(message, tag = "10")]
    Refused(Permission),
    #[prost(message, tag = "11")]
    Dispatched(Permission),
    #[prost(message, tag = "12")]
    DispatchedAck(Permission),
    #[prost(message, tag = "13")]
    Returned(Returned),
    #[prost(message, tag = "14")]
    Revoke(Permission),
    #[prost(message, tag = "15")]
    Revoked(Permission),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IntentId {
    #[prost(string, tag = "1")]
    pub sender: String,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Delegate {
    #[prost(uint64, tag = "1")]
    pub height: u64,
    #[prost(string, repeated, tag = "2")]
    pub skipped: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub intents: Vec<IntentId>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Delegated {
    #[prost(message, repeated, tag = "1")]
    pub accepted: Vec<IntentId>,
    #[prost(message, repeated, tag = "2")]
    pub dispatched: Vec<IntentId>,
    #[prost(message, repeated, tag = "3")]
    pub full: Vec<IntentId>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rejected {
    #[prost(enumeration = "Rejection", tag = "1")]
    pub why: i32,
    #[prost(uint64, tag = "2")]
    pub height: u64,
    #[prost(string, tag = "3")]
    pub who: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Rejection {
    Unspecified = 0,
    WrongRange = 1,
    NotCoordinator = 2,
    Flushing = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Assemble {
    #[prost(message, repeated, tag = "1")]
    pub intents: Vec<IntentId>,
    #[prost(uint64, tag = "2")]
    pub round: u64,
    #[prost(string, repeated, tag = "3")]
    pub spent: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub created: Vec<String>,
}

/// The answer to a question about an assembly.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Answer {
    #[prost(message, optional, tag = "1")]
    pub intent: Option<IntentId>,
    #[prost(uint64, tag = "2")]
    pub round: u64,
    #[prost(enumeration = "Verdict", tag = "3")]
    pub verdict: i32,
    #[prost(message, optional, tag = "4")]
    pub assembly: Option<Assembly>,
    #[prost(string, tag = "5")]
    pub why: String,
    #[prost(uint64, tag = "6")]
    pub height: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Verdict {
    Unspecified = 0,
    Done = 1,
    Parked = 2,
    Invalid = 3,
    NotYours = 4,
    Given = 5,
    WrongCoordinator = 6,
    Denied = 7,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Endorse {
    #[prost(uint64, tag = "1")]
    pub round: u64,
    #[prost(uint64, tag = "2")]
    pub height: u64,
    #[prost(uint64, optional, tag = "3")]
    pub epoch: Option<u64>,
    #[prost(string, repeated, tag = "4")]
    pub skipped: Vec<String>,
    #[prost(message, optional, tag = "5")]
    pub assembly: Option<Assembly>,
}

/// The question for a permission, the answers to it, and a notice.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Permission {
    #[prost(message, optional, tag = "1")]
    pub intent: Option<IntentId>,
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub hash: Bytes,
    #[prost(uint64, tag = "4")]
    pub nonce: u64,
    #[prost(enumeration = "Refusal", tag = "5")]
    pub refusal: i32,
    #[prost(uint64, tag = "6")]
    pub height: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Refusal {
    Unspecified = 0,
    NotYours = 1,
    Unknown = 2,
    OtherAssembly = 3,
    OlderEpoch = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Returned {
    #[prost(message, repeated, tag = "1")]
    pub intents: Vec<IntentId>,
    #[prost(string, optional, tag = "2")]
    pub why: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Assembly {
    #[prost(message, optional, tag = "1")]
    pub intent: Option<IntentId>,
    #[prost(string, repeated, tag = "2")]
    pub inputs: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub outputs: Vec<String>,
    #[prost(bytes = "bytes", tag = "4")]
    pub payload: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Transaction {
    #[prost(message, optional, tag = "1")]
    pub assembly: Option<Assembly>,
    #[prost(bytes = "bytes", tag = "2")]
    pub hash: Bytes,
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    #[prost(string, tag = "4")]
    pub signer: String,
    #[prost(uint64, tag = "5")]
    pub nonce: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Beat {
    #[prost(enumeration = "Phase", tag = "1")]
    pub phase: i32,
    #[prost(uint64, optional, tag = "2")]
    pub epoch: Option<u64>,
    #[prost(uint64, tag = "3")]
    pub height: u64,
    #[prost(message, repeated, tag = "4")]
    pub coordinates: Vec<IntentId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Phase {
    Unspecified = 0,
    Electing = 1,
    Active = 2,
    Flushing = 3,
    Closing = 4,
    Idle = 5,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Handover {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(message, repeated, tag = "2")]
    pub dispatched: Vec<HandedOver>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub last: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HandedOver {
    #[prost(message, optional, tag = "1")]
    pub transaction: Option<Transaction>,
    #[prost(uint64, tag = "2")]
    pub waited_ms: u64,
}
