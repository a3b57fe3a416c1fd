//! Histograms of durations, and the hottest locks, as messages.

use std::collections::BTreeMap;

use super::show::{description, micros, millis};
use crate::base::histogram::{Bucket, Histogram};
use crate::replica::call::{HotLock, Status};
use crate::telemetry::Snapshot;
use geolock_api::proto;

/// Returns the histograms by name. `picture` has those that the machine does not measure.
pub(super) fn durations(status: &Status, picture: Option<&Snapshot>) -> BTreeMap<String, proto::Histogram> {
    let Status { acquires, majority_waits, .. } = status;
    let of_machine = [
        ("acquire_local", &acquires.local),
        ("acquire_remote", &acquires.remote),
        ("majority_wait", majority_waits),
    ];
    let of_edge = picture
        .map(|picture| [("journal_sync", &picture.sync_times), ("mailbox_delay", &picture.mailbox_delays)]);
    let all = of_machine.into_iter().chain(of_edge.into_iter().flatten());
    all.map(|(name, histogram)| (name.to_owned(), histogram_shown(histogram))).collect()
}

fn histogram_shown(histogram: &Histogram) -> proto::Histogram {
    let bucket = |bucket: Bucket| proto::HistogramBucket {
        above_us: bucket.above_us,
        up_to_us: bucket.up_to_us.unwrap_or(0),
        count: bucket.count,
    };
    proto::Histogram {
        count: histogram.count(),
        sum_us: micros(histogram.sum()),
        buckets: histogram.buckets().filter(|bucket| bucket.count > 0).map(bucket).collect(),
    }
}

pub(super) fn hot_lock(hot: &HotLock) -> proto::HotLock {
    proto::HotLock {
        lock: Some(description(&hot.lock)),
        local_holders: hot.local_holders as u64,
        head_wait_ms: millis(hot.head_wait),
        tracked_ms: millis(hot.tracked),
        total_wait_us: micros(hot.heat.waited),
        grants: hot.heat.grants,
        hand_offs: hot.heat.hand_offs,
        max_wait_us: micros(hot.heat.max_wait),
    }
}
