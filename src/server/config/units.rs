//! Durations and sizes as operators write them: one number and one unit.
//!
//! The `humantime` crate is not used, because it accepts more than an option should: sums ("1h 3ms"), months
//! beside minutes, and long spellings. The accepted forms here cannot be misread.

use std::fmt;
use std::time::Duration;

const DURATIONS: [(&str, u64); 5] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000), ("h", 3_600_000_000)];
/// Further units that are read, and not shown.
const ALSO_READ: [(&str, u64); 2] = [("m", 60_000_000), ("d", 86_400_000_000)];
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Parses a duration such as `250 ms`, `3s` or `1.5 h`. A part of a microsecond is refused.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let (_, scale) = DURATIONS.iter().chain(&ALSO_READ).find(|(name, _)| *name == unit)?;
    let (whole, parts) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(parts) {
        return None;
    }
    let parts_of = 10_u64.checked_pow(u32::try_from(parts.len()).ok()?)?;
    let parts = parts.parse::<u64>().ok()?.checked_mul(*scale)?;
    let micros = whole.parse::<u64>().ok()?.checked_mul(*scale)?.checked_add(parts / parts_of)?;
    parts.is_multiple_of(parts_of).then(|| Duration::from_micros(micros))
}

/// Parses a number of bytes such as `64 MiB`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    parse(text, &SIZES)
}

pub fn units_of_durations() -> String {
    format!("{}, d", names(&DURATIONS))
}

pub(super) fn units_of_sizes() -> String {
    names(&SIZES)
}

fn names(units: &[(&str, u64)]) -> String {
    units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

/// Returns the number and the unit, which one space may separate.
fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    (number, unit.strip_prefix(' ').unwrap_or(unit))
}

/// Shows a duration as it can be written: in the largest unit that divides it.
pub(super) struct ShownDuration(pub Duration);

impl fmt::Display for ShownDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX) {
            0 => f.write_str("0 s"),
            micros => show(f, micros, &DURATIONS),
        }
    }
}

/// Shows a number of bytes as it can be written.
pub(super) struct ShownSize(pub u64);

impl fmt::Display for ShownSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZES)
    }
}

fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let divides = |(_, scale): &&(&str, u64)| value != 0 && value.is_multiple_of(*scale);
    let (name, scale) = units.iter().rev().find(divides).unwrap_or(&units[0]);
    write!(f, "{} {name}", value / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written() {
        for (text, micros) in [
            ("250 ms", 250_000),
            ("3s", 3_000_000),
            ("0 us", 0),
            ("1 min", 60_000_000),
            ("2h", 7_200_000_000),
            ("1m", 60_000_000),
            ("1 d", 86_400_000_000),
            ("1.5s", 1_500_000),
            ("0.25 h", 900_000_000),
            ("1.000001 s", 1_000_001),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!((parse_size("64 MiB"), parse_size("512B")), (Some(64 << 20), Some(512)));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "3", "s", "-3s", "+3s", "3  s", " 3s", "3s ", "3 S", "3sec", "1h 3s", "3M", "3mo"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        for text in ["1.s", ".5s", "1.5.5s", "1.5us", "1.0000001 s", "1e3s", "0.1000000000000000000000 s"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        assert_eq!(parse_duration("18446744073709551615 us"), Some(Duration::from_micros(u64::MAX)));
        for text in ["18446744073709551616 us", "18446744073709551615 d", "9999999999.9 h"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        for text in ["64", "1.5 MiB", "64 MB", "64mib", "18446744073709551616 B", "18446744073709551615 KiB"]
        {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_written() {
        for micros in [0, 1, 1_000, 1_001, 250_000, 60_000_000, 3_600_000_000, 90_000_000] {
            let duration = Duration::from_micros(micros);
            assert_eq!(parse_duration(&ShownDuration(duration).to_string()), Some(duration));
        }
        assert_eq!(ShownDuration(Duration::from_secs(90)).to_string(), "90 s");
        assert_eq!(ShownSize(64 << 20).to_string(), "64 MiB");
    }
}
