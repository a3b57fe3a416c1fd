//! Arguments that `geolock once` and `geolock every` have in common.

use std::ffi::OsString;
use std::time::Duration;

use tokio::time::sleep;

use crate::cli::connect::ConnectArgs;
use crate::cli::dc_names::DcRef;
use crate::cli::failure::{Code, Failure};
use crate::cli::home;
use crate::cli::lock::{HOLDER, default_label, duration};
use geolock_api::names::DcId;
use geolock_client::Client;

/// Pause before an overloaded server is asked again.
const BUSY: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Debug)]
pub struct RunnerArgs {
    /// The home of the lock, as an id such as 1 or a name: then only that datacenter has to be up [default:
    /// none]
    #[arg(long, value_name = "DC", value_parser = DcRef::parse, help_heading = HOLDER)]
    home: Option<DcRef>,
    /// Time without contact to the server after which the lock is lost [default: 10s, or the server's limit
    /// if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = HOLDER)]
    ttl: Option<Duration>,
    /// The name of this machine, shown to people (default: user@host: command)
    #[arg(long, value_name = "TEXT", help_heading = HOLDER)]
    label: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl RunnerArgs {
    /// Returns the name of this machine as it runs the command.
    pub fn who(&self, command: &[OsString]) -> String {
        let label = || command.first().map(default_label).unwrap_or_default();
        self.label.clone().unwrap_or_else(label)
    }

    /// Returns the home of the lock. Asks the server if it was given by its name.
    pub async fn home(&self) -> Result<Option<DcId>, Failure> {
        home::find(self.home.as_ref(), &self.connect).await
    }

    /// Connects. Asks an overloaded server again, as when a whole fleet starts at once.
    pub async fn connect(&self) -> Result<Client, Failure> {
        loop {
            match self.connect.connect(|config| config.ttl = self.ttl).await {
                Err(failure) if failure.is(Code::NotAcquired) => sleep(BUSY).await,
                connected => return connected,
            }
        }
    }
}
