//! The metadata that a host's guests get, even while no controller is available.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_node::{
    DesiredNetworks, GuestAnswer, GuestMethod, GuestRequest, GuestRequests, GuestStatus, Network,
    NetworkFailures, NetworkFuture, Node, ResumeFuture,
};
use kilonova_node_api::{
    Address, Desired, Domain, FilterGroup, Filters, GuestMetadata, InjectedFile, Interface, Key,
    Outcome, PortFilter,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::agent::control::Control;
use crate::agent::host::{Host, guest, present};

/// Networks on which the test can send requests as any guest.
#[derive(Default)]
struct Asking {
    guests: Mutex<Option<Arc<dyn GuestRequests>>>,
    resumed: Mutex<usize>,
}

impl Network for Asking {
    fn make<'a>(&'a self, _wanted: &'a DesiredNetworks) -> NetworkFuture<'a> {
        Box::pin(async { NetworkFailures::default() })
    }

    fn serve_metadata(&self, guests: Arc<dyn GuestRequests>) -> bool {
        *self.guests.lock().expect("the lock is not poisoned") = Some(guests);
        true
    }

    fn resume<'a>(&'a self, guests: &'a DesiredNetworks) -> ResumeFuture<'a> {
        *self.resumed.lock().expect("the lock is not poisoned") = guests.guests.len();
        Box::pin(async {})
    }
}

impl Asking {
    async fn send(
        &self,
        network: NetworkId,
        from: &str,
        method: GuestMethod,
        path: &str,
    ) -> GuestAnswer {
        let guests = self.guests.lock().expect("the lock is not poisoned").clone();
        let from = from.parse().expect("the address is valid");
        let request = GuestRequest { network, from, method, path: path.into() };
        guests.expect("the agent serves").answer(request).await
    }

    async fn get(&self, network: NetworkId, from: &str, path: &str) -> (u16, String) {
        told(self.send(network, from, GuestMethod::Get, path).await)
    }

    async fn meta_data(&self, network: NetworkId, from: &str) -> Value {
        let (status, text) = self.get(network, from, "/openstack/latest/meta_data.json").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("the text is JSON")
    }
}

fn told(answer: GuestAnswer) -> (u16, String) {
    (answer.status.code(), String::from_utf8(answer.body).expect("the body is text"))
}

struct Running {
    asking: Arc<Asking>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), kilonova_node::Error>>,
}

impl Running {
    fn on(host: &Host, control: &Arc<Control>) -> Self {
        let asking = Arc::new(Asking::default());
        let mut parts = host.parts();
        parts.network = Arc::clone(&asking) as Arc<dyn Network>;
        let (stop, stopped) = watch::channel(false);
        let node = Node::new(parts).expect("the agent starts");
        Self { asking, stop, task: tokio::spawn(node.run(control.clone(), stopped)) }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.task
            .await
            .expect("the agent does not panic")
            .expect("the agent stops without an error");
    }
}

fn interface(network: NetworkId, last: u8) -> Interface {
    Interface {
        port: PortId::new_v4(),
        mac: format!("fa:16:3e:00:00:{last:02x}"),
        network,
        network_type: "flat".into(),
        physical_network: "physnet1".into(),
        vlan: None,
        mtu: 1500,
        addresses: vec![Address {
            address: format!("10.0.0.{last}").parse().expect("the address is valid"),
            prefix: 24,
            gateway: None,
            dns: Vec::new(),
            routes: Vec::new(),
            dhcp: true,
            dhcp_server: "10.0.0.254".parse().ok(),
            six: None,
            floating: Vec::new(),
        }],
        device: None,
        tag: None,
        dhcp_mac: Some("fa:16:3e:dc:dc:dc".into()),
        vif: None,
    }
}

fn asker(name: &str, interface: Interface) -> Domain {
    let mut domain = guest(name, Vec::new());
    domain.config.interfaces = vec![interface];
    domain.config.guest = GuestMetadata {
        hostname: name.into(),
        project: "red".into(),
        keys: vec![Key {
            name: "mine".into(),
            kind: "ssh".into(),
            public_key: "ssh-ed25519 A".into(),
        }],
        user_data: Some("I2Nsb3VkLWNvbmZpZwo=".into()),
        files: vec![InjectedFile { path: "/etc/motd".into(), contents: "SGVsbG8K".into() }],
        ..GuestMetadata::default()
    };
    domain
}

#[tokio::test]
async fn a_guest_gets_its_own_data_by_its_address() {
    let (host, control) = (Host::new(""), Control::new());
    let (one, other, gone) = (ServerId::new_v4(), ServerId::new_v4(), ServerId::new_v4());
    let (near, far) = (NetworkId::new_v4(), NetworkId::new_v4());
    let running = Running::on(&host, &control);
    let asking = &running.asking;
    let domain = asker("one", interface(near, 2));
    control.expect(control.want(one, present(&domain)), Outcome::Running).await;
    let twin = asker("other", interface(far, 2));
    control.expect(control.want(other, present(&twin)), Outcome::Running).await;

    let data = asking.meta_data(near, "10.0.0.2").await;
    assert_eq!((&data["uuid"], &data["name"]), (&one.to_string().into(), &"one".into()));
    assert_eq!((&data["hostname"], &data["project_id"]), (&"one.novalocal".into(), &"red".into()));
    let again = asking.meta_data(near, "10.0.0.2").await;
    assert_ne!(data["random_seed"], again["random_seed"], "each is fresh");
    let far_data = asking.meta_data(far, "10.0.0.2").await;
    assert_eq!(far_data["uuid"], other.to_string(), "the same address on another network");
    let six = asking.meta_data(near, "fe80::f816:3eff:fe00:2").await;
    assert_eq!(six["uuid"], one.to_string());
    let get = async |path: &str| asking.get(near, "10.0.0.2", path).await;
    assert_eq!(get("/openstack/latest/user_data").await, (200, "#cloud-config\n".into()));
    assert_eq!(get("/latest/meta-data/local-ipv4").await, (200, "10.0.0.2".into()));
    assert_eq!(get("/latest/meta-data/public-keys/0/openssh-key").await.1, "ssh-ed25519 A");
    assert_eq!(get("/openstack/1999-01-01").await.0, 404);
    assert_eq!(data.get("files"), None, "files are on the config drive only");
    assert_eq!(get("/openstack/content/0000").await.0, 404);

    for (network, from) in [
        (near, "10.0.0.3"),
        (near, "fe80::f816:3eff:fe00:3"),
        (far, "10.0.0.9"),
        (NetworkId::new_v4(), "10.0.0.2"),
        (near, "::"),
    ] {
        let (status, text) = asking.get(network, from, "/openstack/latest/meta_data.json").await;
        assert_eq!((status, &*text), (404, "The resource could not be found."), "{from}");
        assert_eq!(asking.get(network, from, "/").await.0, 200, "the versions are public");
    }

    // The names of security groups are part of the packet filters.
    let group = SecurityGroupId::new_v4();
    let groups = |name: &str| Filters {
        ports: vec![PortFilter {
            port: domain.config.interfaces[0].port,
            up: true,
            secure: true,
            groups: vec![group],
            pairs: Vec::new(),
        }],
        groups: vec![FilterGroup { id: group, name: name.into(), rules: Vec::new() }],
        members: Vec::new(),
    };
    for name in ["web", "front"] {
        control.with(|state| state.filters = Some(groups(name)));
        control.expect(control.want(other, present(&twin)), Outcome::Running).await;
        assert_eq!(get("/latest/meta-data/security-groups").await, (200, name.into()));
    }

    // A change of the guest appears immediately.
    let mut renamed = domain.clone();
    renamed.config.display_name = "first".into();
    renamed.config.guest.metadata = [("role".to_owned(), "front".to_owned())].into();
    control.expect(control.want(one, present(&renamed)), Outcome::Running).await;
    let data = asking.meta_data(near, "10.0.0.2").await;
    assert_eq!((&data["name"], &data["meta"]["role"]), (&"first".into(), &"front".into()));

    // If the documents give two guests the same address, neither gets the other's data.
    let double = asker("double", interface(near, 2));
    control.expect(control.want(gone, present(&double)), Outcome::Running).await;
    assert_eq!(asking.get(near, "10.0.0.2", "/openstack/latest/user_data").await.0, 404);
    control.expect(control.want(gone, Desired::Absent), Outcome::Absent).await;
    assert_eq!(asking.meta_data(near, "10.0.0.2").await["uuid"], one.to_string());
    control.expect(control.want(one, Desired::Absent), Outcome::Absent).await;
    assert_eq!(asking.get(near, "10.0.0.2", "/openstack/latest/user_data").await.0, 404);
    running.stop().await;
}

#[tokio::test]
async fn a_guest_sets_its_password_once() {
    let (host, control) = (Host::new(""), Control::new());
    let (server, network) = (ServerId::new_v4(), NetworkId::new_v4());
    let running = Running::on(&host, &control);
    let domain = asker("one", interface(network, 2));
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    let path = "/openstack/2013-04-04/password";
    let send = async |method| told(running.asking.send(network, "10.0.0.2", method, path).await);
    let post = async |text: &str| send(GuestMethod::Post(Some(text.into()))).await;
    let too_large = (400, "Request is too large.".to_owned());
    assert_eq!(send(GuestMethod::Get).await, (200, String::new()));
    assert_eq!(send(GuestMethod::Post(None)).await, too_large);
    assert_eq!(post(&"x".repeat(1021)).await, too_large);
    assert_eq!(post("a\0b").await.0, 400);
    let bytes = GuestMethod::Post(Some(vec![0xff]));
    assert_eq!(send(bytes).await, (400, "The password is not text in UTF-8.".into()));
    let other = send(GuestMethod::Other).await;
    assert_eq!(other, (400, "GET and POST only are supported.".into()));
    // While the controller is unavailable, the guest must retry, and nothing is lost.
    control.with(|state| state.unavailable = 1000);
    assert_eq!(post("first").await.0, GuestStatus::Unavailable.code());
    control.with(|state| state.unavailable = 0);
    assert_eq!(post("first").await, (200, String::new()));
    assert_eq!(post("second").await.0, 409);
    assert_eq!(post(&"x".repeat(1021)).await.0, 409, "the conflict comes first, as in Nova");
    assert_eq!(send(GuestMethod::Get).await, (200, "first".into()));
    assert_eq!(control.with(|state| state.passwords[&server].clone()), "first");
    running.stop().await;
}

#[tokio::test]
async fn no_controller_is_needed_and_not_at_the_start_either() {
    let (host, control) = (Host::new(""), Control::new());
    let (server, network) = (ServerId::new_v4(), NetworkId::new_v4());
    let running = Running::on(&host, &control);
    let domain = asker("one", interface(network, 2));
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    control.with(|state| state.unavailable = u32::MAX);
    assert_eq!(running.asking.meta_data(network, "10.0.0.2").await["name"], "one");
    running.stop().await;
    let running = Running::on(&host, &control);
    let resumed = async || {
        while *running.asking.resumed.lock().expect("the lock is not poisoned") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), resumed())
        .await
        .expect("the agent serves metadata");
    assert!(control.registrations().len() == 1, "the agent has no documents");
    assert_eq!(running.asking.meta_data(network, "10.0.0.2").await["name"], "one");
    let seen = control.with(|state| {
        state.unavailable = 0;
        state.observations.len()
    });
    control.until("documents", |state| (state.observations.len() > seen).then_some(())).await;
    assert_eq!(running.asking.meta_data(network, "10.0.0.2").await["name"], "one");
    running.stop().await;
}

/// A tenth of the 40,000 requests that 1,000 guests send while they boot.
#[tokio::test]
async fn a_burst_of_questions_is_answered_from_memory() {
    const GUESTS: u8 = 100;
    const EACH: u32 = 40;
    const PATHS: [&str; 4] = [
        "/openstack/latest/meta_data.json",
        "/openstack/latest/network_data.json",
        "/latest/meta-data/",
        "/openstack/latest/user_data",
    ];
    let (host, control) = (Host::new(""), Control::new());
    let network = NetworkId::new_v4();
    let running = Running::on(&host, &control);
    let mut last = Vec::new();
    for number in 1..=GUESTS {
        let domain = asker("one of many", interface(network, number));
        last.push(control.want(ServerId::new_v4(), present(&domain)));
    }
    for generation in last {
        control.expect(generation, Outcome::Running).await;
    }
    let begun = Instant::now();
    for round in 0..EACH {
        for number in 1..=GUESTS {
            let path = PATHS[usize::try_from(round % 4).expect("a small number")];
            let (status, _) = running.asking.get(network, &format!("10.0.0.{number}"), path).await;
            assert_eq!(status, 200);
        }
    }
    let each = begun.elapsed() / (u32::from(GUESTS) * EACH);
    println!("{each:?} per request");
    running.stop().await;
}

#[tokio::test]
async fn vendor_data_of_services_come_from_the_control_plane_once() {
    let (host, control) = (Host::new(""), Control::new());
    let (one, plain) = (ServerId::new_v4(), ServerId::new_v4());
    let network = NetworkId::new_v4();
    let running = Running::on(&host, &control);
    let mut domain = asker("one", interface(network, 2));
    domain.config.guest.dynamic_vendordata = true;
    control.expect(control.want(one, present(&domain)), Outcome::Running).await;
    let other = asker("plain", interface(network, 3));
    control.expect(control.want(plain, present(&other)), Outcome::Running).await;
    let ask = async |from: &str, file: &str| {
        running.asking.get(network, from, &format!("/openstack/latest/{file}")).await
    };
    let requests = || control.with(|state| state.vendordata_requests);
    // A vendor data service fails, so the guest gets an error instead of incomplete vendor data.
    assert_eq!(ask("10.0.0.2", "vendor_data2.json").await.0, 500);
    assert_eq!(ask("10.0.0.2", "meta_data.json").await.0, 200);
    assert_eq!(requests(), 1);
    let answers = serde_json::from_str(r#"{"ipam": {"zone": "a"}}"#).expect("the text is JSON");
    control.with(|state| state.vendordata = Some(answers));
    let complete = (200, r#"{"ipam":{"zone":"a"},"static":{}}"#.to_owned());
    assert_eq!(ask("10.0.0.2", "vendor_data2.json").await, complete);
    assert_eq!(ask("10.0.0.2", "vendor_data2.json").await, complete);
    assert_eq!(ask("10.0.0.2", "vendor_data.json").await, (200, "{}".into()));
    assert_eq!(requests(), 2, "the answers belong to the document");
    let without = (200, r#"{"static":{}}"#.to_owned());
    assert_eq!(ask("10.0.0.3", "vendor_data2.json").await, without);
    assert_eq!(requests(), 2, "a guest without dynamic vendor data causes no request");
    // A change of the guest creates a new document.
    domain.config.display_name = "renamed".into();
    control.expect(control.want(one, present(&domain)), Outcome::Running).await;
    control.with(|state| state.unavailable = u32::MAX);
    assert_eq!(ask("10.0.0.2", "vendor_data2.json").await.0, 503);
    assert_eq!(ask("10.0.0.2", "meta_data.json").await.0, 200, "the rest needs no controller");
    control.with(|state| state.unavailable = 0);
    assert_eq!(ask("10.0.0.2", "vendor_data2.json").await, complete);
    running.stop().await;
}
