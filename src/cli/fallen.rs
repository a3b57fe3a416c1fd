//! The locks and counters that an eviction or a forced recovery concerned, by name.

use geolock_client::AdminClient;
use serde_json::{Map, Value, json};

use super::connect;
use super::failure::Failure;
use super::print::{bytes_json, harmless, insert_lock_name, lock_name, number, print};
use geolock_api::proto::{Fallen, FallenCounter, FallenLock};

/// Shows the names for the last end of exactly these datacenters.
pub async fn show(admin: &AdminClient, dcs: &[u32], as_json: bool) -> Result<(), Failure> {
    let fallen = admin.whole_audit().await.map_err(connect::failure)?.fallen;
    match fallen.iter().rfind(|it| it.dcs == dcs) {
        Some(fallen) if as_json => print(json(fallen)),
        Some(fallen) => print(text(fallen)),
        None => print(
            "The names are not known here any more, or not yet: ask the datacenter again, or another one.",
        ),
    }
}

/// The names, as several lines.
pub fn text(fallen: &Fallen) -> String {
    let names = fallen.dcs.iter().map(|dc| format!("dc{dc}")).collect::<Vec<_>>().join(", ");
    let mut lines = vec![format!("End of {names} (decision {}):", fallen.decision)];
    lines.push(match fallen.locks {
        0 => "No lock had been used there last.".into(),
        1 => "The parts of this lock returned to their homes:".into(),
        locks => format!("The parts of these {locks} locks returned to their homes:"),
    });
    lines.extend(fallen.names.iter().map(|lock| format!("  {}", lock_name(&lock.name, lock.home))));
    let left_out = fallen.locks.saturating_sub(fallen.names.len() as u64);
    if left_out > 0 {
        lines.push(format!("  and {left_out} more, which were left out"));
    }
    lines.push(
        "Locks that were never used there have no row, and cannot be named: nothing of them moved.".into(),
    );
    if !fallen.counters.is_empty() {
        lines.push("Rights to decrement that nobody can use until a server has the id again:".into());
    }
    lines.extend(fallen.counters.iter().map(|counter| format!("  {}", rights(counter))));
    if fallen.more_counters {
        lines.push("  and perhaps those of more counters: not all keys were examined".into());
    }
    lines.join("\n")
}

fn rights(counter: &FallenCounter) -> String {
    let key = counter.key.clone().unwrap_or_default();
    let shown = |bytes: &[u8]| harmless(&String::from_utf8_lossy(bytes));
    format!("{}/{}: {}", shown(&key.bucket), shown(&key.name), counter.rights)
}

/// The same, for programs.
pub fn json(fallen: &Fallen) -> Value {
    let lock = |lock: &FallenLock| {
        let mut object = Map::new();
        insert_lock_name(&mut object, &lock.name, lock.home);
        Value::Object(object)
    };
    let counter = |counter: &FallenCounter| {
        let key = counter.key.clone().unwrap_or_default();
        json!({
            "bucket": bytes_json(&key.bucket),
            "key": bytes_json(&key.name),
            "rights": number(counter.rights),
        })
    };
    json!({
        "end_of": fallen.dcs,
        "decision": number(fallen.decision),
        "locks": number(fallen.locks),
        "names": fallen.names.iter().map(lock).collect::<Vec<_>>(),
        "left_out": number(fallen.locks.saturating_sub(fallen.names.len() as u64)),
        "counters": fallen.counters.iter().map(counter).collect::<Vec<_>>(),
        "more_counters": fallen.more_counters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::proto::Key;

    #[test]
    fn names_that_were_left_out_are_counted() {
        let lock = |name: &'static str, home| FallenLock { name: name.into(), home };
        let key = Some(Key { bucket: "default".into(), name: "stock".into() });
        let fallen = Fallen {
            decision: 8,
            dcs: vec![1, 2],
            locks: 5,
            names: vec![lock("orders/1", None), lock("printer", Some(1))],
            counters: vec![FallenCounter { key, rights: 12 }],
            more_counters: true,
        };
        let shown = "\
End of dc1, dc2 (decision 8):
The parts of these 5 locks returned to their homes:
  orders/1
  printer (home dc1)
  and 3 more, which were left out
Locks that were never used there have no row, and cannot be named: nothing of them moved.
Rights to decrement that nobody can use until a server has the id again:
  default/stock: 12
  and perhaps those of more counters: not all keys were examined";
        assert_eq!(text(&fallen), shown);
        assert_eq!((&json(&fallen)["left_out"], &json(&fallen)["names"][1]["home"]), (&json!(3), &json!(1)));
        let none = Fallen { dcs: vec![1], ..Fallen::default() };
        assert!(text(&none).contains("No lock had been used there last"), "{}", text(&none));
    }
}
