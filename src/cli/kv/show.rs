//! Values and snapshots, for people and for programs.

use serde_json::{Map, Value as Json, json};

use crate::cli::print::{bytes_json, harmless, harmless_lines, insert_name, number};
use geolock_client::{Key, Reading, Snapshot, Value};

/// Returns a snapshot as one word: the number of entries of each datacenter's log.
pub(in crate::cli) fn snapshot(snapshot: &Snapshot) -> String {
    match &snapshot.seqs[..] {
        [] => "0".into(),
        seqs => seqs.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Parses the output of [`snapshot`].
pub(in crate::cli) fn parse_snapshot(text: &str) -> Result<Snapshot, &'static str> {
    let seqs: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
    let seqs = seqs.map_err(|_| "a snapshot is numbers with commas between them, as --snapshot shows it")?;
    if seqs.len() > 64 {
        return Err("a snapshot has at most 64 numbers: one for each datacenter");
    }
    Ok(Snapshot { seqs })
}

/// Returns the output of a watch for progress without events.
pub(in crate::cli) fn progress(position: &Snapshot, json: bool) -> String {
    let position = snapshot(position);
    if json {
        json!({ "event": "progress", "snapshot": position }).to_string()
    } else {
        format!("progress {position}")
    }
}

/// Returns a single value, in as many lines as it needs; `None` for no value.
pub(super) fn lines(value: &Value) -> Option<String> {
    let all = |values: &[bytes::Bytes]| values.iter().map(|value| text(value)).collect::<Vec<_>>().join("\n");
    Some(match value.reading()? {
        Reading::LwwRegister(Some(value)) => text_in_lines(value),
        Reading::Versioned(Some(versioned)) => text_in_lines(&versioned.value),
        Reading::MvRegister(values) => all(values),
        Reading::Set(_, elements) => all(elements),
        Reading::Map(_, fields) => {
            let line =
                |(field, value): &(bytes::Bytes, Reading)| format!("{}: {}", text(field), short(value));
            fields.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        reading => short(reading),
    })
}

/// Returns the value of a counter after an increment: a counter that is 0 reads as no value.
pub(super) fn counted(value: Option<Value>) -> Value {
    value.filter(Value::is_some).unwrap_or_else(|| Value::from(Reading::Counter(0)))
}

/// Returns one of several values, in a line.
pub(super) fn line(value: &Value) -> String {
    value.reading().map_or_else(|| "(nothing)".into(), short)
}

fn short(reading: &Reading) -> String {
    let all = |values: &[bytes::Bytes]| values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", ");
    match reading {
        Reading::Counter(count) | Reading::ResettableCounter(count) => count.to_string(),
        Reading::BoundedCounter { value, .. } => value.to_string(),
        Reading::LwwRegister(value) => value.as_deref().map(text).unwrap_or_default(),
        Reading::MvRegister(values) => all(values),
        Reading::Versioned(versioned) => versioned.as_ref().map(|it| text(&it.value)).unwrap_or_default(),
        Reading::Set(_, elements) => format!("{{{}}}", all(elements)),
        Reading::Flag(_, is_set) => if *is_set { "enabled" } else { "disabled" }.into(),
        Reading::Map(_, fields) => {
            let field =
                |(field, value): &(bytes::Bytes, Reading)| format!("{}: {}", text(field), short(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns text for a line: control characters are escaped, and so are bytes that are no text.
pub(in crate::cli) fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), harmless)
}

/// The same for a single value that may have several lines.
fn text_in_lines(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), harmless_lines)
}

/// Returns a key and its value. `type` and `value` are null if there is none.
pub(super) fn json(key: &Key, value: &Value) -> Json {
    let mut object = Map::new();
    insert_name(&mut object, "bucket", key.bucket());
    insert_name(&mut object, "key", key.name());
    insert_reading(&mut object, value.reading());
    Json::Object(object)
}

fn insert_reading(object: &mut Map<String, Json>, reading: Option<&Reading>) {
    let (of, value) = match reading {
        None => (Json::Null, Json::Null),
        Some(reading) => (reading.value_type().to_string().into(), value_json(reading)),
    };
    object.insert("type".into(), of);
    object.insert("value".into(), value);
    match reading {
        Some(Reading::BoundedCounter { rights, .. }) => {
            object.insert("rights".into(), number(*rights));
        }
        Some(Reading::Versioned(Some(versioned))) => {
            object.insert("version".into(), number(versioned.version));
            object.insert("done".into(), json!(versioned.done));
        }
        _ => {}
    }
}

fn value_json(reading: &Reading) -> Json {
    let all =
        |values: &[bytes::Bytes]| values.iter().map(|value| bytes_json(value)).collect::<Vec<_>>().into();
    match reading {
        Reading::Counter(count) | Reading::ResettableCounter(count) => number(*count),
        Reading::BoundedCounter { value, .. } => number(*value),
        Reading::LwwRegister(value) => value.as_deref().map_or(Json::Null, bytes_json),
        Reading::MvRegister(values) => all(values),
        Reading::Versioned(versioned) => versioned.as_ref().map_or(Json::Null, |it| bytes_json(&it.value)),
        Reading::Set(_, elements) => all(elements),
        Reading::Flag(_, is_set) => json!(is_set),
        Reading::Map(_, fields) => fields.iter().map(|(field, reading)| field_json(field, reading)).collect(),
    }
}

fn field_json(field: &[u8], reading: &Reading) -> Json {
    let mut object = Map::new();
    insert_name(&mut object, "field", field);
    insert_reading(&mut object, Some(reading));
    Json::Object(object)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use geolock_client::Type;

    fn some(reading: Reading) -> Value {
        Value::from(reading)
    }

    #[test]
    fn snapshots_are_one_word() {
        for text in ["0", "3", "3,0,7"] {
            assert_eq!(snapshot(&parse_snapshot(text).expect("it is one")), text);
        }
        assert_eq!(snapshot(&Snapshot::default()), "0");
        for wrong in ["", "a", "1,,2", "-1", "1 2"] {
            assert!(parse_snapshot(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_of_others_are_escaped() {
        let bytes = Bytes::from_static;
        let register = some(Reading::LwwRegister(Some(bytes("a\n\x1b]0;x\x07\u{202e}b".as_bytes()))));
        assert_eq!(lines(&register).as_deref(), Some("a\n\\u{1b}]0;x\\u{7}\\u{202e}b"));
        assert_eq!(line(&register), r"a\n\u{1b}]0;x\u{7}\u{202e}b");
        let set = some(Reading::Set(Type::AddWinsSet, vec![bytes(b"a\nb"), bytes(b"\r")]));
        assert_eq!(lines(&set).as_deref(), Some("a\\nb\n\\r"));
        let map = some(Reading::Map(Type::GrowOnlyMap, vec![(bytes(b"\x1b"), Reading::Counter(1 << 60))]));
        assert_eq!(lines(&map).as_deref(), Some(r"\u{1b}: 1152921504606846976"));
        let key = Key::new(b"b", b"k").expect("it is a key");
        assert_eq!(json(&key, &map)["value"][0]["value"], "1152921504606846976");
    }

    #[test]
    fn every_type_is_shown() {
        let bytes = Bytes::from_static;
        let set = Reading::Set(Type::AddWinsSet, vec![bytes(b"a"), bytes(b"\xff")]);
        assert_eq!(lines(&some(set.clone())).as_deref(), Some("a\n\\xff"));
        assert_eq!(line(&some(set.clone())), "{a, \\xff}");
        let map =
            Reading::Map(Type::GrowOnlyMap, vec![(bytes(b"f"), set), (bytes(b"g"), Reading::Counter(-2))]);
        assert_eq!(line(&some(map.clone())), "{f: {a, \\xff}, g: -2}");
        assert_eq!(lines(&some(map.clone())).as_deref(), Some("f: {a, \\xff}\ng: -2"));
        assert_eq!((lines(&Value::default()), line(&Value::default())), (None, "(nothing)".into()));
        let key = Key::new(b"b", b"k").expect("it is a key");
        assert_eq!(
            json(&key, &some(map)).to_string(),
            r#"{"bucket":"b","key":"k","type":"grow-only map","value":[{"field":"f","type":"add-wins set","value":["a",{"base64":"/w=="}]},{"field":"g","type":"counter","value":-2}]}"#
        );
        assert_eq!(json(&key, &Value::default())["value"], Json::Null);
    }
}
