//! The report for a terminal.

use std::fmt::Write as _;

use super::{Report, SystemReport, Tally};

/// Returns the report as text, some 20 lines.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    for system in &report.systems {
        write(&mut text, report, system).expect("a string takes all");
    }
    if report.systems.len() > 1 {
        side_by_side(&mut text, report).expect("a string takes all");
    }
    text
}

/// All systems, a line each, relative to the first one.
fn side_by_side(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(
        text,
        "\n{:<28} {:>10} {:>8} {:>9} {:>9} {:>9}",
        "", "a second", "ratio", "p50", "p99", "longest"
    )?;
    let first = report.systems[0].total.per_second;
    for system in &report.systems {
        let Tally { per_second, acquire, longest, .. } = &system.total;
        let ratio = if first > 0.0 { per_second / first } else { 0.0 };
        let [p50, p99, max] = [acquire.p50, acquire.p99, *longest].map(micros);
        writeln!(text, "{:<28} {per_second:>10.0} {ratio:>8.3} {p50:>9} {p99:>9} {max:>9}", system.name)?;
    }
    Ok(())
}

fn write(text: &mut String, report: &Report, system: &SystemReport) -> std::fmt::Result {
    let test = &report.test;
    writeln!(
        text,
        "{} {}, workload {}: {}; {} a datacenter{}, {} s, {}",
        system.name,
        system.version,
        test.workload,
        test.what(),
        test.clients(),
        test.rate.map_or(String::new(), |rate| format!(", {rate}/s due in each")),
        test.seconds,
        test.wan
    )?;
    writeln!(
        text,
        "{:<12} {:>12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "", "acquired", "a second", "p50", "p90", "p99", "p99.9", "longest", "local"
    )?;
    for dc in &system.dcs {
        row(text, &dc.name, &dc.tally)?;
    }
    if system.dcs.len() > 1 {
        row(text, "all", &system.total)?;
        writeln!(text, "fairness among datacenters {:.3} (1: all the same)", system.fairness())?;
    }
    let Tally { locks, acquisitions, release, .. } = &system.total;
    if locks > acquisitions {
        writeln!(text, "{locks} locks in {acquisitions} requests")?;
    }
    writeln!(text, "released in {} (p50), {} (p99)", micros(release.p50), micros(release.p99))?;
    if let Some(hot) = &system.hot {
        writeln!(
            text,
            "{:.1} hand-offs a second, each in {} (p50), {} (p99); held for {:.1} % of the time",
            hot.hand_offs_per_second,
            micros(hot.hand_off.p50),
            micros(hot.hand_off.p99),
            hot.held_percent
        )?;
    }
    if let Some(wan) = &system.wan {
        writeln!(
            text,
            "between datacenters {:.3} messages and {:.0} bytes an acquisition, {:.1} KB/s in all",
            wan.messages_per_acquisition,
            wan.bytes_per_acquisition,
            wan.bytes_per_second / 1_000.0
        )?;
    }
    if let Some(ms) = system.round_trip_ms {
        writeln!(text, "round trips between servers {} on average, as they see it", micros(1_000.0 * ms))?;
    }
    troubles(text, &system.total)?;
    match system.violations {
        0 if system.total.acquisitions == 0 => writeln!(text, "NOTHING was acquired"),
        0 => writeln!(text, "all acquisitions checked: no two holders that conflict, tokens increase"),
        count => {
            writeln!(text, "{count} VIOLATIONS:")?;
            system.described.iter().try_for_each(|what| writeln!(text, "  {what}"))
        }
    }
}

fn row(text: &mut String, name: &str, tally: &Tally) -> std::fmt::Result {
    let acquire = &tally.acquire;
    let [p50, p90, p99, p999, max] =
        [acquire.p50, acquire.p90, acquire.p99, acquire.p999, tally.longest].map(micros);
    let local = tally.local_percent.map_or_else(String::new, |percent| format!("{percent:.1} %"));
    writeln!(
        text,
        "{name:<12} {:>12} {:>10.0} {p50:>9} {p90:>9} {p99:>9} {p999:>9} {max:>9} {local:>8}",
        tally.acquisitions, tally.per_second
    )
}

fn troubles(text: &mut String, total: &Tally) -> std::fmt::Result {
    for (count, what) in [
        (total.refused, "refused because a server was full"),
        (total.lost, "lost while they were held"),
        (total.missed, "due and not begun when time was up"),
        (total.failed, "failed"),
    ] {
        if count > 0 {
            writeln!(text, "{count} {what}")?;
        }
    }
    if total.longest > total.acquire.max {
        let longest = micros(total.longest);
        writeln!(
            text,
            "{} waited for when time was up, or due, one of them for {longest}",
            total.unfinished
        )?;
    }
    total.failure.iter().try_for_each(|why| writeln!(text, "the first failure: {why}"))
}

/// Returns a time in the unit that reads best, with three digits.
pub(super) fn micros(micros: f64) -> String {
    let (value, unit) = match micros {
        _ if micros < 1_000.0 => (micros, "us"),
        _ if micros < 1_000_000.0 => (micros / 1_000.0, "ms"),
        _ => (micros / 1_000_000.0, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_table_says_what_happened_and_what_was_wrong() {
        let table = table(&sample("hot", &["oslo", "rome"]));
        for wanted in [
            "workload hot",
            "oslo",
            "500 us",
            "120 ms",
            "12.5 hand-offs",
            "1 VIOLATIONS",
            "held twice",
            "3 waited",
            "300 ms",
        ] {
            assert!(table.contains(wanted), "{wanted} is missing:\n{table}");
        }
        assert!(!table.contains("refused"), "what did not happen is not told");
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [0.5, 12.34, 150.0, 1_234.0, 82_000.0, 999_000.0, 2_500_000.0].map(micros);
        assert_eq!(shown, ["0.50 us", "12.3 us", "150 us", "1.23 ms", "82.0 ms", "999 ms", "2.50 s"]);
    }
}
