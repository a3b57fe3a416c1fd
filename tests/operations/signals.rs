//! A server that is told to stop stops, whatever it waits for.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use crate::fixture::said::run;
use crate::fixture::{HANGS, Output, Running, servers, until};
use rustix::process::Signal;

const RULE: &str =
    "[[rule]]\nwho = [\"*\"]\nallow = [\"read\"]\nkeys = [{ bucket = \"a\", prefix = \"b\" }]\n";

/// Creates a pipe without a writer: opening it blocks for ever.
fn named_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("it is there");
    assert!(made.success(), "{made}");
}

#[test]
fn a_server_that_cannot_recover_hears_that_it_shall_stop() {
    let cluster = servers(1).prepared();
    fs::DirBuilder::new().mode(0o700).create(cluster.data_dir(0)).expect("the folder is writable");
    named_pipe(&cluster.data_dir(0).join("lock"));
    let mut server = Running::start(&mut cluster.server_command(0), Output::Stderr);
    until("a server that starts", || cluster.is_alive(0).then_some(()));
    server.signal(Signal::TERM);
    server.line("asked to stop while it started");
    assert_eq!(server.wait(), 0);
}

#[test]
fn the_service_manager_hears_that_a_server_is_ready_alive_and_stopping() {
    let cluster = servers(1).prepared();
    let path = cluster.dir().join("notify");
    let socket = UnixDatagram::bind(&path).expect("the folder is writable");
    socket.set_read_timeout(Some(HANGS)).expect("it is above 0");
    let hear = || {
        let mut said = [0; 256];
        let len = socket.recv(&mut said).expect("something is said");
        String::from_utf8_lossy(&said[..len]).into_owned()
    };
    let mut command = cluster.server_command(0);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
    let mut server = Running::start(&mut command, Output::Stderr);
    assert_eq!(hear(), "READY=1");
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    server.signal(Signal::TERM);
    until("a server that stops", || (hear() == "STOPPING=1").then_some(()));
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_start_that_fails_says_by_its_exit_code_if_another_start_helps() {
    let cluster = servers(1).prepared();
    let start = || run(&mut cluster.server_command(0));
    let taken = TcpListener::bind(cluster.endpoint(0)).expect("it is free");
    let said = start();
    assert!(said.code == 71 && said.stderr.contains("cannot listen on"), "a port that is taken: {said:?}");
    drop(taken);
    let lock = cluster.data_dir(0);
    let mut server = Running::start(&mut cluster.server_command(0), Output::Stderr);
    server.line("listening");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), 0, "the same configuration, when the port is free");

    fs::write(lock.join("identity"), "nonsense").expect("the folder is writable");
    let said = start();
    assert_eq!(said.code, 78, "data that is damaged: {said:?}");
    fs::remove_file(cluster.dir().join("tls/dc0/cert.pem")).expect("it is there");
    let said = start();
    assert!(said.code == 78 && said.stderr.contains("cert.pem"), "no certificate: {said:?}");
}

#[test]
fn the_unit_starts_again_after_a_reason_that_passes_and_not_after_one_that_stays() {
    let unit = include_str!("../../deploy/geolock.service");
    let options: Vec<&str> = unit.lines().map(str::trim).collect();
    for option in ["Restart=on-failure", "StartLimitIntervalSec=0", "RestartPreventExitStatus=64 78"] {
        assert!(options.contains(&option), "{option}");
    }
    assert!(!unit.contains("ExecStartPre"), "its exit code has no effect on restarts");
}

#[test]
fn a_server_is_not_kept_from_stopping_by_a_file_that_it_reads_again() {
    let mut cluster = servers(1).prepared();
    let acl = cluster.dir().join("acl.toml");
    fs::write(&acl, RULE).expect("the folder is writable");
    cluster.configure(&format!("[api]\nacl = \"{}\"\n", acl.display()));
    cluster.start_all();
    for file in [acl, cluster.dir().join("tls/dc0/cert.pem")] {
        fs::remove_file(&file).expect("it is there");
        named_pipe(&file);
    }
    cluster.server(0).signal(Signal::HUP);
    cluster.server(0).line("no regular file");
    cluster.server(0).line("reloaded");
    cluster.server(0).signal(Signal::TERM);
    assert_eq!(cluster.server(0).wait(), 0);
}
