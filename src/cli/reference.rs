//! Renders `docs/commands.md` from the definitions of the command line, and checks that the file is the
//! rendered text.
//!
//! One table of all commands with their purposes, then a section for each command with its usage, options and
//! exit codes. Rows that an earlier section has are named there only. The page is that of a release: options
//! of the features for tests are not on it, so this module is compiled without those.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Arg, Command};

use super::help;

/// Pages about a command. Every command that is named here exists.
const LINKS: [(&str, &str); 31] = [
    ("dev", "[tour](tour.md)"),
    ("dev add", "[tour](tour.md#datacenters-that-join-and-leave)"),
    ("lock", "[guarantees](guarantees.md#locks), [semaphore](recipes/semaphore.md)"),
    ("describe", "[tour](tour.md#watch-and-top)"),
    ("watch", "[tour](tour.md#watch-and-top), [guarantees](guarantees.md#watches)"),
    ("kv get", "[data](data.md)"),
    ("kv expire", "[keys that end](guarantees.md#keys-that-end)"),
    ("kv txn", "[isolation](guarantees.md#isolation)"),
    ("kv watch", "[guarantees](guarantees.md#watches)"),
    ("once", "[run once](recipes/once.md)"),
    ("every", "[once a period](recipes/every.md)"),
    ("elect", "[leader election](recipes/election.md)"),
    ("ca init", "[identities](security.md#identities)"),
    ("ca issue", "[set up a cluster](operations.md#set-up-a-cluster)"),
    (
        "server",
        "[set up](operations.md#set-up-a-cluster), [join](membership.md#add-a-datacenter), [exit codes](operations.md#deploy), [file](../examples/geolock.toml)",
    ),
    ("token new", "[access](operations.md#access)"),
    ("member list", "[members](membership.md)"),
    ("member add", "[add a datacenter](membership.md#add-a-datacenter)"),
    ("member remove", "[remove a datacenter](membership.md#remove-a-datacenter)"),
    ("member evict", "[a datacenter is lost](membership.md#a-datacenter-is-lost)"),
    ("member replace", "[a datacenter returns](membership.md#a-datacenter-returns)"),
    ("member recover", "[a majority is lost](membership.md#a-majority-is-lost)"),
    ("member home", "[homes by prefix](membership.md#homes-by-prefix)"),
    ("member policy", "[without an operator](membership.md#without-an-operator)"),
    ("witness", "[a witness](membership.md#a-witness)"),
    ("status", "[figures and alerts](operations.md#what-to-watch)"),
    ("top", "[present activity](operations.md#present-activity)"),
    ("release", "[take a lock away](operations.md#take-a-lock-away)"),
    ("journal orphans", "[orphans](membership.md#commits-that-only-a-lost-datacenter-had)"),
    ("bench", "[performance](performance.md#measure-it-yourself)"),
    ("sim", "[evidence](evidence.md)"),
];

/// Writes the page again.
const WRITE: &str = "GEOLOCK_TEST_WRITE=1 cargo test --lib cli::reference";
/// The beginnings of the paragraphs below a help text that the page has, too.
const NOTES: [&str; 3] = ["Exit codes: ", "Exit codes ", "Lines: "];
/// So many rows that an earlier section has are named only.
const SHARED: usize = 3;
/// Widest line of prose, in columns.
const WIDTH: usize = 120;

/// Renders the page.
fn page() -> String {
    let command = help::plain_usage(help::command());
    let mut text = format!("# Commands\n\n<!-- Do not edit: `{WRITE}` writes this page. -->\n\n");
    text += &wrapped(
        "For users and operators: all commands, made from the definitions of the command line. `geolock help COMMAND` says \
         more of each. Where a command takes the id of a datacenter, it takes its name, too: `--home fra`, `member evict \
         syd`. A TIME is a number and a unit, such as `250ms`, `20s`, `5min` or `1h`; a SIZE such as `64 MiB`. An option with \
         [env] can also be given in the environment: `--data-dir` as `GEOLOCK_DATA_DIR`.",
    );
    text += "\n| | command | purpose | more |\n|---|---|---|---|\n";
    let links = BTreeMap::from(LINKS);
    for (group, command, anchor) in listed(&command) {
        let path = path(command);
        let more = links.get(path).copied().unwrap_or_default();
        let line = format!("| {group} | [{path}](#{anchor}) | {} | {more} |", cell(&purpose(command)));
        text += &line.replace("|  |", "| |");
        text.push('\n');
    }
    let mut sections = Sections::default();
    for (_, names) in help::GROUPS {
        for name in names {
            // `help` has no options.
            if let Some(command) = command.find_subcommand(name).filter(|_| *name != "help") {
                text += &sections.render(command);
            }
        }
    }
    text
}

/// Returns all commands with the names of their groups, at the first of each, and their sections.
fn listed(command: &Command) -> Vec<(&'static str, &Command, String)> {
    let mut all = Vec::new();
    for (group, names) in help::GROUPS {
        let commands =
            names.iter().filter(|name| **name != "help").filter_map(|name| command.find_subcommand(name));
        let commands = commands.flat_map(|one| runnable(one).into_iter().map(move |it| (it, anchor(one))));
        let title = |at| if at == 0 { group } else { "" };
        all.extend(commands.enumerate().map(|(at, (command, anchor))| (title(at), command, anchor)));
    }
    all
}

fn anchor(command: &Command) -> String {
    format!("geolock-{}", command.get_name())
}

/// Returns the command and its subcommands, without those that only lead to others.
fn runnable(command: &Command) -> Vec<&Command> {
    let own = (!command.is_subcommand_required_set()).then_some(command);
    let below = command.get_subcommands().filter(|it| it.get_name() != "help" && !it.is_hide_set());
    own.into_iter().chain(below).collect()
}

/// Returns the words of a command without `geolock`.
fn path(command: &Command) -> &str {
    let words = command.get_bin_name().expect("it was built");
    words.strip_prefix("geolock ").expect("all commands are below it")
}

fn purpose(command: &Command) -> String {
    let about = command.get_about().expect("every command has a purpose").to_string();
    about.trim_end_matches('.').to_owned()
}

/// A row of the table of a section.
struct Row {
    option: String,
    meaning: String,
    heading: Option<String>,
    /// The commands of the section that have it.
    of: Vec<String>,
}

/// The sections so far.
#[derive(Default)]
struct Sections {
    /// The section that was the first to have an option with this meaning.
    first: BTreeMap<(String, String), String>,
}

impl Sections {
    fn render(&mut self, command: &Command) -> String {
        let name = command.get_name();
        let commands = runnable(command);
        let mut text = format!("\n## geolock {name}\n\n```text\n");
        for command in &commands {
            let usage = Command::clone(command).render_usage().to_string();
            // Other lines are those of subcommands.
            text += usage.trim_start_matches("Usage: ").lines().next().unwrap_or_default().trim_end();
            text.push('\n');
        }
        text += "```\n";
        let (rows, shared) = self.split(rows(&commands), name);
        text += &table(&rows, &commands);
        for (section, options) in shared {
            let flag = |option: &String| format!("`{}`", option.split(' ').next().unwrap_or_default());
            let names: Vec<String> = options.iter().map(flag).collect();
            text +=
                &wrapped(&format!("\nAs in [geolock {section}](#geolock-{section}): {}.", names.join(", ")));
        }
        text + &notes(command, &commands)
    }

    /// Separates the rows from those that earlier sections have, by section.
    fn split(&mut self, rows: Vec<Row>, name: &str) -> (Vec<Row>, BTreeMap<String, Vec<String>>) {
        let key = |row: &Row| (row.option.clone(), row.meaning.clone());
        // Arguments without a flag stay beside the usage line.
        let before = |row: &Row| self.first.get(&key(row)).filter(|_| row.option.starts_with("--"));
        let mut shared = BTreeMap::<String, Vec<String>>::new();
        for row in &rows {
            if let Some(section) = before(row) {
                shared.entry(section.clone()).or_default().push(row.option.clone());
            }
        }
        shared.retain(|_, options| options.len() >= SHARED);
        let is_named = |row: &Row| before(row).is_some_and(|section| shared.contains_key(section));
        let own: Vec<Row> = rows.into_iter().filter(|row| !is_named(row)).collect();
        for row in &own {
            self.first.entry(key(row)).or_insert_with(|| name.to_owned());
        }
        (own, shared)
    }
}

/// Returns the options of these commands, each once; those with a heading last.
fn rows(commands: &[&Command]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for command in commands {
        let is_shown =
            |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
        for arg in command.get_arguments().filter(is_shown) {
            let Some(meaning) = meaning(arg) else { continue };
            let (option, name) = (arg.to_string(), command.get_name().to_owned());
            match rows.iter_mut().find(|row| row.option == option && row.meaning == meaning) {
                Some(row) => row.of.push(name),
                None => {
                    let heading = arg.get_help_heading().map(str::to_owned);
                    rows.push(Row { option, meaning, heading, of: vec![name] });
                }
            }
        }
    }
    let headings: Vec<Option<String>> = rows.iter().map(|row| row.heading.clone()).collect();
    let place = |row: &Row| row.heading.is_some().then(|| headings.iter().position(|it| *it == row.heading));
    rows.sort_by_key(|row| (place(row), row.option.starts_with('-')));
    rows
}

/// Returns the meaning of an option, with default and choices; `None` for a word of the usage line that is
/// clear by itself.
fn meaning(arg: &Arg) -> Option<String> {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    assert!(!help.is_empty() || arg.is_positional(), "{arg} has no help text");
    let mut text = help.trim_end_matches('.').to_owned();
    if !arg.get_action().takes_values() {
        return Some(text);
    }
    let choices: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let mut add = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}[{name}: {value}]", if text.is_empty() { "" } else { " " });
    };
    if !choices.is_empty() && !arg.is_hide_possible_values_set() {
        add("one of", choices.join(", "));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() {
        add("default", defaults.join(","));
    }
    if let Some(variable) = arg.get_env() {
        let is_plain = arg.get_long().is_some_and(|flag| *variable == *variable_of(flag));
        if is_plain { text += " [env]" } else { text += &format!(" [env: {}]", variable.display()) }
    }
    (!text.is_empty()).then_some(text)
}

/// Returns the usual environment variable of a flag.
fn variable_of(flag: &str) -> String {
    format!("GEOLOCK_{}", flag.replace('-', "_").to_uppercase())
}

fn table(rows: &[Row], commands: &[&Command]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let has_several = commands.len() > 1;
    let mut text = String::from(if has_several {
        "\n| option | of | |\n|---|---|---|\n"
    } else {
        "\n| option | |\n|---|---|\n"
    });
    let mut heading = None;
    for Row { option, meaning, heading: own, of } in rows {
        if *own != heading {
            heading.clone_from(own);
            let title = own.as_deref().unwrap_or_default();
            text += &format!("| **{title}** |{}\n", if has_several { " | |" } else { " |" });
        }
        let of = if of.len() == commands.len() { "all".to_owned() } else { of.join(", ") };
        let of = if has_several { format!(" {of} |") } else { String::new() };
        text += &format!("| `{}` |{of} {} |\n", cell(option), cell(meaning));
    }
    text
}

/// Returns the paragraphs about exit codes and input below the help texts of the command and its subcommands.
fn notes(command: &Command, commands: &[&Command]) -> String {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for one in [command].iter().chain(commands) {
        let after = one.get_after_help().map(ToString::to_string).unwrap_or_default();
        let of = if one.get_name() == command.get_name() {
            String::new()
        } else {
            format!("`geolock {}`: ", path(one))
        };
        for paragraph in after.split("\n\n").filter(|it| NOTES.iter().any(|start| it.starts_with(start))) {
            if seen.insert(paragraph.to_owned()) {
                text += &wrapped(&format!("\n{of}{paragraph}"));
            }
        }
    }
    text
}

/// Returns the text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Breaks a paragraph into lines. A leading line break stays.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        match line.is_empty() {
            true => *line = word.to_owned(),
            false if line.len() + word.len() < WIDTH => *line += &format!(" {word}"),
            false => lines.push(word.to_owned()),
        }
    }
    format!("{}{}\n", if text.starts_with('\n') { "\n" } else { "" }, lines.join("\n"))
}

#[test]
fn the_page_of_commands_is_that_of_their_definitions() {
    let (path, page) = (concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md"), page());
    if std::env::var_os("GEOLOCK_TEST_WRITE").is_some() {
        std::fs::write(path, &page).expect("the file is writable");
    }
    let found = std::fs::read_to_string(path).expect("the page is there");
    let differs = found.lines().zip(page.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == page,
        "docs/commands.md is not that of the definitions in src/cli; this writes it again:\n  \
         {WRITE}\nThe first line that differs: {differs:#?}"
    );
}

#[test]
fn no_command_and_no_option_is_lost() {
    let (page, command) = (page(), help::plain_usage(help::command()));
    let sections: BTreeMap<&str, &str> =
        page.split("\n## geolock ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let mut paths = BTreeSet::new();
    for top in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let section =
            sections.get(top.get_name()).unwrap_or_else(|| panic!("{} has no section", top.get_name()));
        for command in [top].into_iter().chain(top.get_subcommands().filter(|it| it.get_name() != "help")) {
            paths.insert(path(command).to_owned());
            let flags = command.get_arguments().filter(|option| !option.is_hide_set());
            for flag in flags.filter_map(Arg::get_long).filter(|flag| *flag != "help") {
                let is_there = [' ', '`'].iter().any(|end| section.contains(&format!("`--{flag}{end}")));
                assert!(is_there, "--{flag} of {} is not in its section", path(command));
            }
        }
    }
    assert!(paths.len() > 40, "{paths:?}");
    for (command, _) in LINKS {
        assert!(paths.contains(command), "there is no command {command}");
    }
    for (_, command, _) in listed(&command) {
        assert!(page.contains(&format!("| [{}](#", path(command))), "{} is not listed", path(command));
    }
}
