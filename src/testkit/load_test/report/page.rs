//! The report as one self-contained page: no script, no other file.

use std::fmt::Write as _;

use super::plots;
use super::svg::{COLORS, escape};
use super::table::micros;
use super::{Report, SystemReport, Tally};

const STYLE: &str = include_str!("page.css");

/// Returns the page as HTML.
pub fn page(report: &Report) -> String {
    let mut text = String::new();
    write(&mut text, report).expect("a string takes all");
    text
}

fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let title = format!("geolock bench: {}", escape(&report.test.workload));
    writeln!(text, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(text, "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>")?;
    writeln!(text, "<style>\n{STYLE}")?;
    for (n, color) in COLORS.iter().enumerate() {
        writeln!(
            text,
            ".line.c{n} {{ stroke: {color} }} .fill.c{n}, i.c{n} {{ fill: {color}; background: {color} }}"
        )?;
    }
    writeln!(text, "</style>\n</head>\n<body>\n<h1>{title}</h1>")?;
    writeln!(text, "<p class=\"about\">{}</p>", escape(&about(report)))?;
    if report.systems.len() > 2 {
        comparison(text, report)?;
    } else {
        report.systems.iter().try_for_each(|system| tiles(text, report, system))?;
    }
    let sections = [
        ("How long an acquisition took", plots::latency(report)),
        ("Acquisitions a second", plots::throughput(report)),
    ];
    for (name, plot) in sections {
        section(text, name, &plots::legend(report), &plot)?;
    }
    if report.systems.len() > 1 {
        section(text, "How much, against how long one waits", "", &plots::trade(report))?;
    }
    for system in &report.systems {
        of_system(text, report, system)?;
    }
    writeln!(text, "<footer>{}</footer>\n</body>\n</html>", escape(&made(report)))
}

fn section(text: &mut String, name: &str, legend: &str, plot: &str) -> std::fmt::Result {
    writeln!(
        text,
        "<section>\n<h2>{}</h2>\n<p class=\"legend\">{legend}</p>\n<div class=\"plot\">\n{plot}</div>\n</section>",
        escape(name)
    )
}

fn about(report: &Report) -> String {
    let test = &report.test;
    let pace = match test.rate {
        Some(rate) => format!("{rate} acquisitions a second and datacenter are due"),
        None => "each asks again as soon as it has released".into(),
    };
    format!(
        "{}. {} in each datacenter, {pace}; measured for {} s after {} s. Between the datacenters: {}.",
        test.what(),
        test.clients(),
        test.seconds,
        test.warm_up_seconds,
        test.wan
    )
}

/// The main figures of each system, side by side.
fn comparison(text: &mut String, report: &Report) -> std::fmt::Result {
    let is_hot = report.systems.iter().any(|system| system.hot.is_some());
    let hand_offs = if is_hot { "<th>hand-offs a second</th>" } else { "" };
    writeln!(text, "<section><h2>Beside each other</h2>\n<div class=\"wide\"><table>")?;
    writeln!(
        text,
        "<tr><th></th><th>a second</th><th>p50</th><th>p99</th><th>longest</th>{hand_offs}<th>fairness</th><th>violations</th></tr>"
    )?;
    for system in &report.systems {
        let total = &system.total;
        let times = [total.acquire.p50, total.acquire.p99, total.longest];
        let times: String = times.map(|time| format!("<td>{}</td>", micros(time))).concat();
        let hand_offs = match &system.hot {
            Some(hot) => format!("<td>{:.1}</td>", hot.hand_offs_per_second),
            None if is_hot => "<td></td>".into(),
            None => String::new(),
        };
        writeln!(
            text,
            "<tr><th>{}</th><td>{:.0}</td>{times}{hand_offs}<td>{:.3}</td><td>{}</td></tr>",
            escape(&system.name),
            total.per_second,
            system.fairness(),
            system.violations
        )?;
    }
    writeln!(text, "</table></div></section>")
}

fn tiles(text: &mut String, report: &Report, system: &SystemReport) -> std::fmt::Result {
    let total = &system.total;
    let mut tiles = vec![
        (format!("{:.0}", total.per_second), "acquisitions a second"),
        (micros(total.acquire.p50), "half took no longer"),
        (micros(total.acquire.p99), "99 % took no longer"),
    ];
    if let Some(percent) = total.local_percent {
        tiles.push((format!("{percent:.1} %"), "without asking another datacenter"));
    }
    if let Some(hot) = &system.hot {
        tiles.push((format!("{:.1}", hot.hand_offs_per_second), "hand-offs a second"));
    }
    if let Some(wan) = &system.wan {
        tiles.push((
            format!("{:.2}", wan.messages_per_acquisition),
            "messages between datacenters an acquisition",
        ));
        tiles.push((format!("{:.0} B", wan.bytes_per_acquisition), "between datacenters an acquisition"));
    }
    if let Some(ms) = system.round_trip_ms {
        tiles.push((micros(1_000.0 * ms), "round trips between servers on average, as they see it"));
    }
    if system.dcs.len() > 1 {
        tiles.push((format!("{:.3}", system.fairness()), "fairness (1: all datacenters the same)"));
    }
    tiles.push((system.violations.to_string(), "violations among all acquisitions, each checked"));
    if report.systems.len() > 1 {
        writeln!(text, "<h2>{}</h2>", escape(&system.name))?;
    }
    writeln!(text, "<div class=\"tiles\">")?;
    for (value, what) in tiles {
        writeln!(text, "<div><b>{value}</b><span>{what}</span></div>")?;
    }
    writeln!(text, "</div>")
}

fn of_system(text: &mut String, report: &Report, system: &SystemReport) -> std::fmt::Result {
    let of = |name: &str| match report.systems.len() {
        1 => name.to_owned(),
        _ => format!("{name}: {}", system.name),
    };
    if let Some(hot) = &system.hot {
        section(text, &of("Who held the lock when"), "", &plots::hot(system, hot))?;
    }
    if system.dcs.len() > 1 {
        section(text, &of("Who got how much"), "", &plots::shares(system))?;
    }
    writeln!(text, "<section><h2>{}</h2>", escape(&of("Figures")))?;
    figures(text, system)?;
    if let Some(why) = &system.total.failure {
        writeln!(text, "<p class=\"wrong\">The first failure: {}</p>", escape(why))?;
    }
    system.described.iter().try_for_each(|what| writeln!(text, "<p class=\"wrong\">{}</p>", escape(what)))?;
    writeln!(text, "</section>")
}

/// Figures by datacenter, and their total.
fn figures(text: &mut String, system: &SystemReport) -> std::fmt::Result {
    writeln!(text, "<div class=\"wide\"><table>")?;
    // Leaves out columns of failures that did not occur.
    let went_wrong = |tally: &Tally| {
        [
            ("refused", tally.refused),
            ("lost", tally.lost),
            ("failed", tally.failed),
            ("missed", tally.missed),
            ("unfinished", tally.unfinished),
        ]
    };
    let shown = went_wrong(&system.total).map(|(_, count)| count > 0);
    let names: String = went_wrong(&system.total)
        .iter()
        .zip(shown)
        .filter(|(_, shown)| *shown)
        .map(|((name, _), _)| format!("<th>{name}</th>"))
        .collect();
    writeln!(
        text,
        "<tr><th></th><th>acquired</th><th>a second</th><th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>longest</th>{names}</tr>"
    )?;
    let rows = system.dcs.iter().map(|dc| (dc.name.as_str(), &dc.tally)).chain([("all", &system.total)]);
    for (name, tally) in rows {
        let counts: String = went_wrong(tally)
            .iter()
            .zip(shown)
            .filter(|(_, shown)| *shown)
            .map(|((_, count), _)| format!("<td>{count}</td>"))
            .collect();
        let times =
            [tally.acquire.p50, tally.acquire.p90, tally.acquire.p99, tally.acquire.p999, tally.longest];
        let times: String = times.map(|time| format!("<td>{}</td>", micros(time))).concat();
        writeln!(
            text,
            "<tr><th>{}</th><td>{}</td><td>{:.0}</td>{times}{counts}</tr>",
            escape(name),
            tally.acquisitions,
            tally.per_second,
        )?;
    }
    writeln!(text, "</table></div>")
}

fn made(report: &Report) -> String {
    let made = &report.made;
    format!(
        "geolock {} on {} cores{}; servers, clients and the simulated distance share them unless servers were named. \
         Seed {}. A latency counts from when the lock was wanted, or due (but for 2 ms in which a timer rings), until it was granted; \
         the longest may be of one that still waited when time was up; missed is what was due then and not begun. Repeat it: {}",
        made.version,
        made.cores,
        if made.processor.is_empty() { String::new() } else { format!(" ({})", made.processor) },
        report.test.seed,
        report.test.command
    )
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_page_has_every_plot_and_needs_nothing_else() {
        let page = page(&sample("hot", &["a<b", "oslo"]));
        for wanted in ["How long", "a second", "Who held", "Who got", "a&lt;b", "round trip", "1 violations"]
        {
            let (words, tags) = (wanted, page.replace("<b>1</b><span>violations", "1 violations"));
            assert!(tags.contains(words), "{wanted} is missing");
        }
        assert!(!page.contains("<script") && !page.contains("http"), "nothing is fetched");
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("NaN") && !page.contains("inf"), "every number is one");
    }
}
