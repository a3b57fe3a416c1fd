//! No request breaks a member.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::super::message::{Answer, Candidacy, Envelope, LeaderRequest, Request};
use super::super::pieces::{Piece, SnapshotName};
use super::super::wire::{WireEntry, WireLogId, WireMembers, WirePayload, WireSnapshot, WireVote};
use super::{Group, World, dc, decide, member, members, until};
use crate::base::rng::Rng;
use crate::base::wire;
use crate::control::{MAX_COMMAND, MAX_PAYLOAD, MemberId, Refusal, ServerId, Start};

fn envelope(to: &Group, from: MemberId, request: Request) -> Envelope {
    let core = &to.0;
    let from_server = core.server_of(from).unwrap_or_default();
    Envelope { from, from_server, to: core.caller.me, to_server: Some(core.caller.server), request }
}

async fn send(to: &Group, envelope: &Envelope) -> Answer {
    let bytes = wire::encode("request", envelope).expect("it is small");
    let answer = to.handle_request(envelope.from.dc, bytes.into()).await;
    wire::decode("answer", &answer).expect("an answer")
}

fn vote(term: u64, committed: bool) -> WireVote {
    WireVote { term, leader: member(1), committed }
}

fn at(term: u64, index: u64) -> WireLogId {
    WireLogId { term, index }
}

fn append(prev: Option<WireLogId>, entries: Vec<(WireLogId, WirePayload)>) -> Request {
    let entries = entries.into_iter().map(|(id, payload)| WireEntry { id, payload }).collect();
    Request::Append { vote: vote(90, true), prev, entries, committed: None }
}

fn member_list(voters: Vec<BTreeSet<MemberId>>, servers: BTreeSet<MemberId>) -> WireMembers {
    WireMembers { voters, servers: servers.into_iter().map(|it| (it, ServerId::from_raw(1))).collect() }
}

fn piece(vote: WireVote, len: u64, from: u64, bytes: usize) -> Request {
    let of = SnapshotName { len, hash: 1 };
    Request::SnapshotPiece { vote, piece: Piece { of, from, bytes: vec![0xff; bytes].into() } }
}

/// Requests that no member makes.
fn impossible() -> Vec<Request> {
    let blank = || WirePayload::Blank;
    let of = |voters, servers| WirePayload::Members(member_list(voters, servers));
    let first = at(1, 5);
    let snapshot = |members, state: &'static [u8]| Request::Snapshot {
        vote: vote(90, true),
        snapshot: WireSnapshot {
            last: Some(first),
            members_at: Some(first),
            members,
            decided: 1,
            state: Bytes::from_static(state),
        },
    };
    let good = member_list(vec![members([0, 1])], members([0, 1]));
    vec![
        append(Some(at(1, u64::MAX)), vec![]),
        append(Some(at(u64::MAX, 5)), vec![]),
        append(Some(first), vec![(at(1, 7), blank())]),
        append(Some(first), vec![(at(1, 6), blank()), (at(1, 6), blank())]),
        append(Some(at(5, 5)), vec![(at(4, 6), blank())]),
        append(Some(first), vec![(at(91, 6), blank())]),
        append(None, vec![(at(1, 1), blank())]),
        append(Some(first), vec![(at(1, 6), WirePayload::Command(vec![0; MAX_COMMAND + 1].into()))]),
        append(Some(first), vec![(at(1, 6), of(vec![], members([0])))]),
        append(Some(first), vec![(at(1, 6), of(vec![members([])], members([0])))]),
        append(Some(first), vec![(at(1, 6), of(vec![members([0, 1])], members([0])))]),
        append(Some(first), vec![(at(1, 6), of(vec![members([0]); 3], members([0])))]),
        Request::Append { vote: vote(90, false), prev: None, entries: vec![], committed: None },
        Request::Append { vote: vote(u64::MAX, true), prev: None, entries: vec![], committed: None },
        Request::Append {
            vote: WireVote { leader: member(2), ..vote(90, true) },
            prev: None,
            entries: vec![],
            committed: None,
        },
        Request::Vote(Candidacy { vote: vote(u64::MAX, false), last: None, transfer: true }),
        Request::PreVote(Candidacy { vote: vote(90, true), last: None, transfer: false }),
        Request::Vote(Candidacy { vote: vote(90, false), last: Some(at(1, u64::MAX)), transfer: false }),
        snapshot(good.clone(), b"\xff\xff\xff"),
        snapshot(member_list(vec![], BTreeSet::new()), b"\0"),
        snapshot(WireMembers { servers: BTreeMap::new(), ..good }, b"\0"),
        Request::Lead(LeaderRequest::Propose(Bytes::from_static(b"\xff\xff"))),
        piece(vote(90, false), 100, 0, 10),
        piece(vote(90, true), u64::MAX, 0, 10),
        piece(vote(90, true), 100, u64::MAX, 10),
        piece(vote(90, true), 100, 91, 10),
        piece(vote(90, true), 100, 0, 0),
        piece(vote(90, true), 100, 0, 101),
        // A whole one that is no snapshot.
        piece(vote(90, true), 100, 0, 100),
    ]
}

#[tokio::test]
async fn impossible_requests_are_refused_and_change_nothing() {
    let world = World::new(51);
    let groups = world.found([0, 1, 2]).await;
    decide(&groups[0], "a").await;
    let group = &groups[0];
    for request in impossible() {
        let answer = send(group, &envelope(group, member(1), request.clone())).await;
        let refused = matches!(answer, Answer::Refused(Refusal::Malformed | Refusal::NotLeader));
        assert!(refused, "{request:?}: {answer:?}");
    }
    assert_eq!(group.status().failed, None);
    decide(&groups[1], "b").await;
    until(group, |status| status.decided >= 2 && status.term < 90).await;
}

#[tokio::test]
async fn requests_for_others_are_refused() {
    let world = World::new(52);
    let groups = world.found([0, 1]).await;
    let group = &groups[0];
    let good = envelope(group, member(1), append(None, vec![]));
    let refused = |answer| match answer {
        Answer::Refused(refusal) => refusal,
        answer => panic!("not refused: {answer:?}"),
    };
    let other = Envelope { to: MemberId { generation: 1, ..member(0) }, ..good.clone() };
    assert_eq!(refused(send(group, &other).await), Refusal::WrongMember(member(0)));
    let other = Envelope { to_server: Some(ServerId::from_raw(1)), ..good.clone() };
    let server = group.server_id();
    assert_eq!(refused(send(group, &other).await), Refusal::WrongServer { member: member(0), server });
    let other = Envelope { from_server: ServerId::from_raw(1), ..good.clone() };
    assert_eq!(refused(send(group, &other).await), Refusal::UnknownServer(member(1)));
    let other = Envelope { to_server: None, ..good.clone() };
    assert_eq!(refused(send(group, &other).await), Refusal::Malformed);
    let bytes = wire::encode("request", &good).expect("it is small");
    let spoofed = group.handle_request(dc(5), bytes.into()).await;
    assert_eq!(refused(wire::decode("answer", &spoofed).expect("an answer")), Refusal::Malformed);
    let large = group.handle_request(dc(1), vec![0; MAX_PAYLOAD + 1].into()).await;
    assert_eq!(refused(wire::decode("answer", &large).expect("an answer")), Refusal::Malformed);
}

#[tokio::test]
async fn damaged_requests_never_stop_a_member() {
    let world = World::new(53);
    let group = world.start(member(0), Start::Found(members([0]))).await;
    decide(&group, "a").await;
    let mut rng = Rng::new(53, 0);
    for request in impossible() {
        let whole = wire::encode("request", &envelope(&group, member(1), request)).expect("it is small");
        for _ in 0..50 {
            let mut bytes = whole.clone();
            for _ in 0..rng.between(1, 4) {
                let at = rng.index(bytes.len());
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.between(bytes.len() as u64 / 2, bytes.len() as u64) as usize);
            let answer = group.handle_request(dc(1), bytes.into()).await;
            wire::decode::<Answer>("answer", &answer).expect("an answer");
        }
    }
    assert_eq!(group.status().failed, None);
}
