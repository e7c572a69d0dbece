//! A certificate that a node signs for itself with its own key (RFC 5280 §4.1, RFC 8410).
//!
//! It is the same each time, because Ed25519 signs without random numbers: a client may keep it.

use rustls::sign::CertifiedKey;
use rustls::{Error, SignatureScheme};
use sha2::{Digest, Sha256};

/// id-Ed25519, as an AlgorithmIdentifier has it.
const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
/// From 1970 on, without an end (RFC 5280 §4.1.2.5).
const VALIDITY: [&[u8]; 2] = [b"\x17\x0d700101000000Z", b"\x18\x0f99991231235959Z"];
const SERIAL_BYTES: usize = 16;

/// The certificate of the key in `own`, whose public key stands in the certificate's place, for `name`.
pub fn signed(own: &CertifiedKey, name: &str) -> Result<Vec<u8>, Error> {
    let public = own.end_entity_cert()?;
    let signer = own.key.choose_scheme(&[SignatureScheme::ED25519]);
    let signer = signer.ok_or_else(|| Error::General("the node's key is none of Ed25519".into()))?;
    let owner = sequence(&[&value(0x31, &[&sequence(&[b"\x06\x03\x55\x04\x03", &value(0x0c, &[name.as_bytes()])])])]);
    let mut serial = Sha256::digest(public)[..SERIAL_BYTES].to_vec();
    // Positive, and not shorter than it says.
    serial[0] = serial[0] & 0x7f | 0x40;
    let names = sequence(&[&value(0x82, &[name.as_bytes()])]);
    let extension = sequence(&[b"\x06\x03\x55\x1d\x11", &value(0x04, &[&names])]);
    let certificate = sequence(&[
        // Version 3.
        b"\xa0\x03\x02\x01\x02",
        &value(0x02, &[&serial]),
        ED25519,
        &owner,
        &sequence(&VALIDITY),
        &owner,
        public,
        &value(0xa3, &[&sequence(&[&extension])]),
    ]);
    let signature = signer.sign(&certificate)?;
    Ok(sequence(&[&certificate, ED25519, &value(0x03, &[&[0], &signature])]))
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(0x30, parts)
}

fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let digits: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    match content.len() {
        short @ 0..=0x7f => [&[tag, short as u8], &content[..]].concat(),
        _ => [&[tag, 0x80 | digits.len() as u8], &digits[..], &content].concat(),
    }
}
