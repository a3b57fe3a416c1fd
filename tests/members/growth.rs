//! Servers of a cluster that grows.

use std::process::Command;

use serde_json::Value;

use crate::fixture::history::serving_at;
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, until};
use geolock::client::Client;

/// Tables of a founder that lets everybody in who has a certificate. Failures are noticed soon.
pub const AUTO: &str =
    "[cluster]\nheartbeat_interval = \"200 ms\"\npeer_timeout = \"1 s\"\njoin_policy = \"auto\"\n";
/// The same, with invitations.
pub const INVITED: &str = "[cluster]\nheartbeat_interval = \"200 ms\"\npeer_timeout = \"1 s\"\n";

/// Prepares certificates and ports for three datacenters. The first one founds the cluster alone; the
/// configuration of the others has no members, and says whom to ask.
pub fn prepared(tables: &str) -> Cluster {
    prepared_with(tables, "")
}

/// The same, with tables of those that join.
pub fn prepared_with(founder: &str, joiner: &str) -> Cluster {
    let cluster = Cluster::prepare(3);
    cluster.write_founders(0, 1, founder);
    cluster.write_joiner(1, cluster.quic_address(0), "city1", joiner);
    cluster.write_joiner(2, cluster.quic_address(1), "city2", joiner);
    cluster
}

/// Starts a server that joins, and returns a client once it serves.
pub async fn joined(cluster: &mut Cluster, dc: u8) -> Client {
    cluster.launch(dc);
    cluster.server(dc).line("listening");
    serving_at(cluster, dc).await
}

/// Returns the members as a datacenter lists them, once the list is as wanted.
pub fn listed(cluster: &Cluster, dc: u8, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = None;
    until(what, || {
        let said = run(&mut cluster.command(dc, ["member", "list", "--json"]));
        let list: Option<Value> = serde_json::from_str(&said.stdout).ok();
        let constant = list.clone().map(without_times);
        if last != constant {
            // Shown if the test fails.
            eprintln!("{}{}", said.stdout, said.stderr);
            last = constant;
        }
        list.filter(|list| wanted(list))
    })
}

/// Returns a list without the figures that change all the time.
fn without_times(mut list: Value) -> Value {
    for row in list["members"].as_array_mut().expect("a list") {
        row["at_stake"] = Value::Null;
    }
    for row in list["witnesses"].as_array_mut().expect("a list") {
        row["heard_ms"] = Value::Null;
    }
    list["backed_for_ms"] = Value::Null;
    list
}

/// Returns true if so many members are settled and vote, and have entered the last epoch, and no others vote.
pub fn all_settled(list: &Value, members: usize) -> bool {
    let rows = list["members"].as_array().expect("a list");
    let is_settled = |row: &Value| {
        row["phase"] == "member" && row["votes"] == true && row["entered_epoch"] == list["epoch"]
    };
    let former = list["former_voters"].as_array().expect("a list");
    rows.len() == members && rows.iter().all(is_settled) && former.is_empty()
}

/// Runs a server that is refused, to its end.
pub fn refused(cluster: &Cluster, dc: u8, more: &[&str]) -> Said {
    let mut command: Command = cluster.server_command(dc);
    run(command.args(more))
}
