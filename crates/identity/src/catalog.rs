//! The service catalog: which service answers under which path of this program.
//!
//! URLs are built from the `Host` that the caller used, so that a client behind a forwarder gets
//! addresses that it can reach. Ids are derived from the names, hence the same on every replica.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::REGION;

/// One service.
#[derive(Debug, Clone)]
pub struct CatalogEntry {
    /// `compute`, `placement`, …
    pub service_type: String,
    /// `nova`, `placement`, …
    pub name: String,
    /// Where it answers: `/compute/v2.1`.
    pub path: String,
}

const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

fn id(parts: &[&str]) -> String {
    Uuid::new_v3(&Uuid::NAMESPACE_DNS, parts.join(".").as_bytes()).simple().to_string()
}

impl CatalogEntry {
    /// The service's id.
    pub(crate) fn id(&self) -> String {
        id(&["service", &self.service_type])
    }

    /// Its endpoints: id, interface, URL.
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

/// The catalog as a token holds it; `root` is `http://host`.
pub(crate) fn view(entries: &[CatalogEntry], root: &str) -> Value {
    entries.iter().map(|entry| entry.view(root)).collect()
}

/// `http://host/prefix` of `http://host/prefix/identity`: what all services are below.
pub(crate) fn root(base: &str) -> &str {
    base.strip_suffix("/identity").unwrap_or(base)
}
