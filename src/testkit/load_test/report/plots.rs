//! The plots of the page.

use super::svg::{Plot, Scale};
use super::table::micros;
use super::{HotReport, Latency, Report, SystemReport};

/// Turns of the hot lock that one plot shows; more would be a grey bar.
const TURNS: usize = 300;

/// Fewest acquisitions per point of throughput, on average: fewer would be noise.
const IN_A_POINT: usize = 20;

/// A curve of a plot, with its name and colour.
struct Curve<'a> {
    name: String,
    color: usize,
    latency: &'a Latency,
}

/// Returns one curve per datacenter for one system, one per system for several.
fn curves(report: &Report) -> Vec<Curve<'_>> {
    match report.systems.as_slice() {
        [system] => system
            .dcs
            .iter()
            .enumerate()
            .map(|(color, dc)| Curve { name: dc.name.clone(), color, latency: &dc.tally.acquire })
            .collect(),
        systems => systems
            .iter()
            .enumerate()
            .map(|(color, system)| Curve { name: system.name.clone(), color, latency: &system.total.acquire })
            .collect(),
    }
}

/// Returns the names of the colours.
pub(super) fn legend(report: &Report) -> String {
    let names = match report.systems.as_slice() {
        [system] => system.dcs.iter().map(|dc| dc.name.clone()).collect(),
        systems => systems.iter().map(|system| system.name.clone()).collect::<Vec<_>>(),
    };
    let entry = |(color, name): (usize, &String)| {
        format!(
            "<span><i class=\"c{}\"></i>{}</span>",
            color % super::svg::COLORS.len(),
            super::svg::escape(name)
        )
    };
    names.iter().enumerate().map(entry).collect()
}

/// The latencies of acquisitions, on two logarithmic scales: every step to the right leaves a tenth.
pub(super) fn latency(report: &Report) -> String {
    let curves = curves(report);
    let points = || curves.iter().flat_map(|curve| &curve.latency.curve);
    let least = points().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let most = points().map(|(_, time)| *time).fold(0.0, f64::max);
    let rest = points().filter(|(q, _)| *q < 1.0).map(|(q, _)| 1.0 - q).fold(0.1, f64::min);
    let nines = (-rest.log10()).ceil().max(2.0);
    // The largest value is drawn at the end.
    let x_of = |q: f64| if q >= 1.0 { nines } else { -(1.0 - q).log10() };
    let about = "How long acquisitions took, by percentile";
    let mut plot =
        Plot::new(340.0, about, Scale::Linear { from: 0.0, to: nines }, Scale::decades(least, most));
    plot.y_axis(micros);
    let named = [
        (0.0, "fastest"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
    ];
    let named = named.into_iter().filter(|(q, _)| x_of(*q) < nines - 0.3);
    let ticks: Vec<_> =
        named.map(|(q, text)| (x_of(q), text.into())).chain([(nines, "slowest".into())]).collect();
    plot.x_axis_at(&ticks);
    plot.x_title("of all acquisitions, so many took no longer");
    let wan = report.systems.iter().find_map(|system| system.wan.as_ref());
    let links = wan.into_iter().flat_map(|wan| &wan.links);
    let levels = links.map(|link| (link.rtt_ms * 1_000.0, format!("round trip {}-{}", link.from, link.to)));
    let levels: Vec<_> = levels.filter(|(rtt, _)| *rtt > least && *rtt < most).collect();
    plot.levels(&levels);
    for curve in &curves {
        let points = curve.latency.curve.iter().map(|(q, time)| (x_of(*q), *time));
        plot.line(points, curve.color, &curve.name);
    }
    plot.finish()
}

/// Acquisitions per second, over time.
pub(super) fn throughput(report: &Report) -> String {
    let lines: Vec<(String, Vec<f64>)> = match report.systems.as_slice() {
        [system] => system.dcs.iter().map(|dc| (dc.name.clone(), dc.throughput.clone())).collect(),
        systems => systems.iter().map(|system| (system.name.clone(), sum(system))).collect(),
    };
    let slices = lines.iter().map(|(_, line)| line.len()).max().unwrap_or(1);
    let acquired: u64 = report.systems.iter().map(|system| system.total.acquisitions).min().unwrap_or(0);
    let together =
        (IN_A_POINT * slices * lines.len()).div_ceil(acquired.max(1) as usize).min(slices / 5).max(1);
    let average = |points: &[f64]| points.iter().sum::<f64>() / points.len() as f64;
    let lines: Vec<(String, Vec<f64>)> =
        lines.into_iter().map(|(name, line)| (name, line.chunks(together).map(average).collect())).collect();
    let most = lines.iter().flat_map(|(_, line)| line).copied().fold(0.0, f64::max);
    let x = Scale::Linear { from: 0.0, to: report.test.seconds };
    let mut plot = Plot::new(260.0, "Acquisitions a second, over time", x, Scale::from_zero(most));
    plot.y_axis(|value| format!("{value:.0}"));
    plot.x_axis(|at| format!("{at} s"));
    for (color, (name, line)) in lines.iter().enumerate() {
        let slice = report.test.seconds / line.len().max(1) as f64;
        let points = line.iter().enumerate().map(|(n, value)| ((n as f64 + 0.5) * slice, *value));
        plot.line(points, color, name);
    }
    plot.finish()
}

/// Throughput of several systems over their 99.9th percentile of latency: up and to the left is better. The
/// 99th would say little about a hot lock, because with long turns hardly any acquisition waits for one.
pub(super) fn trade(report: &Report) -> String {
    let points = || report.systems.iter().map(|system| (system.total.acquire.p999, system.total.per_second));
    let least = points().map(|(wait, _)| wait).fold(f64::INFINITY, f64::min);
    let (longest, most) =
        points().fold((0.0_f64, 0.0_f64), |(a, b), (wait, rate)| (a.max(wait), b.max(rate)));
    let about = "Acquisitions a second against the wait that one in a thousand exceeds";
    let mut plot = Plot::new(300.0, about, Scale::decades(least, longest), Scale::from_zero(most));
    plot.y_axis(|value| format!("{value:.0}"));
    plot.x_axis(micros);
    plot.x_title("99.9 % of all acquisitions took no longer");
    for (color, (point, system)) in points().zip(&report.systems).enumerate() {
        plot.dot(point, color, &system.name);
    }
    plot.finish()
}

/// Returns the sum over all datacenters.
fn sum(system: &SystemReport) -> Vec<f64> {
    let slices = system.dcs.iter().map(|dc| dc.throughput.len()).max().unwrap_or(0);
    let of = |n: usize| system.dcs.iter().filter_map(|dc| dc.throughput.get(n)).sum();
    (0..slices).map(of).collect()
}

/// The turns of the hot lock: a row for each datacenter.
pub(super) fn hot(system: &SystemReport, hot: &HotReport) -> String {
    let shown = &hot.turns[..hot.turns.len().min(TURNS)];
    let (from, to) = (shown.first().map_or(0.0, |turn| turn.1), shown.last().map_or(1.0, |turn| turn.2));
    let rows = system.dcs.len() as f64;
    let (x, y) = (Scale::Linear { from, to }, Scale::Linear { from: 0.0, to: rows });
    let mut plot = Plot::new(60.0 + 42.0 * rows, "Which datacenter held the hot lock, over time", x, y);
    plot.x_axis(|at| format!("{} s", (at.round() / 1_000.0)));
    let row = |dc: usize| rows - 1.0 - dc as f64;
    for (dc, report) in system.dcs.iter().enumerate() {
        plot.row_name(row(dc) + 0.5, &report.name);
    }
    for (dc, from, until) in shown {
        let about = format!("{} from {from:.1} to {until:.1} ms", system.dcs[*dc].name);
        plot.block((*from, row(*dc) + 0.15), (*until, row(*dc) + 0.85), *dc, &about);
    }
    plot.finish()
}

/// The part of all acquisitions that each datacenter got.
pub(super) fn shares(system: &SystemReport) -> String {
    let total = system.total.acquisitions.max(1) as f64;
    let rows = system.dcs.len() as f64;
    let (x, y) = (Scale::Linear { from: 0.0, to: 100.0 }, Scale::Linear { from: 0.0, to: rows });
    let mut plot = Plot::new(60.0 + 34.0 * rows, "Share of the acquisitions by datacenter", x, y);
    plot.x_axis(|percent| format!("{percent:.0} %"));
    for (dc, report) in system.dcs.iter().enumerate() {
        let (row, share) = (rows - 1.0 - dc as f64, 100.0 * report.tally.acquisitions as f64 / total);
        plot.row_name(row + 0.5, &report.name);
        let about = format!("{}: {} acquisitions, {share:.1} %", report.name, report.tally.acquisitions);
        plot.block((0.0, row + 0.2), (share, row + 0.8), dc, &about);
    }
    plot.finish()
}
