//! The authorities that sign etcd's certificates, as their file has them.

use ureq::tls::Certificate;

/// The certificates in a text in PEM, at least one. The error is a predicate of the file.
pub fn parse(text: &str) -> Result<Vec<Certificate<'static>>, String> {
    let found = ekiden_keys::certificates(text)?;
    Ok(found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect())
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
