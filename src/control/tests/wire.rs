//! Bytes that members exchange and keep on disk: they stay readable.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Write};

use super::super::message::{Answer, Appended, Candidacy, Envelope, LeaderRequest, MemberStep, Request};
use super::super::wire::{WireEntry, WireLogId, WireMembers, WirePayload, WireSnapshot, WireVote};
use super::{dc, member};
use crate::base::wire;
use crate::control::{Frame, FrameKind, Refusal, ServerId};

fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, expected: &str) {
    let bytes = wire::encode("golden", value).expect("it is small");
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes everything");
        hex
    });
    assert_eq!(hex, expected, "{value:?}");
    assert_eq!(&wire::decode::<T>("golden", &bytes).expect("it reads"), value);
}

fn entry(index: u64, payload: WirePayload) -> WireEntry {
    WireEntry { id: WireLogId { term: 2, index }, payload }
}

fn member_list() -> WireMembers {
    WireMembers {
        voters: vec![BTreeSet::from([member(0), member(1)])],
        servers: BTreeMap::from([(member(0), ServerId::from_raw(5)), (member(1), ServerId::from_raw(300))]),
    }
}

const VOTE: WireVote = WireVote {
    term: 2,
    leader: crate::control::MemberId { dc: match geolock_api::names::DcId::new(1) { Some(dc) => dc, None => panic!() }, generation: 3 },
    committed: true,
};

#[test]
fn entries_and_votes_on_disk() {
    golden(&VOTE, "02010301");
    golden(&entry(7, WirePayload::Blank), "020700");
    golden(&entry(7, WirePayload::Command(Bytes::from_static(b"ab"))), "020701026162");
    golden(&entry(7, WirePayload::Members(member_list())), "");
    let snapshot = WireSnapshot {
        last: Some(WireLogId { term: 2, index: 9 }),
        members_at: None,
        members: WireMembers { voters: Vec::new(), servers: BTreeMap::new() },
        decided: 4,
        state: Bytes::from_static(b"s"),
    };
    golden(&snapshot, "");
}

#[test]
fn requests_and_answers() {
    let envelope = |request| Envelope {
        from: member(1),
        from_server: ServerId::from_raw(1),
        to: member(2),
        to_server: Some(ServerId::from_raw(2)),
        request,
    };
    let entries = vec![entry(7, WirePayload::Blank)];
    golden(&envelope(Request::Append { vote: VOTE, prev: None, entries, committed: None }), "");
    let candidacy = Candidacy { vote: VOTE, last: None, transfer: true };
    golden(&envelope(Request::Vote(candidacy)), "");
    golden(&envelope(Request::PreVote(candidacy)), "");
    golden(&envelope(Request::TransferLeader { vote: VOTE, last: None }), "");
    golden(&envelope(Request::Identify { founders: BTreeSet::from([member(1)]) }), "");
    golden(&envelope(Request::Lead(LeaderRequest::Propose(Bytes::from_static(b"c")))), "");
    golden(&envelope(Request::Lead(LeaderRequest::ReadIndex)), "");
    golden(&envelope(Request::Lead(LeaderRequest::Change(MemberStep::Promote(member(2))))), "");
    golden(&Answer::Appended(Appended::Conflict), "");
    golden(&Answer::Vote { vote: VOTE, granted: true, last: None }, "");
    golden(&Answer::Decided(300), "");
    golden(&Answer::Refused(Refusal::Busy), "");
    golden(&Answer::Refused(Refusal::OtherServer(member(2))), "");
}

#[test]
fn frames() {
    let frame = |kind| Frame { id: 300, from: dc(1), to: dc(2), hops: 1, kind };
    golden(&frame(FrameKind::Request(Bytes::from_static(b"r"))), "");
    golden(&frame(FrameKind::Answer(Bytes::from_static(b"a"))), "");
    golden(&frame(FrameKind::NoRoute), "");
    golden(&frame(FrameKind::Busy), "");
}
