//! Output of subcommands, for people and for programs.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::failure::Failure;
use crate::telemetry::tell_through_log;
use geolock_api::names::{LockName, is_deceptive};

/// Prints one or more lines. A reader that closes the pipe early (`| head`) causes no failure.
pub fn print(text: impl Display) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::silent(0)),
        printed => Ok(printed?),
    }
}

/// Prints in the course of a longer task, which continues even if the output is closed.
pub fn print_on_the_way(text: impl Display) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints to standard error and ignores errors: a terminal may be gone, and a process with a log never waits
/// for its reader.
pub fn tell(text: impl Display) {
    let text = text.to_string();
    if tell_through_log(&text) {
        return;
    }
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Escapes a foreign text for people: characters that could control a terminal or deceive its reader.
pub fn harmless(text: &str) -> String {
    escaped(text, is_deceptive)
}

/// The same for text that may have several lines.
pub fn harmless_lines(text: &str) -> String {
    escaped(text, |c| is_deceptive(c) && !matches!(c, '\n' | '\t'))
}

/// If anything is escaped, so is a backslash, so that the escaping is reversible.
fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> String {
    if !text.contains(&is_bad) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\\' => shown.push_str("\\\\"),
            '\n' | '\r' | '\t' if is_bad(c) => shown.extend(c.escape_default()),
            c if is_bad(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Returns a number for programs. Numbers that JSON readers would round (most parse floating point) become
/// strings.
pub fn number(n: impl Into<i128>) -> Value {
    const EXACT: i128 = 1 << 53;
    let n = n.into();
    match i64::try_from(n) {
        Ok(small) if (-EXACT..=EXACT).contains(&n) => small.into(),
        _ => n.to_string().into(),
    }
}

/// Returns a lock's name for people, escaped where it is no text, with its home: `orders (home dc1)`.
pub fn lock_name(bytes: &[u8], home: Option<u32>) -> String {
    LockName::from_fields(bytes, home).map_or_else(|_| "(no name)".into(), |name| name.to_string())
}

/// Adds a lock's name for programs: `name` if it is UTF-8, `name_base64` otherwise; and `home`, if it has
/// one.
pub fn insert_lock_name(object: &mut Map<String, Value>, bytes: &[u8], home: Option<u32>) {
    insert_name(object, "name", bytes);
    object.extend(home.map(|home| ("home".to_owned(), home.into())));
}

/// Returns an object for programs about a lock: its name, then the fields of `rest`, which is an object.
pub fn named(lock: &[u8], home: Option<u32>, rest: Value) -> Value {
    let mut object = Map::new();
    insert_lock_name(&mut object, lock, home);
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    Value::Object(object)
}

/// Adds a name for programs: `field` if it is UTF-8, `field_base64` otherwise.
pub fn insert_name(object: &mut Map<String, Value>, field: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(field.into(), text.into()),
        Err(_) => object.insert(format!("{field}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Returns bytes for programs: a string if they are UTF-8, an object with `base64` otherwise.
pub fn bytes_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// Returns a time in milliseconds after the epoch as `2026-01-02 03:04:05 UTC`.
pub fn utc(millis: u64) -> String {
    let (days, second) = (millis / 86_400_000, millis / 1_000 % 86_400);
    // Counts years from March, in cycles of 400 of them, so that leap days come last.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * cycle + year + month / 10, (month + 2) % 12 + 1);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Returns a number of bytes as `120 B`, `1.5 KiB`, `64.0 MiB`, `2.3 GiB`.
pub fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

/// Returns lines with aligned columns, two spaces apart; the last column is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let width = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_or_escaped() {
        assert_eq!(lock_name("grün".as_bytes(), None), "grün");
        assert_eq!(lock_name(b"\xff\x00a", None), "\\xff\\x00a");
        let mut object = Map::new();
        insert_lock_name(&mut object, b"\xff\x00a", None);
        assert_eq!(Value::Object(object).to_string(), r#"{"name_base64":"/wBh"}"#);
        assert_eq!(lock_name(b"a", Some(1)), "a (home dc1)");
        let homed = named(b"a", Some(1), Value::Null);
        assert_eq!((&homed["name"], &homed["home"]), (&"a".into(), &1.into()));
    }

    #[test]
    fn text_of_others_does_nothing_to_a_terminal_and_deceives_nobody() {
        assert_eq!(harmless("Ærø \\ \"x\" 日本"), "Ærø \\ \"x\" 日本");
        assert_eq!(harmless("a\x1b[2J\\\n\t"), r"a\u{1b}[2J\\\n\t");
        assert_eq!(harmless("pay\u{202e}001\u{200b}"), r"pay\u{202e}001\u{200b}");
        assert_eq!(harmless_lines("a\n\tb"), "a\n\tb");
        assert_eq!(harmless_lines("a\n\rb"), "a\n\\rb");
        assert_eq!(lock_name("pay\u{202e}001".as_bytes(), None), r"pay\xe2\x80\xae001");
    }

    #[test]
    fn numbers_that_would_be_rounded_are_strings() {
        let shown = [1 << 53, -(1 << 53), (1 << 53) + 1, i64::MIN].map(number);
        let shown = shown.map(|value| value.to_string()).join(" ");
        assert_eq!(shown, r#"9007199254740992 -9007199254740992 "9007199254740993" "-9223372036854775808""#);
        assert_eq!(number(u64::MAX), "18446744073709551615");
    }

    #[test]
    fn moments_are_days_and_times() {
        let shown =
            [0, 951_782_399_999, 951_782_400_000, 951_868_800_000, 4_107_542_399_000, 4_133_980_799_000];
        let expected = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-28 23:59:59 UTC",
            "2000-02-29 00:00:00 UTC",
            "2000-03-01 00:00:00 UTC",
            "2100-02-28 23:59:59 UTC",
            "2100-12-31 23:59:59 UTC",
        ];
        assert_eq!(shown.map(utc), expected);
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1_023, 1_536, 64 << 20, 5 << 40].map(size);
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "64.0 MiB", "5120.0 GiB"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bcd", "e"], ["long", "", "f"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(table(&rows), "a     bcd  e\nlong       f");
    }
}
