//! The fault script: a TOML file, read at the start of a server and again on SIGUSR2.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path as File, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::Step;
use crate::base::wire::NEXT_VERSION;
use geolock_api::names::DcId;

/// A fault script. An empty one has no effect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    pub kill: Option<Kill>,
    /// A step that fails instead of being taken.
    pub fail: Option<Nth>,
    pub clock: Clock,
    /// The highest version of the protocol between datacenters that the server speaks, as an earlier release
    /// does, or the next one. Read at its start only.
    pub speak: Option<u16>,
    /// By the other datacenter, such as `dc1`: the path to it. Paths to datacenters that are not named have
    /// no faults.
    net: BTreeMap<String, Path>,
}

/// The point at which the process ends, as by `kill -9`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    pub when: When,
    pub step: Step,
    /// The first time, the second, ... since the script was read.
    #[serde(default = "first")]
    pub time: NonZeroU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    Before,
    After,
}

/// One step, at one of the times that it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nth {
    pub step: Step,
    #[serde(default = "first")]
    pub time: NonZeroU64,
}

/// The errors of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clock {
    /// Error of the wall clock, in milliseconds; negative if it is behind.
    pub ahead_ms: i64,
    /// Drift of the wall clock from now on, in millionths; positive if it is fast.
    pub drift_ppm: i64,
    /// The same for the monotonic clock, which measures leases and timeouts. More than -1 000 000.
    pub mono_drift_ppm: i64,
}

/// The path to another datacenter. The path back is set in that one's script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Path {
    pub cut: bool,
    delay_ms: u64,
    jitter_ms: u64,
    /// Share of datagrams, 0 to 1.
    pub loss: f64,
    /// Share of datagrams, 0 to 1.
    pub duplicate: f64,
    /// 0: no limit.
    pub bytes_per_second: u64,
}

/// The reason why the script is not used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("cannot read the fault script {}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("the fault script {}: {source}", file.display())]
    Parse { file: PathBuf, source: Box<toml::de::Error> },
    #[error("the fault script {}: {name:?} is no datacenter: say dc0, dc1, ...", file.display())]
    Datacenter { file: PathBuf, name: String },
    #[error("the fault script {}: speak = {version}: 1 to {}", file.display(), NEXT_VERSION)]
    Version { file: PathBuf, version: u16 },
    #[error("the fault script {}: {key} = {value} of {name}: 0 to 1", file.display())]
    Share { file: PathBuf, name: String, key: &'static str, value: f64 },
}

fn first() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl Script {
    pub fn load(file: &File) -> Result<Script, ScriptError> {
        let read = |source| ScriptError::Read { file: file.into(), source };
        let text = std::fs::read_to_string(file).map_err(read)?;
        let script: Script = toml::from_str(&text)
            .map_err(|source| ScriptError::Parse { file: file.into(), source: Box::new(source) })?;
        if let Some(version) = script.speak.filter(|version| !(1..=NEXT_VERSION).contains(version)) {
            return Err(ScriptError::Version { file: file.into(), version });
        }
        for (name, path) in &script.net {
            if datacenter(name).is_none() {
                return Err(ScriptError::Datacenter { file: file.into(), name: name.clone() });
            }
            for (key, value) in [("loss", path.loss), ("duplicate", path.duplicate)] {
                if !(0.0..=1.0).contains(&value) {
                    return Err(ScriptError::Share { file: file.into(), name: name.clone(), key, value });
                }
            }
        }
        Ok(script)
    }

    /// Returns the path to that datacenter.
    pub fn path(&self, to: DcId) -> Path {
        let named = self.net.iter().find(|(name, _)| datacenter(name) == Some(to));
        named.map(|(_, path)| *path).unwrap_or_default()
    }
}

fn datacenter(name: &str) -> Option<DcId> {
    DcId::new(name.strip_prefix("dc")?.parse().ok()?)
}

impl Path {
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// Returns the most random delay added to each datagram, so that they overtake each other.
    pub fn jitter(&self) -> Duration {
        Duration::from_millis(self.jitter_ms)
    }
}
