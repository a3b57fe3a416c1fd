//! Commands in words, for logs.

use std::fmt;

use super::command::{Command, Vouch};
use super::refused::Dcs;
use super::rules::PrefixRule;
use geolock_api::names::EntryNumber;

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Found(founding) => {
                let founders = founding.founders.iter().map(|founder| founder.dc).collect();
                write!(f, "the first members are {}", Dcs(founders))
            }
            Command::Invite { name, sponsor: None } => write!(f, "{name} may join"),
            Command::Invite { name, sponsor: Some(sponsor) } => {
                write!(f, "{name} may join, sponsored by {sponsor}")
            }
            Command::CancelInvitation { name } => write!(f, "{name} may not join any more"),
            Command::Admit(it) => {
                write!(f, "{} joins as {} at {}, sponsored by {}", it.dc, it.name, it.address, it.sponsor)
            }
            Command::Settled { dc, .. } => write!(f, "{dc} has joined"),
            Command::Begin(eviction) => {
                let why = match eviction.vouch {
                    Vouch::Operator => "as an operator demands",
                    Vouch::Silence => "since a majority hears nothing of it",
                    Vouch::Replacement => "since it is replaced",
                };
                write!(f, "the eviction of {} begins, {why}", Dcs(eviction.slots()))
            }
            Command::Have { attempt, by, .. } => write!(f, "{by} has promised eviction {attempt}"),
            Command::End { attempt } => write!(f, "eviction {attempt} ends"),
            Command::Abort { attempt } => write!(f, "eviction {attempt} is given up"),
            Command::Leaving { dc, .. } => write!(f, "{dc} leaves"),
            Command::CancelLeave { dc, .. } => write!(f, "{dc} stays: its leave is cancelled"),
            Command::Left { dc, cut, .. } => {
                write!(f, "{dc} has left with its entry {}", EntryNumber(*cut))
            }
            Command::Silent { mark, .. } => write!(f, "{} hears nothing of {}", mark.by, mark.of),
            Command::Heard { mark } => write!(f, "{} hears {} again", mark.by, mark.of),
            Command::SetPolicy(policy) => write!(f, "the policy is: {policy}"),
            Command::SetOptions(options) => write!(f, "the options of all members are: {options}"),
            Command::Version { version } => write!(f, "version {version} is used"),
            Command::AddWitness(it) => write!(f, "{} is a witness at {}", it.name, it.address),
            Command::RemoveWitness { id } => write!(f, "witness {id} is removed"),
            Command::Vote { dc, votes: true, .. } => write!(f, "{dc} votes"),
            Command::Vote { dc, votes: false, .. } => write!(f, "{dc} does not vote any more"),
            Command::SetRule { prefix, rule: PrefixRule { home: Some(home), .. } } => {
                write!(f, "the home of {prefix} is {home}")
            }
            Command::SetRule { prefix, rule } => write!(f, "the rule of {prefix} is {rule:?}"),
            Command::RemoveRule { prefix } => write!(f, "{prefix} has no rule any more"),
            Command::ConfirmDead { dc, .. } => write!(f, "an operator vouches that {dc} does not run"),
            Command::Recover(recovery) => {
                let survivors = recovery.survivors.iter().map(|(dc, _)| *dc).collect();
                write!(f, "forced recovery: the members are {}", Dcs(survivors))
            }
        }
    }
}
