//! The list of decisions begins with the members of the configuration.

use crate::evicting::evict;
use crate::fixture::backup::SHORT_LEASES;
use crate::fixture::calls::acquire;
use crate::fixture::history::serving_at;
use crate::fixture::{lock, servers};
use crate::growth::{AUTO, all_settled, listed, prepared};
use geolock::client::AcquireRequest;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn three_members_found_it_and_all_of_them_learn_the_decisions() {
    let (mut cluster, clients) = servers(3).quick().serving().await;
    for dc in 0..3 {
        let list = listed(&cluster, dc, "a list with three members", |list| all_settled(list, 3));
        assert_eq!((&list["decision"], &list["epoch"]), (&1.into(), &0.into()));
        assert_eq!(list["members"][2]["name"], "city2");
        assert!(list["leader"].is_u64(), "{list}");
    }
    drop(clients);
    // Two of three go on with it, and lock as before.
    cluster.kill(0);
    let list = listed(&cluster, 1, "another leader", |list| list["leader"].as_u64().is_some_and(|dc| dc > 0));
    assert_eq!(list["decision"], 1);
    cluster.restart(0);
    let client = serving_at(&cluster, 0).await;
    let guard = acquire(&client, AcquireRequest::exclusive(lock("a"))).await;
    guard.release().await.expect("it was held");
    listed(&cluster, 0, "the same list after a restart", |list| all_settled(list, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_not_complete_serve_without_it() {
    let mut cluster = servers(2).quick().prepared();
    cluster.restart(0);
    let list = listed(&cluster, 0, "an empty list", |list| list["members"] == serde_json::json!([]));
    assert!(list["leader"].is_null());
    cluster.restart(1);
    listed(&cluster, 0, "a list with both", |list| all_settled(list, 2));
    listed(&cluster, 1, "a list with both", |list| all_settled(list, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_lost_its_disk_serves_again_without_a_vote() {
    let (mut cluster, clients) = servers(3).quick().with(SHORT_LEASES).serving().await;
    listed(&cluster, 0, "a list with three members", |list| all_settled(list, 3));
    let guard = acquire(&clients[2], AcquireRequest::exclusive(lock("moved"))).await;
    let token = guard.token();
    guard.release().await.expect("it was held");
    drop(clients);
    cluster.kill(2);
    std::fs::remove_dir_all(cluster.data_dir(2)).expect("it is there");
    cluster.launch(2);
    cluster.server(2).says("OtherDirectory");
    let client = serving_at(&cluster, 2).await;
    let guard = acquire(&client, AcquireRequest::exclusive(lock("moved"))).await;
    assert!(guard.token() > token);
    listed(&cluster, 2, "the list, from the others", |list| list["decision"] == 1);
}

/// An eviction needs a promise of all that stay, with a vote or without.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_lost_its_disk_takes_part_in_an_eviction() {
    let (mut cluster, clients) = servers(5).quick().with(SHORT_LEASES).serving().await;
    listed(&cluster, 4, "a list with five members", |list| all_settled(list, 5));
    drop(clients);
    cluster.kill(4);
    std::fs::remove_dir_all(cluster.data_dir(4)).expect("it is there");
    cluster.launch(4);
    cluster.server(4).says("OtherDirectory");
    serving_at(&cluster, 4).await;
    cluster.kill(3);
    let said = evict(&cluster, 0, "3");
    assert_eq!(said.code, 0, "{said:?}");
    let is_out = |list: &Value| list["members"].as_array().is_some_and(|rows| rows.len() == 4);
    listed(&cluster, 4, "four members", is_out);
    let client = serving_at(&cluster, 4).await;
    let guard = acquire(&client, AcquireRequest::exclusive(lock("a"))).await;
    guard.release().await.expect("it was held");
}

/// Seven of them vote, those with the lowest ids; the others follow, and one of them gets the vote of a voter
/// that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn nine_members_found_it_and_seven_of_them_vote() {
    let (mut cluster, clients) = servers(9).quick().serving().await;
    let voters = |list: &Value| {
        let rows = list["members"].as_array().expect("a list");
        assert!(rows.iter().all(|row| row["phase"] == "member"), "{list}");
        let voters = rows.iter().filter(|row| row["votes"] == true).map(|row| row["dc"].as_u64());
        (rows.len(), voters.collect::<Option<Vec<_>>>().expect("numbers"))
    };
    for dc in 0..9 {
        listed(&cluster, dc, "nine members", |list| voters(list) == (9, (0..7).collect()));
    }
    drop(clients);
    // A directory that is lost is told so, and taken in again: no vote was lost with it.
    cluster.kill(8);
    std::fs::remove_dir_all(cluster.data_dir(8)).expect("it is there");
    cluster.launch(8);
    cluster.server(8).says("OtherDirectory");
    serving_at(&cluster, 8).await;
    let taken_in = |list: &Value| list["leader"].is_u64() && list["decision"] == 1;
    listed(&cluster, 8, "the list, as one of the group", taken_in);
    cluster.kill(3);
    let said = evict(&cluster, 0, "3");
    assert_eq!(said.code, 0, "{said:?}");
    for dc in [0, 7] {
        listed(&cluster, dc, "eight members", |list| voters(list) == (8, vec![0, 1, 2, 4, 5, 6, 7]));
    }
    let client = serving_at(&cluster, 7).await;
    let guard = acquire(&client, AcquireRequest::exclusive(lock("a"))).await;
    guard.release().await.expect("it was held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_founder_serves_at_once() {
    let mut cluster = prepared(AUTO);
    cluster.launch(0);
    cluster.server(0).line("listening");
    let client = cluster.client(0).await;
    let guard = acquire(&client, AcquireRequest::exclusive(lock("first"))).await;
    guard.release().await.expect("it was held");
    listed(&cluster, 0, "a list with one member", |list| all_settled(list, 1));
}
