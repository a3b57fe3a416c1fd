//! Distances between the datacenters of a playground.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use geolock_api::names::DcId;

/// Round-trip times between pairs of datacenters: a preset, or a TOML file such as
///
/// ```toml
/// [rtt_ms]
/// 0-1 = 80
/// 0-2 = 150.5
/// 1-2 = 220
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WanProfile {
    name: String,
    /// `None`: no distance between any pair, however many datacenters there are.
    rtt: Option<BTreeMap<(u8, u8), Duration>>,
}

/// The reason why there are no distances.
#[derive(Debug, thiserror::Error)]
pub enum WanProfileError {
    #[error("{name}: neither a preset (zero, eu, world) nor a file that can be read: {source}")]
    Unreadable { name: String, source: std::io::Error },
    #[error("{}: {reason}", file.display())]
    Malformed { file: PathBuf, reason: String },
    #[error(
        "{name} says nothing about the distance of datacenters {a} and {b}; \
        take fewer datacenters, `zero`, or a file that names all pairs"
    )]
    Unknown { name: String, a: u8, b: u8 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rtt_ms: BTreeMap<String, f64>,
}

/// Longest accepted round trip, in milliseconds.
const MAX_RTT_MS: f64 = 60_000.0;

impl WanProfile {
    /// Loads the preset of that name (`zero`, `eu`, `world`), or the file at that path.
    pub fn load(name: &str) -> Result<WanProfile, WanProfileError> {
        let preset = |rtts: [u64; 3]| {
            let pairs = [(0, 1), (0, 2), (1, 2)].into_iter();
            Some(pairs.zip(rtts.map(Duration::from_millis)).collect())
        };
        let rtt = match name {
            "zero" => None,
            "eu" => preset([10, 15, 20]),
            "world" => preset([80, 150, 220]),
            file => {
                let text = std::fs::read_to_string(file)
                    .map_err(|source| WanProfileError::Unreadable { name: file.into(), source })?;
                let malformed = |reason| WanProfileError::Malformed { file: file.into(), reason };
                Some(parse(&text).map_err(malformed)?)
            }
        };
        Ok(WanProfile { name: name.into(), rtt })
    }

    /// Returns the one-way delay between two datacenters: half their round-trip time.
    pub fn one_way(&self, from: DcId, to: DcId) -> Result<Duration, WanProfileError> {
        let (a, b) = (from.min(to).get(), from.max(to).get());
        match &self.rtt {
            Some(rtt) if a != b => {
                let rtt = rtt.get(&(a, b));
                rtt.map(|rtt| *rtt / 2).ok_or_else(|| WanProfileError::Unknown {
                    name: self.name.clone(),
                    a,
                    b,
                })
            }
            _ => Ok(Duration::ZERO),
        }
    }
}

fn parse(text: &str) -> Result<BTreeMap<(u8, u8), Duration>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let pairs = file.rtt_ms.into_iter().map(|(pair, rtt)| {
        let ids = pair.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (a, b): (u8, u8) =
            ids.ok_or_else(|| format!("{pair:?} is no pair of datacenters, such as 0-1"))?;
        if a == b || DcId::new(a.max(b)).is_none() {
            return Err(format!("{pair:?} is no pair of datacenters"));
        }
        if !(0.0..=MAX_RTT_MS).contains(&rtt) {
            return Err(format!("{pair}: {rtt} is no round-trip time, in milliseconds, up to {MAX_RTT_MS}"));
        }
        Ok(((a.min(b), a.max(b)), Duration::from_secs_f64(rtt / 1000.0)))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).unwrap()
    }

    #[test]
    fn presets_name_three_datacenters_and_no_more() {
        let world = WanProfile::load("world").unwrap();
        let one_way = |a, b| world.one_way(dc(a), dc(b)).unwrap().as_millis();
        assert_eq!([one_way(0, 1), one_way(2, 0), one_way(1, 2), one_way(1, 1)], [40, 75, 110, 0]);
        let error = world.one_way(dc(0), dc(3)).unwrap_err().to_string();
        assert!(error.contains("datacenters 0 and 3") && error.contains("zero"), "{error}");
        assert_eq!(WanProfile::load("zero").unwrap().one_way(dc(7), dc(60)).unwrap(), Duration::ZERO);
    }

    #[test]
    fn a_file_names_pairs_in_either_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("wan.toml");
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            WanProfile::load(file.to_str().unwrap())
        };
        let profile = load("[rtt_ms]\n0-1 = 30\n3-2 = 0.5\n").unwrap();
        assert_eq!(profile.one_way(dc(1), dc(0)).unwrap(), Duration::from_millis(15));
        assert_eq!(profile.one_way(dc(2), dc(3)).unwrap(), Duration::from_micros(250));
        for bad in
            ["[rtt_ms]\n0-0 = 1", "[rtt_ms]\n0-64 = 1", "[rtt_ms]\nx = 1", "[rtt_ms]\n0-1 = -1", "rtt = 1"]
        {
            assert!(matches!(load(bad), Err(WanProfileError::Malformed { .. })), "{bad}");
        }
        assert!(matches!(WanProfile::load("mars"), Err(WanProfileError::Unreadable { .. })));
    }
}
