//! Options that were renamed, so that an old file or variable gets an error with the new name.

use std::fmt;

use toml::{Table, Value};

use super::error::variable_of;

/// Old and new key.
const RENAMED: &[(&str, &str)] = &[
    ("cluster", "cluster.name"),
    ("anti_entropy", "anti_entropy_interval"),
    ("listen.grpc", "listen.client"),
    ("agreed.heartbeat", "cluster.heartbeat_interval"),
    ("agreed.peer_timeout", "cluster.peer_timeout"),
    ("agreed.max_clock_skew", "cluster.max_clock_skew"),
    ("hold.go_home_after", "hold.idle_return_after"),
    ("limits.waiting", "limits.max_waiting"),
    ("limits.waiting_per_lease", "limits.max_waiting_per_lease"),
    ("limits.names_per_lease", "limits.max_name_bytes_per_lease"),
    ("limits.held", "limits.max_held"),
    ("limits.leases", "limits.max_leases"),
    ("limits.max_transaction", "limits.max_transaction_time"),
    ("limits.transactions", "limits.max_transactions"),
    ("limits.transaction_bytes", "limits.max_transaction_bytes"),
    ("limits.watch_bytes", "limits.max_watch_bytes"),
    ("limits.log", "limits.max_log_bytes"),
    ("limits.connections", "limits.max_connections"),
    ("limits.streams_per_connection", "limits.max_streams_per_connection"),
    ("limits.sessions", "limits.max_sessions"),
    ("limits.sessions_per_client", "limits.max_sessions_per_client"),
    ("limits.calls_per_client", "limits.max_calls_per_client"),
    ("limits.bytes_per_client", "limits.max_buffered_bytes_per_client"),
    ("limits.mailbox", "limits.max_mailbox_bytes"),
    ("limits.session_mailbox", "limits.max_mailbox_bytes_per_session"),
    ("limits.mailbox_per_client", "limits.max_mailbox_bytes_per_client"),
    ("limits.session_backlog", "limits.max_unread_bytes_per_session"),
    ("limits.shed_after", "limits.max_queue_delay"),
    ("journal.max_backlog", "journal.max_backlog_bytes"),
    ("journal.reserve", "journal.min_free_bytes"),
];

/// Options by their old names, each with its new one.
#[derive(Debug, PartialEq, Eq)]
pub struct NewNames(Vec<(String, String)>);

impl NewNames {
    /// Returns `None` if there are none.
    fn of(names: impl Iterator<Item = (String, String)>) -> Option<NewNames> {
        let names: Vec<_> = names.collect();
        (!names.is_empty()).then_some(NewNames(names))
    }
}

impl fmt::Display for NewNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (old, new)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}the option {old} is called {new} now: rename it")?;
        }
        Ok(())
    }
}

/// Returns the old keys in the text of a file.
pub(super) fn in_file(text: &str) -> Option<NewNames> {
    let file = Value::Table(text.parse::<Table>().ok()?);
    let given = RENAMED.iter().filter(|(old, _)| has(&file, old));
    NewNames::of(given.map(|(old, new)| ((*old).to_owned(), (*new).to_owned())))
}

/// Returns the environment variables with old names.
pub(super) fn in_environment(is_set: impl Fn(&str) -> bool) -> Option<NewNames> {
    let variables = RENAMED.iter().map(|(old, new)| (variable_of(old), variable_of(new)));
    NewNames::of(variables.filter(|(old, _)| is_set(old)))
}

/// Returns true if the file gives this option. A table of that name is a section.
fn has(value: &Value, key: &str) -> bool {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    match (value, rest) {
        (Value::Array(rows), _) => rows.iter().any(|row| has(row, key)),
        (Value::Table(table), None) => table.get(first).is_some_and(|found| !found.is_table()),
        (Value::Table(table), Some(rest)) => table.get(first).is_some_and(|found| has(found, rest)),
        _ => false,
    }
}
