//! The ports of a server after its commit: created, bound, and released, with a failure at each request.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kilonova_compute_app::ports::neutron::{
    Attached, Attachment, Failure, Providers, Wanted, Wish, attach, release, resolve,
};
use kilonova_compute_app::ports::{NetworkRequest, PortRequest};
use kilonova_ids::{PortId, ServerId};
use kilonova_testkit::neutron::Failure as Fault;
use serde_json::{Value, json};

use super::{Cloud, PROJECT};

/// A server with a new port and a supplied one.
struct Guest {
    server: ServerId,
    wanted: Vec<Wanted>,
    supplied: BTreeSet<PortId>,
}

impl Guest {
    async fn new(cloud: &Cloud) -> Self {
        let port = {
            let mut state = cloud.fake.state();
            let port = state.add_port(PROJECT, &cloud.network, "normal");
            state.set_profile(&port, json!({"capabilities": ["switchdev"]}));
            port
        };
        let lines = vec![
            PortRequest { port: port.parse().ok(), tag: Some("t".into()), ..Default::default() },
            PortRequest { network: cloud.network.parse().ok(), ..Default::default() },
        ];
        let request = NetworkRequest::Ports(lines);
        let found = resolve(cloud.user(), cloud.by(), &request, &[], (1, 1)).await;
        let supplied = [port.parse().expect("an id")].into();
        let connections = found.expect("the request is resolved").connections;
        let wanted = connections.iter().map(|one| Wanted { wish: Wish::from(one), known: None });
        Self { server: ServerId::new_v4(), wanted: wanted.collect(), supplied }
    }

    async fn attach(&self, cloud: &Cloud, host: &str) -> Result<Vec<Attached>, Failure> {
        let all = self.make(cloud, Some(host), None, &self.wanted).await?;
        Ok(all.into_iter().map(|one| one.expect("the port exists")).collect())
    }

    async fn make(
        &self,
        cloud: &Cloud,
        host: Option<&str>,
        next_host: Option<&str>,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Attached>>, Failure> {
        let attachment = Attachment {
            server: self.server,
            project: PROJECT,
            host,
            next_host,
            may_have_more: true,
            zone: "nova",
            hostname: "vm-1",
            wanted,
            groups: &[],
            devices: &HashMap::new(),
            providers: &Providers::default(),
        };
        let made = &mut BTreeMap::new();
        attach(&cloud.neutron, cloud.call(), cloud.own(), &attachment, made).await
    }

    /// The connections once the ports are known.
    fn known(&self, attached: &[Attached]) -> Vec<Wanted> {
        let known = |(wanted, one): (&Wanted, &Attached)| Wanted {
            known: Some(one.port.id),
            ..wanted.clone()
        };
        self.wanted.iter().zip(attached).map(known).collect()
    }

    async fn release(&self, cloud: &Cloud) -> Result<(), kilonova_neutron::Error> {
        let user = Some(cloud.call());
        release(&cloud.neutron, user, cloud.own(), self.server, &self.supplied).await
    }

    fn supplied(&self) -> String {
        self.supplied.first().expect("one is supplied").to_string()
    }
}

/// Checks the state after a release: the supplied port is as its owner created it, and no other port exists.
fn assert_released(cloud: &Cloud, guest: &Guest) {
    let state = cloud.fake.state();
    let ports = state.ports();
    assert_eq!(ports.len(), 1, "{ports:?}");
    let port = state.port(&guest.supplied());
    for (key, value) in [
        ("device_id", json!("")),
        ("device_owner", json!("")),
        ("binding:host_id", json!("")),
        ("binding:profile", json!({"capabilities": ["switchdev"]})),
        ("dns_name", json!("")),
    ] {
        assert_eq!(port[key], value, "{key}");
    }
}

#[tokio::test]
async fn ports_are_created_by_the_user_and_bound_by_the_service() {
    let cloud = Cloud::new().await;
    let guest = Guest::new(&cloud).await;
    cloud.fake.take_calls();
    let attached = guest.attach(&cloud, "host1").await.expect("the ports are bound");
    let calls = cloud.fake.take_calls();
    assert!(calls.contains(&"POST /ports (member)".to_owned()), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| call.contains("PUT /ports/")).count(), 2);
    assert!(calls.iter().all(|call| !call.starts_with("PUT") || call.ends_with("(admin)")));
    let [supplied, new] = attached.as_slice() else { panic!("there are two") };
    assert_eq!(supplied.port.id.to_string(), guest.supplied());
    assert_ne!(new.port.id.to_string(), guest.supplied());
    for one in &attached {
        let port = cloud.fake.state().port(&one.port.id.to_string());
        for (key, value) in [
            ("device_id", json!(guest.server)),
            ("device_owner", json!("compute:nova")),
            ("binding:host_id", json!("host1")),
            ("binding:vif_type", json!("ovs")),
            ("dns_name", json!("vm-1")),
            ("tenant_id", json!(PROJECT)),
        ] {
            assert_eq!(port[key], value, "{key}");
        }
    }
    assert_eq!(
        Value::Object(supplied.port.profile.clone()),
        json!({"capabilities": ["switchdev"]})
    );
    guest.release(&cloud).await.expect("the ports are released");
    assert_released(&cloud, &guest);
    guest.release(&cloud).await.expect("a repeated release succeeds");
}

/// Every request of an attachment and of its release fails in each way, one after the other. The attempt
/// is repeated until it succeeds, as after a crash: no port is created twice, and the release leaves none.
#[tokio::test]
async fn every_request_may_fail_and_be_repeated() {
    let requests = ["GET /ports", "GET /networks", "GET /extensions", "POST /ports", "PUT /ports"];
    for request in requests {
        for fault in [Fault::Status(500), Fault::Lost, Fault::AnswerLost] {
            for nth in 0..3 {
                let cloud = Cloud::new().await;
                let guest = Guest::new(&cloud).await;
                cloud.fake.fail_after(request, fault, nth);
                let mut tries = 0;
                let attached = loop {
                    tries += 1;
                    assert!(tries < 4, "{request} {fault:?} {nth}");
                    match guest.attach(&cloud, "host1").await {
                        Ok(attached) => break attached,
                        Err(Failure::Neutron(_)) => {}
                        Err(other) => panic!("{request} {fault:?} {nth}: {other:?}"),
                    }
                };
                assert_eq!(attached.len(), 2);
                assert_eq!(cloud.fake.state().ports().len(), 2, "{request} {fault:?} {nth}");
                for failing in ["GET /ports", "PUT /ports", "DELETE /ports", "GET /networks"] {
                    cloud.fake.fail(failing, fault, 1);
                    let _ = guest.release(&cloud).await;
                    cloud.fake.heal();
                }
                guest.release(&cloud).await.expect("Neutron is back");
                assert_released(&cloud, &guest);
            }
        }
    }
}

#[tokio::test]
async fn another_host_is_tried_after_a_failed_binding() {
    let cloud = Cloud::new().await;
    let guest = Guest::new(&cloud).await;
    let failed = guest.attach(&cloud, "host9").await.expect_err("there is no agent");
    let Failure::Host(words) = failed else { panic!("{failed:?}") };
    let port = guest.supplied();
    let expected =
        format!("Binding failed for port {port}, please check neutron logs for more information.");
    assert_eq!(words, expected);
    let attached = guest.attach(&cloud, "host2").await.expect("the ports are bound");
    assert!(attached.iter().all(|one| one.port.host == "host2"), "{attached:?}");
    assert_eq!(cloud.fake.state().ports().len(), 2);
}

/// A live migration prepares bindings on the destination, and a later goal activates or deletes them.
#[tokio::test]
async fn ports_are_prepared_on_a_second_host() {
    let cloud = Cloud::new().await;
    let guest = Guest::new(&cloud).await;
    let attached = guest.attach(&cloud, "host1").await.expect("the ports are bound");
    let known = guest.known(&attached);
    let hosts = || {
        let state = cloud.fake.state();
        attached
            .iter()
            .map(|one| state.hosts_of(&one.port.id.to_string()).join(" "))
            .collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let both = guest.make(&cloud, Some("host1"), Some("host2"), &known).await;
        let both = both.expect("they are prepared");
        for one in both {
            let next = one.expect("it exists").next.expect("it is prepared");
            assert_eq!((next.host.as_str(), next.vif_type.as_str()), ("host2", "ovs"));
        }
        assert_eq!(hosts(), ["host1 host2", "host1 host2"]);
    }
    let failed = guest.make(&cloud, Some("host1"), Some("host9"), &known).await;
    assert!(matches!(failed, Err(Failure::Host(_))), "host9 has no agent: {failed:?}");
    guest.make(&cloud, Some("host1"), None, &known).await.expect("the binding is deleted");
    assert_eq!(hosts(), ["host1", "host1"]);
    for host in ["host2", "host2"] {
        guest.make(&cloud, Some("host1"), Some("host2"), &known).await.ok();
        let moved = guest.make(&cloud, Some(host), None, &known).await.expect("it is activated");
        let moved: Vec<_> = moved.into_iter().flatten().collect();
        assert!(moved.iter().all(|one| one.port.host == host && one.port.vif_type == "ovs"));
        assert_eq!(hosts(), ["host2", "host2"]);
    }
    // A server without a host keeps its ports, unbound.
    for is_bound in [true, false] {
        cloud.fake.take_calls();
        let kept = guest.make(&cloud, None, None, &known).await.expect("they are unbound");
        let changes = cloud.fake.take_calls().iter().filter(|call| call.starts_with("PUT")).count();
        assert_eq!(changes, if is_bound { kept.len() } else { 0 });
        for one in kept {
            let port = one.expect("it exists").port;
            assert_eq!((port.host.as_str(), port.vif_type.as_str()), ("", "unbound"));
            assert_eq!(port.device_id, guest.server.to_string());
            assert!(port.device_owner.starts_with("compute:"), "{}", port.device_owner);
        }
    }
    cloud.fake.state().remove_port(&guest.supplied());
    let left = guest.make(&cloud, Some("host2"), None, &known).await.expect("one is left");
    assert_eq!(left.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
}

async fn refused(cloud: &Cloud, guest: &Guest, words: &str) {
    match guest.attach(cloud, "host1").await.expect_err(words) {
        Failure::Request(refusal) => assert_eq!(refusal.message, words),
        other => panic!("{words}: {other:?}"),
    }
}

#[tokio::test]
async fn what_changed_since_the_request_is_noticed() {
    let cloud = Cloud::new().await;
    let guest = Guest::new(&cloud).await;
    let (port, server) = (guest.supplied(), guest.server);
    let change = |key: &str, value: Value| cloud.fake.state().change_port(&port, key, value);
    change("device_id", json!("another"));
    refused(&cloud, &guest, &format!("Port {port} is still in use.")).await;
    change("device_id", json!(""));
    change("dns_name", json!("other"));
    let words = format!(
        "Port {port} not usable for instance {server}. Value other assigned to dns_name attribute \
         does not match instance's hostname vm-1"
    );
    refused(&cloud, &guest, &words).await;
    change("dns_name", json!(""));
    change("tenant_id", json!("8"));
    refused(&cloud, &guest, &format!("Port {port} not usable for instance {server}.")).await;
    change("tenant_id", json!(PROJECT));
    cloud.fake.state().set_port_quota(PROJECT, 1);
    refused(&cloud, &guest, "Maximum number of ports exceeded").await;
    cloud.fake.state().remove_port(&port);
    refused(&cloud, &guest, &format!("Port id {port} could not be found.")).await;
    guest.release(&cloud).await.expect("nothing is left to release");
    assert_eq!(cloud.fake.state().ports(), Vec::<Value>::new());
}
