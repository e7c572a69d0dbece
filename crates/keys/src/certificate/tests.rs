//! Files as openssl and Let's Encrypt write them, and what people mistake for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, DnType, DnValue, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::ParsedCertificate;

use super::*;

/// A file, readable by its owner only.
fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

/// A certificate and its key.
fn made(params: CertificateParams, by: &Issuer<'static, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

fn of_host(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.into()]).unwrap()
}

#[test]
fn each_mistake_is_one_line_with_file_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, root) = authority("a root");
    let (own, key) = made(of_host("proxy.example"), &issuer);
    let (other, other_key) = made(of_host("other.example"), &issuer);
    let open = put(folder.path(), "open.pem", &key);
    fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let traditional = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    for (chain, key, said) in [
        (&*format!("{own}{root}"), &*key, "ok"),
        (&own, &key, "ok"),
        (&format!("{own}{key}"), &format!("{own}{key}"), "ok"),
        (
            &key,
            &key,
            "certificate file chain.pem: holds no certificate in PEM but a private key: the file with the certificate is wanted here",
        ),
        (&own, &own, "key file key.pem: holds a certificate and no private key: that is the file for certificate_file"),
        (request, &key, "certificate file chain.pem: holds a request for a certificate"),
        ("", &key, "certificate file chain.pem: holds no certificate in PEM"),
        (&own, "", "key file key.pem: holds no private key (PKCS #8, SEC1 or PKCS #1, in PEM)"),
        (
            &own,
            encrypted,
            "key file key.pem: holds an encrypted private key: `openssl pkey -in IT -out ANOTHER` writes ANOTHER without encryption",
        ),
        (
            &own,
            traditional,
            "key file key.pem: holds an encrypted private key: `openssl pkey -in IT -out ANOTHER` writes ANOTHER without encryption",
        ),
        (&own, &other_key, "certificate file chain.pem: is not the certificate of the key in"),
        (
            &format!("{root}{own}"),
            &key,
            "certificate file chain.pem: its certificates are in the wrong order: the one of the key in",
        ),
        (&format!("{own}{other}{root}"), &key, "number 1 was not signed by number 2. First comes the server's own"),
        (&own.replace("-----END CERTIFICATE-----", ""), &key, "certificate file chain.pem: is cut off"),
    ] {
        let (chain, key) = (put(folder.path(), "chain.pem", chain), put(folder.path(), "key.pem", key));
        let told = match Certificate::load(&chain, &key) {
            Ok(_) => "ok".into(),
            Err(error) => error.to_string().replace(&format!("{}/", folder.path().display()), ""),
        };
        assert!(told.contains(said) && !told.contains('\n'), "{said}: {told}");
    }
    let chain = put(folder.path(), "chain.pem", &own);
    let told = Certificate::load(&chain, &open).unwrap_err().to_string();
    assert!(told.contains("open.pem") && told.contains("chmod"), "{told}");
    let authorities = Authorities::load(&put(folder.path(), "ca.pem", &key)).unwrap_err().to_string();
    assert!(authorities.contains("holds no certificate in PEM but a private key"), "{authorities}");
    let authorities =
        |text: &str| Authorities::load(&put(folder.path(), "ca.pem", text)).map_err(|why| why.to_string());
    authorities(&root).unwrap();
    for (text, number) in [(&own, 1), (&format!("{root}{own}"), 2)] {
        let told = authorities(text).unwrap_err();
        assert!(told.contains(&format!("certificate {number} in it is none of an authority")), "{told}");
    }
}

/// openssl makes such keys, and roots of the first version, which have no basicConstraints.
#[test]
fn what_openssl_encrypts_is_named_and_its_old_roots_are_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let [key, locked, request, root] = ["a.key", "b.key", "a.csr", "a.pem"].map(|name| folder.path().join(name));
    let script = "openssl ecparam -genkey -name prime256v1 -noout -out $KEY && \
        openssl ec -in $KEY -aes256 -passout pass:secret -out $LOCKED && \
        openssl req -new -key $KEY -subj /CN=old -out $REQUEST && \
        openssl x509 -req -in $REQUEST -signkey $KEY -days 2 -out $ROOT && chmod 600 $KEY $LOCKED";
    let mut make = std::process::Command::new("sh");
    make.args(["-c", script]).env("KEY", &key).env("LOCKED", &locked).env("REQUEST", &request).env("ROOT", &root);
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let told = Certificate::load(&root, &locked).unwrap_err().to_string();
    assert!(fs::read_to_string(&locked).unwrap().contains("Proc-Type: 4,ENCRYPTED"));
    assert!(told.contains("holds an encrypted private key"), "{told}");
    // openssl 3.4 and newer makes roots of the third version, without constraints.
    let shown = certificates(&fs::read_to_string(&root).unwrap()).unwrap();
    let is_of_third = shown[0].windows(5).any(|bytes| bytes == [0xa0, 3, 2, 1, 2]);
    assert_eq!(Authorities::load(&root).is_err(), is_of_third);
}

/// As openssl 3.0 signs a request where nothing is said of extensions.
#[test]
fn a_certificate_of_the_first_version_is_told_how_to_sign_it() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, root) = authority("a root");
    let root_key = put(folder.path(), "root.key", &issuer.key().serialize_pem());
    let (root, chain) = (put(folder.path(), "root.pem", &root), folder.path().join("chain.pem"));
    let key = folder.path().join("own.key");
    let script = "\
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=own -keyout $KEY -out own.csr && \
        openssl x509 -req -in own.csr -CA $ROOT -CAkey $ROOT_KEY -days 2 -out $CHAIN";
    let mut make = std::process::Command::new("sh");
    make.args(["-c", script]).current_dir(&folder).env("KEY", &key).env("CHAIN", &chain);
    let made = make.env("ROOT", &root).env("ROOT_KEY", &root_key).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let shown = certificates(&fs::read_to_string(&chain).unwrap()).unwrap();
    // openssl 3.4 and newer makes one of the third version.
    let is_of_third = shown[0].windows(5).any(|bytes| bytes == [0xa0, 3, 2, 1, 2]);
    let told = Certificate::load(&chain, &key).map_err(|why| why.to_string());
    assert!(is_of_third || told.unwrap_err().contains("it is of X.509 version 1: sign it with extensions"));
}

/// What `openssl` writes for `genrsa -traditional`, `ecparam -genkey` and `genpkey`.
#[test]
fn keys_of_openssl_are_read_in_each_of_its_forms() {
    let folder = tempfile::tempdir().unwrap();
    let (key, chain) = (folder.path().join("key.pem"), folder.path().join("chain.pem"));
    for make in [
        "openssl genrsa -traditional -out $KEY 2048",
        "openssl genrsa -out $KEY 2048",
        "openssl ecparam -genkey -name prime256v1 -out $KEY",
        "openssl ecparam -genkey -noout -name secp384r1 -out $KEY",
        "openssl genpkey -algorithm ed25519 -out $KEY",
    ] {
        let sign = "openssl req -x509 -key $KEY -subj /DC=example/CN=Users/CN=proxy.example -days 2 -out $CHAIN";
        let script = format!("{make} && {sign} && chmod 600 $KEY");
        let made =
            std::process::Command::new("sh").args(["-c", &script]).env("KEY", &key).env("CHAIN", &chain).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let certificate = Certificate::load(&chain, &key).unwrap_or_else(|error| panic!("{make}: {error}"));
        assert_eq!(subject_name(certificate.der()).as_deref(), Some("proxy.example"), "the last of its names");
    }
}

#[test]
fn a_certificate_is_told_before_and_after_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, _) = authority("a root");
    let mut params = of_host("proxy.example");
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 4, 1));
    let (own, key) = made(params, &issuer);
    let (chain, key) = (put(folder.path(), "chain.pem", &own), put(folder.path(), "key.pem", &key));
    let certificate = Certificate::load(&chain, &key).unwrap();
    let mut params = of_host("clients");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 4, 1));
    let authorities = Authorities::load(&put(folder.path(), "ca-chain.pem", &made(params, &issuer).0)).unwrap();
    for (at, said) in [
        (
            date_time_ymd(2025, 12, 31),
            Some("it is not valid before 2026-01-01 at 00:00 UTC: is this host's clock right?"),
        ),
        (date_time_ymd(2026, 1, 2), None),
        (date_time_ymd(2026, 3, 24), None),
        (date_time_ymd(2026, 3, 26), Some("it expires on 2026-04-01 at 00:00 UTC")),
        (date_time_ymd(2026, 4, 2), Some("it has expired on 2026-04-01 at 00:00 UTC: renew it and send SIGHUP")),
    ] {
        for told in [certificate.untimely(at.into()), authorities.untimely(at.into())] {
            match said {
                Some(said) => {
                    assert!(told.is_some_and(|told| told.contains("chain.pem: ") && told.contains(said)), "{said}")
                }
                None => assert_eq!(told, None, "{at}"),
            }
        }
    }
}

#[test]
fn a_client_is_known_by_its_common_name_or_the_first_other() {
    let (issuer, _) = authority("a root");
    let der = |common: Option<DnValue>, others: Vec<SanType>| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        common.into_iter().for_each(|common| params.distinguished_name.push(DnType::CommonName, common));
        params.subject_alt_names = others;
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &issuer).unwrap().der().to_vec()
    };
    let name = |common: Option<&str>, others| subject_name(&der(common.map(DnValue::from), others));
    let mail = || SanType::Rfc822Name("alice@example.jp".try_into().unwrap());
    let dns = || SanType::DnsName("host.example.jp".try_into().unwrap());
    let address = || SanType::IpAddress([192, 0, 2, 1].into());
    assert_eq!(name(Some("alice"), vec![mail()]).as_deref(), Some("alice"));
    assert_eq!(name(Some("駅伝"), vec![]).as_deref(), Some("駅伝"));
    assert_eq!(name(None, vec![address(), mail(), dns()]).as_deref(), Some("alice@example.jp"));
    for odd in ["a\nb", "a\u{202e}b", "\u{200b}", &"a".repeat(256)] {
        assert_eq!(name(Some(odd), vec![dns()]).as_deref(), Some("host.example.jp"), "{odd:?}");
        assert!(has_odd_common_name(&der(Some(odd.into()), vec![])));
    }
    for other in [
        DnValue::BmpString("駅伝".try_into().unwrap()),
        DnValue::UniversalString("駅伝".try_into().unwrap()),
        DnValue::Utf8String("駅伝".into()),
    ] {
        let der = der(Some(other), vec![dns()]);
        assert!(subject_name(&der).as_deref() == Some("駅伝") && !has_odd_common_name(&der));
    }
    assert!(!has_odd_common_name(&der(None, vec![dns()])));
    assert_eq!(name(None, vec![address()]), None);
}

/// A client's certificate is read once its authority's signature is checked: that authority may have signed anything.
#[test]
fn no_changed_certificate_makes_the_reader_fail() {
    let (issuer, _) = authority("a root");
    let key = KeyPair::generate().unwrap();
    let der = of_host("proxy.example").signed_by(&key, &issuer).unwrap().der().to_vec();
    for at in 0..der.len() {
        for change in [0, 1, 0x30, 0x7f, 0x80, 0x84, 0xff] {
            let mut changed = der.clone();
            changed[at] = change;
            let _ = (Parts::of(&changed), subject_name(&changed));
            let _ = subject_name(&changed[at..]);
        }
        assert!(Parts::of(&der[..at]).is_none());
    }
}

#[test]
fn a_node_signs_a_certificate_for_itself_which_is_always_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::generate(&folder.path().join("node.key")).unwrap();
    let own = Certificate::of(&identity, "city").unwrap();
    assert!(own == Certificate::of(&identity, "city").unwrap() && own != Certificate::of(&identity, "island").unwrap());
    assert_eq!(own.untimely(SystemTime::now()), None);
    own.key().keys_match().unwrap();
    let parts = Parts::of(own.der()).unwrap();
    assert_eq!(crate::Fingerprint::of(parts.public_key), identity.fingerprint());
    assert_eq!(subject_name(own.der()).as_deref(), Some("city"));
    // Whoever trusts it accepts it by its name.
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from(own.der());
    roots.add(der.clone()).unwrap();
    let parsed = ParsedCertificate::try_from(&der).unwrap();
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let name = ServerName::try_from("city").unwrap();
    rustls::client::verify_server_name(&parsed, &name).unwrap();
    let verified = rustls::client::verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &roots,
        &[],
        UnixTime::now(),
        algorithms.all,
    );
    verified.unwrap();
}
