//! Heartbeats of version 2.

/// A heartbeat, for `#[serde(with)]`: [`crate::replica::Heartbeat::speaks`] is sent as the set of the members
/// that know version 2, and read from it.
pub mod heartbeat {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::base::time::Timestamp;
    use crate::crdt::VersionVector;
    use crate::replica::lifecycle::CHAINED;
    use crate::replica::{Floor, Heartbeat, NotServing, Terms};
    use geolock_api::names::{DcId, DcSet};

    /// Wire type: this never changes.
    #[derive(Serialize, Deserialize)]
    struct HeartbeatV2<'a> {
        clock: Timestamp,
        durable: Cow<'a, VersionVector>,
        linked: DcSet,
        heard: Cow<'a, [(DcId, Timestamp, u32)]>,
        floors: Cow<'a, [Floor]>,
        not_serving: Cow<'a, [(DcId, NotServing)]>,
        terms: Terms,
        heads: Cow<'a, [(DcId, u64)]>,
        fork: Option<(DcId, u64)>,
        upgraded: DcSet,
        lead_ms: u64,
        yours: Option<(Timestamp, u64)>,
        acknowledged: Cow<'a, [(DcId, VersionVector)]>,
    }

    pub fn serialize<S: Serializer>(heartbeat: &Heartbeat, serializer: S) -> Result<S::Ok, S::Error> {
        let upgraded = heartbeat.speaks.iter().filter(|(_, version)| *version >= CHAINED);
        HeartbeatV2 {
            clock: heartbeat.clock,
            durable: Cow::Borrowed(&heartbeat.durable),
            linked: heartbeat.linked,
            heard: Cow::Borrowed(&heartbeat.heard),
            floors: Cow::Borrowed(&heartbeat.floors),
            not_serving: Cow::Borrowed(&heartbeat.not_serving),
            terms: heartbeat.terms,
            heads: Cow::Borrowed(&heartbeat.heads),
            fork: heartbeat.fork,
            upgraded: upgraded.map(|(dc, _)| *dc).collect(),
            lead_ms: heartbeat.lead_ms,
            yours: heartbeat.yours,
            acknowledged: Cow::Borrowed(&heartbeat.acknowledged),
        }
        .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Heartbeat>, D::Error> {
        let read = HeartbeatV2::deserialize(deserializer)?;
        Ok(Box::new(Heartbeat {
            clock: read.clock,
            durable: read.durable.into_owned(),
            linked: read.linked,
            heard: read.heard.into_owned(),
            floors: read.floors.into_owned(),
            not_serving: read.not_serving.into_owned(),
            terms: read.terms,
            heads: read.heads.into_owned(),
            fork: read.fork,
            speaks: read.upgraded.iter().map(|dc| (dc, CHAINED)).collect(),
            lead_ms: read.lead_ms,
            yours: read.yours,
            acknowledged: read.acknowledged.into_owned(),
        }))
    }
}
