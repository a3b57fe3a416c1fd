//! `geolock member`: the members of the cluster.

mod add;
mod evict;
mod homes;
mod policy;
mod remove;

use std::slice;
use std::time::Duration;

use clap::Subcommand;
use geolock_client::AdminClient;
use serde_json::{Value, json};

use super::at_stake;
use super::connect::{self, ConnectArgs};
use super::dc_names::{DcRef, of_members};
use super::failure::Failure;
use super::fallen;
use super::lock::duration;
use super::print::{number, print, table};
use super::recover::{Recover, recover};
use super::witnesses;
use crate::base::time::brief;
use crate::server::config::MAX_LEASE_TTL;
use evict::{evict, replace};
use geolock_api::names::DcId;
use geolock_api::proto::{
    AtStake, EndCause, EndedMember, ListMembersResponse, Member, MemberPhase, MemberPolicy, Witness,
};
use policy::{Evict, Join, evict_policy, join_policy, millis, policy};
use remove::{Removal, remove};

/// List the members of the cluster, invite a server to join, let a datacenter leave, evict or replace one.
///
/// A majority of the members that vote agrees on a list of decisions about the members. Locks never wait for
/// it.
#[derive(clap::Args, Clone, Debug)]
pub struct MemberArgs {
    #[command(subcommand)]
    command: MemberCommand,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum MemberCommand {
    /// List the members, as the answering datacenter knows them
    ///
    /// GENERATION is the number of earlier members with the id, PHASE is `joining` until the member has its
    /// state and serves, VOTES shows if it takes part in decisions, EPOCH is the last change of the members
    /// that it has applied, HEARD shows if the answering datacenter hears it, or how long ago it did, or
    /// which voters have not heard it for `evict_after`. LOCKS is the number of locks that no other
    /// datacenter could take exclusively if the member died now, besides those that were never used: it has
    /// parts of them that are named after others. WAITING is the number of requests that wait for it now.
    /// Both as far as the answering datacenter knows.
    List {
        /// For programs: one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Invite a server to join the cluster, once
    ///
    /// The command shows how to start it then. Not needed if the cluster was founded with
    /// `cluster.join_policy = "auto"`. With `--cancel` the server may not join after all. May be repeated.
    Add {
        /// The name of the server: 1 to 64 of a-z, 0-9 and -
        name: String,
        /// The id or name of its sponsor, preferably the nearest datacenter [default: the one that it asks]
        #[arg(long, value_name = "DC", value_parser = DcRef::parse)]
        sponsor: Option<DcRef>,
        /// Take the invitation back, as long as the server has not joined
        #[arg(long, conflicts_with = "sponsor")]
        cancel: bool,
    },
    /// Let a datacenter leave the cluster, in order
    ///
    /// It refuses new requests of its clients. Once no client holds a lock there, it returns its parts to
    /// the others, and its server ends. No lock elsewhere waits for it. Another server may join with its
    /// id. May be repeated, also to wait. With `--cancel` the datacenter stays after all: run that there,
    /// before it has returned everything.
    Remove {
        /// The id of the datacenter, such as 2, or its name
        #[arg(value_name = "DC", value_parser = DcRef::parse)]
        dc: DcRef,
        /// Wait until it has left
        #[arg(long)]
        wait: bool,
        /// Take the removal back: it stays, and serves its clients again
        #[arg(long, conflicts_with = "wait")]
        cancel: bool,
        /// Ask nothing; otherwise the command asks at a terminal if it is to go on
        #[arg(long, conflicts_with = "cancel")]
        yes: bool,
    },
    /// Evict datacenters that are lost for good
    ///
    /// You vouch that none of their servers runs. The command first
    /// waits until all leases of their clients have ended. Their lock parts return to the other datacenters,
    /// which no longer need them; commits that only they had are lost. Needs a majority of the voters, and
    /// every other member. Refused while a member hears one of them. May be repeated. A server of an evicted
    /// datacenter that is started again does not serve; with an empty data directory it may join again.
    Evict {
        /// The ids of the datacenters, such as 2, or their names; those that are lost together are evicted
        /// together
        #[arg(value_name = "DC", value_parser = DcRef::parse, required = true)]
        dcs: Vec<DcRef>,
        /// Confirm that no server of these datacenters runs
        #[arg(long, required = true)]
        confirm_dead: bool,
        /// Confirm that all their clients have stopped: do not wait for the ends of their leases
        #[arg(long)]
        clients_are_dead: bool,
        /// Name the locks and counters that it concerned: at most 1000 of each kind
        #[arg(long)]
        list: bool,
    },
    /// Evict a datacenter that is lost, and invite a new server with its id and name
    ///
    /// For a datacenter that has lost its disk, or its machine. It is evicted as with `evict`. Then start the
    /// new server with `geolock server --join HOST:PORT --name NAME`, with the certificate of the datacenter
    /// and an empty data directory: it gets all data from the others.
    Replace {
        /// The id of the datacenter, such as 2, or its name
        #[arg(value_name = "DC", value_parser = DcRef::parse)]
        dc: DcRef,
        /// Confirm that no server of this datacenter runs
        #[arg(long, required = true)]
        confirm_dead: bool,
        /// Confirm that all its clients have stopped: do not wait for the ends of their leases
        #[arg(long)]
        clients_are_dead: bool,
    },
    /// Continue without a majority of the voters that is gone for good (forced recovery)
    ///
    /// Run it at one of the survivors, with all members named. You vouch that no server of the lost
    /// datacenters ever runs again with its data: they are refused for ever. The survivors form a new control
    /// group, and the parts that the lost ones owned return to their homes. The work that a lost datacenter
    /// acknowledged and sent to no survivor is lost; the report states from which time on, and `geolock
    /// audit` shows it again. Refused while a majority is up, a survivor is missing, or a lost one is heard.
    /// May be repeated.
    Recover {
        /// The ids of the datacenters that continue, such as 0,1, or their names
        #[arg(long, value_name = "DCS", value_parser = DcRef::parse, value_delimiter = ',', required = true)]
        survivors: Vec<DcRef>,
        /// The datacenters that are gone for good: all other members. Witnesses end in any case, and may be
        /// named
        #[arg(long, value_name = "DCS", value_parser = DcRef::parse, value_delimiter = ',', required = true)]
        confirm_lost: Vec<DcRef>,
        /// Confirm that all their clients have stopped: do not wait for the ends of their leases
        #[arg(long)]
        clients_are_dead: bool,
        /// Name the locks and counters that it concerned, too: at most 1000 of each kind
        #[arg(long)]
        list: bool,
        /// For programs: one JSON object; with `--list` a second one
        #[arg(long)]
        json: bool,
    },
    /// Show the homes of prefixes, or give the locks below a prefix of their names a home
    ///
    /// An unused lock with a home needs only that datacenter: its first use there is as fast as any other,
    /// and its first use elsewhere needs one round trip to the home. Locks that are in use stay where they
    /// are, and go to the new home when they are idle. A lock with a home of its own (`--home`) is not
    /// concerned. Prefixes with homes must not overlap. May be repeated.
    Home {
        /// The beginning of the names, as text [default: show all]
        #[arg(requires = "change")]
        prefix: Option<String>,
        /// The id or name of the datacenter that becomes the home
        #[arg(value_name = "DC", value_parser = DcRef::parse, group = "change")]
        dc: Option<DcRef>,
        /// The locks have no home any more
        #[arg(long, requires = "prefix", group = "change")]
        remove: bool,
        /// For programs: one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show or set the policies of evictions and joins
    ///
    /// With `--evict auto` a datacenter that a majority of the voters has not heard for `--evict-after` is
    /// evicted without an operator; before that it has stopped granting, because no majority acknowledged its
    /// heartbeats for `--fence-after`. This relies on the rates of the clocks of the servers, which may
    /// differ by at most 1.5 %, and on clocks that do not stand still while a machine is suspended.
    Policy {
        /// When a silent datacenter is evicted: never, by an operator, or also by time
        #[arg(long, value_name = "WHEN")]
        evict: Option<Evict>,
        /// The servers that may join: those that an operator has invited, or all with a certificate
        #[arg(long, value_name = "SERVERS")]
        join: Option<Join>,
        /// The same for servers that join with the id of a datacenter that was evicted. With `auto`, a server
        /// that learns that it was evicted joins again automatically
        #[arg(long, value_name = "SERVERS")]
        rejoin: Option<Join>,
        /// A datacenter that is not acknowledged for this long grants nothing (1 s to 1 h) [initially 10 s]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        fence_after: Option<Duration>,
        /// A datacenter that is not heard for this long is evicted: at least 1.04 times `--fence-after` and
        /// `--max-lease-ttl` together, plus 1 s [initially 30 s]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        evict_after: Option<Duration>,
        /// Longest time to live of a lease (1 s to 1 h) [initially 15 s]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        max_lease_ttl: Option<Duration>,
        /// For programs: one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub async fn run(args: MemberArgs) -> Result<(), Failure> {
    let admin = args.connect.admin_client().await?;
    match args.command {
        MemberCommand::List { json: as_json } => {
            let list = admin.members().await.map_err(connect::failure)?;
            if as_json { print(json(&list)) } else { print(text(&list)) }
        }
        MemberCommand::Add { name, cancel: true, .. } => add::cancel(&admin, &name).await,
        MemberCommand::Add { name, sponsor, .. } => {
            add::add(&admin, &name, optional(sponsor, &admin).await?).await
        }
        MemberCommand::Remove { dc, wait, cancel, yes } => {
            let dc = one(&dc, &admin).await?;
            remove(&admin, Removal { dc, wait, cancel, yes }).await
        }
        MemberCommand::Evict { dcs, confirm_dead: _, clients_are_dead, list } => {
            let dcs = of_members(&dcs, &admin).await?;
            evict(&admin, &dcs, clients_are_dead).await?;
            let mut ids: Vec<u32> = dcs.iter().map(|dc| dc.get().into()).collect();
            ids.sort_unstable();
            if list { fallen::show(&admin, &ids, false).await } else { Ok(()) }
        }
        MemberCommand::Replace { dc, confirm_dead: _, clients_are_dead } => {
            replace(&admin, one(&dc, &admin).await?, clients_are_dead).await
        }
        MemberCommand::Recover { survivors, confirm_lost, clients_are_dead, list, json } => {
            let survivors = of_members(&survivors, &admin).await?;
            let lost = of_members(&confirm_lost, &admin).await?;
            recover(&admin, Recover { survivors, lost, clients_are_dead, list, json }).await
        }
        MemberCommand::Home { prefix: None, json, .. } => homes::show(&admin, json).await,
        MemberCommand::Home { prefix: Some(prefix), dc, remove: _, json } => {
            homes::set(&admin, &prefix, optional(dc, &admin).await?, json).await
        }
        MemberCommand::Policy { evict, join, rejoin, fence_after, evict_after, max_lease_ttl, json } => {
            let asked = MemberPolicy {
                evict: evict.map(|evict| evict_policy(evict).into()),
                join: join.map(|join| join_policy(join).into()),
                rejoin: rejoin.map(|join| join_policy(join).into()),
                fence_after_ms: fence_after.map(millis),
                evict_after_ms: evict_after.map(millis),
                max_lease_ttl_ms: max_lease_ttl.map(millis),
            };
            policy(&admin, asked, json).await
        }
    }
}

/// Returns the id of the datacenter.
async fn one(dc: &DcRef, admin: &AdminClient) -> Result<DcId, Failure> {
    of_members(slice::from_ref(dc), admin).await.map(|ids| ids[0])
}

async fn optional(dc: Option<DcRef>, admin: &AdminClient) -> Result<Option<DcId>, Failure> {
    match dc {
        Some(dc) => one(&dc, admin).await.map(Some),
        None => Ok(None),
    }
}

/// How often to check if a datacenter has left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Says how long is waited for the clients of datacenters that are lost.
pub(super) fn clients_rely(names: &str, wait: Duration) -> String {
    let why = match wait >= MAX_LEASE_TTL {
        true => {
            " (no server that runs may know `limits.max_lease_ttl` of all of them; see `--clients-are-dead`)"
        }
        false => "",
    };
    let seconds = wait.as_secs_f64();
    format!("Clients of {names} may rely on their locks for {seconds:.0} s more{why}: waiting.")
}

const NO_LIST: &str = "The cluster has no list of decisions yet: that needs all its members, running this release. \
                       Until then the members are those of the configuration.";
const COLUMNS: [&str; 10] =
    ["DC", "NAME", "ADDRESS", "GENERATION", "PHASE", "VOTES", "EPOCH", "HEARD", "LOCKS", "WAITING"];

fn text(list: &ListMembersResponse) -> String {
    if list.members.is_empty() {
        return NO_LIST.into();
    }
    let header = COLUMNS.map(String::from).to_vec();
    let rows: Vec<_> =
        [header].into_iter().chain(list.members.iter().map(|member| cells(member, list))).collect();
    let leader = match list.leader {
        Some(leader) => format!("led by dc{leader}"),
        None => "no leader is known here: nothing can be decided now".into(),
    };
    let mut text = format!("{}\nDecision {}, epoch {}, {leader}.", table(&rows), list.decision, list.epoch);
    match list.backed_for_ms {
        Some(0) => {
            text += "\nNo majority backs the answering datacenter: it grants nothing, and may be evicted."
        }
        Some(ms) => {
            let backed = brief(Duration::from_millis(ms));
            text += &format!("\nA majority backs the answering datacenter for {backed} more.");
        }
        None => {}
    }
    for member in list.members.iter().filter(|member| !member.heard) {
        if let Some(at_stake) = &member.at_stake {
            text += &format!("\n{}", lost(member, at_stake, list));
        }
    }
    policy::not_timed(list).into_iter().for_each(|line| text += &format!("\n{line}"));
    for witness in &list.witnesses {
        let Witness { dc, name, address, .. } = witness;
        text += &format!("\nWitness dc{dc}: {name} at {address}, {}.", witnesses::state(witness));
    }
    if !list.former_voters.is_empty() {
        let gone = names(&list.former_voters);
        text += &format!(
            "\nStill counted as voters, although gone: {gone}. If another one is lost now, the rest may be no majority."
        );
    }
    if !list.missing_reports.is_empty() {
        text += &format!("\nThe eviction waits for the report of {}.", names(&list.missing_reports));
    }
    for invited in &list.invitations {
        let sponsor = invited.sponsor.map(|dc| format!(", sponsored by dc{dc}")).unwrap_or_default();
        text += &format!("\nInvited: {}{sponsor}.", invited.name);
    }
    text
}

/// Returns the consequences while a member is down, and the price of its eviction.
fn lost(member: &Member, at_stake: &AtStake, list: &ListMembersResponse) -> String {
    at_stake::about_lost(&format!("dc{}", member.dc), at_stake, list.waiting_is_least)
}

fn cells(member: &Member, list: &ListMembersResponse) -> Vec<String> {
    let at_stake = member.at_stake.unwrap_or_default();
    vec![
        format!("dc{}", member.dc),
        member.name.clone(),
        member.address.clone(),
        member.generation.to_string(),
        phase(member).into(),
        if member.votes { "yes" } else { "no" }.into(),
        member.entered_epoch.to_string(),
        heard(member, &at_stake),
        at_stake.away_locks.to_string(),
        at_stake::waiting(&at_stake, list.waiting_is_least),
    ]
}

fn heard(member: &Member, at_stake: &AtStake) -> String {
    match (member.heard, &member.silent[..]) {
        (true, []) => "yes".into(),
        (false, []) => at_stake::heard(at_stake).map_or_else(|| "no".into(), |ago| format!("{ago} ago")),
        (_, silent) => format!("not by {}", names(silent)),
    }
}

fn names(dcs: &[u32]) -> String {
    dcs.iter().map(|dc| format!("dc{dc}")).collect::<Vec<_>>().join(", ")
}

fn phase(member: &Member) -> &'static str {
    match member.phase() {
        MemberPhase::Unspecified => "unknown",
        MemberPhase::Joining => "joining",
        MemberPhase::Member => "member",
        MemberPhase::Leaving => "leaving",
        MemberPhase::Evicting => "evicting",
    }
}

fn json(list: &ListMembersResponse) -> Value {
    let member = |member: &Member| {
        json!({
            "dc": member.dc,
            "name": member.name,
            "address": member.address,
            "generation": member.generation,
            "phase": phase(member),
            "votes": member.votes,
            "entered_epoch": number(member.entered_epoch),
            "timed_since": member.timed_since,
            "heard": member.heard,
            "silent": member.silent,
            "at_stake": at_stake::json(member.at_stake.as_ref()),
        })
    };
    let invited = |it: &geolock_api::proto::Invitation| json!({ "name": it.name, "sponsor": it.sponsor });
    let ended = |it: &EndedMember| {
        let how = end_cause(it.cause());
        json!({ "dc": it.dc, "generation": it.generation, "last_entry": number(it.last_entry), "end": how })
    };
    json!({
        "members": list.members.iter().map(member).collect::<Vec<_>>(),
        "witnesses": list.witnesses.iter().map(witnesses::json).collect::<Vec<_>>(),
        "decision": number(list.decision),
        "epoch": number(list.epoch),
        "invitations": list.invitations.iter().map(invited).collect::<Vec<_>>(),
        "leader": list.leader,
        "missing_reports": list.missing_reports,
        "backed_for_ms": list.backed_for_ms,
        "waiting_is_least": list.waiting_is_least,
        "evictions_left": list.evictions_left,
        "former_voters": list.former_voters,
        "ended": list.ended.iter().map(ended).collect::<Vec<_>>(),
    })
}

/// Returns how a member ended, for programs.
pub fn end_cause(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Left => "left",
        EndCause::Lost => "lost",
        EndCause::Evicted | EndCause::Unspecified => "evicted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(dc: u32, phase: MemberPhase) -> Member {
        Member {
            dc,
            name: format!("city{dc}"),
            address: format!("city{dc}:7401"),
            phase: phase.into(),
            votes: dc == 0,
            entered_epoch: 3,
            heard: dc == 0,
            at_stake: Some(AtStake { away_locks: 412, waiting: 3, ..AtStake::default() }),
            ..Member::default()
        }
    }

    #[test]
    fn the_table_has_all_columns_and_says_who_leads() {
        let members = vec![member(0, MemberPhase::Member), member(2, MemberPhase::Joining)];
        let mut list =
            ListMembersResponse { members, decision: 4, epoch: 3, leader: Some(0), ..Default::default() };
        let shown = "\
DC   NAME   ADDRESS     GENERATION  PHASE    VOTES  EPOCH  HEARD  LOCKS  WAITING
dc0  city0  city0:7401  0           member   yes    3      yes    412    3
dc2  city2  city2:7401  0           joining  no     3      no     412    3
Decision 4, epoch 3, led by dc0.
dc2 was not heard since this server started: 412 locks have parts there, and 3 requests wait for it. An eviction frees them, and loses the work that dc2 has acknowledged since then and sent to no other datacenter.";
        assert_eq!(text(&list), shown);
        let dc2 = list.members[1].at_stake.as_mut().expect("it has one");
        dc2.heard_ms = Some(12_500);
        list.backed_for_ms = Some(9_200);
        let shown = text(&list);
        assert!(
            shown.contains("3      12.5 s ago  412    3\n") && shown.contains("datacenter for 9.2 s more"),
            "{shown}"
        );
        assert_eq!(json(&list)["members"][1]["at_stake"]["heard_ms"], 12_500);
        (list.members[1].heard, list.backed_for_ms) = (true, None);
        assert_eq!(json(&list)["members"][1]["phase"], "joining");
        list.members[1].silent = vec![0, 1];
        list.missing_reports = vec![1];
        assert!(text(&list).contains("3      not by dc0, dc1  412    3\n"), "{}", text(&list));
        assert!(text(&list).ends_with("led by dc0.\nThe eviction waits for the report of dc1."));
        list.missing_reports.clear();
        let mut witness = Witness {
            dc: 9,
            name: "wit".into(),
            address: "wit:7401".into(),
            votes: true,
            heard: true,
            heard_ms: Some(300),
        };
        list.witnesses = vec![witness.clone()];
        assert!(text(&list).ends_with("led by dc0.\nWitness dc9: wit at wit:7401, votes, heard."));
        (witness.heard, witness.votes, witness.heard_ms) = (false, false, Some(12_500));
        list.witnesses = vec![witness];
        assert!(text(&list).ends_with("wit:7401, does not vote yet, last heard 12.5 s ago."));
        assert_eq!(json(&list)["witnesses"][0]["heard_ms"], 12_500);
        list.witnesses.clear();
        list.leader = None;
        assert!(text(&list).ends_with("nothing can be decided now."));
        assert!(text(&ListMembersResponse::default()).contains("no list of decisions"));
    }
}
