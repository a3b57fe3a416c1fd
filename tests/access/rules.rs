//! Access control on a real server: tokens, rules, SIGHUP, certificates that are replaced while it runs.
//!
//! Guarantee: docs/guarantees.md#access.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::fixture::said::run as said;
use crate::fixture::{Cluster, Output, Running, geolock, servers, until};
use geolock::pki;
use geolock_api::names::DcId;
use rustix::process::Signal;

const NOT_ALLOWED: i32 = 77;
const DC: DcId = match DcId::new(0) {
    Some(dc) => dc,
    None => panic!("0 is the id of a datacenter"),
};

/// The rights of `ci`, besides reading the status.
const RULES: &str = r#"
[[rule]]
who = ["token:ci"]
allow = ["acquire-exclusive"]
locks = ["ci/"]

[[rule]]
who = ["client:playground"]
allow = ["acquire-shared", "describe", "read", "write"]
locks = [""]
keys = [{}]
"#;

/// One datacenter with rules and a token of `ci`, and a folder for clients without a certificate.
struct Place {
    cluster: Cluster,
    token: PathBuf,
    bare: PathBuf,
}

impl Place {
    fn start() -> Place {
        let mut cluster = Cluster::prepare(1);
        let dir = cluster.dir().to_owned();
        let token = dir.join("ci.token");
        let line = said(
            Command::new(env!("CARGO_BIN_EXE_geolock")).args(["token", "new", "ci", "--out"]).arg(&token),
        );
        assert_eq!(line.code, 0, "{}", line.stderr);
        fs::write(dir.join("tokens"), format!("# build machines\n{}", line.stdout)).expect("it is written");
        fs::write(dir.join("acl.toml"), RULES).expect("it is written");
        let bare = dir.join("bare");
        fs::create_dir(&bare).expect("it is made");
        fs::copy(cluster.tls().join("ca.pem"), bare.join("ca.pem")).expect("there are certificates");

        let api = format!("[api]\nacl = \"{0}/acl.toml\"\ntokens = \"{0}/tokens\"\n", dir.display());
        cluster.write_config(0, |member| cluster.quic_address(member), &api);
        let config = fs::read_to_string(cluster.config_file(0)).expect("it was written");
        let config = config.replace("[tls]\n", "[tls]\ncheck_interval = \"100 ms\"\n");
        fs::write(cluster.config_file(0), config).expect("it is written");
        cluster.start_all();
        Place { cluster, token, bare }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.cluster.dir().join(name), text).expect("it is written");
    }

    /// Runs a command without certificate and token.
    fn nobody(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.command(0, args);
        command.env("GEOLOCK_TLS", &self.bare);
        command
    }

    /// Runs a command with the token of `ci`.
    fn ci(&self, args: &[&str]) -> Command {
        let mut command = self.nobody(args);
        command.env("GEOLOCK_TOKEN_FILE", &self.token);
        command
    }

    /// Makes the server read its files again, and waits for this log line.
    fn reload(&mut self, wanted: &str) -> String {
        self.cluster.server(0).signal(Signal::HUP);
        self.cluster.server(0).line(wanted)
    }

    /// Waits for this log line about both certificates, in either order: the server may read the files
    /// between two writes.
    fn of_both(&mut self, wanted: &str) {
        let lines = [(); 2].map(|()| self.cluster.server(0).line(wanted));
        for name in ["tls.dc", "tls.api"] {
            assert!(lines.iter().any(|line| line.contains(name)), "{lines:?}");
        }
    }

    fn issue(&self, days: &str) {
        let dir = self.cluster.dir();
        let mut command = geolock(dir);
        command.args(["ca", "issue", "--dc", "0", "--host", "127.0.0.1", "--force", "--days", days]);
        command.arg("--dir").arg(dir.join("ca")).arg("--out").arg(self.certificates());
        assert_eq!(said(&mut command).code, 0);
    }

    fn certificates(&self) -> PathBuf {
        self.cluster.dir().join("tls/dc0")
    }
}

fn works(command: &mut Command) -> String {
    let said = said(command);
    assert_eq!(said.code, 0, "{command:?}: {}", said.stderr);
    said.stdout
}

fn refused(command: &mut Command) -> String {
    let said = said(command);
    assert_eq!(said.code, NOT_ALLOWED, "{command:?}: {}", said.stderr);
    said.stderr
}

#[test]
fn rules_decide_what_a_token_may_do() {
    let mut place = Place::start();
    assert_eq!(fs::metadata(&place.token).expect("it was made").permissions().mode() & 0o777, 0o600);
    let secret = fs::read_to_string(&place.token).expect("it was made");
    let known = fs::read_to_string(place.cluster.dir().join("tokens")).expect("it was written");
    assert!(!known.contains(secret.trim().rsplit('.').next().expect("a secret")), "only its hash is kept");

    works(&mut place.ci(&["lock", "ci/build", "--", "true"]));
    works(&mut place.ci(&["status"]));
    let message = refused(&mut place.ci(&["lock", "prod/build", "--", "true"]));
    let wanted =
        "token ci may not acquire-exclusive the lock \"prod/build\": no rule of this server (api.acl)";
    assert!(message.contains(wanted), "{message}");
    // The first line of this server: of many refusals at most one per second is logged.
    let line = place.cluster.server(0).line("call refused");
    assert!(line.contains("WARN") && line.contains(wanted) && line.contains("refused_so_far=1"), "{line}");
    for args in [
        &["lock", "--shared", "ci/build", "--", "true"][..],
        &["lock", "ci/a", "other", "--", "true"],
        &["kv", "put", "a", "1"],
        &["kv", "get", "a"],
        &["describe", "ci/build"],
        &["locks"],
        &["watch"],
        &["kv", "watch", "a"],
    ] {
        refused(&mut place.ci(args));
    }
    let client = |args: &[&str]| place.cluster.command(0, args);
    works(&mut client(&["kv", "put", "a", "1"]));
    assert_eq!(works(&mut client(&["kv", "get", "a"])).trim(), "1");
    refused(&mut client(&["lock", "ci/build", "--", "true"]));

    let nobody = refused(&mut place.nobody(&["status"]));
    assert!(nobody.contains("show a client's certificate or a token"), "{nobody}");
    let mut wrong = place.nobody(&["status", "--token-file"]);
    let no_token = said(wrong.arg(place.cluster.config_file(0)));
    assert!(no_token.code == 64 && no_token.stderr.contains("no file with a token"), "{}", no_token.stderr);
}

/// Every caller's refusals are in the audit, with the number of repetitions; the log may lose lines.
#[test]
fn the_audit_lists_what_operators_were_refused() {
    let mut place = Place::start();
    let auditor = "[[rule]]\nwho = [\"client:playground\"]\nallow = [\"admin\"]\n";
    place.write("acl.toml", &[RULES, auditor].concat());
    place.reload("reloaded");
    let force = |lock| ["release", lock, "--force", "--reason", "it is mine"];
    for lock in ["ci/x", "prod/x", "ci/x"] {
        refused(&mut place.ci(&force(lock)));
    }
    refused(&mut place.ci(&["audit"]));
    refused(&mut place.ci(&["member", "list"]));
    refused(&mut place.nobody(&force("ci/x")));
    refused(&mut place.cluster.command(0, force("prod/x")));

    let text = works(&mut place.cluster.command(0, ["audit"]));
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("refused  ")).collect();
    let denied = "no rule of this server (api.acl) allows it";
    let expected = [
        ("token ci may not force-release the lock \"prod/x\" (ForceRelease from 127.0.0.1:", denied),
        (
            "token ci may not force-release the lock \"ci/x\" (ForceRelease from 127.0.0.1:",
            "allows it; 2 times since 20",
        ),
        ("token ci may not admin this server (Audit from 127.0.0.1:", denied),
        ("token ci may not admin this server (ListMembers from 127.0.0.1:", denied),
        (
            "a caller that is not identified (ForceRelease from 127.0.0.1:",
            "show a client's certificate or a token",
        ),
        ("client playground may not force-release the lock \"prod/x\" (ForceRelease from 127.0.0.1:", denied),
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, (what, why)) in lines.iter().zip(expected) {
        assert!(line.contains(what) && line.contains(why), "{what}: {line}");
    }
    let json = works(&mut place.cluster.command(0, ["audit", "--json"]));
    let objects =
        json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
    let refused: Vec<_> = objects.filter(|it| it.get("refused_call").is_some()).collect();
    assert_eq!(refused.len(), expected.len(), "{json}");
    let twice = &refused[1];
    assert_eq!((&twice["refused_call"], &twice["caller"]), (&"ForceRelease".into(), &"token ci".into()));
    assert_eq!((&twice["action"], &twice["count"]), (&"force-release".into(), &2.into()));
}

#[test]
fn a_hang_up_takes_new_rules_and_tokens_and_refuses_broken_ones() {
    let mut place = Place::start();
    refused(&mut place.ci(&["lock", "prod/x", "--", "true"]));
    place.write("acl.toml", &RULES.replace("\"ci/\"", "\"prod/\""));
    place.reload("reloaded");
    works(&mut place.ci(&["lock", "prod/x", "--", "true"]));
    refused(&mut place.ci(&["lock", "ci/x", "--", "true"]));

    place.write("acl.toml", &RULES.replace("acquire-exclusive", "aquire"));
    let line = place.reload("access rules not read");
    assert!(line.contains("ERROR") && line.contains("acl.toml, line 2: rule 1: allow \"aquire\""), "{line}");
    place.cluster.server(0).line("reloaded");
    works(&mut place.ci(&["lock", "prod/x", "--", "true"]));
    let mut check = geolock(place.cluster.dir());
    check.arg("server").arg("--check-config").arg("--config").arg(place.cluster.config_file(0));
    let checked = said(&mut check);
    assert!(checked.code == 78 && checked.stderr.contains("line 2: rule 1"), "{}", checked.stderr);

    place.write("acl.toml", RULES);
    place.write("tokens", "# nobody\n");
    place.reload("reloaded");
    let withdrawn = refused(&mut place.ci(&["lock", "ci/x", "--", "true"]));
    assert!(withdrawn.contains("that token of ci is not, or no longer"), "{withdrawn}");
}

#[test]
fn certificates_are_replaced_while_locks_are_held() {
    let mut place = Place::start();
    let mut command = place.ci(&["lock", "ci/held", "--", "sh", "-c", "echo in; cat"]);
    let mut holding = Running::start(command.stdin(Stdio::piped()), Output::Stdout);
    holding.line("in");

    // No signal is sent: the server checks the files by itself.
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3_600));
    let authority = pki::Authority::load(&place.cluster.dir().join("ca")).expect("it was made");
    let old = pki::Validity { from: now - 300 * day, until: now + 6 * day };
    let leaf = pki::Leaf { role: pki::Role::Dc(DC), hosts: vec!["127.0.0.1".into()], validity: old };
    authority.issue(&place.certificates(), &leaf, pki::Existing::Replace).expect("it is issued");
    place.of_both("certificate expires soon");
    until_status(&place, |status| status.contains("! its certificate tls.api expires in 5 d"));

    place.issue("90");
    place.of_both("certificate renewed");
    let status = works(&mut place.ci(&["status"]));
    assert!(status.contains("tls.api      good for 89 d") && !status.contains("expires in"), "{status}");

    let key = place.certificates().join("key.pem");
    let good = fs::read(&key).expect("it was issued");
    fs::write(&key, "torn").expect("it is written");
    let line = place.cluster.server(0).line("certificate not renewed");
    assert!(line.contains("ERROR") && line.contains("key.pem is not PEM"), "{line}");
    until_status(&place, |status| status.contains("! its certificate tls.api was not renewed"));
    works(&mut place.ci(&["lock", "ci/other", "--", "true"]));
    let page = place.cluster.page(0, "/metrics");
    assert!(page.contains("geolock_certificate_refused{certificate=\"tls.api\"} 1"), "{page}");
    assert!(page.contains("geolock_certificate_expiry_seconds{certificate=\"tls.api\"} 77"), "{page}");
    fs::write(&key, good).expect("it is written");
    until_status(&place, |status| !status.contains("not renewed"));

    drop(holding.stdin());
    assert_eq!(holding.wait(), 0, "the lock was held all the time");
}

/// Waits until the status is as wanted; each check runs a process.
fn until_status(place: &Place, wanted: impl Fn(&str) -> bool) {
    until("such a status", || wanted(&works(&mut place.ci(&["status"]))).then_some(()));
}

#[test]
fn who_waits_and_may_not_look_asks_once() {
    let place = Place::start();
    let mut holder = Running::start(
        place.ci(&["lock", "ci/x", "--", "sh", "-c", "echo in; cat"]).stdin(Stdio::piped()),
        Output::Stdout,
    );
    holder.line("in");
    let waited = said(&mut place.ci(&["lock", "--verbose", "--wait", "4s", "ci/x", "--", "true"]));
    assert_eq!(waited.code, 75, "{}", waited.stderr);
    let denied = "geolock_access_denied_total{action=\"describe\"} ";
    let page = place.cluster.page(0, "/metrics");
    let times = page.lines().find_map(|line| line.strip_prefix(denied)).expect("it is counted");
    assert!(times.parse::<u64>().expect("a number") <= 1, "it was refused {times} times");
    drop(holder.stdin());
    assert_eq!(holder.wait(), 0);
}

#[test]
fn who_must_show_a_certificate_is_told() {
    let cluster = servers(1).listening();
    let bare = cluster.dir().join("bare");
    fs::create_dir(&bare).expect("it is made");
    fs::copy(cluster.tls().join("ca.pem"), bare.join("ca.pem")).expect("there are certificates");
    for args in [&["status"][..], &["lock", "x", "--", "true"]] {
        let refused = said(cluster.command(0, args).env("GEOLOCK_TLS", &bare));
        assert_eq!(refused.code, 69, "{}", refused.stderr);
        assert!(refused.stderr.contains("this client shows no certificate"), "{}", refused.stderr);
    }
    let token = cluster.dir().join("a.token");
    let made = said(geolock(cluster.dir()).args(["token", "new", "a", "--out"]).arg(&token));
    assert_eq!(made.code, 0, "{}", made.stderr);
    for args in [&["status"][..], &["lock", "x", "--", "true"]] {
        let mut command = cluster.command(0, args);
        let refused = said(command.env("GEOLOCK_TLS", &bare).env("GEOLOCK_TOKEN_FILE", &token));
        assert_eq!(refused.code, 69, "{}", refused.stderr);
        assert!(refused.stderr.contains("the server may take no tokens"), "{}", refused.stderr);
    }
}

#[test]
fn whose_certificate_is_not_accepted_is_told() {
    let cluster = servers(1).listening();
    // The certificate is valid, but it names a datacenter.
    let server = cluster.dir().join("tls").join("dc0");
    for args in [&["status"][..], &["lock", "x", "--", "true"]] {
        let refused = said(cluster.command(0, args).env("GEOLOCK_TLS", &server));
        // If a session gets the reason depends on which arrives first: the alert, or the end of the
        // connection.
        let code = if refused.stderr.contains("not that of a client") { 77 } else { 69 };
        assert_eq!(refused.code, code, "{}", refused.stderr);
        assert!(refused.stderr.contains("does not accept this client's certificate"), "{}", refused.stderr);
    }
}

#[test]
fn a_token_is_shown_once_and_written_over_nothing() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let new = |args: &[&str]| said(geolock(home.path()).args(["token", "new"]).args(args));
    let shown = new(&["ci"]);
    let token = shown.stdout.lines().nth(1).expect("the token").trim().to_owned();
    let line = shown.stdout.lines().last().expect("the line").trim().to_owned();
    assert!(
        shown.code == 0 && token.starts_with("ci.") && line.starts_with("ci sha256:"),
        "{}",
        shown.stdout
    );
    assert_eq!(new(&["c/i"]).code, 64);
    let file = home.path().join("there");
    fs::write(&file, "mine").expect("it is written");
    let again = new(&["ci", "--out", file.to_str().expect("plain")]);
    assert!(again.code == 1 && again.stderr.contains("there"), "{}", again.stderr);
    assert_eq!(read(&file), "mine");
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("it is there")
}

#[test]
fn who_waits_and_is_not_known_any_more_is_told() {
    let mut place = Place::start();
    let mut command = place.ci(&["lock", "ci/turn", "--", "sh", "-c", "echo held; cat"]);
    // Whatever happens to geolock, its command ends with this test.
    let mut holder = Running::start(command.stdin(Stdio::piped()), Output::Stdout);
    holder.line("held");
    let mut waiter = Running::start(&mut place.ci(&["lock", "ci/turn", "--", "true"]), Output::Stderr);
    until("a waiter", || {
        works(&mut place.cluster.command(0, ["describe", "ci/turn"])).contains("waiting").then_some(())
    });
    place.cluster.kill(0);
    place.write("tokens", "# nobody\n");
    place.cluster.restart(0);
    let told = waiter.line("geolock: ");
    assert!(told.contains("ci") && told.contains("UNAUTHENTICATED"), "{told}");
    assert_eq!(waiter.wait(), NOT_ALLOWED);
}
