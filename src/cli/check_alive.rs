//! `geolock server --check-alive`: asks the server here for /livez. The image has no other HTTP client.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::{Code, Failure, OrFail as _};
use super::print::{harmless_lines, print};

/// Time limit of the whole check. A server answers at once, or its threads hang.
const TIMEOUT: Duration = Duration::from_secs(5);
/// An answer has one line of reason.
const MAX_ANSWER: u64 = 16 << 10;

/// Succeeds if the server is alive. `http`: the address on which it listens.
pub async fn check_alive(http: SocketAddr) -> Result<(), Failure> {
    let at = reachable(http);
    let answer = timeout(TIMEOUT, ask(at)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let answer =
        answer.with_context(|| format!("no answer from http://{at}/livez")).or_fail(Code::Unreachable)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => print("alive"),
        Some("503") => Err(anyhow!("not alive: {}", harmless_lines(body.trim())).into()),
        _ => Err(anyhow!("no geolock server answers at http://{at}/livez").into()),
    }
}

/// Returns the address of this machine for one that stands for all of them.
fn reachable(mut http: SocketAddr) -> SocketAddr {
    if http.ip().is_unspecified() {
        let loopback = if http.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        http.set_ip(loopback);
    }
    http
}

async fn ask(at: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET /livez HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the exit code and the error of a check of a server that gives this answer.
    async fn checked(answer: &'static str) -> Result<(), (u8, String)> {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let at = listener.local_addr().expect("it has an address");
        let served = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = vec![0; 1024];
            let read = stream.read(&mut request).await.expect("a request");
            assert!(request[..read].starts_with(b"GET /livez HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).await.expect("the client reads");
        };
        let (outcome, ()) = tokio::join!(check_alive(at), served);
        outcome.map_err(|failure| (failure.code(), format!("{failure:?}")))
    }

    #[tokio::test]
    async fn a_server_that_answers_is_alive_or_says_why_not() {
        assert_eq!(checked("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n").await, Ok(()));
        let (code, error) = checked("HTTP/1.1 503 Service Unavailable\r\n\r\nthe actor hangs\n")
            .await
            .expect_err("it says no");
        assert!(code == 1 && error.contains("not alive: the actor hangs"), "{error}");
        for strange in ["", "HTTP/1.1 404 Not Found\r\n\r\n", "SSH-2.0"] {
            let (code, error) = checked(strange).await.expect_err("no such server");
            assert!(code == 1 && error.contains("no geolock server answers"), "{strange}: {error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_run_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it has an address");
        drop(listener);
        let failure = check_alive(at).await.expect_err("nothing listens");
        assert!(failure.is(Code::Unreachable), "{failure:?}");
        assert!(format!("{failure:?}").contains(&at.to_string()), "{failure:?}");
    }
}
