//! Finds the source of a value: flag or environment before file before default. Reads one option and checks
//! its bounds; an error names the source.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::pki::PkiError;

use super::error::{ConfigError, Place};
use super::options::Options;
use super::units::{
    ShownDuration, ShownSize, parse_duration, parse_size, units_of_durations, units_of_sizes,
};

/// The options of the command line and the environment, and those of the file, which they override.
pub(super) struct Sources<'a> {
    flags: &'a Options,
    file: &'a Options,
    path: Option<&'a Path>,
}

/// A value with its source.
pub(super) struct Given<T> {
    pub key: &'static str,
    pub place: Place,
    pub value: T,
}

impl<T> Given<T> {
    /// Returns an error about this value.
    pub fn refuse(&self, value: impl fmt::Display, allowed: impl Into<String>) -> ConfigError {
        let (key, place) = (self.key, self.place.clone());
        ConfigError::Invalid { place, key, value: value.to_string(), allowed: allowed.into() }
    }

    /// Returns an error about the certificate in this folder.
    pub fn refuse_certificate(&self, source: PkiError) -> ConfigError {
        ConfigError::Certificate { place: self.place.clone(), key: self.key, source }
    }
}

impl<'a> Sources<'a> {
    pub fn new(flags: &'a Options, file: &'a Options, path: Option<&'a Path>) -> Sources<'a> {
        Sources { flags, file, path }
    }

    fn in_file(&self) -> Place {
        self.path.map_or(Place::NoFile, |path| Place::File(path.to_owned()))
    }

    pub fn missing(&self, key: &'static str, what: &'static str) -> ConfigError {
        ConfigError::Missing { place: self.in_file(), key, what }
    }

    pub fn optional<T>(
        &self,
        key: &'static str,
        field: impl Fn(&'a Options) -> &'a Option<T>,
    ) -> Option<Given<&'a T>> {
        let flag = field(self.flags).as_ref().map(|value| Given { key, place: Place::Flag(key), value });
        flag.or_else(|| field(self.file).as_ref().map(|value| Given { key, place: self.in_file(), value }))
    }

    pub fn required<T>(
        &self,
        key: &'static str,
        what: &'static str,
        field: impl Fn(&'a Options) -> &'a Option<T>,
    ) -> Result<Given<&'a T>, ConfigError> {
        self.optional(key, field).ok_or_else(|| self.missing(key, what))
    }

    /// A list given as flags replaces that of the file as a whole.
    pub fn list<T>(&self, key: &'static str, field: impl Fn(&'a Options) -> &'a Vec<T>) -> Given<&'a [T]> {
        match field(self.flags).as_slice() {
            [] => Given { key, place: self.in_file(), value: field(self.file).as_slice() },
            value => Given { key, place: Place::Flag(key), value },
        }
    }

    pub fn duration(
        &self,
        key: &'static str,
        bounds: RangeInclusive<Duration>,
        default: Duration,
        field: impl Fn(&'a Options) -> &'a Option<String>,
    ) -> Result<Duration, ConfigError> {
        self.optional(key, field).map_or(Ok(default), |given| parse_within(&given, given.value, bounds))
    }

    /// Returns a number of bytes.
    pub fn size(
        &self,
        key: &'static str,
        bounds: RangeInclusive<u64>,
        default: u64,
        field: impl Fn(&'a Options) -> &'a Option<String>,
    ) -> Result<u64, ConfigError> {
        let Some(given) = self.optional(key, field) else { return Ok(default) };
        let allowed = || format!("{} to {}", ShownSize(*bounds.start()), ShownSize(*bounds.end()));
        let size = parse_size(given.value).ok_or_else(|| {
            let units = units_of_sizes();
            given.refuse(Quoted(given.value), format!("a whole number and one of {units}, {}", allowed()))
        })?;
        if bounds.contains(&size) { Ok(size) } else { Err(given.refuse(Quoted(given.value), allowed())) }
    }

    /// Returns a count.
    pub fn number(
        &self,
        key: &'static str,
        bounds: RangeInclusive<usize>,
        default: usize,
        field: impl Fn(&'a Options) -> &'a Option<u64>,
    ) -> Result<usize, ConfigError> {
        let Some(given) = self.optional(key, field) else { return Ok(default) };
        let number = usize::try_from(*given.value).ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| given.refuse(given.value, format!("{} to {}", bounds.start(), bounds.end())))
    }

    pub fn folder(
        &self,
        key: &'static str,
        what: &'static str,
        field: impl Fn(&'a Options) -> &'a Option<PathBuf>,
    ) -> Result<PathBuf, ConfigError> {
        let given = self.required(key, what, field)?;
        if given.value.as_os_str().is_empty() {
            return Err(given.refuse(Quoted(""), what));
        }
        Ok(given.value.clone())
    }
}

/// Parses a duration and checks its bounds; an error is about `given`.
pub(super) fn parse_within<T>(
    given: &Given<T>,
    text: &str,
    bounds: RangeInclusive<Duration>,
) -> Result<Duration, ConfigError> {
    let allowed = || format!("{} to {}", ShownDuration(*bounds.start()), ShownDuration(*bounds.end()));
    let duration = parse_duration(text).ok_or_else(|| {
        let units = units_of_durations();
        given.refuse(Quoted(text), format!("a number and one of {units}, {}", allowed()))
    })?;
    if bounds.contains(&duration) { Ok(duration) } else { Err(given.refuse(Quoted(text), allowed())) }
}

/// Text in quotes, as in the file.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
