//! The authorities that sign etcd's certificates, as their file has them.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::Error as PemError;
use ureq::tls::{Certificate, PemItem, parse_pem};

use crate::record::brief;

/// The certificates in a text in PEM, at least one. The error is a predicate of the file.
pub fn parse(text: &str) -> Result<Vec<Certificate<'static>>, String> {
    let mut authorities = Vec::new();
    for item in parse_pem(text.as_bytes()) {
        let PemItem::Certificate(certificate) = item.map_err(damaged)? else { continue };
        let mut store = RootCertStore::empty();
        let parsed = store.add(CertificateDer::from(certificate.der()));
        parsed.map_err(|_| format!("is damaged: certificate {} in it cannot be parsed", authorities.len() + 1))?;
        authorities.push(certificate);
    }
    match authorities.is_empty() {
        true => Err("holds no certificate in PEM".into()),
        false => Ok(authorities),
    }
}

fn damaged(error: ureq::Error) -> String {
    match error {
        ureq::Error::Pem(PemError::MissingSectionEnd { .. }) => {
            "is cut off: a section of PEM has no line that ends it".into()
        }
        ureq::Error::Pem(PemError::IllegalSectionStart { .. }) => {
            "is damaged: a line that begins a section of PEM is not whole".into()
        }
        ureq::Error::Pem(PemError::Base64Decode(_)) => "is damaged: a section of PEM is not Base64".into(),
        error => format!("is no PEM ({})", brief(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(vec!["etcd".into()]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn certificates_are_read_and_what_is_none_is_told_in_words() {
        let whole = pem();
        assert_eq!(parse(&format!("# ours\n{whole}{}", pem())).unwrap().len(), 2);
        let begin = "-----BEGIN CERTIFICATE-----";
        for (text, said) in [
            (String::new(), "holds no certificate in PEM"),
            (whole.replace("-----END CERTIFICATE-----", ""), "is cut off"),
            (whole.replace(begin, "-----BEGIN CERTIFICATE"), "is damaged"),
            (whole.replace(begin, &format!("{begin}\n!!!!")), "is not Base64"),
            (format!("{whole}{begin}\nMAA=\n-----END CERTIFICATE-----\n"), "certificate 2 in it cannot be parsed"),
        ] {
            let why = parse(&text).unwrap_err();
            assert!(why.contains(said) && !why.contains(['{', '\n', '[']), "{said}: {why}");
        }
    }
}
