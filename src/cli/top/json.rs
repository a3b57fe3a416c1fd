//! The present figures for programs.

use serde_json::{Map, Value, json};

use super::sample::Picture;
use crate::cli::describe::{holder_json, mode, request};
use crate::cli::print::named;
use geolock_api::proto::{PeerStatus, Waiter};
use geolock_client::{HotLock, LockDescription};

/// The object while no server answers.
pub(super) fn trouble(why: &str) -> Value {
    json!({ "unreachable": why })
}

/// Returns all figures. Rates are per second, over the interval; quantiles are over the last 10 s, `null`
/// without values.
pub(super) fn picture(picture: &Picture<'_>) -> Value {
    let status = &picture.now.status;
    let took = |name: &str| {
        let micros = |share| picture.took(name, share).map(|took| took.as_nanos() as f64 / 1e3);
        json!({ "p50_us": micros(0.5), "p99_us": micros(0.99) })
    };
    let durations = ["acquire_local", "acquire_remote", "journal_sync", "mailbox_delay"];
    let durations: Map<String, Value> =
        durations.map(|name| (name.to_owned(), took(name))).into_iter().collect();
    let gauges = ["leases", "held", "waiting", "remote_requests", "parked"];
    let gauges: Map<String, Value> =
        gauges.map(|name| (name.to_owned(), picture.now.count(name).into())).into_iter().collect();
    let rates = ["grants", "grants_local", "hand_offs_sent", "hand_offs_received"];
    let rate = |name: &str| (format!("{name}_per_s"), json!(picture.counted(&format!("{name}_total"))));
    let rates: Map<String, Value> = rates.map(rate).into_iter().collect();
    let (locks, refused) = match &picture.now.hot {
        Ok(hot) => (hot.iter().map(|hot| lock(hot, picture)).collect::<Vec<_>>(), None),
        Err(why) => (Vec::new(), Some(why)),
    };
    json!({
        "dc": status.dc,
        "dc_name": status.dc_name,
        "version": status.version,
        "boot_id": status.boot_id,
        "phase": status.phase().as_str_name().trim_start_matches("PHASE_").to_lowercase(),
        "uptime_ms": status.uptime_ms,
        "interval_ms": picture.interval().map(|interval| interval.as_millis() as u64),
        "counts": gauges,
        "rates": rates,
        "durations": durations,
        "links": status.peers.iter().map(|peer| link(peer, picture)).collect::<Vec<_>>(),
        "locks": locks,
        "locks_refused": refused,
    })
}

fn link(peer: &PeerStatus, picture: &Picture<'_>) -> Value {
    let traffic = picture.traffic(peer);
    let traffic = traffic.as_ref();
    json!({
        "dc": peer.dc,
        "dc_name": peer.dc_name,
        "connected": peer.connected,
        "reachable": peer.reachable,
        "rtt_us": peer.rtt_us,
        "unacked_entries": peer.unacked_entries,
        "lag_ms": peer.lag_ms,
        "messages_sent_per_s": traffic.map(|traffic| traffic.messages_sent),
        "messages_received_per_s": traffic.map(|traffic| traffic.messages_received),
        "bytes_sent_per_s": traffic.map(|traffic| traffic.bytes_sent),
        "bytes_received_per_s": traffic.map(|traffic| traffic.bytes_received),
    })
}

fn lock(hot: &HotLock, picture: &Picture<'_>) -> Value {
    let unknown = LockDescription::default();
    let lock = hot.lock.as_ref().unwrap_or(&unknown);
    let rates = picture.lock(hot);
    let rates = rates.as_ref();
    let first = |waiter: &Waiter| {
        json!({
            "request": request(waiter.request.as_ref()),
            "mode": mode(waiter.mode),
            "label": waiter.label,
            "parked": waiter.parked,
            "head_wait_ms": hot.head_wait_ms,
        })
    };
    let parts = lock.owners.iter().map(|part| json!({ "part": part.part, "owner": part.owner }));
    let rest = json!({
        "owners": parts.collect::<Vec<_>>(),
        "holders": lock.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "local_holders": hot.local_holders,
        "unknown_dcs": lock.unknown_dcs,
        "waiting": lock.waiting,
        "first": lock.waiters.first().map(first),
        "grants_per_s": rates.map(|rates| rates.grants),
        "hand_offs_per_s": rates.map(|rates| rates.hand_offs),
        "max_wait_us": hot.max_wait_us,
        "tracked_ms": hot.tracked_ms,
        "total_wait_us": hot.total_wait_us,
        "grants": hot.grants,
        "hand_offs": hot.hand_offs,
    });
    named(&lock.name, lock.home, rest)
}
