//! Refusals: servers with the wrong folder or certificate, and strangers as clients.

use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, geolock, servers};
use geolock::pki;
use geolock_api::names::DcId;

/// Returns the command for datacenter 0 on any free ports, with these flags.
fn server(cluster: &Cluster, flags: &[(&str, &Path)]) -> Command {
    let mut command = geolock(&cluster.dir().join("home"));
    command.arg("server").arg("--config").arg(cluster.config_file(0));
    for listen in ["--listen-client", "--listen-quic", "--listen-http"] {
        command.args([listen, "127.0.0.1:0"]);
    }
    for (flag, path) in flags {
        command.arg(flag).arg(path);
    }
    command
}

/// Returns the message of a command that refuses the request.
fn refused(command: &mut Command, code: i32) -> String {
    let said = run(command);
    assert_eq!(said.code, code, "{}", said.stderr);
    assert!(said.stderr.contains("geolock: "), "{}", said.stderr);
    said.stderr
}

#[test]
fn a_folder_has_one_server_and_one_datacenter() {
    let mut cluster = servers(2).listening();
    let in_use = refused(&mut server(&cluster, &[]), 71);
    assert!(in_use.contains("data0") && in_use.contains("in use by another geolock server"), "{in_use}");
    cluster.kill(1);
    let others = cluster.dir().join("data1");
    let other = refused(&mut server(&cluster, &[("--data-dir", &others)]), 78);
    assert!(other.contains("belongs to dc1") && other.contains("this server is dc0"), "{other}");
    // Nothing was changed.
    cluster.restart(1);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let cluster = servers(1).listening();
    let mut command = geolock(&cluster.dir().join("home"));
    let taken = refused(command.arg("server").arg("--config").arg(cluster.config_file(0)), 71);
    assert!(taken.contains(&cluster.endpoint(0)) && taken.contains("for clients"), "{taken}");
}

#[test]
fn a_server_needs_the_certificate_of_its_datacenter() {
    let mut cluster = servers(2).listening();
    cluster.kill(0);
    for (folder, owner) in [("client", "client"), ("tls/dc1", "dc/1")] {
        let folder = cluster.dir().join(folder);
        let wrong = refused(&mut server(&cluster, &[("--tls-dc", &folder)]), 78);
        assert!(wrong.contains(owner) && wrong.contains("dc/0"), "{wrong}");
        let check = refused(server(&cluster, &[("--tls-dc", &folder)]).arg("--check-config"), 78);
        assert!(check.contains(owner), "{check}");
    }
}

#[test]
fn a_private_key_that_every_user_may_read_is_named_with_its_mode() {
    let mut cluster = servers(1).prepared();
    let key = cluster.dir().join("tls/dc0/key.pem");
    let check = |cluster: &Cluster| run(cluster.server_command(0).arg("--check-config"));
    assert_eq!(check(&cluster).stderr, "");
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("it is ours");
    let said = check(&cluster);
    assert!(said.code == 0 && said.stderr.contains("key.pem (mode 0644): chmod 0600"), "{said:?}");
    cluster.start_all();
    cluster.server(0).says("every user of this machine may read the private key");
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).expect("it is ours");
    assert_eq!(check(&cluster).stderr, "", "a group may read it");
}

#[test]
fn strangers_are_no_clients() {
    let cluster = servers(1).listening();
    let other = tempfile::tempdir().expect("a temporary folder");
    pki::playground(other.path(), "test", DcId::new(0)).expect("certificates can be made");
    // Of an authority with the same name.
    let stranger = other.path().join("client");
    std::fs::copy(cluster.tls().join("ca.pem"), stranger.join("ca.pem")).expect("there are certificates");
    let datacenter = cluster.dir().join("tls/dc0");
    for (folder, why) in [(stranger, "not of the authority"), (datacenter, "not that of a client")] {
        let knock = |args: &[&str]| run(cluster.command(0, args).env("GEOLOCK_TLS", &folder));
        let [session, look] = BOTH_WAYS.map(knock);
        let code = |said: &Said| if said.stderr.contains(why) { 77 } else { 69 };
        assert_eq!([session.code, look.code], [code(&session), 77], "{session:?} {look:?}");
        let [session, look] = [session.stderr, look.stderr];
        // If a session gets the reason depends on which arrives first, the alert or the end of the
        // connection.
        for said in [&session, &look] {
            assert!(said.contains(&cluster.endpoint(0)), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        assert!(look.contains(why), "{look}");
    }
    let mut command = cluster.command(0, ["lock", "x", "--", "true"]);
    assert!(command.status().expect("the binary is there").success(), "others go on");
}

/// A session, which uses the native protocol, and a status call, which uses gRPC.
const BOTH_WAYS: [&[&str]; 2] = [&["lock", "--try", "x", "--", "true"], &["status"]];

/// Returns the messages of both for that endpoint.
fn knocks(cluster: &Cluster, endpoint: &str, tls: &Path) -> [String; 2] {
    BOTH_WAYS.map(|args| {
        let mut command = cluster.command(0, args);
        refused(command.env("GEOLOCK_CONNECT", endpoint).env("GEOLOCK_TLS", tls), 69)
    })
}

#[test]
fn who_knocks_at_the_wrong_door_is_told_which_is_the_right_one() {
    let (cluster, other) = (servers(1).listening(), servers(1).listening());
    let bare = cluster.dir().join("bare");
    std::fs::create_dir(&bare).expect("it is made");
    std::fs::copy(cluster.tls().join("ca.pem"), bare.join("ca.pem")).expect("there are certificates");
    for tls in [&cluster.tls(), &bare] {
        for said in knocks(&cluster, &other.endpoint(0), tls) {
            assert!(said.contains("not of the authority in this client's ca.pem"), "{said}");
        }
        for said in knocks(&cluster, &cluster.http_endpoint(0), tls) {
            assert!(said.contains("that is not the port for clients"), "{said}");
            assert!(!said.contains("shows no certificate"), "{said}");
        }
    }
}

#[test]
fn a_port_that_only_hangs_up_does_not_demand_a_certificate() {
    let cluster = servers(1).prepared();
    let bare = cluster.dir().join("bare");
    std::fs::create_dir(&bare).expect("it is made");
    std::fs::copy(cluster.tls().join("ca.pem"), bare.join("ca.pem")).expect("there are certificates");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let endpoint = listener.local_addr().expect("it is bound").to_string();
    // Ends with the process of the test.
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for said in knocks(&cluster, &endpoint, &bare) {
        assert!(said.contains("before TLS was settled") && !said.contains("shows no certificate"), "{said}");
    }
}

#[test]
fn a_port_that_never_answers_is_told_with_the_time_waited() {
    let cluster = servers(1).prepared();
    // Connections are accepted by the system, and nothing reads them.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let endpoint = listener.local_addr().expect("it is bound").to_string();
    for said in knocks(&cluster, &endpoint, &cluster.tls()) {
        assert!(said.contains("cannot be reached: no answer within 5.0 s"), "{said}");
    }
}
