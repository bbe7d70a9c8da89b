//! The service catalog: the built-in services, each under its own path of this program, and the
//! services that an operator registered.
//!
//! Built-in URLs start with the origin that the caller used, so that a client behind a proxy gets
//! URLs that it can reach. Their ids are derived from names and thus equal on every controller.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::REGION;
use crate::app::catalog::Registered;

/// A built-in service.
#[derive(Debug, Clone)]
pub struct CatalogEntry {
    /// `compute`, `placement`, …
    pub service_type: String,
    /// `nova`, `placement`, …
    pub name: String,
    /// Its path: `/compute/v2.1`.
    pub path: String,
}

/// The endpoint interfaces.
pub(crate) const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

fn id(parts: &[&str]) -> String {
    Uuid::new_v3(&Uuid::NAMESPACE_DNS, parts.join(".").as_bytes()).simple().to_string()
}

impl CatalogEntry {
    /// The service's id.
    pub(crate) fn id(&self) -> String {
        id(&["service", &self.service_type])
    }

    /// The service's endpoints: id, interface, URL.
    pub(crate) fn endpoints(&self, root: &str) -> Vec<(String, &'static str, String)> {
        INTERFACES
            .into_iter()
            .map(|interface| {
                let id = id(&["endpoint", &self.service_type, interface]);
                (id, interface, format!("{root}{}", self.path))
            })
            .collect()
    }

    fn view(&self, root: &str) -> Value {
        let endpoints: Vec<Value> = self
            .endpoints(root)
            .into_iter()
            .map(|(id, interface, url)| {
                json!({
                    "id": id, "interface": interface, "region": REGION, "region_id": REGION,
                    "url": url,
                })
            })
            .collect();
        json!({"id": self.id(), "type": self.service_type, "name": self.name,
               "endpoints": endpoints})
    }
}

/// The catalog for a token; `root` precedes built-in paths. An endpoint whose URL contains a project
/// is omitted for a token without a project.
pub(crate) fn view(
    entries: &[CatalogEntry],
    registered: &Registered,
    root: &str,
    project: Option<&str>,
    user: &str,
) -> Value {
    let ours = entries.iter().map(|entry| entry.view(root));
    let theirs = registered.services.iter().filter(|service| service.enabled).map(|service| {
        let endpoints = registered.endpoints.iter();
        let endpoints: Vec<Value> = endpoints
            .filter(|endpoint| endpoint.service == service.id && endpoint.enabled)
            .filter_map(|endpoint| {
                Some(json!({
                    "id": endpoint.id, "interface": endpoint.interface,
                    "region": endpoint.region, "region_id": endpoint.region,
                    "url": fill(&endpoint.url, project, user)?,
                }))
            })
            .collect();
        json!({"id": service.id, "type": service.kind,
               "name": service.name.as_deref().unwrap_or_default(), "endpoints": endpoints})
    });
    ours.chain(theirs).collect()
}

/// Fills the placeholders of a URL, in either of upstream's forms (`%(x)s` and `$(x)s`). `None` for
/// unknown placeholders, or for a project placeholder without a project.
pub(crate) fn fill(url: &str, project: Option<&str>, user: &str) -> Option<String> {
    let mut filled = String::new();
    let mut rest = url;
    while let Some(at) = rest.find(['%', '$']) {
        filled.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix(&rest[at..=at]) {
            filled.push_str(&rest[at..=at]);
            rest = escaped;
            continue;
        }
        let (name, tail) = after.strip_prefix('(')?.split_once(")s")?;
        filled.push_str(match name {
            "project_id" | "tenant_id" => project?,
            "user_id" => user,
            _ => return None,
        });
        rest = tail;
    }
    filled.push_str(rest);
    Some(filled)
}

/// The common root of all services: `http://host/prefix` for `http://host/prefix/identity`.
pub(crate) fn root(base: &str) -> &str {
    base.strip_suffix("/identity").unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_others_refused() {
        let fill = |url: &str, project| fill(url, project, "U");
        let cinder = "http://c:8776/v3/%(project_id)s";
        assert_eq!(fill(cinder, Some("P")).as_deref(), Some("http://c:8776/v3/P"));
        assert_eq!(fill(cinder, None), None);
        let swift = "http://s/AUTH_$(tenant_id)s/$(user_id)s/%%";
        assert_eq!(fill(swift, Some("P")).as_deref(), Some("http://s/AUTH_P/U/%"));
        for wrong in ["http://x/%(token)s", "http://x/%20", "http://x/%(project_id)", "http://x/%"]
        {
            assert_eq!(fill(wrong, Some("P")), None, "{wrong}");
        }
    }

    #[test]
    fn a_prefix_before_the_service_is_kept() {
        assert_eq!(root("https://cloud.example/os/identity"), "https://cloud.example/os");
        assert_eq!(root("http://cloud.example:5000"), "http://cloud.example:5000");
    }
}
