//! `geolock member policy`: shows or sets the policies of evictions and joins.

use std::time::Duration;

use geolock_client::AdminClient;
use serde_json::{Value, json};

use super::{NO_LIST, names};
use crate::base::time::brief;
use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::{number, print, table};
use geolock_api::proto::{EvictPolicy, JoinPolicy, ListMembersResponse, Member, MemberPolicy};

/// When a datacenter is evicted.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum Evict {
    /// Never
    Wait,
    /// By an operator
    Operator,
    /// Also when a majority of the voters does not hear it
    Auto,
}

/// The servers that may join.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum Join {
    /// Servers that an operator has invited
    Operator,
    /// All servers with a certificate of the cluster
    Auto,
}

/// Sets the given values, or shows the policy.
pub(super) async fn policy(admin: &AdminClient, asked: MemberPolicy, json: bool) -> Result<(), Failure> {
    if asked != MemberPolicy::default() {
        let decision = admin.set_policy(asked).await.map_err(connect::failure)?;
        if json {
            return print(json!({ "decision": number(decision) }));
        }
        print(format_args!("The policy is set (decision {decision})."))?;
        if let Ok(list) = admin.members().await {
            // The server that answers may not have entered the policy yet.
            let set = merged(list.policy.unwrap_or_default(), asked);
            lease_limit(&set).into_iter().chain(not_timed(&list)).try_for_each(print)?;
        }
        return Ok(());
    }
    let list = admin.members().await.map_err(connect::failure)?;
    match list.policy {
        Some(policy) if json => print(policy_json(&policy)),
        Some(policy) => {
            print(policy_text(&policy))?;
            lease_limit(&policy).into_iter().chain(not_timed(&list)).try_for_each(print)
        }
        None => print(NO_LIST),
    }
}

/// Returns `now` with the values that `asked` has.
fn merged(now: MemberPolicy, asked: MemberPolicy) -> MemberPolicy {
    MemberPolicy {
        evict: asked.evict.or(now.evict),
        join: asked.join.or(now.join),
        rejoin: asked.rejoin.or(now.rejoin),
        fence_after_ms: asked.fence_after_ms.or(now.fence_after_ms),
        evict_after_ms: asked.evict_after_ms.or(now.evict_after_ms),
        max_lease_ttl_ms: asked.max_lease_ttl_ms.or(now.max_lease_ttl_ms),
    }
}

/// Returns the meaning of the longest lease for clients, if the policy limits leases.
fn lease_limit(policy: &MemberPolicy) -> Option<String> {
    let limits = policy.evict() == EvictPolicy::Auto && policy.max_lease_ttl_ms.is_some();
    limits.then(|| {
        let longest = brief(Duration::from_millis(policy.max_lease_ttl_ms().into()));
        format!(
            "Leases live at most {longest}: a client that asks for longer (`--ttl`, `ClientConfig::ttl`) is refused; one \
             that asks for no time gets 10 s or this limit, whichever is shorter, and loses its locks after as long \
             without contact."
        )
    })
}

/// Returns the members that silence alone does not evict, although the policy is `auto`, and the reason: a
/// sentence each.
pub(super) fn not_timed(list: &ListMembersResponse) -> Vec<String> {
    let is_auto = list.policy.as_ref().map(MemberPolicy::evict) == Some(EvictPolicy::Auto);
    if !is_auto || list.members.len() < 2 {
        return Vec::new();
    }
    let named = |is_meant: &dyn Fn(&Member) -> bool| {
        let meant = list.members.iter().filter(|member| is_meant(member));
        names(&meant.map(|member| member.dc).collect::<Vec<_>>())
    };
    let late = named(&|it| it.timed_since.is_some_and(|since| it.entered_epoch < since));
    let needed = named(&|it| it.timed_since.is_none());
    let late = (!late.is_empty()).then(|| {
        format!(
            "Evict = auto does not apply yet to {late}: it begins in each datacenter when its longer leases are over. \
             Until then an eviction needs an operator."
        )
    });
    let needed = (!needed.is_empty())
        .then(|| format!("Evict = auto does not apply to {needed}: the other voters would be no majority."));
    late.into_iter().chain(needed).collect()
}

pub(super) fn evict_policy(evict: Evict) -> EvictPolicy {
    match evict {
        Evict::Wait => EvictPolicy::Wait,
        Evict::Operator => EvictPolicy::Operator,
        Evict::Auto => EvictPolicy::Auto,
    }
}

pub(super) fn join_policy(join: Join) -> JoinPolicy {
    match join {
        Join::Operator => JoinPolicy::Operator,
        Join::Auto => JoinPolicy::Auto,
    }
}

/// Saturates: the server refuses too long times.
pub(super) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn evict_name(policy: &MemberPolicy) -> &'static str {
    match policy.evict() {
        EvictPolicy::Unspecified => "unknown",
        EvictPolicy::Wait => "wait",
        EvictPolicy::Operator => "operator",
        EvictPolicy::Auto => "auto",
    }
}

fn join_name(join: JoinPolicy) -> &'static str {
    match join {
        JoinPolicy::Unspecified => "unknown",
        JoinPolicy::Operator => "operator",
        JoinPolicy::Auto => "auto",
    }
}

fn policy_text(policy: &MemberPolicy) -> String {
    let time = |ms: u32| brief(Duration::from_millis(ms.into()));
    let rows = [
        ("evict", evict_name(policy).to_owned()),
        ("join", join_name(policy.join()).to_owned()),
        ("rejoin", join_name(policy.rejoin()).to_owned()),
        ("fence after", time(policy.fence_after_ms())),
        ("evict after", time(policy.evict_after_ms())),
        ("longest lease", time(policy.max_lease_ttl_ms())),
    ];
    let rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
    let times = if policy.evict() == EvictPolicy::Auto { "" } else { "\nThe times count with evict = auto." };
    table(&rows) + times
}

fn policy_json(policy: &MemberPolicy) -> Value {
    json!({
        "evict": evict_name(policy),
        "join": join_name(policy.join()),
        "rejoin": join_name(policy.rejoin()),
        "fence_after_ms": policy.fence_after_ms(),
        "evict_after_ms": policy.evict_after_ms(),
        "max_lease_ttl_ms": policy.max_lease_ttl_ms(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_limits_leases_says_what_that_means_for_clients() {
        let ttl = |ms| MemberPolicy { max_lease_ttl_ms: Some(ms), ..Default::default() };
        let evict = |evict: EvictPolicy| MemberPolicy { evict: Some(evict.into()), ..ttl(15_000) };
        let said = lease_limit(&merged(evict(EvictPolicy::Auto), ttl(4_000))).expect("it limits leases");
        assert!(said.starts_with("Leases live at most 4.0 s: a client that asks for longer"), "{said}");
        assert_eq!(lease_limit(&merged(evict(EvictPolicy::Operator), ttl(4_000))), None);
    }

    #[test]
    fn members_that_time_alone_does_not_evict_are_named_with_the_reason() {
        let member =
            |dc, entered_epoch, timed_since| Member { dc, entered_epoch, timed_since, ..Member::default() };
        let policy =
            |evict: EvictPolicy| Some(MemberPolicy { evict: Some(evict.into()), ..Default::default() });
        let mut list = ListMembersResponse {
            members: vec![member(0, 5, Some(5)), member(1, 4, Some(5)), member(2, 5, None)],
            policy: policy(EvictPolicy::Auto),
            ..Default::default()
        };
        let said = not_timed(&list);
        assert!(said[0].starts_with("Evict = auto does not apply yet to dc1:"), "{said:?}");
        assert!(said[1].starts_with("Evict = auto does not apply to dc2:"), "{said:?}");
        list.policy = policy(EvictPolicy::Operator);
        assert!(not_timed(&list).is_empty());
        list.policy = policy(EvictPolicy::Auto);
        list.members = vec![member(2, 5, None)];
        assert!(not_timed(&list).is_empty(), "there is nobody else");
    }
}
