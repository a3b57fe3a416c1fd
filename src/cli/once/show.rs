//! The status of a section and the outcome of a loop, for people and for programs.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value, json};

use crate::cli::print::{harmless, insert_name, number, utc};
use geolock_recipes::{LastSeen, Outcome, Record, RunState, Status};

/// Returns the status of a section.
pub fn status(name: &OsStr, status: &Status, as_json: bool) -> String {
    let Status { record, live, pause, .. } = status;
    if as_json {
        let mut object = Map::new();
        insert_name(&mut object, "name", name.as_bytes());
        object.insert("live".to_owned(), (*live).into());
        object.insert("pause".to_owned(), (*pause).into());
        object.insert("record".to_owned(), record.as_ref().map_or(Value::Null, record_json));
        return Value::Object(object).to_string();
    }
    let name = harmless(&name.display().to_string());
    let Some(record) = record else { return format!("{name}: no run is known") };
    let mut text = format!("{name}: {}", record_text(record));
    if record.state == RunState::Started && !live {
        text.push_str("; no sign of life within the watermark");
    }
    if *pause {
        text.push_str("; the pause after the failure lasts");
    }
    text
}

fn record_text(record: &Record) -> String {
    let Record { run, state, who, attempts, at_ms } = record;
    let (who, at) = (harmless(who), utc(*at_ms));
    let mut text = match state {
        RunState::Started => format!("run {run} started at {at} by {who}"),
        RunState::Done => format!("run {run} done at {at} by {who}"),
        RunState::Failed { error } => format!("run {run} failed at {at} by {who}: {}", harmless(error)),
    };
    if *attempts > 1 {
        // Writing to a string cannot fail.
        let _ = write!(text, "; {attempts} failures in a row");
    }
    text
}

fn record_json(record: &Record) -> Value {
    let Record { run, state, who, attempts, at_ms } = record;
    let (state, error) = match state {
        RunState::Started => ("started", Value::Null),
        RunState::Done => ("done", Value::Null),
        RunState::Failed { error } => ("failed", error.as_str().into()),
    };
    json!({ "state": state, "run": number(*run), "who": who, "attempts": attempts, "at_ms": number(*at_ms), "error": error })
}

/// Returns the outcome for programs.
pub fn outcome(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::NotNeeded => json!({ "outcome": "not_needed" }),
        Outcome::Ran { run } => json!({ "outcome": "ran", "run": number(*run) }),
        Outcome::DoneByOther { run, who, at_ms } => {
            json!({ "outcome": "done_by_other", "run": number(*run), "who": who, "at_ms": number(*at_ms) })
        }
        Outcome::GaveUp { last: LastSeen::LostWhileRunning { run }, .. } => {
            json!({ "outcome": "lost", "run": number(*run) })
        }
        Outcome::GaveUp { attempts, last } => {
            let record = if let LastSeen::Run(record) = last { record_json(record) } else { Value::Null };
            json!({ "outcome": "gave_up", "attempts": attempts, "record": record })
        }
        _ => json!({ "outcome": "other" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_shown_without_characters_of_control() {
        let error = "no\x1b[2Jdisk".to_owned();
        let record =
            Record { run: 7, state: RunState::Failed { error }, who: "ann".into(), attempts: 2, at_ms: 0 };
        let text = record_text(&record);
        assert_eq!(
            text,
            "run 7 failed at 1970-01-01 00:00:00 UTC by ann: no\\u{1b}[2Jdisk; 2 failures in a row"
        );
        assert_eq!(record_json(&record)["attempts"], 2);
    }
}
