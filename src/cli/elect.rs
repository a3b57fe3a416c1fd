//! `geolock elect`: runs a command while leading, or shows the leader.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Map, Value, json};

use super::connect::{failure, refused};
use super::failure::{Code, Failure};
use super::job::{Ended, Signals};
use super::lock::{Held, Release, duration, ended_by, not_acquired, run_under};
use super::once::RunnerArgs;
use super::print::{harmless, insert_name, number, print_on_the_way};
use super::waiting::{Telling, Waiting};
use geolock_client::{Client, ClientError, FencingToken, LostReason, Mode, Wait};
use geolock_recipes::{Elected, Election, HeldError, HeldOptions, Leader};

/// Run a command while leading, or show the leader.
///
/// One of all machines that start this with the same name leads and runs its command; the others wait. When
/// the leader's command ends, or its machine dies, the next one leads. VALUE is shown to observers: the
/// address of the leader, for example.
///
/// The command finds its fencing token in GEOLOCK_TOKEN: a number that increases from leader to leader. If
/// the lead is lost, the command is ended before another machine can lead, also if geolock itself is killed.
/// That is not possible while geolock is stopped, or if its guard is killed, too, so let the resources that
/// the command changes refuse numbers below the highest they have seen.
///
/// With --observe, this prints the present leader and every change, one per line, until it is ended.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: that of the command (128 + N if signal N killed it), or 75: not elected in time, 74: the lead was lost while \
the command ran, 69: no server reachable, 72: the server's disk is full, 77: the server does not allow it, 64: wrong usage, 126 and 127: the command \
cannot be run or found.

Examples:
  geolock elect scheduler 10.0.0.7:8080 -- ./schedule --listen 10.0.0.7:8080
  geolock elect --observe scheduler
  geolock elect --observe --once scheduler
  geolock elect --observe --json scheduler | while read -r leader; do ./connect \"$leader\"; done")]
pub struct ElectArgs {
    /// Print the present leader, then every change, and run nothing
    #[arg(long, conflicts_with_all = ["value", "command", "wait"])]
    observe: bool,
    /// With --observe: print the present leader only, and end
    #[arg(long, conflicts_with_all = ["value", "command"])]
    once: bool,
    /// With --observe: print JSON
    #[arg(long, conflicts_with_all = ["value", "command"])]
    json: bool,
    /// How long to wait for the lead, such as 20s or 5min [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<Duration>,
    /// While waiting, also print changes of times and places to standard error if that is no terminal
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    runner: RunnerArgs,
    /// The name of the election: any bytes, up to 1010
    #[arg(value_name = "NAME", value_parser = clap::value_parser!(OsString))]
    name: OsString,
    /// The value that observers see: any bytes, up to 65536
    #[arg(required_unless_present = "observe", value_name = "VALUE", value_parser = clap::value_parser!(OsString))]
    value: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "observe", value_name = "CMD", value_parser = clap::value_parser!(OsString))]
    command: Vec<OsString>,
}

/// Signals to geolock itself end it while it does not lead; after that they are passed to the command.
pub async fn run(args: ElectArgs) -> Result<ExitCode, Failure> {
    let home = args.runner.home().await?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = args.runner.connect() => client?,
        signal = signals.wish_to_end() => return Err(ended_by(signal)),
    };
    let mut options = HeldOptions::default();
    options.who = args.runner.who(&args.command);
    options.wait = args.wait.map_or(Wait::Forever, Wait::AtMost);
    options.home = home;
    let election = Election::new(&client, args.name.as_bytes(), options);
    let outcome = match election {
        Err(error) => Err(Failure::new(Code::Usage, error)),
        Ok(election) if args.observe => args.show(&election, signals).await,
        Ok(election) => args.lead(&client, &election, signals).await,
    };
    if !matches!(outcome, Ok((_, Release::GivenUp))) {
        // If this fails, the lease expires; only the outcome of the command counts. A signal ends the wait.
        let mut signals = Signals::listen()?;
        tokio::select! {
            _ = client.close() => {}
            _ = signals.wish_to_end() => {}
        }
    }
    outcome.map(|(ended, _)| ExitCode::from(ended.exit_code()))
}

impl ElectArgs {
    async fn lead(
        &self,
        client: &Client,
        election: &Election,
        mut signals: Signals,
    ) -> Result<(Ended, Release), Failure> {
        let names = [election.lock().clone()];
        let waiting =
            Waiting { names: &names, mode: Mode::Exclusive, label: &self.runner.who(&self.command) };
        let value = self.value.as_ref().map_or(&[][..], |value| value.as_bytes()).to_vec();
        let elected = tokio::select! {
            biased;
            elected = election.campaign(value) => elected,
            () = waiting.tell(client, Telling::of(self.verbose)) => unreachable!("it goes on for ever"),
            signal = signals.wish_to_end() => return Err(ended_by(signal)),
        };
        match elected {
            Ok(leader) => run_under(leader, &self.command, client.ttl(), signals).await,
            Err(HeldError::Acquire(error)) => Err(not_acquired(error, client).await),
            Err(error) => Err(explained(error)),
        }
    }

    async fn show(&self, election: &Election, mut signals: Signals) -> Result<(Ended, Release), Failure> {
        let mut observer = election.observe();
        loop {
            let elected = tokio::select! {
                elected = observer.next() => elected.map_err(explained)?,
                _ = signals.wish_to_end() => return Ok((Ended::Exited(0), Release::Done)),
            };
            let leader =
                elected.as_ref().map(|Elected { who, value, token, .. }| (&**who, &**value, token.0));
            print_on_the_way(shown(leader, self.json))?;
            if self.once {
                return Ok((Ended::Exited(0), Release::Done));
            }
        }
    }
}

/// `leader`: its name, value and token.
fn shown(leader: Option<(&str, &[u8], u64)>, as_json: bool) -> String {
    if as_json {
        let leader = leader.map_or(Value::Null, |(who, value, token)| {
            let mut leader = Map::new();
            leader.insert("who".to_owned(), who.into());
            insert_name(&mut leader, "value", value);
            leader.insert("token".to_owned(), number(token));
            leader.into()
        });
        return json!({ "leader": leader }).to_string();
    }
    let Some((who, value, token)) = leader else { return "nobody leads".to_owned() };
    let value = std::str::from_utf8(value).map_or_else(|_| value.escape_ascii().to_string(), harmless);
    format!("{} leads: {value} (token {token})", harmless(who))
}

fn explained(error: HeldError) -> Failure {
    match error {
        HeldError::Name { .. } | HeldError::Value { .. } => Failure::new(Code::Usage, error),
        HeldError::Client(error) => failure(error),
        HeldError::Lost(reason) => Failure::new(Code::LockLost, anyhow!("not elected: {reason}")),
        HeldError::Refused { reason, .. } => Failure::new(refused(reason), error),
        error => Failure::new(Code::Failed, error),
    }
}

impl Held for Leader {
    fn token(&self) -> FencingToken {
        Leader::token(self)
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = LostReason> + Send>> {
        Box::pin(Leader::lost(self))
    }

    fn is_lost(&self) -> Option<LostReason> {
        Leader::is_lost(self)
    }

    async fn release(self) -> Result<(), ClientError> {
        self.resign().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_shown_without_characters_of_control() {
        let leader = Some(("ann\x1b[2J", &b"10.0.0.7:80"[..], 7));
        assert_eq!(shown(leader, false), "ann\\u{1b}[2J leads: 10.0.0.7:80 (token 7)");
        let json = r#"{"leader":{"token":7,"value":"10.0.0.7:80","who":"ann\u001b[2J"}}"#;
        assert_eq!(shown(leader, true), json);
        assert_eq!(shown(Some(("ann", b"\xff", 7)), false), "ann leads: \\xff (token 7)");
        assert_eq!(shown(None, false), "nobody leads");
        assert_eq!(shown(None, true), r#"{"leader":null}"#);
    }
}
