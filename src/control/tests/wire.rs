//! Bytes that members exchange and keep on disk: they stay readable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::message::{Answer, Appended, Candidacy, Envelope, LeaderRequest, MemberStep, Request};
use super::super::pieces::{Piece, SnapshotName};
use super::super::wire::{WireEntry, WireLogId, WireMembers, WirePayload, WireSnapshot, WireVote};
use super::{dc, member};
use crate::base::wire;
use crate::control::{Frame, FrameKind, MemberId, Refusal, ServerId};

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

fn vote() -> WireVote {
    WireVote { term: 2, leader: MemberId { generation: 3, ..member(1) }, committed: true }
}

#[test]
fn entries_and_votes_on_disk() {
    golden(&vote(), "02010301");
    golden(&entry(7, WirePayload::Blank), "020700");
    golden(&entry(7, WirePayload::Command(Bytes::from_static(b"ab"))), "020701026162");
    golden(&entry(7, WirePayload::Members(member_list())), "020702010200000100020000050100fb2c01");
    let snapshot = WireSnapshot {
        last: Some(WireLogId { term: 2, index: 9 }),
        members_at: None,
        members: WireMembers { voters: Vec::new(), servers: BTreeMap::new() },
        decided: 4,
        state: Bytes::from_static(b"s"),
    };
    golden(&snapshot, "010209000000040173");
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
    golden(
        &envelope(Request::Append { vote: vote(), prev: None, entries, committed: None }),
        "010001020001020002010301000102070000",
    );
    let candidacy = Candidacy { vote: vote(), last: None, transfer: true };
    golden(&envelope(Request::Vote(candidacy)), "0100010200010201020103010001");
    golden(&envelope(Request::PreVote(candidacy)), "0100010200010202020103010001");
    golden(&envelope(Request::TransferLeader { vote: vote(), last: None }), "01000102000102040201030100");
    golden(&envelope(Request::Identify { founders: BTreeSet::from([member(1)]) }), "0100010200010205010100");
    golden(
        &envelope(Request::Lead(LeaderRequest::Propose(Bytes::from_static(b"c")))),
        "0100010200010206000163",
    );
    golden(&envelope(Request::Lead(LeaderRequest::ReadIndex)), "010001020001020601");
    golden(
        &envelope(Request::Lead(LeaderRequest::Change(MemberStep::Promote(member(2))))),
        "010001020001020602010200",
    );
    golden(&Answer::Appended(Appended::Conflict), "0002");
    golden(&Answer::Vote { vote: vote(), granted: true, last: None }, "01020103010100");
    golden(&Answer::Decided(300), "05fb2c01");
    golden(&Answer::Refused(Refusal::Busy), "0604");
    golden(&Answer::Refused(Refusal::OtherServer(member(2))), "060c0200");
    let of = SnapshotName { len: 300, hash: 7 };
    let piece = Piece { of, from: 5, bytes: Bytes::from_static(b"ab") };
    golden(
        &envelope(Request::SnapshotPiece { vote: vote(), piece }),
        "010001020001020702010301fb2c010705026162",
    );
    golden(&Answer::SnapshotHas(300), "07fb2c01");
}

#[test]
fn frames() {
    let frame = |kind| Frame { id: 300, from: dc(1), to: dc(2), hops: 1, kind };
    golden(&frame(FrameKind::Request(Bytes::from_static(b"r"))), "fb2c01010201000172");
    golden(&frame(FrameKind::Answer(Bytes::from_static(b"a"))), "fb2c01010201010161");
    golden(&frame(FrameKind::NoRoute), "fb2c0101020102");
    golden(&frame(FrameKind::Busy), "fb2c0101020103");
}
