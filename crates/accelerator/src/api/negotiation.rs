//! Microversions 2.0 to 2.3, selected by `OpenStack-API-Version: accelerator 2.3` (also among other
//! services' entries), `accelerator latest`, or the bare `2.3`. The default is 2.0.

use http::header::{HeaderMap, HeaderName, HeaderValue, VARY};
use kilonova_wire::{Fault, Microversion, Negotiate, Refusal, microversion};

const MIN: Microversion = Microversion(2, 0);
const MAX: Microversion = Microversion(2, 3);
const HEADER: HeaderName = HeaderName::from_static("openstack-api-version");

/// The version from which a profile can be shown by name.
pub(super) const PROFILE_BY_NAME: Microversion = Microversion(2, 2);
/// The version from which a bind may name the project.
pub(super) const BIND_PROJECT: Microversion = Microversion(2, 1);
/// The version from which devices show their status.
pub(super) const DEVICE_STATUS: Microversion = Microversion(2, 3);

/// The version negotiation of the accelerator service.
pub(super) struct Accelerator;

/// Refuses a request below the required microversion.
pub(super) fn at_least(version: Microversion, needed: Microversion) -> Result<(), Refusal> {
    if version >= needed {
        return Ok(());
    }
    Err(Refusal::not_acceptable(format!(
        "Request not acceptable. The minimal required API version should be {needed}"
    )))
}

fn wanted(headers: &HeaderMap) -> Result<Microversion, Refusal> {
    if !headers.contains_key(HEADER) {
        return Ok(MIN);
    }
    let bare = || headers.get(HEADER).and_then(|value| value.to_str().ok()).map(str::trim);
    match microversion::requested(headers, "accelerator").or_else(bare) {
        Some(text) if text.eq_ignore_ascii_case("latest") => Ok(MAX),
        text => text.and_then(Microversion::parse).ok_or_else(|| {
            Refusal::not_acceptable("Invalid value for OpenStack-API-Version header")
        }),
    }
}

fn choose(headers: &HeaderMap) -> Result<Microversion, Refusal> {
    let version = wanted(headers)?;
    let range = format!("The supported version range is: [{MIN}, {MAX}].");
    if version.0 != MIN.0 {
        return Err(Refusal::not_acceptable(format!(
            "Mutually exclusive versions requested. Version {version} requested but not \
             supported by this service. {range}"
        )));
    }
    if version < MIN || version > MAX {
        return Err(Refusal::not_acceptable(format!(
            "Version {version} was requested but the minor version is not supported by this \
             service. {range}"
        )));
    }
    Ok(version)
}

impl Negotiate for Accelerator {
    fn negotiate(&self, headers: &HeaderMap) -> Result<Microversion, Fault> {
        choose(headers).map_err(|refusal| Fault::from(refusal).unrouted())
    }

    fn stamp(&self, version: Option<Microversion>, headers: &mut HeaderMap) {
        let mut set = |name: &'static str, text: String| {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set("openstack-api-minimum-version", MIN.to_string());
        set("openstack-api-maximum-version", MAX.to_string());
        if let Some(version) = version {
            set("openstack-api-version", format!("accelerator {version}"));
        }
        headers.append(VARY, HeaderValue::from_static("OpenStack-API-Version"));
    }
}
