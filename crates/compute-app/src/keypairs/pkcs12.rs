//! A PKCS #12 file (RFC 7292) with one certificate, its key and an empty password, in the form that
//! Nova uses for Windows.
//!
//! Nothing in it is encrypted, because an empty password protects nothing. It has the checksum that
//! readers expect.

use sha1::{Digest, Sha1};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, DERWriterSeq, Tag, construct_der};

use super::x509;

const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
const KEY_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 1];
const CERTIFICATE_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 3];
const X509: &[u64] = &[1, 2, 840, 113_549, 1, 9, 22, 1];
/// `localKeyId`, by which readers match the key to the certificate.
const LOCAL_KEY_ID: &[u64] = &[1, 2, 840, 113_549, 1, 9, 21];
const SHA1: &[u64] = &[1, 3, 14, 3, 2, 26];
/// Number of iterations of the key derivation for the checksum.
const ROUNDS: u32 = 2048;
/// Block size of SHA-1 in bytes.
const BLOCK: usize = 64;

/// Encodes the file; `pkcs8` is the private key.
pub(super) fn file(certificate: &[u8], pkcs8: &[u8], salt: &[u8; 8]) -> Vec<u8> {
    let key_id = x509::digest(certificate);
    let bags = construct_der(|writer| {
        writer.write_sequence(|bags| {
            bag(bags, CERTIFICATE_BAG, &key_id, |writer| {
                writer.write_sequence(|parts| {
                    oid(parts, X509);
                    explicit(parts, |writer| writer.write_bytes(certificate));
                });
            });
            bag(bags, KEY_BAG, &key_id, |writer| writer.write_der(pkcs8));
        });
    });
    let safe = construct_der(|writer| {
        writer.write_sequence(|contents| data(contents.next(), &bags));
    });
    construct_der(|writer| {
        writer.write_sequence(|parts| {
            parts.next().write_u8(3);
            data(parts.next(), &safe);
            parts.next().write_sequence(|sum| {
                sum.next().write_sequence(|digest| {
                    digest.next().write_sequence(|algorithm| {
                        oid(algorithm, SHA1);
                        algorithm.next().write_null();
                    });
                    digest.next().write_bytes(&checksum(&safe, salt));
                });
                sum.next().write_bytes(salt);
                sum.next().write_u32(ROUNDS);
            });
        });
    })
}

fn oid(parts: &mut DERWriterSeq<'_>, id: &[u64]) {
    parts.next().write_oid(&ObjectIdentifier::from_slice(id));
}

fn explicit(parts: &mut DERWriterSeq<'_>, content: impl FnOnce(DERWriter<'_>)) {
    parts.next().write_tagged(Tag::context(0), content);
}

fn data(writer: DERWriter<'_>, content: &[u8]) {
    writer.write_sequence(|parts| {
        oid(parts, DATA);
        explicit(parts, |writer| writer.write_bytes(content));
    });
}

fn bag(
    bags: &mut DERWriterSeq<'_>,
    kind: &[u64],
    key_id: &[u8],
    content: impl FnOnce(DERWriter<'_>),
) {
    bags.next().write_sequence(|parts| {
        oid(parts, kind);
        explicit(parts, content);
        parts.next().write_set(|attributes| {
            attributes.next().write_sequence(|attribute| {
                oid(attribute, LOCAL_KEY_ID);
                attribute.next().write_set(|values| values.next().write_bytes(key_id));
            });
        });
    });
}

/// HMAC-SHA-1 with the key derived from the empty password (RFC 7292, appendix B).
fn checksum(content: &[u8], salt: &[u8; 8]) -> [u8; 20] {
    // 3 is the purpose "checksum". The empty password is two zero bytes, repeated.
    let seed = [[3; BLOCK].as_slice(), &salt.repeat(BLOCK / salt.len()), &[0; BLOCK]].concat();
    let mut key = Sha1::digest(seed);
    for _ in 1..ROUNDS {
        key = Sha1::digest(key);
    }
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK];
        block.iter_mut().zip(key).for_each(|(byte, of_key)| *byte ^= of_key);
        block
    };
    let inner = Sha1::digest([&padded(0x36), content].concat());
    Sha1::digest([padded(0x5c).as_slice(), &inner].concat()).into()
}

#[cfg(test)]
mod tests {
    /// The expected value was computed with Python's `hmac` and `hashlib`. The API's tests read
    /// whole files with `openssl`.
    #[test]
    fn the_checksum_is_that_of_rfc_7292() {
        let checksum = super::checksum(b"content", &[7; 8]);
        assert_eq!(
            super::super::colons(&checksum),
            "74:ea:fe:21:16:02:6d:f7:17:8b:e4:75:8b:f4:85:17:e7:97:95:55"
        );
    }
}
