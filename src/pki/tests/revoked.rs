//! Lists of revoked certificates while one authority replaces another.

use super::*;

fn list_of(authority: &Authority, dir: &Path, certificates: &[&Path]) -> String {
    let certificates: Vec<_> = certificates.iter().map(|folder| folder.join(CERT_FILE)).collect();
    authority.revoke(dir, &certificates).unwrap();
    fs::read_to_string(dir.join(CRL_FILE)).unwrap()
}

/// As in docs/operations.md, with a list: both authorities have the same name, and their own lists.
#[test]
fn a_list_of_one_authority_says_nothing_about_certificates_of_another() {
    let fixture = Fixture::new();
    let path = |name: &str| fixture.dir.path().join(name);
    let new = new_authority(&path("new"), "test");
    let both = format!("{}{}", new.certificate_pem(), fixture.authority.certificate_pem());
    let issue = |authority: &Authority, name: &str, role| {
        let folder = issue(authority, &path(name), role, fresh());
        fs::write(folder.join(CA_FILE), &both).unwrap();
        folder
    };
    let clients = [
        issue(&fixture.authority, "old-good", client("a")),
        issue(&fixture.authority, "old-bad", client("b")),
        issue(&new, "new-good", client("c")),
        issue(&new, "new-bad", client("d")),
    ];
    let old_list = list_of(&fixture.authority, &path("ca"), &[&clients[1]]);
    let new_list = list_of(&new, &path("new"), &[&clients[3]]);
    let earlier = old_list.clone();
    let longer = list_of(&fixture.authority, &path("ca"), &[&clients[0]]);
    let servers = [
        issue(&fixture.authority, "old-server", Role::Dc(dc(0))),
        issue(&new, "new-server", Role::Dc(dc(1))),
    ];
    for (lists, admitted) in [
        (old_list.clone(), [true, false, true, true]),
        (new_list.clone(), [true, true, true, false]),
        (format!("{old_list}{new_list}"), [true, false, true, false]),
        (format!("{new_list}{old_list}"), [true, false, true, false]),
        // Two lists of one authority: both count.
        (format!("{earlier}{longer}"), [false, false, true, true]),
    ] {
        for server in &servers {
            fs::write(server.join(CRL_FILE), &lists).unwrap();
            let server = Credentials::load(server).unwrap();
            let enters = clients.each_ref().map(|folder| {
                let client = Credentials::load(folder).unwrap();
                shake(client.dial_api().unwrap(), demanding(&server), "localhost").is_ok()
            });
            assert_eq!(enters, admitted);
        }
        let [old, new] = servers.each_ref().map(|folder| Credentials::load(folder).unwrap());
        assert_eq!(shake(old.dial_dc(dc(1)).unwrap(), new.accept_dcs().unwrap(), "geolock"), Ok(()));
        assert_eq!(shake(new.dial_dc(dc(0)).unwrap(), old.accept_dcs().unwrap(), "geolock"), Ok(()));
    }
}

#[test]
fn an_authority_revokes_only_what_it_signed() {
    let fixture = Fixture::new();
    let new = new_authority(&fixture.dir.path().join("new"), "test");
    let of_old = fixture.issue("old", client("a"), fresh()).join(CERT_FILE);
    let refused = new.revoke(&fixture.dir.path().join("new"), std::slice::from_ref(&of_old)).unwrap_err();
    assert!(
        matches!(&refused, PkiError::NotSigned { certificate, .. } if *certificate == of_old),
        "{refused}"
    );
    assert!(!fixture.dir.path().join("new").join(CRL_FILE).exists());
    // An expired certificate may be revoked.
    let expired = fixture.issue("expired", client("b"), ended(Duration::from_secs(60))).join(CERT_FILE);
    assert_eq!(fixture.authority.revoke(&fixture.dir.path().join("ca"), &[of_old, expired]).unwrap(), 2);
}
