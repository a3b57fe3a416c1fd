//! The syntax of a line of `geolock kv txn`.

use std::fmt;
use std::time::Duration;

use crate::server::config::parse_duration;

/// One operation; everything after the key and a space, up to the end of the line, is the value or element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Get(&'a [u8]),
    Put(&'a [u8], &'a [u8]),
    Incr(&'a [u8], i64),
    Add(&'a [u8], &'a [u8]),
    Remove(&'a [u8], Option<&'a [u8]>),
    Expire(&'a [u8], Duration),
    Commit,
    Abort,
}

/// A line with an unknown operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is none of: get KEY, put KEY VALUE, incr KEY [BY], add KEY ELEMENT, remove KEY [ELEMENT], expire KEY TIME, \
             commit, abort",
            self.0
        )
    }
}

/// Returns `None` for an empty line and a comment, which starts with `#`.
pub(super) fn parse(line: &[u8]) -> Result<Option<Operation<'_>>, Unknown> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let unknown = || Unknown(line.escape_ascii().to_string().chars().take(200).collect());
    let (word, rest) = split(line);
    let (key, value) = rest.map_or((None, None), |rest| {
        let (key, value) = split(rest);
        (Some(key).filter(|key| !key.is_empty()), value)
    });
    let operation = match (word, key, value) {
        (b"get", Some(key), None) => Operation::Get(key),
        (b"put", Some(key), Some(value)) => Operation::Put(key, value),
        (b"put", Some(key), None) => Operation::Put(key, b""),
        (b"incr", Some(key), None) => Operation::Incr(key, 1),
        (b"incr", Some(key), Some(by)) => {
            let by = std::str::from_utf8(by).ok().and_then(|by| by.trim().parse().ok());
            Operation::Incr(key, by.ok_or_else(unknown)?)
        }
        (b"add", Some(key), Some(element)) => Operation::Add(key, element),
        (b"remove", Some(key), element) => Operation::Remove(key, element),
        (b"expire", Some(key), Some(time)) => {
            let time = std::str::from_utf8(time).ok().and_then(|time| parse_duration(time.trim()));
            Operation::Expire(key, time.ok_or_else(unknown)?)
        }
        (b"commit", None, None) => Operation::Commit,
        (b"abort", None, None) => Operation::Abort,
        _ => return Err(unknown()),
    };
    Ok(Some(operation))
}

/// Splits at the first space.
fn split(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_to_do() {
        let parsed = |line: &'static str| parse(line.as_bytes()).expect("it is known");
        assert_eq!(parsed("get k\n"), Some(Operation::Get(b"k")));
        assert_eq!(parsed("  put k a value \r\n"), Some(Operation::Put(b"k", b"a value ")));
        assert_eq!(parsed("put k"), Some(Operation::Put(b"k", b"")));
        assert_eq!(parsed("incr k"), Some(Operation::Incr(b"k", 1)));
        assert_eq!(parsed("incr k -5"), Some(Operation::Incr(b"k", -5)));
        assert_eq!(parsed("add k e f"), Some(Operation::Add(b"k", b"e f")));
        assert_eq!(parsed("remove k"), Some(Operation::Remove(b"k", None)));
        assert_eq!(parsed("remove k e"), Some(Operation::Remove(b"k", Some(b"e"))));
        assert_eq!(parsed("expire k 10s"), Some(Operation::Expire(b"k", Duration::from_secs(10))));
        assert_eq!(parsed("commit"), Some(Operation::Commit));
        assert_eq!(parsed("abort"), Some(Operation::Abort));
        assert_eq!((parsed(""), parsed("\n"), parsed("# a note")), (None, None, None));
    }

    #[test]
    fn what_is_not_understood_is_shown() {
        for line in [
            "get",
            "get ",
            "get a b",
            "incr k five",
            "add k",
            "expire k",
            "expire k soon",
            "abort now",
            "drop k",
            "GET k",
        ] {
            let error = parse(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
