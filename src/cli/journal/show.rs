//! Orphans, for people and for programs.

use serde_json::{Map, Value as Json, json};

use super::again::Outcome;
use crate::base::time::brief;
use crate::causal_log::{Action, Change};
use crate::cli::print::{bytes_json, harmless, insert_name, number, table as columns, utc};
use crate::server::orphans::Orphan;
use bytes::Bytes;
use geolock_api::value::{FlagOp, MapOp, Op, RegisterOp, ResettableCounterOp, SetOp, Update};

/// Changes of an orphan that are shown in a row.
const SHOWN: usize = 4;
/// Longest value in a row, in characters.
const LONGEST: usize = 60;

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
        Outcome::OnlyRemovals => "no: removals".into(),
        Outcome::Failed(reason) => format!("refused: {}", harmless(reason)),
    }
}

fn changes(changes: &[Change]) -> String {
    let shown: Vec<String> = changes.iter().take(SHOWN).map(change).collect();
    match changes.len().saturating_sub(SHOWN) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

fn change(Change { key, action }: &Change) -> String {
    let key = format!("{}/{}", text(key.bucket()), text(key.name()));
    match action {
        Action::Update(Update { path, op }) => {
            let path: String = path.iter().map(|step| format!(".{}", text(&step.field))).collect();
            format!("{key}{path} {}", operation(op))
        }
        Action::Remove => format!("{key} removed"),
        Action::Expire(after) => format!("{key} expires after {}", brief(after.duration())),
        Action::Expired => format!("{key} expired"),
    }
}

fn operation(op: &Op) -> String {
    let all = |values: &[Bytes]| values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", ");
    match op {
        Op::Counter(by) | Op::BoundedCounter(by) => format!("{by:+}"),
        Op::ResettableCounter(ResettableCounterOp::Add(by)) => format!("{by:+}"),
        Op::TransferRights { to, amount } => format!("gives {amount} to {to}"),
        Op::LwwRegister(value) | Op::MvRegister(RegisterOp::Assign(value)) => format!("= {}", text(value)),
        Op::Versioned { version, value, .. } => format!("= {} (version {version})", text(value)),
        Op::AddWinsSet(SetOp::Add(of)) | Op::RemoveWinsSet(SetOp::Add(of)) | Op::GrowOnlySet(of) => {
            format!("adds {{{}}}", all(of))
        }
        Op::AddWinsSet(SetOp::Remove(of)) | Op::RemoveWinsSet(SetOp::Remove(of)) => {
            format!("removes {{{}}}", all(of))
        }
        Op::ResettableMap(MapOp::Remove(fields)) => format!("removes the fields {{{}}}", all(fields)),
        Op::EnableWinsFlag(FlagOp::Enable) | Op::DisableWinsFlag(FlagOp::Enable) => "enabled".into(),
        Op::EnableWinsFlag(FlagOp::Disable) | Op::DisableWinsFlag(FlagOp::Disable) => "disabled".into(),
        Op::ResettableCounter(ResettableCounterOp::Reset)
        | Op::MvRegister(RegisterOp::Reset)
        | Op::AddWinsSet(SetOp::Reset)
        | Op::RemoveWinsSet(SetOp::Reset)
        | Op::EnableWinsFlag(FlagOp::Reset)
        | Op::DisableWinsFlag(FlagOp::Reset)
        | Op::ResettableMap(MapOp::Reset) => "reset".into(),
    }
}

fn text(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), harmless);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
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
            Outcome::OnlyRemovals => ("only_removals", Json::Null),
            Outcome::Failed(reason) => ("refused", json!({ "reason": reason })),
        };
        object.insert("outcome".into(), name.into());
        if let Json::Object(more) = more {
            object.extend(more);
        }
    }
    Json::Object(object)
}

fn change_json(Change { key, action }: &Change) -> Json {
    let mut object = Map::new();
    insert_name(&mut object, "bucket", key.bucket());
    insert_name(&mut object, "key", key.name());
    match action {
        Action::Update(Update { path, op }) => {
            if !path.is_empty() {
                object.insert("path".into(), path.iter().map(|step| bytes_json(&step.field)).collect());
            }
            object.insert("type".into(), op.value_type().to_string().into());
            let (name, value) = operation_json(op);
            object.insert(name.into(), value);
        }
        Action::Remove => _ = object.insert("removed".into(), true.into()),
        Action::Expire(after) => _ = object.insert("expires_after_ms".into(), number(after.millis())),
        Action::Expired => _ = object.insert("expired".into(), true.into()),
    }
    Json::Object(object)
}

fn operation_json(op: &Op) -> (&'static str, Json) {
    let all = |values: &[Bytes]| values.iter().map(|value| bytes_json(value)).collect::<Json>();
    match op {
        Op::Counter(by) | Op::BoundedCounter(by) => ("add", number(*by)),
        Op::ResettableCounter(ResettableCounterOp::Add(by)) => ("add", number(*by)),
        Op::TransferRights { to, amount } => ("give", json!({ "to": to.get(), "amount": number(*amount) })),
        Op::LwwRegister(value) | Op::MvRegister(RegisterOp::Assign(value)) => ("assign", bytes_json(value)),
        Op::Versioned { version, value, done } => {
            ("write", json!({ "version": number(*version), "value": bytes_json(value), "done": done }))
        }
        Op::AddWinsSet(SetOp::Add(of)) | Op::RemoveWinsSet(SetOp::Add(of)) | Op::GrowOnlySet(of) => {
            ("add", all(of))
        }
        Op::AddWinsSet(SetOp::Remove(of)) | Op::RemoveWinsSet(SetOp::Remove(of)) => ("remove", all(of)),
        Op::ResettableMap(MapOp::Remove(fields)) => ("remove_fields", all(fields)),
        Op::EnableWinsFlag(FlagOp::Enable) | Op::DisableWinsFlag(FlagOp::Enable) => ("set", true.into()),
        Op::EnableWinsFlag(FlagOp::Disable) | Op::DisableWinsFlag(FlagOp::Disable) => ("set", false.into()),
        Op::ResettableCounter(ResettableCounterOp::Reset)
        | Op::MvRegister(RegisterOp::Reset)
        | Op::AddWinsSet(SetOp::Reset)
        | Op::RemoveWinsSet(SetOp::Reset)
        | Op::EnableWinsFlag(FlagOp::Reset)
        | Op::DisableWinsFlag(FlagOp::Reset)
        | Op::ResettableMap(MapOp::Reset) => ("reset", true.into()),
    }
}
