//! `geolock status`: shows the state of a datacenter, and its knowledge of the others.

mod json;
mod tables;

use std::fmt::Write as _;
use std::time::Duration;

use super::at_stake;
use super::connect::{self, ConnectArgs};
use super::dc_names::DcNames;
use super::failure::Failure;
use super::print::print;
use super::witnesses;
use crate::base::time::brief;
use crate::telemetry::reasons;
use geolock_api::proto::{CertificateStatus, DiskSpace, NotServing, PeerStatus, Phase};
use geolock_client::Status;

/// Show the state of a datacenter, and its knowledge of the others
///
/// Another datacenter is behind by the log entries here that it has not acknowledged, and by the time for
/// which they have been durable here. It acknowledges with its heartbeats, so half a second plus the network
/// delay is normal. LOCKS and WAITING are the locks and requests that stop if it dies, as in `geolock member
/// list`; `at stake` shows the consequences if this datacenter dies now, and the losses if it is evicted
/// then. Counts that are 0 are left out; --json has all.
#[derive(clap::Args, Clone, Debug)]
pub struct StatusArgs {
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(args: StatusArgs) -> Result<(), Failure> {
    let reader = args.connect.read_client().await?;
    let status = reader.status().await.map_err(connect::failure)?;
    if args.json { print(json::status(&status)) } else { print(text(&status)) }
}

/// Returns the headline, the warnings, the other datacenters, the vectors, disk and memory, the counts.
fn text(status: &Status) -> String {
    let names = DcNames::of(status);
    let mut text = format!("{}  {}  geolock {}\n", names.show(status.dc), phase(status), status.version);
    for warning in warnings(status, &names) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "! {warning}");
    }
    if !status.peers.is_empty() {
        let _ = writeln!(text, "\n{}", tables::peers(status, &names));
    }
    let _ = writeln!(text, "\n{}", tables::vectors(status, &names));
    let _ = writeln!(text, "\n{}", tables::members(status, &names));
    let _ = writeln!(text, "{}", tables::journal_and_store(status));
    let _ = write!(text, "\n{}", tables::counts(status));
    text.trim_end().to_owned()
}

pub(super) fn phase(status: &Status) -> &'static str {
    match status.phase() {
        _ if status.draining => "draining",
        Phase::Unspecified => "in an unknown phase",
        Phase::Starting => "starting",
        Phase::ReadOnly => "read-only",
        Phase::Grace => "in grace",
        Phase::Serving => "serving",
        Phase::Forked => "FORKED",
    }
}

pub(super) fn warnings(status: &Status, names: &DcNames) -> Vec<String> {
    let mut warnings = Vec::new();
    if status.draining {
        warnings.push("it shuts down: no new locks".into());
    }
    match status.phase() {
        Phase::ReadOnly => {
            let unheard = status.peers.iter().filter(|peer| !peer.reachable);
            let unheard: Vec<String> = unheard.map(|peer| names.show(peer.dc)).collect();
            warnings.push(reasons::read_only(&unheard, status.unknown_leases_ms));
        }
        Phase::Starting => {
            let heard = status.peers.iter().filter(|peer| peer.reachable);
            let ahead: Vec<i64> = heard.map(|peer| peer.clock_ahead_ms).collect();
            warnings.push(reasons::starting(&ahead));
        }
        Phase::Forked => warnings.push(
            "two datacenters have different entries of one log: nothing is granted or committed until an operator has \
             decided which history is kept (docs/operations.md, Two histories)"
                .into(),
        ),
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
    let is_behind = status.clock_behind_ms > 0;
    if is_behind {
        let behind = brief(Duration::from_millis(status.clock_behind_ms));
        warnings.push(format!(
            "its clock is behind most others by {behind}: no locks move to or from here, and nothing that others write is \
             seen here, until it is set right"
        ));
    }
    if status.backed_for_ms == Some(0) {
        warnings.push(
            "a majority of the voters does not acknowledge it: it may be evicted, so it grants nothing and opens and renews no \
             lease until one does"
                .into(),
        );
    }
    if status.overloaded {
        warnings.push("it is far behind: new locks, transactions, leases and watches are refused".into());
    }
    warnings.extend(match status.disk_space() {
        DiskSpace::Unspecified | DiskSpace::Enough => None,
        DiskSpace::Low => Some(
            "its disk is nearly full: no commits, no leases, only locks that are free here, until there is space".into(),
        ),
        DiskSpace::Full => Some("its disk is full: it serves reads, and writes nothing until there is space".into()),
    });
    for certificate in &status.certificates {
        let CertificateStatus { name, expires_in_ms, expires_soon, failure } = certificate;
        if *expires_soon {
            let left = brief(Duration::from_millis(*expires_in_ms));
            warnings.push(format!("its certificate {name} expires in {left}: put a new one into its folder"));
        }
        if !failure.is_empty() {
            warnings.push(format!("its certificate {name} was not renewed: {failure}"));
        }
    }
    warnings.extend(status.peers.iter().flat_map(|peer| about_peer(peer, &names.show(peer.dc), is_behind)));
    warnings.extend(status.witnesses.iter().filter(|witness| !witness.heard).map(witnesses::unreachable));
    warnings
}

/// Returns the warnings about a peer. `is_behind`: the clock here is behind most others.
fn about_peer(peer: &PeerStatus, name: &str, is_behind: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    // A clock that is behind holds the entries of all peers back, and is named once.
    if !(peer.reachable || is_behind && peer.connected || peer.not_serving() == NotServing::Starting) {
        let stake = peer.at_stake.unwrap_or_default();
        let heard = at_stake::heard(&stake).map(|ago| format!(", last heard {ago} ago")).unwrap_or_default();
        warnings.push(format!("{name} is unreachable{heard}: locks with parts there cannot move"));
    }
    if !peer.silent.is_empty() {
        let voters = peer.silent.iter().map(|dc| format!("dc{dc}")).collect::<Vec<_>>().join(", ");
        warnings.push(format!("{name} was not heard by {voters} for so long that it may be evicted"));
    }
    if peer.not_serving() != NotServing::Unspecified {
        let why = super::describe::why_not_serving(peer.not_serving(), peer.grace_remaining_ms);
        warnings.push(format!("{name} {why}: locks with parts there do not move"));
    }
    if peer.too_far_behind {
        warnings.push(format!(
            "{name} lacks entries that are not kept here any more: it gets a copy of the state"
        ));
    }
    if !peer.differing.is_empty() {
        let options = peer.differing.join(", ");
        warnings.push(format!("{name} and this datacenter differ in {options}: make them the same"));
    }
    if peer.paused_by_skew && !is_behind {
        warnings.push(format!("{name} is too far ahead: its entries wait until our clock has reached them"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::EntryNumber;
    use geolock_api::proto::{AtStake, CheckpointStatus, JournalStatus, Witness};
    use geolock_client::Snapshot;

    fn own_stake() -> AtStake {
        AtStake {
            away_locks: 3,
            waiting: 2,
            leases: Some(1),
            held: Some(12),
            only_here: Some(1),
            ..AtStake::default()
        }
    }

    fn two_witnesses() -> Vec<Witness> {
        let witness = |dc, name: &str| Witness { dc, name: name.into(), votes: true, ..Witness::default() };
        let heard = Witness { heard: true, ..witness(8, "wit") };
        vec![heard, Witness { heard_ms: Some(65_000), ..witness(9, "late") }]
    }

    fn status() -> Status {
        let peer = |dc, reachable| PeerStatus {
            dc,
            dc_name: format!("city{dc}"),
            connected: reachable,
            reachable,
            acknowledged: Some(Snapshot { seqs: vec![4, 3 * u64::from(dc)] }),
            unacked_entries: if reachable { 0 } else { 3 },
            lag_ms: if reachable { 0 } else { 12_500 },
            missing_entries: if reachable { 1 } else { 0 },
            rtt_us: if reachable { 80_100 } else { 0 },
            clock_ahead_ms: -4,
            at_stake: Some(AtStake {
                away_locks: 412,
                waiting: 3,
                heard_ms: Some(if reachable { 100 } else { 12_500 }),
                ..AtStake::default()
            }),
            silent: if reachable { vec![] } else { vec![0, 1] },
            ..PeerStatus::default()
        };
        let counts = [
            ("held", 12),
            ("grants_total", 3),
            ("waiting", 0),
            ("keys", 2),
            ("value_bytes", 2_048),
            ("uncompacted_changes", 1),
        ];
        Status {
            dc_name: "fra".into(),
            version: "1.2.3".into(),
            phase: Phase::Grace.into(),
            grace_leases: 2,
            applied: Some(Snapshot { seqs: vec![7, 3, 1] }),
            durable: Some(Snapshot { seqs: vec![6, 3, 1] }),
            peers: vec![peer(1, true), peer(2, false)],
            counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
            journal: Some(JournalStatus {
                position: 20,
                files: 2,
                bytes: 3 << 20,
                backlog_bytes: 100,
                waiting_for_disk_space: false,
                free_bytes: Some(5 << 30),
                since_checkpoint_bytes: 1_500,
                last_checkpoint: Some(CheckpointStatus { position: 15, bytes: 10_000, age_ms: Some(65_000) }),
            }),
            resident_bytes: 50 << 20,
            epoch: 5,
            decision: 7,
            evicting: vec![2],
            backed_for_ms: Some(9_200),
            witnesses: two_witnesses(),
            at_stake: Some(own_stake()),
            certificates: vec![
                CertificateStatus {
                    name: "tls.dc".into(),
                    expires_in_ms: 86_400_000 * 90,
                    ..Default::default()
                },
                CertificateStatus {
                    name: "tls.api".into(),
                    expires_in_ms: 86_400_000 * 3,
                    expires_soon: true,
                    failure: "key.pem is not its key".into(),
                },
            ],
            ..Status::default()
        }
    }

    #[test]
    fn what_is_wrong_comes_first() {
        let expected = "\
dc0 (fra)  in grace  geolock 1.2.3
! after its restart it grants nothing until 2 leases have come back or run out
! its certificate tls.api expires in 3 d 0 h: put a new one into its folder
! its certificate tls.api was not renewed: key.pem is not its key
! dc2 (city2) is unreachable, last heard 12.5 s ago: locks with parts there cannot move
! dc2 (city2) was not heard by dc0, dc1 for so long that it may be evicted
! witness dc9 (late) is unreachable, last heard 1 min 5 s ago: its vote is missing

OTHERS       LINK  REACHABLE  ROUND TRIP  BEHIND BY          AHEAD BY   CLOCK  SENT  RECEIVED  LOCKS  WAITING
dc1 (city1)  up    yes        80.1 ms     0 entries          1 entry    -4 ms  0     0         412    3
dc2 (city2)  DOWN  NO         -           3 entries, 12.5 s  0 entries  -4 ms  0     0         412    3

LOG OF           dc0 (fra)  dc1 (city1)  dc2 (city2)
here             7          3            1
here on disk     6          3            1
dc1 (city1) has  4          3            0
dc2 (city2) has  4          6            0

members
  epoch        5, decision 7
  evicting     dc2 (city2)
  backed       for 9.2 s
  witnesses    dc8 (wit) votes, heard
               dc9 (late) votes, last heard 1 min 5 s ago
at stake
  locks        3 with parts of others
  clients      1 lease, 12 requests with locks, 0 waiting
  requests     2 of others wait for parts that are here
  lost         1 entry that no other has
journal
  log          2 files, 3.0 MiB; a restart reads 1.5 KiB
  checkpoint   9.8 KiB, made 1 min 5 s ago, up to record 15 of 20
  waiting      100 B
  disk         5.0 GiB free
store
  keys         2, with about 2.0 KiB of values
  open         0 transactions, 0 snapshots; 1 change kept for them
  removals     0 marks that some datacenter may not have seen
memory         50.0 MiB
certificates
  tls.dc       good for 90 d 0 h
  tls.api      good for 3 d 0 h

grants_total  3
held          12";
        assert_eq!(text(&status()), expected);
    }

    #[test]
    fn entries_of_later_generations_are_shown_with_them() {
        let later = |generation: u64, count| (generation << EntryNumber::COUNT_BITS) + count;
        let mut status = status();
        status.applied = Some(Snapshot { seqs: vec![7, later(1, 5), later(2, 0)] });
        status.durable = Some(Snapshot { seqs: vec![7, later(1, 4), 9] });
        let text = text(&status);
        let lines =
            ["here             7          1/5          2/0", "here on disk     7          1/4          9"];
        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
        let json = json::status(&status);
        assert_eq!(json["applied"], serde_json::json!([7, 281_474_976_710_661_u64, later(2, 0)]));
        let log = |generation, applied, durable| (generation, applied, durable);
        let logs: Vec<_> = json["logs"].as_array().expect("logs").iter().collect();
        let shown: Vec<_> = logs
            .iter()
            .map(|it| {
                [&it["generation"], &it["applied"], &it["durable"]].map(|it| it.as_u64().expect("a number"))
            })
            .map(|[generation, applied, durable]| log(generation, applied, durable))
            .collect();
        assert_eq!(shown, [log(0, 7, 7), log(1, 5, 4), log(2, 0, 0)]);
    }

    #[test]
    fn a_server_that_knows_little_is_shown_too() {
        let text = text(&Status::default());
        assert!(text.starts_with("dc0  in an unknown phase") && !text.contains("journal\n"), "{text}");
        let mut young = status();
        young.disk_space = DiskSpace::Full.into();
        young.overloaded = true;
        let journal = young.journal.as_mut().expect("it has one");
        (journal.last_checkpoint, journal.free_bytes, journal.waiting_for_disk_space) = (None, None, true);
        let text = super::text(&young);
        assert!(text.contains("! it is far behind: "), "{text}");
        assert!(text.contains("! its disk is full") && text.contains("  checkpoint   none yet\n"), "{text}");
        assert!(
            text.contains("  waiting      100 B, for room on the disk\n") && !text.contains("free"),
            "{text}"
        );
    }

    #[test]
    fn a_clock_that_is_behind_is_named_once() {
        let mut behind = status();
        behind.clock_behind_ms = 3_598_000;
        for peer in &mut behind.peers {
            (peer.paused_by_skew, peer.connected, peer.reachable) = (true, true, false);
            peer.silent.clear();
        }
        let text = text(&behind);
        assert!(text.contains("! its clock is behind most others by 59 min 58 s: "), "{text}");
        assert!(!text.contains("! dc1") && !text.contains("! dc2"), "{text}");
    }

    #[test]
    fn options_that_differ_are_a_warning() {
        let mut differing = status();
        differing.peers[0].differing = vec!["cluster.max_clock_skew".into(), "api.acl".into()];
        let text = text(&differing);
        let warning =
            "! dc1 (city1) and this datacenter differ in cluster.max_clock_skew, api.acl: make them the same";
        assert!(text.contains(warning), "{text}");
    }

    #[test]
    fn programs_are_told_all_of_it() {
        let json = json::status(&status());
        assert_eq!((&json["phase"], &json["disk_space"]), (&"grace".into(), &"unspecified".into()));
        assert_eq!(
            (&json["peers"][1]["lag_ms"], &json["peers"][0]["missing_entries"]),
            (&12_500.into(), &1.into())
        );
        assert_eq!(json["certificates"][1]["expires_soon"], true);
        assert_eq!(
            (&json["witnesses"][0]["heard"], &json["witnesses"][1]["heard_ms"]),
            (&true.into(), &65_000.into())
        );
        assert_eq!((&json["epoch"], &json["evicting"][0]), (&5.into(), &2.into()));
        assert_eq!((&json["at_stake"]["only_here"], &json["at_stake"]["held"]), (&1.into(), &12.into()));
        let peer = &json["peers"][1];
        assert_eq!((&peer["at_stake"]["away_locks"], &peer["silent"][1]), (&412.into(), &1.into()));
        assert_eq!(json["journal"]["last_checkpoint"]["age_ms"], 65_000);
    }
}
