//! The assertions of upstream's tests, through public interfaces: allocations by the Placement API,
//! ARQs by the Cyborg API, devices by the guest's domain XML.
//!
//! It must not read the database: the checks cover what users can see.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Answer, Client, Cloud, RunningCloud};

/// Calls the Placement API.
pub async fn placement(running: &RunningCloud, what: &str, body: Option<Value>) -> Answer {
    call(&running.placement(), what, "placement 1.36", body).await
}

async fn call(client: &Client, what: &str, version: &str, body: Option<Value>) -> Answer {
    let (method, path) = what.split_once(' ').expect("the call is a method and a path");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", version)
        .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
        .expect("the request is valid");
    client.send(request).await
}

async fn get_placement(running: &RunningCloud, path: &str) -> Value {
    placement(running, &format!("GET {path}"), None).await.expect(200)
}

/// The provider of that name.
pub async fn provider(running: &RunningCloud, name: &str) -> Option<String> {
    let found = get_placement(running, &format!("/resource_providers?name={name}")).await;
    found["resource_providers"][0]["uuid"].as_str().map(str::to_owned)
}

/// Names of the providers of a host by their UUIDs, including the root.
pub async fn tree(running: &RunningCloud, host: &str) -> BTreeMap<String, String> {
    let root = provider(running, host).await.expect("the host has a provider");
    let found = get_placement(running, &format!("/resource_providers?in_tree={root}")).await;
    let all = found["resource_providers"].as_array().expect("the answer has a list").clone();
    let text = |value: &Value| value.as_str().expect("the value is a string").to_owned();
    all.iter().map(|one| (text(&one["uuid"]), text(&one["name"]))).collect()
}

/// The inventory of a class on the provider of that name.
pub async fn inventory(running: &RunningCloud, name: &str, class: &str) -> Value {
    let id = provider(running, name).await.expect("the provider exists");
    get_placement(running, &format!("/resource_providers/{id}/inventories")).await["inventories"]
        [class]
        .take()
}

/// Units of a class that are in use on the provider of that name.
pub async fn used(running: &RunningCloud, name: &str, class: &str) -> i64 {
    let id = provider(running, name).await.expect("the provider exists");
    let usages = get_placement(running, &format!("/resource_providers/{id}/usages")).await;
    usages["usages"][class].as_i64().unwrap_or_default()
}

/// Units of a class that are in use on all providers of a host.
pub async fn used_on(running: &RunningCloud, host: &str, class: &str) -> i64 {
    let mut units = 0;
    for name in tree(running, host).await.values() {
        units += used(running, name, class).await;
    }
    units
}

/// Checks that no provider of a host has an allocation.
pub async fn assert_no_allocations_on(running: &RunningCloud, host: &str) {
    for (id, name) in tree(running, host).await {
        let allocations_of =
            get_placement(running, &format!("/resource_providers/{id}/allocations")).await;
        assert_eq!(allocations_of["allocations"], json!({}), "{name}");
    }
}

/// The allocations of a consumer: amounts by provider.
pub async fn allocations_of(running: &RunningCloud, consumer: &str) -> BTreeMap<String, Value> {
    let found = get_placement(running, &format!("/allocations/{consumer}")).await;
    let all = found["allocations"].as_object().expect("the value is an object").clone();
    all.into_iter().map(|(id, mut one)| (id, one["resources"].take())).collect()
}

/// The accelerator requests of a server, as the accelerator API shows them.
pub async fn arqs(running: &RunningCloud, server: &str) -> Vec<Value> {
    let (store, world) = (running.compute.store.clone(), running.compute.world.clone());
    let router = kilonova_wire::mount(
        kilonova_accelerator::routes(kilonova_accelerator::State::new(store, world)),
        kilonova_accelerator::service(),
        "/accelerator",
        Arc::new(kilonova_wire::noauth::NoAuth),
    );
    let what = format!("GET /v2/accelerator_requests?instance={server}");
    let found = call(&Client { router }, &what, "accelerator 2.0", None).await.expect(200);
    found["arqs"].as_array().expect("the answer has a list").clone()
}

/// A device in a guest's domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestDevice {
    /// `mdev`, `pci`, `test_pci`.
    pub kind: String,
    /// A mediated device's UUID, or an address.
    pub is: String,
    /// The parent device of a mediated device.
    pub parent: String,
    /// Its type.
    pub mdev_type: String,
}

/// The devices in the guest's domain on a host, sorted.
pub fn devices(cloud: &Cloud, host: &str, server: &str) -> Vec<GuestDevice> {
    let path = cloud.nodes().join(host).join(format!("domains/{server}.xml"));
    let xml = std::fs::read_to_string(path).expect("the domain XML exists");
    let mut seen: Vec<GuestDevice> = xml
        .lines()
        .filter_map(|line| line.trim().strip_prefix("<kilonova:device "))
        .map(|line| {
            let attribute = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}='")).unwrap_or_default();
                rest.split('\'').next().unwrap_or_default().to_owned()
            };
            let kind = attribute("kind");
            let is = attribute(if kind == "mdev" { "uuid" } else { "address" });
            GuestDevice { kind, is, parent: attribute("parent"), mdev_type: attribute("mdev_type") }
        })
        .collect();
    seen.sort();
    seen
}

async fn host_and_root(running: &RunningCloud, server: &Value) -> (String, String) {
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host").to_owned();
    let root = provider(running, &host).await.expect("the host has a provider");
    (host, root)
}

/// Checks that the server is allocated its flavor on the root provider and these devices on child
/// providers, and nothing else, and that its guest has one device per unit. Returns the child
/// providers, one for each unit.
pub async fn assert_holds(
    cloud: &Cloud,
    running: &RunningCloud,
    id: &str,
    wanted: &[(&str, i64)],
) -> Vec<String> {
    let server = running.server(id).await;
    let (host, root) = host_and_root(running, &server).await;
    let tree = tree(running, &host).await;
    let mut held = allocations_of(running, id).await;
    let flavor = &server["flavor"];
    let plain = json!({
        "VCPU": flavor["vcpus"], "MEMORY_MB": flavor["ram"], "DISK_GB": flavor["disk"],
    });
    assert_eq!(held.remove(&root), Some(plain), "{server}");
    let mut units: BTreeMap<String, i64> = BTreeMap::new();
    let mut places = Vec::new();
    for (provider, amounts) in held {
        assert!(tree.contains_key(&provider), "{provider} does not belong to {host}");
        for (class, amount) in amounts.as_object().expect("the value is an object") {
            let amount = amount.as_i64().expect("the value is a number");
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

/// [`assert_holds`] for the only server of a cloud, with devices from a profile: its ARQs are bound to
/// its child providers, its guest has their handles, and no other host has allocations. Returns the
/// ARQs.
pub async fn assert_bound(
    cloud: &Cloud,
    running: &RunningCloud,
    id: &str,
    wanted: &[(&str, i64)],
) -> Vec<Value> {
    let mut places = assert_holds(cloud, running, id, wanted).await;
    let server = running.server(id).await;
    let (host, _) = host_and_root(running, &server).await;
    let arqs = arqs(running, id).await;
    let mut bound = Vec::new();
    let mut handles = Vec::new();
    for arq in &arqs {
        assert_eq!(
            (&arq["state"], &arq["hostname"], &arq["instance_uuid"]),
            (&json!("Bound"), &json!(host), &json!(id))
        );
        bound.push(arq["device_rp_uuid"].as_str().expect("the provider exists").to_owned());
        handles.push(handle_in_domain(arq));
    }
    places.sort();
    bound.sort();
    handles.sort();
    assert_eq!(bound, places, "{arqs:#?}");
    let mut guest: Vec<String> =
        devices(cloud, &host, id).into_iter().map(|seen| seen.is).collect();
    guest.sort();
    assert_eq!(guest, handles, "{arqs:#?}");
    for other in cloud.topology.hosts.iter().filter(|other| *other.name != *host) {
        assert_no_allocations_on(running, &other.name).await;
    }
    arqs
}

/// The name of an ARQ's handle in the domain XML.
fn handle_in_domain(arq: &Value) -> String {
    let text = |value: &Value| value.as_str().expect("the value is a string").to_owned();
    let info = &arq["attach_handle_info"];
    if arq["attach_handle_type"] == "MDEV" {
        return text(&arq["attach_handle_uuid"]);
    }
    let [domain, bus, device, function] =
        ["domain", "bus", "device", "function"].map(|part| text(&info[part]));
    format!("{domain}:{bus}:{device}.{function}")
}

/// Checks that the server has no allocation and no ARQ.
pub async fn assert_no_claims(running: &RunningCloud, id: &str) {
    assert_eq!(allocations_of(running, id).await, BTreeMap::new());
    assert_eq!(arqs(running, id).await, Vec::<Value>::new());
}

/// Checks that the ARQs and their handles are unchanged.
pub fn assert_same_handles(before: &[Value], after: &[Value]) {
    let parts = |all: &[Value]| -> Vec<(Value, Value)> {
        all.iter().map(|arq| (arq["uuid"].clone(), arq["attach_handle_uuid"].clone())).collect()
    };
    assert_eq!(parts(before), parts(after));
}
