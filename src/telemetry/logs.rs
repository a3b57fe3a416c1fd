//! The server's own log: one line per event, to standard error, as text or as JSON. `log_writer.rs` writes
//! it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::{PanicHookInfo, set_hook};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::log_writer::LogWriter;

/// How long a process waits at its end for the reader of its standard error.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Libraries of which only errors are logged, unless the filter names them. Strangers can cause their
/// warnings at any rate, as by resetting streams of HTTP/2, and the consensus library logs every vote. The
/// server logs the events that are for operators, itself and with limits.
const LIBRARIES: [&str; 11] = [
    "h2",
    "hyper",
    "hyper_util",
    "openraft",
    "quinn",
    "quinn_proto",
    "quinn_udp",
    "rustls",
    "tokio_rustls",
    "tonic",
    "tower",
];

/// The writer of this process's log, once it is installed.
static WRITER: OnceLock<LogWriter> = OnceLock::new();

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object per line, the fields of an event at its top level.
    Json,
}

/// Options of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Default text.
    pub format: LogFormat,
    /// A level, or levels by module as in `info,geolock::interdc=debug`. Default `info`. Of libraries such as
    /// `h2` only errors are logged, unless the filter names them.
    pub filter: String,
}

/// The reason why the log could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log filter {filter:?}: {source}")]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("a log was set up before in this process")]
    AlreadySet,
    #[error("no thread for the log: {0}")]
    Thread(#[source] io::Error),
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { format: LogFormat::default(), filter: "info".into() }
    }
}

impl LogOptions {
    /// Checks the filter.
    pub fn check(&self) -> Result<(), LogError> {
        self.env_filter().map(|_| ())
    }

    /// Sends this process's log and panic messages to standard error. May be called once. Logging never
    /// blocks on a write.
    pub fn install(&self) -> Result<(), LogError> {
        let stderr = io::stderr();
        let is_terminal = stderr.is_terminal();
        // Bypasses `Write` of `stderr`: a write that blocks would hold its lock.
        let writer = LogWriter::start(move |bytes| Ok(rustix::io::write(&stderr, bytes)?));
        let writer = writer.map_err(LogError::Thread)?;
        let subscriber = self.subscriber(writer.clone(), is_terminal)?;
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadySet)?;
        WRITER.set(writer.clone()).map_err(|_| LogError::AlreadySet)?;
        set_hook(Box::new(move |panic| {
            writer.push(panic_text(panic).as_bytes());
            writer.flush(LAST_WORDS);
        }));
        Ok(())
    }

    fn env_filter(&self) -> Result<EnvFilter, LogError> {
        let filter = self.filter.clone();
        let targets: Vec<&str> = filter.split(',').map(target).collect();
        let is_named =
            |library: &str| targets.iter().any(|target| target.split("::").next() == Some(library));
        let mut quiet = String::new();
        for library in LIBRARIES.iter().filter(|library| !is_named(library)) {
            quiet += &format!("{library}=error,");
        }
        EnvFilter::try_new(quiet + &filter).map_err(|source| LogError::Filter { filter, source })
    }

    fn subscriber<W>(&self, writer: W, ansi: bool) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let builder = tracing_subscriber::fmt()
            .with_env_filter(self.env_filter()?)
            // The subscriber would print to standard error, which may block or panic.
            .log_internal_errors(false)
            .with_writer(writer);
        Ok(match self.format {
            LogFormat::Text => Box::new(builder.with_ansi(ansi).finish()),
            LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
        })
    }
}

/// Writes text to standard error outside the log's format, through the log's queue. Returns false, and writes
/// nothing, in a process without a log.
pub fn tell(text: &str) -> bool {
    let Some(writer) = WRITER.get() else { return false };
    writer.push(format!("{text}\n").as_bytes());
    true
}

/// Waits until the log is written, for at most a second. Call before the process ends.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush(LAST_WORDS);
    }
}

/// Returns the lines of the log that were dropped because standard error was not read or could not be
/// written.
pub fn lines_lost() -> u64 {
    WRITER.get().map_or(0, LogWriter::lost)
}

/// Returns the module that a directive of a filter is about: `geolock::interdc` of
/// `geolock::interdc[span]=debug`.
fn target(directive: &str) -> &str {
    directive.split(['=', '[']).next().unwrap_or_default().trim()
}

/// Formats a panic as the standard library does.
fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    // Empty unless RUST_BACKTRACE requests it.
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            format!("thread '{name}' {panic}\nstack backtrace:\n{backtrace}\n")
        }
        _ => format!("thread '{name}' {panic}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic holds it").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(options: &LogOptions) -> String {
        let page = Page::default();
        let writer = page.clone();
        let subscriber = options.subscriber(move || writer.clone(), false).expect("a good filter");
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(peer = 2, "link up");
            tracing::debug!("not asked for");
            // Strangers cause these, as often as they like.
            tracing::warn!(target: "h2::proto::streams::streams", "locally-reset streams reached limit");
            tracing::warn!(target: "quinn_udp", "sendmsg error");
        });
        let bytes = page.0.lock().expect("no panic holds it").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_line_has_fields_and_passes_the_filter() {
        let line = logged(&LogOptions::default());
        assert!(line.contains("INFO") && line.ends_with("link up peer=2\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
        let json = logged(&LogOptions { format: LogFormat::Json, ..LogOptions::default() });
        assert!(json.starts_with('{') && json.contains(r#""message":"link up""#), "{json}");
        assert!(json.contains(r#""peer":2"#), "{json}");
        assert_eq!(logged(&LogOptions { filter: "warn".into(), ..LogOptions::default() }), "");
    }

    #[test]
    fn libraries_are_quiet_unless_they_are_named() {
        let filtered = |filter: &str| logged(&LogOptions { filter: filter.into(), ..LogOptions::default() });
        for filter in ["info", "warn", "info,geolock::interdc=debug"] {
            assert!(!filtered(filter).contains("WARN"), "{filter}");
        }
        let named = filtered("info,h2=warn");
        assert!(named.contains("locally-reset") && !named.contains("sendmsg"), "{named}");
        let named = filtered("quinn_udp=debug,h2::proto=info");
        assert!(named.contains("locally-reset") && named.contains("sendmsg"), "{named}");
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let options = LogOptions { filter: "geolock=loud".into(), ..LogOptions::default() };
        assert!(options.check().expect_err("no such level").to_string().contains("geolock=loud"));
    }
}
