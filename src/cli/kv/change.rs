//! Changes of keys, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::show;
use crate::cli::print::{bytes_json, insert_name, number};
use geolock_client::{
    Action, Change, Changed, FlagOp, MapOp, Op, RegisterOp, ResettableCounterOp, SetOp, Update,
};

/// A change, in the words of the command line.
struct Said<'a> {
    verb: &'static str,
    what: What<'a>,
}

/// The operand of the change.
enum What<'a> {
    Nothing,
    By(i64),
    Value(&'a [u8]),
    Version(u64, &'a [u8], bool),
    Elements(&'a [bytes::Bytes]),
    Rights(u8, u64),
}

/// Returns a change in a line.
pub(in crate::cli) fn line(change: &Change) -> String {
    let key = show::text(change.key.name());
    let update = match &change.action {
        Action::Update(update) => update,
        Action::Removed => return format!("removed {key}"),
        Action::Expires(after) => return format!("expire {key} in {after:?}"),
        Action::Expired => return format!("expired {key}"),
        _ => return format!("changed {key}"),
    };
    let Said { verb, what } = said(update);
    let mut line = format!("{verb} {key}");
    for step in &update.path {
        // Writing to a string cannot fail, here and below.
        let _ = write!(line, "[{}]", quoted(&step.field));
    }
    let _ = match what {
        What::Nothing => Ok(()),
        What::By(amount) => write!(line, " by {amount}"),
        What::Value(value) => write!(line, " = {}", show::text(value)),
        What::Version(version, value, false) => write!(line, " = {} (version {version})", show::text(value)),
        What::Version(version, value, true) => {
            write!(line, " = {} (version {version}, done)", show::text(value))
        }
        What::Elements(all) => all.iter().try_for_each(|element| write!(line, " {}", quoted(element))),
        What::Rights(to, amount) => write!(line, " by {amount} to datacenter {to}"),
    };
    line
}

/// Returns a change as an object. `position` is the snapshot from which to resume after the commit.
pub(super) fn json(change: &Change, commit: &Changed, position: &str) -> Json {
    let mut object = Map::new();
    object.insert("snapshot".into(), position.into());
    object.insert("dc".into(), commit.dc.get().into());
    object.insert("seq".into(), commit.seq.into());
    insert(&mut object, change);
    Json::Object(object)
}

/// Adds a change: its key, and the action on it.
pub(in crate::cli) fn insert(object: &mut Map<String, Json>, change: &Change) {
    insert_name(object, "bucket", change.key.bucket());
    insert_name(object, "key", change.key.name());
    let verb = match &change.action {
        Action::Update(update) => insert_update(object, update),
        Action::Removed => "removed",
        Action::Expires(after) => {
            object.insert("in_ms".into(), json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
            "expire"
        }
        Action::Expired => "expired",
        _ => "changed",
    };
    object.insert("change".into(), verb.into());
}

fn insert_update(object: &mut Map<String, Json>, update: &Update) -> &'static str {
    let all = |items: &[bytes::Bytes]| items.iter().map(|item| bytes_json(item)).collect::<Json>();
    let Said { verb, what } = said(update);
    object.insert("type".into(), update.op.value_type().to_string().into());
    if !update.path.is_empty() {
        object.insert("path".into(), update.path.iter().map(|step| bytes_json(&step.field)).collect());
    }
    match what {
        What::Nothing => {}
        What::By(amount) => {
            object.insert("by".into(), number(amount));
        }
        What::Value(value) => {
            object.insert("value".into(), bytes_json(value));
        }
        What::Version(version, value, done) => {
            object.extend([
                ("value".to_owned(), bytes_json(value)),
                ("version".to_owned(), number(version)),
                ("done".to_owned(), json!(done)),
            ]);
        }
        What::Elements(elements) => {
            object.insert("elements".into(), all(elements));
        }
        What::Rights(to, amount) => {
            object.extend([("to".to_owned(), json!(to)), ("by".to_owned(), number(amount))]);
        }
    }
    verb
}

fn said(update: &Update) -> Said<'_> {
    let (verb, what) = match &update.op {
        Op::Counter(by) | Op::BoundedCounter(by) | Op::ResettableCounter(ResettableCounterOp::Add(by)) => {
            ("incr", What::By(*by))
        }
        Op::TransferRights { to, amount } => ("transfer rights of", What::Rights(to.get(), *amount)),
        Op::LwwRegister(value) | Op::MvRegister(RegisterOp::Assign(value)) => ("put", What::Value(value)),
        Op::Versioned { version, value, done } => ("put", What::Version(*version, value, *done)),
        Op::AddWinsSet(SetOp::Add(elements))
        | Op::RemoveWinsSet(SetOp::Add(elements))
        | Op::GrowOnlySet(elements) => ("add", What::Elements(elements)),
        Op::AddWinsSet(SetOp::Remove(elements))
        | Op::RemoveWinsSet(SetOp::Remove(elements))
        | Op::ResettableMap(MapOp::Remove(elements)) => ("remove", What::Elements(elements)),
        Op::EnableWinsFlag(FlagOp::Enable) | Op::DisableWinsFlag(FlagOp::Enable) => ("enable", What::Nothing),
        Op::EnableWinsFlag(FlagOp::Disable) | Op::DisableWinsFlag(FlagOp::Disable) => {
            ("disable", What::Nothing)
        }
        Op::ResettableCounter(ResettableCounterOp::Reset)
        | Op::MvRegister(RegisterOp::Reset)
        | Op::AddWinsSet(SetOp::Reset)
        | Op::RemoveWinsSet(SetOp::Reset)
        | Op::EnableWinsFlag(FlagOp::Reset)
        | Op::DisableWinsFlag(FlagOp::Reset)
        | Op::ResettableMap(MapOp::Reset) => ("reset", What::Nothing),
    };
    Said { verb, what }
}

fn quoted(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("\"{}\"", bytes.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use geolock_api::names::DcId;
    use geolock_client::Key;

    fn updated(name: &[u8], update: Update) -> Change {
        changed(name, Action::Update(update))
    }

    fn changed(name: &[u8], action: Action) -> Change {
        Change { key: Key::new(b"default", name).expect("it is a key"), action }
    }

    #[test]
    fn every_change_is_one_line() {
        let dc = DcId::new(1).expect("few datacenters");
        let lines = [
            (updated(b"city", Update::register("Oslo")), "put city = Oslo"),
            (updated(b"a\n", Update::register("x\ny")), r"put a\n = x\ny"),
            (updated(b"v", Update::versioned_done(3, "x")), "put v = x (version 3, done)"),
            (updated(b"n", Update::counter(-5)), "incr n by -5"),
            (updated(b"n", Update::resettable_counter_reset()), "reset n"),
            (updated(b"n", Update::transfer_rights(dc, 5)), "transfer rights of n by 5 to datacenter 1"),
            (updated(b"set", Update::set_add(["x", "y\""])), r#"add set "x" "y\"""#),
            (updated(b"set", Update::set_remove([&b"\xff"[..]])), r#"remove set "\xff""#),
            (updated(b"flag", Update::enable_wins(FlagOp::Disable)), "disable flag"),
            (updated(b"who", Update::counter(1).in_field("b").in_field("a")), r#"incr who["a"]["b"] by 1"#),
            (changed(b"\xff", Action::Removed), r"removed \xff"),
            (changed(b"k", Action::Expires(Duration::from_millis(1_500))), "expire k in 1.5s"),
            (changed(b"k", Action::Expired), "expired k"),
            (changed(b"k", Action::Unknown), "changed k"),
        ];
        for (change, expected) in lines {
            assert_eq!(line(&change), expected);
        }
    }

    #[test]
    fn programs_get_all_there_is() {
        let dc = DcId::new(1).expect("few datacenters");
        let change = updated(b"set", Update::set_add([&b"x"[..], b"\xff"]).in_resettable_field("tags"));
        let commit = Changed { dc, seq: 7, changes: vec![change.clone()] };
        assert_eq!(
            json(&change, &commit, "3,7").to_string(),
            r#"{"bucket":"default","change":"add","dc":1,"elements":["x",{"base64":"/w=="}],"key":"set","path":["tags"],"seq":7,"snapshot":"3,7","type":"add-wins set"}"#
        );
        let removed = json(&changed(b"k", Action::Removed), &commit, "3,7");
        assert_eq!((&removed["change"], &removed["key"]), (&"removed".into(), &"k".into()));
        let expires = json(&changed(b"k", Action::Expires(Duration::from_secs(2))), &commit, "3,7");
        assert_eq!((&expires["change"], &expires["in_ms"]), (&"expire".into(), &2_000.into()));
    }
}
