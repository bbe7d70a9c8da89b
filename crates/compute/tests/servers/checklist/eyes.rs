//! What upstream's tests look at, through the APIs that users have: allocations by Placement,
//! accelerator requests by Cyborg's, and the devices in the guest's domain on its host.
//!
//! It must not look into the database: what a user cannot see proves nothing here.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Answer, Client, Cloud, Up};

/// Calls the Placement API.
pub async fn placement(up: &Up, what: &str, body: Option<Value>) -> Answer {
    call(&up.placement(), what, "placement 1.36", body).await
}

async fn call(client: &Client, what: &str, version: &str, body: Option<Value>) -> Answer {
    let (method, path) = what.split_once(' ').expect("a method and a path");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", version)
        .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
        .expect("a request");
    client.send(request).await
}

async fn look(up: &Up, path: &str) -> Value {
    placement(up, &format!("GET {path}"), None).await.expect(200)
}

/// The provider of that name.
pub async fn provider(up: &Up, name: &str) -> Option<String> {
    let found = look(up, &format!("/resource_providers?name={name}")).await;
    found["resource_providers"][0]["uuid"].as_str().map(str::to_owned)
}

/// Names of the providers of a host by their uuids, the root's included.
pub async fn tree(up: &Up, host: &str) -> BTreeMap<String, String> {
    let root = provider(up, host).await.expect("a host's provider");
    let found = look(up, &format!("/resource_providers?in_tree={root}")).await;
    let all = found["resource_providers"].as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    all.iter().map(|one| (text(&one["uuid"]), text(&one["name"]))).collect()
}

/// The inventory that the provider of that name has of a class.
pub async fn inventory(up: &Up, name: &str, class: &str) -> Value {
    let id = provider(up, name).await.expect("a provider");
    look(up, &format!("/resource_providers/{id}/inventories")).await["inventories"][class].take()
}

/// Units of a class that are in use on the provider of that name.
pub async fn used(up: &Up, name: &str, class: &str) -> i64 {
    let id = provider(up, name).await.expect("a provider");
    let usages = look(up, &format!("/resource_providers/{id}/usages")).await;
    usages["usages"][class].as_i64().unwrap_or_default()
}

/// Units of a class that are in use on all providers of a host.
pub async fn used_on(up: &Up, host: &str, class: &str) -> i64 {
    let mut units = 0;
    for name in tree(up, host).await.values() {
        units += used(up, name, class).await;
    }
    units
}

/// Nobody holds anything on any provider of a host.
pub async fn nothing_on(up: &Up, host: &str) {
    for (id, name) in tree(up, host).await {
        let held = look(up, &format!("/resource_providers/{id}/allocations")).await;
        assert_eq!(held["allocations"], json!({}), "{name}");
    }
}

/// What a consumer holds: by provider, the amounts.
pub async fn held(up: &Up, consumer: &str) -> BTreeMap<String, Value> {
    let found = look(up, &format!("/allocations/{consumer}")).await;
    let all = found["allocations"].as_object().expect("an object").clone();
    all.into_iter().map(|(id, mut one)| (id, one["resources"].take())).collect()
}

/// The accelerator requests of a server, as the accelerator API shows them.
pub async fn arqs(up: &Up, server: &str) -> Vec<Value> {
    let (store, world) = (up.compute.store.clone(), up.compute.world.clone());
    let router = kilonova_wire::mount(
        kilonova_accelerator::routes(kilonova_accelerator::State::new(store, world)),
        kilonova_accelerator::service(),
        "/accelerator",
        Arc::new(kilonova_wire::noauth::NoAuth),
    );
    let what = format!("GET /v2/accelerator_requests?instance={server}");
    let found = call(&Client { router }, &what, "accelerator 2.0", None).await.expect(200);
    found["arqs"].as_array().expect("a list").clone()
}

/// A device in a guest's domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// `mdev`, `pci`, `test_pci`.
    pub kind: String,
    /// A mediated device's uuid, or an address.
    pub is: String,
    /// What a mediated device is made on.
    pub parent: String,
    /// Its type.
    pub mdev_type: String,
}

/// The devices in the guest's domain on a host, sorted.
pub fn devices(cloud: &Cloud, host: &str, server: &str) -> Vec<Seen> {
    let path = cloud.nodes().join(host).join(format!("domains/{server}.xml"));
    let xml = std::fs::read_to_string(path).expect("a domain");
    let mut seen: Vec<Seen> = xml
        .lines()
        .filter_map(|line| line.trim().strip_prefix("<kilonova:device "))
        .map(|line| {
            let attribute = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}='")).unwrap_or_default();
                rest.split('\'').next().unwrap_or_default().to_owned()
            };
            let kind = attribute("kind");
            let is = attribute(if kind == "mdev" { "uuid" } else { "address" });
            Seen { kind, is, parent: attribute("parent"), mdev_type: attribute("mdev_type") }
        })
        .collect();
    seen.sort();
    seen
}

async fn host_and_root(up: &Up, server: &Value) -> (String, String) {
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("a host").to_owned();
    let root = provider(up, &host).await.expect("a host's provider");
    (host, root)
}

/// The server holds its flavor on its host's root, these devices on children of it, and nothing
/// else; each unit is a device in its guest. Returns the children, one for each unit.
pub async fn holds(cloud: &Cloud, up: &Up, id: &str, wanted: &[(&str, i64)]) -> Vec<String> {
    let server = up.server(id).await;
    let (host, root) = host_and_root(up, &server).await;
    let tree = tree(up, &host).await;
    let mut held = held(up, id).await;
    let flavor = &server["flavor"];
    let plain = json!({
        "VCPU": flavor["vcpus"], "MEMORY_MB": flavor["ram"], "DISK_GB": flavor["disk"],
    });
    assert_eq!(held.remove(&root), Some(plain), "{server}");
    let mut units: BTreeMap<String, i64> = BTreeMap::new();
    let mut places = Vec::new();
    for (provider, amounts) in held {
        assert!(tree.contains_key(&provider), "{provider} is not of {host}");
        for (class, amount) in amounts.as_object().expect("an object") {
            let amount = amount.as_i64().expect("a number");
            *units.entry(class.clone()).or_default() += amount;
            places.extend((0..amount).map(|_| provider.clone()));
        }
    }
    let wanted: BTreeMap<String, i64> =
        wanted.iter().map(|(class, units)| ((*class).to_owned(), *units)).collect();
    assert_eq!(units, wanted, "{server}");
    assert_eq!(devices(cloud, &host, id).len(), places.len(), "{server}");
    places
}

/// [`holds`], of a server whose devices come from a profile and which is alone: its requests are
/// bound to the children that it holds, the handles are what is in its guest, and nobody holds
/// anything on other hosts. Returns the requests.
pub async fn has(cloud: &Cloud, up: &Up, id: &str, wanted: &[(&str, i64)]) -> Vec<Value> {
    let mut places = holds(cloud, up, id, wanted).await;
    let server = up.server(id).await;
    let (host, _) = host_and_root(up, &server).await;
    let arqs = arqs(up, id).await;
    let mut bound = Vec::new();
    let mut handles = Vec::new();
    for arq in &arqs {
        assert_eq!(
            (&arq["state"], &arq["hostname"], &arq["instance_uuid"]),
            (&json!("Bound"), &json!(host), &json!(id))
        );
        bound.push(arq["device_rp_uuid"].as_str().expect("a provider").to_owned());
        handles.push(handle(arq));
    }
    places.sort();
    bound.sort();
    handles.sort();
    assert_eq!(bound, places, "{arqs:#?}");
    let mut guest: Vec<String> =
        devices(cloud, &host, id).into_iter().map(|seen| seen.is).collect();
    guest.sort();
    assert_eq!(guest, handles, "{arqs:#?}");
    for other in cloud.topology.hosts.iter().filter(|other| other.name != host) {
        nothing_on(up, &other.name).await;
    }
    arqs
}

/// What a request's handle is called in the guest's domain.
fn handle(arq: &Value) -> String {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let info = &arq["attach_handle_info"];
    if arq["attach_handle_type"] == "MDEV" {
        return text(&arq["attach_handle_uuid"]);
    }
    let [domain, bus, device, function] =
        ["domain", "bus", "device", "function"].map(|part| text(&info[part]));
    format!("{domain}:{bus}:{device}.{function}")
}

/// The server has no allocation and no accelerator request.
pub async fn has_nothing(up: &Up, id: &str) {
    assert_eq!(held(up, id).await, BTreeMap::new());
    assert_eq!(arqs(up, id).await, Vec::<Value>::new());
}

/// The requests, and the handles that they own, are the same as before.
pub fn same(before: &[Value], after: &[Value]) {
    let parts = |all: &[Value]| -> Vec<(Value, Value)> {
        all.iter().map(|arq| (arq["uuid"].clone(), arq["attach_handle_uuid"].clone())).collect()
    };
    assert_eq!(parts(before), parts(after));
}
