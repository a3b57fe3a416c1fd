//! Two datacenters and a witness: one of the three is lost.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use serde_json::Value;

use crate::evicting::evict;
use crate::fixture::calls::acquire;
use crate::fixture::history::serving_at;
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, Output, Running, lock, until};
use crate::growth::{AUTO, INVITED, all_settled, joined, listed, prepared_with};
use crate::leaving::token;
use geolock::client::{AcquireRequest, Client};

/// Tables of all: leases are short enough from the start.
const SHORT: &str = "[limits]\nmax_lease_ttl = \"10 s\"\n";

/// The id of the witness.
const WITNESS: u8 = 2;

/// Returns true if the control group counts the vote of the witness, and it is heard.
fn has_witness(list: &Value) -> bool {
    let witness = &list["witnesses"][0];
    witness["dc"] == WITNESS && witness["votes"] == true && witness["heard"] == true
}

fn launch_witness(cluster: &mut Cluster) {
    cluster.servers[usize::from(WITNESS)] = None;
    let running = Running::start(&mut cluster.command_of_server(WITNESS, "witness"), Output::Stderr);
    cluster.servers[usize::from(WITNESS)] = Some(running);
}

/// Runs a witness that is refused, to its end.
fn refused(cluster: &Cluster, more: &[&str]) -> Said {
    run(cluster.command_of_server(WITNESS, "witness").args(more))
}

/// Two datacenters and a witness, and a client of each datacenter.
async fn two_and_a_witness() -> (Cluster, Vec<Client>) {
    let mut cluster = prepared_with(&[AUTO, SHORT].concat(), SHORT);
    cluster.launch(0);
    cluster.server(0).line("listening");
    let mut clients = vec![serving_at(&cluster, 0).await];
    clients.push(joined(&mut cluster, 1).await);
    listed(&cluster, 0, "two settled members", |list| all_settled(list, 2));
    launch_witness(&mut cluster);
    cluster.server(WITNESS).line("listening, as a witness");
    for dc in 0..2 {
        listed(&cluster, dc, "a witness that votes", |list| has_witness(list) && all_settled(list, 2));
    }
    (cluster, clients)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_that_is_lost_is_evicted_and_returns() {
    let (mut cluster, mut clients) = two_and_a_witness().await;
    let said = run(&mut cluster.command(0, ["member", "policy", "--rejoin", "auto"]));
    assert_eq!(said.code, 0, "{said:?}");
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let before = token(&clients[1], "used there").await;
    let said = evict(&cluster, 0, "1");
    assert!(
        said.code != 0 && said.stderr.contains("hears dc1: it runs, or was stopped a moment ago"),
        "{said:?}"
    );
    cluster.kill(1);
    drop(clients.pop());
    until("nobody hears it any more, and it is evicted", || {
        (evict(&cluster, 0, "dc1").code == 0).then_some(())
    });
    listed(&cluster, 0, "one settled member", |list| all_settled(list, 1) && has_witness(list));
    for name in ["used there", "never used"] {
        let after = token(&clients[0], name).await;
        assert!(after > before && after >> 54 == 17, "{name}: {after} is above all tokens of before");
    }
    // With an empty disk; else it would learn of its eviction first.
    std::fs::remove_dir_all(cluster.data_dir(1)).expect("nobody uses it");
    let second = joined(&mut cluster, 1).await;
    for dc in 0..2 {
        let list = listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
        assert_eq!(list["members"][1]["generation"], 1);
    }
    assert_eq!(held.is_lost(), None, "nobody lost a lock");
    assert!(token(&second, "used there").await > before);
}

/// It could neither go, without the other one, nor evict it, because then nobody would stay.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaves_stays_and_evicts_the_only_other_one_that_is_lost() {
    let (mut cluster, mut clients) = two_and_a_witness().await;
    let held = acquire(&clients[1], AcquireRequest::exclusive(lock("held"))).await;
    let cancel = |cluster: &Cluster, at| run(&mut cluster.command(at, ["member", "remove", "1", "--cancel"]));
    let said = cancel(&cluster, 1);
    assert!(said.code != 0 && said.stderr.contains("dc1 is not leaving"), "{said:?}");
    let said = run(&mut cluster.command(1, ["member", "remove", "1"]));
    assert_eq!(said.code, 0, "{said:?}");
    for dc in 0..2 {
        listed(&cluster, dc, "dc1 leaves", |list| list["members"][1]["phase"] == "leaving");
    }
    let said = cancel(&cluster, 0);
    assert!(said.code != 0 && said.stderr.contains("only dc1 itself can take its leave back"), "{said:?}");
    cluster.kill(0);
    drop(clients.remove(0));
    until("nobody hears dc0 any more, and it is needed", || {
        evict(&cluster, 1, "0").stderr.contains("no member would remain").then_some(())
    });
    assert_eq!(held.is_lost(), None);
    let said = until("the control group has a leader, and it stays", || {
        let said = cancel(&cluster, 1);
        (said.code == 0).then_some(said)
    });
    assert!(said.stdout.starts_with("dc1 stays (decision "), "{said:?}");
    assert_eq!(cancel(&cluster, 1).stdout, said.stdout, "it is so already");
    let evicted = until("dc0 is evicted", || {
        let said = evict(&cluster, 1, "0");
        (said.code == 0).then_some(said)
    });
    assert!(evicted.stdout.contains("dc0 evicted"), "{evicted:?}");
    let audit = run(&mut cluster.command(1, ["audit"]));
    assert!(audit.stdout.contains("dc1 stays: its leave is cancelled"), "{audit:?}");
    held.release().await.expect("it was held");
    for name in ["held", "never used"] {
        token(&clients[0], name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_that_is_killed_is_evicted_by_time() {
    let (mut cluster, mut clients) = two_and_a_witness().await;
    let times = ["--fence-after", "3s", "--evict-after", "15s", "--max-lease-ttl", "10s"];
    let said = run(&mut cluster.command(0, [&["member", "policy", "--evict", "auto"], &times[..]].concat()));
    assert_eq!(said.code, 0, "{said:?}");
    for dc in 0..2 {
        listed(&cluster, dc, "the policy is entered by all", |list| all_settled(list, 2));
    }
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let before = token(&clients[1], "used there").await;
    cluster.kill(1);
    drop(clients.pop());
    for name in ["used there", "never used"] {
        let after = token(&clients[0], name).await;
        assert!(after > before && after >> 54 == 17, "{name}: {after} is above all tokens of before");
    }
    assert_eq!(held.is_lost(), None, "the witness backs the other one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_that_is_killed_and_started_again_meanwhile_completes_an_eviction() {
    let (mut cluster, mut clients) = two_and_a_witness().await;
    let before = token(&clients[1], "used there").await;
    cluster.kill(1);
    drop(clients.pop());
    cluster.kill(WITNESS);
    let said = evict(&cluster, 0, "1");
    assert_ne!(said.code, 0, "without the witness nothing is decided: {said:?}");
    for last_words in ["recovered, as a witness", "listening, as a witness", "link up"] {
        launch_witness(&mut cluster);
        let asked = ["member", "evict", "1", "--confirm-dead", "--clients-are-dead"];
        let mut evicting = Running::start(&mut cluster.command(0, asked), Output::Stderr);
        cluster.server(WITNESS).line(last_words);
        cluster.kill(WITNESS);
        let _code = evicting.wait();
    }
    launch_witness(&mut cluster);
    until("it is evicted", || (evict(&cluster, 0, "dc1").code == 0).then_some(()));
    assert!(token(&clients[0], "used there").await > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_is_not_removed_and_nobody_leaves_while_its_vote_is_the_second_of_two() {
    let (mut cluster, mut clients) = two_and_a_witness().await;
    cluster.kill(1);
    drop(clients.pop());
    until("dc1 is not heard", || (evict_is_possible(&cluster)).then_some(()));
    let said = run(&mut cluster.command(0, ["member", "remove", "2"]));
    assert!(said.code != 0 && said.stderr.contains("1 of 2 voters that a decision needs"), "{said:?}");
    listed(&cluster, 0, "the witness votes", has_witness);
    let survivors = ["member", "recover", "--survivors", "0", "--confirm-lost", "1", "--clients-are-dead"];
    let said = run(&mut cluster.command(0, survivors));
    assert!(said.code != 0 && said.stderr.contains("2 votes, and 2 are a majority"), "{said:?}");
    assert_eq!(evict(&cluster, 0, "1").code, 0, "it still can be evicted");
    token(&clients[0], "goes on").await;
}

/// Returns true if no member and no witness hears dc1.
fn evict_is_possible(cluster: &Cluster) -> bool {
    let list = listed(cluster, 0, "a list", |_| true);
    list["members"][1]["heard"] == false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_witness_is_lost_goes_on_alone() {
    let mut cluster = prepared_with(&[AUTO, SHORT].concat(), SHORT);
    cluster.launch(0);
    cluster.server(0).line("listening");
    let client = serving_at(&cluster, 0).await;
    cluster.write_joiner(WITNESS, cluster.quic_address(0), "city2", SHORT);
    launch_witness(&mut cluster);
    cluster.server(WITNESS).line("listening, as a witness");
    listed(&cluster, 0, "a witness that votes", has_witness);
    let recover = ["member", "recover", "--survivors", "0", "--confirm-lost", "2"];
    let said = run(&mut cluster.command(0, recover));
    assert!(said.code != 0 && said.stderr.contains("it runs, or was stopped a moment ago"), "{said:?}");
    cluster.kill(WITNESS);
    let list = listed(&cluster, 0, "it is not heard", |list| list["witnesses"][0]["heard"] == false);
    assert!(list["witnesses"][0]["heard_ms"].as_u64() > Some(0), "{list}");
    let said = run(&mut cluster.command(0, ["status"]));
    assert!(said.stdout.contains("! witness dc2 (city2) is unreachable, last heard "), "{said:?}");
    let said = run(&mut cluster.command(0, recover));
    assert!(said.code == 0 && said.stdout.contains("dc0 without a witness"), "{said:?}");
    listed(&cluster, 0, "no witness", |list| list["witnesses"] == serde_json::json!([]));
    token(&client, "goes on").await;
    launch_witness(&mut cluster);
    cluster.server(WITNESS).line("this witness was removed from the cluster: stopping");
    assert_eq!(cluster.server(WITNESS).wait(), 0);
    let said = run(&mut cluster.command(0, ["member", "add", "city3"]));
    assert_eq!(said.code, 0, "it decides alone: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_named_and_a_witness_that_is_removed_stops() {
    let mut cluster = prepared_with(INVITED, "");
    cluster.launch(0);
    cluster.server(0).line("listening");
    listed(&cluster, 0, "one settled member", |list| all_settled(list, 1));
    let said = refused(&cluster, &["--join", &cluster.quic_address(0).to_string(), "--check-config"]);
    assert!(said.stdout.contains("witness 2 (city2) of cluster test"), "{said:?}");
    let at = cluster.quic_address(0).to_string();
    let said = refused(&cluster, &["--join", &at]);
    assert!(said.code != 0 && said.stderr.contains("geolock member add city2"), "{said:?}");
    let said = refused(&cluster, &["--join", &at, "--name", "city0"]);
    assert!(said.code != 0 && said.stderr.contains("the name city0 is used"), "{said:?}");
    let said = refused(&cluster, &["--join", ""]);
    assert!(said.code != 0, "{said:?}");
    // The certificate of a member.
    let member = cluster.dir().join("dc0");
    let said = refused(&cluster, &["--join", &at, "--name", "other", "--tls-dc", &member.to_string_lossy()]);
    assert!(said.code != 0 && said.stderr.contains("dc0"), "{said:?}");
    assert_eq!(listed(&cluster, 0, "a list", |_| true)["decision"], 1, "nothing was decided");

    let said = run(&mut cluster.command(0, ["member", "add", "city2"]));
    assert_eq!(said.code, 0, "{said:?}");
    cluster.write_joiner(WITNESS, cluster.quic_address(0), "city2", "");
    launch_witness(&mut cluster);
    cluster.server(WITNESS).line("listening, as a witness");
    listed(&cluster, 0, "a witness that votes", has_witness);
    let said = run(&mut cluster.command(0, ["member", "list"]));
    assert!(said.stdout.contains("Witness dc2: city2 at "), "{said:?}");
    cluster.kill(WITNESS);
    let said = run(&mut cluster.server_command(WITNESS));
    assert!(said.code != 0 && said.stderr.contains("run `geolock witness`"), "{said:?}");
    launch_witness(&mut cluster);
    cluster.server(WITNESS).line("listening, as a witness");

    until("it is removed", || {
        (run(&mut cluster.command(0, ["member", "remove", "2"])).code == 0).then_some(())
    });
    cluster.server(WITNESS).line("this witness was removed from the cluster: stopping");
    assert_eq!(cluster.server(WITNESS).wait(), 0);
    let said = run(&mut cluster.command(0, ["member", "remove", "2"]));
    assert_eq!(said.code, 0, "it may be repeated: {said:?}");
    listed(&cluster, 0, "no witness", |list| list["witnesses"] == serde_json::json!([]));
    // Its directory, started again, and an empty one: the id is not used again.
    launch_witness(&mut cluster);
    cluster.server(WITNESS).line("this witness was removed from the cluster: stopping");
    assert_eq!(cluster.server(WITNESS).wait(), 0);
    std::fs::remove_dir_all(cluster.data_dir(WITNESS)).expect("nobody uses it");
    let said = run(&mut cluster.command(0, ["member", "add", "city2"]));
    assert_eq!(said.code, 0, "{said:?}");
    let said = refused(&cluster, &[]);
    assert!(said.code != 0 && said.stderr.contains("is or was the id of a witness"), "{said:?}");
    let client = serving_at(&cluster, 0).await;
    token(&client, "still works").await;
}
