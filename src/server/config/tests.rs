//! Valid and invalid configurations, by file, flag and environment.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Parser};

use super::error::{flag_of, variable_of};
use super::{Config, ConfigError, Options, ServerArgs, Tls};
use crate::lock_server::LockServerOptions;
use crate::lock_state::{HoldPolicy, HoldRule};
use crate::replica::{AgreedConfig, LocalConfig};
use crate::server::api::ApiOptions;
use crate::server::reload::Loaded;
use crate::telemetry::{LogFormat, LogOptions};
use geolock_api::names::{ClusterId, DcId};

const EXAMPLE: &str = include_str!("../../../examples/geolock.toml");

const SMALL: &str = r#"
dc = 2
data_dir = "/data"
member = [
    { id = 2, name = "two", address = "two:7401" },
    { id = 7, name = "seven", address = "[::1]:7401" },
]
tls.dc = "/tls"
"#;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: ServerArgs,
}

/// Loads a file with these additions, under these flags. Top-level keys come first in TOML, so additions may
/// go in front.
fn load(before: &str, after: &str, flags: &[&str]) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::with_suffix("geolock.toml").expect("a temporary file");
    let after =
        if after.contains("[cluster]\n") { after.to_owned() } else { format!("{after}\n[cluster]\n") };
    let after = after.replace("[cluster]\n", "[cluster]\nname = \"c-1\"\n");
    write!(file, "{before}\n{SMALL}\n{after}").expect("it is written");
    let path = file.path().to_str().expect("a plain path");
    let arguments = ["geolock", "--config", path].into_iter().chain(flags.iter().copied());
    Cli::try_parse_from(arguments).expect("good flags").args.load()
}

fn refused(before: &str, after: &str, flags: &[&str]) -> String {
    load(before, after, flags).expect_err("this is refused").to_string()
}

#[test]
fn a_small_file_is_enough() {
    let config = load("", "", &[]).expect("good");
    assert_eq!((config.cluster_name.as_str(), config.replica.dc.get()), ("c-1", 2));
    assert_eq!(config.journal.cluster, ClusterId::of("c-1"));
    assert_eq!(config.this_member().name, "two");
    assert_eq!(config.members[1].address, "[::1]:7401");
    assert_eq!(config.tls.api, config.tls.dc);
}

/// The defaults stated in the example are the real ones, and the example documents every option.
#[test]
fn the_example_states_the_defaults() {
    let load = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("it is written");
        let args = ServerArgs { config: Some(file.path().to_owned()), ..ServerArgs::default() };
        let mut config = args.load().expect("the example is good");
        config.replica.local.hash_seed = 0;
        config
    };
    let plain = load(EXAMPLE);
    // A default is written as `# key = value`; prose never has that form.
    let is_option = |line: &str| {
        line.starts_with("[[")
            || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(|c: char| c.is_whitespace()))
    };
    let uncommented: Vec<&str> = EXAMPLE
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| is_option(rest)).unwrap_or(line))
        .collect();
    let all: toml::Table = uncommented.join("\n").parse().expect("TOML");
    assert_eq!(load(&uncommented.join("\n")), plain);

    let members = [0, 1, 2].iter().filter_map(|id| DcId::new(*id)).collect();
    assert_eq!(plain.replica.agreed, AgreedConfig::new(ClusterId::of("example"), members));
    assert_eq!(plain.replica.local, LocalConfig::default());
    assert_eq!((&plain.server, &plain.api), (&LockServerOptions::default(), &ApiOptions::default()));
    assert_eq!(plain.log, LogOptions::default());
    for key in keys() {
        let (section, name) = key.split_once('.').unwrap_or(("", &key));
        let table = if section.is_empty() { Some(&all) } else { all[section].as_table() };
        assert!(table.is_some_and(|table| table.contains_key(name)), "{key} is not in the example");
    }
}

/// Returns the keys of all options, from the definition of the flags.
fn keys() -> Vec<String> {
    let command = Options::augment_args(clap::Command::new("test"));
    command.get_arguments().map(|argument| argument.get_id().to_string()).collect()
}

#[test]
fn flags_and_variables_are_named_after_keys() {
    let command = Options::augment_args(clap::Command::new("test"));
    assert!(command.get_arguments().count() > 20);
    for argument in command.get_arguments() {
        let key = argument.get_id().as_str();
        let (flag, variable) = (argument.get_long(), argument.get_env().and_then(|name| name.to_str()));
        assert_eq!(flag.map(|flag| format!("--{flag}")), Some(flag_of(key)));
        assert_eq!(variable, Some(variable_of(key).as_str()));
        assert!(argument.get_help().is_some(), "{key}");
    }
}

/// The defaults and bounds stated in `--help` are the real ones.
#[test]
fn the_help_states_defaults_and_bounds() {
    let load = |flags: &[&str]| {
        load("", "", flags).map(|mut config| {
            config.replica.local.hash_seed = 0;
            config
        })
    };
    let plain = load(&[]).expect("good");
    let command = Options::augment_args(clap::Command::new("test"));
    let mut looked_at = 0;
    for argument in command.get_arguments() {
        let help = argument.get_help().expect("every option has it").to_string();
        let stated =
            help.split_once("[default: ").and_then(|(_, rest)| rest.strip_suffix(']')?.split_once("; "));
        let key = argument.get_id().as_str();
        let (Some((default, bounds)), true) = (stated, key != "hold") else { continue };
        // Defaults and bounds that refer to other options.
        let default = if default == "journal.max_backlog_bytes" { "64 MiB" } else { default };
        let bounds = bounds.replace("3 heartbeats", "1500 ms").replace("limits.max_waiting", "1000000");
        let bounds = bounds.replace("limits.max_name_bytes_per_lease", "64 MiB");
        let too_much = match argument.get_value_names().expect("it takes a value")[0].as_str() {
            "TIME" => "1000 h",
            "SIZE" => "1000000 GiB",
            _ => "1000000000",
        };
        let flag = flag_of(key);
        assert_eq!(load(&[&flag, default]).expect("the default is good"), plain, "{help}");
        let error = load(&[&flag, too_much]).expect_err("above all bounds").to_string();
        assert!(error.ends_with(&format!(": {bounds}")), "{error}, but the help says {help}");
        looked_at += 1;
    }
    assert!(looked_at >= 25, "{looked_at}");
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    for (before, after, key) in [
        ("data_dri = 1", "", "data_dri"),
        ("", "[cluster]\nheartbeat_intervals = \"1 s\"", "heartbeat_intervals"),
        ("", "[[hold]]\nprefix = \"a\"\nkeep = \"1 s\"", "keep"),
    ] {
        let error = refused(before, after, &[]);
        assert!(error.contains("geolock.toml") && error.contains(key) && error.contains("line"), "{error}");
    }
    let error = refused("", "[cluster]\nheartbeat_interval = 500", &[]);
    assert!(error.contains("heartbeat") && error.contains("expected a string"), "{error}");
}

#[test]
fn an_old_key_is_refused_with_its_new_name() {
    for (before, after, old, new) in [
        ("anti_entropy = \"5 s\"", "", "anti_entropy", "anti_entropy_interval"),
        ("", "[agreed]\nheartbeat = \"1 s\"", "agreed.heartbeat", "cluster.heartbeat_interval"),
        (
            "",
            "[[hold]]\nprefix = \"a\"\n[[hold]]\ngo_home_after = \"1 s\"",
            "hold.go_home_after",
            "hold.idle_return_after",
        ),
        ("", "[limits]\nwaiting = 7", "limits.waiting", "limits.max_waiting"),
    ] {
        let error = refused(before, after, &[]);
        let expected = format!("geolock.toml: the option {old} is called {new} now: rename it");
        assert!(error.ends_with(&expected), "{error}");
    }
    // All at once.
    let error = refused("", "[limits]\nheld = 7\n[journal]\nreserve = \"1 MiB\"", &[]);
    let held =
        "the option limits.held is called limits.max_held now: rename it; the option journal.reserve is";
    assert!(error.contains(held), "{error}");
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(b"cluster = \"c-1\"").expect("it is written");
    let args = ServerArgs { config: Some(file.path().to_owned()), ..ServerArgs::default() };
    let error = args.load().expect_err("an old key").to_string();
    assert!(error.ends_with("the option cluster is called cluster.name now: rename it"), "{error}");
}

#[test]
fn values_out_of_bounds_are_refused_with_file_key_value_and_bounds() {
    for (section, option, bounds) in [
        ("cluster", "heartbeat_interval = \"9 ms\"", "10 ms to 10 s"),
        ("cluster", "heartbeat_interval = \"11 s\"", "10 ms to 10 s"),
        ("cluster", "peer_timeout = \"1499 ms\"", "1500 ms to 1 h"),
        ("cluster", "max_clock_skew = \"2 h\"", "100 ms to 1 h"),
        ("cluster", "max_clock_skew = \"soon\"", "a number and one of us, ms, s, min, h, d"),
        ("limits", "max_lease_ttl = \"999 ms\"", "1 s to 1 h"),
        ("limits", "max_waiting_per_lease = 0", "1 to 1000000"),
        ("limits", "max_waiting_per_lease = 1000001", "1 to 1000000"),
        ("limits", "max_held = 100000001", "1 to 100000000"),
        ("limits", "link_window = 4097", "1 to 4096"),
        ("limits", "describe_timeout = \"6 s\"", "10 ms to 5 s"),
        ("journal", "segment_bytes = \"1 KiB\"", "1 MiB to 1 GiB"),
        ("journal", "segment_bytes = \"64\"", "a whole number and one of B, KiB, MiB, GiB"),
        ("journal", "max_backlog_bytes = \"1 KiB\"", "1 MiB to 4 GiB"),
        ("limits", "max_unread_bytes_per_session = \"1 B\"", "8 MiB to 1 GiB"),
        ("limits", "max_sessions = 0", "1 to 1000000"),
        ("limits", "max_queue_delay = \"9 ms\"", "10 ms to 1 min"),
        ("limits", "max_connections = 0", "1 to 1000000"),
        ("limits", "max_streams_per_connection = 65537", "1 to 65536"),
        ("journal", "checkpoint_bytes = \"65 GiB\"", "1 MiB to 64 GiB"),
        ("listen", "client = \"localhost\"", "IP:port"),
        ("listen", "http = \"127.0.0.1:7400\"", "the same"),
        ("log", "format = \"xml\"", "text or json"),
        ("log", "filter = \"a=b=c\"", "levels by module"),
    ] {
        let error = refused("", &format!("[{section}]\n{option}"), &[]);
        let (key, value) = option.split_once(" = ").expect("an option");
        assert!(error.contains("geolock.toml: "), "{error}");
        assert!(error.contains(&format!("{section}.{key} = {value}: ")) && error.contains(bounds), "{error}");
    }
    for (rule, key, bounds) in [
        ("min_keep = \"2 h\"", "hold.min_keep", "0 s to 1 h"),
        ("min_keep = \"2 s\"\nmax_keep = \"1 s\"", "hold.max_keep", "2 s to 1 h"),
        ("request_delay = \"501 ms\"", "hold.request_delay", "0 s to 500 ms"),
        ("[[hold]]", "hold", "two rules"),
        ("policy = \"slow\"", "hold.policy", "fair, throughput"),
        ("policy = \"fair\"\nmax_keep = \"1 s\"", "hold.policy", "adaptive"),
        ("policy = \"fair\"\nmin_keep = \"1 s\"", "hold.min_keep", "only the fixed"),
        ("policy = \"fixed\"\nturn = 3", "hold.turn", "the fixed policy has none"),
        ("idle_return_after = \"999 ms\"", "hold.idle_return_after", "1 s to"),
        ("turn = 1001", "hold.turn", "0 to 1000"),
    ] {
        let error = refused("", &format!("[[hold]]\n{rule}"), &[]);
        assert!(error.contains(key) && error.contains(bounds), "{error}");
    }
    assert!(refused("drain_timeout = \"11 min\"", "", &[]).contains("0 s to 10 min"));
}

#[test]
fn members_are_checked() {
    let two = "0=a@a:1";
    for (members, dc, text) in [
        (["0=a@a:1", "1=b@b:2"], "2", "the id of a member, which are 0, 1"),
        (["0=a@a:1", "64=b@b:2"], "0", "an id is 0 to 63"),
        ([two, "0=b@b:2"], "0", "two members have this id"),
        ([two, "1=a@b:2"], "0", "two members have this name"),
        ([two, "1=b@a:1"], "0", "two members have this address"),
        ([two, "1=B@b:2"], "0", "1 to 64 of a-z"),
        ([two, "1=b@b"], "0", "an address is host:port"),
        ([two, "1=b@:1"], "0", "an address is host:port"),
        ([two, "1=b@b:0"], "0", "an address is host:port"),
    ] {
        let error = refused("", "", &["--member", members[0], "--member", members[1], "--dc", dc]);
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn what_must_be_given_is_asked_for() {
    for key in ["cluster.name", "dc", "data_dir", "member", "tls.dc"] {
        let Err(error) = ServerArgs::default().load() else { panic!("nothing is given") };
        assert!(matches!(error, ConfigError::Missing { .. }), "{error}");
        let without: String = EXAMPLE
            .lines()
            .filter(|line| !line.starts_with(key))
            .map(|line| line.to_owned() + "\n")
            .collect();
        let mut table: toml::Table = without.parse().expect("TOML");
        match key.split_once('.') {
            Some((section, name)) => table[section].as_table_mut().and_then(|table| table.remove(name)),
            None => table.remove(key),
        };
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(table.to_string().as_bytes()).expect("it is written");
        let args = ServerArgs { config: Some(file.path().to_owned()), ..ServerArgs::default() };
        let error = args.load().expect_err("something is missing").to_string();
        assert!(error.contains(&format!(": {key} is missing")), "{error}");
    }
    for cluster in ["", "Ü", "a_b", &"a".repeat(65)] {
        assert!(refused("", "", &["--cluster-name", cluster]).contains("1 to 64 of a-z, 0-9 and -"));
    }
}

#[test]
fn flags_count_more_than_the_file() {
    let flags =
        ["--cluster-heartbeat-interval", "20 ms", "--hold", "a:b/:0 s:2 s:1 ms", "--log-format", "json"];
    let file = "[cluster]\nheartbeat_interval = \"30 ms\"\npeer_timeout = \"1 s\"\n[[hold]]\nprefix = \"x\"";
    let config = load("", file, &flags).expect("good");
    assert_eq!(config.replica.agreed.heartbeat, Duration::from_millis(20));
    assert_eq!(config.replica.agreed.peer_timeout, Duration::from_secs(1));
    assert_eq!(config.log.format, LogFormat::Json);
    let rule = HoldRule {
        prefix: b"a:b/".to_vec(),
        policy: HoldPolicy::Fixed { min_keep: Duration::ZERO, max_keep: Duration::from_secs(2) },
        request_delay: Duration::from_millis(1),
        ..HoldRule::default()
    };
    assert_eq!(config.replica.local.hold, [rule, HoldRule::default()]);
    let config = load("", "", &["--hold", "x:adaptive:7:2 s", "--hold", ":latency"]).expect("good");
    let adaptive = HoldPolicy::Adaptive { turn: 7, max_keep: Duration::from_secs(2) };
    let policies: Vec<HoldPolicy> = config.replica.local.hold.into_iter().map(|rule| rule.policy).collect();
    assert_eq!(policies, [adaptive, HoldPolicy::LATENCY]);
    let error = refused("", file, &["--cluster-heartbeat-interval", "1 h"]);
    assert!(
        error.starts_with("--cluster-heartbeat-interval or GEOLOCK_CLUSTER_HEARTBEAT_INTERVAL: "),
        "{error}"
    );
}

/// Variables can only be set for another process, so this test runs the next one in a child process.
#[test]
fn the_environment_counts_more_than_the_file_and_less_than_flags() {
    in_a_child(
        "in_an_environment",
        &[
            ("GEOLOCK_CLUSTER_HEARTBEAT_INTERVAL", "20 ms"),
            ("GEOLOCK_MEMBER", "2=zwei@zwei:1,3=drei@drei:1"),
            ("GEOLOCK_DC", "3"),
        ],
    );
}

fn in_a_child(test: &str, variables: &[(&str, &str)]) {
    let child = Command::new(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", &format!("server::config::tests::{test}"), "--ignored"])
        .envs(variables.iter().copied())
        .env("GEOLOCK_TEST_CHILD", "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_variable_with_an_old_name_is_refused_with_its_new_name() {
    in_a_child("in_an_old_environment", &[("GEOLOCK_LISTEN_GRPC", "[::]:1"), ("GEOLOCK_LIMITS_HELD", "7")]);
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn in_an_old_environment() {
    if std::env::var_os("GEOLOCK_TEST_CHILD").is_none() {
        return;
    }
    let error = refused("", "", &[]);
    assert_eq!(
        error,
        "the environment: the option GEOLOCK_LISTEN_GRPC is called GEOLOCK_LISTEN_CLIENT now: rename it; the option \
         GEOLOCK_LIMITS_HELD is called GEOLOCK_LIMITS_MAX_HELD now: rename it"
    );
}

#[test]
#[ignore = "run by the test above, with its environment"]
fn in_an_environment() {
    if std::env::var_os("GEOLOCK_TEST_CHILD").is_none() {
        return;
    }
    let file = "[cluster]\nheartbeat_interval = \"30 ms\"";
    let config = load("", file, &["--dc", "2"]).expect("good");
    assert_eq!(config.replica.agreed.heartbeat, Duration::from_millis(20));
    assert_eq!(config.this_member().name, "zwei");
    assert_eq!(load("", file, &[]).expect("good").this_member().name, "drei");
}

#[test]
fn missing_files_are_named() {
    let args = ServerArgs { config: Some("/no/such/file.toml".into()), ..ServerArgs::default() };
    assert!(args.load().expect_err("no file").to_string().contains("/no/such/file.toml"));
    let config = load("", "", &[]).expect("good");
    let error = Loaded::load(&config).expect_err("no folder").to_string();
    assert!(error.contains("tls.dc") && error.contains("/tls/ca.pem"), "{error}");
    // For example a key file of another user: the error states the reason, too.
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("ca.pem")).expect("it is empty");
    let tls = Tls::of(folder.path());
    let error = Loaded::load(&Config { tls, ..config }).expect_err("no file").to_string();
    assert!(error.contains("/ca.pem") && error.contains("directory"), "{error}");
}

#[test]
fn a_client_may_have_the_names_of_a_full_lease() {
    let most = |flags: &[&str]| {
        load("", "", flags).map(|config| {
            let local = config.replica.local;
            (local.max_names_per_lease >> 20, local.max_names_per_client >> 20)
        })
    };
    assert_eq!(most(&[]).expect("good"), (64, 256));
    let lease = ["--limits-max-name-bytes-per-lease", "1 GiB"];
    assert_eq!(most(&lease).expect("it raises the other"), (1_024, 1_024));
    let both = [&lease[..], &["--limits-max-name-bytes-per-client", "512 MiB"]].concat();
    let error = most(&both).expect_err("a lease could not have what it may").to_string();
    assert!(
        error.contains("limits.max_name_bytes_per_client") && error.ends_with("1 GiB to 64 GiB"),
        "{error}"
    );
}

#[test]
fn addresses_that_cannot_work_are_refused_with_the_reason() {
    let check = |address: &str| {
        let member = format!("0=a@{address},1=b@b.example:7401");
        let given =
            ["--cluster-name", "c-1", "--dc", "0", "--data-dir", "/d", "--tls-dc", "/t", "--member", &member];
        let arguments = ["geolock"].into_iter().chain(given);
        Cli::try_parse_from(arguments)
            .expect("good flags")
            .args
            .load()
            .map(drop)
            .map_err(|error| error.to_string())
    };
    for good in ["a:1", "a-1.example.com.:7401", "10.0.0.1:7401", "[fd77::10]:7401", "my_host:1", "4you:1"] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for (wrong, why) in [
        ("fd77::10:7401", "[fd77::10]:7401"),
        ("fe80::1%eth0:7401", "%"),
        ("[fe80::1%eth0]:7401", "%"),
        ("[fd77::10:7401", "between [ and ]"),
        ("[10.0.0.1]:7401", "between [ and ]"),
        ("10.0.0.256:7401", "a name, or an IP address"),
        ("10.0.0:7401", "a name, or an IP address"),
        ("a..b:7401", "a name, or an IP address"),
        ("http://a:7401", "a name, or an IP address"),
        ("a:0", "port 1 to 65535"),
        ("a:+7401", "port 1 to 65535"),
        ("a", "port 1 to 65535"),
    ] {
        let error = check(wrong).expect_err(wrong);
        assert!(error.contains(why), "{wrong}: {error}");
    }
}
