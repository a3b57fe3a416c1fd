//! Edge. The `geolock` command: one file per subcommand.
//!
//! Subcommands that talk to a server use [`client`](geolock_client), like any other program.

mod at_stake;
mod audit;
mod bench;
mod ca;
mod check_alive;
mod completions;
mod confirm;
mod connect;
mod dc_names;
mod describe;
mod dev;
mod elect;
mod every;
mod failure;
mod fallen;
mod help;
mod home;
mod job;
mod journal;
mod kv;
mod lock;
mod locks;
mod man;
mod member;
mod once;
mod print;
mod recover;
#[cfg(all(test, not(any(feature = "faults", feature = "peers"))))]
mod reference;
mod release;
mod server;
#[cfg(feature = "faults")]
mod server_faults;
mod service_manager;
mod sim;
mod state_dir;
mod status;
mod stopping;
mod suggest;
mod token;
mod top;
mod variables;
mod waiting;
mod watch;
mod witness;
mod witnesses;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::server::config::ServerArgs;
use failure::Code;
pub use failure::Failure;
pub use job::run_as_guard;

/// The version, and the commit that it was built from if that is known.
const VERSION: &str = env!("GEOLOCK_VERSION");

/// Locks that several datacenters share and that stay where they are used.
///
/// One server runs in each datacenter. A lock that was last used in a datacenter is granted there again
/// without any message to the others. When another datacenter wants it, it moves there. To try it: `geolock
/// dev` in one terminal, and in another `geolock lock demo -- echo hello`.
#[derive(Parser, Debug)]
#[command(name = "geolock", version = VERSION, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Lock(lock::LockArgs),
    Once(Box<once::OnceArgs>),
    Every(every::EveryArgs),
    Elect(elect::ElectArgs),
    Kv(kv::KvArgs),
    Status(status::StatusArgs),
    Locks(locks::LocksArgs),
    Describe(describe::DescribeArgs),
    Watch(watch::WatchArgs),
    Top(top::TopArgs),
    Release(release::ReleaseArgs),
    Audit(audit::AuditArgs),
    Member(member::MemberArgs),
    Journal(journal::JournalArgs),
    Dev(dev::DevArgs),
    Bench(bench::BenchArgs),
    /// Run the server of one datacenter.
    ///
    /// On SIGTERM or Ctrl-C it accepts no new requests and ends once its locks are released, or when the
    /// drain timeout is over; on a second one it ends at once. On SIGHUP it reads rules, tokens and
    /// certificates again.
    Server(Box<ServerArgs>),
    /// Run a witness: a server that only votes.
    ///
    /// It has no locks, no data and no clients, and may be anywhere. With it a cluster of two datacenters
    /// can decide when one of the three is lost, and a cluster of four when two are. It joins a cluster that
    /// runs (`--join`), with a certificate for an id that no datacenter and no witness of the cluster ever
    /// had; see `geolock member add`. A configuration file and an environment may have further options of a
    /// server: they have no effect. On the command line they are refused.
    Witness(Box<ServerArgs>),
    Ca(ca::CaArgs),
    Token(token::TokenArgs),
    Sim(sim::SimArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Time for threads to finish at the end of a command.
const LEFT_BEHIND: Duration = Duration::from_millis(100);

/// Parses the command line. Help and version are printed here, and count as failures that have been reported.
pub fn parse() -> Result<Cli, Failure> {
    help::parse().map_err(|error| {
        // The output may be closed.
        let _ = error.print();
        Failure::silent(if error.use_stderr() { Code::Usage as u8 } else { 0 })
    })
}

/// Runs the subcommand.
pub fn run(cli: Cli) -> Result<ExitCode, Failure> {
    if !matches!(&cli.command, Command::Server(_) | Command::Witness(_)) {
        variables::tell_misspelt();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Lock(args) => return lock::run(args).await,
            Command::Elect(args) => return elect::run(args).await,
            Command::Every(args) => return every::run(args).await,
            Command::Once(args) => return once::run(*args).await,
            Command::Kv(args) => return kv::run(args).await,
            Command::Status(args) => status::run(args).await,
            Command::Locks(args) => locks::run(args).await,
            Command::Describe(args) => describe::run(args).await,
            Command::Watch(args) => watch::run(args).await,
            Command::Top(args) => top::run(args).await,
            Command::Release(args) => release::run(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::Member(args) => member::run(args).await,
            Command::Journal(args) => journal::run(args).await,
            Command::Dev(args) => dev::run(args).await,
            Command::Bench(args) => bench::run(args).await,
            Command::Server(args) => server::run(*args).await,
            Command::Witness(args) => witness::run(*args).await,
            Command::Ca(args) => Ok(ca::run(args)?),
            Command::Token(args) => token::run(args),
            Command::Sim(args) => Ok(sim::run(&args)?),
            Command::Completions(args) => {
                completions::run(&args);
                Ok(())
            }
            Command::Man(args) => man::run(&args),
        }
        .map(|()| ExitCode::SUCCESS)
    });
    // A thread may wait for a disk or for the resolver of names; its result is no longer needed.
    runtime.shutdown_timeout(LEFT_BEHIND);
    outcome
}
