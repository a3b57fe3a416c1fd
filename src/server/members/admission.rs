//! The member that is asked: answers at once, from the decisions that are known here, and proposes the
//! admission. The server that asks repeats its request until a decision names it, so nothing is remembered
//! about it, and a request may be repeated to any member.

use bytes::Bytes;

use super::end::ServerEnd;
use super::operators::{ProposalError, is_newer, waits_for};
use super::wire::{Admitted, AdmittedMember, Applicant, JoinAnswer, JoinRequest};
use crate::base::wire;
use crate::lock_server::MembersView;
use crate::membership::{Admission, Command, Config, Generation, NewWitness, Phase, Proposal, Refused};
use geolock_api::names::DcId;

const NO_LIST: &str =
    "the cluster has no list of decisions yet: that needs all its members, running this release";

const WITHOUT_RULES: &str = "the members have access rules (api.acl) and this server has none: here every client could do everything. Give it \
     the same file, or --join-without-rules true";

/// The member that is asked.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub dc: DcId,
    /// It has access rules.
    pub has_rules: bool,
}

/// The answer to a request, and the command to be proposed for it.
pub(super) struct Response {
    pub answer: Bytes,
    pub propose: Option<Command>,
}

/// Answers a request of the server with the certificate of `from`. `last`: why the last command could not
/// be proposed, if one could not. `newest`: the state after all decisions that were made, some of which the
/// machine may not know yet.
pub(super) fn respond(
    view: &MembersView,
    newest: &Config,
    Asked { dc: me, has_rules }: Asked,
    from: DcId,
    request: &[u8],
    last: Option<String>,
) -> Response {
    let (answer, propose) = match wire::decode::<JoinRequest>("join request", request) {
        Ok(JoinRequest::V1(_) | JoinRequest::WithoutRules(_) | JoinRequest::Witness(_))
            if newer(view, newest).cluster().is_none() =>
        {
            (JoinAnswer::Wait(NO_LIST.into()), None)
        }
        Ok(JoinRequest::V1(applicant)) => decide(view, newest, (me, from), applicant, None, last),
        Ok(JoinRequest::WithoutRules(applicant)) => {
            let refusal = has_rules.then_some(WITHOUT_RULES);
            decide(view, newest, (me, from), applicant, refusal, last)
        }
        Ok(JoinRequest::Witness(applicant)) => decide_witness(view, newest, (me, from), applicant, last),
        Ok(JoinRequest::EndOf(server)) => (JoinAnswer::End(ServerEnd::of(newer(view, newest), server)), None),
        Err(error) => (JoinAnswer::Refused(format!("the request cannot be read: {error}")), None),
    };
    let answer = wire::encode("join answer", &answer).expect("64 members fit a frame");
    Response { answer: answer.into(), propose }
}

/// Returns the state after the most decisions.
fn newer<'a>(view: &'a MembersView, newest: &'a Config) -> &'a Config {
    if is_newer(newest, &view.config) { newest } else { &view.config }
}

/// `refusal`: why the server may not become a member, if it is none yet.
fn decide(
    view: &MembersView,
    newest: &Config,
    (me, from): (DcId, DcId),
    Applicant { server, name, address, credentials }: Applicant,
    refusal: Option<&str>,
    last: Option<String>,
) -> (JoinAnswer, Option<Command>) {
    let config = newer(view, newest);
    if config.slots().member(from).is_some_and(|member| member.server == server) {
        // Only the machine makes peers of members: before that, a link would be refused.
        return match view.config.slots().member(from) {
            Some(known) if known.server == server => {
                (JoinAnswer::Admitted(admitted(config, known.generation)), None)
            }
            _ => (JoinAnswer::Wait("its admission is decided".into()), None),
        };
    }
    if let Some(why) = refusal {
        return (JoinAnswer::Refused(why.into()), None);
    }
    let invited = config.invitations().find(|(invited, _)| **invited == name);
    let sponsor = invited.and_then(|(_, sponsor)| sponsor).or_else(|| sponsor(config, me));
    let Some(sponsor) = sponsor else {
        return (JoinAnswer::Wait("no member is settled that could be its sponsor".into()), None);
    };
    // A slot without a next generation has a member: the check below says so.
    let generation = config.slots().next_generation(from).unwrap_or_default();
    let admission =
        Admission { dc: from, generation, server, name, address, sponsor, votes: true, credentials };
    let checked = config.check_proposal(&view.facts(me, config), Command::Admit(admission));
    proposed(checked, last, |refused| waits_for(refused, me, config, view))
}

fn decide_witness(
    view: &MembersView,
    newest: &Config,
    (me, from): (DcId, DcId),
    Applicant { server, name, address, credentials }: Applicant,
    last: Option<String>,
) -> (JoinAnswer, Option<Command>) {
    let config = newer(view, newest);
    if config.witnesses().at(from).is_some_and(|(_, witness)| witness.server == server) {
        // Only the machine makes peers of witnesses: before that, a link would be refused.
        return match view.config.witnesses().at(from) {
            Some(_) => (JoinAnswer::Admitted(admitted(config, Generation(0))), None),
            None => (JoinAnswer::Wait("it is decided that it is a witness".into()), None),
        };
    }
    let witness = NewWitness { dc: from, server, name, address, credentials };
    let checked = config.check_proposal(&view.facts(me, config), Command::AddWitness(witness));
    proposed(checked, last, |refused| waits_for(refused, me, config, view))
}

/// Returns the answer for an admission that was checked. `explain` finds the cause of a refusal that passes.
fn proposed(
    checked: Result<Proposal, Refused>,
    last: Option<String>,
    explain: impl FnOnce(Refused) -> ProposalError,
) -> (JoinAnswer, Option<Command>) {
    match checked {
        Ok(proposal) => {
            let why = last.unwrap_or_else(|| "its admission is proposed".into());
            (JoinAnswer::Wait(why), Some(proposal.command))
        }
        // One change at a time, and by a majority that is up.
        Err(
            refused @ (Refused::ChangeUnderWay { .. }
            | Refused::NoMajority { .. }
            | Refused::EvictionUnderWay { .. }
            | Refused::MemberLeaves { .. }
            | Refused::MemberJoins { .. }
            | Refused::SlotNotFree { .. }),
        ) => (JoinAnswer::Wait(explain(refused).to_string()), None),
        Err(refused) => (JoinAnswer::Refused(refused.to_string()), None),
    }
}

/// Returns the member that is asked, which is probably near, or else any that is settled and stays.
fn sponsor(config: &Config, me: DcId) -> Option<DcId> {
    let is_settled =
        |dc: &DcId| config.slots().member(*dc).is_some_and(|member| member.phase == Phase::Settled);
    Some(me).filter(is_settled).or_else(|| config.staying().iter().find(is_settled))
}

fn admitted(config: &Config, generation: Generation) -> Admitted {
    let member = |(dc, member): (DcId, &crate::membership::Member)| AdmittedMember {
        dc,
        name: member.name.clone(),
        address: member.address.clone(),
    };
    Admitted {
        generation,
        members: config.slots().members().map(member).collect(),
        options: *config.options(),
    }
}
