//! Orphans, for people and for programs.

use serde_json::{Map, Value as Json, json};

use super::again::Outcome;
use crate::causal_log as logged;
use crate::cli::kv::change;
use crate::cli::kv::show::text;
use crate::cli::print::{harmless, number, table as columns, utc};
use crate::server::orphans::Orphan;
use geolock_client::{Action, Change};

/// Changes of an orphan that are shown in a row.
const SHOWN: usize = 4;
/// Longest change in a row, in characters.
const LONGEST: usize = 80;

/// Returns a row for each orphan.
pub fn table(orphans: &[Orphan], outcomes: &[Outcome]) -> String {
    let mut header = vec!["ENTRY".to_owned(), "TIME".into(), "UNDER".into()];
    header.extend((!outcomes.is_empty()).then(|| "DONE".into()));
    header.push("CHANGES".into());
    let row = |(index, orphan): (usize, &Orphan)| {
        let under = orphan.under.map_or_else(|| "-".into(), |token| token.to_string());
        let mut cells = vec![orphan.number.to_string(), utc(orphan.at.millis()), under];
        cells.extend(outcomes.get(index).map(done));
        cells.push(changes(&orphan.changes));
        cells
    };
    let rows: Vec<_> = [header].into_iter().chain(orphans.iter().enumerate().map(row)).collect();
    columns(&rows)
}

fn done(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Made { left_out: 0 } => "made again".into(),
        Outcome::Made { left_out } => format!("made again without {left_out}"),
        Outcome::Before => "earlier".into(),
        Outcome::LeftOut => "no".into(),
        Outcome::NothingLeft => "no: nothing is left".into(),
        Outcome::Failed(reason) => format!("refused: {}", harmless(reason)),
    }
}

fn changes(changes: &[logged::Change]) -> String {
    let shown: Vec<String> = changes.iter().take(SHOWN).map(line).collect();
    match changes.len().saturating_sub(SHOWN) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

/// Returns a change in the words of `geolock kv watch`, with its bucket.
fn line(logged: &logged::Change) -> String {
    let line = change::line(&said(logged));
    let line = match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    };
    format!("{line} in {}", text(logged.key.bucket()))
}

/// Returns a change as clients see it.
fn said(logged: &logged::Change) -> Change {
    let action = match &logged.action {
        logged::Action::Update(update) => Action::Update(update.clone()),
        logged::Action::Remove => Action::Removed,
        logged::Action::Expire(after) => Action::Expires(after.duration()),
        logged::Action::Expired => Action::Expired,
    };
    Change { key: logged.key.clone(), action }
}

/// Returns an orphan with all of its changes.
pub fn json(orphan: &Orphan, outcome: Option<&Outcome>) -> Json {
    let mut object = Map::new();
    object.insert("entry".into(), number(orphan.number));
    object.insert("at_ms".into(), number(orphan.at.millis()));
    object.insert("lease".into(), orphan.lease.to_string().into());
    object.insert("token".into(), orphan.under.map_or(Json::Null, |token| token.0.to_string().into()));
    object.insert("changes".into(), orphan.changes.iter().map(change_json).collect());
    if let Some(outcome) = outcome {
        let (name, more) = match outcome {
            Outcome::Made { left_out } => ("made", json!({ "left_out": left_out })),
            Outcome::Before => ("made_earlier", Json::Null),
            Outcome::LeftOut => ("left_out", Json::Null),
            Outcome::NothingLeft => ("nothing_left", Json::Null),
            Outcome::Failed(reason) => ("refused", json!({ "reason": reason })),
        };
        object.insert("outcome".into(), name.into());
        if let Json::Object(more) = more {
            object.extend(more);
        }
    }
    Json::Object(object)
}

fn change_json(logged: &logged::Change) -> Json {
    let mut object = Map::new();
    change::insert(&mut object, &said(logged));
    Json::Object(object)
}
