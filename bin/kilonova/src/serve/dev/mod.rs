//! `serve --dev`: creates, once, the resources that a first server needs: flavors, an image, a network,
//! and a device profile with a flavor for each kind of device on the hosts.
//!
//! It calls the services' APIs in process as the admin, so it cannot create anything that they
//! would refuse. Existing resources with the same name stay unchanged; a resource that was created
//! once is never created again.

mod db;
mod image;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kilonova_store::Store;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::failure::Failure;
pub use db::MIGRATIONS;

/// How long to wait for the hosts of the topology, whose devices determine the profiles.
const HOSTS: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The names used in docs/quickstart.md.
const FLAVOR: &str = "tiny";
const IMAGE: &str = "hello";
const NETWORK: &str = "private";
/// Maximum number of bytes of an answer.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// The microversions of requests.
const VERSIONS: [(&str, &str); 2] =
    [("/compute", "compute 2.90"), ("/placement", "placement 1.39")];
/// Resource classes that every host has, or that are not devices.
const NOT_DEVICES: [&str; 5] = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "SRIOV_NET_VF"];

/// The commands for a first server.
pub(super) fn commands(openrc: &Path) -> String {
    let openrc = openrc.display();
    format!(
        "  source {openrc}\n  openstack server create --flavor {FLAVOR} --image {IMAGE} --network \
         {NETWORK} --wait vm1\n  openstack server show vm1"
    )
}

/// A client of the services as the admin.
struct Admin {
    router: Router,
    token: String,
}

/// Creates missing resources that were never created. `hosts` is the number of hosts in the topology.
pub(super) async fn seed(
    router: Router,
    store: &Store,
    password: &str,
    hosts: usize,
) -> Result<(), Failure> {
    let admin = Admin::login(router, password).await?;
    admin.wait_for(hosts).await?;
    let made: Vec<String> = store
        .read(db::all)
        .await
        .map_err(|e: kilonova_store::Error| Failure::failed("cannot read what --dev created", e))?;
    let classes = admin.device_classes().await?;
    let mut resources = vec![
        Resource::Flavor { name: FLAVOR.into(), vcpus: 1, ram: 512, disk: 1, profile: None },
        Resource::Flavor { name: "small".into(), vcpus: 2, ram: 2048, disk: 10, profile: None },
        Resource::Flavor { name: "medium".into(), vcpus: 4, ram: 8192, disk: 40, profile: None },
        Resource::Image,
        Resource::Network,
    ];
    for class in classes {
        let name = class.trim_start_matches("CUSTOM_").to_lowercase().replace('_', "-");
        let flavor = format!("{FLAVOR}-{name}");
        resources.push(Resource::Profile { name: name.clone(), class });
        let profile = Some(name);
        resources.push(Resource::Flavor { name: flavor, vcpus: 1, ram: 512, disk: 1, profile });
    }
    for resource in resources {
        let key = resource.key();
        if made.contains(&key) {
            continue;
        }
        if !admin.has(&resource).await? {
            admin.make(&resource).await?;
            tracing::info!(resource = key, "created by --dev");
        }
        let noted = store.write(move |tx| db::note(tx, &key)).await;
        noted.map_err(|e: kilonova_store::Error| {
            Failure::failed("cannot record what --dev created", e)
        })?;
    }
    Ok(())
}

enum Resource {
    Flavor { name: String, vcpus: u32, ram: u32, disk: u32, profile: Option<String> },
    Profile { name: String, class: String },
    Image,
    Network,
}

impl Resource {
    fn key(&self) -> String {
        match self {
            Self::Flavor { name, .. } => format!("flavor {name}"),
            Self::Profile { name, .. } => format!("device profile {name}"),
            Self::Image => format!("image {IMAGE}"),
            Self::Network => format!("network {NETWORK}"),
        }
    }
}

impl Admin {
    async fn login(router: Router, password: &str) -> Result<Self, Failure> {
        let domain = json!({"name": "Default"});
        let user = json!({"name": "admin", "password": password, "domain": domain});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": "admin", "domain": domain}},
        }});
        let mut admin = Self { router, token: String::new() };
        let path = "/identity/v3/auth/tokens";
        let (token, _) =
            admin.send(Method::POST, path, "application/json", body.to_string()).await?;
        admin.token = token;
        Ok(admin)
    }

    /// Sends a request; returns the issued token, if any, and the answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: impl Into<Body>,
    ) -> Result<(String, Value), Failure> {
        let failed = |why: &dyn std::fmt::Display| {
            Failure::failed(&format!("--dev cannot prepare the cloud: {method} {path}"), why)
        };
        let mut request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::CONTENT_TYPE, kind)
            .header("x-auth-token", &self.token);
        if let Some((_, version)) = VERSIONS.iter().find(|(service, _)| path.starts_with(service)) {
            request = request.header("openstack-api-version", *version);
        }
        let request = request.body(body.into()).map_err(|e| failed(&e))?;
        let Ok(answer) = self.router.clone().oneshot(request).await;
        let status = answer.status();
        let token = answer.headers().get("x-subject-token").and_then(|value| value.to_str().ok());
        let token = token.unwrap_or_default().to_owned();
        let body = http_body_util::Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|e| failed(&e))?.to_bytes();
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            return Err(failed(&format!("{status}: {text}")));
        }
        Ok((token, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.send(Method::GET, path, "application/json", "").await?.1)
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, Failure> {
        Ok(self.send(Method::POST, path, "application/json", body.to_string()).await?.1)
    }

    /// Waits, for a limited time, until the hosts have registered.
    async fn wait_for(&self, hosts: usize) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let found = self.get("/compute/v2.1/os-hypervisors").await?;
            if found["hypervisors"].as_array().map_or(0, Vec::len) >= hosts {
                return Ok(());
            }
            if begun.elapsed() > HOSTS {
                tracing::warn!(
                    "not all hosts are up; --dev creates no profiles for devices of missing hosts"
                );
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The resource classes of the hosts' devices.
    async fn device_classes(&self) -> Result<BTreeSet<String>, Failure> {
        let listed = self.get("/accelerator/v2/deployables").await?;
        let mut classes = BTreeSet::new();
        for deployable in listed["deployables"].as_array().into_iter().flatten() {
            let Some(provider) = deployable["rp_uuid"].as_str() else { continue };
            let path = format!("/placement/resource_providers/{provider}/inventories");
            // The provider may have been deleted in the meantime.
            let Ok(found) = self.get(&path).await else { continue };
            let names = found["inventories"].as_object().into_iter().flat_map(|all| all.keys());
            classes.extend(names.filter(|name| !NOT_DEVICES.contains(&&***name)).cloned());
        }
        Ok(classes)
    }

    /// True if a resource of this name exists.
    async fn has(&self, resource: &Resource) -> Result<bool, Failure> {
        let (path, list, expected) = match resource {
            Resource::Flavor { name, .. } => {
                ("/compute/v2.1/flavors?is_public=None", "flavors", name.as_str())
            }
            Resource::Profile { name, .. } => {
                ("/accelerator/v2/device_profiles", "device_profiles", name.as_str())
            }
            Resource::Image => ("/image/v2/images", "images", IMAGE),
            Resource::Network => ("/network/v2.0/networks", "networks", NETWORK),
        };
        let found = self.get(path).await?;
        Ok(found[list].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == expected)))
    }

    async fn make(&self, resource: &Resource) -> Result<(), Failure> {
        match resource {
            Resource::Flavor { name, vcpus, ram, disk, profile } => {
                let flavor = json!({"name": name, "vcpus": vcpus, "ram": ram, "disk": disk});
                let made = self.post("/compute/v2.1/flavors", json!({"flavor": flavor})).await?;
                if let (Some(profile), Some(id)) = (profile, made["flavor"]["id"].as_str()) {
                    let specs = json!({"extra_specs": {"accel:device_profile": profile}});
                    let path = format!("/compute/v2.1/flavors/{id}/os-extra_specs");
                    self.post(&path, specs).await?;
                }
            }
            Resource::Profile { name, class } => {
                let group = json!({format!("resources:{class}"): "1"});
                let profile = json!([{"name": name, "groups": [group]}]);
                self.post("/accelerator/v2/device_profiles", profile).await?;
            }
            Resource::Image => self.image().await?,
            Resource::Network => {
                let network = json!({"network": {"name": NETWORK, "shared": true}});
                let made = self.post("/network/v2.0/networks", network).await?;
                let subnet = json!({"subnet": {
                    "name": format!("{NETWORK}-subnet"),
                    "network_id": made["network"]["id"],
                    "ip_version": 4,
                    "cidr": "10.0.0.0/24",
                }});
                self.post("/network/v2.0/subnets", subnet).await?;
            }
        }
        Ok(())
    }

    async fn image(&self) -> Result<(), Failure> {
        let image = json!({
            "name": IMAGE,
            "disk_format": "raw",
            "container_format": "bare",
            "visibility": "public",
        });
        let made = self.post("/image/v2/images", image).await?;
        let id = made["id"].as_str().unwrap_or_default();
        let path = format!("/image/v2/images/{id}/file");
        self.send(Method::PUT, &path, "application/octet-stream", image::disk()).await?;
        Ok(())
    }
}
