//! Commands for a running playground, over a socket in its folder: `geolock dev add`, `stop` and `start`.
//!
//! The request is one line, such as `stop 2`. Each line of the answer begins with `so` for progress; the last
//! line begins with `done` or `failed`.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cli::dc_names;
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::cli::print::{print, print_on_the_way};
use crate::runtime::tasks::joined;
use geolock_api::names::DcId;

/// The socket's name in the folder.
const SOCKET: &str = "control";
/// Longest request, in bytes.
const MAX_LINE: u64 = 64;
/// How long a caller has for its request.
const LINE_WITHIN: Duration = Duration::from_secs(5);
/// Most callers at a time, and most lines that a caller has not read.
const CALLERS: usize = 16;
const UNREAD: usize = 64;

/// A command for the running playground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A further datacenter joins: this one, or that with the lowest free id.
    Add(Option<DcId>),
    Start(DcId),
    Stop(DcId),
}

impl Request {
    fn render(self) -> String {
        match self {
            Request::Add(None) => "add".into(),
            Request::Add(Some(dc)) => format!("add {}", dc.get()),
            Request::Start(dc) => format!("start {}", dc.get()),
            Request::Stop(dc) => format!("stop {}", dc.get()),
        }
    }

    fn parse(line: &str) -> Option<Request> {
        let (word, id) = line.split_once(' ').unwrap_or((line, ""));
        let dc = dc_names::parse(id).ok();
        match word {
            "add" if id.is_empty() => Some(Request::Add(None)),
            "add" => Some(Request::Add(Some(dc?))),
            "start" => Some(Request::Start(dc?)),
            "stop" => Some(Request::Stop(dc?)),
            _ => None,
        }
    }
}

/// A request, and its caller.
pub(super) struct Call {
    pub request: Request,
    pub caller: Caller,
}

/// The other end of a call. Dropping it ends the call without an answer.
pub(super) struct Caller(mpsc::Sender<String>);

impl Caller {
    pub(super) fn tell(&self, text: &str) {
        self.send("so", text);
    }

    pub(super) fn done(self, text: &str) {
        self.send("done", text);
    }

    pub(super) fn failed(self, text: &str) {
        self.send("failed", text);
    }

    fn send(&self, word: &str, text: &str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // A caller that is gone, or does not read, misses it.
        let _ = self.0.try_send(format!("{word} {text}\n"));
    }
}

/// The socket of a running playground. Dropping it removes the socket.
pub(super) struct Calls {
    calls: mpsc::Receiver<Call>,
    path: PathBuf,
    _accepting: JoinSet<()>,
}

impl Calls {
    /// Listens in the folder, which this process has locked.
    pub(super) fn open(dir: &Path) -> io::Result<Calls> {
        let path = dir.join(SOCKET);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let (sender, calls) = mpsc::channel(CALLERS);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, sender));
        Ok(Calls { calls, path, _accepting: accepting })
    }

    /// Returns the next call. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Call> {
        self.calls.recv().await
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // The next playground replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, calls: mpsc::Sender<Call>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CALLERS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, calls.clone()))),
                Err(_) => return,
            },
            Some(served) = connections.join_next() => joined(served),
        }
    }
}

/// Passes a request on, and its answers back.
async fn serve(mut stream: UnixStream, calls: mpsc::Sender<Call>) {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_LINE));
    let read = timeout(LINE_WITHIN, reader.read_line(&mut line)).await;
    if !matches!(read, Ok(Ok(_))) {
        return;
    }
    let Some(request) = Request::parse(line.trim_end()) else {
        // It may be gone.
        let _ = writer.write_all(b"failed the playground does not know this command\n").await;
        return;
    };
    let (sender, mut answers) = mpsc::channel(UNREAD);
    if calls.send(Call { request, caller: Caller(sender) }).await.is_err() {
        return;
    }
    while let Some(answer) = answers.recv().await {
        if writer.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Sends a request to the playground in the folder, and prints its answers.
pub(super) async fn ask(dir: &Path, request: Request) -> Result<(), Failure> {
    let stream = UnixStream::connect(dir.join(SOCKET)).await.map_err(|_| {
        anyhow!(
            "no playground runs in {}: start one with `geolock dev`, or name its folder (--data DIR)",
            dir.display()
        )
    });
    let mut stream = stream.or_fail(Code::Unreachable)?;
    let (reader, mut writer) = stream.split();
    writer.write_all(format!("{}\n", request.render()).as_bytes()).await?;
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let (word, text) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "so" => print_on_the_way(text)?,
            "done" => return print(text),
            _ => return Err(anyhow!("{text}").into()),
        }
    }
    Err(anyhow!("the playground has stopped").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        let dc = DcId::new(2).expect("small");
        for request in [Request::Add(None), Request::Add(Some(dc)), Request::Start(dc), Request::Stop(dc)] {
            assert_eq!(Request::parse(&request.render()), Some(request));
        }
        for wrong in ["", "add x", "stop", "start 64", "remove 2", "stop 2 3"] {
            assert_eq!(Request::parse(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_call_is_answered_and_a_stranger_is_told_so() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let nobody = ask(temp.path(), Request::Add(None)).await.expect_err("nobody listens");
        assert!(nobody.is(Code::Unreachable), "{nobody}");
        let mut calls = Calls::open(temp.path()).expect("a socket");
        let answering = async {
            let Call { request, caller } = calls.next().await.expect("a call");
            caller.tell("it takes a while");
            caller.failed(&format!("no\n{request:?}"));
            drop(calls.next().await.expect("a call").caller);
        };
        let asking = async {
            let failure = ask(temp.path(), Request::Add(None)).await.expect_err("it failed");
            assert_eq!(failure.to_string(), "no Add(None)");
            let failure = ask(temp.path(), Request::Add(None)).await.expect_err("no answer");
            assert_eq!(failure.to_string(), "the playground has stopped");
        };
        tokio::join!(answering, asking);
        let mut stranger = UnixStream::connect(temp.path().join(SOCKET)).await.expect("it listens");
        stranger.write_all(b"hello\n").await.expect("it reads");
        let mut said = String::new();
        stranger.read_to_string(&mut said).await.expect("it answers");
        assert!(said.starts_with("failed "), "{said}");
        drop(calls);
        assert!(!temp.path().join(SOCKET).exists());
    }
}
