//! A critical section that spans datacenters: at any time only one program in all of them is in it.
//!
//! Start a playground with `geolock dev`, then `cargo run --example critical_section -- HOST:PORT
//! TLS_FOLDER`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use geolock_client::{AcquireRequest, Client, ClientConfig, ClientTls, FencingToken, LockName, Wait};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The error names the cause and the remedy.
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().ok_or("where is the server? HOST:PORT")?;
    let tls = ClientTls::from_dir(arguments.next().ok_or("which certificates? TLS_FOLDER")?)?;
    let client = Client::connect(ClientConfig::new([endpoint], tls)).await?;

    let request = AcquireRequest::exclusive(LockName::try_from("reports/nightly")?)
        .wait(Wait::AtMost(Duration::from_secs(20)))
        .label("critical_section example");
    let guard = client.acquire(request).await?;

    tokio::select! {
        () = work(guard.token()) => guard.release().await?,
        reason = guard.lost() => return Err(format!("stopped halfway: {reason}").into()),
    }
    client.close().await?;
    Ok(())
}

/// The work of the critical section. The protected resource should refuse a token below the highest it has
/// seen.
async fn work(token: FencingToken) {
    println!("in the critical section, with fencing token {token}");
    tokio::time::sleep(Duration::from_secs(1)).await;
}
