//! `geolock top`: shows the present activity of a datacenter, and the locks that are waited for.

mod columns;
mod json;
mod sample;
mod terminal;
mod view;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::connect::{self, ConnectArgs};
use super::failure::{Code, Failure};
use super::print::print;
use super::stopping::StopSignals;
use crate::server::config::{parse_duration, units_of_durations};
use geolock_client::{ClientError, ReadClient};
use sample::{Picture, Sample, Window};
use terminal::{Ended, Terminal};
use view::{Size, Style};

/// Show the present activity of a datacenter: rates, links, and the locks that are waited for
///
/// As the answering datacenter sees it. Grants are `local` if the parts of the lock were there, `remote` if
/// another datacenter had to be asked; MOVES are locks of which parts arrived or left; quantiles are over
/// the last 10 s. A link is BEHIND by the log entries that the other end has not acknowledged, and FOR the
/// time for which the oldest of them has been durable.
///
/// Locks are sorted by the recent waiting time of their grants here, the longest first. HELD BY: `+2` means
/// two more holders, `dc1?` may hold it and was not asked, or did not answer. WAIT: the number of waiting
/// requests, in all datacenters; FIRST: the next holder. GRANT/s are grants here that had to wait, MOVE/s
/// arrivals and departures of parts, WORST is the longest wait of the last 10 to 20 s, PARTS the datacenters
/// that own the lock's parts: one of them, or each its own.
///
/// `q` and Ctrl-C end it. Without a terminal, or with --once, it prints the figures once. While no server
/// answers it says so, and continues when one does.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0 at the end, 69: no server reachable at the beginning, 77: the server does not admit this client, 64: wrong \
usage. A server with rules shows only names that the client may `describe`: give a prefix that it may describe.")]
pub struct TopArgs {
    /// Only locks whose names start with this
    #[arg(value_parser = clap::value_parser!(OsString), default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Time between two samples, over which rates are computed: 100 ms to 1 h
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = interval)]
    interval: Duration,
    /// Print the figures once, over one interval, and end
    #[arg(long)]
    once: bool,
    /// For programs: one JSON object for each interval; a lock is `name`, or `name_base64` if it is not UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
/// Locks that are shown without a screen, and in JSON.
const LOCKS: u32 = 20;

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)
        .ok_or_else(|| format!("a number and one of the units {}", units_of_durations()))?;
    if INTERVALS.contains(&interval) { Ok(interval) } else { Err("from 100 ms to 1 h".into()) }
}

pub async fn run(args: TopArgs) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let is_live = io::stdout().is_terminal() && !args.once;
    let watched = async {
        let mut source = Source::connect(&args).await?;
        match (args.json, is_live) {
            (true, _) => print_objects(&mut source).await,
            (false, true) => Ok(Some(source)),
            (false, false) => print_picture(&mut source).await,
        }
    };
    let source = tokio::select! {
        watched = watched => watched?,
        _ = signals.next() => None,
    };
    match source {
        Some(source) => live(source, &mut signals).await,
        None => Ok(()),
    }
}

/// The source of samples.
struct Source<'a> {
    args: &'a TopArgs,
    /// None while no server answers.
    reader: Option<ReadClient>,
    window: Window,
}

impl Source<'_> {
    /// Connects, and takes a first sample.
    async fn connect(args: &TopArgs) -> Result<Source<'_>, Failure> {
        let reader = Some(args.connect.read_client().await?);
        let mut source = Source { args, reader, window: Window::default() };
        source.look(LOCKS).await?;
        Ok(source)
    }

    /// Takes a sample with at most so many locks.
    async fn look(&mut self, locks: u32) -> Result<(), Failure> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.args.connect.read_client().await?,
        };
        let prefix = self.args.prefix.as_bytes();
        let (status, hot) = tokio::join!(reader.status(), reader.top_locks(prefix, locks));
        let status = status.map_err(connect::failure)?;
        let hot = match hot {
            Ok(hot) => Ok(hot),
            // Every client may read the status; one that may not see locks gets the rest.
            Err(error @ (ClientError::Refused(..) | ClientError::Unsupported { .. })) => {
                Err(error.to_string())
            }
            Err(error) => return Err(connect::failure(error)),
        };
        self.window.push(Sample::new(status, hot));
        // After a failure the next sample uses another connection, to the next endpoint if there are several.
        self.reader = Some(reader);
        Ok(())
    }

    /// The same after an interval.
    async fn next(&mut self, locks: u32) -> Result<(), Failure> {
        sleep_until(Instant::now() + self.args.interval).await;
        self.look(locks).await
    }
}

/// Prints the figures once, as text.
async fn print_picture<'a>(source: &mut Source<'a>) -> Result<Option<Source<'a>>, Failure> {
    source.next(LOCKS).await?;
    print(view::plain(&source.window.picture().expect("it was just taken")))?;
    Ok(None)
}

/// Prints one object, or one for each interval.
async fn print_objects<'a>(source: &mut Source<'a>) -> Result<Option<Source<'a>>, Failure> {
    loop {
        match source.next(LOCKS).await {
            Ok(()) => print(json::picture(&source.window.picture().expect("it was just taken")))?,
            Err(failure) if source.args.once || !is_passing(&failure) => return Err(failure),
            Err(failure) => print(json::trouble(&failure.to_string()))?,
        }
        if source.args.once {
            return Ok(None);
        }
    }
}

/// Returns true if another attempt may help.
fn is_passing(failure: &Failure) -> bool {
    failure.is(Code::Unreachable)
}

/// Fills the terminal until the user ends it.
async fn live(mut source: Source<'_>, signals: &mut StopSignals) -> Result<(), Failure> {
    let mut terminal = Terminal::enter()?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut trouble: Option<(Instant, String)> = None;
    draw(&terminal, source.window.picture(), &None)?;
    loop {
        let due = Instant::now() + source.args.interval;
        let redraw = |terminal: &Terminal| draw(terminal, source.window.picture(), &trouble);
        if wait(due, &mut terminal, &mut resized, signals, redraw).await?.is_break() {
            return Ok(());
        }
        let locks = view::room(terminal.size());
        let looked = tokio::select! {
            looked = source.look(locks) => looked,
            ended = terminal.ended() => match ended? {
                Ended::Quit => return Ok(()),
                Ended::Stopped => continue,
            },
            _ = signals.next() => return Ok(()),
        };
        match looked {
            Ok(()) => trouble = None,
            Err(failure) if is_passing(&failure) => {
                let since = trouble.map_or_else(Instant::now, |(since, _)| since);
                trouble = Some((since, failure.to_string()));
            }
            Err(failure) => return Err(failure),
        }
        draw(&terminal, source.window.picture(), &trouble)?;
    }
}

/// Waits until the next sample is due; draws again when the window changes its size.
async fn wait(
    due: Instant,
    terminal: &mut Terminal,
    resized: &mut Signal,
    signals: &mut StopSignals,
    redraw: impl Fn(&Terminal) -> io::Result<()>,
) -> Result<ControlFlow<()>, Failure> {
    loop {
        tokio::select! {
            () = sleep_until(due) => return Ok(ControlFlow::Continue(())),
            _ = resized.recv() => redraw(terminal)?,
            _ = signals.next() => return Ok(ControlFlow::Break(())),
            ended = terminal.ended() => match ended? {
                Ended::Quit => return Ok(ControlFlow::Break(())),
                Ended::Stopped => redraw(terminal)?,
            },
        }
    }
}

fn draw(
    terminal: &Terminal,
    picture: Option<Picture<'_>>,
    trouble: &Option<(Instant, String)>,
) -> io::Result<()> {
    let Some(picture) = picture else { return Ok(()) };
    let trouble = trouble.as_ref().map(|(since, text)| (since.elapsed(), text.as_str()));
    let Size { width, height } = terminal.size();
    let style = Style::of(std::env::var_os("NO_COLOR").as_deref());
    terminal.show(&view::frame(&picture, trouble, Size { width, height }, style))
}
