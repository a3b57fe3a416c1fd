//! Events and effects as lines of a trace, for people: one line each, entries by their operations.

use std::fmt::Write as _;

use crate::causal_log::{Entry, Op};
use crate::replica::{Effect, Event, Message, Record};

pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Received { peer, message: received } => format!("{peer} {}", message(received)),
        Event::Client { call, request, .. } => format!("s{}/{} {request:?}", call.session.0, call.tag),
        other => format!("{other:?}"),
    }
}

pub(super) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Persist { position, record: Record::Entry(persisted) } => {
            format!("persist {}: {}", position.0, entry(persisted))
        }
        Effect::Persist { position, record } => format!("persist {}: {record:?}", position.0),
        Effect::Send { peer, message: sent } => format!("{peer} {}", message(sent)),
        Effect::Reply { call, reply } => format!("s{}/{} {reply:?}", call.session.0, call.tag),
        other => format!("{other:?}"),
    }
}

pub(super) fn message(message: &Message) -> String {
    match message {
        Message::Heartbeat(heartbeat) => {
            format!(
                "heartbeat {} linked {:?} heard {:?}",
                heartbeat.durable, heartbeat.linked, heartbeat.heard
            )
        }
        Message::Entries(entries) => {
            let shown: Vec<String> = entries.iter().map(|e| entry(e)).collect();
            format!("entries {}", shown.join("; "))
        }
        other => format!("{other:?}"),
    }
}

fn entry(entry: &Entry) -> String {
    let mut text = format!("{}:{} after {}", entry.dc, entry.seq, entry.deps);
    for op in &entry.ops {
        // Writing to a String never fails.
        let _ = match op {
            Op::Request { id, at, wants } => write!(text, ", request {id} at {at} {:?}", wants.locks()),
            Op::Withdraw { id } => write!(text, ", withdraw {id}"),
            Op::Transfer { to, parts } => write!(text, ", to {to} {parts:?}"),
            Op::Commit(commit) => write!(text, ", commit from {} {:?}", commit.seen, commit.changes),
            Op::Enter { epoch } => write!(text, ", enter epoch {epoch}"),
            Op::Split { part } => write!(text, ", split part {part}"),
            Op::Done { part } => write!(text, ", done with part {part}"),
            Op::Freed { slot, generation } => write!(text, ", freed {slot} of generation {generation}"),
            Op::Leave => write!(text, ", leave"),
            Op::Keep { parts } => write!(text, ", keep {parts:?}"),
            Op::Rehome { epoch } => write!(text, ", rehome by {epoch}"),
            Op::Under { token } => write!(text, ", under {token:?}"),
        };
    }
    text
}
