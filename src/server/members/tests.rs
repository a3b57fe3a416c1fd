//! Tests of the members of a running cluster: answers to servers that ask to join, their messages, and the
//! file of a server that joined. Real servers: `tests/members`.

use super::admission::{Asked, Response, respond};
use super::joined_file::{self, Joined, JoinedFileError};
use super::leading::next_vote;
use super::wire::{Admitted, AdmittedMember, Applicant, JoinAnswer, JoinRequest};
use super::{DecisionList, MembersApi, ProposalError, founder_id};
use crate::base::time::Timestamp;
use crate::base::wire;
use crate::control::Fold;
use crate::crdt::VersionVector;
use crate::lock_server::MembersView;
use crate::membership::{
    Address, Admission, AgreedOptions, Command, Credentials, Epoch, Evictee, Eviction, Founder, Founding,
    Generation, JoinPolicy, MemberName, Policy, Proposal, Refused, ServerId, Unsettled, Voter, Vouch,
};
use geolock_api::names::{ClusterId, DcId, DcSet};
use tokio::sync::{mpsc, watch};

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn cluster() -> ClusterId {
    ClusterId::of("test")
}

fn name(text: &str) -> MemberName {
    MemberName::new(text).expect("a short name")
}

fn address(id: u8) -> Address {
    Address::new(&format!("dc{id}:7401")).expect("a host and a port")
}

/// The members after some decisions, all of them entered.
struct Members(DecisionList);

impl Members {
    /// Datacenter 0 founds the cluster.
    fn founded(join: JoinPolicy) -> Members {
        let founder = Founder {
            dc: dc(0),
            server: founder_id(cluster(), dc(0)),
            name: name("city0"),
            address: address(0),
            votes: true,
        };
        let mut members = Members(DecisionList::default());
        members.decide(Command::Found(Founding {
            cluster: cluster(),
            founders: vec![founder],
            policy: Policy { join, ..Policy::default() },
            options: AgreedOptions::default(),
            version: 4,
        }));
        members
    }

    fn decide(&mut self, command: Command) {
        let (index, checked) = (self.0.0.index().0 + 1, self.0.0.revision());
        self.0.apply(index, &Proposal { checked, command });
    }

    fn evict(&mut self, lost: DcId) {
        let member = Evictee { dc: lost, generation: Generation(0), last_heard: Timestamp::default() };
        self.decide(Command::Begin(Eviction { members: vec![member], vouch: Vouch::Operator, recut: None }));
        let attempt = self.0.0.attempt().expect("it has begun").id;
        let by = Voter::Member { dc: dc(0), generation: Generation(0) };
        self.decide(Command::Have { attempt, by, vector: VersionVector::default() });
        self.decide(Command::End { attempt });
    }

    fn view(&self) -> MembersView {
        let config = self.0.0.clone();
        let entered = config.slots().members().map(|(dc, _)| (dc, config.epoch())).collect();
        MembersView { config, entered, ..MembersView::default() }
    }

    /// The view of datacenter 0 that hears these members and witnesses.
    fn heard_view(&self, heard: &[u8], witnesses: &[u8]) -> MembersView {
        let set = |ids: &[u8]| ids.iter().map(|id| dc(*id)).collect();
        MembersView { heard: set(heard), witnesses: (set(witnesses), Default::default()), ..self.view() }
    }

    /// Asks datacenter 0, which hears these members and witnesses.
    fn ask_heard<const M: usize, const W: usize>(
        &self,
        from: u8,
        request: &JoinRequest,
        heard: [u8; M],
        witnesses: [u8; W],
    ) -> (JoinAnswer, Option<Command>) {
        asked(&self.heard_view(&heard, &witnesses), from, request)
    }

    /// Asks datacenter 0.
    fn ask(&self, from: u8, request: &JoinRequest) -> (JoinAnswer, Option<Command>) {
        asked(&self.view(), from, request)
    }
}

/// Datacenter 0, which has access rules.
fn here() -> Asked {
    Asked { dc: dc(0), has_rules: true }
}

fn asked(view: &MembersView, from: u8, request: &JoinRequest) -> (JoinAnswer, Option<Command>) {
    let request = wire::encode("request", request).expect("it is small");
    let Response { answer, propose } = respond(view, &view.config, here(), dc(from), &request, None);
    (wire::decode("answer", &answer).expect("it can be read"), propose)
}

fn request(id: u8, called: &str) -> JoinRequest {
    JoinRequest::V1(applicant(id, called))
}

fn applicant(id: u8, called: &str) -> Applicant {
    Applicant {
        server: ServerId([id; 16]),
        name: name(called),
        address: address(id),
        credentials: Credentials { cluster: cluster(), lineage: None, version: 4 },
    }
}

fn why(answer: &JoinAnswer) -> &str {
    match answer {
        JoinAnswer::Wait(why) | JoinAnswer::Refused(why) => why,
        JoinAnswer::Admitted(_) | JoinAnswer::End(_) => panic!("{answer:?}"),
    }
}

#[test]
fn a_server_waits_until_a_decision_names_it() {
    let mut members = Members::founded(JoinPolicy::Auto);
    let (answer, propose) = members.ask(1, &request(7, "city1"));
    assert!(matches!(answer, JoinAnswer::Wait(_)), "{answer:?}");
    let Some(command) = propose else { panic!("nothing is proposed") };
    let Command::Admit(Admission { dc: slot, generation, sponsor, votes, .. }) = &command else {
        panic!("{command:?}")
    };
    assert_eq!((*slot, *generation, *sponsor, *votes), (dc(1), Generation(0), dc(0), true));
    members.decide(command);
    let (answer, propose) = members.ask(1, &request(7, "city1"));
    let JoinAnswer::Admitted(admitted) = answer else { panic!("{answer:?}") };
    assert_eq!((admitted.members.len(), propose), (2, None));
    assert_eq!(admitted.members[1].address, address(7));
    // The same slot, with another directory.
    let (answer, propose) = members.ask(1, &request(8, "city1"));
    assert!(matches!(answer, JoinAnswer::Refused(_)) && why(&answer).contains("has a member"), "{answer:?}");
    assert_eq!(propose, None);
    // Another directory may not have the id of a member.
    let (answer, _) = members.ask(2, &request(7, "city2"));
    assert!(why(&answer).contains("is or was a member"), "{answer:?}");
}

#[test]
fn a_witness_is_added_by_a_decision_that_names_it() {
    let mut members = Members::founded(JoinPolicy::Operator);
    let asks = || JoinRequest::Witness(applicant(7, "wit"));
    let (answer, propose) = members.ask(5, &asks());
    assert!(
        matches!(answer, JoinAnswer::Refused(_)) && why(&answer).contains("member add wit"),
        "{answer:?}"
    );
    assert_eq!(propose, None);
    members.decide(Command::Invite { name: name("wit"), sponsor: None });
    let (answer, propose) = members.ask(0, &asks());
    assert!(why(&answer).contains("is or was the id of a member") && propose.is_none(), "{answer:?}");
    let (answer, propose) = members.ask(5, &asks());
    assert!(matches!(answer, JoinAnswer::Wait(_)), "{answer:?}");
    members.decide(propose.expect("it is proposed"));
    let (answer, propose) = members.ask(5, &asks());
    let JoinAnswer::Admitted(admitted) = answer else { panic!("{answer:?}") };
    assert_eq!((admitted.members.len(), propose), (1, None), "it is no member");
    // A member does not get its id, and it learns that it was removed.
    let (answer, _) = members.ask(5, &request(8, "city5"));
    assert!(why(&answer).contains("is or was the id of a witness"), "{answer:?}");
    let end = |members: &Members| members.ask(5, &JoinRequest::EndOf(ServerId([7; 16]))).0;
    assert!(matches!(end(&members), JoinAnswer::End(None)));
    let id = members.0.0.witnesses().of(ServerId([7; 16])).expect("it was added");
    members.decide(Command::RemoveWitness { id });
    let JoinAnswer::End(Some(end)) = end(&members) else { panic!("it has ended") };
    assert!(!end.was_evicted() && end.returning().is_none());
}

#[test]
fn the_policy_for_joins_is_respected() {
    let mut members = Members::founded(JoinPolicy::Operator);
    let (answer, propose) = members.ask(1, &request(7, "city1"));
    assert!(matches!(answer, JoinAnswer::Refused(_)) && why(&answer).contains("no operator"), "{answer:?}");
    assert_eq!(propose, None);
    members.decide(Command::Invite { name: name("city1"), sponsor: Some(dc(0)) });
    let (answer, propose) = members.ask(1, &request(7, "city1"));
    assert!(matches!(answer, JoinAnswer::Wait(_)) && propose.is_some(), "{answer:?}");
}

#[test]
fn one_change_at_a_time() {
    let mut members = Members::founded(JoinPolicy::Auto);
    members.decide(members.ask(1, &request(7, "city1")).1.expect("it is proposed"));
    let mut view = members.view();
    view.entered[1].1 = Epoch(0);
    let (answer, propose) = asked(&view, 2, &request(8, "city2"));
    assert!(
        why(&answer).contains("(epoch 2) has reached dc1, which this server does not hear"),
        "{answer:?}"
    );
    assert_eq!(propose, None);
    view.heard = DcSet::only(dc(1));
    let (answer, propose) = asked(&view, 2, &request(8, "city2"));
    assert!(why(&answer).contains("(epoch 2) has not reached dc1 yet"), "{answer:?}");
    assert_eq!(propose, None);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let none = MembersView::default();
    let (answer, propose) = asked(&none, 1, &request(7, "city1"));
    assert!(matches!(answer, JoinAnswer::Wait(_)) && propose.is_none(), "{answer:?}");
    let members = Members::founded(JoinPolicy::Auto);
    let (answer, _) = members.ask(1, &request(7, "city0"));
    assert!(why(&answer).contains("the name city0 is used"), "{answer:?}");
    let asks = applicant(7, "city1");
    let other = Credentials { cluster: ClusterId::of("other"), ..asks.credentials };
    let (answer, _) = members.ask(1, &JoinRequest::V1(Applicant { credentials: other, ..asks }));
    assert!(matches!(answer, JoinAnswer::Refused(_)) && why(&answer).contains("cluster"), "{answer:?}");
    for bytes in [&[][..], &[9], &[0; 5], &[0xff; 64]] {
        let Response { answer, propose } = respond(&members.view(), &members.0.0, here(), dc(1), bytes, None);
        let answer: JoinAnswer = wire::decode("answer", &answer).expect("it can be read");
        assert!(matches!(answer, JoinAnswer::Refused(_)) && propose.is_none(), "{answer:?}");
    }
}

#[test]
fn a_server_without_rules_does_not_join_members_with_rules_by_mistake() {
    let mut members = Members::founded(JoinPolicy::Auto);
    let asks = || JoinRequest::WithoutRules(applicant(7, "city1"));
    let (answer, propose) = members.ask(1, &asks());
    assert!(matches!(answer, JoinAnswer::Refused(_)) && propose.is_none(), "{answer:?}");
    assert!(why(&answer).contains("--join-without-rules"), "{answer:?}");
    let of = |has_rules, members: &Members| {
        let request = wire::encode("request", &asks()).expect("it is small");
        let asked = Asked { has_rules, ..here() };
        respond(&members.view(), &members.0.0, asked, dc(1), &request, None)
    };
    let admission = of(false, &members).propose.expect("members without rules admit it");
    members.decide(admission);
    // A decision is told by members with rules, too.
    let answer: JoinAnswer = wire::decode("answer", &of(true, &members).answer).expect("it can be read");
    assert!(matches!(answer, JoinAnswer::Admitted(_)), "{answer:?}");
}

#[test]
fn the_messages_of_servers_that_join_never_change() {
    let golden = {
        let mut bytes = vec![0];
        bytes.extend([7; 16]);
        bytes.extend([1, b'a', 8, b'd', b'c', b'7', b':', b'7', b'4', b'0', b'1']);
        bytes.extend([3, 0, 4]);
        bytes
    };
    let asks = applicant(7, "a");
    let credentials = Credentials { cluster: ClusterId::from_raw(3), ..asks.credentials };
    let end_of = JoinRequest::EndOf(asks.server);
    let applicant = Applicant { credentials, ..asks };
    let asked = JoinRequest::V1(applicant.clone());
    assert_eq!(wire::encode("request", &asked).expect("it is small"), golden);
    let of_witness = [&[2][..], &golden[1..]].concat();
    let without_rules = JoinRequest::WithoutRules(applicant.clone());
    assert_eq!(wire::encode("request", &JoinRequest::Witness(applicant)).expect("it is small"), of_witness);
    let of_ruleless = [&[3][..], &golden[1..]].concat();
    assert_eq!(wire::encode("request", &without_rules).expect("it is small"), of_ruleless);
    assert_eq!(wire::encode("request", &end_of).expect("it is small"), [&[1][..], &[7; 16]].concat());
    let member = AdmittedMember { dc: dc(1), name: name("a"), address: self::address(1) };
    let options = AgreedOptions { heartbeat_ms: 1, peer_timeout_ms: 2, max_clock_skew_ms: 3 };
    let answers = [
        (JoinAnswer::Wait("w".into()), vec![1, 1, b'w']),
        (JoinAnswer::Refused("r".into()), vec![2, 1, b'r']),
        (
            JoinAnswer::Admitted(Admitted { generation: Generation(9), members: vec![member], options }),
            vec![0, 9, 1, 1, 1, b'a', 8, b'd', b'c', b'1', b':', b'7', b'4', b'0', b'1', 1, 2, 3],
        ),
        (JoinAnswer::End(None), vec![3, 0]),
    ];
    for (answer, golden) in answers {
        assert_eq!(wire::encode("answer", &answer).expect("it is small"), golden);
        assert_eq!(wire::decode::<JoinAnswer>("answer", &golden).expect("it can be read"), answer);
    }
}

#[test]
fn one_that_is_refused_is_told_if_its_end_is_decided_and_if_it_may_return() {
    let mut members = Members::founded(JoinPolicy::Auto);
    let (_, propose) = members.ask(1, &request(7, "city1"));
    let Some(Command::Admit(admission)) = propose else { panic!("it may join") };
    members.decide(Command::Admit(admission.clone()));
    let end_of = |members: &Members, id| match members.ask(1, &JoinRequest::EndOf(ServerId([id; 16]))) {
        (JoinAnswer::End(end), None) => end,
        other => panic!("{other:?}"),
    };
    assert_eq!(end_of(&members, 7), None, "it is a member");
    assert_eq!(end_of(&members, 9), None, "it never was one");
    members.decide(Command::Settled { dc: dc(1), generation: Generation(0) });
    members.evict(dc(1));
    let end = end_of(&members, 7).expect("it was evicted");
    assert!(end.was_evicted() && end.returning().is_none(), "an operator has to agree: {end:?}");
    members.decide(Command::SetPolicy(Policy { rejoin: JoinPolicy::Auto, ..Policy::default() }));
    let returning = end_of(&members, 7).and_then(|end| end.returning()).expect("it may return");
    assert_eq!(returning.members, [address(0).to_string()]);
    let golden = vec![3, 1, 0, 1, 1, 1, 8, b'd', b'c', b'0', b':', b'7', b'4', b'0', b'1'];
    let answer = JoinAnswer::End(end_of(&members, 7));
    assert_eq!(wire::encode("answer", &answer).expect("it is small"), golden);
    // Another server with its slot: the earlier one does not return.
    let (server, generation) = (ServerId([8; 16]), Generation(1));
    members.decide(Command::Admit(Admission { server, generation, ..admission }));
    assert!(members.view().config.slots().member(dc(1)).is_some_and(|member| member.server == server));
    assert!(end_of(&members, 7).is_some_and(|end| end.was_evicted() && end.returning().is_none()));
}

#[test]
fn a_member_gets_its_vote_when_it_is_settled_and_heard() {
    let mut members = Members::founded(JoinPolicy::Auto);
    let (_, propose) = members.ask(1, &request(7, "city1"));
    members.decide(propose.expect("it may join"));
    let next = |members: &Members, heard: DcSet| {
        let view = MembersView { heard, ..members.view() };
        next_vote(&view.config, &view)
    };
    let is_heard = DcSet::only(dc(1));
    assert_eq!(next(&members, is_heard), None, "it is joining");
    members.decide(Command::Settled { dc: dc(1), generation: Generation(0) });
    assert_eq!(next(&members, DcSet::EMPTY), None, "of two voters it would be the one that is missing");
    let vote = Command::Vote { dc: dc(1), generation: Generation(0), votes: true };
    assert_eq!(next(&members, is_heard), Some(vote.clone()));
    members.decide(vote);
    assert_eq!(next(&members, is_heard), None);
}

#[test]
fn only_voters_that_are_heard_count_for_a_majority() {
    let mut members = Members::founded(JoinPolicy::Auto);
    let (_, propose) = members.ask(1, &request(7, "city1"));
    members.decide(propose.expect("it may join"));
    members.decide(Command::Settled { dc: dc(1), generation: Generation(0) });
    members.decide(Command::Vote { dc: dc(1), generation: Generation(0), votes: true });
    members
        .decide(members.ask_heard(5, &JoinRequest::Witness(applicant(8, "wit")), [1], []).1.expect("it may"));
    let id = members.0.0.witnesses().of(ServerId([8; 16])).expect("it was added");
    let removes = |heard: &[u8], witnesses: &[u8]| {
        let view = members.heard_view(heard, witnesses);
        view.config.check_proposal(&view.facts(dc(0), &view.config), Command::RemoveWitness { id }).map(drop)
    };
    let refused = Err(Refused::NoMajority { remaining: 1, needed: 2 });
    assert_eq!(removes(&[1], &[5]), Ok(()));
    assert_eq!(removes(&[1], &[]), Ok(()), "both members are a majority, with and without it");
    assert_eq!(removes(&[], &[5]), refused, "nobody hears the other member");
    assert_eq!(removes(&[], &[]), refused);
    // A server that asks to join waits until a majority is heard.
    let (answer, propose) = members.ask_heard(2, &request(9, "city2"), [], []);
    assert!(matches!(answer, JoinAnswer::Wait(_)) && propose.is_none(), "{answer:?}");
    let (answer, propose) = members.ask_heard(2, &request(9, "city2"), [], [5]);
    assert!(matches!(answer, JoinAnswer::Wait(_)) && propose.is_some(), "{answer:?}");
}

/// Another one has joined a moment ago.
#[test]
fn a_server_that_asks_to_join_waits_until_parts_are_split_off() {
    let mut members = Members::founded(JoinPolicy::Auto);
    members.decide(members.ask(1, &request(7, "city1")).1.expect("it may join"));
    members.decide(Command::Settled { dc: dc(1), generation: Generation(0) });
    let unsettled = Unsettled { unsplit: DcSet::only(dc(1)), ..Unsettled::default() };
    let view = MembersView { unsettled, ..members.heard_view(&[1], &[]) };
    let (answer, propose) = asked(&view, 2, &request(9, "city2"));
    assert!(matches!(answer, JoinAnswer::Wait(_)) && propose.is_none(), "{answer:?}");
    let (answer, propose) = asked(&members.heard_view(&[1], &[]), 2, &request(9, "city2"));
    assert!(matches!(answer, JoinAnswer::Wait(_)) && propose.is_some(), "{answer:?}");
}

#[test]
fn founders_have_ids_of_their_own_that_stay() {
    let id = founder_id(cluster(), dc(0));
    assert_eq!(id, founder_id(cluster(), dc(0)));
    assert!(id != founder_id(cluster(), dc(1)) && id != founder_id(ClusterId::of("other"), dc(0)));
}

#[test]
fn a_server_remembers_that_it_joined() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    assert_eq!(joined_file::read(dir.path()).expect("there is none"), None);
    let joined = Joined {
        cluster: "test".into(),
        dc: dc(1),
        is_witness: false,
        server: ServerId([0x0f; 16]),
        generation: Generation(2),
        members: vec![(dc(0), name("city0"), address(0)), (dc(1), name("city1"), address(1))],
        options: AgreedOptions::default(),
    };
    joined_file::write(dir.path(), &joined).expect("there is room");
    assert_eq!(joined_file::read(dir.path()).expect("it is good"), Some(joined.clone()));
    let witness = Joined { is_witness: true, ..joined.clone() };
    joined_file::write(dir.path(), &witness).expect("there is room");
    assert_eq!(joined_file::read(dir.path()).expect("it is good"), Some(witness));
    joined_file::write(dir.path(), &joined).expect("there is room");
    let path = dir.path().join("joined.json");
    let good = std::fs::read_to_string(&path).expect("it was written");
    for (from, to) in
        [("\"format\": 1", "\"format\": 2"), ("\"dc\": 1", "\"dc\": 99"), ("0f0f", "xx"), ("{", "")]
    {
        std::fs::write(&path, good.replacen(from, to, 1)).expect("it can be written");
        let damaged = joined_file::read(dir.path());
        assert!(matches!(damaged, Err(JoinedFileError::Damaged { .. })), "{from}: {damaged:?}");
    }
}

/// The operator has heard of the leave from another server, which knew it first.
#[tokio::test]
async fn a_leave_that_is_not_known_here_yet_is_awaited_for_a_moment() {
    let mut members = Members::founded(JoinPolicy::Operator);
    members.decide(Command::Invite { name: name("city1"), sponsor: None });
    let joiner = Admission {
        dc: dc(1),
        generation: Generation(0),
        server: ServerId([1; 16]),
        name: name("city1"),
        sponsor: dc(0),
        address: address(1),
        votes: true,
        credentials: Credentials { cluster: cluster(), lineage: None, version: 4 },
    };
    members.decide(Command::Admit(joiner));
    members.decide(Command::Settled { dc: dc(1), generation: Generation(0) });
    let (tell, view) = watch::channel(members.view());
    let (inputs, _asked) = mpsc::channel(1);
    let (me, (_, control)) = (dc(0), watch::channel(None));
    let api = MembersApi { me, control, inputs, view };

    let command = api.cancel_removal(dc(1));
    let decision = async {
        tokio::task::yield_now().await;
        members.decide(Command::Leaving { dc: dc(1), generation: Generation(0) });
        tell.send_replace(members.view());
    };
    let (refused, ()) = tokio::join!(command, decision);
    let refused = refused.expect_err("it has to be asked there");
    assert!(matches!(refused, ProposalError::Refused(Refused::CancelElsewhere { .. })), "{refused}");
}
