//! Certificates as public keys.

use kilonova_wire::Fault;
use sha1::{Digest, Sha1};
use x509_parser::pem::Pem;

/// The SHA-1 of a certificate, which is also how a PKCS #12 file names it.
pub(super) fn digest(certificate: &[u8]) -> [u8; 20] {
    Sha1::digest(certificate).into()
}

/// The fingerprint of a certificate in PEM: its SHA-1, as Nova shows it.
///
/// # Errors
/// 400 for a text without a certificate.
pub(super) fn fingerprint(text: &str) -> Result<String, Fault> {
    let certificate = Pem::iter_from_buffer(text.as_bytes())
        .map_while(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")
        .filter(|pem| pem.parse_x509().is_ok());
    match certificate {
        Some(pem) => Ok(super::colons(&digest(&pem.contents))),
        None => Err(Fault::bad_request(
            "Keypair data is invalid: failed to generate X509 fingerprint. Error message: \
             public_key is not a certificate in PEM.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    /// Made by `openssl req -x509`.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBcjCCARmgAwIBAgIUMihkoiKUkzz4S8eX3m3xJcRMz2MwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDYW5uMCAXDTI2MTEyMzAyMTIyN1oYDzIxMjYxMDMwMDIxMjI3
WjAOMQwwCgYDVQQDDANhbm4wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASajbwh
qCrUbtb3FSe7TCSaInFtflvRrj/Ca7PCHXRaD7An0mNaYdV1X7rI9ns2U6sCy1bm
mxVerPZpMjPbOm30o1MwUTAdBgNVHQ4EFgQUaYFN2cb9Vz4TlBLlqDFrCOpRlM0w
HwYDVR0jBBgwFoAUaYFN2cb9Vz4TlBLlqDFrCOpRlM0wDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNHADBEAiBFo3v/tPOhlMHo2H1Qj9LzZjPKf6YbNpL3dXBx
W3uopgIgfeNzcxElJJrjLBZpmoG/xmPKo9QW5lSCIfhQ+z806js=
-----END CERTIFICATE-----
";

    #[test]
    fn the_fingerprint_is_the_one_that_openssl_prints() {
        let expected = "b1:07:db:32:87:a4:d4:57:0f:2f:28:f7:c4:a5:73:f1:7b:e3:a7:0e";
        assert_eq!(fingerprint(CERTIFICATE).expect("a certificate"), expected);
        let text = format!("subject=ann\r\n{}", CERTIFICATE.replace('\n', "\r\n"));
        assert_eq!(fingerprint(&text).expect("a certificate"), expected);
    }

    #[test]
    fn other_texts_are_refused() {
        let key = CERTIFICATE.replace("CERTIFICATE", "PRIVATE KEY");
        let cut = CERTIFICATE.replacen("MIIB", "MIIC", 1);
        for text in ["", "ssh-rsa AAAA", "-----BEGIN CERTIFICATE-----", &key, &cut] {
            assert!(fingerprint(text).is_err(), "{text:?}");
        }
    }
}
