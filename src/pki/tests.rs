//! Every refusal, from the disk and in real handshakes (in memory: no sockets).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use tempfile::TempDir;

use super::*;
use geolock_api::names::DcId;

mod revoked;

fn dc(id: u8) -> DcId {
    DcId::new(id).unwrap()
}

/// A folder with an authority of cluster `test`.
struct Fixture {
    dir: TempDir,
    authority: Authority,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = TempDir::new().unwrap();
        let authority = new_authority(&dir.path().join("ca"), "test");
        Fixture { dir, authority }
    }

    fn issue(&self, name: &str, role: Role, validity: Validity) -> PathBuf {
        issue(&self.authority, &self.dir.path().join(name), role, validity)
    }

    fn credentials(&self, role: Role) -> Credentials {
        Credentials::load(&self.issue(&role.to_string(), role, fresh())).unwrap()
    }
}

fn new_authority(dir: &Path, cluster: &str) -> Authority {
    Authority::create(dir, cluster, fresh(), Existing::Refuse).unwrap()
}

fn issue(authority: &Authority, dir: &Path, role: Role, validity: Validity) -> PathBuf {
    let leaf = Leaf { role, hosts: vec!["localhost".into(), "127.0.0.1".into()], validity };
    authority.issue(dir, &leaf, Existing::Refuse).unwrap();
    dir.into()
}

fn fresh() -> Validity {
    Validity::days(1)
}

/// Returns a validity that ended `ago` before now, and began a day before that.
fn ended(ago: Duration) -> Validity {
    let until = SystemTime::now() - ago;
    Validity { from: until - Duration::from_secs(86_400), until }
}

fn client(name: &str) -> Role {
    Role::Client(name.into())
}

/// Returns the settings of a datacenter that requires certificates.
fn demanding(server: &Credentials) -> ServerConfig {
    server.accept_clients(ClientCertificates::Demanded).unwrap()
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

/// Makes a handshake. Returns the client's error, or the server's.
fn shake(dialling: ClientConfig, accepting: ServerConfig, host: &str) -> Result<(), String> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(dialling), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(accepting)).unwrap();
    for _ in 0..8 {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).unwrap();
        }
        while !flight.is_empty() {
            let read = server.read_tls(&mut flight.as_slice()).unwrap();
            flight.drain(..read);
            server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        }
        while server.wants_write() {
            server.write_tls(&mut flight).unwrap();
        }
        while !flight.is_empty() {
            let read = client.read_tls(&mut flight.as_slice()).unwrap();
            flight.drain(..read);
            client.process_new_packets().map_err(|error| format!("client: {error}"))?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

fn refusal(dialling: ClientConfig, accepting: ServerConfig, host: &str) -> String {
    shake(dialling, accepting, host).expect_err("this must be refused")
}

#[test]
fn identities_have_one_spelling() {
    for text in ["geolock://test/dc/0", "geolock://test/dc/63", "geolock://a.b-c_D9/client/ci.runner"] {
        assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
    }
    let refused = [
        "",
        "geolock://",
        "geolock://test",
        "geolock://test/dc",
        "geolock://test/dc/",
        "geolock://test/dc/64",
        "geolock://test/dc/01",
        "geolock://test/dc/+1",
        "geolock://test/dc/1/",
        "geolock:///dc/1",
        "geolock://test/client/",
        "geolock://test/client/a/b",
        "geolock://te st/dc/1",
        "http://test/dc/1",
        "geolock://test/ca",
        "geolock://test/root/1",
    ];
    for text in refused {
        assert!(text.parse::<Identity>().is_err(), "{text:?} must be refused");
    }
}

#[test]
fn keys_are_readable_by_their_owner_only() {
    let fixture = Fixture::new();
    let out = fixture.issue("out", Role::Dc(dc(1)), fresh());
    assert_eq!(mode(&fixture.dir.path().join("ca").join(CA_KEY_FILE)), 0o600);
    assert_eq!(mode(&out.join(KEY_FILE)), 0o600);
    let left: Vec<_> =
        fs::read_dir(fixture.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no staging folder stays: {left:?}");
}

#[test]
fn nothing_is_overwritten_unless_told() {
    let fixture = Fixture::new();
    let out = fixture.issue("out", client("ci"), fresh());
    let before = fs::read_to_string(out.join(CERT_FILE)).unwrap();
    let leaf = Leaf { role: client("ci"), hosts: vec![], validity: fresh() };
    let error = fixture.authority.issue(&out, &leaf, Existing::Refuse).unwrap_err();
    assert!(matches!(error, PkiError::Exists { .. }), "{error}");
    assert_eq!(fs::read_to_string(out.join(CERT_FILE)).unwrap(), before);
    let ca = fixture.dir.path().join("ca");
    assert!(matches!(
        Authority::create(&ca, "test", fresh(), Existing::Refuse),
        Err(PkiError::Exists { .. })
    ));

    fs::write(out.join("notes.txt"), "mine").unwrap();
    fixture.authority.issue(&out, &leaf, Existing::Replace).unwrap();
    assert_ne!(fs::read_to_string(out.join(CERT_FILE)).unwrap(), before);
    assert_eq!(fs::read_to_string(out.join("notes.txt")).unwrap(), "mine");
    Credentials::load(&out).unwrap();
}

#[test]
fn a_reloaded_authority_signs_for_its_cluster() {
    let fixture = Fixture::new();
    let authority = Authority::load(&fixture.dir.path().join("ca")).unwrap();
    assert_eq!(authority.cluster(), "test");
    let out = issue(&authority, &fixture.dir.path().join("out"), Role::Dc(dc(7)), fresh());
    let credentials = Credentials::load(&out).unwrap();
    assert_eq!(credentials.identity().to_string(), "geolock://test/dc/7");
    let left = credentials.expires().duration_since(SystemTime::now()).unwrap();
    assert!(left <= Duration::from_secs(86_400) && left > Duration::from_secs(86_000));
}

#[test]
fn nothing_outlives_the_authority_that_signed_it() {
    let fixture = Fixture::new();
    let leaf = Leaf { role: client("ci"), hosts: vec![], validity: Validity::days(9) };
    let out = fixture.dir.path().join("out");
    let issued = fixture.authority.issue(&out, &leaf, Existing::Refuse).unwrap();
    assert_eq!(issued.until, fixture.authority.expires());
    assert_eq!(day(Credentials::load(&out).unwrap().expires()), day(issued.until));
    assert_eq!(day(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_219_200)), "2026-11-21");
}

#[test]
fn each_thing_wrong_with_a_folder_has_its_own_error() {
    let fixture = Fixture::new();
    let load = |dir: &Path| Credentials::load(dir).unwrap_err();
    for file in [CA_FILE, CERT_FILE, KEY_FILE] {
        let out = fixture.issue(&format!("no-{file}"), client("ci"), fresh());
        fs::remove_file(out.join(file)).unwrap();
        assert!(matches!(load(&out), PkiError::Missing { file: found } if found.ends_with(file)));

        let out = fixture.issue(&format!("text-{file}"), client("ci"), fresh());
        fs::write(out.join(file), "hello").unwrap();
        assert!(matches!(load(&out), PkiError::NotPem { file: found, .. } if found.ends_with(file)));
    }
    let (one, other) =
        (fixture.issue("one", client("ci"), fresh()), fixture.issue("other", client("ci"), fresh()));
    fs::copy(other.join(KEY_FILE), one.join(KEY_FILE)).unwrap();
    assert!(matches!(load(&one), PkiError::KeyMismatch { .. }));

    let stranger = new_authority(&fixture.dir.path().join("ca2"), "test");
    fs::write(other.join(CA_FILE), stranger.certificate_pem()).unwrap();
    assert!(matches!(load(&other), PkiError::NotSigned { .. }));

    let out = fixture.issue("expired", client("ci"), ended(Duration::from_secs(60)));
    let error = load(&out);
    assert!(matches!(&error, PkiError::Expired { since, .. } if since.contains(':')), "{error}");
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    let early = Validity { from: tomorrow, until: tomorrow + Duration::from_secs(60) };
    assert!(matches!(load(&fixture.issue("early", client("ci"), early)), PkiError::NotYetValid { .. }));
}

#[test]
fn what_cannot_be_issued_is_refused() {
    let fixture = Fixture::new();
    let issue = |role, hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| host.to_string()).collect();
        let leaf = Leaf { role, hosts, validity: fresh() };
        fixture.authority.issue(&fixture.dir.path().join("out"), &leaf, Existing::Refuse).unwrap_err()
    };
    assert!(matches!(issue(Role::Dc(dc(1)), &[]), PkiError::NoHosts));
    assert!(matches!(issue(Role::Dc(dc(1)), &["not a host"]), PkiError::BadHost { .. }));
    assert!(matches!(issue(client("a/b"), &[]), PkiError::Label(_)));
    let bad_cluster = Authority::create(fixture.dir.path(), "a b", fresh(), Existing::Refuse);
    assert!(matches!(bad_cluster, Err(PkiError::Label(_))));
    assert!(!fixture.dir.path().join("out").exists());
}

#[test]
fn datacenters_of_one_cluster_accept_each_other_whatever_the_host_name() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.credentials(Role::Dc(dc(1))), fixture.credentials(Role::Dc(dc(2))));
    shake(one.dial_dc(dc(2)).unwrap(), two.accept_dcs().unwrap(), "elsewhere.example").unwrap();
}

#[test]
fn a_datacenter_dialled_as_another_is_refused() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.credentials(Role::Dc(dc(1))), fixture.credentials(Role::Dc(dc(2))));
    let error = refusal(one.dial_dc(dc(3)).unwrap(), two.accept_dcs().unwrap(), "geolock");
    assert!(error.starts_with("client:") && error.contains("must be datacenter dc3"), "{error}");
    // A datacenter refuses a connection to itself, as from a peer address that leads back here.
    let error = refusal(one.dial_dc(dc(1)).unwrap(), one.accept_dcs().unwrap(), "geolock");
    assert!(error.contains("other than dc1"), "{error}");
}

#[test]
fn roles_do_not_pass_for_each_other() {
    let fixture = Fixture::new();
    let (dc_, user) = (fixture.credentials(Role::Dc(dc(1))), fixture.credentials(client("ci")));
    assert!(matches!(user.dial_dc(dc(1)), Err(PkiError::WrongIdentity { .. })));
    assert!(matches!(user.accept_clients(ClientCertificates::Demanded), Err(PkiError::WrongIdentity { .. })));

    let mut as_dc = user.dial_api().unwrap();
    as_dc.alpn_protocols = dc_.accept_dcs().unwrap().alpn_protocols;
    let error = refusal(as_dc, dc_.accept_dcs().unwrap(), "localhost");
    assert!(error.starts_with("server:") && error.contains("geolock://test/client/ci"), "{error}");

    let mut as_client = fixture.credentials(Role::Dc(dc(2))).dial_dc(dc(1)).unwrap();
    as_client.alpn_protocols = demanding(&dc_).alpn_protocols;
    // A client that needs no certificate must not present an invalid one.
    for accepting in [demanding(&dc_), dc_.accept_clients(ClientCertificates::Optional).unwrap()] {
        let error = refusal(as_client.clone(), accepting, "localhost");
        assert!(
            error.starts_with("server:") && error.contains("must be a client of cluster test"),
            "{error}"
        );
    }
}

#[test]
fn clients_check_the_host_name_they_dialled() {
    let fixture = Fixture::new();
    let (server, user) = (fixture.credentials(Role::Dc(dc(1))), fixture.credentials(client("ci")));
    for host in ["localhost", "127.0.0.1"] {
        shake(user.dial_api().unwrap(), demanding(&server), host).unwrap();
    }
    let error = refusal(user.dial_api().unwrap(), demanding(&server), "elsewhere.example");
    assert!(error.starts_with("client:") && error.contains("not valid for name"), "{error}");
}

#[test]
fn another_cluster_is_refused_even_under_the_same_authority() {
    let fixture = Fixture::new();
    let one = fixture.credentials(Role::Dc(dc(1)));
    let staging = new_authority(&fixture.dir.path().join("ca2"), "staging");
    let two = issue(&staging, &fixture.dir.path().join("staging2"), Role::Dc(dc(2)), fresh());
    let two = Credentials::load(&two).unwrap();
    let error = refusal(one.dial_dc(dc(2)).unwrap(), two.accept_dcs().unwrap(), "geolock");
    assert!(error.contains("UnknownIssuer") || error.contains("unknown issuer"), "{error}");

    // The name alone must suffice, too: an operator may run two clusters under one authority.
    let mut trusting = one.clone();
    trusting.roots = two.roots.clone();
    let error = refusal(trusting.dial_dc(dc(2)).unwrap(), two.accept_dcs().unwrap(), "geolock");
    assert!(error.contains("must be datacenter dc2 of cluster test"), "{error}");
}

#[test]
fn an_expired_certificate_is_refused_by_both_sides() {
    let fixture = Fixture::new();
    let good = fixture.credentials(Role::Dc(dc(1)));
    let mut expired = fixture.credentials(Role::Dc(dc(2)));
    let folder = fixture.issue("expired", Role::Dc(dc(2)), ended(Duration::from_secs(60)));
    expired.replace_pair_unchecked(&folder);
    let error = refusal(good.dial_dc(dc(2)).unwrap(), expired.accept_dcs().unwrap(), "geolock");
    assert!(error.starts_with("client:") && error.contains("expired"), "{error}");
    let error = refusal(expired.dial_dc(dc(1)).unwrap(), good.accept_dcs().unwrap(), "geolock");
    assert!(error.starts_with("server:") && error.contains("expired"), "{error}");
}

/// As in docs/operations.md: no step interrupts a datacenter.
#[test]
fn an_authority_is_replaced_while_everybody_goes_on() {
    let fixture = Fixture::new();
    let path = |name: &str| fixture.dir.path().join(name);
    let renew = |authority: &Authority, name: &str, id: u8| {
        let leaf = Leaf { role: Role::Dc(dc(id)), hosts: vec!["localhost".into()], validity: fresh() };
        authority.issue(&path(name), &leaf, Existing::Replace).unwrap();
    };
    let loaded = || ["a", "b"].map(|name| Credentials::load(&path(name)).unwrap());
    let talk = |[a, b]: &[Credentials; 2]| {
        shake(a.dial_dc(dc(2)).unwrap(), b.accept_dcs().unwrap(), "geolock")?;
        shake(b.dial_dc(dc(1)).unwrap(), a.accept_dcs().unwrap(), "geolock")
    };
    renew(&fixture.authority, "a", 1);
    renew(&fixture.authority, "b", 2);
    let old = fs::read_to_string(path("ca").join(CA_FILE)).unwrap();
    let new = new_authority(&path("new"), "test").certificate_pem().to_owned();

    // If the new authority's folder lacks the old certificate, a datacenter with a certificate of the new
    // authority cannot connect to datacenters that do not have theirs yet.
    renew(&Authority::load(&path("new")).unwrap(), "a", 1);
    assert!(talk(&loaded()).is_err());
    renew(&fixture.authority, "a", 1);

    for folder in ["a", "b"] {
        fs::write(path(folder).join(CA_FILE), format!("{old}{new}")).unwrap();
        assert_eq!(talk(&loaded()), Ok(()));
    }
    fs::write(path("new").join(CA_FILE), format!("{new}{old}")).unwrap();
    let authority = Authority::load(&path("new")).unwrap();
    for (folder, id) in [("a", 1), ("b", 2)] {
        renew(&authority, folder, id);
        assert_eq!(talk(&loaded()), Ok(()));
    }
    for folder in ["new", "a", "b"] {
        fs::write(path(folder).join(CA_FILE), &new).unwrap();
        assert_eq!(talk(&loaded()), Ok(()));
    }
    let before = fixture.credentials(Role::Dc(dc(2)));
    let [a, _] = loaded();
    assert!(talk(&[a, before]).is_err(), "the old authority is worth nothing any more");
}

#[test]
fn nobody_gets_in_without_a_certificate() {
    let fixture = Fixture::new();
    let server = fixture.credentials(Role::Dc(dc(1)));
    let anonymous = |protocol: &[u8]| {
        let mut config = ClientConfig::builder_with_provider(super::credentials::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(server.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    };
    for accepting in [server.accept_dcs().unwrap(), demanding(&server)] {
        let error = refusal(anonymous(&accepting.alpn_protocols[0]), accepting, "localhost");
        assert!(error.starts_with("server:") && error.contains("no certificates"), "{error}");
    }
}

#[test]
fn a_certificate_without_an_identity_is_refused() {
    let fixture = Fixture::new();
    let out = fixture.issue("out", client("ci"), fresh());
    let key = rcgen::KeyPair::generate().unwrap();
    let ca_key = fs::read_to_string(fixture.dir.path().join("ca").join(CA_KEY_FILE)).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(
        fixture.authority.certificate_pem(),
        rcgen::KeyPair::from_pem(&ca_key).unwrap(),
    )
    .unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    fs::write(out.join(CERT_FILE), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(out.join(KEY_FILE), key.serialize_pem()).unwrap();
    let error = Credentials::load(&out).unwrap_err();
    assert!(matches!(error, PkiError::Identity { source: IdentityError::Nameless, .. }), "{error}");
}

#[test]
fn a_playground_keeps_what_is_good_and_mends_the_rest() {
    let dir = TempDir::new().unwrap();
    let certificate = |folder: &Path| fs::read_to_string(folder.join(CERT_FILE)).unwrap();
    let first = playground(dir.path(), "test", (0..2).map(dc)).unwrap();
    let (dc0, user) = (certificate(&first.dcs[0]), certificate(&first.client));
    fs::remove_file(first.dcs[1].join(KEY_FILE)).unwrap();

    let second = playground(dir.path(), "test", (0..3).map(dc)).unwrap();
    assert_eq!((certificate(&second.dcs[0]), certificate(&second.client)), (dc0.clone(), user));
    assert_eq!(second.dcs.len(), 3);
    for (id, folder) in second.dcs.iter().enumerate() {
        let role = Role::Dc(dc(id as u8));
        Credentials::load(folder).unwrap().require(folder, "test", &role).unwrap();
    }

    fs::remove_dir_all(dir.path().join("ca")).unwrap();
    let third = playground(dir.path(), "test", [dc(0)]).unwrap();
    assert_ne!(certificate(&third.dcs[0]), dc0, "the old authority's certificates are worthless");
    assert!(matches!(playground(dir.path(), "other", [dc(0)]), Err(PkiError::WrongIdentity { .. })));
}

#[test]
fn a_revoked_certificate_is_refused_by_both_sides_and_others_are_not() {
    let fixture = Fixture::new();
    let path = |folder: &str| fixture.dir.path().join(folder);
    let (a, b) = (fixture.issue("a", Role::Dc(dc(0)), fresh()), fixture.issue("b", Role::Dc(dc(1)), fresh()));
    let (bad, good) =
        (fixture.issue("bad", client("bad"), fresh()), fixture.issue("good", client("good"), fresh()));
    let load = |dir: &Path| Credentials::load(dir).unwrap();
    let before = load(&a);

    let revoke = |cert: &Path| fixture.authority.revoke(&path("ca"), &[cert.join(CERT_FILE)]).unwrap();
    assert_eq!([revoke(&bad), revoke(&bad), revoke(&b)], [1, 1, 2]);
    fs::copy(path("ca").join(CRL_FILE), a.join(CRL_FILE)).unwrap();
    let server = load(&a);
    assert!(!server.is_same_as(&before), "a reload takes it up");

    let enters = |client: &Credentials, server: &Credentials| {
        shake(
            client.dial_api().unwrap(),
            server.accept_clients(ClientCertificates::Optional).unwrap(),
            "localhost",
        )
    };
    assert!(enters(&load(&bad), &before).is_ok());
    assert!(enters(&load(&good), &server).is_ok());
    let refused = enters(&load(&bad), &server).unwrap_err();
    assert!(refused.contains("Revoked"), "{refused}");
    let other = load(&b);
    assert!(shake(other.dial_dc(dc(0)).unwrap(), server.accept_dcs().unwrap(), "geolock").is_err());
    assert!(shake(server.dial_dc(dc(1)).unwrap(), other.accept_dcs().unwrap(), "geolock").is_err());

    fs::copy(path("ca").join(CRL_FILE), b.join(CRL_FILE)).unwrap();
    assert!(matches!(Credentials::load(&b), Err(PkiError::Revoked { .. })));
    fs::write(a.join(CRL_FILE), "none").unwrap();
    assert!(matches!(Credentials::load(&a), Err(PkiError::NotPem { .. })));
}
