//! Metrics for scrapers that do not ask for OpenMetrics: the older Prometheus text format, converted from
//! OpenMetrics.
//!
//! The formats differ in three points. In the older one a counter is described under the name of its samples
//! (`_total`), units occur in names only, and the end is not marked.

use std::collections::BTreeSet;

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts a page of OpenMetrics (`open`) to the older format.
pub(super) fn classic(open: &str) -> String {
    let type_of = |line: &str| {
        let mut words = line.strip_prefix("# TYPE ")?.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let types = open.lines().filter_map(type_of);
    let counters: BTreeSet<String> =
        types.filter(|(_, kind)| kind == "counter").map(|(name, _)| name).collect();
    let mut page = String::with_capacity(open.len());
    for line in open.lines() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let described = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        let named = described.and_then(|(what, rest)| Some((what, rest.split_once(' ')?)));
        match named {
            Some((what, (name, rest))) if counters.contains(name) => {
                page.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
            }
            _ => page.extend([line, "\n"]),
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::classic;

    #[test]
    fn counters_are_described_by_the_name_of_their_samples() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n\
                    # HELP b Now.\n# TYPE b gauge\nb{peer=\"x\"} 2\n# EOF\n";
        let expected = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n\
                        # HELP b Now.\n# TYPE b gauge\nb{peer=\"x\"} 2\n";
        assert_eq!(classic(open), expected);
    }
}
