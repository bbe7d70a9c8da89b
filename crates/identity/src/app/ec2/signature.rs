//! Signatures of requests to APIs of EC2's kind, versions 0, 1, 2 and 4, as `Ec2Signer` of
//! `keystoneclient/contrib/ec2/utils.py` computes them.
//!
//! Only [`hmac::verify`] compares signatures: it takes the same time wherever they differ.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{self, Algorithm, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::signed::{object, string, written};
use crate::Error;
use crate::app::Fields;

/// The algorithm of version 4, by its name on the wire.
const VERSION_4: &str = "AWS4-HMAC-SHA256";

/// True if the secret key signed the request.
pub(super) fn is_valid(fields: &Fields, secret: &str) -> Result<bool, Error> {
    let params = object(fields, "params")?;
    let given = match fields.get("signature") {
        Some(Value::String(given)) if !given.is_empty() => given,
        _ => return Err(Error::Unauthorized("the request has no signature")),
    };
    let unknown = |text: String| Err(Error::Invalid(text));
    match params.get("SignatureVersion") {
        Some(Value::String(version)) if version == "0" => {
            let text = [string(params, "Action")?, string(params, "Timestamp")?].concat();
            Ok(encodes(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret, &text, given))
        }
        Some(Value::String(version)) if version == "1" => {
            Ok(encodes(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret, &text_1(params)?, given))
        }
        Some(Value::String(version)) if version == "2" => {
            let host = string(fields, "host")?;
            let signs = |host: &str| {
                let text = text_2(fields, params, host)?;
                Ok::<_, Error>(encodes(HMAC_SHA256, secret, &text, given))
            };
            // Some clients sign the host without its port.
            Ok(signs(host)? || (host.contains(':') && signs(&name_of(host))?))
        }
        _ if is_version_4(fields, params) => version_4(fields, params, secret, given),
        Some(Value::Null) | None => unknown("Unexpected signature format".to_owned()),
        Some(_) => unknown("Unknown signature version".to_owned()),
    }
}

/// True if `given` is the base64 of the text's signature.
fn encodes(algorithm: Algorithm, secret: &str, text: &str, given: &str) -> bool {
    let key = hmac::Key::new(algorithm, secret.as_bytes());
    // Text that is not base64 has no bytes, and no signature is empty.
    let given = STANDARD.decode(given).unwrap_or_default();
    hmac::verify(&key, text.as_bytes(), &given).is_ok()
}

/// The text of version 1: names and values in the order of the names, whatever their case.
fn text_1(params: &Fields) -> Result<String, Error> {
    let mut sorted: Vec<_> =
        params.iter().map(|(name, value)| (name.to_lowercase(), name, value)).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut text = String::new();
    for (_, name, value) in sorted {
        text += name;
        text += &written(value)?;
    }
    Ok(text)
}

/// The text of version 2. As upstream's, it always names HMAC-SHA256.
fn text_2(fields: &Fields, params: &Fields, host: &str) -> Result<String, Error> {
    let mut params = params.clone();
    params.insert("SignatureMethod".to_owned(), "HmacSHA256".into());
    let (verb, path) = (string(fields, "verb")?, string(fields, "path")?);
    Ok(format!("{verb}\n{host}\n{path}\n{}", query(&params)?))
}

/// The name in a `host:port`, in lower case and without the brackets of an IPv6 address.
fn name_of(host: &str) -> String {
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    name.unwrap_or_default().to_lowercase()
}

/// The parameters as a query string, in the order of their names.
fn query(params: &Fields) -> Result<String, Error> {
    let mut sorted: Vec<_> = params.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    let mut text = String::new();
    for (name, value) in sorted {
        if !text.is_empty() {
            text.push('&');
        }
        quote(name, &mut text);
        text.push('=');
        quote(&written(value)?, &mut text);
    }
    Ok(text)
}

/// Percent-encodes all bytes but the unreserved ones.
fn quote(raw: &str, text: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for byte in raw.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let digit = |four: u8| DIGITS[usize::from(four & 15)];
            text.extend(['%', digit(byte >> 4), digit(byte)]);
        }
    }
}

/// True for a request of version 4: only its algorithm says so, in a header or, without that header, in a parameter.
fn is_version_4(fields: &Fields, params: &Fields) -> bool {
    let header = fields.get("headers").and_then(|headers| headers.get("Authorization"));
    match header {
        Some(Value::String(text)) => text.starts_with(VERSION_4),
        Some(_) => false,
        None => params.get("X-Amz-Algorithm").and_then(Value::as_str) == Some(VERSION_4),
    }
}

/// The parts of a request of version 4 that name its signature.
struct Authorization<'a> {
    signed_headers: &'a str,
    date: &'a str,
    /// The credential without its access key: day, region, service and `aws4_request`.
    scope: &'a str,
}

impl<'a> Authorization<'a> {
    fn read(headers: &'a Fields, params: &'a Fields) -> Result<Self, Error> {
        let part = |name: &str, parameter: &'static str| match headers.get("Authorization") {
            Some(Value::String(text)) => Ok(text
                .split_once(name)
                .and_then(|(_, rest)| rest.split(',').next())
                .unwrap_or_default()),
            _ => string(params, parameter),
        };
        let date = match headers.get("X-Amz-Date") {
            Some(_) => string(headers, "X-Amz-Date"),
            None => string(params, "X-Amz-Date"),
        };
        let credential = part("Credential=", "X-Amz-Credential")?;
        let (_, scope) = credential.split_once('/').ok_or_else(without_scope)?;
        Ok(Self {
            signed_headers: part("SignedHeaders=", "X-Amz-SignedHeaders")?,
            date: date?,
            scope,
        })
    }
}

fn without_scope() -> Error {
    Error::Invalid("Credential must have the form KEY/DATE/REGION/SERVICE/aws4_request.".to_owned())
}

fn version_4(fields: &Fields, params: &Fields, secret: &str, given: &str) -> Result<bool, Error> {
    let headers = object(fields, "headers")?;
    let Authorization { signed_headers, date, scope } = Authorization::read(headers, params)?;
    let mut parts = scope.split('/');
    let (Some(day), Some(region), Some(service)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(without_scope());
    };
    if !date.starts_with(day) {
        return Err(Error::Unauthorized("the signature is of another day than the request"));
    }
    let verb = string(fields, "verb")?.to_uppercase();
    // The parameters of a POST are in its body.
    let query = if verb == "POST" { String::new() } else { query(params)? };
    let request = [
        verb.as_str(),
        string(fields, "path")?,
        &query,
        &lines(headers, signed_headers)?,
        signed_headers,
        string(fields, "body_hash")?,
    ];
    let hash = hexadecimal(&Sha256::digest(request.join("\n").as_bytes()));
    let text = [VERSION_4, date, scope, &hash].join("\n");
    let Some(given) = hex(given) else { return Ok(false) };
    let key = signing_key(secret, day, region, service);
    let key = hmac::Key::new(HMAC_SHA256, key.as_ref());
    Ok(hmac::verify(&key, text.as_bytes(), &given).is_ok())
}

/// The key of version 4 for a day, a region and a service.
pub(super) fn signing_key(secret: &str, day: &str, region: &str, service: &str) -> hmac::Tag {
    let sign =
        |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes());
    let key = sign(["AWS4", secret].concat().as_bytes(), day);
    let key = sign(key.as_ref(), region);
    let key = sign(key.as_ref(), service);
    sign(key.as_ref(), "aws4_request")
}

/// The signed headers that the request has, each on a line. A name counts once, so that the text is no longer than the
/// request.
fn lines(headers: &Fields, signed: &str) -> Result<String, Error> {
    let mut known = HashMap::new();
    for (name, value) in headers {
        let value = value
            .as_str()
            .ok_or_else(|| Error::Invalid("The values of headers must be strings.".to_owned()))?;
        known.insert(name.to_lowercase().trim().to_owned(), value.trim());
    }
    let without_port = known.get("user-agent").is_some_and(|agent| is_old_boto(agent));
    let mut text = Vec::new();
    for name in signed.split(';') {
        let Some(mut value) = known.remove(name) else { continue };
        if name == "host" && without_port {
            value = value.split(':').next().unwrap_or_default();
        }
        text.push(format!("{name}:{value}"));
    }
    Ok(text.join("\n") + "\n")
}

/// True for a version of boto before 2.9.3, which signs the host without its port.
fn is_old_boto(agent: &str) -> bool {
    let version = agent.strip_prefix("Boto/2.").map(str::as_bytes);
    matches!(version, Some([b'0'..=b'9', b'.', b'0'..=b'2', ..]))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text of lower-case hexadecimal digits.
pub(super) fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
