//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use super::database::Place;

pub const USAGE: &str = "\
Three replicas of a wallet service, one in each datacenter, a process each. They pay from wallet to wallet:
each payment takes tokens that no other payment has, and makes change.

  --seconds N        how long (20)
  --payers N         payments at a time of each replica (8)
  --wan DISTANCES    as for `geolock dev` (world)
  --kill             kill -9 a replica every 4 s, another one each time; it is started again 2 s later
  --postgres URL     keep the tokens in that database of PostgreSQL, instead of a file of SQLite
  --data DIR --base-port PORT  use the playground that runs there, instead of one of its own

The server is $GEOLOCK_BIN, or the binary geolock beside this one, or in the path.";

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub time: Duration,
    pub payers: u32,
    pub wan: String,
    pub kill: bool,
    pub postgres: Option<String>,
    pub sqlite: Option<PathBuf>,
    pub playground: Option<(PathBuf, u16)>,
    /// This process is the replica in that datacenter, started for that time.
    pub replica: Option<(u8, u32)>,
}

impl Options {
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            time: Duration::from_secs(20),
            payers: 8,
            wan: "world".to_owned(),
            kill: false,
            postgres: None,
            sqlite: None,
            playground: None,
            replica: None,
        };
        let (mut data, mut base) = (None, None);
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match &*arg {
                "--kill" => options.kill = true,
                "--seconds" => options.time = Duration::from_secs(number(&value()?)?),
                "--payers" => options.payers = number(&value()?)?,
                "--wan" => options.wan = value()?,
                "--postgres" => options.postgres = Some(value()?),
                "--sqlite" => options.sqlite = Some(value()?.into()),
                "--data" => data = Some(PathBuf::from(value()?)),
                "--base-port" => base = Some(number(&value()?)?),
                "--replica" => {
                    let value = value()?;
                    let (dc, boot) = value.split_once('/').ok_or("--replica needs DC/BOOT")?;
                    options.replica = Some((number(dc)?, number(boot)?));
                }
                _ => return Err(format!("{arg} is not known\n\n{USAGE}")),
            }
        }
        if options.payers == 0 || options.time.is_zero() {
            return Err("--payers and --seconds are above 0".to_owned());
        }
        options.playground = match (data, base) {
            (Some(data), Some(base)) => Some((data, base)),
            (None, None) => None,
            _ => return Err("--data and --base-port come together".to_owned()),
        };
        Ok(options)
    }

    /// Returns the place of the database.
    pub fn place(&self) -> Result<Place, String> {
        match (&self.postgres, &self.sqlite) {
            (Some(url), None) => Ok(Place::Postgres(url.clone())),
            (None, Some(path)) => Ok(Place::Sqlite(path.clone())),
            _ => Err("one database is needed".to_owned()),
        }
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is no number that fits"))
}
