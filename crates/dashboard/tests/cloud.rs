//! A cloud in this process: the services, each under a path with its name as in `kilonova serve`, and two dashboards
//! that share a key, as on two controllers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use kilonova_cinder::Cinder;
use kilonova_compute_app::Compute;
use kilonova_compute_app::managed_consumers::Servers;
use kilonova_compute_app::volumes::{VolumeOptions, Volumes};
use kilonova_compute_nodes::Link;
use kilonova_dashboard::{Dashboard, Parts, Policies};
use kilonova_identity::Identity;
use kilonova_image::Images;
use kilonova_keystone::{Endpoint, Http, Login, Retries, Service, Session};
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_placement::{Placement, World};
use kilonova_seal::SealKey;
use kilonova_store::Store;
use kilonova_testkit::Guard;
use kilonova_testkit::cinder::FakeCinder;
use kilonova_wire::{Authenticator, mount};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

const HOSTS: &str = r#"
[card.m10]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 4 }]
[[host]]
name = "h1"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
card = [{ card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
[[host]]
name = "h2"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
"#;

/// The password of every user.
pub const PASSWORD: &str = "a <secret> & more";

pub struct Cloud {
    pub store: &'static str,
    pub database: Store,
    /// The services and the dashboards of two controllers.
    pub controllers: [Router; 2],
    pub dashboards: [Dashboard; 2],
    pub image: String,
    pub network: String,
    services: Router,
    compute: Compute,
    token: String,
    stop: watch::Sender<bool>,
    folder: tempfile::TempDir,
    _guard: Guard,
}

pub async fn clouds() -> Vec<Cloud> {
    let mut clouds = Vec::new();
    for (name, store, guard) in stores().await {
        clouds.push(open(name, store, guard, None).await);
    }
    clouds
}

/// Clouds with a fake Cinder each.
pub async fn clouds_with_cinder() -> Vec<(Cloud, FakeCinder)> {
    let mut clouds = Vec::new();
    for (name, store, guard) in stores().await {
        let cinder = FakeCinder::start().await;
        clouds.push((open(name, store, guard, Some(&cinder)).await, cinder));
    }
    clouds
}

async fn stores() -> Vec<(&'static str, Store, Guard)> {
    kilonova_testkit::log();
    let migrations = [
        kilonova_identity::MIGRATIONS,
        kilonova_image::MIGRATIONS,
        kilonova_network::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
        kilonova_accelerator::MIGRATIONS,
        kilonova_flow::MIGRATIONS,
        kilonova_compute_db::MIGRATIONS[0],
        kilonova_compute_db::MIGRATIONS[1],
    ];
    let mut clouds = Vec::new();
    for (name, store, guard) in kilonova_testkit::stores(&migrations).await {
        clouds.push((name, store, guard));
    }
    clouds
}

/// The client of a fake Cinder, with pauses that are short enough for tests.
fn volumes_of(fake: &FakeCinder) -> Volumes {
    let session = || {
        let http = Http::plain(Duration::from_secs(20), 1 << 20).unwrap();
        let login = Login {
            auth_url: fake.url(),
            username: "kilonova".into(),
            password: "secret".into(),
            user_domain_name: "Default".into(),
            project_name: "service".into(),
            project_domain_name: "Default".into(),
        };
        Arc::new(Session::new(http, login))
    };
    let endpoint = Endpoint {
        service_types: vec!["block-storage".into()],
        interfaces: vec!["public".into()],
        ..Endpoint::default()
    };
    let service = Service::new(session(), endpoint, Retries::default()).vouched_by(session());
    let client = Cinder::new(service, None).pausing(Duration::from_millis(1));
    Volumes::new(client, VolumeOptions { pause: Duration::from_millis(5), ..Default::default() })
}

async fn open(
    name: &'static str,
    store: Store,
    guard: Guard,
    cinder: Option<&FakeCinder>,
) -> Cloud {
    let folder = tempfile::tempdir().unwrap();
    let database = store.clone();
    let world = World::new();
    world.load(&store).await.unwrap();
    let images = Images::open(store.clone(), &folder.path().join("images")).await.unwrap();
    let compute = Compute::open(store.clone(), world.clone()).await.unwrap();
    let compute = compute.with_images(images.clone());
    let compute = match cinder {
        Some(fake) => compute.with_cinder(volumes_of(fake)),
        None => compute,
    };
    let lease = kilonova_flow::Lease::new("loops", "test", Duration::from_secs(86_400));
    assert!(lease.renew(&store).await.unwrap());
    kilonova_compute_app::reconcile::start(&compute, &lease);
    let cheap = argon2::Params::new(8, 1, 1, None).unwrap();
    let options = kilonova_identity::IdentityOptions { hash_cost: cheap, ..Default::default() };
    let keys = kilonova_identity::TokenKeys::in_memory().unwrap();
    let identity = Identity::open(store.clone(), keys, options).await.unwrap();
    identity.bootstrap(PASSWORD).await.unwrap();
    let accelerator = kilonova_accelerator::State::new(store.clone(), world.clone())
        .with_nodes(Arc::new(compute.clone()));
    let policy = kilonova_placement::policy(&[], Default::default()).unwrap();
    let networks = kilonova_network::Networks::new(store.clone());
    let manager = Some(Arc::new(Servers::new(Some(compute.clone()))) as _);
    let policies = Policies {
        accelerator: accelerator.policy().clone(),
        image: images.policy().clone(),
        network: networks.policy().clone(),
    };
    let placement = Placement { store, world, policy: Arc::new(policy), manager };
    let auth: Arc<dyn Authenticator> = Arc::new(identity.clone());
    let put = |routes, service, prefix: &str| mount(routes, service, prefix, Arc::clone(&auth));
    let services = Router::new()
        .nest(
            "/compute",
            put(kilonova_compute::routes(compute.clone()), kilonova_compute::service(), "/compute"),
        )
        .nest(
            "/placement",
            put(kilonova_placement::routes(placement), kilonova_placement::service(), "/placement"),
        )
        .nest(
            "/accelerator",
            put(
                kilonova_accelerator::routes(accelerator),
                kilonova_accelerator::service(),
                "/accelerator",
            ),
        )
        .nest(
            "/identity",
            put(kilonova_identity::routes(identity), kilonova_identity::service(), "/identity"),
        )
        .nest("/image", put(kilonova_image::routes(images), kilonova_image::service(), "/image"))
        .nest(
            "/network",
            put(kilonova_network::routes(networks), kilonova_network::service(), "/network"),
        );
    let line = SealKey::generate().unwrap().line();
    let dashboard = || {
        Dashboard::new(Parts {
            services: services.clone(),
            auth: Arc::clone(&auth),
            compute: compute.clone(),
            policies: policies.clone(),
            key: line.parse().unwrap(),
        })
    };
    let pages = |dashboard: &Dashboard| {
        let routes = kilonova_dashboard::routes(dashboard.clone());
        services.clone().nest(kilonova_dashboard::PATH, routes)
    };
    let (one, two) = (dashboard(), dashboard());
    let controllers = [pages(&one), pages(&two)];
    let (stop, _) = watch::channel(false);
    let mut cloud = Cloud {
        store: name,
        database,
        controllers,
        dashboards: [one, two],
        image: String::new(),
        network: String::new(),
        services,
        compute,
        token: String::new(),
        stop,
        folder,
        _guard: guard,
    };
    cloud.add_hosts(HOSTS).await;
    cloud.create_resources().await;
    cloud
}

impl Cloud {
    /// Starts simulated hosts, and waits until they are registered.
    pub async fn add_hosts(&self, topology: &str) {
        let topology = Topology::parse(topology, Path::new("test.toml")).unwrap();
        for host in &topology.hosts {
            let node = Node::simulated(host, self.folder.path()).unwrap();
            let run = node.run(Arc::new(Link(self.compute.clone())), self.stop.subscribe());
            tokio::spawn(async move { drop(run.await) });
            while self.compute.fleet.by_name(&host.name).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Creates the resources that a server needs, and the users `ann` (member of red), `rob` (reader of red), `bea`
    /// (member of blue and of red) and `nob` (without roles).
    async fn create_resources(&mut self) {
        self.token = self.login("admin", "admin").await;
        let image = json!({"name": "hello", "disk_format": "raw", "container_format": "bare",
            "visibility": "public"});
        let made = self.post("/image/v2/images", image).await;
        self.image = made["id"].as_str().unwrap().to_owned();
        let path = format!("/image/v2/images/{}/file", self.image);
        self.send(Method::PUT, &path, "application/octet-stream", Body::from("boot me")).await;
        for (name, ram, specs) in [
            ("tiny", 64, json!({})),
            ("vgpu", 128, json!({"resources:VGPU": "1"})),
            ("greedy", 256, json!({"resources:VGPU": "40"})),
        ] {
            let flavor = json!({"flavor": {"name": name, "id": format!("f-{name}"), "vcpus": 1,
                "ram": ram, "disk": 1}});
            self.post("/compute/v2.1/flavors", flavor).await;
            if specs != json!({}) {
                let path = format!("/compute/v2.1/flavors/f-{name}/os-extra_specs");
                self.post(&path, json!({"extra_specs": specs})).await;
            }
        }
        let network = json!({"network": {"name": "private", "shared": true}});
        let made = self.post("/network/v2.0/networks", network).await;
        self.network = made["network"]["id"].as_str().unwrap().to_owned();
        let subnet = json!({"subnet": {"network_id": self.network, "ip_version": 4,
            "cidr": "192.0.2.0/24"}});
        self.post("/network/v2.0/subnets", subnet).await;
        let mut projects = Vec::new();
        for name in ["red", "blue"] {
            let made = self.post("/identity/v3/projects", json!({"project": {"name": name}})).await;
            projects.push(made["project"]["id"].as_str().unwrap().to_owned());
        }
        let quota = json!({"quota_set": {"instances": -1, "cores": -1, "ram": -1}});
        let path = format!("/compute/v2.1/os-quota-sets/{}", projects[0]);
        self.send(Method::PUT, &path, "application/json", Body::from(quota.to_string())).await;
        let roles = self.get("/identity/v3/roles").await;
        let role = |name: &str| {
            let all = roles["roles"].as_array().unwrap();
            let found = all.iter().find(|role| role["name"] == name).unwrap();
            found["id"].as_str().unwrap().to_owned()
        };
        for (user, grants) in [
            ("ann", vec![("member", &projects[0])]),
            ("rob", vec![("reader", &projects[0])]),
            ("bea", vec![("member", &projects[1]), ("member", &projects[0])]),
            ("nob", vec![]),
        ] {
            let made = json!({"user": {"name": user, "password": PASSWORD}});
            let made = self.post("/identity/v3/users", made).await;
            let id = made["user"]["id"].as_str().unwrap();
            for (name, project) in grants {
                let role = role(name);
                let path = format!("/identity/v3/projects/{project}/users/{id}/roles/{role}");
                self.send(Method::PUT, &path, "application/json", Body::empty()).await;
            }
        }
    }

    /// A token of a user in a project.
    pub async fn login(&self, user: &str, project: &str) -> String {
        let domain = json!({"name": "Default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": user, "password": PASSWORD, "domain": domain}}},
            "scope": {"project": {"name": project, "domain": domain}},
        }});
        let request = Request::post("/identity/v3/auth/tokens")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let answer = self.services.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 201, "{user} logs in to {project}");
        answer.headers()["x-subject-token"].to_str().unwrap().to_owned()
    }

    pub async fn send(&self, method: Method, path: &str, media: &str, body: Body) -> Value {
        self.send_as(&self.token, method, path, media, body).await
    }

    pub async fn send_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        media: &str,
        body: Body,
    ) -> Value {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("content-type", media)
            .header("x-auth-token", token);
        if path.starts_with("/compute/") {
            request = request.header("openstack-api-version", "compute 2.96");
        }
        let request = request.body(body).unwrap();
        let answer = self.services.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// The bytes of an answer.
    pub async fn raw_as(&self, token: &str, path: &str) -> Vec<u8> {
        let request = Request::get(path).header("x-auth-token", token).body(Body::empty()).unwrap();
        let answer = self.services.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.send(Method::POST, path, "application/json", Body::from(body.to_string())).await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, "application/json", Body::empty()).await
    }

    /// Boots a server as a user of the project red, and returns its id.
    pub async fn boot(&self, user: &str, name: &str, flavor: &str) -> String {
        let token = self.login(user, "red").await;
        let server = json!({"server": {"name": name, "flavorRef": flavor, "imageRef": self.image,
            "networks": [{"uuid": self.network}]}});
        let body = Body::from(server.to_string());
        let path = "/compute/v2.1/servers";
        let made = self.send_as(&token, Method::POST, path, "application/json", body).await;
        made["server"]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until no operation of a server is in progress.
    pub async fn wait_until_idle(&self, id: &str) {
        for _ in 0..1000 {
            let found = self.get(&format!("/compute/v2.1/kilonova/servers/{id}")).await;
            if found["server"]["operation"].is_null() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{}: {id} still has an operation in progress", self.store);
    }

    /// Waits until a server has a status.
    pub async fn becomes(&self, id: &str, status: &str) {
        for _ in 0..1000 {
            let found = self.get(&format!("/compute/v2.1/servers/{id}")).await;
            if found["server"]["status"] == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{}: {id} does not become {status}", self.store);
    }
}
