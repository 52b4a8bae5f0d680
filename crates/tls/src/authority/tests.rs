//! Authorities, what they issue, and how it is described.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::description::CertificateDescription;

#[test]
fn an_authority_is_made_once_and_its_key_is_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let tls = folder.path().join("tls");
    let made = Authority::of_folder(&tls, "test authority").unwrap();
    let again = Authority::of_folder(&tls, "another name").unwrap();
    assert_eq!(made.fingerprint(), again.fingerprint());
    let mode = std::fs::metadata(tls.join(KEY_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_start_that_was_cut_off_behind_the_key_makes_another() {
    let folder = tempfile::tempdir().unwrap();
    Authority::of_folder(folder.path(), "first").unwrap();
    std::fs::remove_file(folder.path().join(CERTIFICATE_FILE)).unwrap();
    let again = Authority::of_folder(folder.path(), "second").unwrap();
    assert!(again.issue_server(&["localhost".into()], 1).is_ok());
}

#[test]
fn what_is_issued_is_for_its_names_and_of_its_authority() {
    let (authority, _) = Authority::create("test authority", 10).unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".into(), "*.example.com".into(), "::1".into()];
    let issued = authority.issue_server(&names, 5).unwrap();
    let described = CertificateDescription::of(&issued.chain[0]).unwrap();
    assert_eq!(described.names, ["localhost", "127.0.0.1", "*.example.com", "::1"]);
    assert_eq!(
        (described.subject.as_str(), described.issuer.as_str()),
        ("CN=localhost", "CN=test authority")
    );
    assert!(!described.is_authority);
    assert_eq!(described.valid_until - described.valid_from, 6 * 86_400);
    let authority = CertificateDescription::of(&issued.chain[1]).unwrap();
    assert!(authority.is_authority);
    assert_eq!(certificates(issued.chain_pem.as_bytes(), "chain").unwrap(), issued.chain);
}

#[test]
fn a_name_that_no_host_has_is_refused() {
    let (authority, _) = Authority::create("test authority", 10).unwrap();
    for names in [&["no spaces".to_owned()][..], &["".to_owned()], &[]] {
        assert!(authority.issue_server(names, 5).is_err(), "{names:?}");
    }
}

#[test]
fn a_certificate_that_may_not_sign_is_no_authority_nor_is_one_with_anothers_key() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, key) = Authority::create("test authority", 10).unwrap();
    let (_, other_key) = Authority::create("another", 10).unwrap();
    let issued = authority.issue_server(&["localhost".into()], 5).unwrap();
    let read = |certificate: &str, key: &str| {
        let files = CertificateFiles {
            certificate: folder.path().join("certificate"),
            key: folder.path().join("key"),
        };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        Authority::read(&files).map(drop).map_err(|fault| fault.to_string())
    };
    assert_eq!(read(&authority.certificate_pem(), &key), Ok(()));
    assert!(read(&issued.chain_pem, &issued.key_pem).unwrap_err().contains("may not sign"));
    assert!(read(&authority.certificate_pem(), &other_key).unwrap_err().contains("not the key"));
    assert!(read(&authority.certificate_pem(), "secret").unwrap_err().contains("no private key"));
}
