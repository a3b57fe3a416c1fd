//! The command line of `geolock` with its help: the commands in groups, usage lines without what the
//! environment gives, and for a witness only its own options.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::error::{Error, ErrorKind};
use clap::parser::ValueSource::CommandLine;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;

/// The groups of commands, and the commands of each, in the order in which a user needs them.
pub(super) const GROUPS: [(&str, &[&str]); 7] = [
    ("Try it", &["dev"]),
    ("Locks", &["lock", "describe", "locks", "watch"]),
    ("Data", &["kv"]),
    ("Recipes", &["once", "every", "elect"]),
    ("Servers and members", &["ca", "server", "token", "member", "witness"]),
    ("For operators", &["status", "top", "release", "audit", "journal"]),
    ("Tools", &["bench", "sim", "completions", "man", "help"]),
];

/// Options that a witness shares with a server. The others concern locks, data or clients, or the cluster as
/// a whole, which a witness asks.
const OF_WITNESS: [&str; 15] = [
    "help",
    "config",
    "check_config",
    "data_dir",
    "join",
    "name",
    "address",
    "dc",
    "cluster.name",
    "listen.quic",
    "tls.dc",
    "tls.check_interval",
    "journal.segment_bytes",
    "log.filter",
    "log.format",
];

/// Parses the command line.
pub(super) fn parse() -> Result<Cli, Error> {
    parse_from(std::env::args_os().collect())
}

fn parse_from(words: Vec<OsString>) -> Result<Cli, Error> {
    let mut command = command();
    let matches = command.clone().try_get_matches_from(words.clone()).or_else(|error| {
        if !error.use_stderr() {
            return Err(error);
        }
        // The usage line of an error shows all arguments that are given, also by the environment, as
        // required. With a usage line of its own, each command shows the same one as in its help.
        plain_usage(command.clone()).try_get_matches_from(words)
    })?;
    refuse_options_of_servers(&command, &matches)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Refuses options on the command line of a witness that would have no effect. A configuration file and an
/// environment may have them: servers can share those.
fn refuse_options_of_servers(command: &Command, matches: &ArgMatches) -> Result<(), Error> {
    let Some(("witness", given)) = matches.subcommand() else { return Ok(()) };
    let mut command = plain_usage(command.clone());
    let Some(witness) = command.find_subcommand_mut("witness") else { return Ok(()) };
    let is_given = |option: &&Arg| given.value_source(option.get_id().as_str()) == Some(CommandLine);
    let refused: Vec<String> = witness
        .get_arguments()
        .filter(|option| option.is_hide_set())
        .filter(is_given)
        .filter_map(|option| Some(format!("--{}", option.get_long()?)))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    let why = format!(
        "a witness has no option {}: it has no locks, no data and no clients, and asks the cluster that it joins for \
         the rest. Leave it out",
        refused.join(", ")
    );
    Err(witness.error(ErrorKind::UnknownArgument, why))
}

/// Returns all commands.
pub(super) fn command() -> Command {
    let command = Cli::command();
    let groups = groups(&command);
    command
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}"
        ))
        .mut_subcommand("witness", |witness| {
            witness.mut_args(|option| {
                let is_of_witness = OF_WITNESS.contains(&option.get_id().as_str());
                option.hide(!is_of_witness)
            })
        })
}

/// Returns the lines of all groups.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or("Print the help of a command".into(), ToString::to_string);
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len() + 1);
    text
}

/// Gives each command its usage line of now.
pub(super) fn plain_usage(mut command: Command) -> Command {
    command.build();
    fixed(command)
}

fn fixed(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    command.mut_subcommands(fixed).override_usage(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_stands_in_one_group() {
        let command = command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = command.clone().render_long_help().to_string();
        for (title, names) in GROUPS {
            assert!(help.contains(&format!("\n{title}:\n  {}", names[0])), "{title} is not in {help}");
        }
        assert!(
            help.contains("--version") && help.contains("Locks that several datacenters share"),
            "{help}"
        );
    }

    #[test]
    fn the_options_of_a_witness_exist_and_the_others_are_not_shown() {
        let command = command();
        let witness = command.find_subcommand("witness").expect("there is one");
        let shown = |name: &str| witness.get_arguments().any(|it| it.get_id() == name && !it.is_hide_set());
        for name in OF_WITNESS {
            assert!(name == "help" || shown(name), "{name}");
        }
        assert!(!shown("listen.client") && !shown("api.acl") && !shown("limits.max_held"));
        let server = command.find_subcommand("server").expect("there is one");
        assert!(server.get_arguments().all(|option| !option.is_hide_set()));
    }

    #[test]
    fn a_witness_refuses_options_without_effect() {
        let command = command();
        let witness = command.find_subcommand("witness").expect("there is one");
        let parse = |words: &[&str]| parse_from(words.iter().map(OsString::from).collect());
        let hidden: Vec<&Arg> = witness.get_arguments().filter(|option| option.is_hide_set()).collect();
        assert!(hidden.len() > 30, "{}", hidden.len());
        for option in hidden {
            let flag = format!("--{}", option.get_long().expect("each has a flag"));
            let takes_value = option.get_action().takes_values();
            let value =
                option.get_value_names().filter(|_| takes_value).map(|names| match names[0].as_str() {
                    "BOOL" => "true",
                    "MEMBER" => "0=fra@fra.example.com:7401",
                    "RULE" => ":fair",
                    _ => "1",
                });
            let with_it = |words: &[&'static str]| {
                let words = words.iter().copied().chain([flag.as_str()]).chain(value);
                parse(&words.collect::<Vec<&str>>())
            };
            with_it(&["geolock", "server"]).expect("a server has it");
            let error = with_it(&["geolock", "witness", "--dc", "3"]).expect_err("it has no effect");
            let said = error.to_string();
            let wanted = format!("error: a witness has no option {flag}: it has no locks");
            assert!(error.use_stderr() && said.starts_with(&wanted), "{said}");
            assert!(said.contains("Usage: geolock witness [OPTIONS]\n"), "{said}");
        }
        let own =
            ["geolock", "witness", "--join", "fra:7401", "--name", "wit", "--journal-segment-bytes", "1 MiB"];
        parse(&own).expect("these are its own");
    }

    #[test]
    fn usage_lines_of_errors_are_those_of_the_help() {
        let words = ["geolock", "lock", "--connect", "a:1", "--tls", "x"];
        let error = plain_usage(command()).try_get_matches_from(words).expect_err("there is no name");
        let error = error.to_string();
        assert!(error.contains("Usage: geolock lock [OPTIONS] <NAME>... -- <CMD>..."), "{error}");
        let words = ["geolock", "kv", "get", "--connect", "a:1"];
        let error = plain_usage(command()).try_get_matches_from(words).expect_err("there is no key");
        assert!(error.to_string().contains("Usage: geolock kv get [OPTIONS] <KEY>..."), "{error}");
    }
}
