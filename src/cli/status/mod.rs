//! `geolock status`: how a datacenter is, and what it knows of the others.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::connect::{self, ConnectArgs};
use super::dc_names::DcNames;
use super::failure::Failure;
use super::print::{print, table};
use crate::client::Status;
use crate::proto::{PeerStatus, Phase, Room};

/// Show how a datacenter is, and what it knows of the others.
#[derive(clap::Args, Clone, Debug)]
pub struct StatusArgs {
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: StatusArgs) -> Result<(), Failure> {
    let viewer = args.connect.view().await?;
    let status = viewer.status().await.map_err(connect::failure)?;
    if args.json { print(json(&status)) } else { print(text(&status)) }
}

/// The headline, what is wrong, the other datacenters, the counts.
fn text(status: &Status) -> String {
    let names = DcNames::of(status);
    let mut text = format!("{}  {}  geolock {}\n", names.show(status.dc), phase(status), status.version);
    for warning in warnings(status, &names) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "! {warning}");
    }
    if !status.peers.is_empty() {
        let _ = writeln!(text, "\n{}", peers(status, &names));
    }
    let counts: BTreeMap<_, _> = status.counts.iter().collect();
    let rows: Vec<_> = counts.iter().map(|(name, count)| vec![(*name).clone(), count.to_string()]).collect();
    let _ = write!(text, "\n{}", table(&rows));
    text
}

fn phase(status: &Status) -> &'static str {
    match status.phase() {
        _ if status.draining => "draining",
        Phase::Unspecified => "in an unknown phase",
        Phase::Starting => "starting",
        Phase::ReadOnly => "read-only",
        Phase::Grace => "in grace",
        Phase::Serving => "serving",
    }
}

fn warnings(status: &Status, names: &DcNames) -> Vec<String> {
    let mut warnings = Vec::new();
    if status.draining {
        warnings.push("it shuts down: no new locks".into());
    }
    match status.phase() {
        Phase::ReadOnly => {
            warnings.push("others know more of its log than it does; it fetches that first".into())
        }
        Phase::Grace => warnings.push(format!(
            "after its restart it grants nothing until {} leases have come back or run out",
            status.grace_leases
        )),
        _ => {}
    }
    if status.clock_skew {
        warnings.push(
            "its clock is too far ahead of most others: it moves no locks until that is repaired".into(),
        );
    }
    warnings.extend(match status.room() {
        Room::Unspecified | Room::Enough => None,
        Room::Low => Some(
            "its disk is nearly full: no commits, no leases, no locks but what is free here, until there is room".into(),
        ),
        Room::Full => Some("its disk is full: it reads what it has, and writes nothing until there is room".into()),
    });
    for peer in &status.peers {
        let name = names.show(peer.dc);
        if !peer.reachable {
            warnings.push(format!("{name} is unreachable: locks with parts there cannot move"));
        }
        if peer.paused_by_skew {
            warnings.push(format!("{name} is too far ahead: its entries wait until our clock is there"));
        }
    }
    warnings
}

fn peers(status: &Status, names: &DcNames) -> String {
    let header = ["OTHERS", "LINK", "REACHABLE", "ROUND TRIP", "BEHIND BY", "CLOCK", "SENT", "RECEIVED"];
    let mut rows = vec![header.map(String::from).to_vec()];
    let yes_no = |yes| if yes { "yes" } else { "NO" };
    for peer in &status.peers {
        rows.push(vec![
            names.show(peer.dc),
            if peer.linked { "up" } else { "DOWN" }.into(),
            yes_no(peer.reachable).into(),
            round_trip(peer),
            format!("{} entries", peer.lag),
            format!("{:+} ms", peer.clock_ahead_ms),
            peer.messages_sent.to_string(),
            peer.messages_received.to_string(),
        ]);
    }
    table(&rows)
}

fn round_trip(peer: &PeerStatus) -> String {
    match peer.rtt_us {
        0 => "-".into(),
        rtt => format!("{:.1} ms", rtt as f64 / 1_000.0),
    }
}

fn json(status: &Status) -> Value {
    let peer = |peer: &PeerStatus| {
        json!({
            "dc": peer.dc,
            "dc_name": peer.dc_name,
            "linked": peer.linked,
            "reachable": peer.reachable,
            "acknowledged": seqs(peer.acknowledged.as_ref()),
            "lag": peer.lag,
            "clock_ahead_ms": peer.clock_ahead_ms,
            "paused_by_skew": peer.paused_by_skew,
            "rtt_us": peer.rtt_us,
            "messages_sent": peer.messages_sent,
            "messages_received": peer.messages_received,
        })
    };
    json!({
        "dc": status.dc,
        "dc_name": status.dc_name,
        "version": status.version,
        "instance": status.instance,
        "phase": status.phase().as_str_name().trim_start_matches("PHASE_").to_lowercase(),
        "grace_leases": status.grace_leases,
        "draining": status.draining,
        "clock_skew": status.clock_skew,
        "applied": seqs(status.applied.as_ref()),
        "durable": seqs(status.durable.as_ref()),
        "peers": status.peers.iter().map(peer).collect::<Vec<_>>(),
        "counts": status.counts.iter().collect::<BTreeMap<_, _>>(),
    })
}

fn seqs(snapshot: Option<&crate::client::Snapshot>) -> &[u64] {
    snapshot.map_or(&[], |snapshot| &snapshot.seqs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_first() {
        let peer = |dc, reachable| PeerStatus {
            dc,
            dc_name: format!("city{dc}"),
            linked: reachable,
            reachable,
            lag: 3,
            rtt_us: if reachable { 80_100 } else { 0 },
            clock_ahead_ms: -4,
            ..PeerStatus::default()
        };
        let status = Status {
            dc_name: "fra".into(),
            version: "1.2.3".into(),
            phase: Phase::Grace.into(),
            grace_leases: 2,
            peers: vec![peer(1, true), peer(2, false)],
            counts: [("held".to_owned(), 12), ("grants_total".to_owned(), 3)].into(),
            ..Status::default()
        };
        let expected = "\
dc0 (fra)  in grace  geolock 1.2.3
! after its restart it grants nothing until 2 leases have come back or run out
! dc2 (city2) is unreachable: locks with parts there cannot move

OTHERS       LINK  REACHABLE  ROUND TRIP  BEHIND BY  CLOCK  SENT  RECEIVED
dc1 (city1)  up    yes        80.1 ms     3 entries  -4 ms  0     0
dc2 (city2)  DOWN  NO         -           3 entries  -4 ms  0     0

grants_total  3
held          12";
        assert_eq!(text(&status), expected);
        assert_eq!(json(&status)["phase"], "grace");
    }
}
