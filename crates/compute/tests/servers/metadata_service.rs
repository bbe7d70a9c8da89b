//! The metadata service behind Neutron's proxies: authentication, contents, passwords and caching.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use kilonova_compute_app::Compute;
use kilonova_compute_app::metadata_service::{MetadataOptions, MetadataService};
use kilonova_compute_nodes::{Link, api as nodes};
use kilonova_ids::{HostName, ServerId};
use kilonova_store::testing::Meter;
use kilonova_wire::noauth::NoAuth;
use ring::hmac;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::kit::{ANN, BOB, Client, Cloud, RunningCloud, hosts};

const SECRET: &str = "proxies know it";

/// Names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// A proxy of the external Neutron.
pub struct Proxy(Router);

pub struct Told {
    pub status: u16,
    pub kind: String,
    pub text: String,
}

fn sign(server: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, server.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Proxy {
    pub fn of(running: &RunningCloud) -> Self {
        Self::with(running, MetadataOptions::default())
    }

    pub fn with(running: &RunningCloud, options: MetadataOptions) -> Self {
        let service = MetadataService::new(running.compute.clone(), options);
        Self(kilonova_compute::api::metadata_service::routes(service, SECRET))
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Told {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("the request is valid");
        let Ok(answer) = self.0.clone().oneshot(request).await;
        let status = answer.status().as_u16();
        let kind = answer.headers()["content-type"].to_str().expect("the type is text").to_owned();
        let content = answer.into_body().collect().await.expect("the body is complete").to_bytes();
        Told { status, kind, text: String::from_utf8(content.to_vec()).expect("the body is text") }
    }

    /// Sends a request as Neutron's proxy does for a guest of Ann's project.
    async fn ask(&self, method: Method, server: &str, path: &str, body: &str) -> Told {
        let signature = sign(server);
        let headers = [
            ("x-instance-id", server),
            ("x-instance-id-signature", &*signature),
            ("x-tenant-id", "red"),
            ("x-forwarded-for", "198.51.100.9, 192.0.2.1"),
        ];
        self.send(method, path, &headers, body).await
    }

    pub async fn get(&self, server: &str, path: &str) -> Told {
        self.ask(Method::GET, server, path, "").await
    }

    pub async fn meta_data(&self, server: &str) -> Value {
        let told = self.get(server, "/openstack/latest/meta_data.json").await;
        assert_eq!((told.status, &*told.kind), (200, "application/json"), "{}", told.text);
        serde_json::from_str(&told.text).expect("the body is JSON")
    }
}

#[tokio::test]
async fn a_guest_is_told_what_its_server_is() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let more = json!({
            "user_data": "I2Nsb3VkLWNvbmZpZwo=", "metadata": {"role": "front"},
            "hostname": "front-one",
        });
        let id = running.boot_with(&cloud, "One", "plain", more).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let other = running.active_server(&cloud, "two", "plain").await;
        let proxy = Proxy::of(&running);
        let data = proxy.meta_data(&id).await;
        assert_eq!((&data["uuid"], &data["name"]), (&json!(id), &json!("One")));
        assert_eq!((&data["meta"]["role"], &data["project_id"]), (&json!("front"), &json!("red")));
        assert_eq!(data["hostname"], "front-one.novalocal");
        assert_eq!(data["availability_zone"], "nova");
        let seed = data["random_seed"].as_str().expect("the seed is text").to_owned();
        assert_eq!(seed.len(), 684, "512 bytes in base64");
        assert_ne!(proxy.meta_data(&id).await["random_seed"], json!(seed), "each is fresh");
        let text = async |server: &str, path: &str| proxy.get(server, path).await.text;
        assert_eq!(text(&id, "/openstack/latest/user_data").await, "#cloud-config\n");
        assert_eq!(text(&id, "/latest/user-data/").await, "#cloud-config\n");
        assert_eq!(text(&id, "/latest/meta-data/local-ipv4").await, "198.51.100.9");
        // Images are numbered in the order of the guests' requests; an image keeps its number.
        assert_eq!(text(&id, "/latest/meta-data/ami-id").await, "ami-00000001");
        assert_eq!(text(&other, "/latest/meta-data/ami-id").await, "ami-00000001");
        let number = text(&id, "/latest/meta-data/instance-id").await;
        let shown = running.server(&id).await;
        let name = shown["OS-EXT-SRV-ATTR:instance_name"].as_str().expect("an admin sees the name");
        assert_eq!(number, name.replace("instance-", "i-"));
        let type_of = proxy.get(&id, "/latest/meta-data/instance-type").await;
        assert_eq!((&*type_of.kind, &*type_of.text), ("text/plain; charset=UTF-8", "plain"));
        cloud.audit("after the questions").await;
    }
}

#[tokio::test]
async fn a_guest_with_ports_is_told_its_addresses_and_groups() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let network = running.network_with_subnet(ANN, "lan", "10.7.0.0/24").await;
        let port = running.port(ANN, &network, json!({})).await;
        let more = json!({"networks": [{"port": port, "tag": "front"}]});
        let id = running.boot_with(&cloud, "one", "plain", more).await;
        running.wait_for_status(&id, "ACTIVE").await;
        let proxy = Proxy::of(&running);
        let shown = running.show_port(&port).await;
        let address =
            shown["fixed_ips"][0]["ip_address"].as_str().expect("the port has an address");
        assert_eq!(proxy.get(&id, "/latest/meta-data/local-ipv4").await.text, address);
        assert_eq!(proxy.get(&id, "/latest/meta-data/security-groups").await.text, "default");
        let told = proxy.get(&id, "/openstack/latest/network_data.json").await;
        let data: Value = serde_json::from_str(&told.text).expect("the body is JSON");
        assert_eq!(data["links"][0]["vif_id"], json!(port));
        assert_eq!(data["networks"][0]["network_id"], json!(network));
        assert_eq!(proxy.meta_data(&id).await["devices"][0]["tags"], json!(["front"]));
    }
}

#[tokio::test]
async fn nobody_is_answered_without_a_proof() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let proxy = Proxy::of(&running);
        let signature = sign(&id);
        let (upper, other) = (signature.to_uppercase(), sign("another"));
        let (a, b, c) = (
            ("x-instance-id", &*id),
            ("x-instance-id-signature", &*signature),
            ("x-tenant-id", "red"),
        );
        let signed = |signature| ("x-instance-id-signature", signature);
        let unknown = ServerId::new_v4().to_string();
        let of_unknown = sign(&unknown);
        let no_server = sign("../../etc");
        let cases: &[(Headers<'_>, u16, &str)] = &[
            (&[b, c], 400, "X-Instance-ID header is missing from request."),
            (&[a, c], 400, "X-Instance-ID-Signature header is missing from request."),
            (&[a, b], 400, "X-Tenant-ID header is missing from request."),
            (&[a, a, b, c], 400, "Multiple X-Instance-ID headers found within request."),
            (&[a, b, c, c], 400, "Multiple X-Tenant-ID headers found within request."),
            (&[a, b, b, c], 403, "Invalid proxy request signature."),
            (&[a, signed(""), c], 403, "Invalid proxy request signature."),
            (&[a, signed(&signature[..62]), c], 403, "Invalid proxy request signature."),
            (&[a, signed("not hexadecimal"), c], 403, "Invalid proxy request signature."),
            (&[a, signed(&upper), c], 403, "Invalid proxy request signature."),
            (&[a, signed(&other), c], 403, "Invalid proxy request signature."),
            (&[a, b, ("x-tenant-id", "blue")], 404, "The resource could not be found."),
            (
                &[("x-instance-id", &unknown), signed(&of_unknown), c],
                404,
                "The resource could not be found.",
            ),
            (
                &[("x-instance-id", "../../etc"), signed(&no_server), c],
                404,
                "The resource could not be found.",
            ),
        ];
        for (headers, status, text) in cases {
            for method in [Method::GET, Method::POST] {
                let path = "/openstack/latest/password";
                let told = proxy.send(method, path, headers, "stolen").await;
                assert_eq!((told.status, &*told.text), (*status, *text), "{headers:?}");
                assert_eq!(told.kind, "text/plain; charset=UTF-8");
            }
        }
        assert_eq!(
            proxy.get(&id, "/openstack/latest/password").await.text,
            "",
            "nothing is stored"
        );
        assert_eq!(proxy.get(&id, "/openstack/1999-01-01").await.status, 404);
        let versions = proxy.send(Method::GET, "/", &[], "").await;
        assert_eq!((versions.status, versions.text.lines().last()), (200, Some("latest")));
    }
}

#[tokio::test]
async fn a_guest_sets_its_password_once_and_its_owner_reads_and_removes_it() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let proxy = Proxy::of(&running);
        let path = "/openstack/2013-04-04/password";
        let post = async |text: &str| {
            let told = proxy.ask(Method::POST, &id, path, text).await;
            (told.status, told.text)
        };
        let api = format!("/servers/{id}/os-server-password");
        assert_eq!(running.get(ANN, "2.1", &api).await.expect(200), json!({"password": ""}));
        let large = (400, "Request is too large.".to_owned());
        assert_eq!(post(&"x".repeat(1021)).await, large);
        assert_eq!(post("a\0b").await.0, 400);
        let put = proxy.ask(Method::PUT, &id, path, "x").await;
        assert_eq!((put.status, &*put.text), (400, "GET and POST only are supported."));
        let password = "é".repeat(510);
        assert_eq!(post(&password).await, (200, String::new()));
        assert_eq!(proxy.get(&id, path).await.text, password);
        assert_eq!(post("another").await.0, 409);
        assert_eq!(post(&"x".repeat(1021)).await.0, 409, "the conflict is found first, as in Nova");
        assert_eq!(
            proxy.ask(Method::POST, &id, "/openstack/2012-08-10/password", "").await.status,
            404
        );
        assert_eq!(running.get(ANN, "2.1", &api).await.expect(200), json!({"password": password}));
        running.get(BOB, "2.1", &api).await.expect(404);
        running.call(BOB, "2.1", &format!("DELETE {api}"), None).await.expect(404);
        running.call(ANN, "2.1", &format!("DELETE {api}"), None).await.expect(204);
        assert_eq!(proxy.get(&id, path).await.text, "");
        assert_eq!(post("again").await.0, 200);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.audit("after the server is gone").await;
    }
}

#[tokio::test]
async fn a_host_speaks_for_the_passwords_of_its_own_guests_alone() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let shown = running.server(&id).await;
        let at = shown["OS-EXT-SRV-ATTR:host"].as_str().expect("an admin sees the host").to_owned();
        let other = if at == "a" { "b" } else { "a" };
        let routes = nodes::routes(Link(running.compute.clone()));
        let router = kilonova_wire::mount(routes, nodes::service(), "/node", Arc::new(NoAuth));
        let client = Client { router };
        let epoch = |host: &str| {
            let entry = running.compute.fleet.by_name(&HostName::verbatim(host));
            entry.expect("the host is known").epoch()
        };
        let send = async |host: &str, epoch: i64, body: Value| {
            let request = Request::post(format!("/v1/hosts/{host}/guest_password?epoch={epoch}"))
                .header("host", "cloud:1234")
                .header("x-auth-token", "admin")
                .body(Body::from(body.to_string()));
            client.send(request.expect("the request is valid")).await
        };
        let here = async |body: Value| send(&at, epoch(&at), body).await;
        let (get, set) = (json!({"server": id}), json!({"server": id, "set": "secret"}));
        for body in [&get, &set] {
            let told = send(other, epoch(other), body.clone()).await.expect(200);
            assert_eq!(told, json!({"password": "no_server"}), "the guest is not on that host");
            send(&at, epoch(&at) - 1, body.clone()).await.expect(409);
        }
        assert_eq!(here(get.clone()).await.expect(200), json!({"password": "is", "text": ""}));
        for wrong in ["x".repeat(1021), "a\0b".to_owned()] {
            here(json!({"server": id, "set": wrong})).await.expect(422);
        }
        assert_eq!(here(set.clone()).await.expect(200), json!({"password": "stored"}));
        assert_eq!(here(set).await.expect(200), json!({"password": "exists"}));
        assert_eq!(
            here(get.clone()).await.expect(200),
            json!({"password": "is", "text": "secret"})
        );
        let shown = running.get(ANN, "2.1", &format!("/servers/{id}/os-server-password")).await;
        assert_eq!(shown.expect(200), json!({"password": "secret"}));
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_eq!(here(get).await.expect(200), json!({"password": "no_server"}));
    }
}

#[tokio::test]
async fn of_two_first_passwords_one_is_stored() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let proxy = Proxy::of(&running);
        let path = "/openstack/latest/password";
        let posts = (0..4).map(|number| {
            let (proxy, id) = (Proxy(proxy.0.clone()), id.clone());
            tokio::spawn(async move {
                proxy.ask(Method::POST, &id, path, &format!("number {number}")).await.status
            })
        });
        let posts: Vec<_> = posts.collect();
        let mut told = Vec::new();
        for post in posts {
            told.push(post.await.expect("the request ends"));
        }
        told.sort_unstable();
        assert_eq!(told, [200, 409, 409, 409]);
    }
}

/// A tenth of the 40,000 requests that 1,000 guests send while they boot.
#[tokio::test]
async fn a_burst_of_questions_waits_for_no_row() {
    const QUESTIONS: u64 = 4_000;
    const PATHS: [&str; 4] = [
        "/openstack/latest/meta_data.json",
        "/openstack/latest/network_data.json",
        "/latest/meta-data/",
        "/openstack/latest/user_data",
    ];
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let meter = Meter::listing();
        let store = running.compute.store.clone().with_meter(meter.clone());
        let compute = Compute { store, ..running.compute.clone() };
        let service = MetadataService::new(compute, MetadataOptions::default());
        let proxy = Proxy(kilonova_compute::api::metadata_service::routes(service, SECRET));
        proxy.meta_data(&id).await;
        let first = meter.take_transactions().len();
        assert!((1..=2).contains(&first), "rows of the server, and the number of its image");
        let begun = Instant::now();
        for number in 0..QUESTIONS {
            let path = PATHS[usize::try_from(number % 4).expect("a small number")];
            let status = proxy.get(&id, path).await.status;
            assert_eq!(status, if path.ends_with("user_data") { 404 } else { 200 });
        }
        let took = begun.elapsed();
        println!("{} us per request", took.as_micros() / u128::from(QUESTIONS));
        let reads = meter.take_transactions().len();
        let most = usize::try_from(took.as_secs() / 15 + 1).expect("a small number");
        assert!(reads <= most, "{reads} transactions in {took:?}");
    }
}

#[tokio::test]
async fn answers_come_from_memory_until_the_server_changes() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let proxy = Proxy::of(&running);
        assert!(proxy.meta_data(&id).await.get("meta").is_none());
        let change = json!({"metadata": {"role": "back"}});
        let what = format!("POST /servers/{id}/metadata");
        running.call(ANN, "2.1", &what, Some(change)).await.expect(200);
        let fresh = MetadataOptions { expiration: Duration::ZERO, ..MetadataOptions::default() };
        let uncached = Proxy::with(&running, fresh);
        assert_eq!(uncached.meta_data(&id).await["meta"]["role"], "back");
        // A new document for the host invalidates metadata that is more than a second old.
        running.act(&id, json!({"reboot": {"type": "HARD"}})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(proxy.meta_data(&id).await["meta"]["role"], "back");
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(proxy.get(&id, "/openstack/latest/meta_data.json").await.status, 404);
    }
}
