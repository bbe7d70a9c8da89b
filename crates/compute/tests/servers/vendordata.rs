//! Dynamic vendor data: the requests to the operator's services, and the answers to guests.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Request, StatusCode};
use kilonova_compute_app::metadata_service::MetadataOptions;
use kilonova_compute_app::vendordata::{DynamicVendordata, Target};
use kilonova_compute_nodes::{Link, api as nodes};
use kilonova_ids::HostName;
use kilonova_keystone::{Http, Login, Session};
use kilonova_testkit::glance::FakeGlance;
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};

use crate::kit::{ANN, Client, Cloud, RunningCloud, hosts};
use crate::servers::metadata_service::Proxy;

/// A service of the operator, with the requests that it received.
#[derive(Clone, Default)]
struct Service {
    asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    /// The status of its answers; 0 for an answer that is not JSON.
    status: Arc<AtomicU16>,
}

impl Service {
    async fn start(status: u16) -> (Self, String) {
        let service = Self::default();
        service.status.store(status, Ordering::SeqCst);
        let routes = Router::new().fallback(answer).with_state(service.clone());
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = socket.local_addr().expect("the socket has an address");
        tokio::spawn(async move { axum::serve(socket, routes).await });
        (service, format!("http://{address}/v?key=sesame"))
    }

    fn take(&self) -> Vec<(HeaderMap, Value)> {
        std::mem::take(&mut *self.asked.lock().expect("the lock is not poisoned"))
    }
}

async fn answer(State(service): State<Service>, headers: HeaderMap, body: String) -> Response {
    let body = serde_json::from_str(&body).expect("the body is JSON");
    service.asked.lock().expect("the lock is not poisoned").push((headers, body));
    match service.status.load(Ordering::SeqCst) {
        0 => "plainly".into_response(),
        204 => StatusCode::OK.into_response(),
        200 => axum::Json(json!({"zone": "a"})).into_response(),
        other => StatusCode::from_u16(other).expect("the status is valid").into_response(),
    }
}

/// The services, with the login of a Keystone if there is one.
fn services(
    targets: &[(&str, &str)],
    keystone: Option<&FakeGlance>,
    is_failure_fatal: bool,
) -> Arc<DynamicVendordata> {
    let http = || Http::plain(Duration::from_secs(20), 1 << 20).expect("the client is created");
    let session = keystone.map(|fake| {
        let login = Login {
            auth_url: fake.url().to_owned(),
            username: "kilonova".into(),
            password: "secret".into(),
            user_domain_name: "Default".into(),
            project_name: "service".into(),
            project_domain_name: "Default".into(),
        };
        Arc::new(Session::new(http(), login))
    });
    let target =
        |(name, url): &(&str, &str)| Target { name: (*name).to_owned(), url: (*url).to_owned() };
    let targets = targets.iter().map(target).collect();
    Arc::new(DynamicVendordata::new(targets, http(), session, is_failure_fatal))
}

/// A running cloud with these services.
async fn cloud_with(services: &Arc<DynamicVendordata>) -> Vec<(Cloud, RunningCloud)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(&[("a", &[]), ("b", &[])])).await {
        cloud.vendordata = Some(Arc::clone(services));
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running));
    }
    all
}

const PATH: &str = "/openstack/latest/vendor_data2.json";

#[tokio::test]
async fn a_guest_is_told_what_the_services_answer() {
    let (service, url) = Service::start(200).await;
    let (empty, nothing) = Service::start(204).await;
    let keystone = FakeGlance::start().await;
    let services = services(&[("ipam", &url), ("none", &nothing)], Some(&keystone), true);
    for (cloud, running) in cloud_with(&services).await {
        let more = json!({
            "user_data": "I2Nsb3VkLWNvbmZpZwo=", "metadata": {"role": "front"}, "hostname": "front",
        });
        let id = running.boot_with(&cloud, "One", "plain", more).await;
        running.wait_for_status(&id, "ACTIVE").await;
        assert!(service.take().is_empty(), "no request is sent before the guest's");
        let proxy = Proxy::of(&running);
        let told = proxy.get(&id, PATH).await;
        assert_eq!((told.status, &*told.kind), (200, "application/json"), "{}", told.text);
        let told: Value = serde_json::from_str(&told.text).expect("the body is JSON");
        assert_eq!(told, json!({"static": {}, "ipam": {"zone": "a"}, "none": {}}));
        let asked = service.take();
        let [(headers, body)] = &*asked else { panic!("{asked:?}") };
        assert_eq!(
            *body,
            json!({
                "project-id": "red", "instance-id": id, "image-id": cloud.image,
                "user-data": "I2Nsb3VkLWNvbmZpZwo=", "hostname": "front",
                "metadata": {"role": "front"}, "boot-roles": "member,reader",
            })
        );
        for (name, value) in [
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("user-agent", "openstack-nova-vendordata"),
        ] {
            assert_eq!(headers[name], value);
        }
        assert!(headers.contains_key("x-auth-token"), "the service can authenticate the caller");
        assert_eq!(empty.take().len(), 1);
        // The answers are cached together with the document.
        proxy.get(&id, PATH).await;
        proxy.get(&id, "/openstack/2016-10-06/vendor_data2.json").await;
        assert_eq!(proxy.get(&id, "/openstack/latest/vendor_data.json").await.text, "{}");
        proxy.get(&id, "/openstack/latest").await;
        assert!(service.take().is_empty());
        let fresh = MetadataOptions { expiration: Duration::ZERO, ..MetadataOptions::default() };
        Proxy::with(&running, fresh).get(&id, PATH).await;
        assert_eq!(service.take().len(), 1);
        empty.take();
        cloud.assert_consistent(&running, "with vendor data").await;
    }
}

#[tokio::test]
async fn a_failed_service_answers_nothing_or_the_guest_gets_an_error() {
    let (service, url) = Service::start(200).await;
    let (other, second) = Service::start(200).await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let nobody = format!("http://{}", free.local_addr().expect("the socket has an address"));
    drop(free);
    for (targets, status, fatal) in [
        (vec![("ipam", &*url), ("join", &*second)], 500, false),
        (vec![("ipam", &*url), ("join", &*second)], 0, false),
        (vec![("ipam", &*nobody), ("join", &*second)], 200, false),
        (vec![("ipam", &*url), ("join", &*second)], 404, true),
    ] {
        service.status.store(status, Ordering::SeqCst);
        let services = services(&targets, None, fatal);
        let (cloud, running) = cloud_with(&services).await.swap_remove(0);
        let id = running.active_server(&cloud, "one", "plain").await;
        let proxy = Proxy::of(&running);
        let told = proxy.get(&id, PATH).await;
        if fatal {
            let text = "An unknown error has occurred. Please try your request again.";
            assert_eq!((told.status, &*told.text), (500, text));
            assert_eq!(proxy.get(&id, "/openstack/latest/meta_data.json").await.status, 200);
        } else {
            let told: Value = serde_json::from_str(&told.text).expect("the body is JSON");
            assert_eq!(told, json!({"static": {}, "ipam": {}, "join": {"zone": "a"}}));
        }
        for (headers, _) in service.take().iter().chain(&other.take()) {
            assert!(!headers.contains_key("x-auth-token"), "no token without a login");
        }
    }
}

#[tokio::test]
async fn a_host_gets_the_answers_for_its_own_guests_alone() {
    let (service, url) = Service::start(200).await;
    let services = services(&[("ipam", &url)], None, true);
    for (cloud, running) in cloud_with(&services).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let shown = running.server(&id).await;
        let at = shown["OS-EXT-SRV-ATTR:host"].as_str().expect("an admin sees the host").to_owned();
        let other = if at == "a" { "b" } else { "a" };
        let server = id.parse().expect("the value is a UUID");
        let found = running.nodes.hypervisor(&at).domain(server).await.expect("it answers");
        let definition = found.expect("the domain is defined").definition();
        let guest = definition.expect("the data can be read").config.guest;
        assert!(guest.dynamic_vendordata, "the host knows about the services");
        let number = guest.images.machine.expect("the image has a number");
        let ami = Proxy::of(&running).get(&id, "/latest/meta-data/ami-id").await.text;
        assert_eq!(ami, format!("ami-{number:08x}"), "the host and the service agree");

        let routes = nodes::routes(Link(running.compute.clone()));
        let router = kilonova_wire::mount(routes, nodes::service(), "/node", Arc::new(NoAuth));
        let client = Client { router };
        let epoch = |host: &str| {
            let entry = running.compute.fleet.by_name(&HostName::verbatim(host));
            entry.expect("the host is known").epoch()
        };
        let send = async |host: &str, epoch: i64| {
            let request = Request::post(format!("/v1/hosts/{host}/vendordata?epoch={epoch}"))
                .header("host", "cloud:1234")
                .header("x-auth-token", "admin")
                .body(Body::from(json!({"server": id}).to_string()));
            client.send(request.expect("the request is valid")).await
        };
        service.take();
        let told = send(other, epoch(other)).await.expect(200);
        assert_eq!(told, json!({"vendordata": "no_server"}), "the guest is not on that host");
        send(&at, epoch(&at) - 1).await.expect(409);
        assert!(service.take().is_empty(), "no request is sent for another host's guest");
        let told = send(&at, epoch(&at)).await.expect(200);
        assert_eq!(told, json!({"vendordata": "are", "answers": {"ipam": {"zone": "a"}}}));
        service.status.store(500, Ordering::SeqCst);
        let told = send(&at, epoch(&at)).await.expect(200);
        assert_eq!(told, json!({"vendordata": "failed"}));
        service.status.store(200, Ordering::SeqCst);

        // A rebuilt server has the number of its new image.
        let image = cloud.image_with("other", &[], b"disk".to_vec()).await;
        running.act(&id, json!({"rebuild": {"imageRef": image}})).await;
        running.wait_all_idle().await;
        let found = running.nodes.hypervisor(&at).domain(server).await.expect("it answers");
        let definition = found.expect("the domain is defined").definition();
        let rebuilt = definition.expect("the data can be read").config.guest.images.machine;
        assert!(rebuilt.is_some_and(|rebuilt| rebuilt != number), "{rebuilt:?}");
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        let told = send(&at, epoch(&at)).await.expect(200);
        assert_eq!(told, json!({"vendordata": "no_server"}));
        running.get(ANN, "2.1", "/servers").await.expect(200);
    }
}
