//! The Prometheus metrics of another system.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest page that is read, in bytes.
const MAX_PAGE: usize = 16 << 20;
const WITHIN: Duration = Duration::from_secs(5);

/// Returns the page of that server, or the reason why there is none.
pub(super) async fn fetch(endpoint: &str) -> Result<String, String> {
    let page = async {
        let stream = TcpStream::connect(endpoint).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let request = Request::get("/metrics").header("host", endpoint).body(Empty::<Bytes>::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let body = Limited::new(answer.into_body(), MAX_PAGE).collect().await;
            Ok(body.map_err(|error| error.to_string())?.to_bytes())
        };
        // The connection has to be polled while its answer is awaited.
        tokio::pin!(answer, connection);
        tokio::select! {
            body = &mut answer => body,
            ended = &mut connection => match ended {
                Ok(()) => answer.await,
                Err(error) => Err(error.to_string()),
            }
        }
    };
    let page = timeout(WITHIN, page).await.map_err(|_| format!("no metrics within {WITHIN:?}"))??;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Returns the mean of each series of a histogram.
pub(super) fn means(page: &str, histogram: &str) -> impl Iterator<Item = f64> + use<> {
    let mut series: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in page.lines() {
        let Some((kind, rest)) = line.strip_prefix(histogram).and_then(|rest| rest.split_once('{')) else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let Ok(value) = value.trim().parse::<f64>() else { continue };
        let entry = series.entry(labels.to_owned());
        match kind {
            "_sum" => entry.or_default().0 = value,
            "_count" => entry.or_default().1 = value,
            _ => {}
        }
    }
    series.into_values().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_a_sum_by_a_count_of_the_same_series() {
        let page = "# TYPE rtt histogram\n\
            rtt_bucket{To=\"a\",le=\"0.1\"} 4\n\
            rtt_sum{To=\"a\"} 0.4\nrtt_count{To=\"a\"} 4\n\
            rtt_sum{To=\"b\"} 3\nrtt_count{To=\"b\"} 2\n\
            rtt_sum{To=\"c\"} 0\nrtt_count{To=\"c\"} 0\n\
            other_sum{To=\"a\"} 9\n";
        assert_eq!(means(page, "rtt").collect::<Vec<_>>(), [0.1, 1.5]);
    }
}
