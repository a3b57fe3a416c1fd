//! As many rules as there may be, each as long as it may be, and a thousand decisions: the control group goes
//! on, servers start again from its snapshots, and another one joins.

use crate::fixture::growth::prepared_with;
use crate::fixture::within;
use crate::growth::{all_settled, joined, listed};
use crate::leaving::token;
use geolock::client::{AdminClient, ClientError, Reason};
use geolock_api::proto::{EvictPolicy, MemberPolicy};

/// Rules of homes: the most that there may be, with the longest prefixes.
const RULES: usize = 256;
const PREFIX: usize = 1_024;
const DECISIONS: u64 = 1_000;
/// Decisions before the rules: with all of them, each takes a debug build long.
const BEFORE: u64 = 650;

fn prefix(n: usize) -> Vec<u8> {
    format!("{n:0>PREFIX$}").into_bytes()
}

/// The members hear each other often: each rule waits until all have entered the one before.
const BUSY: &str =
    "[cluster]\nheartbeat_interval = \"20 ms\"\npeer_timeout = \"1 s\"\njoin_policy = \"auto\"\n";

/// Sets one policy after the other up to this decision. Returns the last one.
async fn decided(admin: &AdminClient, until: u64) -> u64 {
    let mut decision = 0;
    for turn in [EvictPolicy::Operator, EvictPolicy::Wait].into_iter().cycle() {
        if decision >= until {
            break;
        }
        let policy = MemberPolicy { evict: Some(turn.into()), ..MemberPolicy::default() };
        decision = admin.set_policy(policy).await.expect("it is decided");
    }
    decision
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_decisions_and_all_the_rules_that_fit_stop_nothing() {
    let mut cluster = prepared_with(BUSY, "[cluster]\nheartbeat_interval = \"20 ms\"\n");
    cluster.launch(0);
    cluster.server(0).line("listening");
    joined(&mut cluster, 1).await;
    let admin = within(AdminClient::connect(cluster.client_config(0))).await.expect("it is up");
    decided(&admin, BEFORE).await;
    for n in 0..RULES {
        admin.set_home(&prefix(n), Some((n % 2) as u32)).await.expect("there is room");
    }
    let before = admin.members().await.expect("it is up");
    match admin.set_home(&prefix(RULES), Some(0)).await {
        Err(ClientError::Refused(Reason::MembersUnchanged, why)) => {
            assert!(why.contains("256 rules"), "{why}")
        }
        other => panic!("one more was {other:?}"),
    }
    let after = admin.members().await.expect("it is up");
    assert_eq!((after.homes.len(), &after.homes), (RULES, &before.homes), "nothing has changed");
    let decision = decided(&admin, DECISIONS).await;
    for dc in 0..2 {
        cluster.kill(dc);
    }
    cluster.restart(0);
    cluster.restart(1);
    let third = joined(&mut cluster, 2).await;
    for dc in 0..3 {
        let list = listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
        assert!(list["decision"].as_u64() >= Some(decision), "{decision} was acknowledged");
        let admin = within(AdminClient::connect(cluster.client_config(dc))).await.expect("it is up");
        assert_eq!(admin.members().await.expect("it is up").homes, before.homes, "dc{dc}");
    }
    token(&third, "granted there").await;
}
