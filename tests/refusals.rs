//! What must not run or get in: servers on the wrong folder or with the wrong certificate, strangers as clients.

mod common;

use std::path::Path;
use std::process::Command;

use common::said::run;
use common::{Cluster, geolock};
use geolock::names::DcId;
use geolock::pki;

/// The configuration of datacenter 0 on any free ports, with what `flags` say instead.
fn server(cluster: &Cluster, flags: &[(&str, &Path)]) -> Command {
    let mut command = geolock(&cluster.dir().join("home"));
    command.arg("server").arg("--config").arg(cluster.config_file(0));
    for listen in ["--listen-grpc", "--listen-quic", "--listen-http"] {
        command.args([listen, "127.0.0.1:0"]);
    }
    for (flag, path) in flags {
        command.arg(flag).arg(path);
    }
    command
}

/// What it says when it refuses to do what was asked for.
fn refused(command: &mut Command, code: i32) -> String {
    let said = run(command);
    assert_eq!(said.code, code, "{}", said.stderr);
    assert!(said.stderr.contains("geolock: "), "{}", said.stderr);
    said.stderr
}

#[test]
fn a_folder_has_one_server_and_one_datacenter() {
    let mut cluster = Cluster::start(2);
    let in_use = refused(&mut server(&cluster, &[]), 1);
    assert!(in_use.contains("data0") && in_use.contains("in use by another geolock server"), "{in_use}");
    cluster.kill(1);
    let others = cluster.dir().join("data1");
    let other = refused(&mut server(&cluster, &[("--data-dir", &others)]), 1);
    assert!(other.contains("belongs to dc1") && other.contains("this server is dc0"), "{other}");
    // Nothing was changed.
    cluster.restart(1);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let cluster = Cluster::start(1);
    let mut command = geolock(&cluster.dir().join("home"));
    let taken = refused(command.arg("server").arg("--config").arg(cluster.config_file(0)), 1);
    assert!(taken.contains(&cluster.endpoint(0)) && taken.contains("for clients"), "{taken}");
}

#[test]
fn a_server_needs_the_certificate_of_its_datacenter() {
    let mut cluster = Cluster::start(2);
    cluster.kill(0);
    for (folder, owner) in [("client", "client"), ("tls/dc1", "dc/1")] {
        let folder = cluster.dir().join(folder);
        let wrong = refused(&mut server(&cluster, &[("--tls-dc", &folder)]), 1);
        assert!(wrong.contains(owner) && wrong.contains("dc/0"), "{wrong}");
        let check = refused(server(&cluster, &[("--tls-dc", &folder)]).arg("--check-config"), 1);
        assert!(check.contains(owner), "{check}");
    }
}

#[test]
fn strangers_are_no_clients() {
    let cluster = Cluster::start(1);
    let other = tempfile::tempdir().expect("a temporary folder");
    pki::playground(other.path(), "test", DcId::new(0)).expect("certificates can be made");
    // Of an authority with the same name, and a datacenter's.
    for folder in [other.path().join("client"), cluster.dir().join("tls/dc0")] {
        let mut command = cluster.command(0, ["lock", "x", "--", "echo", "ran"]);
        let said = refused(command.env("GEOLOCK_TLS", &folder), 69);
        // Whether the client hears why depends on what arrives first, the alert or the end of the connection.
        assert!(said.contains(&cluster.endpoint(0)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let mut command = cluster.command(0, ["lock", "x", "--", "true"]);
    assert!(command.status().expect("the binary is there").success(), "others go on");
}
