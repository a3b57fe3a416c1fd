//! From measurements to results.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::options::Options;
use super::pace::Missed;
use super::recorder::{Recorded, Span, histogram, nanos};
use super::report::{HotReport, Latency, LinkReport, Tally, WanReport};
use super::servers::Figures;

const NANOS_IN_MICRO: f64 = 1_000.0;
/// Holds of one datacenter count as one turn if they are no further apart than this.
const BREAK: Duration = Duration::from_millis(1);

/// Returns the quantiles to report: evenly spaced, and denser towards 1.
fn quantiles() -> impl Iterator<Item = f64> {
    let even = (0..49).map(|n| f64::from(n) / 50.0);
    // 0.98 up to 0.999999, 20 points for each further nine.
    let tail = (0..=86).map(|n| 1.0 - 0.02 * 10f64.powf(-f64::from(n) / 20.0));
    even.chain(tail).chain([1.0])
}

pub(super) fn latency(times: &Histogram<u64>) -> Latency {
    if times.is_empty() {
        return Latency::default();
    }
    let micros = |nanos: u64| nanos as f64 / NANOS_IN_MICRO;
    let at = |quantile| micros(times.value_at_quantile(quantile));
    // Beyond the last value nothing is known.
    let known = quantiles().filter(|q| *q == 1.0 || (1.0 - q) * times.len() as f64 >= 1.0);
    Latency {
        count: times.len(),
        mean: times.mean() / NANOS_IN_MICRO,
        min: micros(times.min()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: micros(times.max()),
        curve: known.map(|q| (q, at(q))).collect(),
    }
}

/// Summarizes the measurements of one or more datacenters. In an open loop the latencies include the waits so
/// far of the acquisitions that were due and not complete at the end: otherwise a server that stalls at the
/// end would seem faster.
pub(super) fn tally(recorded: &[Recorded], missed: &[Missed], options: &Options) -> Tally {
    let mut all = recorded[0].clone();
    for other in &recorded[1..] {
        all.acquire.add(&other.acquire).expect("all have the same bounds");
        all.release.add(&other.release).expect("all have the same bounds");
        all.locks += other.locks;
        all.refused += other.refused;
        all.lost += other.lost;
        all.failed += other.failed;
        all.failure = all.failure.or_else(|| other.failure.clone());
        all.unfinished.extend(&other.unfinished);
    }
    let acquisitions = all.acquire.len();
    if options.rate.is_some() {
        let waits = missed.iter().flat_map(|missed| missed.waits()).chain(all.unfinished.iter().copied());
        waits.for_each(|wait| all.acquire.saturating_record(nanos(wait)));
    }
    let acquire = latency(&all.acquire);
    let longest_wait = all.unfinished.iter().max().copied().unwrap_or_default().as_secs_f64() * 1e6;
    Tally {
        acquisitions,
        per_second: acquisitions as f64 / options.duration.as_secs_f64(),
        locks: all.locks,
        local_percent: None,
        refused: all.refused,
        lost: all.lost,
        failed: all.failed,
        failure: all.failure,
        missed: missed.iter().map(|missed| missed.count).sum(),
        unfinished: all.unfinished.len() as u64,
        longest: acquire.max.max(longest_wait),
        acquire,
        release: latency(&all.release),
    }
}

/// Returns the percentage of local grants between two samples.
pub(super) fn local_percent<'a>(looks: impl Iterator<Item = (&'a Figures, &'a Figures)>) -> Option<f64> {
    let (mut grants, mut local) = (0, 0);
    for (before, after) in looks {
        grants += after.grants.saturating_sub(before.grants);
        local += after.local_grants.saturating_sub(before.local_grants);
    }
    (grants > 0).then(|| 100.0 * local as f64 / grants as f64)
}

/// Returns the traffic on the links between two samples of all datacenters.
pub(super) fn wan(before: &[Figures], after: &[Figures], acquisitions: u64, measured: Duration) -> WanReport {
    let spent = |of: fn(&Figures) -> u64| -> u64 {
        before.iter().zip(after).map(|(before, after)| of(after).saturating_sub(of(before))).sum()
    };
    let (messages, bytes) = (spent(|figures| figures.messages_sent), spent(|figures| figures.bytes_sent));
    let each = |what: u64| what as f64 / acquisitions.max(1) as f64;
    let links = after.iter().enumerate().flat_map(|(n, from)| {
        // Each link once: its other end comes later.
        let later = move |name: &str| after[n + 1..].iter().any(|other| other.name == name);
        from.rtts.iter().filter(move |(to, _)| later(to)).map(|(to, rtt)| LinkReport {
            from: from.name.clone(),
            to: to.clone(),
            rtt_ms: *rtt as f64 / 1_000.0,
        })
    });
    WanReport {
        messages,
        bytes,
        messages_per_acquisition: each(messages),
        bytes_per_acquisition: each(bytes),
        bytes_per_second: bytes as f64 / measured.as_secs_f64(),
        links: links.collect(),
    }
}

/// Returns the turns of the hot lock. `spans` by datacenter, up to `measured`.
pub(super) fn hot(spans: &[Vec<Span>], measured: Duration) -> HotReport {
    let mut all: Vec<(usize, Span)> =
        spans.iter().enumerate().flat_map(|(dc, spans)| spans.iter().map(move |span| (dc, *span))).collect();
    all.retain(|(_, span)| span.from < measured);
    all.sort_by_key(|(_, span)| span.from);
    let mut times = histogram();
    let mut turns: Vec<(usize, Span)> = Vec::new();
    let (mut hand_offs, mut held, mut last) = (0_u64, Duration::ZERO, None::<(usize, Span)>);
    for (dc, span) in all {
        held += span.until.min(measured).saturating_sub(span.from);
        if let Some((_, before)) = last.filter(|(other, _)| *other != dc) {
            hand_offs += 1;
            times.saturating_record(span.from.saturating_sub(before.until).as_nanos() as u64);
        }
        last = Some((dc, span));
        match turns.last_mut() {
            Some((of, turn)) if *of == dc && span.from.saturating_sub(turn.until) <= BREAK => {
                turn.until = span.until
            }
            _ => turns.push((dc, span)),
        }
    }
    let ms = |at: Duration| at.as_secs_f64() * 1_000.0;
    HotReport {
        turns: turns.into_iter().map(|(dc, turn)| (dc, ms(turn.from), ms(turn.until))).collect(),
        hand_offs_per_second: hand_offs as f64 / measured.as_secs_f64(),
        hand_off: latency(&times),
        held_percent: 100.0 * held.as_secs_f64() / measured.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_tells_its_quantiles_in_microseconds() {
        let mut times = histogram();
        (1..=1_000).for_each(|n| times.saturating_record(n * 1_000_000));
        let latency = latency(&times);
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.002;
        assert!(near(latency.p50, 500_000.0) && near(latency.p99, 990_000.0), "{latency:?}");
        assert!(near(latency.max, 1_000_000.0) && near(latency.min, 1_000.0), "{latency:?}");
        assert!(latency.curve.is_sorted() && latency.curve.last().is_some_and(|(q, _)| *q == 1.0));
        assert!(
            latency.curve.iter().all(|(q, _)| *q == 1.0 || *q <= 0.999 + 1e-9),
            "a thousand show no more"
        );
    }

    #[test]
    fn hand_offs_go_from_one_datacenter_to_another() {
        let ms = Duration::from_millis;
        let span = |from, until| Span { from: ms(from), until: ms(until) };
        let spans = [vec![span(0, 10), span(10, 20), span(100, 120)], vec![span(50, 70)]];
        let hot = hot(&spans, ms(200));
        assert_eq!(hot.turns, [(0, 0.0, 20.0), (1, 50.0, 70.0), (0, 100.0, 120.0)]);
        assert_eq!((hot.hand_offs_per_second, hot.held_percent), (10.0, 30.0));
        // The spans are known only up to then.
        let hot = super::hot(&spans, ms(60));
        assert_eq!((hot.turns.len(), hot.held_percent.round()), (2, 50.0));
        assert!((29_900.0..=30_100.0).contains(&hot.hand_off.p50), "{hot:?}");
    }

    #[test]
    fn what_links_cost_is_told_by_acquisition() {
        let look = |name: &str, to: &str, messages_sent, bytes_sent| Figures {
            name: name.into(),
            messages_sent,
            bytes_sent,
            rtts: vec![(to.into(), 80_000)],
            ..Figures::default()
        };
        let before = [look("a", "b", 10, 1_000), look("b", "a", 10, 2_000)];
        let after = [look("a", "b", 20, 2_000), look("b", "a", 20, 2_000)];
        let wan = wan(&before, &after, 10, Duration::from_secs(2));
        assert_eq!((wan.messages, wan.messages_per_acquisition), (20, 2.0));
        assert_eq!((wan.bytes_per_acquisition, wan.bytes_per_second), (100.0, 500.0));
        assert_eq!(wan.links, [LinkReport { from: "a".into(), to: "b".into(), rtt_ms: 80.0 }]);
    }
}
