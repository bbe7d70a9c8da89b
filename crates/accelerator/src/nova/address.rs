//! The address of Nova: configured by the operator, or from the catalog of its Keystone.

use http::Uri;
use kilonova_keystone::SessionToken;

use super::NovaError;

/// The address of Nova.
#[derive(Debug, Clone)]
pub enum Address {
    /// An endpoint such as `http://controller:8774/v2.1`.
    Endpoint(String),
    /// The catalog's endpoint of service type `compute`.
    Catalog {
        /// Interfaces in order of preference (`valid_interfaces`).
        interfaces: Vec<String>,
        /// The region, if there are several (`region_name`).
        region: Option<String>,
    },
}

impl Address {
    /// A fixed endpoint.
    pub fn at(endpoint: &str) -> Self {
        Self::Endpoint(endpoint.to_owned())
    }

    /// Returns whether the address requires TLS; `None` for a catalog, which has not been read yet.
    pub(super) fn is_tls(&self) -> Result<Option<bool>, String> {
        match self {
            Self::Endpoint(url) => is_tls(url).map(Some),
            Self::Catalog { .. } => Ok(None),
        }
    }

    /// The URL of a resource.
    pub(super) fn url(
        &self,
        held: Option<&SessionToken>,
        resource: &str,
    ) -> Result<String, NovaError> {
        let endpoint = match self {
            Self::Endpoint(url) => url,
            Self::Catalog { interfaces, region } => {
                let listed = held.and_then(|held| find(held, interfaces, region.as_deref()));
                return match listed {
                    Some(url) => Ok(below(&url, resource)),
                    None => Err(NovaError::Temporary(format!(
                        "Keystone's catalog has no endpoint of type compute with interface {}{}; \
                         add one there, or name it in [nova] endpoint_override",
                        interfaces.join(" or "),
                        region.as_ref().map(|name| format!(" in {name}")).unwrap_or_default()
                    ))),
                };
            }
        };
        Ok(below(endpoint, resource))
    }
}

fn below(endpoint: &str, resource: &str) -> String {
    format!("{}/{resource}", endpoint.trim_end_matches('/'))
}

fn find(held: &SessionToken, interfaces: &[String], region: Option<&str>) -> Option<String> {
    let services = held.catalog.as_array()?.iter().filter(|service| service["type"] == "compute");
    let endpoints: Vec<_> =
        services.filter_map(|service| service["endpoints"].as_array()).flatten().collect();
    interfaces.iter().find_map(|interface| {
        let fits = |endpoint: &&&serde_json::Value| {
            endpoint["interface"] == interface.as_str()
                && region
                    .is_none_or(|name| endpoint["region_id"] == name || endpoint["region"] == name)
        };
        endpoints.iter().find(fits)?["url"].as_str().map(str::to_owned)
    })
}

/// True if a URL requires TLS.
pub(super) fn is_tls(url: &str) -> Result<bool, String> {
    let uri: Uri = url.parse().map_err(|_| format!("{url} is not a URL"))?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(format!("{url} names no host"));
    }
    match uri.scheme_str() {
        Some("http") => Ok(false),
        Some("https") => Ok(true),
        _ => Err(format!("{url} must begin with http:// or https://")),
    }
}
