//! Cleaning between two rounds: deletes surplus objects, enables hosts, and looks up the
//! identifiers of existing objects.

use kilonova_wire_tests::Document;
use serde_json::{Value, json};

use crate::fuzz::cloud::Cloud;
use crate::fuzz::compose::Sent;
use crate::fuzz::identifiers::Identifiers;
use crate::fuzz::verdict::send;

/// Number of objects of a kind that are kept between two rounds.
const KEPT: usize = 20;

/// Word, service, path of a list, its key, the id of an item.
const LISTINGS: &[(&str, &str, &str, &str, &str)] = &[
    ("servers", "compute", "/v2.1/servers?all_tenants=1", "servers", "id"),
    ("flavors", "compute", "/v2.1/flavors?is_public=None", "flavors", "id"),
    ("os-aggregates", "compute", "/v2.1/os-aggregates", "aggregates", "id"),
    ("os-server-groups", "compute", "/v2.1/os-server-groups?all_projects=1", "server_groups", "id"),
    ("os-services", "compute", "/v2.1/os-services", "services", "id"),
    ("hypervisors", "compute", "/v2.1/os-hypervisors", "hypervisors", "id"),
    ("resource_providers", "placement", "/resource_providers", "resource_providers", "uuid"),
    ("resource_classes", "placement", "/resource_classes", "resource_classes", "name"),
    ("traits", "placement", "/traits", "traits", ""),
    ("device_profiles", "accelerator", "/v2/device_profiles", "device_profiles", "uuid"),
    ("arqs", "accelerator", "/v2/accelerator_requests", "arqs", "uuid"),
    ("devices", "accelerator", "/v2/devices", "devices", "uuid"),
    ("deployables", "accelerator", "/v2/deployables", "deployables", "uuid"),
    ("users", "identity", "/v3/users", "users", "id"),
    ("projects", "identity", "/v3/projects", "projects", "id"),
    ("roles", "identity", "/v3/roles", "roles", "id"),
    ("images", "image", "/v2/images", "images", "id"),
    ("floatingips", "network", "/v2.0/floatingips", "floatingips", "id"),
    ("routers", "network", "/v2.0/routers", "routers", "id"),
    ("ports", "network", "/v2.0/ports", "ports", "id"),
    ("subnets", "network", "/v2.0/subnets", "subnets", "id"),
    ("networks", "network", "/v2.0/networks", "networks", "id"),
    ("security-groups", "network", "/v2.0/security-groups", "security_groups", "id"),
    ("security-group-rules", "network", "/v2.0/security-group-rules", "security_group_rules", "id"),
];

/// Objects to delete if there are too many: word, service, and the path to delete them.
const BOUNDED: &[(&str, &str, &str)] = &[
    ("flavors", "compute", "/v2.1/flavors"),
    ("os-aggregates", "compute", "/v2.1/os-aggregates"),
    ("os-server-groups", "compute", "/v2.1/os-server-groups"),
    ("resource_providers", "placement", "/resource_providers"),
    ("resource_classes", "placement", "/resource_classes"),
    ("device_profiles", "accelerator", "/v2/device_profiles"),
    ("users", "identity", "/v3/users"),
    ("projects", "identity", "/v3/projects"),
    ("roles", "identity", "/v3/roles"),
    ("images", "image", "/v2/images"),
    ("floatingips", "network", "/v2.0/floatingips"),
    ("routers", "network", "/v2.0/routers"),
    ("ports", "network", "/v2.0/ports"),
    ("subnets", "network", "/v2.0/subnets"),
    ("networks", "network", "/v2.0/networks"),
    ("security-groups", "network", "/v2.0/security-groups"),
];

/// An operator with valid requests.
pub struct Operator<'a> {
    pub cloud: &'a Cloud,
    pub document: &'a Document,
}

impl Operator<'_> {
    /// Deletes surplus objects, and returns the identifiers of the others.
    pub async fn tidy(&self) -> Identifiers {
        for host in ["h1", "h2"] {
            for (path, more) in
                [("force-down", json!({"forced_down": false})), ("enable", json!({}))]
            {
                let mut body = json!({"host": host, "binary": "nova-compute"});
                body.as_object_mut()
                    .expect("the listing is an object")
                    .extend(more.as_object().cloned().unwrap_or_default());
                self.ask("compute", "PUT", &format!("/v2.1/os-services/{path}"), Some(body)).await;
            }
        }
        for server in self
            .list("compute", "/v2.1/servers?all_tenants=1", "servers", "id")
            .await
            .iter()
            .skip(6)
        {
            self.ask("compute", "DELETE", &format!("/v2.1/servers/{server}"), None).await;
        }
        for (word, service, path) in BOUNDED {
            let (_, _, listing, key, id) =
                LISTINGS.iter().find(|l| l.0 == *word).expect("the word has a list");
            for id in self.list(service, listing, key, id).await.iter().skip(KEPT) {
                self.ask(service, "DELETE", &format!("{path}/{}", encoded(id)), None).await;
            }
        }
        let base =
            json!({"flavor": {"id": "base", "name": "base", "ram": 64, "vcpus": 1, "disk": 1}});
        self.ask("compute", "POST", "/v2.1/flavors", Some(base)).await;
        let vgpu =
            json!({"flavor": {"id": "vgpu", "name": "vgpu", "ram": 64, "vcpus": 1, "disk": 1}});
        self.ask("compute", "POST", "/v2.1/flavors", Some(vgpu)).await;
        let specs = json!({"extra_specs": {"resources:VGPU": "1"}});
        self.ask("compute", "POST", "/v2.1/flavors/vgpu/os-extra_specs", Some(specs)).await;
        self.pool().await
    }

    async fn pool(&self) -> Identifiers {
        let mut pool = Identifiers::default();
        for (word, service, path, list, id) in LISTINGS {
            let mut ids = self.list(service, path, list, id).await;
            if *word == "images" {
                ids = vec![self.cloud.image.to_string(), ids.pop().unwrap_or_default()];
            }
            if *word == "flavors" {
                ids.extend([
                    "base".to_owned(),
                    "base".to_owned(),
                    "vgpu".to_owned(),
                    "vgpu".to_owned(),
                ]);
            }
            pool.set(word, ids);
        }
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        pool.set("words", texts(&["networks", "subnets", "ports", "security-groups"]));
        pool.set("hosts", texts(&["h1", "h2"]));
        pool.set("os-hosts", texts(&["h1", "h2"]));
        pool.set("zones", texts(&["nova", "nova:h1"]));
        pool.set("tags", texts(&["a", "red", "image", "images"]));
        pool.set("keys", texts(&["k", "hw:cpu_policy", "resources:VGPU", "accel:device_profile"]));
        pool.set("os-keypairs", texts(&["k1", "n1", "n2"]));
        pool.set("classed", texts(&["VCPU:1", "CUSTOM_A:1", "VGPU:1,VCPU:1", "MEMORY_MB:64"]));
        pool.set("aggregate_uuids", texts(&["c0ffee00-0000-4000-8000-000000000001"]));
        let consumers: Vec<String> =
            (0..8).map(|n| format!("c0ffee00-0000-4000-8000-{n:012x}")).collect();
        pool.set("allocations", consumers);
        let mut projects = pool.all("projects").to_vec();
        projects.extend(texts(&["admin", "red"]));
        pool.set("projects", projects);
        pool
    }

    pub async fn ask(
        &self,
        service: &'static str,
        method: &str,
        uri: &str,
        body: Option<Value>,
    ) -> Value {
        let version = match service {
            "compute" if uri.contains("os-services/") => "compute 2.11",
            "compute" => "compute 2.95",
            "placement" => "placement 1.39",
            _ => "accelerator 2.3",
        };
        let put = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        let sent = Sent {
            service,
            method: method.to_owned(),
            route: String::new(),
            uri: uri.to_owned(),
            headers: vec![
                put("host", "cloud"),
                put("x-auth-token", "admin"),
                put("accept", "application/json"),
                put("openstack-api-version", version),
            ],
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            minor: None,
        };
        let answer = send(&self.cloud.routers[service], self.document, &sent).await;
        let answer = answer.expect("the request is valid");
        assert!(answer.wrong.is_none(), "{sent}: {} {:?}", answer.status, answer.wrong);
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    pub async fn list(
        &self,
        service: &'static str,
        path: &str,
        list: &str,
        id: &str,
    ) -> Vec<String> {
        let answer = self.ask(service, "GET", path, None).await;
        let items = answer[list].as_array().cloned().unwrap_or_default();
        let text = |item: &Value| {
            let value = if id.is_empty() { item } else { &item[id] };
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        };
        // A host's registered inventory belongs to the cloud: an operator of Placement could delete
        // it, and then no server would find a valid host.
        let reported = |item: &&Value| {
            service != "placement"
                || !item["name"].as_str().is_some_and(|name| name.starts_with('h'))
        };
        items.iter().filter(reported).map(text).collect()
    }
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
