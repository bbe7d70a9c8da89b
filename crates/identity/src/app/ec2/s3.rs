//! Signatures of S3 requests, as in `keystone/api/s3tokens.py`: the asking service sends the text that was signed.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ring::hmac::{self, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256};

use super::signature::{hex, signing_key};
use super::signed::string;
use crate::Error;
use crate::app::Fields;

/// Base64 with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The services whose signatures of version 4 are accepted.
const SERVICES: [&str; 3] = ["s3", "iam", "sts"];

/// True if the secret key signed the text.
pub(super) fn is_valid(fields: &Fields, secret: &str) -> Result<bool, Error> {
    // Services use either alphabet.
    let encoded = string(fields, "token")?.replace('-', "+").replace('_', "/");
    let text = LENIENT
        .decode(encoded)
        .map_err(|_| Error::Invalid("token must be the base64 of the signed text.".to_owned()))?;
    let given = string(fields, "signature")?;
    if !text.starts_with(b"AWS4") {
        let key = hmac::Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        let given = STANDARD.decode(given).unwrap_or_default();
        return Ok(hmac::verify(&key, &text, &given).is_ok());
    }
    let (Some(key), Some(given)) = (key_of(&text, secret), hex(given)) else { return Ok(false) };
    Ok(hmac::verify(&hmac::Key::new(HMAC_SHA256, key.as_ref()), &text, &given).is_ok())
}

/// The key of a text of version 4: algorithm, time, scope and hash, each on a line.
fn key_of(text: &[u8], secret: &str) -> Option<hmac::Tag> {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let [b"AWS4-HMAC-SHA256", _, scope, _] = lines.as_slice() else { return None };
    let scope: Vec<&str> = std::str::from_utf8(scope).ok()?.split('/').collect();
    match scope.as_slice() {
        [date, region, service, "aws4_request"] if SERVICES.contains(service) => {
            Some(signing_key(secret, date, region, service))
        }
        _ => None,
    }
}
