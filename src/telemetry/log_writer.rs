//! The writer of log lines: a bounded queue, and one thread that writes it to standard error.
//!
//! A write to standard error blocks while the pipe is full and its reader does not read, and it fails once
//! the reader has ended. The threads that log also serve clients, the actor among them: a lock server must
//! neither stop nor end because of its log. So only the writer thread touches the file descriptor; other
//! threads append to the queue, which takes a short lock and never waits for the write.
//!
//! The queue holds [`CAPACITY`] bytes. A line that does not fit is dropped and counted, and so are lines
//! whose write failed; after the next successful write, a log line reports the count. The last lines of a
//! process (a panic, the reason of its end) go through the same queue; the process waits for them, but only
//! for a bounded time: [`LogWriter::flush`].
//!
//! `tracing-appender` was considered: it bounds lines instead of bytes, and does not report lines that could
//! not be written.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most bytes that wait to be written: thousands of lines.
const CAPACITY: usize = 1 << 20;
/// The pause after a write that would block, as on a file descriptor that another process has made
/// non-blocking.
const RETRY: Duration = Duration::from_millis(10);

/// The writer of the log. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct LogWriter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when there is something to write.
    filled: Condvar,
    /// Notified when everything has been written or lost.
    emptied: Condvar,
    /// Lines lost since the start.
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    lines: u64,
    /// The thread is writing bytes that it took out of `bytes`.
    is_writing: bool,
}

impl LogWriter {
    /// Starts the thread. `write` writes to the file, as [`Write::write`].
    pub fn start(write: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static) -> io::Result<LogWriter> {
        let writer = LogWriter(Arc::default());
        let shared = Arc::clone(&writer.0);
        thread::Builder::new().name("log".into()).spawn(move || shared.run(write))?;
        Ok(writer)
    }

    /// Queues a line (or several, counted as one), or drops it if there is no room. Never blocks on a write.
    pub fn push(&self, line: &[u8]) {
        let mut queue = self.0.lock();
        if queue.bytes.len() + line.len() > CAPACITY {
            drop(queue);
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes.extend_from_slice(line);
        queue.lines += 1;
        drop(queue);
        self.0.filled.notify_one();
    }

    /// Waits until all queued lines have been written, at most this long. Returns true if they were.
    pub fn flush(&self, within: Duration) -> bool {
        let waiting = |queue: &mut Queue| queue.is_writing || queue.lines > 0;
        let waited = self.0.emptied.wait_timeout_while(self.0.lock(), within, waiting);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Returns how many lines were dropped since the start.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread. Runs until the process ends.
    fn run(&self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) {
        let mut batch = Vec::new();
        let mut told = 0;
        loop {
            let lines = self.take(&mut batch);
            let written = write_all(&mut write, &batch);
            if written.is_err() {
                self.lost.fetch_add(lines, Ordering::Relaxed);
            }
            batch.clear();
            self.lock().is_writing = false;
            self.emptied.notify_all();
            let lost = self.lost.load(Ordering::Relaxed);
            if written.is_ok() && lost > told {
                tracing::warn!(
                    lines = lost - told,
                    "log lines were dropped: standard error was not read, or could not be written"
                );
                told = lost;
            }
        }
    }

    /// Waits for something to write and moves it to `batch`, which is empty. Returns the number of lines.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        let queue = self.filled.wait_while(self.lock(), |queue| queue.lines == 0);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        queue.is_writing = true;
        mem::swap(&mut queue.bytes, batch);
        mem::take(&mut queue.lines)
    }
}

fn write_all(mut write: impl FnMut(&[u8]) -> io::Result<usize>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Write for &LogWriter {
    /// Takes each event in one call, as `tracing_subscriber` makes it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a LogWriter;

    fn make_writer(&'a self) -> &'a LogWriter {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Returns a file that accepts nothing until released, and the bytes it accepted.
    fn gated() -> (LogWriter, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (open, opened) = channel();
        let file = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&file);
        let writer = LogWriter::start(move |bytes| {
            // Once the sender is dropped, everything passes.
            let _ = opened.recv();
            taken.lock().expect("no panic holds it").write(bytes)
        });
        (writer.expect("a thread"), open, file)
    }

    #[test]
    fn a_file_that_takes_nothing_stops_nobody_and_costs_no_more_than_the_queue() {
        let (writer, open, file) = gated();
        let line = [b'x'; 1024];
        let count = 4 * CAPACITY / line.len();
        for _ in 0..count {
            writer.push(&line);
        }
        // The thread has at most one batch beside the full queue.
        let lost = writer.lost() as usize;
        assert!((count / 2..count).contains(&lost), "{lost} of {count} lines are lost");
        assert!(!writer.flush(Duration::from_millis(1)));
        drop(open);
        while !writer.flush(Duration::from_secs(10)) {}
        assert_eq!(file.lock().expect("no panic holds it").len(), (count - lost) * line.len());
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_later_ones_written() {
        let file = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&file);
        let mut fails = true;
        let writer = LogWriter::start(move |bytes| match std::mem::take(&mut fails) {
            true => Err(ErrorKind::BrokenPipe.into()),
            false => taken.lock().expect("no panic holds it").write(bytes),
        });
        let writer = writer.expect("a thread");
        for line in ["lost\n", "kept\n"] {
            writer.push(line.as_bytes());
            while !writer.flush(Duration::from_secs(10)) {}
        }
        assert_eq!(writer.lost(), 1);
        assert_eq!(*file.lock().expect("no panic holds it"), b"kept\n");
    }
}
