//! Negotiation of microversions through either of Nova's two headers.

use axum::http::{HeaderMap, HeaderValue, header};
use kilonova_compute_app::microversions::MIN;
use kilonova_wire::microversion::requested;
use kilonova_wire::{Fault, Microversion, Negotiate, Refusal};

const NEW_HEADER: &str = "openstack-api-version";
const OLD_HEADER: &str = "x-openstack-nova-api-version";
const VARY: &str = "OpenStack-API-Version, X-OpenStack-Nova-API-Version";

/// Nova's negotiation.
#[derive(Debug, Clone, Copy)]
pub struct Negotiation {
    /// The newest microversion served.
    pub newest: Microversion,
}

impl Negotiate for Negotiation {
    fn negotiate(&self, headers: &HeaderMap) -> Result<Microversion, Fault> {
        let newest = self.newest;
        let old = || headers.get(OLD_HEADER).and_then(|value| value.to_str().ok()).map(str::trim);
        let text = match requested(headers, "compute").or_else(old) {
            None => return Ok(MIN),
            Some("latest") => return Ok(newest),
            Some(text) => text,
        };
        let version =
            Microversion::parse(text).filter(|version| version.0 > 0).ok_or_else(|| {
                Refusal::bad_request(format!(
                    "API Version String {text} is of invalid format. Must be of format \
                 MajorNum.MinorNum."
                ))
            })?;
        if (MIN..=newest).contains(&version) {
            return Ok(version);
        }
        Err(Refusal::not_acceptable(format!(
            "Version {version} is not supported by the API. Minimum is {MIN} and maximum is {newest}."
        ))
        .into())
    }

    fn stamp(&self, version: Option<Microversion>, headers: &mut HeaderMap) {
        headers.insert(header::VARY, HeaderValue::from_static(VARY));
        let Some(version) = version else { return };
        if let Ok(value) = HeaderValue::from_str(&format!("compute {version}")) {
            headers.insert(NEW_HEADER, value);
        }
        if let Ok(value) = HeaderValue::from_str(&version.to_string()) {
            headers.insert(OLD_HEADER, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilonova_compute_app::microversions::MAX;

    fn negotiate(pairs: &[(&'static str, &'static str)]) -> Result<Microversion, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        Negotiation { newest: MAX }.negotiate(&headers).map_err(|fault| fault.status().as_u16())
    }

    #[test]
    fn the_new_header_has_precedence_over_the_old_one() {
        assert_eq!(negotiate(&[]), Ok(MIN));
        assert_eq!(negotiate(&[(NEW_HEADER, "compute latest")]), Ok(MAX));
        assert_eq!(negotiate(&[(NEW_HEADER, "placement 1.39")]), Ok(MIN));
        assert_eq!(negotiate(&[(OLD_HEADER, "2.61")]), Ok(Microversion(2, 61)));
        assert_eq!(
            negotiate(&[(NEW_HEADER, "placement 1.1, compute 2.5"), (OLD_HEADER, "2.61")]),
            Ok(Microversion(2, 5))
        );
    }

    #[test]
    fn versions_out_of_range_give_406_and_malformed_ones_400() {
        assert_eq!(negotiate(&[(NEW_HEADER, "compute 2.999")]), Err(406));
        assert_eq!(negotiate(&[(NEW_HEADER, "compute 2.0")]), Err(406));
        assert_eq!(negotiate(&[(NEW_HEADER, "compute 3.1")]), Err(406));
        for wrong in ["compute two", "compute 2", "compute 0.1", "compute 2.01"] {
            assert_eq!(negotiate(&[(NEW_HEADER, wrong)]), Err(400), "{wrong}");
        }
    }
}
