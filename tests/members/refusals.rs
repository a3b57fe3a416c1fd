//! Servers that cannot join, and are told why. Nothing is changed then.

use std::fs;

use geolock::pki;
use geolock_api::names::DcId;

use crate::fixture::history::serving_at;
use crate::fixture::said::run;
use crate::fixture::{Output, Running, until};
use crate::growth::{AUTO, INVITED, all_settled, joined, listed, prepared, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_needs_an_invitation_where_the_policy_says_so() {
    let mut cluster = prepared(INVITED);
    cluster.launch(0);
    cluster.server(0).line("listening");
    listed(&cluster, 0, "a list with one member", |list| all_settled(list, 1));
    let said = refused(&cluster, 1, &[]);
    assert!(said.code != 0 && said.stderr.contains("geolock member add city1"), "{}", said.stderr);
    assert_eq!(listed(&cluster, 0, "a list", |_| true)["decision"], 1, "nothing was decided");

    let said = run(&mut cluster.command(0, ["member", "add", "No Name"]));
    assert!(said.code != 0 && said.stderr.contains("No Name"), "{}", said.stderr);
    let said = run(&mut cluster.command(0, ["member", "add", "city0"]));
    assert!(said.code != 0 && said.stderr.contains("is used by another member"), "{}", said.stderr);
    let said = run(&mut cluster.command(0, ["member", "add", "city1", "--sponsor", "dc7"]));
    assert!(said.code != 0 && said.stderr.contains("is no member"), "{}", said.stderr);
    let said = run(&mut cluster.command(0, ["member", "add", "city1"]));
    assert!(said.code == 0 && said.stdout.starts_with("city1 may join (decision 2).\n"), "{said:?}");
    let address = listed(&cluster, 0, "a list", |_| true)["members"][0]["address"].clone();
    let start =
        format!("geolock server --join {} --name city1 --address ", address.as_str().expect("a text"));
    assert!(said.stdout.contains(&start), "{said:?}");
    let again = run(&mut cluster.command(0, ["member", "add", "city1"]));
    assert_eq!(again.stdout, said.stdout, "nothing had to be decided");
    let said = run(&mut cluster.command(0, ["member", "add", "city1", "--cancel"]));
    assert_eq!(said.stdout, "city1 may not join any more (decision 3).\n", "{said:?}");
    let said = refused(&cluster, 1, &[]);
    assert!(said.code != 0 && said.stderr.contains("geolock member add city1"), "{}", said.stderr);
    let said = run(&mut cluster.command(0, ["member", "add", "city1", "--cancel"]));
    assert!(said.code != 0 && said.stderr.contains("city1 is not invited"), "{said:?}");
    let said = run(&mut cluster.command(0, ["member", "add", "city1"]));
    assert!(said.stdout.starts_with("city1 may join (decision 4).\n"), "{said:?}");
    let shown = run(&mut cluster.command(0, ["member", "list"])).stdout;
    assert!(shown.contains("Invited: city1."), "{shown}");
    joined(&mut cluster, 1).await;
    let list = listed(&cluster, 0, "two members", |list| all_settled(list, 2));
    assert_eq!(list["invitations"], serde_json::json!([]), "it is used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_named() {
    let mut cluster = prepared(AUTO);
    // Nobody is there.
    let said = refused(&cluster, 1, &[]);
    assert!(said.code != 0 && said.stderr.contains("127.0.0.1"), "{}", said.stderr);
    assert!(said.stderr.contains("no answer"), "{}", said.stderr);
    cluster.launch(0);
    cluster.server(0).line("listening");
    listed(&cluster, 0, "a list with one member", |list| all_settled(list, 1));
    // The client port is no QUIC port. Another server waits for it while this one makes other mistakes.
    let mut at_client_port = cluster.server_command(2);
    at_client_port.args(["--join", &cluster.endpoint(0)]);
    let at_client_port = tokio::task::spawn_blocking(move || run(&mut at_client_port));

    let said = refused(&cluster, 1, &["--name", "city0"]);
    assert!(said.stderr.contains("the name city0 is used by another member"), "{}", said.stderr);
    let said = refused(&cluster, 1, &["--dc", "2"]);
    assert!(said.stderr.contains("the id of the certificate, which is 1"), "{}", said.stderr);
    let said = refused(&cluster, 1, &["--cluster-name", "other"]);
    assert!(said.stderr.contains("the cluster of the certificate, which is test"), "{}", said.stderr);
    let said = refused(&cluster, 1, &["--member", "0=city0@127.0.0.1:1"]);
    assert!(said.stderr.contains("learns the members"), "{}", said.stderr);

    // Certificates of another authority, and of another cluster.
    let (other, foreign) = (cluster.dir().join("other"), cluster.dir().join("foreign"));
    let ids = [1].map(|id| DcId::new(id).expect("a small id"));
    pki::playground(&other, "test", ids).expect("certificates can be made");
    pki::playground(&foreign, "foreign", ids).expect("certificates can be made");
    for (folder, name) in [(other, "test"), (foreign, "foreign")] {
        let tls = folder.join("tls/dc1").display().to_string();
        let said = refused(&cluster, 1, &["--tls-dc", &tls, "--cluster-name", name]);
        assert!(
            said.code != 0
                && said.stderr.contains("is of another one (invalid peer certificate: UnknownIssuer)"),
            "{}",
            said.stderr
        );
    }
    let said = at_client_port.await.expect("it runs a command");
    assert!(said.code != 0 && said.stderr.contains("no answer"), "{}", said.stderr);
    assert_eq!(listed(&cluster, 0, "a list", |_| true)["decision"], 1, "nothing was decided");

    // Its id is taken by a server with another directory.
    joined(&mut cluster, 1).await;
    listed(&cluster, 0, "two members", |list| all_settled(list, 2));
    cluster.kill(1);
    fs::rename(cluster.data_dir(1), cluster.dir().join("kept")).expect("it is there");
    let said = refused(&cluster, 1, &[]);
    assert!(said.stderr.contains("slot dc1 has a member"), "{}", said.stderr);
    // A directory with data is not empty.
    let said = refused(&cluster, 0, &["--join", &cluster.endpoint(1), "--name", "x"]);
    assert!(said.code != 0, "{}", said.stderr);
    fs::remove_dir_all(cluster.data_dir(1)).expect("the refused server made it");
    fs::rename(cluster.dir().join("kept"), cluster.data_dir(1)).expect("it is there");
    joined(&mut cluster, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_founder_that_forgot_the_others_stops() {
    let mut cluster = prepared(AUTO);
    cluster.launch(0);
    cluster.server(0).line("listening");
    joined(&mut cluster, 1).await;
    listed(&cluster, 0, "two members", |list| all_settled(list, 2));
    cluster.kill(0);
    fs::remove_dir_all(cluster.data_dir(0)).expect("it is there");
    for _ in 0..2 {
        cluster.launch(0);
        let server = cluster.server(0);
        server.line("is not known here");
        assert_ne!(server.wait(), 0);
    }
}

/// Everybody may do everything: what differs is that there are rules at all.
const RULES: &str = "[[rule]]\nwho = [\"*\"]\nallow = [\"acquire-exclusive\", \"acquire-shared\", \"describe\", \
                     \"read\", \"write\", \"admin\"]\nlocks = [\"\"]\nkeys = [{}]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_rules_joins_members_with_rules_only_if_it_is_told_to() {
    let mut cluster = prepared(AUTO);
    let acl = cluster.dir().join("acl.toml");
    fs::write(&acl, RULES).expect("the folder is writable");
    let api = format!("[api]\nacl = \"{}\"\n", acl.display());
    cluster.write_founders(0, 1, &[AUTO, &api].concat());
    cluster.launch(0);
    cluster.server(0).line("listening");
    let said = refused(&cluster, 1, &[]);
    assert!(said.code != 0 && said.stderr.contains("--join-without-rules"), "{said:?}");
    let mut without_rules =
        Running::start(cluster.server_command(1).args(["--join-without-rules", "true"]), Output::Stderr);
    without_rules.line("listening");
    serving_at(&cluster, 1).await;
    cluster.server(0).line("only this datacenter has one");
    for dc in [0, 1] {
        until("a difference in the status", || {
            let said = run(&mut cluster.command(dc, ["status"]));
            said.stdout.contains("differ in api.acl").then_some(())
        });
    }
}
