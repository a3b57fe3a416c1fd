//! The present figures for people: a headline, warnings, rates, the links, the locks.

use std::ffi::OsStr;
use std::time::Duration;

use super::columns::{Column, Kind, cut, fit};
use super::sample::Picture;
use crate::base::time::brief;
use crate::cli::dc_names::DcNames;
use crate::cli::describe::{label, mode};
use crate::cli::print::{lock_name, size};
use crate::cli::status;
use geolock_api::proto::PeerStatus;
use geolock_client::{HotLock, LockDescription};

/// The size of a screen, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub width: usize,
    pub height: usize,
}

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Most warnings that are shown: the locks need the space.
const WARNINGS: usize = 3;
/// Fewest and most locks that are requested.
const LOCKS: std::ops::RangeInclusive<usize> = 1..=100;

/// Returns the number of locks that a screen may have space for.
pub(super) fn room(size: Size) -> u32 {
    size.height.clamp(*LOCKS.start(), *LOCKS.end()) as u32
}

/// Returns all lines in full width.
pub(super) fn plain(picture: &Picture<'_>) -> String {
    lines(picture, None, None).into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n")
}

/// Returns the lines that fit a screen. `trouble`: the time for which no server answers, and the reason.
pub(super) fn frame(
    picture: &Picture<'_>,
    trouble: Option<(Duration, &str)>,
    size: Size,
    style: Style,
) -> Vec<String> {
    let lines = lines(picture, trouble, Some(size.width));
    let shown = lines.into_iter().take(size.height).map(|line| {
        let text = cut(&line.text, size.width);
        if line.is_title && style == Style::Bold { format!("{BOLD}{text}{PLAIN}") } else { text }
    });
    shown.collect()
}

/// The look of titles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Bold,
    /// Text only.
    Plain,
}

impl Style {
    /// Returns the style for this value of `NO_COLOR` (no-color.org): an empty one counts as none.
    pub(super) fn of(no_color: Option<&OsStr>) -> Style {
        if no_color.is_some_and(|value| !value.is_empty()) { Style::Plain } else { Style::Bold }
    }
}

struct Line {
    text: String,
    is_title: bool,
}

fn lines(picture: &Picture<'_>, trouble: Option<(Duration, &str)>, width: Option<usize>) -> Vec<Line> {
    let status = &picture.now.status;
    let names = DcNames::of(status);
    let title = |text| Line { text, is_title: true };
    let line = |text| Line { text, is_title: false };
    let mut lines = vec![title(headline(picture, &names)), line(load(picture))];
    if let Some((since, why)) = trouble {
        let why = one_line(why);
        lines.push(title(format!(
            "! no answer for {}, still trying; these figures are old: {why}",
            brief(since)
        )));
    }
    lines.extend(
        picture.restarted.map(|since| line(format!("! the server was restarted {} ago", brief(since)))),
    );
    let warnings = status::warnings(status, &names);
    lines.extend(warnings.iter().take(WARNINGS).map(|warning| line(format!("! {warning}"))));
    let table = |columns: &[Column], rows: &[Vec<String>]| {
        let shown = fit(columns, rows, width).into_iter().enumerate();
        let lines = shown.map(|(place, text)| Line { text, is_title: place == 0 });
        [line(String::new())].into_iter().chain(lines).collect::<Vec<_>>()
    };
    lines.extend(table(&RATES, &rates(picture)));
    if !status.peers.is_empty() {
        let rows: Vec<_> = status.peers.iter().map(|peer| link(peer, picture, &names)).collect();
        lines.extend(table(&LINKS, &rows));
    }
    match &picture.now.hot {
        Ok(hot) => {
            let rows: Vec<_> = hot.iter().map(|hot| lock(hot, picture)).collect();
            lines.extend(table(&HOT, &rows));
            if hot.is_empty() {
                lines.push(line("No lock is waited for, or was so lately.".into()));
            }
        }
        Err(why) => {
            lines.extend([String::new(), format!("Locks are not shown: {}", one_line(why))].map(line))
        }
    }
    lines
}

fn headline(picture: &Picture<'_>, names: &DcNames) -> String {
    let status = &picture.now.status;
    let uptime = short(Some(Duration::from_millis(status.uptime_ms)));
    let version = one_line(&status.version);
    format!("{}  {}  up {uptime}  geolock {version}", names.show(status.dc), status::phase(status))
}

fn load(picture: &Picture<'_>) -> String {
    let counts = [
        ("held", "held"),
        ("waiting", "waiting"),
        ("remote_requests", "of others waiting"),
        ("parked", "parked"),
        ("leases", "leases"),
    ];
    counts.map(|(name, shown)| format!("{} {shown}", picture.now.count(name))).join(", ")
}

/// Returns foreign text without line breaks.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

const RATES: [Column; 8] = [
    Column { title: "GRANTS", kind: Kind::Text },
    Column { title: "/s", kind: Kind::Number },
    Column { title: "p50", kind: Kind::Number },
    Column { title: "p99", kind: Kind::Number },
    Column { title: "  MOVES", kind: Kind::Text },
    Column { title: "/s", kind: Kind::Number },
    Column { title: "  DELAY", kind: Kind::Text },
    Column { title: "p99", kind: Kind::Number },
];

fn rates(picture: &Picture<'_>) -> Vec<Vec<String>> {
    let local = picture.counted("grants_local_total");
    let remote = picture.counted("grants_total").zip(local).map(|(all, local)| (all - local).max(0.0));
    let row = |[name, took]: [&str; 2], rate, [moves, moved]: [&str; 2], [delay, delayed]: [&str; 2]| {
        vec![
            name.into(),
            per_second(rate),
            short(picture.took(took, 0.5)),
            short(picture.took(took, 0.99)),
            format!("  {moves}"),
            per_second(picture.counted(moved)),
            format!("  {delay}"),
            short(picture.took(delayed, 0.99)),
        ]
    };
    vec![
        row(
            ["local", "acquire_local"],
            local,
            ["in", "hand_offs_received_total"],
            ["journal", "journal_sync"],
        ),
        row(
            ["remote", "acquire_remote"],
            remote,
            ["out", "hand_offs_sent_total"],
            ["mailbox", "mailbox_delay"],
        ),
    ]
}

const LINKS: [Column; 9] = [
    Column { title: "LINK", kind: Kind::Text },
    Column { title: "", kind: Kind::Number },
    Column { title: "RTT", kind: Kind::Number },
    Column { title: "BEHIND", kind: Kind::Number },
    Column { title: "FOR", kind: Kind::Number },
    Column { title: "SENT/s", kind: Kind::Number },
    Column { title: "", kind: Kind::Number },
    Column { title: "RECEIVED/s", kind: Kind::Number },
    Column { title: "", kind: Kind::Number },
];

fn link(peer: &PeerStatus, picture: &Picture<'_>, names: &DcNames) -> Vec<String> {
    let traffic = picture.traffic(peer);
    let traffic = traffic.as_ref();
    let bytes = |rate: Option<f64>| rate.map_or("-".into(), |rate| size(rate as u64));
    vec![
        names.show(peer.dc),
        if peer.connected { "up" } else { "DOWN" }.into(),
        short(Some(Duration::from_micros(peer.rtt_us)).filter(|rtt| !rtt.is_zero())),
        peer.unacked_entries.to_string(),
        short(Some(Duration::from_millis(peer.lag_ms)).filter(|lag| !lag.is_zero())),
        per_second(traffic.map(|traffic| traffic.messages_sent)),
        bytes(traffic.map(|traffic| traffic.bytes_sent)),
        per_second(traffic.map(|traffic| traffic.messages_received)),
        bytes(traffic.map(|traffic| traffic.bytes_received)),
    ]
}

const HOT: [Column; 11] = [
    Column { title: "LOCK", kind: Kind::Name },
    Column { title: "HELD BY", kind: Kind::Text },
    Column { title: "FOR", kind: Kind::Number },
    Column { title: "WAIT", kind: Kind::Number },
    Column { title: "FIRST", kind: Kind::Text },
    Column { title: "FOR", kind: Kind::Number },
    Column { title: "GRANT/s", kind: Kind::Number },
    Column { title: "MOVE/s", kind: Kind::Number },
    Column { title: "WORST", kind: Kind::Number },
    Column { title: "MODE", kind: Kind::Extra },
    Column { title: "PARTS", kind: Kind::Extra },
];

fn lock(hot: &HotLock, picture: &Picture<'_>) -> Vec<String> {
    let unknown = LockDescription::default();
    let lock = hot.lock.as_ref().unwrap_or(&unknown);
    let rates = picture.lock(hot);
    let rates = rates.as_ref();
    let waits = Duration::from_millis(hot.head_wait_ms);
    let worst = Duration::from_micros(hot.max_wait_us);
    let (held_by, held_for) = held(hot, lock);
    vec![
        lock_name(&lock.name, lock.home),
        held_by,
        short(held_for),
        lock.waiting.to_string(),
        first(lock),
        short((lock.waiting > 0).then_some(waits)),
        per_second(rates.map(|rates| rates.grants)),
        per_second(rates.map(|rates| rates.hand_offs)),
        short(Some(worst).filter(|worst| !worst.is_zero())),
        lock.holders.first().map_or("-".into(), |holder| mode(holder.mode).chars().take(4).collect()),
        parts(lock),
    ]
}

/// Returns the first holder with the number of further ones, and the time since its grant.
fn held(hot: &HotLock, lock: &LockDescription) -> (String, Option<Duration>) {
    let dcs = |dcs: &[u32]| dcs.iter().map(|dc| format!("dc{dc}")).collect::<Vec<_>>().join(",");
    let Some(holder) = lock.holders.first() else {
        // Datacenters in `unknown_dcs` own parts, and their holders are not known.
        let known = lock.unknown_dcs.is_empty();
        return (if known { "nobody".into() } else { format!("{}?", dcs(&lock.unknown_dcs)) }, None);
    };
    let more = lock.holders.len().max(hot.local_holders as usize) - 1;
    let more = if more > 0 { format!("+{more} ") } else { String::new() };
    let text = format!("dc{} {more}{}", holder.dc, label(&holder.label));
    (text, Some(Duration::from_millis(holder.held_for_ms)))
}

fn first(lock: &LockDescription) -> String {
    let Some(waiter) = lock.waiters.first() else { return String::new() };
    let dc = waiter.request.map_or_else(String::new, |request| format!("dc{}", request.dc));
    // Other datacenters do not report labels.
    let who = if waiter.label.is_empty() { dc } else { format!("{dc} {}", label(&waiter.label)) };
    if waiter.parked { format!("parked {who}") } else { who }
}

fn parts(lock: &LockDescription) -> String {
    let owners: Vec<String> = lock.owners.iter().map(|part| format!("dc{}", part.owner)).collect();
    match owners.first() {
        Some(first) if owners.iter().all(|owner| owner == first) => first.clone(),
        _ => owners.join(","),
    }
}

/// Returns a duration in some six characters: `850us`, `1.2ms`, `350ms`, `12.5s`, `3m20s`, `2h05m`, `3d04h`.
fn short(duration: Option<Duration>) -> String {
    let Some(duration) = duration else { return "-".into() };
    let (micros, seconds) = (duration.as_micros(), duration.as_secs());
    match micros {
        0..1 => "<1us".into(),
        1..1_000 => format!("{micros}us"),
        1_000..10_000 => format!("{:.1}ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{}ms", micros / 1_000),
        _ if seconds < 60 => format!("{:.1}s", duration.as_secs_f64()),
        _ if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a rate in some four characters: `0`, `4.3`, `1234`, `12k`.
fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(0.0) => "0".into(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) if rate < 10_000.0 => format!("{rate:.0}"),
        Some(rate) => format!("{:.0}k", rate / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::top::json;
    use crate::cli::top::sample::Window;
    use geolock_api::proto::{self, Histogram, HistogramBucket, Holder, PartOwner, Phase, RequestId, Waiter};
    use geolock_client::Status;

    fn status(second: u64) -> Status {
        let took = |above_us, up_to_us| {
            let buckets = vec![HistogramBucket { above_us, up_to_us, count: 100 * second }];
            Histogram { count: 100 * second, sum_us: 0, buckets }
        };
        let counts = [
            ("grants_total", 1_500 * second),
            ("grants_local_total", 1_480 * second),
            ("hand_offs_sent_total", 12 * second),
            ("hand_offs_received_total", 13 * second),
            ("held", 3),
            ("waiting", 5),
        ];
        let durations = [
            ("acquire_local", took(0, 1)),
            ("acquire_remote", took(80_000, 90_000)),
            ("journal_sync", took(900, 1_000)),
        ];
        let peer = |dc, linked: bool| PeerStatus {
            dc,
            dc_name: format!("city{dc}"),
            connected: linked,
            reachable: linked,
            rtt_us: if linked { 80_100 } else { 0 },
            unacked_entries: 3,
            lag_ms: 350,
            messages_sent: 120 * second,
            bytes_sent: 13_000 * second,
            ..PeerStatus::default()
        };
        Status {
            dc_name: "oslo".into(),
            version: "1.2.3".into(),
            boot_id: 7,
            phase: Phase::Serving.into(),
            uptime_ms: 200_000,
            peers: vec![peer(1, true), peer(2, false)],
            counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
            durations: durations
                .map(|(name, took)| (name.to_owned(), took))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            ..Status::default()
        }
    }

    fn hot(name: &'static [u8], second: u64) -> HotLock {
        let holder = Holder {
            dc: 1,
            mode: proto::Mode::Exclusive.into(),
            label: "eve\x1b[2J".into(),
            held_for_ms: 61_000,
            ..Holder::default()
        };
        let request = Some(RequestId { dc: 2, n: 4 });
        let lock = LockDescription {
            name: name.into(),
            owners: (0..3).map(|part| PartOwner { part, owner: 1 }).collect(),
            holders: vec![holder],
            waiters: vec![Waiter { request, ..Waiter::default() }],
            waiting: 5,
            ..LockDescription::default()
        };
        HotLock {
            lock: Some(lock),
            head_wait_ms: 2_500,
            tracked_ms: 5_000 + 1_000 * second,
            grants: 6 * second,
            hand_offs: second,
            max_wait_us: 2_300_000,
            ..HotLock::default()
        }
    }

    fn pictures() -> Window {
        let hot =
            |second| Ok(vec![hot(b"orders\n", second), hot(b"a/lock/with/a/rather/long/name/17", second)]);
        Window::of([(status(1), hot(1)), (status(2), hot(2))])
    }

    #[test]
    fn a_picture_has_rates_links_and_locks() {
        let window = pictures();
        let expected = "\
dc0 (oslo)  serving  up 3m20s  geolock 1.2.3
3 held, 5 waiting, 0 of others waiting, 0 parked, 0 leases
! dc2 (city2) is unreachable: locks with parts there cannot move

GRANTS    /s   p50   p99    MOVES  /s    DELAY      p99
local   1480  <1us  <1us    in     13    journal  999us
remote    20  85ms  89ms    out    12    mailbox      -

LINK                RTT  BEHIND    FOR  SENT/s            RECEIVED/s
dc1 (city1)    up  80ms       3  350ms     120  12.7 KiB           0  0 B
dc2 (city2)  DOWN     -       3  350ms     120  12.7 KiB           0  0 B

LOCK                               HELD BY             FOR  WAIT  FIRST   FOR  GRANT/s  MOVE/s  WORST  MODE  PARTS
orders\\n                           dc1 eve\\u{1b}[2J  1m01s     5  dc2    2.5s      6.0     1.0   2.3s  excl    dc1
a/lock/with/a/rather/long/name/17  dc1 eve\\u{1b}[2J  1m01s     5  dc2    2.5s      6.0     1.0   2.3s  excl    dc1";
        assert_eq!(plain(&window.picture().expect("there is one")), expected);
    }

    #[test]
    fn without_colour_a_frame_is_text_only() {
        let window = pictures();
        let picture = window.picture().expect("there is one");
        let frame = |style| frame(&picture, None, Size { width: 80, height: 24 }, style).join("\n");
        assert!(frame(Style::of(Some("1".as_ref()))).chars().all(|c| c == '\n' || !c.is_control()));
        assert!(frame(Style::of(Some("".as_ref()))).contains(BOLD) && frame(Style::of(None)).contains(BOLD));
    }

    #[test]
    fn a_frame_fits_its_screen() {
        let window = pictures();
        let picture = window.picture().expect("there is one");
        let bare = |line: &String| line.replace(BOLD, "").replace(PLAIN, "");
        for size in
            [Size { width: 80, height: 24 }, Size { width: 40, height: 6 }, Size { width: 1, height: 1 }]
        {
            let frame = frame(&picture, Some((Duration::from_secs(3), "it is\ngone")), size, Style::Bold);
            assert!(frame.len() <= size.height, "{size:?}");
            for line in frame.iter().map(bare) {
                assert!(line.chars().count() <= size.width, "{size:?}: {line}");
                assert!(!line.chars().any(char::is_control), "{line}");
            }
        }
        let frame = frame(
            &picture,
            Some((Duration::from_secs(3), "gone")),
            Size { width: 80, height: 24 },
            Style::Bold,
        );
        let shown: Vec<String> = frame.iter().map(bare).collect();
        assert_eq!(shown[2], "! no answer for 3.0 s, still trying; these figures are old: gone");
        let last = "a/lock…ame/17 dc1 eve\\u{1… 1m01s    5 dc2   2.5s     6.0    1.0  2.3s excl   dc1";
        assert_eq!(shown.last().map(String::as_str), Some(last));
    }

    #[test]
    fn who_may_not_see_locks_sees_the_rest() {
        let refused = |second| (status(second), Err("no rule\nallows it".to_owned()));
        let window = Window::of([refused(1), refused(2)]);
        let picture = window.picture().expect("there is one");
        assert!(plain(&picture).ends_with("\n\nLocks are not shown: no rule allows it"));
        let object = json::picture(&picture);
        assert_eq!(
            (&object["locks_refused"], &object["locks"]),
            (&"no rule\nallows it".into(), &serde_json::json!([]))
        );
    }

    #[test]
    fn the_object_says_the_same() {
        let window = pictures();
        let object = json::picture(&window.picture().expect("there is one"));
        assert_eq!(object["rates"]["grants_local_per_s"], 1480.0);
        assert_eq!(object["durations"]["acquire_remote"]["p50_us"], 85_000.0);
        assert_eq!(object["links"][0]["messages_sent_per_s"], 120.0);
        let lock = &object["locks"][0];
        assert_eq!(
            (&lock["name"], &lock["grants_per_s"], &lock["hand_offs_per_s"]),
            (&"orders\n".into(), &6.0.into(), &1.0.into())
        );
        assert_eq!((&lock["holders"][0]["dc"], &lock["first"]["head_wait_ms"]), (&1.into(), &2_500.into()));
    }

    #[test]
    fn durations_and_rates_are_short() {
        let shown = [0, 850, 1_234, 350_000, 12_500_000, 200_000_000, 7_500_000_000, 273_600_000_000];
        let shown = shown.map(|micros| short(Some(Duration::from_micros(micros))));
        assert_eq!(shown, ["<1us", "850us", "1.2ms", "350ms", "12.5s", "3m20s", "2h05m", "3d04h"]);
        assert_eq!(
            [0.0, 4.26, 1_234.4, 12_345.0].map(|rate| per_second(Some(rate))),
            ["0", "4.3", "1234", "12k"]
        );
    }
}
