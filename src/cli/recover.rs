//! `geolock member recover`: the survivors continue without a lost majority.

use std::time::Duration;

use geolock_client::{AdminClient, LossReport};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::connect;
use super::failure::Failure;
use super::fallen;
use super::member::clients_rely;
use super::print::{number, print, utc};
use geolock_api::names::DcId;
use geolock_api::proto::LostMember;

/// How often to ask again.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A recovery, as an operator orders it.
pub struct Recover {
    pub survivors: Vec<DcId>,
    pub lost: Vec<DcId>,
    pub clients_are_dead: bool,
    pub list: bool,
    pub json: bool,
}

/// Recovers the cluster, and shows the losses.
pub async fn recover(admin: &AdminClient, asked: Recover) -> Result<(), Failure> {
    let Recover { survivors, lost, clients_are_dead, list, json: as_json } = asked;
    let ids = |dcs: &[DcId]| dcs.iter().map(|dc| dc.get().into()).collect::<Vec<u32>>();
    let (survivors, lost) = (ids(&survivors), ids(&lost));
    let check = admin.recover(&survivors, &lost, true).await.map_err(connect::failure)?;
    let wait = Duration::from_millis(check.max_lease_ttl_ms);
    if !clients_are_dead && !wait.is_zero() {
        let text = clients_rely(&names(&lost), wait);
        if as_json {
            eprintln!("{text}")
        } else {
            print(text)?
        }
        sleep(wait).await;
    }
    let mut told = String::new();
    loop {
        let answer = admin.recover(&survivors, &lost, false).await.map_err(connect::failure)?;
        match answer.report {
            Some(report) => {
                print(if as_json { json(&report).to_string() } else { text(&report) })?;
                // Witnesses have nothing.
                let ended: Vec<u32> = report.lost.iter().map(|lost| lost.dc).collect();
                return if list { fallen::show(admin, &ended, as_json).await } else { Ok(()) };
            }
            None if told != answer.waits => {
                eprintln!("geolock: {}", answer.waits);
                told = answer.waits;
            }
            None => {}
        }
        sleep(ASK_EVERY).await;
    }
}

fn names(dcs: &[u32]) -> String {
    dcs.iter().map(|dc| format!("dc{dc}")).collect::<Vec<_>>().join(", ")
}

/// The report, as several lines.
pub fn text(report: &LossReport) -> String {
    let lost: Vec<u32> = report.lost.iter().map(|lost| lost.dc).collect();
    let lost_names = if lost.is_empty() { "a witness".into() } else { names(&lost) };
    let (decision, lineage, survivors) = (report.decision, report.lineage, names(&report.survivors));
    let mut text = format!(
        "Recovered by force (decision {decision}, lineage {lineage}): {survivors} without {lost_names}."
    );
    for lost in &report.lost {
        text += &format!("\n{}", line(lost));
    }
    text += &format!(
        "\nDecisions of the lost majority from number {decision} on, if there were any, are unknown here."
    );
    text += &match report.locks {
        0 => "\nNo lock had been used there last.".into(),
        1 => "\nThe parts of 1 lock that had been used there last returned to their homes.".into(),
        locks => {
            format!("\nThe parts of {locks} locks that had been used there last returned to their homes.")
        }
    };
    text
}

fn line(lost: &LostMember) -> String {
    let (dc, name) = (lost.dc, &lost.name);
    match lost.last_entry {
        0 => format!("dc{dc} ({name}): none of its entries is known; all work that it acknowledged is lost."),
        entry => format!(
            "dc{dc} ({name}): the last entry that counts is number {entry}, of {}.{:03} UTC by its clock; the \
             work that it acknowledged later, and sent to no survivor, is lost.",
            utc(lost.last_entry_ms).trim_end_matches(" UTC"),
            lost.last_entry_ms % 1_000
        ),
    }
}

/// The report, for programs.
pub fn json(report: &LossReport) -> Value {
    let lost = |lost: &LostMember| {
        json!({
            "dc": lost.dc,
            "generation": lost.generation,
            "name": lost.name,
            "last_entry": number(lost.last_entry),
            "last_entry_ms": number(lost.last_entry_ms),
        })
    };
    json!({
        "decision": number(report.decision),
        "lineage": report.lineage,
        "survivors": report.survivors,
        "lost": report.lost.iter().map(lost).collect::<Vec<_>>(),
        "locks": number(report.locks),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_is_lost() {
        let lost = |dc, last_entry| LostMember {
            dc,
            name: format!("city{dc}"),
            last_entry,
            last_entry_ms: 1_767_323_045_678,
            ..LostMember::default()
        };
        let report = LossReport {
            decision: 9,
            lineage: 1,
            survivors: vec![0],
            lost: vec![lost(1, 77), lost(2, 0)],
            locks: 3,
        };
        let shown = "\
Recovered by force (decision 9, lineage 1): dc0 without dc1, dc2.
dc1 (city1): the last entry that counts is number 77, of 2026-01-02 03:04:05.678 UTC by its clock; the work that it \
acknowledged later, and sent to no survivor, is lost.
dc2 (city2): none of its entries is known; all work that it acknowledged is lost.
Decisions of the lost majority from number 9 on, if there were any, are unknown here.
The parts of 3 locks that had been used there last returned to their homes.";
        assert_eq!(text(&report), shown);
        assert_eq!(json(&report)["lost"][0]["last_entry"], 77);
    }
}
