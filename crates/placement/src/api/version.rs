//! Microversions 1.0 to 1.39, selected by `OpenStack-API-Version: placement X.Y`; the default is
//! 1.0.

use axum::http::{HeaderMap, HeaderValue, header};
use kilonova_wire::{Fault, Microversion, Negotiate, Refusal, microversion};

/// The oldest supported version.
pub const MIN: Microversion = Microversion(1, 0);
/// The newest supported version.
pub const MAX: Microversion = Microversion(1, 39);

/// Begins every error of the negotiation (`MicroversionMiddleware` of microversion-parse).
const INVALID: &str = "Invalid microversion: ";

/// Placement's version negotiation.
pub struct Versions;

impl Negotiate for Versions {
    fn negotiate(&self, headers: &HeaderMap) -> Result<Microversion, Fault> {
        let version = match microversion::requested(headers, "placement") {
            None => return Ok(MIN),
            Some("latest") => return Ok(MAX),
            Some(text) => Microversion::parse(text).ok_or_else(|| {
                Refusal::bad_request(format!("{INVALID}invalid version string: {text}"))
            })?,
        };
        if (MIN..=MAX).contains(&version) {
            return Ok(version);
        }
        let why = format!("{INVALID}Unacceptable version header: {version}");
        Err(Refusal::not_acceptable(why)
            .with_extra("max_version", MAX.to_string())
            .with_extra("min_version", MIN.to_string())
            .into())
    }

    fn stamp(&self, version: Option<Microversion>, headers: &mut HeaderMap) {
        let Some(version) = version else { return };
        if let Ok(value) = HeaderValue::from_str(&format!("placement {version}")) {
            headers.insert("openstack-api-version", value);
            headers.insert(header::VARY, HeaderValue::from_static("openstack-api-version"));
        }
    }
}
